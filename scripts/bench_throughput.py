"""Verdicts a minute: our engine against llama-cpp-python's own chat completion, on the same rows in the same run.

    python scripts/bench_throughput.py [--rows FILE.jsonl] [--count 16] [--runs 3] [--model smollm2-135m] [--pairs 1]

Both sides get the same prompts, the same schema with the same limits as keywords (the claim as a `const`), the same
greatest number of tokens and temperature 0. The stock side is called as its documentation shows, one completion a run,
with the schema as `response_format`; an answer that is cut off or not valid under the schema does not count. Without
`--rows`, the example page and its claims are used. Prints both rates and their ratio, pair by pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from judge_local import VERDICT_SCHEMA, LocalProvider
from judge_local.ensemble import judge_claim
from judge_local.models.hardware import usable_cores
from judge_local.models.store import Store
from judge_local.prompt import OPTION_ORDERS, build_prompt, restate_schema, variation_text

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
MAX_TOKENS: Final = 400
LIMITS: Final = {"observed": 400, "reasoning": 600}

STOCK: Final = """
import json, sys, time
from llama_cpp import Llama

path, threads, n_ctx, max_tokens = sys.argv[1], *map(int, sys.argv[2:5])
model = Llama(path, n_ctx=n_ctx, n_threads=threads, n_threads_batch=threads, verbose=False)
for line in sys.stdin:
    answers = []
    started = time.monotonic()
    for system, user, schema in json.loads(line):
        done = model.create_chat_completion(
            [{"role": "system", "content": system}, {"role": "user", "content": user}],
            response_format={"type": "json_object", "schema": schema}, temperature=0.0, max_tokens=max_tokens,
        )
        answers.append([done["choices"][0]["message"]["content"], done["usage"]["completion_tokens"]])
    print(json.dumps([time.monotonic() - started, answers]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A claim about a subject."""

    subject: str
    claim: str


@dataclass(frozen=True, slots=True)
class Score:
    """What one side did."""

    seconds: float
    verdicts: int
    asked: int
    tokens: float
    """Mean tokens of an answer."""

    @property
    def rate(self) -> float:
        """Verdicts a minute."""
        return 60 * self.verdicts / self.seconds

    def __str__(self) -> str:
        return f"{self.rate:.1f} verdicts/min ({self.verdicts} of {self.asked} in {self.seconds:.1f} s, {self.tokens:.0f} tokens each)"


def read_rows(path: Path | None, count: int) -> list[Row]:
    """The first `count` rows."""
    if path is None:
        page = (EXAMPLES / "tidemark.md").read_text(encoding="utf-8")
        lines = (EXAMPLES / "claims.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [Row(page, json.loads(line)["claim"]) for line in lines if line.strip()]
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        data = [json.loads(line) for line in lines if line.strip()]
        rows = [Row(one["subject"], one["claim"]) for one in data]
    return rows[:count]


def bounded(claim: str) -> dict[str, Any]:
    """The canonical schema with the judge's own limits as keywords, for the side that has no profile."""
    properties: dict[str, Any] = {name: dict(value) for name, value in VERDICT_SCHEMA["properties"].items()}
    properties["claim"] = {"const": claim}
    for name, limit in LIMITS.items():
        properties[name]["maxLength"] = limit
    return {**VERDICT_SCHEMA, "properties": properties}


async def ours(provider: LocalProvider, rows: list[Row], runs: int) -> Score:
    """All rows at once."""
    started = time.monotonic()
    results = await asyncio.gather(
        *(judge_claim(provider, row.subject, row.claim, runs=runs) for row in rows)
    )
    seconds = time.monotonic() - started
    done = [run for result in results for run in result.runs]
    tokens = [run.usage.output_tokens for run in done if run.usage is not None]
    return Score(
        seconds, sum(run.verdict is not None for run in done), len(done), sum(tokens) / max(len(tokens), 1)
    )


def stock_requests(rows: list[Row], runs: int) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The same prompts, one for each run."""
    requests: list[tuple[str, str, Mapping[str, Any]]] = []
    for row in rows:
        prompt = build_prompt(row.subject, row.claim)
        schema = bounded(row.claim)
        system = f"{prompt.system}\n\n{restate_schema(VERDICT_SCHEMA, pinned=('claim',))}"
        for run in range(runs):
            order = OPTION_ORDERS[run % len(OPTION_ORDERS)]
            requests.append((system, f"{prompt.user}\n\n{variation_text(order, 0)}", schema))
    return requests


def score_stock(reply: str, requests: list[tuple[str, str, Mapping[str, Any]]]) -> Score:
    """Count the answers that are valid."""
    from jsonschema import Draft202012Validator

    seconds, answers = json.loads(reply)
    valid = 0
    for (text, _), (_, _, schema) in zip(answers, requests, strict=True):
        try:
            valid += Draft202012Validator(schema).is_valid(json.loads(text))
        except json.JSONDecodeError:
            continue
    return Score(seconds, valid, len(answers), sum(tokens for _, tokens in answers) / len(answers))


async def bench(options: argparse.Namespace) -> None:
    """Print the pairs."""
    store = Store()
    found = store.the_only() if options.model is None else store.find(options.model)
    rows = read_rows(options.rows, options.count)
    requests = stock_requests(rows, options.runs)
    async with LocalProvider(found.path, store=store) as provider:
        facts = await provider.facts()
        await judge_claim(provider, "Warm.", "It is warm.", runs=1)
        command = [
            sys.executable,
            "-c",
            STOCK,
            str(found.path),
            str(usable_cores()),
            str(facts.n_ctx),
            str(MAX_TOKENS),
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stock:
            assert stock.stdin is not None
            assert stock.stdout is not None
            for pair in range(options.pairs):
                mine = await ours(provider, rows, options.runs)
                stock.stdin.write(json.dumps(requests) + "\n")
                stock.stdin.flush()
                theirs = score_stock(stock.stdout.readline(), requests)
                print(f"pair {pair + 1}  judge-local {mine}")
                print(f"pair {pair + 1}  stock       {theirs}")
                print(
                    f"pair {pair + 1}  ratio {mine.rate / theirs.rate:.2f}"
                    if theirs.verdicts
                    else "no valid stock answer"
                )
            stock.stdin.close()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=Path, default=None)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default=None)
    parser.add_argument("--pairs", type=int, default=1)
    asyncio.run(bench(parser.parse_args()))


if __name__ == "__main__":
    main()
