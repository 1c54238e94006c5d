"""What breaks a schema: the union, over its keywords, of what breaks each.

* A keyword that the draft of the document does not know cannot be broken there.
* What breaks a keyword and cannot be said is `lost`: the shape then holds less than it should, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final

from judge_local.grammar.algebra import absent, uncounted
from judge_local.grammar.dialect import asserted
from judge_local.grammar.facets import count
from judge_local.grammar.formats import FORMATS
from judge_local.grammar.nodes import (
    EVERY,
    NEVER,
    NO,
    ArrayFacet,
    Atom,
    Contains,
    Goal,
    Goals,
    Items,
    Layer,
    ObjectFacet,
    Shape,
    StringFacet,
    Witness,
)
from judge_local.grammar.numbers import Bound, NumberFacet
from judge_local.grammar.parse import Json, escape_pointer
from judge_local.grammar.positive import branches, listed_values, reference_target
from judge_local.grammar.regex import PatternError

if TYPE_CHECKING:
    from judge_local.grammar.reader import Reader

Schema = dict[str, Json]


def negative(reader: Reader, where: str, schema: Schema) -> Shape:
    """The values that break `schema`, which stands at `where`."""
    if reader.document.legacy and "$ref" in schema:
        # Older drafts ignore what stands beside a reference.
        schema = {"$ref": schema["$ref"]}
    known = asserted(reader.document.dialect)
    parts: list[Shape] = []
    for keyword in schema:
        if keyword in reader.settings.checked and keyword in known:
            return EVERY  # The validator holds to it.
        if keyword in known:
            parts += _parts(reader, where, schema, keyword)
    return uncounted(reader.algebra.join(*parts)) if parts else NO


def _parts(reader: Reader, where: str, schema: Schema, keyword: str) -> Iterator[Shape]:
    if keyword in ("enum", "const"):
        if keyword == "enum" or "enum" not in schema:
            yield without(reader, where, keyword, listed_values(schema))
    elif keyword in _NUMBERS:
        yield from _number(schema, keyword)
    elif keyword in _READ:
        found = _READ[keyword](reader, where, schema)
        yield from ([found] if isinstance(found, Shape) else found)
    elif keyword in _LOST:
        yield reader.losing(where, keyword, _LOST[keyword], "its opposite cannot be said")


def _opposite(reader: Reader, where: str, place: str = "") -> Goals:
    return reader.goals(where, place, positive=False)


# Values and types.


def without(reader: Reader, where: str, keyword: str, values: list[Json]) -> Shape:
    """Every value but these."""
    plain = {"null", "true", "false"} - {
        {None: "null", True: "true", False: "false"}[value]
        for value in values
        if value is None or isinstance(value, bool)
    }
    numbers = frozenset(value for value in values if isinstance(value, Decimal))
    texts = frozenset(value for value in values if isinstance(value, str))
    arrays = [value for value in values if isinstance(value, list)]
    objects = [value for value in values if isinstance(value, dict)]
    found = Shape(
        plain=frozenset(plain),
        numbers=(NumberFacet(excluded=numbers),),
        strings=(StringFacet(excluded=texts),),
        arrays=(ArrayFacet(),),
        objects=(ObjectFacet(),),
    )
    for array in arrays:
        size = len(array)
        ways = [ArrayFacet(low=size + 1), *([ArrayFacet(high=size - 1)] if size else [])]
        found = _but(reader, where, keyword, found, Shape(arrays=tuple(ways)), "array" if size else "")
    for value in objects:
        shapes = [ObjectFacet(low=len(value) + 1)]
        shapes += [ObjectFacet(layers=(absent(name),)) for name in value]
        found = _but(reader, where, keyword, found, Shape(objects=tuple(shapes)), "object" if value else "")
    return found


def _but(reader: Reader, where: str, keyword: str, found: Shape, ways: Shape, lost: str) -> Shape:
    kind = "arrays" if ways.arrays else "objects"
    met = reader.algebra.meet(Shape(arrays=found.arrays, objects=found.objects), ways)
    found = replace(found, **{kind: getattr(met, kind)})
    if not lost:
        return found
    loss = reader.losing(where, keyword, [lost], "values that look alike are left out with it")
    return replace(found, lost=found.lost | loss.lost)


def _type(reader: Reader, where: str, schema: Schema) -> Shape:
    named = schema["type"]
    types = set(named if isinstance(named, list) else [named])
    plain = ({"null"} - types) | (set() if "boolean" in types else {"true", "false"})
    numbers: tuple[NumberFacet, ...] = ()
    if "number" not in types:
        numbers = (NumberFacet(fraction="integer" in types),)
    return Shape(
        plain=frozenset(plain),
        numbers=numbers,
        strings=() if "string" in types else EVERY.strings,
        arrays=() if "array" in types else EVERY.arrays,
        objects=() if "object" in types else EVERY.objects,
    )


_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})


def _number(schema: Schema, keyword: str) -> Iterator[Shape]:
    value = schema[keyword]
    if not isinstance(value, Decimal):
        return  # The boolean of draft 4 is read with its bound.
    if keyword == "multipleOf":
        yield Shape(numbers=(NumberFacet(others=frozenset([value])),))
        return
    below = keyword in ("minimum", "exclusiveMinimum")
    beyond = keyword.startswith("exclusive") or schema.get("exclusive" + keyword.capitalize()) is True
    bound = Bound(value, not beyond)
    yield Shape(numbers=(NumberFacet(high=bound) if below else NumberFacet(low=bound),))


# Strings.


def _lengths(reader: Reader, where: str, schema: Schema, keyword: str) -> Iterator[Shape]:
    size = count(schema, keyword) or 0
    low, high = (0, size - 1) if keyword.startswith("min") else (size + 1, None)
    if high is None or high >= 0:
        if keyword.endswith("Length"):
            yield Shape(strings=(StringFacet(low=low, high=high),))
        elif keyword.endswith("Items"):
            yield Shape(arrays=(ArrayFacet(low=low, high=high),))
        else:
            yield Shape(objects=(ObjectFacet(low=low, high=high),))


def _pattern(reader: Reader, where: str, schema: Schema) -> Shape:
    atom = Atom("pattern", str(schema["pattern"]), positive=False, where=where)
    try:
        reader.languages.lower(frozenset([atom]))
    except PatternError as error:
        return reader.losing(where, "pattern", ["string"], f"the pattern cannot be followed: {error}")
    return Shape(strings=(StringFacet(atoms=frozenset([atom])),))


def _format(reader: Reader, where: str, schema: Schema) -> Shape:
    if schema["format"] not in FORMATS:
        return NO
    atom = Atom("format", str(schema["format"]), positive=False, where=where)
    return Shape(strings=(StringFacet(atoms=frozenset([atom])),))


# Objects.


def _properties(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    for name in _dict(schema["properties"]):
        step = escape_pointer(name)
        broken = _opposite(reader, f"{where}/properties/{step}", f"{reader.stands(where)}/{step}")
        if broken != NEVER:
            layer = Layer(properties=((name, broken),))
            yield Shape(objects=(ObjectFacet(layers=(layer,), required=(name,)),))


def _pattern_properties(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    for source in _dict(schema["patternProperties"]):
        broken = _opposite(reader, f"{where}/patternProperties/{escape_pointer(source)}")
        if broken != NEVER:
            yield Shape(objects=(ObjectFacet(some=(Witness(broken, pattern=source),)),))


def _additional(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    broken = _opposite(reader, f"{where}/additionalProperties")
    if broken != NEVER:
        free: Goals = frozenset()
        named = tuple((name, free) for name in _dict(schema.get("properties")))
        patterns = tuple((source, free) for source in _dict(schema.get("patternProperties")))
        yield Shape(objects=(ObjectFacet(some=(Witness(broken, Layer(named, patterns)),)),))


def _names(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    broken = _opposite(reader, f"{where}/propertyNames")
    if broken != NEVER:
        yield Shape(objects=(ObjectFacet(some=(Witness(frozenset(), names=broken),)),))


def _required(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    for name in _list(schema["required"]):
        yield Shape(objects=(ObjectFacet(layers=(absent(str(name)),)),))


def _dependent(reader: Reader, where: str, schema: Schema, keyword: str) -> Iterator[Shape]:
    for name, value in _dict(schema[keyword]).items():
        there = ObjectFacet(required=(name,))
        if isinstance(value, list):
            for other in value:
                if other != name:
                    yield Shape(objects=(replace(there, layers=(absent(str(other)),)),))
            continue
        inner = f"{where}/{keyword}/{escape_pointer(name)}"
        reader.goals(inner, reader.stands(where))
        yield reader.algebra.meet(Shape(objects=(there,)), reader.shape(Goal(inner, positive=False)))


# Arrays.


def _prefix(reader: Reader, where: str, schema: Schema, keyword: str) -> Iterator[Shape]:
    for index in range(len(_list(schema[keyword]))):
        broken = _opposite(reader, f"{where}/{keyword}/{index}")
        if broken != NEVER:
            free: Goals = frozenset()
            layer = Items((*(free,) * index, broken), None)
            yield Shape(arrays=(ArrayFacet(layers=(layer,), low=index + 1),))


def _items(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    if isinstance(schema["items"], list):
        yield from _prefix(reader, where, schema, "items")
    else:
        yield from _rest(reader, where, "items", len(_list(schema.get("prefixItems"))))


def _rest(reader: Reader, where: str, keyword: str, fixed: int) -> Iterator[Shape]:
    """Arrays in which some item from the `fixed`-th on breaks the schema under `keyword`."""
    broken = _opposite(reader, f"{where}/{keyword}")
    inner = reader.document.at(f"{where}/{keyword}")
    if broken == NEVER:
        return
    if inner is False:
        yield Shape(arrays=(ArrayFacet(low=fixed + 1),))
    elif fixed == 0:
        yield Shape(
            arrays=(ArrayFacet(contains=(Contains(frozenset([Goal(f"{where}/{keyword}", False)])),)),)
        )
    else:
        yield reader.losing(where, keyword, ["array"], "its opposite cannot be said")


def _additional_items(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    if isinstance(schema.get("items"), list):
        yield from _rest(reader, where, "additionalItems", len(_list(schema["items"])))


def _contains(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    low, high = count(schema, "minContains"), count(schema, "maxContains")
    low = 1 if low is None or reader.document.legacy else low
    reader.goals(f"{where}/contains", f"{reader.stands(where)}/*")
    goal = frozenset([Goal(f"{where}/contains")])
    if low > 0:
        yield Shape(arrays=(ArrayFacet(contains=(Contains(goal, 0, low - 1),)),))
    if high is not None and not reader.document.legacy:
        yield Shape(arrays=(ArrayFacet(contains=(Contains(goal, high + 1),)),))


# Combinations.


def _reference(reader: Reader, where: str, schema: Schema, keyword: str) -> Shape:
    target = reference_target(reader, where, schema, keyword)
    return NO if target is None else reader.shape(Goal(target, positive=False))


def _all_of(reader: Reader, where: str, schema: Schema) -> Shape:
    goals = branches(reader, where, schema, "allOf")
    return reader.algebra.join(*(reader.shape(Goal(goal.where, positive=False)) for goal in goals))


def _none_of(reader: Reader, goals: list[Goal]) -> Shape:
    found = EVERY
    for goal in goals:
        found = reader.algebra.meet(found, reader.shape(Goal(goal.where, positive=False)))
    return found


def _any_of(reader: Reader, where: str, schema: Schema) -> Shape:
    return _none_of(reader, branches(reader, where, schema, "anyOf"))


def _one_of(reader: Reader, where: str, schema: Schema) -> Shape:
    goals = branches(reader, where, schema, "oneOf")
    pairs = [
        reader.algebra.meet(reader.shape(one), reader.shape(other)) for one, other in combinations(goals, 2)
    ]
    return reader.algebra.join(_none_of(reader, goals), *pairs)


def _not(reader: Reader, where: str, schema: Schema) -> Shape:
    reader.goals(f"{where}/not", reader.stands(where))
    return reader.shape(Goal(f"{where}/not"))


def _if(reader: Reader, where: str, schema: Schema) -> Shape:
    parts = []
    for keyword, holds in (("then", True), ("else", False)):
        if keyword in schema:
            for step in ("if", keyword):
                reader.goals(f"{where}/{step}", reader.stands(where))
            condition = reader.shape(Goal(f"{where}/if", positive=holds))
            parts.append(
                reader.algebra.meet(condition, reader.shape(Goal(f"{where}/{keyword}", positive=False)))
            )
    return reader.algebra.join(*parts) if parts else NO


def _unique(reader: Reader, where: str, schema: Schema) -> Iterator[Shape]:
    if schema["uniqueItems"] is True:
        yield reader.losing(where, "uniqueItems", ["array"], "its opposite cannot be said")


_Read = Callable[["Reader", str, Schema], "Shape | Iterator[Shape]"]
_READ: Final[dict[str, _Read]] = {
    "type": _type,
    "pattern": _pattern,
    "format": _format,
    **{
        keyword: partial(_lengths, keyword=keyword)
        for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    },
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "propertyNames": _names,
    "required": _required,
    **{
        keyword: partial(_dependent, keyword=keyword)
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies")
    },
    "items": _items,
    "additionalItems": _additional_items,
    "prefixItems": partial(_prefix, keyword="prefixItems"),
    "contains": _contains,
    "uniqueItems": _unique,
    **{keyword: partial(_reference, keyword=keyword) for keyword in ("$ref", "$dynamicRef", "$recursiveRef")},
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
_LOST: Final = {
    "unevaluatedItems": ["array"],
    "unevaluatedProperties": ["object"],
}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
