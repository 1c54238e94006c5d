"""Every keyword of every JSON Schema vocabulary since draft 4, in exactly one of three lists.

* Enforced: the grammar holds to it.
* Annotation: it asserts nothing, so there is nothing to hold to.
* Refused: it asserts something no grammar of ours enforces, and a schema that uses it is not compiled unless the
  keyword is left to the validator by name.

An enforced keyword may still be refused where a grammar cannot hold to it (`uniqueItems` over endless items).

A keyword in none of the lists belongs to no vocabulary: an annotation, with a warning when it looks like a slip.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from typing import Final

_NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRING: Final = ("minLength", "maxLength", "pattern")
_ARRAY: Final = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems"),
    *("uniqueItems", "contains", "minContains", "maxContains"),
)
_OBJECT: Final = (
    *("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    *("minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas"),
    "unevaluatedProperties",
)
_ANY: Final = (
    *("type", "enum", "const", "format", "$ref"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
)
ENFORCED: Final = frozenset([*_NUMBER, *_STRING, *_ARRAY, *_OBJECT, *_ANY])

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
]
_CONTENT: Final = ["contentMediaType", "contentEncoding", "contentSchema"]
ANNOTATION: Final = frozenset([*_REMARKS, *_CONTENT, *_NAMES])

REFUSED: Final[dict[str, str]] = dict.fromkeys(
    ("$dynamicRef", "$recursiveRef"), "may stand for another schema on each way to it"
)
"""The keyword and what it does, in words that follow it in a message."""

VOCABULARY: Final = ENFORCED | ANNOTATION | REFUSED.keys()

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")

APPLIES_TO: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_NUMBER, frozenset({"number", "integer"})),
    **dict.fromkeys((*_STRING, "format"), frozenset({"string"})),
    **dict.fromkeys(_ARRAY, frozenset({"array"})),
    **dict.fromkeys(_OBJECT, frozenset({"object"})),
}
"""The types a keyword says something about; one that is not here concerns every type."""


@lru_cache(1024)
def near_miss(keyword: str) -> str | None:
    """The keyword that `keyword` may be a slip of, if it belongs to no vocabulary and looks like one.

    >>> near_miss("maxmimum"), near_miss("item"), near_miss("x-origin")
    ('maximum', 'items', None)
    """
    if keyword in VOCABULARY:
        return None
    return next(iter(difflib.get_close_matches(keyword, sorted(VOCABULARY), n=1, cutoff=0.8)), None)
