"""Check-first sampling: draw a token, ask the grammar about that one, and look at the vocabulary only on refusal.

Asking about one token costs a thirtieth to a thousandth of masking a vocabulary. The result is the same:

* Greedy: the most likely token that the grammar allows.
* With temperature: a refused token is struck out and the draw repeated among the rest. Whatever is drawn in the end has
  exactly the distribution of the model restricted to what the grammar allows, because striking out tokens never changes
  the ratio between two that remain.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from judge_local.errors import EngineError

LOOKS: Final = (64, 2048)
"""After a refusal, this many of the likeliest tokens are asked about before the whole vocabulary."""

REDRAWS: Final = 8
"""Draws with temperature before the whole vocabulary is masked."""

Floats = np.ndarray[Any, np.dtype[np.float32]]


class Gate(Protocol):
    """What sampling needs of a gate."""

    def allows(self, token: int) -> bool:
        """Whether `token` may come next."""
        ...

    def not_refused(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `tokens` are worth asking about: bool, shape [n]. None that is allowed is left out."""
        ...


class Sampler:
    """The choices of one run: its temperature and its own stream of random numbers.

    Args:
        temperature: 0 is greedy; above 0 divides the logits.
        seed: the same seed and logits give the same tokens.
    """

    def __init__(self, *, temperature: float, seed: int) -> None:
        self._temperature = temperature
        # A seed may be any int; the generator wants it non-negative.
        self._random = np.random.Generator(np.random.PCG64(seed % 2**64))

    def choose(self, logits: Floats, gate: Gate) -> int:
        """A token that `gate` allows. `logits` (shape [n_vocab]) may be overwritten; -inf marks what is never chosen.

        Raises:
            EngineError: nothing is allowed.
        """
        return self._draw(logits, gate) if self._temperature > 0 else self._likeliest(logits, gate)

    def pick(self, logits: np.ndarray[Any, Any]) -> int:
        """The place of one of `logits` (shape [n], one of them finite), drawn like a token but with nothing refused."""
        if self._temperature > 0:
            drawn = self._weighted(np.exp((logits - logits.max()) / self._temperature))
            assert drawn is not None  # The greatest has weight 1.
            return drawn
        return int(np.argmax(logits))

    def _likeliest(self, logits: Floats, gate: Gate) -> int:
        best = int(np.argmax(logits))
        if np.isfinite(logits[best]) and gate.allows(best):
            return best
        for look in (*LOOKS, len(logits)):
            near = min(look, len(logits))
            tokens = np.argpartition(logits, len(logits) - near)[len(logits) - near :]
            # Sorted by id first and stably by logit then, so that ties go to the lowest id, as in `argmax`.
            tokens = np.sort(tokens[gate.not_refused(tokens) & np.isfinite(logits[tokens])])
            for token in tokens[np.argsort(-logits[tokens], kind="stable")]:
                if gate.allows(int(token)):
                    return int(token)
        raise _dead_end(len(logits))

    def _draw(self, logits: Floats, gate: Gate) -> int:
        scaled = logits.astype(np.float64)
        scaled -= scaled.max()
        weights = np.exp(scaled / self._temperature)
        draws = 0
        while (token := self._weighted(weights)) is not None:
            if gate.allows(token):
                return token
            weights[token] = 0.0
            draws += 1
            if draws == REDRAWS:
                weights[~gate.not_refused(np.arange(len(weights)))] = 0.0
        # Everything allowed has underflowed to no weight at all: take the likeliest of it.
        return self._likeliest(logits, gate)

    def _weighted(self, weights: np.ndarray[Any, Any]) -> int | None:
        sums = np.cumsum(weights)
        if not sums[-1] > 0:
            return None
        # side="right" never lands on a token without weight.
        place = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        return min(place, int(np.flatnonzero(weights)[-1])) if place >= len(weights) else place


def _dead_end(size: int) -> EngineError:
    return EngineError(
        "sampling", f"the grammar allows none of the {size} tokens", "Report it with the schema: it is a bug."
    )
