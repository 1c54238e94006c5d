"""The verdict: what one run answers, the canonical schema of it, and the guard for schemas of one's own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from judge_local.errors import UsageError, excerpt


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
        if isinstance(c, bool) or not isinstance(c, int | float) or math.isnan(c) or not 0 <= c <= 1:
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
            raise UsageError("verdict", f"match is {excerpt(data['match'])}, not pass, fail or partial") from None
        return cls(
            claim=data["claim"],
            observed=data["observed"],
            match=match,
            confidence=data["confidence"],
            reasoning=data["reasoning"],
            extra={key: value for key, value in data.items() if key not in VERDICT_FIELDS},
        )
