"""Prove on the real tiny model that every verdict is valid: 200 runs at temperature 1.0, none needing the retry.

    python scripts/prove_verdicts.py [--runs 200] [--model smollm2-135m]

Prints the counts, and exits with 1 when a run was errored, was retried, or has a confidence outside 0..1. The claims and
the page are those of `examples/`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from judge_local import (
    VERDICT_SCHEMA,
    CompletionRequest,
    CompletionResponse,
    JudgeLocalError,
    JudgeRun,
    LocalProvider,
)
from judge_local.ensemble import judge_claim

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
RUNS_PER_CLAIM: Final = 5


class Counting(LocalProvider):
    """The provider itself, counting what it is asked: a retry is a request with `attempt` above 0."""

    retries = 0

    async def complete_many(
        self, requests: Sequence[CompletionRequest]
    ) -> list[CompletionResponse | JudgeLocalError]:
        """Answer as the provider does."""
        self.retries += sum(request.attempt > 0 for request in requests)
        return await super().complete_many(requests)


async def prove(model: str | None, wanted: int) -> int:
    """Judge the examples until `wanted` runs are there. Returns the exit code."""
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator({**VERDICT_SCHEMA})
    subject = (EXAMPLES / "tidemark.md").read_text(encoding="utf-8")
    lines = (EXAMPLES / "claims.jsonl").read_text(encoding="utf-8").splitlines()
    claims = [json.loads(line)["claim"] for line in lines if line.strip()]
    runs: list[JudgeRun] = []
    started = time.monotonic()
    async with Counting(model) as provider:
        turn = 0
        while len(runs) < wanted:
            count = min(RUNS_PER_CLAIM, wanted - len(runs))
            result = await judge_claim(
                provider, subject, claims[turn % len(claims)], runs=count, temperature=1.0, seed=1000 * turn
            )
            runs += result.runs
            turn += 1
            print(f"{len(runs)}/{wanted} runs, {time.monotonic() - started:.0f} s", file=sys.stderr)
        retries = provider.retries
    errors = Counter(run.error_kind for run in runs if run.error is not None)
    valid = sum(run.verdict is not None and validator.is_valid(run.verdict.to_json()) for run in runs)
    confidences = [run.verdict.confidence for run in runs if run.verdict is not None]
    matches = Counter(run.verdict.match.value for run in runs if run.verdict is not None)
    print(f"runs {len(runs)}  schema-valid {valid}  errored {sum(errors.values())}  retried {retries}")
    print(f"confidence {min(confidences, default=0)}..{max(confidences, default=0)}  match {dict(matches)}")
    if errors:
        print(f"errors {dict(errors)}")
    inside = all(0 <= confidence <= 1 for confidence in confidences)
    return 0 if valid == wanted and retries == 0 and inside else 1


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    raise SystemExit(asyncio.run(prove(options.model, options.runs)))


if __name__ == "__main__":
    main()
