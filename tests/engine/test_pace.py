"""Pace: how prompts are cut into pieces, how many runs at once pay, and that a measurement is made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.pace import (
    LEAST_PIECE,
    SIZES,
    SLOTS_UNMEASURED,
    TILE,
    WORTH,
    Pace,
    best_slots,
    piece_beside,
)
from judge_local.engine.protocol import Settings


@given(busy=st.integers(1, 500), left=st.integers(1, 5000))
def test_pieces_fill_whole_tiles_or_are_all_that_is_left(busy: int, left: int) -> None:
    piece = piece_beside(busy, left)

    assert 1 <= piece <= left
    assert piece == left or (busy + piece) % TILE == 0
    # Neither the piece nor what it leaves is too small to be worth a batch.
    assert piece == left or (piece >= LEAST_PIECE and left - piece >= LEAST_PIECE)


@given(st.dictionaries(st.sampled_from(SIZES), st.floats(1e-4, 10.0), min_size=2))
def test_no_other_number_of_runs_is_much_faster(seconds: dict[int, float]) -> None:
    slots = best_slots(seconds)

    assert all(seconds[slots] / slots <= WORTH * taken / runs for runs, taken in seconds.items())


@pytest.mark.parametrize("seconds", [{}, {4: 0.1}])
def test_without_a_measurement(seconds: dict[int, float]) -> None:
    assert best_slots(seconds) == SLOTS_UNMEASURED


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    start_backend()
    return Model(tiny_model)


def test_it_is_measured_once(model: Model) -> None:
    pace = Pace(model, Settings(path=""), AbortFlag())
    assert pace.seconds == {}

    measured = pace.measure()

    assert set(measured) <= set(SIZES)
    assert len(measured) > 1
    assert min(measured.values()) > 0
    assert pace.measure() is measured is pace.seconds


def test_an_interrupt_leaves_it_unmeasured(model: Model) -> None:
    abort = AbortFlag()
    abort.raise_()
    pace = Pace(model, Settings(path=""), abort)

    assert (pace.measure(), pace.seconds) == ({}, {})
