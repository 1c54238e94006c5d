"""What tests of batches are made of: rows, results, headers."""

from __future__ import annotations

import json
from dataclasses import replace

from judge_local.batch.rows import Row
from judge_local.consensus import compute_consensus
from judge_local.results import Result, ResultsHeader, no_decision, subject_sha256
from judge_local.run import JudgeRun
from judge_local.verdict import JudgeVerdict, Match
from judge_local.zones import Zone, in_zone

HEADER = ResultsHeader(
    model="mock:mock-model",
    model_sha256="ab" * 32,
    schema_sha256="cd" * 32,
    prompt_version="p:1",
    settings={"runs": 1, "seed": 0, "threads": 2},
)


def row(number, **change):
    return replace(
        Row(number=number, line=number, id=f"r{number}", claim=f"Claim {number}.", subject="At nine."),
        **change,
    )


def decided(match="pass", confidence=0.9):
    """A decision of one run."""
    verdict = JudgeVerdict(
        claim="c", observed="o", match=Match(match), confidence=confidence, reasoning="r", extra={}
    )
    run = JudgeRun(verdict=verdict, provider="mock", model="mock-model", duration_ms=1.0)
    zone = {"pass": Zone.AUTO_PASS, "fail": Zone.AUTO_FAIL}[match]
    return in_zone(compute_consensus([run]), zone, distinct_runs=1, replays=False)


def half_errored():
    """A decision of two runs, one of which is errored."""
    error = JudgeRun(error="down", provider="mock", model="mock-model", duration_ms=1.0)
    runs = (*decided().runs, error)
    return in_zone(compute_consensus(runs), Zone.HUMAN_REVIEW, distinct_runs=2, replays=False)


def result(number, *, match="pass", error=None, decision=None, **change):
    chosen = no_decision() if error else decision or decided(match)
    made = Result(
        row=number,
        id=f"r{number}",
        claim=f"Claim {number}.",
        subject="At nine.",
        subject_sha256=subject_sha256("At nine."),
        decision=chosen,
        error=error,
    )
    return replace(made, **change)


def lines(path):
    """The results in a file as JSON, read without the program's help; the header left out."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]


def ids(path):
    return [line["id"] for line in lines(path)]
