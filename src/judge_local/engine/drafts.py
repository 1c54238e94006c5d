"""Drafts by prompt lookup: a judge quotes, so what follows in the prompt is a good guess at what it writes next.

A guess is evaluated together with the token before it, and kept exactly as far as the run, drawing from its own logits,
writes the same: what is written is what would have been written, token for token, only in fewer batches. (Prompt lookup
decoding: https://github.com/apoorvumang/prompt-lookup-decoding.)

A guess that is wrong has cost its place in a batch. On a processor, that is little where few runs decode, and as much as
a token of another run where many do; so guesses fill a batch up to the size at which a token stops being cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

KEY: Final = 3
"""So many tokens must be the same as in the prompt before its next ones are a guess."""

MOST: Final = 8
"""The longest guess, in tokens."""

HOPED: Final = 0.4
"""The share of guessed tokens that are right, as long as nothing is known. A place in a batch pays while it costs less of
a token's price than this."""


class Lookup:
    """Where each run of `KEY` tokens stands in a prompt.

    Args:
        prompt: token ids.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._prompt = list(prompt)
        self._after: dict[tuple[int, ...], list[int]] = {}
        for at in range(KEY, len(self._prompt)):
            self._after.setdefault(tuple(self._prompt[at - KEY : at]), []).append(at)

    def guess(self, written: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `written`; none when its end is not in the prompt.

        Of several places the one counts whose tokens before agree furthest with `written`, and of these the last.

        >>> Lookup([5, 1, 2, 3, 9, 1, 2, 4]).guess([9, 1, 2], 8)
        [4]
        """
        if most < 1 or len(written) < KEY:
            return []
        places = self._after.get(tuple(written[-KEY:]))
        if not places:
            return []
        best = max(places, key=lambda at: (self._agreement(at, written), at))
        return self._prompt[best : best + min(most, MOST)]

    def _agreement(self, at: int, written: Sequence[int]) -> int:
        same = KEY
        while same < min(at, len(written), 16) and self._prompt[at - same - 1] == written[-same - 1]:
            same += 1
        return same


def room_for_guesses(busy: int, seconds: Mapping[int, float], hits: float) -> int:
    """How many guessed tokens to add to a batch of `busy` tokens; none where nothing was measured.

    Args:
        busy: tokens of live runs.
        seconds: what batches were measured to take, by their number of tokens (`Pace`); may be empty.
        hits: the share of guessed tokens that are right.

    >>> room_for_guesses(4, {4: 0.050, 8: 0.060, 16: 0.080, 32: 0.240}, 0.6)
    12
    >>> room_for_guesses(4, {4: 0.020, 8: 0.040, 16: 0.080}, 0.6)
    0
    """
    sizes = sorted(seconds)
    below = max((size for size in sizes if size <= busy), default=None)
    if below is None:
        return 0
    room, last = 0, below
    for size in sizes:
        if size > busy:
            # What the places up to this size cost, each, against a token of a live run as it is now.
            each = (seconds[size] - seconds[last]) / (size - last)
            together = (seconds[size] - seconds[below]) / (size - below)
            if max(each, together) <= hits * seconds[below] / below:
                room = size - busy
            last = size
    return room
