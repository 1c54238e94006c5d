"""A schema read into nodes: every keyword is enforced, noted, or a fault.

* All faults of a schema are found, not the first only.
* A place with `enum` or `const` is a finite list: each value is held to every keyword there by a full evaluator, so
  nothing at such a place is refused.
* A keyword that says nothing about any type admitted at its place is kept trivially.
* An optional property that no value satisfies is left out and noted; one that must be there empties its object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from judge_local.errors import EXCERPT_CHARS, SchemaFault, UsageError, excerpt
from judge_local.grammar.dialect import CannotEvaluateError, Evaluator
from judge_local.grammar.keywords import ANNOTATION, APPLIES_TO, ENFORCED, REFUSED, TYPES, near_miss
from judge_local.grammar.nodes import Empty, Listed, Member, Node, ObjectFacet, Typed
from judge_local.grammar.numbers import Bound, NumberFacet
from judge_local.grammar.parse import Json, canonical, escape_pointer
from judge_local.grammar.report import Findings, Kind
from judge_local.grammar.strings import StringFacet

ABSENT = "(absent)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a schema is to be read."""

    order: tuple[str, ...] = ()
    optional: Literal["allow", "emit"] = "allow"
    additional: Literal["allow", "deny"] = "allow"
    checked: frozenset[str] = frozenset()
    pin: Mapping[str, str] = field(default_factory=dict)
    max_string: int = 4096
    """No string is longer than this many code points."""
    unbounded_string: int = 4096
    """A string without `maxLength` is no longer than this."""
    string_limits: Mapping[str, int] = field(default_factory=dict)
    """The same for single places, by JSON pointer into the instance."""
    decimals: int = 6
    separators: tuple[str, str] = (",", ":")
    unknown: Literal["annotate", "refuse"] = "annotate"
    formats: Literal["annotate", "strict"] = "annotate"


