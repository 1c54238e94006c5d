"""What satisfies a schema: the intersection of all its keywords, each read into a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from judge_local.grammar.algebra import absent, unevaluated_items, unevaluated_properties
from judge_local.grammar.dialect import CannotEvaluateError
from judge_local.grammar.document import LostReferenceError
from judge_local.grammar.formats import FORMATS
from judge_local.grammar.nodes import (
    EVERY,
    NO,
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
    type_of,
)
from judge_local.grammar.numbers import Bound, NumberFacet
from judge_local.grammar.parse import Json, canonical, escape_pointer
from judge_local.grammar.regex import PatternError
from judge_local.grammar.report import Kind

if TYPE_CHECKING:
    from judge_local.grammar.reader import Reader

Schema = dict[str, Json]


def positive(reader: Reader, where: str, schema: Schema) -> Shape:
    """The values that satisfy `schema`, which stands at `where`."""
    schema = {key: value for key, value in schema.items() if key not in reader.settings.checked}
    if "enum" in schema or "const" in schema:
        return _listed(reader, where, schema)
    found = _by_type(reader, where, schema)
    for keyword, read in _COMBINATIONS.items():
        if keyword in schema and not found.empty:
            found = reader.algebra.meet(found, read(reader, where, schema))
    if "unevaluatedItems" in schema:
        rest = reader.goals(f"{where}/unevaluatedItems", f"{reader.stands(where)}/*")
        found = replace(found, arrays=tuple(unevaluated_items(facet, rest) for facet in found.arrays))
    if "unevaluatedProperties" in schema:
        rest = reader.goals(f"{where}/unevaluatedProperties", f"{reader.stands(where)}/*")
        found = replace(found, objects=tuple(unevaluated_properties(facet, rest) for facet in found.objects))
    return found


# Finite places.


def _listed(reader: Reader, where: str, schema: Schema) -> Shape:
    from judge_local.grammar.keywords import ENFORCED, REFUSED
    from judge_local.grammar.reader import MAX_LISTED, MAX_VALUE_CHARS, MAX_VALUES

    keyword = "const" if "const" in schema else "enum"
    size = len(_list(schema.get("enum")))
    if size > MAX_VALUES or (size > 100 and len(canonical(schema["enum"])) > MAX_VALUE_CHARS):
        reason = f"a list is written up to {MAX_VALUES} values and {MAX_VALUE_CHARS} characters"
        reader.fault(where, keyword, _list(schema[keyword])[:20], reason, "Shorten the list.")
        return NO
    candidates = listed_values(schema)
    beside = {key for key in schema if (key in ENFORCED or key in REFUSED) and key not in ("enum", "const")}
    values = candidates
    if beside == {"type"}:
        named = _types(schema)
        values = [value for value in candidates if _is_of(value, named)]
    elif beside:
        if len(candidates) > MAX_LISTED:
            reason = f"more than {MAX_LISTED} values are not checked one by one"
            reader.fault(where, keyword, _list(schema[keyword])[:20], reason, "Shorten the list.")
            return NO
        try:
            values = [value for value in candidates if reader.valid(value, where, listed=True)]
        except CannotEvaluateError as error:
            reader.fault(where, keyword, schema[keyword], f"its values cannot be checked: {error}")
            return NO
    if not values:
        none = (
            "nothing is listed"
            if schema.get("enum") == []
            else "no listed value satisfies the other keywords"
        )
        reader.empty[where] = (where, none)
    if 0 < len(values) < len(candidates):
        dropped = f"{len(candidates) - len(values)} of {len(candidates)} values break another keyword here"
        reader.findings.note_once(Kind.PRUNED, where, "enum", "", dropped)
    plain = frozenset(canonical(value) for value in values if value is None or isinstance(value, bool))
    rest = tuple(value for value in values if value is not None and not isinstance(value, bool))
    return Shape(plain=plain, listed=rest)


def listed_values(schema: Schema) -> list[Json]:
    """The distinct values that `enum` and `const` admit together."""
    values = _list(schema["enum"]) if "enum" in schema else [schema["const"]]
    found = {canonical(value): value for value in values}
    if "const" in schema:
        only = _key(schema["const"])
        return [value for value in found.values() if _key(value) == only]
    return list(found.values())


def _key(value: Json) -> str:
    """The same text for equal values: keys in one order."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{_key(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_key(item) for item in value) + "]"
    return canonical(value)


def _is_of(value: Json, types: frozenset[str]) -> bool:
    kind = type_of(value)
    whole = isinstance(value, Decimal) and value == value.to_integral_value()
    return kind in types or (whole and "integer" in types)


# Keywords of one type.


