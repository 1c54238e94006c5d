"""Who is let through to the worker, and when: in order, bounded, and never blocked by a caller with a great many."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.turns import Ticket, Turns, pieces


def inside(tickets: list[Ticket]) -> list[bool]:
    return [ticket.granted.done() for ticket in tickets]


def test_first_come_first_let_through_within_the_bound() -> None:
    turns = Turns(most=5)
    tickets = [turns.ask(2) for _ in range(4)]

    assert inside(tickets) == [True, True, False, False]
    turns.leave()
    assert inside(tickets) == [True, True, True, False]
    turns.leave(2)
    assert inside(tickets) == [True] * 4
    assert turns.inside == 5


def test_a_small_one_does_not_overtake_a_large_one() -> None:
    turns = Turns(most=4)
    first, large, small = turns.ask(3), turns.ask(4), turns.ask(1)

    assert inside([first, large, small]) == [True, False, False]
    turns.leave(3)
    assert inside([first, large, small]) == [True, True, False]


def test_one_that_is_larger_than_the_bound_goes_alone() -> None:
    turns = Turns(most=4)
    first, huge = turns.ask(1), turns.ask(100)
    turns.leave()

    assert inside([first, huge]) == [True, True]
    assert turns.inside == 100


@pytest.mark.parametrize("place", [0, 1, 2])
def test_giving_up_frees_the_place_wherever_it_is(place: int) -> None:
    turns = Turns(most=2)
    tickets = [turns.ask(2) for _ in range(3)]
    turns.give_up(tickets.pop(place))

    assert inside(tickets) == [True, False]
    assert turns.inside == 2


def test_what_shrinks_to_nothing_leaves_the_line() -> None:
    turns = Turns(most=2)
    first, second, third = turns.ask(2), turns.ask(2), turns.ask(1)
    turns.shrink(second, 1)
    turns.leave()
    assert inside([first, second, third]) == [True, True, False]
    turns.shrink(third, 1)

    assert turns.waiting == 0
    assert turns.inside == 2


@given(st.lists(st.integers(1, 7), max_size=30), st.integers(1, 10))
def test_everybody_gets_through_in_order(counts: list[int], most: int) -> None:
    """However they leave: nobody is forgotten, and no more are inside than may be, but for one larger than the bound."""
    turns = Turns(most=most)
    tickets = [turns.ask(count) for count in counts]
    waiting, held = deque(tickets), deque[Ticket]()
    while waiting or held:
        while waiting and waiting[0].granted.done():
            held.append(waiting.popleft())
        assert not any(ticket.granted.done() for ticket in waiting)
        assert turns.inside == sum(ticket.count for ticket in held)
        assert turns.inside <= most or len(held) == 1
        turns.leave(held.popleft().count)

    assert (turns.inside, turns.waiting) == (0, 0)


@given(st.lists(st.integers(), max_size=20), st.integers(1, 7))
def test_pieces_are_all_of_it_in_order(items: list[int], size: int) -> None:
    parts = list(pieces(items, size))

    assert [item for part in parts for item in part] == items
    assert all(len(part) == size for part in parts[:-1])
