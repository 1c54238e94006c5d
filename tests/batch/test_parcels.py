"""Parcels: every row that is handed over comes back once, however it travels."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge_local.batch.parcels import FIRST_ROWS, MOST_ROWS, Parcels, Post, given_up, judge_parcel
from judge_local.batch.rows import Row
from judge_local.batch.runner import errored
from judge_local.errors import ClusterError, ContextOverflowError, EngineCrashedError, JudgeLocalError


def row(number: int) -> Row:
    return Row(number=number, line=number, id=f"row-{number}", claim="c", subject="s")


def rows(count: int) -> list[Row]:
    return [row(number) for number in range(1, count + 1)]


async def echo(one: Row):
    return errored(one, "echo")


async def ids_of(parcels, sent, count):
    """Hand over rows, answer what is sent, and give the ids that came back, in the order of the rows."""
    tasks = [asyncio.create_task(parcels.judge_row(one)) for one in rows(count)]
    answered = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        if answered == len(sent):
            await asyncio.sleep(0.001)
        for number, parcel in sent[answered:]:
            parcels.arrived(number, await judge_parcel(parcel, echo, at_once=2))
            answered += 1
    return [task.result().id for task in tasks]


@settings(max_examples=20, deadline=None)
@given(count=st.integers(1, 200), judges=st.integers(1, 5))
def test_every_row_comes_back_once(count, judges):
    async def main():
        sent = []
        parcels = Parcels(lambda number, parcel: sent.append((number, parcel)), judges=judges)
        return await ids_of(parcels, sent, count), sent

    back, sent = asyncio.run(main())

    assert back == [one.id for one in rows(count)]
    assert [number for number, _ in sent] == list(range(len(sent)))
    assert sorted(one.number for _, parcel in sent for one in parcel) == list(range(1, count + 1))


async def test_parcels_grow_when_every_judge_has_had_one():
    sent = []
    parcels = Parcels(lambda number, parcel: sent.append(len(parcel)), judges=2)
    tasks = [asyncio.create_task(parcels.judge_row(one)) for one in rows(200)]
    await asyncio.sleep(0)

    assert sent[:8] == [4, 4, 8, 8, 16, 16, 32, 32]
    assert (FIRST_ROWS, MOST_ROWS) == (4, 32)
    for task in tasks:
        task.cancel()


async def test_long_subjects_make_small_parcels(monkeypatch):
    monkeypatch.setattr("judge_local.batch.parcels.MOST_CHARS", 10)
    sent = []
    parcels = Parcels(lambda number, parcel: sent.append([len(one.subject) for one in parcel]), judges=1)
    long = [replace(row(number), subject="x" * size) for number, size in enumerate((4, 5, 1, 30, 2, 8), 1)]
    tasks = [asyncio.create_task(parcels.judge_row(one)) for one in long]
    await asyncio.sleep(0)

    assert sent == [[4, 5, 1], [30], [2, 8]]
    for task in tasks:
        task.cancel()


async def test_a_few_rows_do_not_wait_for_more():
    sent = []
    parcels = Parcels(lambda number, parcel: sent.append(number), judges=1)
    task = asyncio.create_task(parcels.judge_row(row(1)))
    await asyncio.sleep(0)
    assert sent == []
    while not sent:
        await asyncio.sleep(0.01)
    parcels.arrived(0, [errored(row(1), "back")])

    assert (await task).error == "back"


async def test_what_comes_twice_is_taken_once():
    parcels = Parcels(lambda *_: None, judges=1)
    tasks = [asyncio.create_task(parcels.judge_row(one)) for one in rows(4)]
    await asyncio.sleep(0)
    parcels.arrived(0, [errored(one, "first") for one in rows(4)])
    parcels.arrived(0, [errored(one, "second") for one in rows(4)])
    parcels.arrived(7, [errored(row(1), "never sent")])

    assert [(await task).error for task in tasks] == ["first"] * 4
    assert parcels.away == 0


async def test_a_fault_that_came_back_is_raised_for_its_row():
    parcels = Parcels(lambda *_: None, judges=1)
    tasks = [asyncio.create_task(parcels.judge_row(one)) for one in rows(4)]
    await asyncio.sleep(0)
    fault = ContextOverflowError("prompt", "it is too long")
    parcels.arrived(0, [fault, *(errored(one, "back") for one in rows(3))])

    with pytest.raises(ContextOverflowError):
        await tasks[0]
    assert [(await task).error for task in tasks[1:]] == ["back"] * 3


async def test_when_nothing_comes_back_any_more_every_row_is_told():
    """Those that are away, those that wait, and those to come."""
    parcels = Parcels(lambda *_: None, judges=1)
    tasks = [asyncio.create_task(parcels.judge_row(one)) for one in rows(6)]
    await asyncio.sleep(0)
    parcels.fail(ClusterError("ray", "the cluster gave up"))

    for waiting in (*tasks, parcels.judge_row(row(7))):
        with pytest.raises(ClusterError, match="gave up"):
            await waiting


async def test_a_row_that_nobody_waits_for_is_not_sent():
    sent = []
    parcels = Parcels(lambda number, parcel: sent.append(parcel), judges=1)
    task = asyncio.create_task(parcels.judge_row(row(1)))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    others = [asyncio.create_task(parcels.judge_row(one)) for one in rows(4)[1:]]
    await asyncio.sleep(0.2)

    assert [one.number for parcel in sent for one in parcel] == [2, 3, 4]
    for other in others:
        other.cancel()


async def test_the_post_gives_parcels_in_order_and_again():
    """A reader that is started anew gets nothing for what is answered, and everything else."""
    post = Post()
    late = asyncio.create_task(post.get(2))
    for number in range(3):
        await post.put(number, b"%d" % number)
    assert [await post.get(number) for number in (0, 1)] == [b"0", b"1"]
    assert await late == b"2"
    await post.answered(1)

    assert [await post.get(number) for number in range(3)] == [b"0", b"", b"2"]
    waiting = asyncio.create_task(post.get(3))
    await asyncio.sleep(0)
    assert not waiting.done()
    await post.end()
    assert await waiting is None
    assert await post.get(4) is None


async def test_the_post_counts_how_often_a_parcel_is_begun():
    post = Post()
    await post.put(0, b"0")

    assert [await post.begin(0), await post.begin(0), await post.begin(1)] == [1, 2, 1]
    await post.answered(0)
    assert await post.begin(0) == 1


async def test_what_becomes_of_a_parcel_is_in_its_order_and_never_raises():
    async def judge_row(one: Row):
        await asyncio.sleep(0.001 * (4 - one.number))
        if one.number == 2:
            raise ContextOverflowError("prompt", "it is too long")
        if one.number == 3:
            raise ZeroDivisionError("of somebody")
        return errored(one, "fine")

    first, second, third, fourth = await judge_parcel(rows(4), judge_row, at_once=4)

    assert (first.id, fourth.id) == ("row-1", "row-4")
    assert isinstance(second, ContextOverflowError)
    assert str(third) == "judging: unforeseen ZeroDivisionError: 'of somebody'."


async def test_no_more_rows_of_a_parcel_are_in_work_than_at_once():
    working = most = 0

    async def judge_row(one: Row):
        nonlocal working, most
        working += 1
        most = max(most, working)
        await asyncio.sleep(0)
        working -= 1
        return errored(one, "fine")

    await judge_parcel(rows(20), judge_row, at_once=3)

    assert most == 3


def test_a_parcel_that_is_given_up_is_no_reason_to_end_the_batch():
    outcomes = given_up(rows(3))

    assert len(outcomes) == 3
    assert all(isinstance(one, EngineCrashedError) for one in outcomes)
    assert isinstance(outcomes[0], JudgeLocalError)
    assert "died 3 times" in str(outcomes[0])
