"""Cells: the context of one model, what its sequences are for, and how many of its cells are taken.

Sequence 0 keeps a prompt's beginning for the submissions to come, 1 is the reader's, the others are slots, one a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from judge_local.engine.binding import AbortFlag, Model
from judge_local.engine.context import Context
from judge_local.engine.pace import MOST_SLOTS, RECURRENT_SLOTS, most_in_batch
from judge_local.engine.protocol import BATCH_TOKENS, Settings
from judge_local.engine.runs import Group, Run
from judge_local.engine.shelf import Shelf
from judge_local.errors import EngineError

CELL_STEP: Final = 256
"""Contexts grow in steps of this many cells: llama.cpp pads to it anyway."""

MOST_CELLS_AHEAD: Final = 32_768
"""A context is made at most this large for the sake of running many at once; a single run gets what it needs."""

LEAST_SHELVED: Final = 64
"""A beginning of fewer tokens is read again as quickly as it is found."""

MOST_OUTPUTS: Final = 64
"""Logits in one batch: one for each run, the others for guesses."""

KEPT: Final = 0
READER: Final = 1
_FIRST_SLOT: Final = 2


class Cells:
    """The context, which is made when it is needed and exchanged for a larger one when it must be."""

    def __init__(self, model: Model, settings: Settings, abort: AbortFlag, shelf: Shelf) -> None:
        self._model, self._settings, self._abort, self._shelf = model, settings, abort, shelf
        self._shelved: set[str] = set()
        # A recurrent model keeps a whole state for each sequence there may be.
        most = settings.slots or (RECURRENT_SLOTS if model.recurrent else MOST_SLOTS)
        self.most_slots = most
        """More runs than this never decode at once."""
        self._most = min(MOST_CELLS_AHEAD, settings.most_cells or MOST_CELLS_AHEAD)
        """Cells for the sake of running many at once; fewer once memory did not carry as many."""
        self._least = 0
        """Cells that the next submission cannot do without."""
        self.say: Callable[[str], None] = lambda _text: None
        """Gets a line for a person when memory carries less than was wanted."""
        self.context: Context | None = None
        self.kept: list[int] = []
        """The tokens that sequence 0 holds."""

    @property
    def count(self) -> int:
        """Cells there are; 0 without a context."""
        return 0 if self.context is None else self.context.n_ctx

    def make(self, count: int) -> None:
        """A new context of `count` cells, or of what memory carries; nothing is kept.

        Raises:
            EngineError: no memory for what the next submission needs at least.
        """
        self.discard()
        while self.context is None:
            try:
                self.context = self._context(count)
            except EngineError:
                smaller = max(self._least, padded(count // 2))
                if smaller >= count:
                    raise
                self.say(
                    f"no memory for {count} tokens of context: trying {smaller}, with fewer runs at once"
                )
                count = self._most = smaller

    def _context(self, count: int) -> Context:
        return Context(
            self._model,
            n_ctx=count,
            n_sequences=_FIRST_SLOT + self.most_slots,
            n_outputs=max(MOST_OUTPUTS, _FIRST_SLOT + self.most_slots),
            n_batch=BATCH_TOKENS,
            n_threads=self._settings.n_threads,
            abort=self._abort,
        )

    def discard(self) -> None:
        """Free the context."""
        self.kept = []
        if self.context is not None:
            self.context.close()
            self.context = None

    def keep(self, tokens: list[int]) -> None:
        """Let sequence 0 hold `tokens`, which the reader's sequence begins with."""
        self.drop_kept()
        if self.context is None:
            return
        self.context.copy(READER, KEPT)
        if self.context.forget(KEPT, len(tokens)):
            self.kept = tokens
        else:
            # A recurrent state cannot be cut back to a part of what it has read.
            self.context.forget(KEPT)

    def fetch(self, beginning: list[int]) -> None:
        """Let sequence 0 hold `beginning`, if another process has left it on the shelf."""
        if self.context is None or not self._may_shelve(beginning):
            return
        state = self._shelf.get(str(beginning))
        if state is None:
            return
        self.drop_kept()
        if self.context.restore(KEPT, state):
            self.kept = beginning
            self._shelved.add(str(beginning))
        else:  # It is read afresh then, and takes the place of what was of no use.
            self.drop_kept()

    def shelve(self, beginning: list[int]) -> None:
        """Leave `beginning`, which the reader's sequence begins with, for the processes to come. Done once for each."""
        if self.context is None or not self._may_shelve(beginning) or str(beginning) in self._shelved:
            return
        self._shelved.add(str(beginning))
        self.keep(beginning)
        self._shelf.put(str(beginning), self.context.state(KEPT))

    def _may_shelve(self, beginning: list[int]) -> bool:
        # What a recurrent model has read cannot be cut back to its beginning.
        return (
            len(beginning) >= LEAST_SHELVED and not self._model.recurrent and not self._settings.deterministic
        )

    def drop_kept(self) -> None:
        """Keep nothing."""
        self.kept = []
        if self.context is not None:
            self.context.forget(KEPT)

    def batch_limit(self, live: Sequence[Run], group_of: Mapping[Run, Group], reading: Group | None) -> int:
        """How many tokens to put into the next batch of the runs that are live and the group that is read."""
        if self._settings.n_gpu_layers:
            return BATCH_TOKENS
        groups = {id(group): group for group in (*group_of.values(), reading) if group is not None}
        read = sum(group.evaluated - group.borrowed for group in groups.values())
        own = sum(run.position - len(group_of[run].shared) for run in live)
        places = [run.position for run in live] + ([] if reading is None else [reading.evaluated])
        return most_in_batch(sum(places) / len(places), len(self.kept) + read + own)

    def used(self, groups: Iterable[Group], live: Iterable[Run], group_of: dict[Run, Group]) -> int:
        """Cells in use or set aside, counted no lower than they are."""
        own = sum(len(run.prompt) - len(group_of[run].shared) + len(run.pieces) + run.reserve for run in live)
        return len(self.kept) + sum(group.fresh for group in groups) + own

    def wanted(self, group: Group, *, slots: int, more_wait: bool) -> int:
        """What a context needs to keep `slots` at work on submissions like `group`, or the first run of it at least."""
        own = max(own_cells(run, group) for run in group.runs)
        runs = min(slots, len(group.runs))
        groups = 1
        if more_wait and not self._settings.deterministic:
            runs = slots
            groups += -(-runs // len(group.runs))
        together = len(group.shared) * (groups + 1) + own * runs
        self._least = padded(len(group.shared) + own)
        return max(self._least, min(padded(together), self._most))


def own_cells(run: Run, group: Group) -> int:
    """Cells that `run` takes beyond what its group shares."""
    return len(run.prompt) - len(group.shared) + run.reserve


def free_slots(count: int) -> list[int]:
    """Sequences for runs; the last is taken first.

    >>> free_slots(3)
    [4, 3, 2]
    """
    return list(range(_FIRST_SLOT + count - 1, _FIRST_SLOT - 1, -1))


def padded(cells: int) -> int:
    """`cells` rounded up, with one step to spare.

    >>> padded(1)
    512
    """
    return (cells // CELL_STEP + 2) * CELL_STEP
