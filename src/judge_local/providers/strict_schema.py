"""Strict mode: a JSON Schema as servers with structured output take it, and their answers taken back.

Strict mode wants every property required, no others allowed, and few keywords. What it cannot say is left out where the
validator still holds the answer to it (a length, say); a schema whose meaning would be lost is sent as it is, not
strict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_UNCHECKED_THERE: Final = frozenset(
    {"$schema", "$id", "$comment", "default", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties"}
)
"""Left out: notes, and bounds that strict mode refuses."""

_BEYOND_STRICT: Final = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems", "prefixItems", "contains"}
    | {"$dynamicRef", "$recursiveRef", "definitions", "dependencies"}
)


class _BeyondStrictError(Exception):
    """The schema says something that strict mode cannot."""


def response_schema(
    schema: Mapping[str, Any],
    *,
    order: Sequence[str] | None = None,
    pinned: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], bool]:
    """`schema` for a server, and whether it is in strict form.

    Args:
        schema: a JSON Schema.
        order: top-level keys in the order in which they are to be written; others come after them.
        pinned: top-level string properties with the one value they may have.

    Returns:
        A copy with order and pins, and True when every object in it requires all its properties and no others.
    """
    arranged = arrange(schema, order=order, pinned=pinned)
    if arranged.get("type") != "object":
        return arranged, False
    try:
        return _strict(arranged), True
    except _BeyondStrictError:
        return arranged, False


def arrange(
    schema: Mapping[str, Any],
    *,
    order: Sequence[str] | None = None,
    pinned: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A plain copy of `schema` with its top-level properties in `order` and `pinned` to their values."""
    copy: dict[str, Any] = _plain(schema)
    properties = copy.get("properties")
    if isinstance(properties, dict):
        first = [name for name in order or () if name in properties]
        names = [*first, *(name for name in properties if name not in first)]
        copy["properties"] = {name: properties[name] for name in names}
        for name, value in (pinned or {}).items():
            if isinstance(properties.get(name), dict):
                copy["properties"][name] = {**properties[name], "enum": [value]}
    return copy


def without_made_up_nulls(answer: Any, schema: Mapping[str, Any]) -> Any:
    """`answer` without the nulls that strict mode wrote where `schema` lets a property be left out."""
    return _cleaned(answer, schema, schema)


def _strict(schema: Any) -> Any:
    if not isinstance(schema, dict):
        raise _BeyondStrictError
    if _BEYOND_STRICT & schema.keys():
        raise _BeyondStrictError
    strict = {key: value for key, value in schema.items() if key not in _UNCHECKED_THERE}
    if "const" in strict:
        strict["enum"] = [strict.pop("const")]
    for key in ("anyOf", "oneOf"):
        if key in strict:
            strict["anyOf"] = [_strict(member) for member in strict.pop(key)]
    if "items" in strict:
        strict["items"] = _strict(strict["items"])
    if "$defs" in strict:
        strict["$defs"] = {name: _strict(member) for name, member in strict["$defs"].items()}
    kinds = strict.get("type")
    if "properties" in strict or kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        properties, required = strict.get("properties"), strict.get("required", [])
        if not properties or isinstance(strict.get("additionalProperties"), dict):
            raise _BeyondStrictError  # A map with keys of its own choosing.
        if not set(required) <= set(properties):
            raise _BeyondStrictError
        strict["properties"] = {
            name: _strict(member) if name in required else _nullable(_strict(member))
            for name, member in properties.items()
        }
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if _admits_null(schema, schema) else {"anyOf": [schema, {"type": "null"}]}


def _admits_null(schema: Any, root: Mapping[str, Any]) -> bool:
    if not isinstance(schema, Mapping):
        return schema is True
    if "enum" in schema:
        return None in schema["enum"]
    if "const" in schema:
        return schema["const"] is None
    if "type" in schema:
        return "null" in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]])
    members = schema.get("anyOf") or schema.get("oneOf")
    if members:
        return any(_admits_null(member, root) for member in members)
    resolved = _resolved(schema, root)
    return resolved is schema or _admits_null(resolved, root)


def _cleaned(answer: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    schema = _resolved(schema, root)
    if not isinstance(schema, Mapping):
        return answer
    if isinstance(answer, list):
        return [_cleaned(item, schema.get("items"), root) for item in answer]
    properties = schema.get("properties")
    if not isinstance(answer, dict) or not isinstance(properties, Mapping):
        return answer
    required = schema.get("required", ())
    return {
        key: _cleaned(value, properties.get(key), root)
        for key, value in answer.items()
        if value is not None
        or key in required
        or key not in properties
        or _admits_null(properties[key], root)
    }


def _resolved(schema: Any, root: Mapping[str, Any]) -> Any:
    """What a local `$ref` points to; anything else as it is. A reference to a reference is left for another step."""
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    target: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        target = target.get(name) if isinstance(target, Mapping) else None
    return schema if target is None else target


def _plain(value: Any) -> Any:
    """`value` in plain dicts and lists: the canonical schema is a read-only view."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value
