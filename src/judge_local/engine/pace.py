"""Pace: how long this machine takes for a batch, and what that says about how many runs to decode at once.

More runs at once are not always better, and fewer are not either: on a processor, the kernels of some quantisations need
several tokens at a time before they pay, those of others never do, and each run takes cells. So it is measured, in about
a second, the first time there is enough to do. It is not kept for other processes: a measurement from a busy moment would
stay wrong for good.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from judge_local.engine.binding import AbortFlag, Model
from judge_local.engine.context import Context, Decoded
from judge_local.engine.protocol import BATCH_TOKENS, Settings

TILE: Final = 64
"""From this many tokens a batch on, llama.cpp's flash attention on a processor computes in tiles: each token over the cells
of every sequence in its tile, where in a smaller batch it looks at its own alone."""

TILE_PRICE: Final = 0.2
"""What a cell costs in a tile, in prices of one that is attended to in a smaller batch, by `scripts/bench_batches.py`: 0.18
with SmolLM2-135M, 0.22 with Qwen2.5-0.5B."""

LEAST_PIECE: Final = 32
"""Fewer tokens of a prompt are not worth a place beside live runs, unless they are its last."""

SLOTS_UNMEASURED: Final = 16
"""Runs at once where nothing was measured."""

RECURRENT_SLOTS: Final = 6
"""Runs at once of a recurrent model, which keeps a whole state for each."""

WORTH_MEASURING: Final = 24
"""More requests than this must wait before a second is spent on measuring."""

MOST_SLOTS: Final = 32

SIZES: Final = (4, 8, 16, 1, 12, 24, 32, 2)
"""Numbers of runs that are tried, the most telling first."""

PROBE_SECONDS: Final = 1.0
"""No further size is tried after this time; a large model is measured at few."""

WORTH: Final = 1.05
"""Fewer slots are taken when they cost at most this much more a token: a run that is alone ends sooner."""


def piece_beside(busy: int, left: int) -> int:
    """How many of the `left` tokens of a prompt to read beside `busy` tokens of live runs: they fill up whole tiles.

    >>> piece_beside(16, 500), piece_beside(40, 500), piece_beside(16, 60), piece_beside(6, 9)
    (48, 88, 60, 9)
    """
    piece = -(busy + LEAST_PIECE) % TILE + LEAST_PIECE
    # A rest that would make a small batch of its own comes along.
    return left if left < piece + LEAST_PIECE else piece


def most_in_batch(visible: float, in_use: int) -> int:
    """How many tokens to put into one batch on a processor: all there is room for, or fewer than make tiles.

    Args:
        visible: cells that a token attends to, on average.
        in_use: cells that hold anything, of all sequences.

    >>> most_in_batch(500, 600), most_in_batch(500, 3000)
    (512, 63)
    """
    return BATCH_TOKENS if TILE_PRICE * in_use <= visible else TILE - 1


def best_slots(seconds: Mapping[int, float]) -> int:
    """The least number of runs at once that is about as fast as any.

    Args:
        seconds: what a batch of one token for each of so many runs took, by their number.

    >>> best_slots({4: 0.040, 8: 0.056, 16: 0.080, 32: 0.158})
    16
    """
    if len(seconds) < 2:
        return SLOTS_UNMEASURED
    least = min(taken / runs for runs, taken in seconds.items())
    return min(runs for runs, taken in seconds.items() if taken / runs <= WORTH * least)


class Pace:
    """What batches take on this machine, once it has been measured.

    Args:
        model: the model.
        settings: threads and layers.
        abort: stops a measurement.
    """

    def __init__(self, model: Model, settings: Settings, abort: AbortFlag) -> None:
        self._model, self._settings, self._abort = model, settings, abort
        self.seconds: dict[int, float] = {}
        """Seconds of a batch of one token for each of so many runs, by their number; empty until it is known."""

    def measure(self) -> dict[int, float]:
        """`seconds`, measured now if they are not known; empty when that was interrupted.

        Raises:
            EngineError: no memory for a small context, or llama.cpp failed.
        """
        self.seconds = self.seconds or _measured(self._model, self._settings, self._abort)
        return self.seconds


def _measured(model: Model, settings: Settings, abort: AbortFlag) -> dict[int, float]:
    context = Context(
        model,
        n_ctx=4 * sum(SIZES),
        n_sequences=MOST_SLOTS,
        n_outputs=MOST_SLOTS,
        n_batch=BATCH_TOKENS,
        n_threads=settings.n_threads,
        abort=abort,
    )
    seconds: dict[int, float] = {}
    touched = False
    token = next(iter(model.tokenize(b"a", special=False)), 0)
    started = time.monotonic()
    try:
        # Weights that were never touched come from the disk: the first batch says nothing.
        for runs in (1, *SIZES, *SIZES):
            began = time.monotonic()
            if seconds and began - started > PROBE_SECONDS:
                break
            code = context.decode([token] * runs, [0] * runs, list(range(runs)), [True] * runs)
            if code is not Decoded.DONE:
                return {}
            context.logits(0)
            taken = time.monotonic() - began
            if touched:
                seconds[runs] = min(taken, seconds.get(runs, taken))
            touched = True
            for sequence in range(runs):
                context.forget(sequence)
    finally:
        context.close()
    return seconds
