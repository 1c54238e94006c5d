"""The window: rows about one subject together, nothing held back, memory bounded."""

from __future__ import annotations

import itertools
import threading

import pytest

from judge_local.batch import lookahead
from judge_local.batch.lookahead import WINDOW_ROWS, LookAhead, Window
from judge_local.batch.rows import BadRow, Row


def row(number, subject="one"):
    return Row(number=number, line=number, id=f"r{number}", claim="c", subject=subject)


def bad(number):
    return BadRow(number=number, line=number, id=f"r{number}", error="it is bad")


def numbers(window):
    return [taken.number for taken in iter(window.take, None)]


def test_the_subject_of_the_last_row_goes_on_then_the_one_that_waited_longest():
    window = Window()
    for number, subject in enumerate("abacbb", 1):
        window.put(row(number, subject))

    assert numbers(window) == [1, 3, 2, 5, 6, 4]


def test_rows_that_come_meanwhile_join_their_subject():
    window = Window()
    window.put(row(1, "a"))
    window.put(row(2, "b"))
    first = window.take()
    window.put(row(3, "a"))

    assert first.number == 1
    assert numbers(window) == [3, 2]


def test_bad_rows_go_ahead():
    window = Window()
    window.put(row(1))
    window.put(bad(2))

    assert numbers(window) == [2, 1]


def test_a_window_is_full_by_rows_or_by_characters(monkeypatch):
    by_rows, by_chars = Window(), Window()
    for number in range(WINDOW_ROWS):
        assert not by_rows.full
        by_rows.put(row(number + 1))
    monkeypatch.setattr(lookahead, "WINDOW_CHARS", 10)
    by_chars.put(row(1, "x" * 9))
    by_chars.put(row(2, "x" * 9))  # The same text is there once.

    assert by_rows.full
    assert not by_chars.full
    by_chars.put(row(3, "y"))
    assert by_chars.full
    assert numbers(by_chars) == [1, 2, 3]
    assert not by_chars.full


async def test_every_row_is_handed_out_once_and_reading_stays_close_ahead():
    read = []

    def rows():
        for number in range(1, 3 * WINDOW_ROWS):
            read.append(number)
            yield row(number, f"s{number}")

    ahead = LookAhead(rows())
    for number in range(1, 3 * WINDOW_ROWS):
        assert (await ahead.next()).number == number
        assert read[-1] <= number + WINDOW_ROWS + 1
    assert await ahead.next() is None
    assert ahead.exhausted


async def test_a_slow_source_keeps_nobody_waiting_for_what_it_has_brought():
    more = threading.Event()

    def rows():
        yield row(1)
        more.wait(10)
        yield row(2)

    ahead = LookAhead(rows())

    assert (await ahead.next()).number == 1
    assert not ahead.exhausted
    more.set()
    assert (await ahead.next()).number == 2
    assert await ahead.next() is None


async def test_what_ends_the_reading_comes_after_what_was_read():
    def rows():
        yield row(1)
        raise OSError("gone")

    ahead = LookAhead(rows())

    assert (await ahead.next()).number == 1
    assert await ahead.next() is None
    assert str(ahead.error) == "gone"
    assert not ahead.exhausted


@pytest.mark.parametrize("taken", [0, 3])
async def test_after_a_stop_there_is_nothing_more_and_the_source_is_closed(taken):
    closed = threading.Event()

    def rows():
        try:
            yield from (row(number) for number in itertools.count(1))
        finally:
            closed.set()

    ahead = LookAhead(rows())
    for _ in range(taken):
        await ahead.next()
    ahead.stop()

    assert await ahead.next() is None
    assert closed.wait(10)
    assert not ahead.exhausted
