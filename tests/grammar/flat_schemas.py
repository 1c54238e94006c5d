"""Hypothesis strategies: schemas of the shape that verdicts have, and valid instances of them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "]x", "^", "-a", '"', "\\", "a/b", "~", "é", "😀", "root", "\n", ""])
# U+007F is left out of strings by the compiler, and says so.
TEXT = st.characters(exclude_categories=["Cs"], exclude_characters="\x7f")
CENTS = st.decimals(min_value=-999, max_value=999, places=2)

Pair = tuple[dict[str, Any], Any]
"""A schema, and an instance that is valid under it. Numbers of an instance are numerals."""


class Numeral(str):
    """A number by its spelling."""

    __slots__ = ()


@st.composite
def strings(draw: st.DrawFn) -> Pair:
    """A string with or without lengths."""
    value = draw(st.text(TEXT, max_size=12))
    schema: dict[str, Any] = {"type": "string"}
    if draw(st.booleans()):
        schema["minLength"] = draw(st.integers(0, len(value)))
    if draw(st.booleans()):
        schema["maxLength"] = len(value) + draw(st.integers(0, 3))
    return schema, value


@st.composite
def numbers(draw: st.DrawFn) -> Pair:
    """A number or an integer with or without bounds."""
    integer = draw(st.booleans())
    value = Decimal(draw(st.integers(-999, 999))) if integer else draw(CENTS)
    schema: dict[str, Any] = {"type": "integer" if integer else "number"}
    room = st.decimals(min_value=0, max_value=20, places=1).map(Decimal)
    for keyword, sign in (("minimum", -1), ("maximum", 1)):
        if draw(st.booleans()):
            schema[keyword] = float(value + sign * draw(room))
    for keyword, sign in (("exclusiveMinimum", -1), ("exclusiveMaximum", 1)):
        if draw(st.booleans()):
            schema[keyword] = float(value + sign * (draw(room) + Decimal("0.1")))
    spelled = format(value, "f")
    zero = not value.is_zero() or not spelled.startswith("-")
    return schema, Numeral(spelled if zero else spelled[1:])


def _listed(values: list[Any]) -> st.SearchStrategy[Pair]:
    return st.sampled_from(values).map(lambda value: ({"enum": values}, value))


PLAIN = st.none() | st.booleans() | st.integers(-5, 5) | st.text(TEXT, max_size=4)
LISTED = st.lists(PLAIN, min_size=1, max_size=4).flatmap(_listed)
CONSTANT = PLAIN.map(lambda value: ({"const": value}, value))
BOOLEAN = st.booleans().map(lambda value: ({"type": "boolean"}, value))
NULL = st.just(({"type": ["null", "boolean"]}, None))
LEAVES = strings() | numbers() | LISTED | CONSTANT | BOOLEAN | NULL


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[Pair]) -> Pair:
    """A closed object; some of its properties are optional, and some of those are absent."""
    members = draw(st.dictionaries(NAMES, values, max_size=4))
    required = [name for name in members if draw(st.booleans())]
    instance = {
        name: value for name, (_, value) in members.items() if name in required or draw(st.booleans())
    }
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in members.items()},
        "additionalProperties": False,
    }
    return schema | ({"required": required} if required else {}), instance


PAIRS: st.SearchStrategy[Pair] = objects(LEAVES | objects(LEAVES)) | LEAVES


def text_of(value: Any) -> str:
    """The canonical text of an instance."""
    if isinstance(value, Numeral):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{text_of(key)}:{text_of(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
