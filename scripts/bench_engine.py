"""What judging adds to llama.cpp: one run end to end, against llama.cpp decoding the same number of tokens and no more.

    python scripts/bench_engine.py [--pairs 5] [--model smollm2-135m]

Each pair judges one claim about the example page with one run, loaded and warm, in the worker; then the same numbers of
prompt and answer tokens go through bare `llama_decode` calls in a process of their own: no grammar, no sampling, no
template, no protocol. Prints both times and their ratio, pair by pair, and the start-up of a worker.

Last, deadlines: a subject of thousands of tokens is judged with 0.2 s to go, as often as there are pairs, and how long
that took is printed. After each, a claim is judged whose verdict is known; it must be the same again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from judge_local import LocalProvider
from judge_local.ensemble import judge_claim
from judge_local.models.hardware import usable_cores
from judge_local.models.store import Store

EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"

BARE: Final = """
import json, sys, time
from pathlib import Path
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context
from judge_local.engine.protocol import BATCH_TOKENS

path, threads = sys.argv[1], int(sys.argv[2])
start_backend()
model = Model(Path(path))
for line in sys.stdin:
    prompt, answer = json.loads(line)
    context = Context(model, n_ctx=prompt + answer + 256, n_sequences=7, n_outputs=7, n_batch=BATCH_TOKENS, n_threads=threads, abort=AbortFlag())
    started = time.monotonic()
    at = 0
    while at < prompt:
        count = min(BATCH_TOKENS, prompt - at)
        last = at + count == prompt
        context.decode([at % 1000 + 100 for at in range(at, at + count)], range(at, at + count), [0] * count, [False] * (count - 1) + [last])
        at += count
    for at in range(prompt, prompt + answer - 1):
        context.decode([at % 1000 + 100], [at], [0], [True])
    print(json.dumps(time.monotonic() - started), flush=True)
    context.close()
"""


DEADLINE_SECONDS: Final = 0.2
LONG: Final = 4
"""So many copies of the example page make a prompt that takes far longer to read."""


async def bench_deadlines(provider: LocalProvider, subject: str, claim: str, times: int) -> None:
    """Print how long a judgement took that a deadline stopped in mid-prompt.

    Raises:
        SystemExit: it was not stopped, or the request after it was answered otherwise than before.
    """
    known = (await judge_claim(provider, subject, claim, runs=1)).runs[0].verdict
    taken = []
    for _ in range(times):
        started = time.monotonic()
        late = await judge_claim(provider, subject * LONG, claim, runs=1, deadline=started + DEADLINE_SECONDS)
        taken.append(time.monotonic() - started)
        if "its time ran out" not in (late.runs[0].error or ""):
            raise SystemExit(f"no deadline stopped the long prompt: {late.runs[0].error or 'it was judged'}")
        if (await judge_claim(provider, subject, claim, runs=1)).runs[0].verdict != known:
            raise SystemExit("the request after a deadline was answered otherwise than before it")
    print(
        f"deadline of {DEADLINE_SECONDS} s in a long prompt: {statistics.median(taken):.3f} s "
        f"(min {min(taken):.3f}, max {max(taken):.3f}); the next request was answered as before"
    )


async def bench(model: str | None, pairs: int) -> None:
    """Print the pairs."""
    store = Store()
    found = store.the_only() if model is None else store.find(model)
    subject = (EXAMPLES / "tidemark.md").read_text(encoding="utf-8")
    lines = (EXAMPLES / "claims.jsonl").read_text(encoding="utf-8").splitlines()
    claims = [json.loads(line)["claim"] for line in lines if line.strip()]
    starts = []
    for _ in range(3):
        started = time.monotonic()
        async with LocalProvider(found.path, store=store) as provider:
            await provider.facts()
            starts.append(time.monotonic() - started)
    print(f"worker start and load: {min(starts):.2f} s (best of {len(starts)})")

    command = [sys.executable, "-c", BARE, str(found.path), str(usable_cores())]
    ratios = []
    # `deterministic`: nothing of the prompt is carried over from the pair before.
    async with LocalProvider(found.path, store=store, deterministic=True) as provider:
        await provider.facts()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bare:
            assert bare.stdin is not None
            assert bare.stdout is not None
            for pair in range(pairs + 1):
                started = time.monotonic()
                result = await judge_claim(provider, subject, claims[pair % len(claims)], runs=1)
                ours = time.monotonic() - started
                usage = result.runs[0].usage
                if usage is None:
                    raise SystemExit(f"the run was errored: {result.runs[0].error}")
                bare.stdin.write(json.dumps([usage.input_tokens, usage.output_tokens]) + "\n")
                bare.stdin.flush()
                theirs = float(bare.stdout.readline())
                if pair == 0:
                    continue  # The first of each warms the file cache and the threads.
                ratios.append(ours / theirs)
                print(
                    f"pair {pair}: {usage.input_tokens} + {usage.output_tokens} tokens  judge {ours:.2f} s  "
                    f"llama.cpp {theirs:.2f} s  ratio {ratios[-1]:.3f}"
                )
            bare.stdin.close()
        await bench_deadlines(provider, subject, claims[0], pairs)
    print(f"median ratio {statistics.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f})")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    asyncio.run(bench(options.model, options.pairs))


if __name__ == "__main__":
    main()
