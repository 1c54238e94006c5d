"""Which requests are over, and when the flag goes up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from judge_local.engine.interrupt import Interrupter


class Flag:
    def __init__(self) -> None:
        self.up = threading.Event()

    def raise_(self) -> None:
        self.up.set()

    def lower(self) -> None:
        self.up.clear()


@pytest.fixture
def flag() -> Flag:
    return Flag()


@pytest.fixture
def interrupter(flag: Flag) -> Iterator[Interrupter]:
    made = Interrupter(flag)
    yield made
    made.close()


def test_a_deadline_raises_the_flag_while_its_request_is_watched(
    flag: Flag, interrupter: Interrupter
) -> None:
    interrupter.expect("a", 0.05)
    interrupter.expect("b", None)
    interrupter.watch(["a", "b"])

    assert flag.up.wait(10)
    assert interrupter.is_over("a")
    assert not interrupter.is_over("b")


def test_a_late_request_that_is_not_watched_stops_nobody(flag: Flag, interrupter: Interrupter) -> None:
    interrupter.expect("late", 0.0)
    interrupter.expect("b", None)
    interrupter.watch(["b"])

    assert not flag.up.wait(0.05)
    assert interrupter.is_over("late")


def test_watching_a_request_that_is_late_already_raises_the_flag(
    flag: Flag, interrupter: Interrupter
) -> None:
    interrupter.expect("late", 0.0)
    interrupter.watch(["late"])

    assert flag.up.is_set()


def test_a_cancellation_raises_the_flag_and_the_next_watch_lowers_it(
    flag: Flag, interrupter: Interrupter
) -> None:
    for request in "ab":
        interrupter.expect(request, None)
    interrupter.watch("ab")
    interrupter.cancel(["a"])

    assert flag.up.is_set()
    assert interrupter.is_cancelled("a")
    interrupter.settle("a")
    interrupter.watch("b")
    assert not flag.up.is_set()


def test_cancelling_what_was_answered_is_forgotten(interrupter: Interrupter) -> None:
    """Ids of answered requests do not pile up, and a cancellation that crosses an answer does no harm."""
    interrupter.expect("a", None)
    interrupter.settle("a")
    interrupter.cancel(["a"])

    assert not interrupter.is_cancelled("a")


def test_closing_ends_everything_for_good(flag: Flag, interrupter: Interrupter) -> None:
    interrupter.expect("a", None)
    interrupter.close()
    interrupter.watch("a")

    assert flag.up.is_set()
    assert interrupter.is_over("a")
