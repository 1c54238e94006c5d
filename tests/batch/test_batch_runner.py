"""The runner: every row once, faults where they belong, and an orderly end however it comes."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path

import pytest

from batch.batches import HEADER, decided, ids, lines, result, row
from judge_local.batch.results_file import open_results
from judge_local.batch.rows import BadRow, Subjects
from judge_local.batch.runner import Ended, Standing, Stop, run_batch
from judge_local.errors import (
    EngineBusyError,
    EngineCrashedError,
    InputError,
    InvalidSchemaError,
    IsolationError,
    ModelFileError,
    ResultsFileError,
)

HERE = Subjects(Path())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


async def passes(one):
    return result(one.number, id=one.id, claim=one.claim)


async def run(path, rows, judge_row=passes, **options):
    with open_results(path, HEADER) as results:
        return await run_batch(rows, judge_row, results, subjects=HERE, **options)


async def test_every_row_has_one_result(path):
    told = []

    standing = await run(path, [row(n) for n in range(1, 301)], on_results=told.extend)

    assert sorted(ids(path)) == sorted(f"r{n}" for n in range(1, 301))
    assert [one.id for one in told] == ids(path)
    assert (standing.judged, standing.rows, standing.found) == (300, 300, 0)
    assert (standing.counts.results, standing.verdicts, standing.ended) == (300, 300, Ended.DONE)


async def test_what_has_a_result_is_not_judged_again(path):
    await run(path, [row(n) for n in (1, 2)])
    asked = []

    async def noting(one):
        asked.append(one.id)
        return await passes(one)

    standing = await run(path, [row(n) for n in (1, 2, 3)], noting)

    assert asked == ["r3"]
    assert (standing.found, standing.judged, standing.rows, standing.changed) == (2, 1, 3, 0)


async def test_rows_that_are_not_any_more_what_was_judged_are_counted(path):
    await run(path, [row(n) for n in (1, 2, 3)])

    standing = await run(path, [row(1), row(2, claim="Another."), row(3, subject="At ten.")])

    assert (standing.found, standing.changed, standing.first_changed) == (3, 2, 2)
    assert len(ids(path)) == 3


async def test_a_bad_row_is_a_result_with_its_error(path):
    bad = BadRow(number=2, line=7, id="line:7", error="line 7: no claim")

    standing = await run(path, [row(1), bad, row(3, subject=None, subject_file="nowhere.txt")])

    by_id = {line["id"]: line for line in lines(path)}
    assert by_id["line:7"]["error"] == "line 7: no claim"
    assert by_id["r3"]["error"].startswith("line 3: subject: there is no file")
    assert {by_id[name]["zone"] for name in ("line:7", "r3")} == {"human-review"}
    assert (standing.counts.errors, standing.counts.results) == (2, 3)


@pytest.mark.parametrize(
    "fault",
    [EngineCrashedError("engine", "it died"), IsolationError("prompt", "it is forged"), KeyError("x")],
)
async def test_a_fault_of_a_row_is_its_result(path, fault):
    async def judge_row(one):
        if one.number == 2:
            raise fault
        return await passes(one)

    await run(path, [row(n) for n in (1, 2, 3)], judge_row)

    by_id = {line["id"]: line for line in lines(path)}
    assert len(by_id) == 3
    assert str(fault) in by_id["r2"]["error"]
    assert "error" not in by_id["r1"]


@pytest.mark.parametrize(
    "fault",
    [ModelFileError("m", "gone"), InvalidSchemaError("s", "no"), EngineBusyError("e", "busy")],
    ids=lambda fault: type(fault).__name__,
)
async def test_a_fault_of_the_set_up_ends_the_batch_and_keeps_what_was_written(path, fault):
    async def judge_row(one):
        if one.number == 20:
            raise fault
        return await passes(one)

    with pytest.raises(type(fault)):
        await run(path, [row(n) for n in range(1, 100)], judge_row, at_once=1)

    assert ids(path) == [f"r{n}" for n in range(1, 20)]


async def test_rows_that_end_in_a_fault_are_judged_as_far_as_they_go(path):
    def rows():
        yield row(1)
        yield row(2)
        raise InputError("rows", "the gzip data is damaged")

    with pytest.raises(InputError, match="damaged"):
        await run(path, rows())

    assert sorted(ids(path)) == ["r1", "r2"]


async def test_no_more_rows_are_in_work_than_were_asked_for(path):
    now = most = 0

    async def judge_row(one):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return await passes(one)

    await run(path, [row(n) for n in range(1, 40)], judge_row, at_once=5)

    assert most == 5


@pytest.mark.parametrize(
    ("limit", "ended"), [(1, Ended.LIMIT), (9, Ended.LIMIT), (10, Ended.DONE), (11, Ended.DONE)]
)
async def test_a_limit_counts_rows_of_this_call(path, limit, ended):
    await run(path, [row(1), row(2)])

    standing = await run(path, [row(n) for n in range(1, 13)], limit=limit)

    assert standing.judged == min(limit, 10)
    assert len(ids(path)) == 2 + min(limit, 10)
    assert standing.ended is ended


async def test_asked_once_it_finishes_what_is_in_flight(path):
    stop, go_on = Stop(), asyncio.Event()
    begun = []

    async def judge_row(one):
        begun.append(one.id)
        if len(begun) == 3:
            stop.ask()
            go_on.set()
        await go_on.wait()
        return await passes(one)

    standing = await run(path, [row(n) for n in range(1, 100)], judge_row, at_once=3, stop=stop)

    assert sorted(ids(path)) == sorted(begun)
    assert len(begun) == 3
    assert standing.ended is Ended.INTERRUPTED


async def test_asked_twice_it_gives_up_what_is_in_flight(path):
    stop = Stop()
    given_up = []

    async def judge_row(one):
        if one.number < 5:
            return await passes(one)
        stop.ask()
        stop.ask()
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            given_up.append(one.id)
            raise

    standing = await run(path, [row(n) for n in range(1, 100)], judge_row, at_once=1, stop=stop)

    assert ids(path) == ["r1", "r2", "r3", "r4"]
    assert given_up == ["r5"]
    assert (standing.ended, standing.judged) == (Ended.INTERRUPTED, 4)


async def test_asked_at_the_very_end_it_is_done(path):
    stop = Stop()

    async def judge_row(one):
        if one.number == 3:
            stop.ask()
        return await passes(one)

    standing = await run(path, [row(n) for n in (1, 2, 3)], judge_row, at_once=1, stop=stop)

    assert len(ids(path)) == 3
    assert standing.ended is Ended.DONE


async def test_cancelled_from_outside_it_leaves_a_file_that_can_be_continued(path):
    async def judge_row(one):
        if one.number == 4:
            await asyncio.sleep(100)
        return await passes(one)

    task = asyncio.create_task(run(path, [row(n) for n in range(1, 9)], judge_row, at_once=1))
    while not path.exists() or len(path.read_bytes().splitlines()) < 4:
        await asyncio.sleep(0.005)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ids(path) == ["r1", "r2", "r3"]
    await run(path, [row(n) for n in range(1, 9)])
    assert sorted(ids(path)) == [f"r{n}" for n in range(1, 9)]


async def test_a_time_budget_begins_no_row_that_would_not_be_done(path, monkeypatch):
    """On a clock of its own, on which each row takes ten seconds."""
    clock = 1000.0
    monkeypatch.setattr("judge_local.batch.runner.time.monotonic", lambda: clock)

    async def judge_row(one):
        nonlocal clock
        clock += 10
        return await passes(one)

    standing = Standing(began=clock)
    rows = [row(n) for n in range(1, 100)]
    await run(path, rows, judge_row, at_once=1, seconds=45.0, standing=standing)

    assert ids(path) == ["r1", "r2", "r3", "r4"]
    assert standing.ended is Ended.TIME


async def test_a_time_budget_counts_from_before_the_model_was_loaded(path):
    standing = Standing(began=time.monotonic() - 100)

    await run(path, [row(1)], standing=standing, seconds=90.0)

    assert ids(path) == []
    assert standing.ended is Ended.TIME


async def test_a_budget_that_is_enough_is_not_noticed(path):
    standing = await run(path, [row(n) for n in (1, 2)], seconds=1000.0)

    assert standing.ended is Ended.DONE


async def test_results_are_told_only_after_the_disk_has_them(path, monkeypatch):
    synced = 0
    fsync = os.fsync

    def noting(descriptor):
        nonlocal synced
        fsync(descriptor)
        synced = path.read_bytes().count(b"\n") - 1

    monkeypatch.setattr(os, "fsync", noting)
    told = 0

    def on_results(results):
        nonlocal told
        told += len(results)
        assert told <= synced

    standing = Standing()
    await run(path, [row(n) for n in range(1, 500)], on_results=on_results, standing=standing)

    assert told == standing.judged == 499


async def test_a_full_disk_ends_the_batch(path, monkeypatch):
    write = os.write

    def full(descriptor, data):
        if os.fstat(descriptor).st_size > 20_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ResultsFileError, match="the disk is full"):
        await run(path, [row(n) for n in range(1, 500)])
    monkeypatch.undo()
    there = len(ids(path))

    standing = await run(path, [row(n) for n in range(1, 500)])

    assert 0 < there < 499
    assert (standing.found, standing.judged) == (there, 499 - there)
    assert len(set(ids(path))) == 499


async def test_a_failing_disk_ends_the_batch(path, monkeypatch):
    fsync, calls = os.fsync, 0

    def failing(descriptor):
        nonlocal calls
        calls += 1
        if calls > 3:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)

    with pytest.raises(ResultsFileError, match="cannot be written"):
        await run(path, [row(n) for n in range(1, 1000)])


async def test_labels_are_counted_by_verdict_and_zone(path):
    async def judge_row(one):
        return result(one.number, decision=decided("fail"), label=one.label)

    rows = [
        row(1, label="pass"),
        row(2, label="fail"),
        BadRow(number=3, line=3, id="r3", error="e", label="fail"),
    ]
    standing = await run(path, rows, judge_row)

    assert standing.counts.to_json() == {
        "results": 3,
        "errors": 1,
        "zones": {"auto-pass": 0, "auto-fail": 2, "human-review": 1},
        "labels": {
            "fail": {
                "verdicts": {"pass": 0, "fail": 1, "error": 1},
                "zones": {"auto-pass": 0, "auto-fail": 1, "human-review": 1},
            },
            "pass": {
                "verdicts": {"pass": 0, "fail": 1, "error": 0},
                "zones": {"auto-pass": 0, "auto-fail": 1, "human-review": 0},
            },
        },
    }
