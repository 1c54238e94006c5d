"""The verdict: what one run answers, the canonical schema of it, and the guard for schemas of one's own.

The guard proves, from the schema alone, that every instance is a verdict. It reads what always applies: the schema
itself, local `$ref`s and `allOf`. Any other keyword can only forbid more, so it is left alone; what the proof needs
and cannot see there is refused, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from judge_local.errors import InvalidSchemaError, UsageError, VerdictSchemaError, excerpt

if TYPE_CHECKING:
    from referencing import Specification
    from referencing._core import Resolver


class Match(StrEnum):
    """How the subject stands to the claim."""

    PASS = "pass"
    FAIL = "fail"
    PARTIAL = "partial"


VERDICT_SCHEMA: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "inference:verdict:0.1",
        "title": "LLM-as-judge verdict",
        "type": "object",
        "required": ["claim", "observed", "match", "confidence", "reasoning"],
        "properties": {
            "claim": {"type": "string", "description": "The specific assertion under evaluation."},
            "observed": {
                "type": "string",
                "description": "What was actually observed in the subject under evaluation, quoting evidence where possible.",
            },
            "match": {
                "enum": ["pass", "fail", "partial"],
                "description": "pass only if the assertion is fully satisfied; partial for partial compliance.",
            },
            "confidence": {
                "type": "number",
                "minimum": 0,
                "maximum": 1,
                "description": "Self-reported confidence in this verdict.",
            },
            "reasoning": {"type": "string", "description": "Why this conclusion was reached."},
        },
        "additionalProperties": False,
    }
)
"""The canonical schema. A schema of one's own starts from a copy and changes `$id`, title and descriptions."""

