"""Advance: what a batch holds of one run, and how far the run goes on from the logits that come of it.

With guesses, a run may go on by several tokens: as long as what it draws is what was guessed, the logits after the next
guessed token are its own, too.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from judge_local.engine.batch import Batch
from judge_local.engine.cells import MOST_OUTPUTS
from judge_local.engine.context import Context
from judge_local.engine.drafts import HOPED, room_for_guesses
from judge_local.engine.pace import Pace
from judge_local.engine.runs import Group, Outcome, Run, Writer, common_prefix
from judge_local.errors import JudgeLocalError

TOTALS: Final = (
    *("requests", "prompt_tokens", "shared_tokens", "read_tokens"),
    *("written_tokens", "forced_tokens", "drafted_tokens", "accepted_tokens"),
    *("steps", "decode_seconds", "draw_seconds", "other_seconds"),
)
"""What is counted over the life of a scheduler. `prompt_tokens` are those of all prompts of runs that have ended;
`read_tokens` of them were evaluated, `shared_tokens` copied from another run or kept from before. Of `written_tokens`,
the grammar left no choice about `forced_tokens`, and `accepted_tokens` of the `drafted_tokens` are among the rest."""

HIT_WEIGHT: Final = 0.1
"""What one guess counts in the running share of guessed tokens that were right."""


@dataclass(slots=True)
class Taken:
    """What a batch holds of one run."""

    run: Run
    count: int
    """Of its pending tokens."""
    rows: list[int]
    """Of the logits after these, and after each guessed token."""
    guess: list[int] = field(default_factory=list)
    """Tokens that may come after the pending ones."""


class Advance:
    """Draws for runs whose tokens have been evaluated.

    Args:
        writer: draws one token.
        pace: what a place in a batch costs.
        totals: counts `drafted_tokens` and `accepted_tokens`.
        guesses: whether to guess at all.
    """

    def __init__(
        self, writer: Writer, pace: Pace, totals: MutableMapping[str, float], *, guesses: bool
    ) -> None:
        self._writer, self._pace, self._totals, self._guesses = writer, pace, totals, guesses
        self._hits = HOPED
        """The share of guessed tokens that were right, lately."""

    def add_guesses(self, batch: Batch, taken: Sequence[Taken], group_of: Mapping[Run, Group]) -> None:
        """Fill up `batch` with guesses at what its runs will write next, as far as a place in it is cheap."""
        if not self._guesses:
            return
        room = room_for_guesses(len(batch), self._pace.seconds, self._hits)
        room = min(room, MOST_OUTPUTS - len(taken))
        for left, one in zip(range(len(taken), 0, -1), taken, strict=True):
            run = one.run
            if room <= 0 or one.count < len(run.pending) or run.scoring:
                continue
            for token in group_of[run].lookup.guess(run.tokens, -(-room // left)):
                place = run.position + one.count + len(one.guess)
                if not batch.add([token], place, run.sequence, ends_in_logits=True):
                    return  # The batch is full.
                one.guess.append(token)
                one.rows.append(len(batch) - 1)
                room -= 1

    def draw(self, context: Context, one: Taken) -> Outcome | None:
        """Draw the next token of a run of which nothing is pending, and go on as long as it is the one that was guessed.

        Returns:
            The run's outcome, when that has ended it.
        """
        run, kept, cut = one.run, 0, False

        def forget(start: int) -> bool:
            nonlocal cut
            cut = True
            return context.forget(run.sequence, start)

        try:
            outcome = self._writer.draw(run, context.logits(one.rows[0]), forget)
            while outcome is None and not cut and not run.scoring:
                right = common_prefix([run.pending, one.guess[kept:]])
                kept += right
                run.position += right
                del run.pending[:right]
                if run.pending or not right:
                    break
                outcome = self._writer.draw(run, context.logits(one.rows[kept]), forget)
        except JudgeLocalError as error:
            outcome = error
        if one.guess:
            self._totals["drafted_tokens"] += len(one.guess)
            self._totals["accepted_tokens"] += kept
            self._hits += HIT_WEIGHT * (kept / len(one.guess) - self._hits)
            if outcome is None and not cut and kept < len(one.guess):
                context.forget(run.sequence, run.position)
        return outcome
