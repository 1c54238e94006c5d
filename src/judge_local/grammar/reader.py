"""Schemas read into shapes: each once, when a place first asks for it, and memoised by its pointer.

* Every keyword is enforced, noted, or a fault; a fault counts only where a value could reach it.
* A place is an intersection of goals, memoised by the set of them, so that recursion ends.
* A value that is listed at a place is checked against every goal of the place by a full evaluator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from judge_local.errors import EXCERPT_CHARS, SchemaFault
from judge_local.grammar.algebra import Algebra, TooManyWaysError
from judge_local.grammar.dialect import CannotEvaluateError, Evaluator
from judge_local.grammar.document import Document, LostReferenceError
from judge_local.grammar.formats import FORMATS
from judge_local.grammar.keywords import ANNOTATION, APPLIES_TO, ENFORCED, REFUSED, TYPES, near_miss
from judge_local.grammar.languages import Languages
from judge_local.grammar.nodes import ANYTHING, EVERY, NEVER, NO, Goal, Goals, Lost, Shape
from judge_local.grammar.parse import Json, canonical
from judge_local.grammar.report import Findings, Kind
from judge_local.grammar.settings import Settings

MAX_LISTED: Final = 5000
"""Values that are checked one by one at one place."""
MAX_VALUES: Final = 20_000
"""Values in one list."""
MAX_VALUE_CHARS: Final = 400_000
"""Characters of the values in one list."""
MAX_CHAIN: Final = 40
"""Schemas that apply to one place because others refer to them, one behind the other."""
_DEPTH: Final = 5
"""How deep into a value a contradiction is looked for."""


class _UnfinishedError(Exception):
    """A shape was asked for while it is being made."""


class Reader:
    """Reads one schema document. What it notes stands in `findings`."""

    def __init__(self, document: Document, evaluator: Evaluator, settings: Settings) -> None:
        self.document, self.settings = document, settings
        self._evaluator = evaluator
        self.languages = Languages()
        self.algebra = Algebra(self.languages, self.hopeless)
        self.findings = Findings()
        self._shapes: dict[Goal, Shape] = {}
        self._open: list[Goal] = []
        self._places: dict[Goals, Shape] = {}
        self._hopeless: dict[Goals, bool] = {}
        self._looking = 0
        self._seen: dict[str, int] = {}
        self._stands: dict[str, str] = {}
        self.empty: dict[str, tuple[str, str]] = {}
        """Where and why a schema, by its pointer, admits nothing of some type."""

    # Goals.

    def goals(self, where: str, place: str, *, positive: bool = True) -> Goals:
        """What a value must meet to satisfy the schema at `where`, or to break it."""
        schema = self.document.at(where)
        self._stands.setdefault(where, place)
        hops = 0
        while isinstance(schema, dict) and (target := self._alias(where, schema)) is not None and hops < 64:
            self.note(where, place)
            where, schema, hops = target, self.document.at(target), hops + 1
            self._stands.setdefault(where, place)
        if schema is True or (isinstance(schema, dict) and not self._asserts(schema)):
            self.note(where, place)
            return ANYTHING if positive else NEVER
        if schema is False:
            return NEVER if positive else ANYTHING
        self._seen.setdefault(where, len(self._seen))
        self.note(where, place)
        return frozenset([Goal(where, positive)])

    def stands(self, where: str) -> str:
        """Where in an instance the schema at `where` applies: the first such place, as a JSON pointer."""
        return self._stands.get(where, "")

    def _alias(self, where: str, schema: dict[str, Json]) -> str | None:
        """Where a schema leads that is nothing but a reference."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or "$ref" in self.settings.checked:
            return None
        if any(keyword in ENFORCED or keyword in REFUSED for keyword in schema if keyword != "$ref"):
            return None
        try:
            return self.document.resolve(where, reference)
        except LostReferenceError:
            return None

    def _asserts(self, schema: dict[str, Json]) -> bool:
        return any(
            (keyword in ENFORCED and (keyword != "format" or value in FORMATS)) or keyword in REFUSED
            for keyword, value in schema.items()
            if keyword not in self.settings.checked
        )

    def place(self, goals: Goals) -> Shape:
        """What a place admits that must meet all of `goals`."""
        known = self._places.get(goals)
        if known is None:
            known = EVERY
            ordered = sorted(goals, key=lambda goal: (not goal.positive, self._seen.get(goal.where, 0)))
            for goal in ordered:
                known = self.algebra.meet(known, self.shape(goal))
            if known.listed and not self._only_a_list(goals):
                kept = tuple(value for value in known.listed if self._meets(value, ordered))
                known = replace(known, listed=kept)
            self._places[goals] = known
        return known

    def _only_a_list(self, goals: Goals) -> bool:
        """Whether the values are those of one `enum` or `const`, which were checked when it was read."""
        (goal,) = goals if len(goals) == 1 else (Goal("", positive=False),)
        schema = self.document.at(goal.where)
        listed = isinstance(schema, dict) and not {"enum", "const"}.isdisjoint(
            schema.keys() - self.settings.checked
        )
        return goal.positive and listed

    def hopeless(self, goals: Goals) -> bool:
        """Whether no value can meet all of `goals`, as far as a short look shows."""
        if goals >= NEVER:
            return True
        if not goals:
            return False
        known = self._hopeless.get(goals)
        if known is None:
            if self._looking >= _DEPTH:
                return False
            self._looking += 1
            try:
                shape = self.place(goals)
            except (_UnfinishedError, TooManyWaysError):
                return False
            finally:
                self._looking -= 1
            known = self._hopeless[goals] = shape.empty and not shape.lost
        return known

    def shape(self, goal: Goal) -> Shape:
        """The values that satisfy, or break, one schema."""
        known = self._shapes.get(goal)
        if known is not None:
            return known
        if goal in NEVER:
            return NO
        if goal in self._open:
            if self._looking:
                raise _UnfinishedError
            return self._endless(goal.where, "it refers to itself without end")
        if len(self._open) > MAX_CHAIN:
            if self._looking:
                raise _UnfinishedError
            return self._endless(goal.where, f"its schemas lead through more than {MAX_CHAIN} others")
        schema = self.document.at(goal.where)
        self._open.append(goal)
        try:
            known = self._read(goal, schema)
        finally:
            self._open.pop()
        self._shapes[goal] = known
        return known

    def _endless(self, where: str, reason: str) -> Shape:
        schema = self.document.at(where)
        keywords = schema if isinstance(schema, dict) else {}
        known = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if")
        keyword = next((each for each in known if each in keywords), "$ref")
        self.fault(where, keyword, keywords.get(keyword), reason, "Shorten the way.")
        return EVERY

    def _read(self, goal: Goal, schema: Json) -> Shape:
        from judge_local.grammar.negative import negative
        from judge_local.grammar.positive import positive

        if not isinstance(schema, dict):
            return EVERY if bool(schema) == goal.positive else NO
        try:
            return (positive if goal.positive else negative)(self, goal.where, schema)
        except TooManyWaysError:
            if self._looking:
                raise
            kinds = [keyword for keyword in ("oneOf", "anyOf", "allOf", "not", "if") if keyword in schema]
            keyword = kinds[0] if kinds else next(iter(schema), "")
            self.fault(goal.where, keyword, schema.get(keyword), "it falls into too many alternatives")
            return EVERY

    # Values.

    def valid(self, value: Json, where: str, *, listed: bool = False) -> bool:
        """Whether `value` satisfies the schema at `where`; `listed` when it is known to be in its `enum`.

        Raises:
            CannotEvaluateError: that cannot be said.
        """
        schema = self.document.at(where)
        if listed and isinstance(schema, dict):
            schema = {key: item for key, item in schema.items() if key not in ("enum", "const")}
        return self._evaluator.valid(value, schema)

    def all_valid(self, value: Json, goals: Goals) -> bool:
        """Whether `value` meets all of `goals`; a fault where that cannot be said."""
        return self._meets(value, goals)

    def _meets(self, value: Json, goals: Iterable[Goal]) -> bool:
        for goal in goals:
            try:
                if goal in NEVER or self.valid(value, goal.where) != goal.positive:
                    return False
            except CannotEvaluateError as error:
                self.fault(goal.where, "enum", canonical(value), f"its values cannot be checked: {error}")
                return False
        return True

    # What is noted.

    def note(self, where: str, place: str) -> None:
        """Note what becomes of each keyword of the schema at `where`, once."""
        if (where, "noted") in self.findings.done:
            return
        self.findings.done.add((where, "noted"))
        schema = self.document.at(where)
        if not isinstance(schema, dict):
            return
        types = _types(schema)
        listed = any(key in schema and key not in self.settings.checked for key in ("enum", "const"))
        for keyword, value in schema.items():
            self._note(keyword, value, types, listed, where, place)

    def _note(
        self, keyword: str, value: Json, types: frozenset[str], listed: bool, where: str, place: str
    ) -> None:
        settings, note = self.settings, self.findings.note
        if keyword == "format" and value not in FORMATS:
            if settings.formats == "strict":
                known = ", ".join(sorted(FORMATS))
                self.fault(where, keyword, value, f"it is none of {known}", 'Use formats="annotate".')
            note(Kind.ANNOTATION, where, keyword, place, "a format that nobody checks")
        elif keyword in ANNOTATION:
            note(Kind.ANNOTATION, where, keyword, place)
        elif keyword not in ENFORCED and keyword not in REFUSED:
            self._unknown(keyword, value, where, place)
        elif keyword in settings.checked:
            note(Kind.CHECKED, where, keyword, place, "left to the validator")
        elif listed:
            note(Kind.ENFORCED, where, keyword, place, "every value was checked when compiling")
        elif not APPLIES_TO.get(keyword, types) & types:
            note(Kind.ENFORCED, where, keyword, place, "says nothing about the types here")
        else:
            note(Kind.ENFORCED, where, keyword, place)

    def _unknown(self, keyword: str, value: Json, where: str, place: str) -> None:
        meant = near_miss(keyword)
        slip = f"did you mean {meant!r}?" if meant else ""
        if self.settings.unknown == "refuse":
            hint = f"Did you mean {meant!r}?" if meant else 'Remove it, or use unknown="annotate".'
            self.fault(where, keyword, value, "it belongs to no JSON Schema vocabulary", hint)
            return
        self.findings.note(Kind.ANNOTATION, where, keyword, place, slip or "belongs to no vocabulary")
        if meant:
            self.findings.warnings.append(f"{where or '/'}: {keyword!r} belongs to no vocabulary; {slip}")

    def made_fault(self, where: str, keyword: str, value: Json, reason: str, hint: str = "") -> SchemaFault:
        """A fault that is not yet one: it counts where a value could reach it."""
        shown = canonical(value)
        cut = shown if len(shown) <= EXCERPT_CHARS else shown[:EXCERPT_CHARS] + "…"
        hint = hint or f"Remove it, or name {keyword!r} in `checked` to leave it to the validator."
        return SchemaFault(where, keyword, cut, reason, hint)

    def fault(self, where: str, keyword: str, value: Json, reason: str, hint: str = "") -> None:
        """Note a fault, which refuses the schema."""
        self.findings.add_fault(self.made_fault(where, keyword, value, reason, hint))

    def losing(self, where: str, keyword: str, kinds: Iterable[str], reason: str) -> Shape:
        """Nothing, where the opposite of a keyword should stand and cannot be said."""
        schema = self.document.at(where)
        value = schema.get(keyword) if isinstance(schema, dict) else schema
        fault = self.made_fault(where, keyword, value, reason)
        return Shape(lost=frozenset(Lost(kind, fault) for kind in kinds))


def _types(schema: dict[str, Json]) -> frozenset[str]:
    named = schema.get("type", list(TYPES))
    return frozenset(
        name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)
    )
