"""Probabilities of the options of an enum property, exact over all the ways that tokens can spell them.

What is computed is what sampling token by token at temperature 1 under the grammar would give, had one the patience to
draw for ever: at each place the model's distribution is restricted to the tokens that may come next, and renormalised.

* A token that only one option can begin with gives its whole weight to that option: whatever follows, it will be that one.
* A token that several options begin with (`p` of `pass` and `partial`) is evaluated, and its weight divided by what the
  model says after it, and so on. The heaviest such beginning goes first.
* Nothing looks at the whole vocabulary: the tokens that can spell a part of an option are looked up by their text.

Beginnings that weigh `LEFT` or less together are not evaluated but divided as the options they leave open already stand
to each other. So no probability is off by more than `LEFT`, but for options that share a long beginning in a model that
has no idea how to spell it: there, `MOST_LOOKS` ends it, and `Walk.left` says what was not evaluated.

Pure: logits come in, tokens to evaluate go out.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from judge_local.engine.spelling import GIVEN_BACK, Lexicon, Speller
from judge_local.grammar.recogniser import Matcher

LEFT: Final = 1e-6
"""Weight of beginnings that need not be evaluated, all together."""

MOST_LOOKS: Final = 64
"""Beginnings that are evaluated at most."""

Floats = np.ndarray[Any, np.dtype[np.float32]]
Rests = Mapping[str, bytes]
"""By option: what is still to be written until the option is complete, its closing quote included."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A beginning that several options share, as certain tokens spell it."""

    tokens: tuple[int, ...]
    matcher: Matcher
    rests: Rests


class Walk:
    """The walk over the ways in which the options of a slot can be spelled.

    Take `next`, evaluate these tokens at the place where the walk begins, and `see` the logits after the last of them,
    until `next` is None.

    Args:
        lexicon: of the model.
        matcher: at the place where the walk begins.
        rests: of the options that are open there; two of them at least.
    """

    def __init__(self, lexicon: Lexicon, matcher: Matcher, rests: Rests) -> None:
        self._lexicon = lexicon
        self._decided = dict.fromkeys(rests, 0.0)
        # Weights are negative in the heap: the heaviest comes first. The number keeps equal weights in order.
        self._open: list[tuple[float, int, _Way]] = [(-1.0, 0, _Way((), matcher, rests))]
        self._seen: tuple[float, _Way] | None = None
        self._count = 0
        self.looks = 0
        """Beginnings that were looked at, the empty one included."""

    @property
    def left(self) -> float:
        """Weight of the beginnings that have not been evaluated."""
        return -sum(weight for weight, _, _ in self._open)

    def next(self) -> tuple[int, ...] | None:
        """The tokens to evaluate next, empty at first; None when there is no need for more."""
        if self.left <= LEFT or self.looks > MOST_LOOKS:
            return None
        weight, _, way = heapq.heappop(self._open)
        self._seen = (-weight, way)
        self.looks += 1
        return way.tokens

    def see(self, logits: Floats) -> None:
        """Take in what the model says after the tokens that `next` gave (shape [n_vocab]; -inf is never chosen)."""
        assert self._seen is not None  # `next` gave the tokens.
        weight, way = self._seen
        pieces = choices(self._lexicon, way.matcher, way.rests)
        tokens = [token for piece in pieces for token in self._lexicon.tokens(piece)]
        values = logits[tokens].astype(np.float64)
        shares = np.exp(values - values.max()) if np.isfinite(values).any() else np.zeros(len(tokens))
        if not shares.sum() > 0:
            # The model cannot write any of them here: as if it never began like this.
            self._leave(0.0, way)
            return
        shares *= weight / shares.sum()
        place = 0
        for piece, options in pieces.items():
            after: Matcher | None = None
            for token in self._lexicon.tokens(piece):
                share = float(shares[place])
                place += 1
                if len(options) == 1:
                    self._decided[options[0]] += share
                elif share > 0:
                    after = after or way.matcher.advance(piece)
                    assert after is not None  # It begins what the matcher was asked about.
                    rests = {option: way.rests[option][len(piece) :] for option in options}
                    self._leave(share, _Way((*way.tokens, token), after, rests))

    def result(self) -> dict[str, float]:
        """Probability by option, in the order of the options; they sum to 1."""
        found = dict(self._decided)
        for negative, _, way in self._open:
            known = sum(self._decided[option] for option in way.rests)
            for option in way.rests:
                part = self._decided[option] / known if known > 0 else 1 / len(way.rests)
                found[option] -= negative * part
        total = sum(found.values())
        return {
            option: min(1.0, weight / total) if total > 0 else 1 / len(found)
            for option, weight in found.items()
        }

    def _leave(self, weight: float, way: _Way) -> None:
        self._count += 1
        heapq.heappush(self._open, (-weight, self._count, way))


def choices(lexicon: Lexicon, matcher: Matcher, rests: Rests) -> dict[bytes, tuple[str, ...]]:
    """Every text of a token that may come next on the way to an option, with the options it leaves open."""
    found: dict[bytes, tuple[str, ...]] = {}
    for option, rest in rests.items():
        for end in range(1, len(rest) + 1):
            piece = rest[:end]
            if piece not in found and lexicon.tokens(piece):
                found[piece] = tuple(name for name, other in rests.items() if other.startswith(piece))
        for piece in lexicon.longer(rest):
            if matcher.advance(piece) is not None:
                found[piece] = (option,)
    return found


def decides(lexicon: Lexicon, matcher: Matcher, rests: Rests) -> bool:
    """Whether a token that may come next leaves fewer options open than there are."""
    return any(len(options) < len(rests) for options in choices(lexicon, matcher, rests).values())


def common_beginning(texts: Sequence[bytes]) -> bytes:
    """What all `texts` begin with.

    >>> common_beginning([b'"pass"', b'"partial"'])
    b'"pa'

    It ends with a whole character:

    >>> common_beginning(["é".encode(), "è".encode()])
    b''
    """
    first, last = min(texts), max(texts)
    # In order, what the first and the last begin with is what all begin with.
    size = next(
        (at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first)
    )
    return first[:size].decode("utf-8", "ignore").encode()


def spell_lead(speller: Speller, lead: bytes, rests: Rests) -> list[int]:
    """Tokens of `lead`, without those at its end that a token could reach over into an option.

    Args:
        speller: of the model.
        lead: what stands before the options; valid UTF-8.
        rests: the options.
    """
    tokens = speller.spell(lead, last=True)
    starts = [len(lead)]
    for token in reversed(tokens[-GIVEN_BACK:]):
        starts.append(starts[-1] - len(speller.piece(token)))
    first = min(
        (at for at in range(starts[-1], len(lead)) if _reaches_over(speller.lexicon, lead[at:], rests)),
        default=len(lead),
    )
    given_back = next(count for count, start in enumerate(starts) if start <= first)
    return tokens[: len(tokens) - given_back]


def _reaches_over(lexicon: Lexicon, end: bytes, rests: Rests) -> bool:
    """Whether some token begins with `end` and goes on with a part of an option."""
    return any(
        rest.startswith(piece[len(end) :]) or piece[len(end) :].startswith(rest)
        for rest in rests.values()
        for piece in lexicon.longer(end)
    )
