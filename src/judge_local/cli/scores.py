"""`judge-local judge --score-only`: the probability of each option before anything is written, for all claims in one pass.

Nothing is decided: every claim goes to a person, so the exit code is 3 unless something could not be scored at all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from judge_local.cli.output import Line, Progress, emit_json, say, show
from judge_local.errors import ContextOverflowError, UsageError
from judge_local.results import subject_sha256
from judge_local.scoring import Scores, score_claims

if TYPE_CHECKING:
    from judge_local.cli.call import Call, Options
    from judge_local.cli.claims import Claim
    from judge_local.providers.base import InferenceProvider

REVIEW: int = 3


def check_score_only(options: Options) -> None:
    """Refuse what has no meaning where nothing is written.

    Raises:
        UsageError: it was asked for all the same.
    """
    for name, given in (("--option-bias", options.option_bias), ("--cache", options.cache)):
        if given:
            raise UsageError(name, "nothing is chosen or kept with --score-only", "Leave one of them out.")


async def score(options: Options, call: Call, provider: InferenceProvider, progress: Progress) -> int:
    """Score every claim of `call`, print the scores, and return the exit code. Ends the provider.

    Raises:
        JudgeLocalError: nothing could be scored, for a reason that holds for all claims.
    """
    started = time.monotonic()
    progress.update(f"scoring {len(call.claims)} claim{'s' if len(call.claims) > 1 else ''}")
    try:
        scored = await score_claims(
            provider,
            call.subject,
            [claim.text for claim in call.claims],
            references=[
                call.reference if claim.reference is None else claim.reference for claim in call.claims
            ],
            schema=call.schema,
            vary=options.vary,
            checked=options.checked,
            deadline=call.deadline,
        )
    finally:
        close = getattr(provider, "aclose", None)
        if close is not None:
            await close()
    progress.pause()
    code = REVIEW
    seconds = time.monotonic() - started
    for claim, scores in zip(call.claims, scored, strict=True):
        if scores.error_kind == ContextOverflowError.__name__:
            say(
                f"claim {claim.row} of {len(call.claims)}: {scores.error}"
                if len(scored) > 1
                else f"{scores.error}"
            )
            code = ContextOverflowError.exit_code
        elif options.json:
            emit_json(_to_json(options, call, claim, scores))
        else:
            show(_lines(scores, seconds=seconds))
    return code


def _to_json(options: Options, call: Call, claim: Claim, scores: Scores) -> dict[str, Any]:
    """As a result of `judge` would have it, with `probabilities` in place of votes and runs."""
    reference = call.reference if claim.reference is None else claim.reference
    text = not options.no_text
    facts: dict[str, Any] = {
        "row": claim.row,
        "id": claim.id,
        "claim": claim.text,
        "subject": call.subject if text and call.subject_file is None else None,
        "subjectFile": call.subject_file,
        "subjectSha256": subject_sha256(call.subject),
        "reference": reference if text else None,
        "label": claim.label,
        "meta": dict(claim.meta) or None,
    }
    return {**{key: value for key, value in facts.items() if value is not None}, **scores.to_json()}


def _lines(scores: Scores, *, seconds: float) -> Iterator[Line]:
    yield Line(f"{scores.zone.value}: {scores.claim}", style="bold yellow")
    if scores.error is not None:
        yield Line(f"errored: {scores.error}", indent=1, label="scores", style="yellow")
    for place, options in (scores.probabilities or {}).items():
        shares = ", ".join(f"{option} {share:.3f}" for option, share in options.items())
        yield Line(f"{shares} ({place})", indent=1, label="measured")
    yield Line(f"{scores.provider} {scores.model}", indent=1, label="model")
    tokens = "" if scores.usage is None else f"{scores.usage.input_tokens:,} tokens in, "
    yield Line(f"{tokens}{seconds:.1f} s", indent=1, label="cost")
    yield Line(
        "uncertified: nothing proves how often these numbers mislead",
        indent=1,
        label="certificate",
        style="dim",
    )
    for note in scores.notes:
        yield Line(f"{note.kind}: {note.detail}", indent=1, label="note", style="yellow")
