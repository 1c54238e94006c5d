"""Check-first sampling gives what masking the whole vocabulary would have given."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.sampling import LOOKS, REDRAWS, Filters, Sampler
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


def filtered(logits: list[float], top_k: int, top_p: float, min_p: float) -> list[int]:
    """The definition, one token at a time: top-k, then top-p of what is left, then min-p of what is left then."""
    order = sorted((t for t, value in enumerate(logits) if value > -math.inf), key=lambda t: (-logits[t], t))
    if top_k:
        order = order[:top_k]
    weights = [math.exp(logits[t] - logits[order[0]]) for t in order]
    if top_p < 1:
        kept, reached = [], 0.0
        for token, weight in zip(order, weights, strict=True):
            kept.append(token)
            reached += weight
            if reached >= top_p * sum(weights):
                break
        order = kept
    if min_p:
        order = [t for t in order if math.exp(logits[t] - logits[order[0]]) >= min_p]
    return order


@given(
    logits=st.lists(st.one_of(st.integers(-9, 9).map(float), st.just(-math.inf)), min_size=1, max_size=40),
    top_k=st.sampled_from([0, 1, 2, 5, 39, 1000]),
    top_p=st.sampled_from([0.0, 0.1, 0.55, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.011, 0.12, 0.7, 1.0]),
)
def test_filters_keep_what_their_definition_keeps(
    logits: list[float], top_k: int, top_p: float, min_p: float
) -> None:
    filters = Filters(top_k=top_k, top_p=top_p, min_p=min_p)
    kept = filters.kept(np.array(logits, dtype=np.float32)).tolist()

    if max(logits) == -math.inf:
        assert kept == []
    else:
        assert kept == filtered(logits, top_k, top_p, min_p)
        assert filters.off == (top_k == 0 and top_p == 1 and min_p == 0)


@pytest.mark.parametrize(
    "filters",
    [
        Filters(top_k=3),
        Filters(top_p=0.8),
        Filters(min_p=0.2),
        Filters(top_k=4, top_p=0.9, min_p=0.1),
        Filters(),
    ],
    ids=str,
)
@pytest.mark.parametrize("open_", [(0, 1, 2, 3, 4, 5), (1, 3, 5), (0, 2)])
def test_draws_follow_the_filtered_model_restricted_to_what_is_allowed(
    filters: Filters, open_: tuple[int, ...]
) -> None:
    """Frequencies lie within five standard errors of the definition: filters first, the grammar then (fixed seed)."""
    logits = [2.0, 1.5, 1.0, 0.5, -1.0, -2.0]
    draws, temperature = 4000, 1.3
    sampler = Sampler(temperature=temperature, seed=5, filters=filters)
    values = np.array(logits, dtype=np.float32)
    counts = np.bincount([sampler.choose(values.copy(), Only(*open_)) for _ in range(draws)], minlength=6)
    left = [t for t in filtered(logits, filters.top_k, filters.top_p, filters.min_p) if t in open_]
    weights = np.array([math.exp(logits[t] / temperature) if t in left else 0.0 for t in range(6)])
    expected = weights / weights.sum()

    assert np.all(np.abs(counts / draws - expected) <= 5 * np.sqrt(expected * (1 - expected) / draws))
    assert sampler.fell_back == 0


def test_a_filter_is_never_a_dead_end() -> None:
    """Nothing that passes is allowed: the likeliest allowed token is taken, and it is counted."""
    logits = np.array([9, 8, 1, 2], dtype=np.float32)
    sampler = Sampler(temperature=1.0, seed=3, filters=Filters(top_k=2))

    assert [sampler.choose(logits.copy(), Only(2, 3)) for _ in range(5)] == [3] * 5
    assert sampler.fell_back == 5


def test_greedy_takes_no_notice_of_filters() -> None:
    sampler = Sampler(temperature=0.0, seed=0, filters=Filters(top_k=1))

    assert sampler.choose(np.array([9, 1, 2], dtype=np.float32), Only(1, 2)) == 2
    assert sampler.fell_back == 0


@pytest.mark.parametrize("filters", [Filters(top_k=1), Filters(top_p=0.0), Filters(min_p=1.0)], ids=str)
def test_the_narrowest_filters_leave_the_likeliest(filters: Filters) -> None:
    sampler = Sampler(temperature=2.0, seed=0, filters=filters)

    assert {sampler.choose(np.array([1, 3, 2], dtype=np.float32), Only(0, 1, 2)) for _ in range(30)} == {1}


@pytest.mark.parametrize(("temperature", "expected"), [(0.0, {2}), (1.0, {0, 2})])
def test_a_pick_refuses_nothing(temperature: float, expected: set[int]) -> None:
    sampler = Sampler(temperature=temperature, seed=0, filters=Filters(top_k=1))

    assert {sampler.pick(np.array([1.0, -np.inf, 1.5])) for _ in range(60)} == expected
