"""Forced spans: text that the grammar leaves no choice about, spelled in tokens without asking the model.

Spelled carelessly, a forced text ends in tokens that the model would never have chosen: after a forced ``,"`` it cannot
write the one token ``,"reasoning`` any more, and a model that reads such a split goes on worse. So the text is spelled as
the vocabulary spells it, and the end of it that could be part of a longer token is left to the model, which then writes
that longer token where it wants to. (The rule of llguidance's `docs/fast_forward.md`: at most four tokens are given back.)
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

GIVEN_BACK: Final = 4
"""At most this many tokens at the end of a forced text are left to the model."""

_CONTINUATION: Final = bytes(range(0x80, 0xC0))
"""Bytes that stand inside a character of UTF-8."""


class Pieces(Protocol):
    """What spelling needs of a model."""

    @property
    def n_vocab(self) -> int:
        """Size of the vocabulary."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for a control token."""
        ...


class Lexicon:
    """All texts that tokens of a vocabulary stand for, in order: those that begin with a text stand behind it."""

    def __init__(self, vocabulary: Pieces) -> None:
        self._tokens: dict[bytes, list[int]] = {}
        for token in range(vocabulary.n_vocab):
            if piece := vocabulary.piece(token):
                self._tokens.setdefault(piece, []).append(token)
        self._sorted = sorted(self._tokens)

    def tokens(self, text: bytes) -> Sequence[int]:
        """The tokens that stand for just `text`."""
        return self._tokens.get(text, ())

    def longer(self, text: bytes) -> Iterator[bytes]:
        """Texts of tokens that begin with `text` and do not end with it, in order."""
        place = bisect.bisect_right(self._sorted, text)
        while place < len(self._sorted) and self._sorted[place].startswith(text):
            yield self._sorted[place]
            place += 1


class Speller:
    """Spells forced texts.

    Args:
        vocabulary: the model's.
        tokenize: tokens of untrusted text: forced text may hold a claim.
    """

    def __init__(self, vocabulary: Pieces, tokenize: Callable[[str], Sequence[int]]) -> None:
        self._vocabulary, self._tokenize = vocabulary, tokenize
        self.lexicon = Lexicon(vocabulary)

    def piece(self, token: int) -> bytes:
        """The bytes `token` stands for."""
        return self._vocabulary.piece(token)

    def spell(self, forced: bytes, *, last: bool) -> list[int]:
        """Tokens of `forced`, without those at its end that are better left to the model.

        A text that begins inside a character is left to the model whole, unless it is the last: tokens are spelled from
        text, and there is none until the character is complete.

        Args:
            forced: what must follow; UTF-8, but for the first bytes of the first character.
            last: whether the text ends with it, so that nothing can be merged with its end.
        """
        inside = len(forced) - len(forced.lstrip(_CONTINUATION))
        if not forced or (inside and not last):
            return []
        # The rest of a character that has no token of its own is spelled byte by byte, as the model began it.
        rest = [self.lexicon.tokens(forced[at : at + 1])[:1] for at in range(inside)]
        tokens = [*(token for one in rest for token in one), *self._tokenize(forced[inside:].decode())]
        if last:
            return tokens
        # `starts[i]`: where token i begins.
        starts = [0]
        for token in tokens:
            starts.append(starts[-1] + len(self._vocabulary.piece(token)))
        first = starts[max(0, len(tokens) - GIVEN_BACK)]
        open_ = next(
            (at for at in range(first, len(forced)) if any(self.lexicon.longer(forced[at:]))), len(forced)
        )
        keep = max(index for index, start in enumerate(starts) if start <= open_)
        return tokens[:keep]
