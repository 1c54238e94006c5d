"""From goals to rules: one rule for each set of goals that a place must meet, made when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Final

from judge_local.errors import SchemaFault, UsageError, excerpt
from judge_local.grammar import automata
from judge_local.grammar.algebra import TooManyWaysError
from judge_local.grammar.arrays import ArrayWriter
from judge_local.grammar.automata import Automaton
from judge_local.grammar.dialect import DEFAULT, Evaluator
from judge_local.grammar.document import Document
from judge_local.grammar.emit import Block, Body, Ref, Rules, text
from judge_local.grammar.finish import sealed
from judge_local.grammar.nodes import (
    ANYTHING,
    NEVER,
    ArrayFacet,
    Goals,
    ObjectFacet,
    Shape,
    Witness,
)
from judge_local.grammar.objects import ObjectWriter
from judge_local.grammar.parse import Json, canonical, escape_pointer, string_text
from judge_local.grammar.reader import Reader
from judge_local.grammar.regex import PatternError
from judge_local.grammar.report import Kind
from judge_local.grammar.scalars import write_number, write_string
from judge_local.grammar.settings import KEY_CHARS, Settings
from judge_local.grammar.strings import StringWriter

MAX_PLACES: Final = 20_000


@lru_cache(16)
def _anything(
    separators: tuple[str, str],
    max_string: int,
    unbounded_string: int,
    max_items: int,
    max_depth: int,
    decimals: int,
    closed: bool,
) -> Block:
    """Any value, within the caps."""
    settings = Settings(
        separators=separators,
        max_string=max_string,
        unbounded_string=unbounded_string,
        max_items=max_items,
        max_depth=max_depth,
        decimals=decimals,
        additional="deny" if closed else "allow",
    )
    document = Document(True, DEFAULT)
    places = Places(Reader(document, Evaluator(True, DEFAULT), settings), settings)
    return sealed(places.rules, (places.bare(),))


class Places:
    """Writes the places of one schema into rules."""

    def __init__(
        self, reader: Reader, settings: Settings, optional: frozenset[tuple[Goals, int]] = frozenset()
    ) -> None:
        self.reader, self.settings = reader, settings
        self.separators = settings.separators
        self.rules = Rules()
        self.strings = StringWriter(self.rules)
        self._optional = optional
        self._known: dict[tuple[Goals, int], Ref] = {}
        self._pending: list[tuple[Goals, int, str, Ref]] = []
        self._watched: list[tuple[str, str, ObjectFacet, str, str]] = []
        self.why: dict[str, list[tuple[str, str, str]]] = {}
        """For a rule that admits nothing: pointer, reason, and the rule it is for."""
        self._current = ""
        self._bare = False

    # Places.

    def write(self, root: Goals) -> Ref:
        """Write everything that is reached from `root`; its rule."""
        start = self._rule(root, self.settings.max_depth, "")
        while self._pending:
            goals, depth, place, rule = self._pending.pop()
            self._current = rule.name
            if len(self._known) > MAX_PLACES:
                self.reader.fault("", "", None, "it falls into too many places", "Simplify it.")
                break
            self.rules.fill(rule, self._ways(goals, depth, place))
        return start

    def bare(self) -> Ref:
        """Write the values that no schema speaks of; their rule."""
        self._bare = True
        return self.write(ANYTHING)

    def ref(self, goals: Goals, depth: int, place: str) -> Body:
        """The body that admits what meets `goals` inside a value that is `depth` levels from the deepest."""
        return (self._rule(goals, depth - 1 if not goals else self.settings.max_depth, place),)

    def _anything(self) -> Ref:
        settings = self.settings
        caps = (settings.separators, settings.max_string, settings.unbounded_string, settings.max_items)
        block = _anything(*caps, settings.max_depth, settings.decimals, settings.additional == "deny")
        ((rule,),) = (self.rules.embed(block),)
        assert isinstance(rule, Ref)
        self.rules.comments[rule.name] = "any value"
        return rule

    def _rule(self, goals: Goals, depth: int, place: str) -> Ref:
        if not goals and not self._bare:
            self.narrowed(
                "", "true", "", f"a value without a schema nests at most {self.settings.max_depth} deep"
            )
            if self.settings.additional == "allow":
                note = "that no undeclared key is repeated is checked when the answer is read"
                self.reader.findings.note_once(Kind.CHECKED, "", "additionalProperties", "", note)
            return self._anything()
        key = (goals, depth if not goals else 0)
        if self._limit(place) is not None:
            key = (goals, -1 - len(self._known))
        known = self._known.get(key)
        if known is None:
            comment = min((goal.where for goal in goals if goal.where != "(false)"), default="any value")
            known = self._known[key] = self.rules.declare(comment or "(root)")
            self._pending.append((goals, depth, place, known))
        return known

    def _limit(self, place: str) -> int | None:
        return self.settings.string_limits.get(place)

    def _ways(self, goals: Goals, depth: int, place: str) -> Iterable[Body]:
        where = min((goal.where for goal in goals - NEVER), default="")
        if goals >= NEVER:
            self.nothing(where, "`false` admits nothing")
            return []
        try:
            shape = self.reader.place(goals)
        except TooManyWaysError:
            self.refuse(where, "allOf", "what stands at one place falls into too many alternatives")
            return []
        ways: list[Body] = [text(canonical(value, self.separators)) for value in shape.listed]
        ways += [text(each) for each in sorted(shape.plain)]
        if goals or depth > 0:
            ways += self._each(self._object, shape.objects, depth, place)
            ways += self._each(self._array, shape.arrays, depth, place)
        ways += [body for facet in shape.strings for body in write_string(self, facet, place)]
        ways += [body for facet in shape.numbers for body in write_number(self, facet, where, place)]
        if shape.lost:
            self._lost(shape, where, place, bool(ways))
        if not ways and self._current not in self.why:
            known = sorted(goal.where for goal in goals if goal.where in self.reader.empty)
            if known:
                self.nothing(*self.reader.empty[known[0]])
            else:
                self.nothing(where, "no value meets all its keywords")
        return ways

    def _each(self, write: object, facets: Iterable[object], depth: int, place: str) -> list[Body]:
        found = []
        for facet in facets:
            if self.blocked(facet.blocked):  # type: ignore[attr-defined] # every facet has it
                continue
            body = write(facet, depth, place)  # type: ignore[operator] # a method of this class
            if body is not None:
                found.append(body)
        return found

    def _lost(self, shape: Shape, where: str, place: str, some: bool) -> None:
        for lost in sorted(shape.lost, key=lambda each: (each.fault.pointer, each.fault.keyword, each.type)):
            if some:
                detail = f"some {lost.type} values are left out: {lost.fault.reason}"
                self.narrowed(lost.fault.pointer, lost.fault.keyword, place, detail)
            else:
                self.reader.findings.add_fault(lost.fault)

    def blocked(self, faults: tuple[SchemaFault, ...]) -> bool:
        """Note the faults of an alternative; whether there are any."""
        for fault in faults:
            self.reader.findings.add_fault(fault)
        return bool(faults)

    # Values by type.

    def _object(self, facet: ObjectFacet, depth: int, place: str) -> Body | None:
        return ObjectWriter(self, facet, depth, place).written()

    def _array(self, facet: ArrayFacet, depth: int, place: str) -> Body | None:
        high = self.settings.max_items
        if facet.low > high:
            reason = f"no array of ours has more than {high} items"
            self.refuse(facet.where, "minItems", reason, "Raise `max_items`.")
            return None
        if facet.high is None or facet.high > high:
            self.narrowed(facet.where, "maxItems", place, f"at most {high} items")
        else:
            high = facet.high
        return ArrayWriter(self, facet, depth, place, high).written()

    # What the writers ask.

    def values(self, goals: Goals, limit: int) -> list[Json] | None:
        """All values that meet `goals`, if there are at most `limit` and they can be named."""
        shape = self.reader.place(goals)
        if shape.arrays or shape.objects or shape.lost:
            return None
        plain: dict[str, Json] = {"null": None, "true": True, "false": False}
        found: list[Json] = [plain[each] for each in sorted(shape.plain)]
        found += shape.listed
        for number_ in shape.numbers:
            if not number_.integer or not number_.plain or number_.low is None or number_.high is None:
                return None
            first, last = int(number_.low.value) - 1, int(number_.high.value) + 1
            if last - first > limit + 4:
                return None
            found += [Decimal(each) for each in range(first, last + 1) if number_.holds(Decimal(each))]
        for string in shape.strings:
            if string.blocked:
                return None
            try:
                texts = automata.bounded(self.reader.languages.lower(string.atoms), string.low, string.high)
            except PatternError:
                return None
            listed = texts.texts(limit)
            if listed is None:
                return None
            found += [each for each in listed if each not in string.excluded]
        distinct = list({canonical(value): value for value in found}.values())
        return distinct if len(distinct) <= limit else None

    def key_automaton(self, goals: Goals) -> Automaton:
        """The strings that meet `goals`.

        Raises:
            PatternError: they cannot be followed.
        """
        shape = self.reader.place(goals)
        found = automata.of_words(value for value in shape.listed if isinstance(value, str))
        for facet in shape.strings:
            if facet.blocked:
                raise PatternError(facet.blocked[0].reason)
            one = self.reader.languages.lower(facet.atoms)
            if facet.excluded:
                one = automata.meet(one, automata.complement(automata.of_words(facet.excluded)))
            high = facet.high if facet.high is None or facet.high <= KEY_CHARS else None
            one = automata.bounded(one, facet.low, high)
            if facet.high is not None and high is None:
                one = automata.bounded(one, facet.low, KEY_CHARS)
            found = one if found.empty else automata.union(found, one)
        return found

    def pays(self, witness: Witness, name: str) -> bool:
        """Whether the key `name` can be the witness."""
        languages = self.reader.languages
        if any(declared == name for declared, _ in witness.layer.properties):
            return False
        try:
            if any(languages.matches(source, name) for source, _ in witness.layer.patterns):
                return False
            if witness.pattern is not None and not languages.matches(witness.pattern, name):
                return False
            return not witness.names or self.key_automaton(witness.names).matches(name)
        except PatternError:
            return False

    def in_order(self, names: list[str], place: str) -> list[str]:
        """Names in the order in which they are written."""
        first = [] if place else [name for name in self.settings.order if name in names]
        return first + [name for name in names if name not in first]

    def always(self, goals: Goals, depth: int, name: str, place: str) -> bool:
        """Whether an optional property is written all the same."""
        if not place and name in self.settings.pin:
            return True
        if self.settings.optional != "emit":
            return False
        key = (goals, depth - 1 if not goals else 0)
        return key not in self._optional

    def pinned(self, goals: Goals, name: str, place: str) -> str | None:
        """The text of a value that is pinned."""
        if place or name not in self.settings.pin:
            return None
        value = self.settings.pin[name]
        if not self.reader.all_valid(value, goals):
            raise UsageError(
                f"pin {name!r}", f"{excerpt(value)} is not valid under its schema", "Pin another value."
            )
        where = min((goal.where for goal in goals), default="")
        self.narrowed(where, "const", f"/{name}", f"pinned to {excerpt(value)}")
        return string_text(value)

    # What is noted.

    def narrowed(self, where: str, keyword: str, place: str, detail: str) -> None:
        """Note that less is admitted than the schema does."""
        self.reader.findings.note_once(Kind.NARROWED, where, keyword, place, detail)

    def nothing(self, where: str, reason: str, rule: str = "") -> None:
        """Note why the place at hand may admit nothing."""
        self.why.setdefault(self._current, []).append((where, reason, rule))

    def refuse(self, where: str, keyword: str, reason: str, hint: str = "") -> None:
        """Note a fault, which refuses the schema."""
        schema = self.reader.document.at(where)
        value = schema.get(keyword) if isinstance(schema, dict) else schema
        self.reader.fault(where, keyword, value, reason, hint)

    def pruned(self, facet: ObjectFacet, name: str, place: str, reason: str) -> None:
        """Note that an optional property is left out."""
        detail = f"{name!r} left out: {reason}"
        where = self.property_pointer(facet, name)
        self.reader.findings.note_once(Kind.PRUNED, where, "properties", place, detail)

    def property_pointer(self, facet: ObjectFacet, name: str) -> str:
        """Where a property is declared, if it is in the schema that the facet is named after; else that schema."""
        schema = self.reader.document.at(facet.where)
        declared = schema.get("properties") if isinstance(schema, dict) else None
        known = isinstance(declared, dict) and name in declared
        return f"{facet.where}/properties/{escape_pointer(name)}" if known else facet.where

    def watch(self, value: Body, facet: ObjectFacet, name: str, place: str, *, required: bool) -> None:
        """Remember a property whose value may turn out to admit nothing."""
        ((rule,),) = (value,)
        assert isinstance(rule, Ref)
        if required:
            self.nothing(facet.where, f"the required property {name!r} has no value", rule.name)
        else:
            self._watched.append((rule.name, self._current, facet, name, place))

    def note_dead(self, live: set[str]) -> None:
        """Note which optional parts admit nothing."""
        for rule, owner, facet, name, place in self._watched:
            if rule not in live and owner in live:
                self.pruned(facet, name, place, self.reason(rule, live)[1])

    def reason(self, rule: str, live: set[str], depth: int = 0) -> tuple[str, str]:
        """The pointer to what empties a rule, and why."""
        for where, text_, inner in self.why.get(rule, ()):
            if not inner:
                return where, text_
            if inner not in live:
                if depth > 40:
                    break
                deeper, because = self.reason(inner, live, depth + 1)
                return deeper or where, f"{text_}: {because}"
        return "", "no finite value satisfies it"

    def skippable(self, live: set[str]) -> frozenset[tuple[Goals, int]]:
        """The places that an optional property may not be forced into: those that admit nothing, or recur."""
        from judge_local.grammar.finish import names

        found = {key for key, rule in self._known.items() if rule.name not in live}
        for key, rule in self._known.items():
            seen: set[str] = set()
            pending = [rule.name]
            while pending:
                for body in self.rules.bodies.get(pending.pop(), ()):
                    for name in names(body):
                        if name not in seen:
                            seen.add(name)
                            pending.append(name)
            if rule.name in seen:
                found.add(key)
        return frozenset((goals, depth if not goals else 0) for goals, depth in found)
