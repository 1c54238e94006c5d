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
from judge_local.grammar.facets import Schema, by_type, items_in, members_in, types_in
from judge_local.grammar.nodes import (
    EVERY,
    NO,
    Goal,
    ObjectFacet,
    Shape,
    type_of,
)
from judge_local.grammar.parse import Json, canonical, escape_pointer
from judge_local.grammar.report import Kind

if TYPE_CHECKING:
    from judge_local.grammar.reader import Reader


def positive(reader: Reader, where: str, schema: Schema) -> Shape:
    """The values that satisfy `schema`, which stands at `where`."""
    schema = {key: value for key, value in schema.items() if key not in reader.settings.checked}
    if "enum" in schema or "const" in schema:
        return _listed(reader, where, schema)
    found = by_type(reader, where, schema)
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
    size = len(items_in(schema.get("enum")))
    if size > MAX_VALUES or (size > 100 and len(canonical(schema["enum"])) > MAX_VALUE_CHARS):
        reason = f"a list is written up to {MAX_VALUES} values and {MAX_VALUE_CHARS} characters"
        reader.fault(where, keyword, items_in(schema[keyword])[:20], reason, "Shorten the list.")
        return NO
    candidates = listed_values(schema)
    beside = {key for key in schema if (key in ENFORCED or key in REFUSED) and key not in ("enum", "const")}
    values = candidates
    if beside == {"type"}:
        named = types_in(schema)
        values = [value for value in candidates if _is_of(value, named)]
    elif beside:
        if len(candidates) > MAX_LISTED:
            reason = f"more than {MAX_LISTED} values are not checked one by one"
            reader.fault(where, keyword, items_in(schema[keyword])[:20], reason, "Shorten the list.")
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
    values = items_in(schema["enum"]) if "enum" in schema else [schema["const"]]
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
    found = [f"{where}/{keyword}/{index}" for index in range(len(items_in(schema[keyword])))]
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
    for name, value in members_in(schema[keyword]).items():
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