def _by_type(reader: Reader, where: str, schema: Schema) -> Shape:
    types = _types(schema) if "type" in schema else None

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
        for index in range(len(_list(prefix)))
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
        for name in _dict(schema.get("properties"))
    ]
    patterns, blocked = [], []
    for source in _dict(schema.get("patternProperties")):
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
            dict.fromkeys(name for name in _list(schema.get("required")) if isinstance(name, str))
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


# Combinations.


def _reference(reader: Reader, where: str, schema: Schema, *, keyword: str) -> Shape:
    target = reference_target(reader, where, schema, keyword)
    return EVERY if target is None else reader.shape(Goal(target))


def reference_target(reader: Reader, where: str, schema: Schema, keyword: str = "$ref") -> str | None:
    """Where a reference leads; None after a fault."""
    reference = schema[keyword]
    assert isinstance(reference, str), "the meta-schema was checked"
    try:
        if keyword == "$ref":
            target = reader.document.resolve(where, reference)
        else:
            target = reader.document.resolve_dynamic(where, keyword, reference)
    except LostReferenceError as error:
        reader.fault(where, keyword, reference, str(error), "Copy the schema into $defs.")
        return None
    reader.goals(target, reader.stands(where))
    return target


def _all_of(reader: Reader, where: str, schema: Schema) -> Shape:
    found = EVERY
    for branch in branches(reader, where, schema, "allOf"):
        found = reader.algebra.meet(found, reader.shape(branch))
    return found


def branches(reader: Reader, where: str, schema: Schema, keyword: str) -> list[Goal]:
    """The schemas in a list of them."""
    found = [f"{where}/{keyword}/{index}" for index in range(len(_list(schema[keyword])))]
    for branch in found:
        reader.goals(branch, reader.stands(where))
    return [Goal(branch) for branch in found]


def _any_of(reader: Reader, where: str, schema: Schema) -> Shape:
    return reader.algebra.join(*(reader.shape(branch) for branch in branches(reader, where, schema, "anyOf")))


def _one_of(reader: Reader, where: str, schema: Schema) -> Shape:
    from judge_local.grammar.exclusive import exclusive

    return exclusive(reader, branches(reader, where, schema, "oneOf"))


def _not(reader: Reader, where: str, schema: Schema) -> Shape:
    reader.goals(f"{where}/not", reader.stands(where))
    return reader.shape(Goal(f"{where}/not", positive=False))


def _if(reader: Reader, where: str, schema: Schema) -> Shape:
    if "then" not in schema and "else" not in schema:
        return EVERY
    reader.goals(f"{where}/if", reader.stands(where))
    found = []
    for keyword, holds in (("then", True), ("else", False)):
        condition = reader.shape(Goal(f"{where}/if", positive=holds))
        if keyword in schema:
            reader.goals(f"{where}/{keyword}", reader.stands(where))
            condition = reader.algebra.meet(condition, reader.shape(Goal(f"{where}/{keyword}")))
        found.append(condition)
    return reader.algebra.join(*found)


def _dependent(reader: Reader, where: str, schema: Schema, *, keyword: str) -> Shape:
    found = EVERY
    for name, value in _dict(schema[keyword]).items():
        there = ObjectFacet(required=(name,))
        gone = ObjectFacet(layers=(absent(name),))
        if isinstance(value, list):
            names = (name, *(each for each in value if isinstance(each, str)))
            following = Shape(objects=(replace(there, required=tuple(dict.fromkeys(names))),))
        else:
            inner = f"{where}/{keyword}/{escape_pointer(name)}"
            reader.goals(inner, reader.stands(where))
            following = reader.algebra.meet(Shape(objects=(there,)), reader.shape(Goal(inner)))
        either = reader.algebra.join(following, Shape(objects=(gone,)))
        objects = replace(EVERY, objects=either.objects, listed=either.listed, lost=either.lost)
        found = reader.algebra.meet(found, objects)
    return found


_COMBINATIONS: dict[str, Callable[[Reader, str, Schema], Shape]] = {
    **{keyword: partial(_reference, keyword=keyword) for keyword in ("$ref", "$dynamicRef", "$recursiveRef")},
    "allOf": _all_of,
    "dependentRequired": partial(_dependent, keyword="dependentRequired"),
    "dependentSchemas": partial(_dependent, keyword="dependentSchemas"),
    "dependencies": partial(_dependent, keyword="dependencies"),
    "anyOf": _any_of,
    "oneOf": _one_of,
    "if": _if,
    "not": _not,
}


# Parts of schemas, whose form the meta-schema has assured.


def count(schema: Schema, keyword: str) -> int | None:
    """The value of a keyword that counts."""
    value = schema.get(keyword)
    return int(value) if isinstance(value, Decimal) else None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _types(schema: Schema) -> frozenset[str]:
    named = schema.get("type")
    return frozenset(
        name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)
    )
