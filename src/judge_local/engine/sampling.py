"""Check-first sampling: draw a token, ask the grammar about that one, and look at the vocabulary only on refusal.

Asking about one token costs a thirtieth to a thousandth of masking a vocabulary. The result is the same:

* Greedy: the most likely token that the grammar allows.
* With temperature: a refused token is struck out and the draw repeated among the rest. Whatever is drawn in the end has
  exactly the distribution of the model restricted to what the grammar allows, because striking out tokens never changes
  the ratio between two that remain.

Filters (top-k, top-p, min-p) look at the model's own distribution, before the grammar and before the temperature, in the
order of llama.cpp's own default chain (`common_params_sampling.samplers`: top_k, top_p, min_p, then temperature). So they
mean what they mean without a grammar, and no vocabulary has to be masked to apply them: a filter that looked at what the
grammar leaves would need its whole weight first. Where a filter leaves nothing that the grammar allows, the likeliest
allowed token is taken, and counted: a filter never ends an answer. At temperature 0 there is nothing for them to do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which of the model's tokens are drawn from at all. Each on its own is off by default."""

    top_k: int = 0
    """The likeliest so many; 0 is all."""
    top_p: float = 1.0
    """Of these, the likeliest that together have this share; 1 is all."""
    min_p: float = 0.0
    """Of these, those at least this share as likely as the likeliest; 0 is all."""

    @property
    def off(self) -> bool:
        """Whether every token passes."""
        return self.top_k <= 0 and self.top_p >= 1 and self.min_p <= 0

    def kept(self, logits: Floats) -> np.ndarray[Any, Any]:
        """The tokens that pass (int, shape [n], likeliest first, ties by the lower id); one at least, if any can be chosen.

        Args:
            logits: shape [n_vocab]; -inf never passes.
        """
        tokens = np.flatnonzero(np.isfinite(logits))
        if not len(tokens):
            return tokens
        if 0 < self.top_k < len(tokens):
            least = np.partition(logits[tokens], len(tokens) - self.top_k)[len(tokens) - self.top_k]
            tokens = tokens[logits[tokens] >= least]
        elif self.min_p > 0 and self.top_p >= 1:
            # Nothing below this can pass: far fewer are put in order.
            values = logits[tokens].astype(np.float64)
            tokens = tokens[values >= self._least(values)]
        tokens = tokens[np.argsort(-logits[tokens], kind="stable")]
        if self.top_k > 0:
            tokens = tokens[: self.top_k]
        values = logits[tokens].astype(np.float64)
        if self.top_p < 1:
            shares = np.cumsum(np.exp(values - values[0]))
            # The one with which the share is reached is kept as well.
            values = values[: int(np.searchsorted(shares, self.top_p * shares[-1])) + 1]
        if self.min_p > 0:
            values = values[values >= self._least(values)]
        return tokens[: len(values)]

    def _least(self, logits: np.ndarray[Any, Any]) -> float:
        return float(logits.max()) + math.log(min(self.min_p, 1.0))


class Sampler:
    """The choices of one run: its temperature, its filters and its own stream of random numbers.

    Args:
        temperature: 0 is greedy; above 0 divides the logits.
        seed: the same seed and logits give the same tokens.
        filters: what is drawn from.
    """

    def __init__(self, *, temperature: float, seed: int, filters: Filters | None = None) -> None:
        self._temperature = temperature
        self._filters = None if filters is None or filters.off else filters
        self.fell_back = 0
        """Draws at which the filters left nothing that was allowed."""
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
        if self._filters is not None:
            kept = np.zeros(len(weights))
            passing = self._filters.kept(logits)
            kept[passing] = weights[passing]
            weights = kept
        draws = 0
        while (token := self._weighted(weights)) is not None:
            if gate.allows(token):
                return token
            weights[token] = 0.0
            draws += 1
            if draws == REDRAWS:
                weights[~gate.not_refused(np.arange(len(weights)))] = 0.0
        # The filters left nothing allowed, or all of it has underflowed to no weight at all: take the likeliest.
        self.fell_back += self._filters is not None
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
