"""Every keyword of every JSON Schema vocabulary since draft 4, in exactly one of three lists.

* Enforced: the grammar holds to it.
* Annotation: it asserts nothing, so there is nothing to hold to.
* Refused: it asserts something no grammar of ours enforces, and a schema that uses it is not compiled unless the
  keyword is left to the validator by name.

A keyword in none of the lists belongs to no vocabulary: an annotation, with a warning when it looks like a slip.
"""

from __future__ import annotations

import difflib
from typing import Final

ENFORCED: Final = frozenset(
    [
        "type",
        "enum",
        "const",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "properties",
        "required",
        "additionalProperties",
    ]
)

# What names a schema, or keeps one for a reference, asserts nothing where it stands.
_NAMES: Final = [
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$vocabulary",
    "$defs",
    "definitions",
]
_REMARKS: Final = [
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "format",
]
_CONTENT: Final = ["contentMediaType", "contentEncoding", "contentSchema"]
ANNOTATION: Final = frozenset([*_REMARKS, *_CONTENT, *_NAMES])

_COMBINATION: Final = "reads several schemas as one"
_ARRAY: Final = "constrains arrays"
_KEYS: Final = "constrains the keys of an object"

REFUSED: Final[dict[str, str]] = {
    "pattern": "constrains a string by a regular expression",
    "multipleOf": "constrains a number to the multiples of another",
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "unevaluatedItems"), _ARRAY),
    **dict.fromkeys(
        ("minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"), _ARRAY
    ),
    **dict.fromkeys(("patternProperties", "propertyNames", "minProperties", "maxProperties"), _KEYS),
    **dict.fromkeys(
        ("dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties"), _KEYS
    ),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "not", "if", "then", "else"), _COMBINATION),
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef"), "stands for a schema written elsewhere"),
}
"""The keyword and what it does, in words that follow it in a message."""

VOCABULARY: Final = ENFORCED | ANNOTATION | REFUSED.keys()

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

_NUMBERS: Final = frozenset({"number", "integer"})
APPLIES_TO: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBERS),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), frozenset({"string"})),
    **dict.fromkeys((name for name, does in REFUSED.items() if does == _ARRAY), frozenset({"array"})),
    **dict.fromkeys((name for name, does in REFUSED.items() if does == _KEYS), frozenset({"object"})),
    **dict.fromkeys(("properties", "required", "additionalProperties"), frozenset({"object"})),
}
"""The types a keyword says something about; one that is not here concerns every type."""


def near_miss(keyword: str) -> str | None:
    """The keyword that `keyword` may be a slip of, if it belongs to no vocabulary and looks like one.

    >>> near_miss("maxmimum"), near_miss("item"), near_miss("x-origin")
    ('maximum', 'items', None)
    """
    if keyword in VOCABULARY:
        return None
    return next(iter(difflib.get_close_matches(keyword, sorted(VOCABULARY), n=1, cutoff=0.8)), None)
