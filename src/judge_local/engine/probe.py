"""How fast this machine reads and writes with a model, measured on the shapes that judging gives llama.cpp.

    python -m judge_local.engine.probe        asked as `children` says; see `children.probe` for the question

* Reading: one sequence gets N tokens in one batch, and no logits are wanted.
* Writing: N runs get a token each in one batch, and the logits of each are wanted. The context holds what it would hold:
  the beginning that all prompts share, a prompt of its own for each group of runs, and half an answer for each run.
* What fills the context is read once and copied from there, so that a probe takes seconds.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.childhood import Tell, answer
from judge_local.engine.context import Context, Decoded
from judge_local.engine.lock import machine_lock
from judge_local.engine.planning import CELLS_AHEAD
from judge_local.engine.protocol import BATCH_TOKENS
from judge_local.engine.runs import common_prefix
from judge_local.errors import EngineError

SIZES: Final = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512)
"""Tokens in one batch."""
MOST_RUNS: Final = 64

TYPICAL: Final = {"shared": 384, "own": 384, "tail": 64}
"""Tokens: what all prompts share, what each has of its own, and half an answer; where no rows are given."""

_REPEATS: Final = 8
_SECONDS: Final = 0.4
"""A size is measured at least twice, and then until this much time or so many repeats are spent."""
_FIRST: Final = 3
"""Sequence 0 is the shared beginning; 1 and 2 are what is copied; groups and runs come after them."""


def unique_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that are left when every common beginning is counted once.

    >>> unique_tokens([[1, 2, 3], [1, 2, 4, 5], [1, 2, 3]])
    5
    """
    ordered = sorted(list(prompt) for prompt in prompts)
    # In order, what a prompt shares with any before it, it shares with the one just before it.
    shared = sum(common_prefix([one, other]) for one, other in itertools.pairwise(ordered))
    return sum(map(len, ordered)) - shared


def layout_of(prompts: Sequence[Sequence[int]], runs: int, tail: int) -> dict[str, int]:
    """What rows are like: tokens that all share, tokens of a row's own, half an answer. `runs` prompts are one row."""
    rows = [common_prefix([list(p) for p in prompts[at : at + runs]]) for at in range(0, len(prompts), runs)]
    shared = common_prefix([list(prompt) for prompt in prompts]) if len(rows) > 1 else rows[0] // 2
    return {
        "shared": max(1, shared),
        "own": max(1, round(statistics.mean(rows)) - shared),
        "tail": max(1, tail),
    }