class Builder:
    """Reads one schema document. What it notes stands in `findings`."""

    def __init__(self, settings: Settings, evaluator: Evaluator) -> None:
        self._settings, self._evaluator = settings, evaluator
        self.findings = Findings()

    def read(self, schema: Json, pointer: str = "", place: str = "") -> Node | Empty | None:
        """The node of `schema`; None when a fault was found, so that there is none to make."""
        if schema is False:
            return Empty(pointer, "`false` admits nothing")
        if not isinstance(schema, dict):
            self._fault(pointer, "true", "true", "any value is admitted, and no grammar of ours writes that")
            return None
        begun = len(self.findings.faults)
        if "enum" in schema or "const" in schema:
            node = self._listed(schema, pointer, place, _candidates(schema))
        else:
            self._note_others(schema, pointer, place)
            node = self._typed(schema, pointer, place)
        if isinstance(node, Empty):
            # Nothing is admitted whatever the faulty keywords say, so they take nothing away.
            del self.findings.faults[begun:]
        return node

    # Keywords that are not read into facets.

    def _note_others(self, schema: dict[str, Json], pointer: str, place: str) -> None:
        note, settings = self.findings.note, self._settings
        for keyword, value in schema.items():
            if keyword == "format" and settings.formats == "strict":
                self._fault(
                    pointer, keyword, value, "no grammar of ours enforces formats", 'Use formats="annotate".'
                )
            elif keyword in ANNOTATION:
                note(Kind.ANNOTATION, pointer, keyword, place)
            elif keyword not in ENFORCED and keyword not in REFUSED:
                self._unknown(keyword, value, pointer, place)

    def _unknown(self, keyword: str, value: Json, pointer: str, place: str) -> None:
        meant = near_miss(keyword)
        slip = f"did you mean {meant!r}?" if meant else ""
        if self._settings.unknown == "refuse":
            hint = f"Did you mean {meant!r}?" if meant else 'Remove it, or use unknown="annotate".'
            self._fault(pointer, keyword, value, "it belongs to no JSON Schema vocabulary", hint)
            return
        self.findings.note(Kind.ANNOTATION, pointer, keyword, place, slip or "belongs to no vocabulary")
        if meant:
            self.findings.warnings.append(f"{pointer or '/'}: {keyword!r} belongs to no vocabulary; {slip}")

    def _refuse_unenforced(
        self, schema: dict[str, Json], types: frozenset[str], pointer: str, place: str
    ) -> bool:
        refused = False
        for keyword, value in schema.items():
            if keyword not in ENFORCED and keyword not in REFUSED:
                continue
            if not APPLIES_TO.get(keyword, types) & types:
                self.findings.note(
                    Kind.ENFORCED, pointer, keyword, place, "says nothing about the types here"
                )
            elif keyword in ENFORCED:
                self.findings.note(Kind.ENFORCED, pointer, keyword, place)
            elif keyword in self._settings.checked:
                self.findings.note(Kind.CHECKED, pointer, keyword, place, REFUSED[keyword])
            else:
                hint = f"Remove it, or name {keyword!r} in `checked` to leave it to the validator."
                self._fault(
                    pointer,
                    keyword,
                    value,
                    f"it {REFUSED[keyword]}, and no grammar of ours enforces that",
                    hint,
                )
                refused = True
        return refused

    # Finite places.

    def _listed(self, schema: Json, pointer: str, place: str, candidates: list[Json]) -> Node | Empty | None:
        keywords = schema if isinstance(schema, dict) else {}
        self._note_others(keywords, pointer, place)
        for keyword in keywords:
            if keyword in ENFORCED or keyword in REFUSED:
                self.findings.note(
                    Kind.ENFORCED, pointer, keyword, place, "every value was checked when compiling"
                )
        try:
            values = [value for value in candidates if self._evaluator.valid(value, schema)]
        except CannotEvaluateError as error:
            keyword = "const" if "const" in keywords else "enum"
            self._fault(pointer, keyword, keywords.get(keyword), f"its values cannot be checked: {error}")
            return None
        if not values:
            return Empty(
                pointer, "no listed value satisfies the other keywords" if candidates else "nothing is listed"
            )
        dropped = len(candidates) - len(values)
        if dropped:
            listing = f"{dropped} of {len(candidates)} values break another keyword here"
            self.findings.note(Kind.PRUNED, pointer, "enum", place, listing)
        return Listed(pointer, tuple(values))

    # Places by type.

    def _typed(self, schema: dict[str, Json], pointer: str, place: str) -> Node | Empty | None:
        types = _types(schema)
        refused = self._refuse_unenforced(schema, types, pointer, place)
        if "type" not in schema:
            # A schema combined with this one may give the types, and that it is refused was said already.
            combined = schema.keys() & REFUSED.keys() - APPLIES_TO.keys() - self._settings.checked
            if not combined:
                reason = "without it any value is admitted, and no grammar of ours writes that"
                self._fault(pointer, "type", ABSENT, reason, 'Name the types, such as "type": "object".')
            if "properties" in schema:
                self._object(schema, pointer, place)  # for the faults inside
            return None
        unread = "array" in types
        if unread:
            self._fault(pointer, "type", schema["type"], "no grammar of ours writes arrays")
        number: NumberFacet | None = None
        string: StringFacet | None = None
        shape: ObjectFacet | None = None
        empties: list[Empty] = []
        for facet in self._facets(schema, types, pointer, place):
            if isinstance(facet, Empty):
                empties.append(facet)
            elif isinstance(facet, NumberFacet):
                number = facet
            elif isinstance(facet, StringFacet):
                string = facet
            elif isinstance(facet, ObjectFacet):
                shape = facet
            else:
                unread = True
        null, boolean = "null" in types, "boolean" in types
        # A keyword that is refused could only take more away, so what is empty without it is empty.
        if not (unread or null or boolean or number or string or shape):
            return Empty(empties[0].pointer, "; ".join(empty.reason for empty in empties))
        if unread or refused:
            return None
        for empty in empties:
            self.findings.note(Kind.PRUNED, pointer, "type", place, empty.reason)
        return Typed(pointer=pointer, null=null, boolean=boolean, number=number, string=string, object=shape)

    def _facets(
        self, schema: dict[str, Json], types: frozenset[str], pointer: str, place: str
    ) -> Iterator[NumberFacet | StringFacet | ObjectFacet | Empty | None]:
        if types & {"number", "integer"}:
            yield self._number(schema, "number" not in types, pointer, place)
        if "string" in types:
            yield self._string(schema, pointer, place)
        if "object" in types:
            yield self._object(schema, pointer, place)

    def _number(
        self, schema: dict[str, Json], integer: bool, pointer: str, place: str
    ) -> NumberFacet | Empty:
        asked = NumberFacet(integer=integer, decimals=self._settings.decimals)
        for keyword, exclusive, narrow in (
            ("minimum", schema.get("exclusiveMinimum") is True, NumberFacet.above),
            ("maximum", schema.get("exclusiveMaximum") is True, NumberFacet.below),
            ("exclusiveMinimum", True, NumberFacet.above),
            ("exclusiveMaximum", True, NumberFacet.below),
        ):
            value = schema.get(keyword)
            if isinstance(value, Decimal):
                asked = narrow(asked, Bound(value, exclusive))
        facet = asked.fitted()
        if not facet.satisfiable():
            return Empty(pointer, "no number lies between its bounds")
        fraction = f"; after it: at most {facet.decimals}" if facet.decimals else "; no fraction"
        spelling = f"no exponent; digits before the point: at most {facet.digits}{fraction}"
        self.findings.note(Kind.NARROWED, pointer, "type", place, spelling)
        return facet

    def _string(self, schema: dict[str, Json], pointer: str, place: str) -> StringFacet | Empty | None:
        settings = self._settings
        low, high = _count(schema, "minLength") or 0, _count(schema, "maxLength")
        if high is not None and low > high:
            return Empty(pointer, f"no string is at least {low} and at most {high} characters long")
        if low > settings.max_string:
            reason = f"no string of ours is longer than {settings.max_string} characters"
            self._fault(pointer, "minLength", schema["minLength"], reason, "Raise `max_string`.")
            return None
        limit = settings.max_string
        if high is None:
            limit = max(low, min(limit, settings.string_limits.get(place, settings.unbounded_string)))
        if high is None or high > limit:
            self.findings.note(Kind.NARROWED, pointer, "maxLength", place, f"at most {limit} characters")
        spelling = "each character has one spelling, and U+007F is left out"
        self.findings.note(Kind.NARROWED, pointer, "type", place, spelling)
        return StringFacet(low=low, high=limit if high is None else min(high, limit))

    # Objects.

    def _object(self, schema: dict[str, Json], pointer: str, place: str) -> ObjectFacet | Empty | None:
        properties = schema.get("properties", {})
        assert isinstance(properties, dict), "the meta-schema was checked"
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        whole = self._closed(schema, pointer, place)
        missing = [name for name in required if name not in properties]
        if whole and missing:
            reason = f"the required name {excerpt(missing[0])} is not among its properties, and no other key may stand"
            return Empty(pointer, reason)
        members: list[Member] = []
        empty: Empty | None = None
        for name in self._in_order(properties, place):
            node = self._property(name, properties[name], pointer, place)
            if isinstance(node, Empty) and name in required:
                reason = f"the required property {excerpt(name)} has no value: {node.reason}"
                empty = empty or Empty(node.pointer, reason)
            elif isinstance(node, Empty):
                self.findings.note(
                    Kind.PRUNED, node.pointer, "properties", place, f"{name!r} left out: {node.reason}"
                )
            elif node is None:
                whole = False
            else:
                pinned = not place and name in self._settings.pin
                always = name in required or pinned or self._settings.optional == "emit"
                members.append(Member(name, node, always))
        if empty is not None:
            return empty
        self._note_narrowed(members, required, pointer, place)
        return ObjectFacet(tuple(members)) if whole else None

    def _closed(self, schema: dict[str, Json], pointer: str, place: str) -> bool:
        """Whether no key but the declared ones may stand; a fault where others may."""
        additional = schema.get("additionalProperties", ABSENT)
        if additional is False:
            return True
        if self._settings.additional == "deny":
            self.findings.note(
                Kind.NARROWED, pointer, "additionalProperties", place, "no keys but the declared ones"
            )
            return True
        reason = "the object admits keys that are not declared, and no grammar of ours writes those"
        hint = 'Use additional="deny", or write "additionalProperties": false.'
        self._fault(pointer, "additionalProperties", additional, reason, hint)
        return False

    def _in_order(self, properties: dict[str, Json], place: str) -> list[str]:
        first = [] if place else [name for name in self._settings.order if name in properties]
        return first + [name for name in properties if name not in first]

    def _property(self, name: str, schema: Json, pointer: str, place: str) -> Node | Empty | None:
        step = escape_pointer(name)
        pointer, inside = f"{pointer}/properties/{step}", f"{place}/{step}"
        if place or name not in self._settings.pin:
            return self.read(schema, pointer, inside)
        pinned = self._settings.pin[name]
        node = self._listed(schema, pointer, inside, [pinned])
        if isinstance(node, Empty):
            raise UsageError(
                f"pin {name!r}", f"{excerpt(pinned)} is not valid under its schema", "Pin another value."
            )
        self.findings.note(Kind.NARROWED, pointer, "const", inside, f"pinned to {excerpt(pinned)}")
        return node

    def _note_narrowed(self, members: list[Member], required: list[str], pointer: str, place: str) -> None:
        if len(members) > 1:
            names = ", ".join(member.name for member in members)
            self.findings.note(Kind.NARROWED, pointer, "properties", place, f"keys in the order {names}")
        forced = [member.name for member in members if member.required and member.name not in required]
        if forced:
            names = ", ".join(forced)
            self.findings.note(
                Kind.NARROWED, pointer, "required", place, f"always written though optional: {names}"
            )

    def _fault(self, pointer: str, keyword: str, value: Json, reason: str, hint: str = "") -> None:
        shown = value if value == ABSENT else canonical(value)
        assert isinstance(shown, str)
        cut = shown if len(shown) <= EXCERPT_CHARS else shown[:EXCERPT_CHARS] + "…"
        self.findings.faults.append(SchemaFault(pointer, keyword, cut, reason, hint))


def _candidates(schema: dict[str, Json]) -> list[Json]:
    values = [schema["const"]] if "const" in schema else _list(schema["enum"])
    return list({canonical(value): value for value in values}.values())


def _types(schema: dict[str, Json]) -> frozenset[str]:
    named = schema.get("type", list(TYPES))
    return frozenset(
        name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)
    )


def _count(schema: dict[str, Json], keyword: str) -> int | None:
    value = schema.get(keyword)
    return int(value) if isinstance(value, Decimal) else None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
