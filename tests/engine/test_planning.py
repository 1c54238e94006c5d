"""Plans for memory, from made-up cards and models: what fits goes on the card, and every shortfall is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.planning import (
    ALL,
    CARD_RESERVE,
    HOST_RESERVE,
    LEAST_CELLS,
    Device,
    Offload,
    Shape,
    cells_that_fit,
    plan_offload,
    smaller,
)

GIB = 2**30
SHAPE = Shape(layers=31, weights_bytes=8 * GIB, cell_bytes=124 * 1024)
"""32 layers that can go on a card, a quarter of a gibibyte each."""


def card(free: int) -> Device:
    return Device("card", free, 24 * GIB)


def plan(wanted: int | None, *free: int, offloads: bool = True, cells: int = 0) -> Offload:
    return plan_offload(wanted, SHAPE, [card(one) for one in free], build_offloads=offloads, cells=cells)


@pytest.mark.parametrize("wanted", [None, 0])
@pytest.mark.parametrize("offloads", [True, False])
def test_without_a_card_nothing_is_said_unless_one_was_asked_for(wanted: int | None, offloads: bool) -> None:
    assert plan(wanted, offloads=offloads) == Offload(0)


@pytest.mark.parametrize("wanted", [ALL, 1, 99])
def test_layers_that_were_asked_for_and_cannot_be_had_are_said(wanted: int) -> None:
    assert "no graphics card is found" in plan(wanted).line
    assert "this build of llama.cpp uses no graphics card" in plan(wanted, 24 * GIB, offloads=False).line
    assert plan(wanted).layers == 0


def test_all_of_it_where_it_fits() -> None:
    assert plan(None, 8 * GIB + CARD_RESERVE) == Offload(32)


def test_several_cards_count_together() -> None:
    assert plan(None, 4 * GIB + CARD_RESERVE, 4 * GIB + CARD_RESERVE) == Offload(32)


def test_a_part_where_it_does_not_and_a_line_says_so() -> None:
    found = plan(None, 4 * GIB + CARD_RESERVE)

    assert found.layers == 16
    assert found.line == "4.3 GB are free on the graphics card: 16 of 32 layers go there"


def test_a_full_card_gets_nothing() -> None:
    assert plan(None, CARD_RESERVE // 2).layers == 0


def test_the_context_takes_its_part_of_the_card() -> None:
    """A cell of a layer is 4 KiB here, so 65,536 cells take as much as the layer's weights."""
    assert plan(None, 4 * GIB + CARD_RESERVE, cells=65_536).layers == 8


@pytest.mark.parametrize(("wanted", "layers"), [(ALL, 32), (7, 7), (500, 32), (0, 0)])
def test_a_number_is_tried_as_it_is(wanted: int, layers: int) -> None:
    assert plan(wanted, 1) == Offload(layers)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(0, 200_000))
def test_more_memory_never_means_fewer_layers_and_a_plan_fits(one: int, other: int, cells: int) -> None:
    small, large = sorted((one, other))
    fewer, more = plan(None, small, cells=cells).layers, plan(None, large, cells=cells).layers

    assert fewer <= more
    assert more == 0 or SHAPE.card_bytes(more, cells) <= large - CARD_RESERVE


@given(st.integers(0, 200))
def test_what_is_tried_next_gets_smaller_and_ends_on_the_processor(layers: int) -> None:
    tries = [layers, *smaller(layers)]

    assert tries == sorted(set(tries), reverse=True)
    assert tries[-1] == 0


def test_cells_are_what_is_left_beside_the_weights() -> None:
    free = SHAPE.weights_bytes + HOST_RESERVE + 5000 * SHAPE.cell_bytes

    assert cells_that_fit(SHAPE, free) == 5000


def test_layers_on_the_card_take_none_of_the_main_memory() -> None:
    free = SHAPE.weights_bytes // 2 + HOST_RESERVE + 5000 * SHAPE.cell_bytes

    assert cells_that_fit(SHAPE, free, layers_on_card=16) == 10_000
    assert cells_that_fit(SHAPE, 0, layers_on_card=32) is None


def test_unknown_memory_sets_no_limit_and_none_leaves_the_least() -> None:
    assert cells_that_fit(SHAPE, None) is None
    assert cells_that_fit(SHAPE, 0) == LEAST_CELLS
