"""Scoring: what a model leans to about a claim before it writes anything, by one pass over the prompt.

It is the cheapest look at a row there is, and the least: no evidence, no reasons, nothing for a person to check. So what
comes of it is never a verdict. Its zone is human review, whatever the numbers are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from judge_local.completion import SETUP_FAULTS
from judge_local.design import Design, declared_properties
from judge_local.errors import (
    DeadlineExceededError,
    JudgeLocalError,
    ProviderError,
    UsageError,
    excerpt,
)
from judge_local.prompt import build_prompt, tripwires
from judge_local.providers.base import CompletionRequest, CompletionResponse, InferenceProvider
from judge_local.run import Note, TokenUsage
from judge_local.verdict import VERDICT_SCHEMA
from judge_local.zones import Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How likely a model is to answer each option about one claim, before any reasoning: no verdict, nothing decided."""

    claim: str
    probabilities: Mapping[str, Mapping[str, float]] | None = None
    """`before`: option → probability; None where there is an error."""
    error: str | None = None
    error_kind: str | None = None
    """The error's class name."""
    provider: str
    model: str
    usage: TokenUsage | None = None
    duration_ms: float
    """Wall time of the call, in milliseconds; claims that were scored by one call share it."""
    fingerprint: str | None = None
    notes: tuple[Note, ...] = ()

    @property
    def zone(self) -> Zone:
        """Human review: nothing proves how often these numbers mislead."""
        return Zone.HUMAN_REVIEW

    def to_json(self) -> dict[str, Any]:
        """The file format; absent rather than null."""
        optional: dict[str, Any] = {
            "probabilities": self.probabilities and {k: dict(v) for k, v in self.probabilities.items()},
            "error": self.error,
            "errorKind": self.error_kind,
            "provider": self.provider,
            "model": self.model,
            "usage": self.usage and self.usage.to_json(),
            "durationMs": self.duration_ms,
            "fingerprint": self.fingerprint,
            "notes": [note.to_json() for note in self.notes] or None,
        }
        return {
            "zone": self.zone.value,
            **{key: value for key, value in optional.items() if value is not None},
            "certified": False,
        }


async def score_claim(
    provider: InferenceProvider,
    subject: str,
    claim: str,
    *,
    reference: str | None = None,
    schema: Mapping[str, Any] = VERDICT_SCHEMA,
    vary: str | None = None,
    checked: Sequence[str] = (),
    deadline: float | None = None,
) -> Scores:
    """How likely the model is to answer each option about `claim`, if it had to answer at once.

    The prompt is that of run 0 of `judge_claim`, so the numbers are that run's `probabilities["before"]`.

    Args:
        provider: who is asked; it must be able to score.
        subject: the material.
        claim: what is asked about it.
        reference: what is known to be right.
        schema: of the verdict; the options of its `match` are scored.
        vary: as for `judge_claim`; with `options`, they are offered in the first order.
        checked: keywords of the schema left to the validator.
        deadline: a `time.monotonic()` instant.

    Raises:
        EmptySubjectError: there is nothing to judge.
        UsageError: an argument cannot be meant, or the provider cannot score.
        SchemaError: the schema is no schema, or none of verdicts.
        JudgeLocalError: another fault of the set-up, such as a model that is missing.
    """
    (scores,) = await score_claims(
        provider,
        subject,
        [claim],
        references=[reference],
        schema=schema,
        vary=vary,
        checked=checked,
        deadline=deadline,
    )
    return scores


async def score_claims(
    provider: InferenceProvider,
    subject: str,
    claims: Sequence[str],
    *,
    references: Sequence[str | None] | None = None,
    schema: Mapping[str, Any] = VERDICT_SCHEMA,
    vary: str | None = None,
    checked: Sequence[str] = (),
    deadline: float | None = None,
) -> list[Scores]:
    """`score_claim` for many claims about one subject, which is read once. What fails for one claim is recorded on it.

    Args:
        provider: who is asked; see `score_claim`.
        subject: the material.
        claims: what is asked.
        references: for each claim, what is known to be right, or None.
        schema: of the verdict.
        vary: see `score_claim`.
        checked: keywords of the schema left to the validator.
        deadline: a `time.monotonic()` instant.

    Raises:
        UsageError: there are not as many references as claims.
        JudgeLocalError: see `score_claim`.
    """
    references = [None] * len(claims) if references is None else list(references)
    if len(references) != len(claims):
        raise UsageError("references", f"there are {len(references)} for {len(claims)} claims")
    design = Design.of(provider, 1, 0.0, vary, 0, schema)
    requests = []
    for claim, reference in zip(claims, references, strict=True):
        prompt = build_prompt(subject, claim, reference=reference)
        requests.append(
            CompletionRequest(
                system=prompt.system,
                user=design.user(prompt.user, 0),
                schema=schema,
                pinned={"claim": claim} if "claim" in declared_properties(schema) else None,
                checked=tuple(checked),
                score_only=True,
                deadline=deadline,
            )
        )
    started = time.perf_counter()
    outcomes = await _ask(provider, requests, deadline)
    milliseconds = 1000 * (time.perf_counter() - started)
    faults = [outcome for outcome in outcomes if isinstance(outcome, SETUP_FAULTS)]
    if outcomes and len(faults) == len(outcomes):
        raise faults[0]
    tripped = tripwires(subject)
    return [
        _scores(claim, outcome, provider, milliseconds, tripped)
        for claim, outcome in zip(claims, outcomes, strict=True)
    ]


async def _ask(
    provider: InferenceProvider, requests: list[CompletionRequest], deadline: float | None
) -> list[CompletionResponse | JudgeLocalError]:
    if deadline is not None and time.monotonic() >= deadline:
        late = DeadlineExceededError("deadline", "it had passed before the scoring began", "Allow more time.")
        return [late for _ in requests]
    many = getattr(provider, "complete_many", None)
    if many is not None:
        answered: list[CompletionResponse | JudgeLocalError] = await many(requests)
        return answered
    return list(await asyncio.gather(*(_one(provider, request) for request in requests)))


async def _one(
    provider: InferenceProvider, request: CompletionRequest
) -> CompletionResponse | JudgeLocalError:
    try:
        return await provider.complete_json(request)
    except JudgeLocalError as error:
        return error


def _scores(
    claim: str,
    outcome: CompletionResponse | JudgeLocalError,
    provider: InferenceProvider,
    milliseconds: float,
    tripped: tuple[Note, ...],
) -> Scores:
    if isinstance(outcome, CompletionResponse) and "before" not in (outcome.probabilities or {}):
        found = excerpt(dict(outcome.probabilities or {}))
        outcome = ProviderError(provider.provider, f"it gave no scores before an answer, but {found}")
    if not isinstance(outcome, CompletionResponse):
        return Scores(
            claim=claim,
            error=str(outcome),
            error_kind=type(outcome).__name__,
            provider=provider.provider,
            model=provider.model,
            duration_ms=milliseconds,
            notes=tripped,
        )
    return Scores(
        claim=claim,
        probabilities=outcome.probabilities,
        provider=provider.provider,
        model=provider.model,
        usage=outcome.usage,
        duration_ms=milliseconds,
        fingerprint=outcome.fingerprint,
        notes=(*outcome.notes, *tripped),
    )
