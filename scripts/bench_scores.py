"""How much faster scores alone are than whole verdicts: the same rows, the same model, in the same run.

    python scripts/bench_scores.py [--rows FILE.jsonl] [--count 16] [--runs 3] [--model smollm2-135m] [--pairs 3]

Each pair scores all rows (`score_claims`: one pass, no text, the claims about one subject together) and judges all rows
(`judge_claim`: `--runs` runs each), all at once on both sides, with one loaded model, warmed up on another subject. Prints rows a minute for both,
their ratio, pair by pair and as the median, how often the likeliest option is the verdict of the majority, and how many
tokens a run of a verdict evaluates for the sake of its probabilities.

A row of a file has `subject` and `claim`; without one, the example page and its claims are used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from judge_local import (
    VERDICT_SCHEMA,
    CompletionRequest,
    ConsensusResult,
    LocalProvider,
    Scores,
    judge_claim,
    score_claims,
)
from judge_local.grammar.profile import DECODE_ORDER
from judge_local.models.store import Store
from judge_local.prompt import build_prompt

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"


@dataclass(frozen=True, slots=True)
class Row:
    """A claim about a subject."""

    subject: str
    claim: str


def read_rows(path: Path | None, count: int) -> list[Row]:
    """The first `count` rows."""
    source = EXAMPLES / "claims.jsonl" if path is None else path
    lines = source.read_text(encoding="utf-8").splitlines()
    page = (EXAMPLES / "tidemark.md").read_text(encoding="utf-8")
    data = [json.loads(line) for line in lines if line.strip()]
    return [Row(one.get("subject", page), one["claim"]) for one in data][:count]


async def bench(options: argparse.Namespace) -> None:
    """Print the pairs."""
    store = Store()
    found = store.the_only() if options.model is None else store.find(options.model)
    rows = read_rows(options.rows, options.count)
    ratios = []
    async with LocalProvider(found.path, store=store) as provider:
        await judge_claim(provider, "The shop opens at nine.", "It opens before noon.", runs=1)
        print(f"{found.path.name}: {len(rows)} rows, {options.runs} runs each against one score")
        for number in range(1, options.pairs + 1):
            started = time.monotonic()
            scored = await score_all(provider, rows)
            between = time.monotonic()
            judged = await asyncio.gather(
                *(judge_claim(provider, row.subject, row.claim, runs=options.runs) for row in rows)
            )
            scoring, judging = between - started, time.monotonic() - between
            ratios.append(judging / scoring)
            print(
                f"pair {number}: scores {60 * len(rows) / scoring:.1f} rows/min, "
                f"verdicts {60 * len(rows) / judging:.1f} rows/min; ratio {ratios[-1]:.2f}; "
                f"{agreeing(scored, judged)} of {len(rows)} likeliest options are the majority's verdict"
            )
        prompt = build_prompt(rows[0].subject, rows[0].claim)
        one = await provider.complete_json(
            CompletionRequest(
                system=prompt.system,
                user=prompt.user,
                schema=VERDICT_SCHEMA,
                order=DECODE_ORDER,
                pinned={"claim": rows[0].claim},
            )
        )
    print(
        f"median ratio {median(ratios):.2f}; {one.stats['scored']:.0f} tokens of a run are for its probabilities"
    )


async def score_all(provider: LocalProvider, rows: list[Row]) -> list[Scores]:
    """In the order of `rows`."""
    claims: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        claims.setdefault(row.subject, []).append(place)
    answered = await asyncio.gather(
        *(
            score_claims(provider, subject, [rows[place].claim for place in places])
            for subject, places in claims.items()
        )
    )
    pairs = zip(claims.values(), answered, strict=True)
    found = {place: one for places, scored in pairs for place, one in zip(places, scored, strict=True)}
    return [found[place] for place in range(len(rows))]


def agreeing(scored: list[Scores], judged: list[ConsensusResult]) -> int:
    """How many rows have as their likeliest option what most of their runs said."""
    count = 0
    for scores, decision in zip(scored, judged, strict=True):
        table = (scores.probabilities or {}).get("before")
        said = decision.verdict
        count += table is not None and said is not None and max(table, key=table.__getitem__) == said
    return count


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rows", type=Path, help="JSON Lines with subject and claim")
    parser.add_argument("--count", type=int, default=16, help="rows at most")
    parser.add_argument("--runs", type=int, default=3, help="runs of a verdict")
    parser.add_argument("--model", help="a reference to a model; the only one on this disk without it")
    parser.add_argument("--pairs", type=int, default=3, help="how often to measure both")
    asyncio.run(bench(parser.parse_args()))


if __name__ == "__main__":
    main()