VERDICT_FIELDS: Final = ("claim", "observed", "match", "confidence", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdict:
    """One model's answer about one claim.

    Raises:
        UsageError: `confidence` is not a number within 0..1.
    """

    claim: str
    observed: str
    match: Match
    confidence: float
    """Self-reported, within 0..1. A number the model wrote; measured confidence stands in `JudgeRun.probabilities`."""
    reasoning: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What a schema of one's own adds; kept through the round trip."""

    def __post_init__(self) -> None:
        c = self.confidence
        if isinstance(c, bool) or not isinstance(c, int | float) or not 0 <= c <= 1:
            raise UsageError("confidence", f"{excerpt(c)} is not a number within 0..1")

    def to_json(self) -> dict[str, Any]:
        """The verdict in the file format, fields in the schema's order, then the extra ones."""
        return {
            "claim": self.claim,
            "observed": self.observed,
            "match": self.match.value,
            "confidence": self.confidence,
            "reasoning": self.reasoning,
            **self.extra,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JudgeVerdict:
        """Read a verdict. Numbers stay what they were: `1` is not turned into `1.0`.

        Raises:
            UsageError: a field is missing or has the wrong type.
        """
        for name in VERDICT_FIELDS:
            if name not in data:
                raise UsageError("verdict", f"field {name!r} is missing")
        for name in ("claim", "observed", "reasoning"):
            if not isinstance(data[name], str):
                raise UsageError("verdict", f"{name} is {excerpt(data[name])}, not a string")
        try:
            match = Match(data["match"])
        except ValueError:
            raise UsageError(
                "verdict", f"match is {excerpt(data['match'])}, not pass, fail or partial"
            ) from None
        return cls(
            claim=data["claim"],
            observed=data["observed"],
            match=match,
            confidence=data["confidence"],
            reasoning=data["reasoning"],
            extra={key: value for key, value in data.items() if key not in VERDICT_FIELDS},
        )


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_START: Final = "Start from a copy of VERDICT_SCHEMA and change $id, title and descriptions."


def check_verdict_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose instances are not verdicts, before the first run.

    Required: an object with `claim`, `observed`, `reasoning` as required strings, `match` as a required enum of at
    least two of pass, fail and partial, and `confidence` as a required number bounded within 0..1. More properties
    are welcome; they end up in `JudgeVerdict.extra`.

    Raises:
        VerdictSchemaError: the message names the field and what is missing there.
        InvalidSchemaError: it is not a JSON object, or names a dialect that nobody knows.
    """
    match_options(schema)


def match_options(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that `match` may take under `schema`, in its order. Checks the whole schema on the way.

    Raises:
        VerdictSchemaError: see `check_verdict_schema`.
        InvalidSchemaError: see `check_verdict_schema`.
    """
    guard = _Guard(schema)
    parts = guard.parts_of_root()
    if not any(_types(part) == {"object"} for part in parts):
        raise VerdictSchemaError(
            "schema", 'its instances need not be objects, for want of "type": "object"', _START
        )
    required = {name for part in parts for name in _list(part, "required") if isinstance(name, str)}
    fields = {}
    for name in VERDICT_FIELDS:
        fields[name] = guard.parts_of_property(name)
        if name not in required:
            raise VerdictSchemaError(f"schema: {name}", "it is not in `required`", _START)
    for name in ("claim", "observed", "reasoning"):
        if not any(_is_string(part) for part in fields[name]):
            raise VerdictSchemaError(
                f"schema: {name}", 'it need not be a string, for want of "type": "string"', _START
            )
    _check_confidence(fields["confidence"])
    return _options(fields["match"])


def _options(parts: list[Mapping[str, Any]]) -> tuple[str, ...]:
    enums = [values for part in parts if (values := _values(part)) is not None]
    where, known = "schema: match", {match.value for match in Match}
    if not enums:
        raise VerdictSchemaError(
            where, "it is no enum that the guard can see", f"Give it one of {sorted(known)}."
        )
    allowed = [value for value in enums[0] if all(value in other for other in enums[1:])]
    strange = [value for value in allowed if not isinstance(value, str) or value not in known]
    if strange:
        raise VerdictSchemaError(where, f"{excerpt(strange[0])} is not pass, fail or partial", _START)
    if len(set(allowed)) < 2:
        raise VerdictSchemaError(where, f"{allowed} leaves nothing to decide", "Allow two options or more.")
    return tuple(dict.fromkeys(allowed))


def _check_confidence(parts: list[Mapping[str, Any]]) -> None:
    where, remedy = "schema: confidence", 'Give it "type": "number", "minimum": 0 and "maximum": 1.'
    enums = [values for part in parts if (values := _values(part)) is not None]
    if any(all(_is_number(value) and 0 <= value <= 1 for value in values) for values in enums):
        return
    if not any(kinds and kinds <= {"number", "integer"} for kinds in map(_types, parts)):
        raise VerdictSchemaError(where, "it need not be a number", remedy)
    lows = [
        part[key] for part in parts for key in ("minimum", "exclusiveMinimum") if _is_number(part.get(key))
    ]
    highs = [
        part[key] for part in parts for key in ("maximum", "exclusiveMaximum") if _is_number(part.get(key))
    ]
    if not any(low >= 0 for low in lows):
        raise VerdictSchemaError(
            where, f"its lower bound is {max(lows, default='missing')}, not 0 or more", remedy
        )
    if not any(high <= 1 for high in highs):
        raise VerdictSchemaError(
            where, f"its upper bound is {min(highs, default='missing')}, not 1 or less", remedy
        )


class _Guard:
    """The schemas that hold for an instance or a property of it, all at once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from referencing import Registry  # At first use: importing judge_local stays cheap.
        from referencing.jsonschema import UnknownDialect, specification_with

        if not isinstance(schema, Mapping):
            raise InvalidSchemaError("schema", f"{excerpt(schema)} is not a JSON object", _START)
        for name in ("$id", "id"):
            if not isinstance(schema.get(name, ""), str):
                raise InvalidSchemaError("schema", f"{name} {excerpt(schema[name])} is not a string", _START)
        dialect = schema.get("$schema", _DIALECT)
        try:
            self._specification: Specification[Any] = specification_with(str(dialect))
        except UnknownDialect:
            raise InvalidSchemaError(
                "schema", f"$schema {excerpt(dialect)} is no dialect of JSON Schema", f"Use {_DIALECT}."
            ) from None
        # Before 2019-09, a `$ref` replaces what stands beside it.
        self._ref_replaces = self._specification.name in {"draft-03", "draft-04", "draft-06", "draft-07"}
        resource = self._specification.create_resource(schema)
        self._root = list(self._expand(schema, Registry().resolver_with_root(resource), "root", frozenset()))

    def parts_of_root(self) -> list[Mapping[str, Any]]:
        return [part for part, _ in self._root]

    def parts_of_property(self, name: str) -> list[Mapping[str, Any]]:
        found = [
            (properties[name], resolver)
            for part, resolver in self._root
            if isinstance(properties := part.get("properties"), Mapping) and name in properties
        ]
        if not found:
            raise VerdictSchemaError(f"schema: {name}", "no property of that name is declared", _START)
        return [part for sub, resolver in found for part, _ in self._expand(sub, resolver, name, frozenset())]

    def _expand(
        self, schema: Any, resolver: Resolver[Any], name: str, above: frozenset[int]
    ) -> Iterator[tuple[Mapping[str, Any], Resolver[Any]]]:
        """`schema` and everything that applies with it, each with the resolver for references inside."""
        from referencing.exceptions import Unresolvable

        where = f"schema: {name}"
        if not isinstance(schema, Mapping):
            return  # `true` and `false` say nothing about the field's type.
        if id(schema) in above:
            raise VerdictSchemaError(where, "it refers to itself without end", _START)
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                raise VerdictSchemaError(where, f"the guard cannot see through {keyword}", "Use $ref.")
        resolver = resolver.in_subresource(self._specification.create_resource(schema))
        above |= {id(schema)}
        reference = schema.get("$ref")
        if not (isinstance(reference, str) and self._ref_replaces):
            # `const` is younger than these; their validators pass over it.
            old = self._specification.name in {"draft-03", "draft-04"}
            yield {key: value for key, value in schema.items() if not (old and key == "const")}, resolver
            for member in _list(schema, "allOf"):
                yield from self._expand(member, resolver, name, above)
        if isinstance(reference, str):
            try:
                target = resolver.lookup(reference)
            except Unresolvable:
                raise VerdictSchemaError(
                    where,
                    f"$ref {excerpt(reference)} leads out of the schema or nowhere",
                    "Copy it into $defs.",
                ) from None
            yield from self._expand(target.contents, target.resolver, name, above)


def _types(part: Mapping[str, Any]) -> set[str]:
    kinds = part.get("type")
    return (
        {kinds} if isinstance(kinds, str) else {kind for kind in _list(part, "type") if isinstance(kind, str)}
    )


def _is_string(part: Mapping[str, Any]) -> bool:
    values = _values(part)
    return _types(part) == {"string"} or (
        values is not None and all(isinstance(value, str) for value in values)
    )


def _values(part: Mapping[str, Any]) -> list[Any] | None:
    """The finite list of values that `part` allows, where it gives one."""
    if "const" in part:
        return [part["const"]]
    return _list(part, "enum") if "enum" in part else None


def _list(part: Mapping[str, Any], key: str) -> list[Any]:
    value = part.get(key)
    return list(value) if isinstance(value, list | tuple) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf
