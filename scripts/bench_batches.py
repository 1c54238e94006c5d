"""What a token costs by the size of its batch: where runs decode together, and where llama.cpp's attention computes in tiles.

    python scripts/bench_batches.py [--model smollm2-135m] [--threads N] [--visible 512]

First, batches of one token for each of so many runs, with the logits of each, without any cells before them and after
`--visible` that all of them share: the difference is what attention takes. Then batches just below and at `TILE` tokens,
taken evenly from so many sequences, each of which attends to `--visible` cells of its own: below, a token's attention
looks at its own cells; in a tile, at those of every sequence in it. From the times at one sequence and at most of them
follows what a cell costs in a tile, against one in a smaller batch (`engine.pace.TILE_PRICE`), if all that
differs is attention. Times are the least of five, in milliseconds a token.
"""

from __future__ import annotations

import argparse
import time
from typing import Final

from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context
from judge_local.engine.pace import MOST_SLOTS, SIZES, TILE
from judge_local.engine.protocol import BATCH_TOKENS
from judge_local.models.hardware import usable_cores
from judge_local.models.store import Store

REPEATS: Final = 5
SHARES: Final = (1, 2, 4, 8)
"""Sequences that a batch is taken from."""


def fill(context: Context, sequence: int, count: int) -> None:
    """Let `sequence` hold `count` tokens."""
    for start in range(0, count, BATCH_TOKENS):
        size = min(BATCH_TOKENS, count - start)
        context.decode([1] * size, range(start, start + size), [sequence] * size, [False] * size)


def reading(context: Context, visible: int, size: int, share: int) -> float:
    """Milliseconds a token of a batch of `size`, from `share` sequences that hold `visible` tokens each."""
    owners = sorted(number % share for number in range(size))
    places = [visible + number - owners.index(owner) for number, owner in enumerate(owners)]
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        context.decode([1] * size, places, owners, [False] * (size - 1) + [True])
        context.logits(size - 1)
        times.append(time.perf_counter() - began)
        for sequence in range(share):
            context.forget(sequence, visible)
    return 1000 * min(times) / size


def writing(context: Context, visible: int, runs: int) -> float:
    """Milliseconds a token to write one in each of `runs` runs, after the first `visible` tokens of sequence 0."""
    times = []
    for run in range(1, runs):
        context.copy(0, run)
    for _ in range(REPEATS):
        began = time.perf_counter()
        context.decode([1] * runs, [visible] * runs, list(range(runs)), [True] * runs)
        context.logits(0)
        times.append(time.perf_counter() - began)
        for run in range(runs):
            context.forget(run, visible)
    for run in range(1, runs):
        context.forget(run)
    return 1000 * min(times) / runs


def main() -> None:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--visible", type=int, default=512)
    options = parser.parse_args()
    start_backend()
    context = Context(
        Model(Store().find(options.model).path),
        n_ctx=(options.visible + TILE) * max(SHARES),
        n_sequences=MOST_SLOTS,
        n_outputs=MOST_SLOTS,
        n_batch=BATCH_TOKENS,
        n_threads=options.threads,
        abort=AbortFlag(),
    )
    print(f"{options.model}, {options.threads} threads; milliseconds a token")
    for visible in (0, options.visible):
        fill(context, 0, visible)
        costs_of_runs = "  ".join(f"{runs}: {writing(context, visible, runs):.2f}" for runs in sorted(SIZES))
        print(f"writing in so many runs after {visible} cells  {costs_of_runs}")
    for sequence in range(1, max(SHARES)):
        fill(context, sequence, options.visible)
    costs = {
        (size, share): reading(context, options.visible, size, share)
        for size in (TILE - 1, TILE)
        for share in SHARES
    }
    for size in (TILE - 1, TILE):
        shown = "  ".join(f"{share}: {costs[size, share]:.2f}" for share in SHARES)
        print(f"reading {size} tokens of so many sequences, {options.visible} cells each  {shown}")
    most = max(SHARES)
    in_tile = (costs[TILE, most] - costs[TILE, 1]) / ((most - 1) * options.visible)
    # What is left of a token without its attention is the same below a tile and in one.
    below = (costs[TILE - 1, 1] - costs[TILE, 1]) / options.visible + in_tile
    print(f"a cell in a tile costs {in_tile / below:.2f} of one that is attended to in a smaller batch")


if __name__ == "__main__":
    main()
