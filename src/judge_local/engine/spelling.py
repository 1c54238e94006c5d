"""Forced spans: text that the grammar leaves no choice about, spelled in tokens without asking the model.

Spelled carelessly, a forced text ends in tokens that the model would never have chosen: after a forced ``,"`` it cannot
write the one token ``,"reasoning`` any more, and a model that reads such a split goes on worse. So the text is spelled as
the vocabulary spells it, and the end of it that could be part of a longer token is left to the model, which then writes
that longer token where it wants to. (The rule of llguidance's `docs/fast_forward.md`: at most four tokens are given back.)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Final, Protocol

GIVEN_BACK: Final = 4
"""At most this many tokens at the end of a forced text are left to the model."""


class Pieces(Protocol):
    """What spelling needs of a model."""

    @property
    def n_vocab(self) -> int:
        """Size of the vocabulary."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for a control token."""
        ...


class Speller:
    """Spells forced texts.

    Args:
        vocabulary: the model's.
        tokenize: tokens of untrusted text: forced text may hold a claim.
    """

    def __init__(self, vocabulary: Pieces, tokenize: Callable[[str], Sequence[int]]) -> None:
        self._vocabulary, self._tokenize = vocabulary, tokenize
        # All pieces in order: the longer tokens that begin with a text stand right behind it.
        self._sorted = sorted({vocabulary.piece(token) for token in range(vocabulary.n_vocab)})

    def spell(self, forced: bytes, *, last: bool) -> list[int]:
        """Tokens of `forced` (valid UTF-8), without those at its end that are better left to the model.

        Args:
            forced: what must follow.
            last: whether the text ends with it, so that nothing can be merged with its end.
        """
        if not forced:
            return []
        tokens = list(self._tokenize(forced.decode()))
        if last:
            return tokens
        # `starts[i]`: where token i begins.
        starts = [0]
        for token in tokens:
            starts.append(starts[-1] + len(self._vocabulary.piece(token)))
        first = starts[max(0, len(tokens) - GIVEN_BACK)]
        open_ = next(
            (at for at in range(first, len(forced)) if self._begins_a_token(forced[at:])), len(forced)
        )
        keep = max(index for index, start in enumerate(starts) if start <= open_)
        return tokens[:keep]

    def _begins_a_token(self, text: bytes) -> bool:
        """Whether some token is longer than `text` and begins with it."""
        place = bisect.bisect_right(self._sorted, text)
        return place < len(self._sorted) and self._sorted[place].startswith(text)
