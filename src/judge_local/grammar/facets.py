"""What satisfies the keywords that speak of one type: bounds, lengths, patterns, items and members, as facets.

* Keywords of other types say nothing here. A facet that no value can meet is left out, and the report says so.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from judge_local.grammar.formats import FORMATS
from judge_local.grammar.nodes import (
    PLAIN,
    ArrayFacet,
    Atom,
    Contains,
    Goal,
    Items,
    Layer,
    ObjectFacet,
    Shape,
    StringFacet,
)
from judge_local.grammar.numbers import Bound, NumberFacet
from judge_local.grammar.parse import Json, escape_pointer
from judge_local.grammar.regex import PatternError
from judge_local.grammar.report import Kind

if TYPE_CHECKING:
    from judge_local.grammar.reader import Reader

Schema = dict[str, Json]


def by_type(reader: Reader, where: str, schema: Schema) -> Shape:
    """What the keywords of one type admit, each type by itself; a type that nothing satisfies is left out."""
    types = types_in(schema) if "type" in schema else None

    def has(name: str) -> bool:
        return types is None or name in types

    plain = (
        PLAIN
        if types is None
        else frozenset(
            (["null"] if "null" in types else []) + (["true", "false"] if "boolean" in types else [])
        )
    )
    numbers = (number_facet(schema, integer=not has("number")),) if has("number") or has("integer") else ()
    strings = (_string(reader, where, schema),) if has("string") else ()
    arrays = (_array(reader, where, schema),) if has("array") else ()
    objects = (_object(reader, where, schema),) if has("object") else ()
    facets = (*numbers, *strings, *arrays, *objects)
    gone = [facet for facet in facets if reader.algebra.impossible(facet)]
    for facet in gone:
        reader.empty[where] = at, reason = _why(reader, where, facet)
        if len(gone) < len(facets) or plain:
            reader.findings.note_once(Kind.PRUNED, at, "type", reader.stands(where), reason)
    return Shape(
        plain=plain,
        numbers=tuple(facet for facet in numbers if facet not in gone),
        strings=tuple(facet for facet in strings if facet not in gone),
        arrays=tuple(facet for facet in arrays if facet not in gone),
        objects=tuple(facet for facet in objects if facet not in gone),
    )


def _why(
    reader: Reader, where: str, facet: NumberFacet | StringFacet | ArrayFacet | ObjectFacet
) -> tuple[str, str]:
    """Where and why a facet admits nothing."""
    if isinstance(facet, NumberFacet):
        return where, "no number lies between its bounds"
    if isinstance(facet, StringFacet):
        if facet.high is not None and facet.low > facet.high:
            return where, f"no string is at least {facet.low} and at most {facet.high} characters long"
        return where, "no string keeps its pattern, its format and its lengths"
    if isinstance(facet, ArrayFacet):
        return where, "no array has so many items, each of which has a value"
    for name in facet.required:
        goals = reader.languages.value_goals(facet, name)
        if reader.hopeless(goals):
            declared = any(name == known for layer in facet.layers for known, _ in layer.properties)
            at = f"{where}/properties/{escape_pointer(name)}" if declared else where
            because = "`false` admits nothing" if declared else "no other key may stand"
            for goal in sorted(goals):
                at, because = reader.empty.get(goal.where, (at, because))
            return at, f"the required property {name!r} has no value: {because}"
    return where, "no object has so many keys"


def number_facet(schema: Schema, *, integer: bool) -> NumberFacet:
    """The numbers that keep the bounds in `schema`."""
    found = NumberFacet(integer=integer)
    for keyword, exclusive, narrow in (
        ("minimum", schema.get("exclusiveMinimum") is True, NumberFacet.above),
        ("maximum", schema.get("exclusiveMaximum") is True, NumberFacet.below),
        ("exclusiveMinimum", True, NumberFacet.above),
        ("exclusiveMaximum", True, NumberFacet.below),
    ):
        value = schema.get(keyword)
        if isinstance(value, Decimal):
            found = narrow(found, Bound(value, exclusive))
    multiple = schema.get("multipleOf")
    return replace(found, multiples=frozenset([multiple])) if isinstance(multiple, Decimal) else found


def _string(reader: Reader, where: str, schema: Schema) -> StringFacet:
    found = StringFacet(low=count(schema, "minLength") or 0, high=count(schema, "maxLength"), where=where)
    atoms: list[Atom] = []
    source, form = schema.get("pattern"), schema.get("format")
    if isinstance(source, str):
        try:
            reader.languages.lower(frozenset([Atom("pattern", source)]))
            atoms.append(Atom("pattern", source, where=where))
        except PatternError as error:
            fault = reader.made_fault(where, "pattern", source, f"the pattern cannot be followed: {error}")
            found = replace(found, blocked=(fault,))
    if isinstance(form, str) and form in FORMATS:
        atoms.append(Atom("format", form, where=where))
    return replace(found, atoms=frozenset(atoms))


def _array(reader: Reader, where: str, schema: Schema) -> ArrayFacet:
    place = reader.stands(where)
    items, rest_of = schema.get("items"), "items"
    prefix_of, prefix = "prefixItems", schema.get("prefixItems")
    rest = None
    if isinstance(items, list):
        prefix_of, prefix, rest_of = "items", items, "additionalItems"
    if isinstance(schema.get(rest_of), dict | bool):
        rest = reader.goals(f"{where}/{rest_of}", f"{place}/*")
    fixed = tuple(
        reader.goals(f"{where}/{prefix_of}/{index}", f"{place}/{index}")
        for index in range(len(items_in(prefix)))
    )
    contains: tuple[Contains, ...] = ()
    if "contains" in schema:
        low, high = count(schema, "minContains"), count(schema, "maxContains")
        if reader.document.legacy or low is None:
            low = max(low or 1, 1)
        if low or high is not None:
            contains = (Contains(_one(reader, f"{where}/contains", f"{place}/*"), low, high),)
    return ArrayFacet(
        layers=(Items(fixed, rest),) if fixed or rest is not None else (),
        low=count(schema, "minItems") or 0,
        high=count(schema, "maxItems"),
        contains=contains,
        unique=schema.get("uniqueItems") is True,
        where=where,
    )


def _one(reader: Reader, where: str, place: str) -> frozenset[Goal]:
    """The schema at `where` as a goal, even where any value meets it."""
    reader.goals(where, place)
    return frozenset([Goal(where)])


def _object(reader: Reader, where: str, schema: Schema) -> ObjectFacet:
    place = reader.stands(where)
    named = [
        (name, reader.goals(f"{where}/properties/{(step := escape_pointer(name))}", f"{place}/{step}"))
        for name in members_in(schema.get("properties"))
    ]
    patterns, blocked = [], []
    for source in members_in(schema.get("patternProperties")):
        try:
            for reading in ("lower", "upper"):
                _built(reader, source, reading)
            inner = f"{where}/patternProperties/{escape_pointer(source)}"
            patterns.append((source, reader.goals(inner, f"{place}/*")))
        except PatternError as error:
            value = schema["patternProperties"]
            reason = f"the pattern {source!r} cannot be followed: {error}"
            blocked.append(reader.made_fault(where, "patternProperties", value, reason))
    rest = None
    if "additionalProperties" in schema:
        rest = reader.goals(f"{where}/additionalProperties", f"{place}/*")
    layers = (Layer(tuple(named), tuple(patterns), rest),) if named or patterns or rest is not None else ()
    names = reader.goals(f"{where}/propertyNames", place) if "propertyNames" in schema else frozenset()
    return ObjectFacet(
        layers=layers,
        required=tuple(
            dict.fromkeys(name for name in items_in(schema.get("required")) if isinstance(name, str))
        ),
        names=names,
        low=count(schema, "minProperties") or 0,
        high=count(schema, "maxProperties"),
        blocked=tuple(blocked),
        where=where,
    )


def _built(reader: Reader, source: str, reading: str) -> None:
    atoms = frozenset([Atom("pattern", source)])
    (reader.languages.lower if reading == "lower" else reader.languages.upper)(atoms)


# Parts of schemas, whose form the meta-schema has assured.


def count(schema: Schema, keyword: str) -> int | None:
    """The value of a keyword that counts."""
    value = schema.get(keyword)
    return int(value) if isinstance(value, Decimal) else None


def items_in(value: Json) -> list[Json]:
    """The items of a list; nothing where there is none."""
    return value if isinstance(value, list) else []


def members_in(value: Json) -> dict[str, Json]:
    """The members of an object; nothing where there is none."""
    return value if isinstance(value, dict) else {}


def types_in(schema: Schema) -> frozenset[str]:
    """The types that a schema names."""
    named = schema.get("type")
    return frozenset(
        name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)
    )