class _Measurement:
    """One context, filled step by step."""

    def __init__(
        self, model: Model, threads: int, layout: dict[str, int], runs: int, most_cells: int
    ) -> None:
        self._layout, self._runs_each = layout, runs
        self._n_vocab = model.n_vocab
        per_run = layout["tail"] + _REPEATS + 1
        self.sizes = [
            size
            for size in SIZES
            if size <= MOST_RUNS and self._cells(size, per_run) + BATCH_TOKENS <= most_cells
        ] or [1]
        self._groups = -(-self.sizes[-1] // runs)
        sequences = _FIRST + self._groups + self.sizes[-1]
        self._context = Context(
            model,
            n_ctx=self._cells(self.sizes[-1], per_run) + BATCH_TOKENS,
            n_sequences=sequences,
            n_outputs=sequences,
            n_batch=BATCH_TOKENS,
            n_threads=threads,
            abort=AbortFlag(),
        )
        self._live = 0

    def _cells(self, size: int, per_run: int) -> int:
        groups = -(-size // self._runs_each)
        return self._layout["shared"] + (groups + 1) * self._layout["own"] + (size + 1) * per_run + 256

    def fill(self) -> None:
        """Read the beginning, a prompt and an answer once."""
        shared, own, tail = (self._layout[key] for key in ("shared", "own", "tail"))
        self._read(0, 0, shared)
        self._read(1, shared, own)
        self._read(2, shared + own, tail)
        self._own, self._tail = self._context.state(1), self._context.state(2)
        self._context.forget(1)
        self._context.forget(2)

    def reading(self, size: int) -> float:
        """Seconds to read `size` tokens after the shared beginning."""
        start = self._layout["shared"]
        self._context.copy(0, 1)

        def once(_: int) -> None:
            self._batch([1] * size, range(start, start + size), [False] * size)
            self._context.forget(1, start)

        seconds = _median(once)
        self._context.forget(1)
        return seconds

    def writing(self, size: int) -> float:
        """Seconds to write one token in each of `size` runs."""
        shared, own, tail = (self._layout[key] for key in ("shared", "own", "tail"))
        first_run = _FIRST + self._groups
        for run in range(self._live, size):
            group = _FIRST + run // self._runs_each
            if run % self._runs_each == 0:
                self._put(group, self._own, 0)
            self._put(first_run + run, self._tail, group)
        self._live = size
        runs = range(first_run, first_run + size)
        start = shared + own + tail
        seconds = _median(lambda k: self._batch(runs, [start + k] * size, [True] * size))
        for run in runs:
            self._context.forget(run, start)
        return seconds

    def close(self) -> None:
        self._context.close()

    def _put(self, sequence: int, state: bytes, after: int) -> None:
        if not self._context.restore(sequence, state):
            raise EngineError("probe", "llama.cpp has no room for what it was to copy")
        self._context.copy(after, sequence)

    def _read(self, sequence: int, start: int, count: int) -> None:
        for at in range(start, start + count, BATCH_TOKENS):
            size = min(BATCH_TOKENS, start + count - at)
            self._batch([sequence] * size, range(at, at + size), [False] * size)

    def _batch(self, owners: Sequence[int], positions: Sequence[int], wanted: Sequence[bool]) -> None:
        # Any text will do: what a token costs does not depend on which it is, but for experts, which vary by token.
        tokens = [
            (owner * 31 + position) % self._n_vocab for owner, position in zip(owners, positions, strict=True)
        ]
        code = self._context.decode(tokens, positions, owners, wanted)
        if code is not Decoded.DONE:
            raise EngineError("probe", f"llama.cpp returned {code.name} for a batch of {len(tokens)} tokens")


def _median(once: Callable[[int], None]) -> float:
    once(0)
    seconds: list[float] = []
    while len(seconds) < 2 or (len(seconds) < _REPEATS and sum(seconds) < _SECONDS):
        started = time.perf_counter()
        once(len(seconds) + 1)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def probe(question: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Measure; see `children.probe`."""
    started = time.monotonic()
    start_backend()
    model = Model(Path(question["path"]), n_gpu_layers=question["n_gpu_layers"])
    loaded = time.monotonic() - started
    runs, layout, counts = question["runs"], dict(TYPICAL), {}
    if question["prompts"]:
        assembler = PromptAssembler(model, question["chat_template"] or model.chat_template, where="model")
        prompts = [assembler.tokens(system, user) for system, user in question["prompts"]]
        layout = layout_of(prompts, runs, question["tail"])
        counts = {"prompt_tokens": sum(map(len, prompts)), "unique_tokens": unique_tokens(prompts)}
    most = min(CELLS_AHEAD, max(4096, question["memory_bytes"] // 2 // max(1, model.shape.cell_bytes)))
    measurement = _Measurement(model, question["n_threads"], layout, runs, most)
    todo = len(SIZES) + len(measurement.sizes)
    done = 0

    def measured(size: int, measure: Callable[[int], float]) -> dict[str, float]:
        nonlocal done
        seconds = measure(size)
        done += 1
        tell({"done": done, "total": todo})
        return {"size": size, "seconds": seconds}

    with machine_lock(
        Path(question["lock_path"]),
        wait=question["wait"],
        say=lambda text: tell({"say": text}),
        given_up=lambda: False,
    ):
        measurement.fill()
        reading = [measured(size, measurement.reading) for size in SIZES]
        writing = [measured(size, measurement.writing) for size in measurement.sizes]
    measurement.close()
    return {"load_seconds": loaded, "layout": layout, **counts, "reading": reading, "writing": writing}


if __name__ == "__main__":
    answer(probe)
