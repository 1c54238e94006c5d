"""Check-first sampling gives what masking the whole vocabulary would have given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.sampling import LOOKS, REDRAWS, Sampler
from judge_local.errors import EngineError


class Only:
    """A gate that lets some tokens through and counts what it was asked."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = frozenset(tokens)
        self.singles = 0
        self.masked: list[int] = []

    def allows(self, token: int) -> bool:
        self.singles += 1
        return token in self.tokens

    def not_refused(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self.masked.append(len(tokens))
        return np.isin(tokens, list(self.tokens))


def greedy(logits: np.ndarray[Any, Any], gate: Only) -> int:
    return Sampler(temperature=0.0, seed=0).choose(logits, gate)


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=300).flatmap(
        lambda values: st.tuples(
            st.just(values), st.sets(st.integers(0, len(values) - 1), min_size=1, max_size=len(values))
        )
    )
)
def test_greedy_is_the_likeliest_allowed_token(case: tuple[list[float], set[int]]) -> None:
    values, open_ = case
    logits = np.array(values, dtype=np.float32)
    expected = max(open_, key=lambda token: (logits[token], -token))

    assert expected == greedy(logits, Only(*open_))


def test_a_first_hit_costs_one_question() -> None:
    gate = Only(3)

    assert greedy(np.array([0, 1, 2, 9], dtype=np.float32), gate) == 3
    assert gate.singles == 1
    assert gate.masked == []


def test_the_whole_vocabulary_is_the_last_resort() -> None:
    """The looks widen: a token among the likeliest never costs a look at all of them."""
    size = LOOKS[-1] * 3
    logits = -np.arange(size, dtype=np.float32)
    near, far = Only(LOOKS[0] - 1), Only(size - 1)

    assert greedy(logits, near) == LOOKS[0] - 1
    assert near.masked == [LOOKS[0]]
    assert greedy(logits, far) == size - 1
    assert far.masked == [*LOOKS, size]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_nothing_allowed_is_an_error(temperature: float) -> None:
    sampler = Sampler(temperature=temperature, seed=1)

    with pytest.raises(EngineError, match="allows none of the 5 tokens"):
        sampler.choose(np.zeros(5, dtype=np.float32), Only())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_minus_infinity_is_never_chosen(temperature: float) -> None:
    logits = np.array([-np.inf, 0.0, -np.inf], dtype=np.float32)
    sampler = Sampler(temperature=temperature, seed=1)

    assert {sampler.choose(logits.copy(), Only(0, 1, 2)) for _ in range(50)} == {1}


@pytest.mark.parametrize("open_", [(0, 1, 2, 3), (1, 3), (2,), (0, 3)])
def test_draws_follow_the_model_restricted_to_what_is_allowed(open_: tuple[int, ...]) -> None:
    """Frequencies lie within five standard errors of softmax over the allowed tokens (fixed seed)."""
    logits = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)
    draws, temperature = 4000, 0.8
    sampler = Sampler(temperature=temperature, seed=7)
    counts = np.bincount([sampler.choose(logits.copy(), Only(*open_)) for _ in range(draws)], minlength=4)
    weights = np.where(np.isin(range(4), open_), np.exp(logits / temperature), 0.0)
    expected = weights / weights.sum()

    assert (np.abs(counts / draws - expected) <= 5 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_more_refusals_than_redraws_still_gives_an_allowed_token() -> None:
    size = REDRAWS * 20
    gate = Only(size - 1)

    assert Sampler(temperature=1.0, seed=3).choose(np.zeros(size, dtype=np.float32), gate) == size - 1
    assert gate.singles == REDRAWS + 1
    assert gate.masked == [size]


def test_an_allowed_token_without_weight_is_still_found() -> None:
    """All weight sits on refused tokens and the rest underflows: the likeliest allowed one is taken."""
    logits = np.array([1000.0, -1000.0, -999.0], dtype=np.float32)

    assert Sampler(temperature=0.5, seed=0).choose(logits, Only(1, 2)) == 2


@given(st.integers(-(2**70), 2**70))
def test_a_seed_repeats_its_draws(seed: int) -> None:
    logits = np.linspace(0, 1, 50, dtype=np.float32)
    gate = Only(*range(50))
    one, two = (Sampler(temperature=1.0, seed=seed) for _ in range(2))

    assert [one.choose(logits, gate) for _ in range(5)] == [two.choose(logits, gate) for _ in range(5)]
