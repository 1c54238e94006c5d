"""The gate: which token may come next, and which must.

Two recognisers have to agree on every token. llama.cpp's own grammar sampler is fast at asking about many tokens at once;
our matcher follows the same GBNF text, knows what is forced and when the text is finished, and holds the bytes to UTF-8:
llama.cpp reads bytes as code points without checking them and lets an overlong form such as E0 82 A2 through a wide
class (`llama-grammar.cpp`, `decode_utf8`), which would be no text at all.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from judge_local.errors import EngineError
from judge_local.grammar.recogniser import Matcher


class Vocabulary(Protocol):
    """What the gate needs of a model."""

    @property
    def eog(self) -> frozenset[int]:
        """End-of-generation tokens."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for."""
        ...


class TokenGrammar(Protocol):
    """What the gate needs of llama.cpp's grammar."""

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
    """What one run may write next. An end of generation passes where the text may end.

    Args:
        grammar: at its start; the gate owns it.
        matcher: of the same GBNF, at its start.
        vocabulary: the model's.
    """

    def __init__(self, grammar: TokenGrammar, matcher: Matcher, vocabulary: Vocabulary) -> None:
        self._grammar, self._matcher, self._vocabulary = grammar, matcher, vocabulary

    @property
    def finished(self) -> bool:
        """Whether the text is whole and nothing can follow it."""
        return self._matcher.finished

    @property
    def matcher(self) -> Matcher:
        """Where the text is in the grammar."""
        return self._matcher

    def forced(self) -> bytes:
        """The bytes that must come next, whole characters; empty where there is a choice."""
        return self._matcher.forced()

    def forced_after(self, text: bytes) -> bytes:
        """The bytes that must come after `text`, which must be allowed."""
        after = self._matcher.advance(text)
        return b"" if after is None else after.forced()

    def finishes(self, forced: bytes) -> bool:
        """Whether nothing can follow `forced`, which must be what is forced."""
        after = self._matcher.advance(forced)
        return after is not None and after.finished

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        return self._matches(token) and self._grammar.allows(token)

    def not_refused(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `tokens` llama.cpp's grammar lets through: bool, shape [n]. `allows` may still refuse one of them."""
        return self._grammar.allowed(tokens)

    def accept(self, token: int) -> bytes:
        """Go past `token`, which must have been allowed. Returns its bytes.

        Raises:
            EngineError: it is not allowed. llama.cpp would have ended the process.
        """
        piece = self._vocabulary.piece(token)
        after = self._matcher.advance(piece)
        if after is None or not piece:
            raise EngineError("gate", f"token {token} ({piece!r}) is not allowed: {self._matcher.expected()}")
        self._grammar.accept(token)
        self._matcher = after
        return piece

    def close(self) -> None:
        """Free the grammar."""
        self._grammar.close()

    def _matches(self, token: int) -> bool:
        if token in self._vocabulary.eog:
            return self._matcher.complete
        piece = self._vocabulary.piece(token)
        return bool(piece) and self._matcher.advance(piece) is not None
