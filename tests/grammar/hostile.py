"""Schemas made to hang, to crash, or to fill the memory; each is compiled or refused in a moment."""

from __future__ import annotations

import json
from typing import Final


def _nested(levels: int) -> str:
    return '{"properties":{"a":' * levels + "{}" + "}}" * levels


def _pattern(source: str) -> str:
    return json.dumps({"type": "string", "pattern": source})


HOSTILE: Final[dict[str, str]] = {
    "10,000 levels": _nested(10_000),
    "30 levels": _nested(30),
    "10,000 brackets": "[" * 10_000,
    "long strings": '{"type":"string","maxLength":1000000000}',
    "strings too long": '{"type":"string","minLength":1000000000}',
    "long arrays": '{"type":"array","maxItems":1000000000}',
    "arrays too long": '{"type":"array","minItems":1000000000}',
    "catastrophe": _pattern("^(a+)+$"),
    "catastrophe, searched": _pattern("(x+x+)+y"),
    "exponential states": _pattern("(a|aa)*b.{50}c"),
    "far end": _pattern("a.{20}$"),
    "counts of counts": _pattern("^((a{0,100}){0,100}){0,100}$"),
    "large counts": _pattern("^(a{0,19999}b{0,19999})$"),
    "10,000 parentheses": _pattern("(" * 10_000 + ")" * 10_000),
    "itself": '{"$ref":"#"}',
    "itself, through allOf": '{"allOf":[{"$ref":"#"}]}',
    "each other": '{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}',
    "without end": '{"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]}',
    "a megabyte of enum": json.dumps({"enum": [f"v{number:07}" for number in range(90_000)]}),
    "a megabyte of enum, checked": json.dumps({"enum": [f"v{n:07}" for n in range(90_000)], "pattern": "^v"}),
    "one long value": json.dumps({"const": "x" * 300_000}),
    "repeated key": '{"type":"string","type":"number"}',
    "NaN": '{"minimum":NaN}',
    "beyond floats": '{"minimum":1e999}',
    "300 digits": '{"type":"integer","minimum":' + "9" * 300 + "}",
    "a tiny divisor": '{"type":"number","multipleOf":1e-300}',
    "hundredths far out": '{"type":"number","multipleOf":0.01,"minimum":1e300}',
    "a divisor of many digits": '{"type":"number","multipleOf":0.' + "123456789" * 9 + "}",
    "a large divisor": '{"type":"integer","multipleOf":1999,"minimum":-100000000000000}',
    "many unions": json.dumps(
        {"allOf": [{"anyOf": [{"required": [f"a{i}_{j}"]} for j in range(5)]} for i in range(8)]}
    ),
    "many branches": json.dumps(
        {
            "oneOf": [
                {"properties": {f"p{i}": {"type": "string", "maxLength": i + j} for i in range(10)}}
                for j in range(12)
            ]
        }
    ),
    "many opposites": json.dumps(
        {"not": {"anyOf": [{"properties": {f"p{i}": {"type": "string"} for i in range(10)}}] * 6}}
    ),
    "many dependencies": json.dumps({"dependentRequired": {f"k{i}": [f"k{i + 1}"] for i in range(40)}}),
    "many patterns": json.dumps(
        {"patternProperties": {f"a.{{{i}}}b": {"type": "string"} for i in range(12)}}
    ),
    "many names": json.dumps({"required": [f"n{i}" for i in range(5000)]}),
    "many properties": json.dumps({"properties": {f"property_{i}": {"type": "string"} for i in range(5000)}}),
    "many keys to count": json.dumps(
        {"properties": {f"p{i}": {} for i in range(100)}, "maxProperties": 80, "minProperties": 40}
    ),
    "a long chain": json.dumps(
        {
            "$ref": "#/$defs/d0",
            "$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}", "minimum": i} for i in range(500)}
            | {"d500": {}},
        }
    ),
    "many intersections": json.dumps({"allOf": [{"pattern": f"^.*a.{{{i}}}b"} for i in range(12)]}),
    "much contained": json.dumps({"type": "array", "contains": {"type": "string"}, "minContains": 1000}),
    "many contained": json.dumps(
        {"allOf": [{"type": "array", "contains": {"const": i}, "minContains": 3} for i in range(10)]}
    ),
}
