"""Results made for tests: decisions of any shape, without a model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from judge_local.consensus import compute_consensus
from judge_local.results import Result, ResultsHeader, no_decision, subject_sha256
from judge_local.run import JudgeRun
from judge_local.verdict import JudgeVerdict, Match
from judge_local.zones import ConsensusResult, Zone, in_zone, zone_for

SUBJECT = "The shop opens at nine."
HEADER = ResultsHeader(
    model="mock:mock-model",
    model_sha256="ab" * 32,
    schema_sha256="cd" * 32,
    prompt_version="judge-local:prompt:2",
    settings={"runs": 3},
)
KINDS = ("auto-pass", "auto-fail", "human-review", "error")
"""What can become of a row."""


def run(outcome: str, *, confidence: float = 0.9, observed: str = "o", reasoning: str = "r") -> JudgeRun:
    """One run that said `outcome`: a match, or `error`."""
    facts: dict[str, Any] = {"provider": "mock", "model": "mock-model", "duration_ms": 250}
    if outcome == "error":
        return JudgeRun(error=reasoning, error_kind="ProviderError", **facts)
    verdict = JudgeVerdict(
        claim="c", observed=observed, match=Match(outcome), confidence=confidence, reasoning=reasoning
    )
    return JudgeRun(verdict=verdict, **facts)


def decided(*runs: JudgeRun) -> ConsensusResult:
    """The decision that `runs` come to."""
    consensus = compute_consensus(runs)
    return in_zone(consensus, zone_for(consensus), distinct_runs=len(runs), replays=False)


def result(row: int, kind: str, *, text: str = "r", **facts: Any) -> Result:
    """A result of `kind`, whose runs give `text` as what they saw and why."""
    matches = {
        "auto-pass": "pass pass",
        "auto-fail": "fail partial",
        "human-review": "pass fail",
        "error": "",
    }
    runs = [run(match, observed=text, reasoning=text) for match in matches[kind].split()]
    made: dict[str, Any] = {
        "row": row,
        "id": f"r{row}",
        "claim": f"Claim {row}.",
        "subject": None if "subject_file" in facts else SUBJECT,
        "subject_sha256": subject_sha256(SUBJECT),
        "decision": decided(*runs) if runs else no_decision(),
        "error": None if runs else f"line {row}: {text}",
        **facts,
    }
    return Result(**made)


def zone_of(kind: str) -> Zone:
    """The zone of a result of `kind`."""
    return Zone.HUMAN_REVIEW if kind == "error" else Zone(kind)


def write_results(path: Path, results: Iterable[Result], header: ResultsHeader = HEADER) -> Path:
    """A results file with `results`."""
    lines = [header.to_json(), *(one.to_json() for one in results)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="ascii")
    return path
