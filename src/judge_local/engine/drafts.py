"""Drafts by lookup: a judge quotes its subject, the runs of a claim say much the same, and a small model says things twice.

So what follows in the prompt, in the other runs' answers or earlier in its own is a good guess at what a run writes next. A
guess is evaluated together with the token before it, and kept exactly as far as the run, drawing from its own logits,
writes the same: what is written is what would have been written, token for token, only in fewer batches. (Prompt lookup
decoding: https://github.com/apoorvumang/prompt-lookup-decoding.)

A guess that is wrong has cost its place in a batch. On a processor, that is little where few runs decode, and as much as
a token of another run where many do; so guesses fill a batch up to the size at which a token stops being cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

KEY: Final = 3
"""So many tokens must be the same before the next ones are a guess."""

MOST: Final = 8
"""The longest guess, in tokens."""

HOPED: Final = 0.4
"""The share of guessed tokens that are right, as long as nothing is known. A place in a batch pays while it costs less of
a token's price than this."""


class Lookup:
    """Where each run of `KEY` tokens stands in a prompt, and in the answers to it.

    Args:
        prompt: token ids.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._texts: list[Sequence[int]] = [prompt]
        self._read: list[int] = [KEY]
        """The first place of each text that is not yet in `_after`."""
        self._after: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        """The places, as (text, place), that come after so many tokens."""

    def watch(self, answer: Sequence[int]) -> None:
        """Look into `answer`, too: token ids, which may grow from now on."""
        self._texts.append(answer)
        self._read.append(KEY)

    def guess(self, written: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow `written`; none when its end stands nowhere else.

        Of several places the one counts whose tokens before agree furthest with `written`, and of these the last.

        >>> Lookup([5, 1, 2, 3, 9, 1, 2, 4]).guess([9, 1, 2], 8)
        [4]
        """
        if most < 1 or len(written) < KEY:
            return []
        self._catch_up()
        places = self._after.get(tuple(written[-KEY:]))
        if not places:
            return []
        text, at = max(places, key=lambda place: (self._agreement(place, written), place))
        return list(self._texts[text][at : at + min(most, MOST)])

    def _catch_up(self) -> None:
        for number, text in enumerate(self._texts):
            for at in range(self._read[number], len(text)):
                self._after.setdefault(tuple(text[at - KEY : at]), []).append((number, at))
            self._read[number] = max(self._read[number], len(text))

    def _agreement(self, place: tuple[int, int], written: Sequence[int]) -> int:
        number, at = place
        text, same = self._texts[number], KEY
        while same < min(at, len(written), 16) and text[at - same - 1] == written[-same - 1]:
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
