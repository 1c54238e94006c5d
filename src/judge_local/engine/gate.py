"""The gate: which token may come next, by the grammar and by UTF-8.

llama.cpp's grammar reads bytes as code points without checking them: it lets an overlong form such as E0 82 A2 through a
negated or wide class (`llama-grammar.cpp`, `decode_utf8`). Such an answer would be no text at all. So a token must pass
here too: with it, the bytes so far must still be the beginning of valid UTF-8 (RFC 3629: no overlong form, no surrogate,
nothing above U+10FFFF).
"""

from __future__ import annotations

import codecs
from typing import Any, Final, Protocol

import numpy as np

_decoder: Final = codecs.getincrementaldecoder("utf-8")


class Pieces(Protocol):
    """What the gate needs of a vocabulary."""

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for."""
        ...


class TokenGrammar(Protocol):
    """What the gate needs of a grammar."""

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        ...

    def allowed(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `tokens` may come next: bool, shape [n]."""
        ...

    def accept(self, token: int) -> None:
        """Go past `token`."""

    def close(self) -> None:
        """Free what it holds."""


class Gate:
    """What one run may write next. Ends of generation pass where the grammar lets them.

    Args:
        grammar: at its start; the gate owns it.
        vocabulary: the model's.
    """

    def __init__(self, grammar: TokenGrammar, vocabulary: Pieces) -> None:
        self._grammar, self._vocabulary = grammar, vocabulary
        self._unfinished = b""
        """Bytes of a code point that is not complete yet."""

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        return self._is_text(token) and self._grammar.allows(token)

    def allowed(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `tokens` may come next: bool, shape [n]."""
        open_ = self._grammar.allowed(tokens)
        for place in np.flatnonzero(open_):
            open_[place] = self._is_text(int(tokens[place]))
        return open_

    def accept(self, token: int) -> bytes:
        """Go past `token`, which must have been allowed. Returns its bytes."""
        self._grammar.accept(token)
        piece = self._vocabulary.piece(token)
        self._unfinished = _rest(self._unfinished + piece) or b""
        return piece

    def close(self) -> None:
        """Free the grammar."""
        self._grammar.close()

    def _is_text(self, token: int) -> bool:
        piece = self._vocabulary.piece(token)
        if not self._unfinished and piece.isascii():
            return True
        return _rest(self._unfinished + piece) is not None


def _rest(data: bytes) -> bytes | None:
    r"""The bytes of an unfinished code point at the end of `data`; None when no more bytes make it valid UTF-8.

    >>> _rest(b"\xc3"), _rest(b"a"), _rest(b"\xe0\x82")
    (b'\xc3', b'', None)
    """
    decoder = _decoder()
    try:
        decoder.decode(data)
    except UnicodeDecodeError:
        return None
    rest = decoder.getstate()[0]
    # Python waits for a surrogate's last byte before it refuses it (ED A0..BF).
    return None if len(rest) == 2 and rest[0] == 0xED and rest[1] >= 0xA0 else rest
