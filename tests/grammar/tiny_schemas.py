"""Small schemas made of a few keywords each, and a small world of values to hold them against."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any, Final

Schema = Any

ATOMS: Final[list[Schema]] = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "object"},
    {"type": "array"},
    {"type": ["null", "boolean"]},
    {"enum": ["a", 1, None, [0], {"a": 0}]},
    {"const": "ab"},
    {"const": 0},
    {"minimum": 1},
    {"exclusiveMaximum": 1.5},
    {"multipleOf": 2},
    {"multipleOf": 0.5},
    {"minLength": 1},
    {"maxLength": 1},
    {"pattern": "^a"},
    {"pattern": "b$"},
    {"pattern": "^[ab]*$"},
    {"minItems": 1},
    {"maxItems": 1},
    {"items": {"type": "integer"}},
    {"prefixItems": [{"type": "integer"}, {"type": "string"}]},
    {"prefixItems": [{"const": 0}], "items": False},
    {"contains": {"type": "string"}},
    {"contains": {"const": 0}, "maxContains": 1},
    {"items": {"enum": [0, 1, "a"]}, "uniqueItems": True},
    {"required": ["a"]},
    {"properties": {"a": {"type": "integer"}}},
    {"properties": {"a": True, "b": {"type": "string"}}, "additionalProperties": False},
    {"additionalProperties": {"type": "integer"}},
    {"patternProperties": {"^a": {"type": "integer"}}},
    {"patternProperties": {"^a": True}, "additionalProperties": False},
    {"propertyNames": {"maxLength": 1}},
    {"propertyNames": {"pattern": "^a"}},
    {"minProperties": 1},
    {"maxProperties": 1},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"maxProperties": 1}}},
    {"properties": {"a": {"const": 0}}, "unevaluatedProperties": False},
    True,
    False,
]
COUNT: Final = 240


def schemas(seed: int = 7, count: int = COUNT) -> list[Schema]:
    """The atoms, then combinations of them until there are `count`."""
    random = Random(seed)
    found = list(ATOMS)
    while len(found) < count:
        one, other, third = (random.choice(ATOMS) for _ in range(3))
        found.append(
            random.choice(
                [
                    {"allOf": [one, other]},
                    {"anyOf": [one, other]},
                    {"oneOf": [one, other]},
                    {"not": one},
                    {"not": {"anyOf": [one, other]}},
                    {"not": {"allOf": [one, other]}},
                    {"if": one, "then": other, "else": third},
                    {"if": one, "then": other},
                    {"allOf": [one, {"not": other}]},
                    {"oneOf": [one, other, third]},
                    {"items": {"anyOf": [one, other]}},
                    {"properties": {"a": {"allOf": [one, other]}}, "required": ["a"]},
                    {"properties": {"a": one, "b": {"not": other}}},
                    {"additionalProperties": {"oneOf": [one, other]}},
                    {"$ref": "#/$defs/x", "$defs": {"x": one}, **(other if isinstance(other, dict) else {})},
                ]
            )
        )
    return found


def world() -> list[Any]:
    """Values of every type, with keys in the order of the alphabet."""
    leaves: list[Any] = [None, True, False, 0, 1, 2, -1, 1.5, 0.25, "", "a", "b", "ab", "aab", "c\n"]
    short = [0, 1, "a", None]
    arrays: list[Any] = [
        [],
        *([item] for item in leaves[:12]),
        *(list(pair) for pair in product(short, repeat=2)),
    ]
    arrays += [[0, "a", 1], [0, 0, 0], ["a", "b", 0], [[0]], [{}], [{"a": 0}]]
    objects: list[Any] = [
        {},
        *({name: value} for name in ("a", "b", "ab", "c") for value in (0, "a", None, 1.5)),
    ]
    objects += [{"a": first, "b": second} for first in (0, "a", [0]) for second in (0, "b")]
    objects += [{"a": 0, "ab": 1}, {"a": {"a": 0}}, {"a": []}, {"b": {}}, {"a": 0, "b": "a", "c": 1}]
    return leaves + arrays + objects


def text_of(value: Any) -> str:
    """The one compact text of a value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def says_so(report: Any) -> bool:
    """Whether a report names what keeps values of the world out: a loss, or keys in an order of the schema's own."""
    losses = any("left out" in row.detail and "U+007F" not in row.detail for row in report.narrowed)
    orders = [
        row.detail.split(" order ")[1].split(", ") for row in report.narrowed if " order " in row.detail
    ]
    return losses or any(order != sorted(order) for order in orders)
