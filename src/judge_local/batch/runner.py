"""The runner: admits rows, has each judged, writes what comes of it, and ends in an orderly way whatever happens.

* It knows no provider and no terminal: `judge_row` is handed in, and so is whoever wants to be told.
* No more rows are in work than were asked for, and none is read far ahead: memory is flat.
* A fault of one row, or of what was in flight, is that row's result. A fault of the set-up, and of the disk, ends the
  batch; everything written until then stays, and the next call goes on from there.
* Results are counted, and told to others, only once the disk has them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from judge_local.batch.lookahead import LookAhead
from judge_local.batch.results_file import ResultsFile
from judge_local.batch.rows import BadRow, Row, Subjects, result_for
from judge_local.counts import Counts
from judge_local.errors import (
    ClusterError,
    EngineBusyError,
    IsolationError,
    JudgeLocalError,
    ModelError,
    SchemaError,
    excerpt,
)
from judge_local.results import Result, no_decision, subject_sha256

JudgeRow = Callable[[Row], Awaitable[Result]]
"""Judges one row, whose `subject` is there. What it raises becomes the row's error, but for `FATAL`."""

FATAL: Final = (ModelError, SchemaError, EngineBusyError, ClusterError)
"""Faults that every row to come would meet as well: they end the batch. `IsolationError`, about one text, does not."""

SYNC_LINES: Final = 64
SYNC_SECONDS: Final = 0.5
_UNSYNCED_AT_MOST: Final = 16 * SYNC_LINES
_ROWS_REMEMBERED: Final = 64
"""How many of the last rows tell how long the next will take."""


class Ended(StrEnum):
    """Why a batch ended."""

    DONE = "done"
    LIMIT = "limit"
    TIME = "time-budget"
    INTERRUPTED = "interrupted"


class Stop:
    """How a batch is asked to end before its time: once to finish what is in flight, twice to give that up too."""

    def __init__(self) -> None:
        self.asked = 0
        self._listeners: list[Callable[[], None]] = []

    def ask(self) -> None:
        """Ask once more. To be called on the event loop of the batch."""
        self.asked += 1
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called with each time."""
        self._listeners.append(listener)


@dataclass(slots=True)
class Standing:
    """How a batch stands; whoever is told of it sees the same object again and again."""

    counts: Counts = field(default_factory=Counts)
    """Of the whole file, what was there before included."""
    judged: int = 0
    """Rows whose result was written in this call."""
    found: int = 0
    """Rows that had a result already."""
    changed: int = 0
    """Of these, rows that are not any more what was judged."""
    first_changed: int | None = None
    """The line of the first of them."""
    read: int = 0
    """Rows read so far; some of them wait."""
    rows: int | None = None
    """How many rows there are; None as long as not all have been read."""
    verdicts: int = 0
    """Runs with a verdict that were written in this call."""
    in_work: int = 0
    began: float = field(default_factory=time.monotonic)
    """A `time.monotonic()` instant: what a time budget counts from."""
    started: float = field(default_factory=time.monotonic)
    """A `time.monotonic()` instant: what speed is told from."""
    ended: Ended | None = None
    """None as long as it goes on."""

    @property
    def seconds(self) -> float:
        """Since rows are judged."""
        return time.monotonic() - self.started

    def restart(self) -> None:
        """Tell speed from now on: the model is loaded."""
        self.started = time.monotonic()


async def run_batch(
    rows: Iterable[Row | BadRow],
    judge_row: JudgeRow,
    results: ResultsFile,
    *,
    subjects: Subjects,
    at_once: int = 8,
    limit: int | None = None,
    seconds: float | None = None,
    standing: Standing | None = None,
    stop: Stop | None = None,
    on_results: Callable[[list[Result]], None] = lambda _results: None,
) -> Standing:
    """Judge every row that has no result yet, and write the results.

    Args:
        rows: what there is to judge; iterated in another thread.
        judge_row: judges one row.
        results: where results go, and which rows have one.
        subjects: reads the subjects that lie in files.
        at_once: how many rows are in work at a time.
        limit: how many rows are judged at most, bad ones included; None is no limit.
        seconds: a time budget, counted from when `standing` was made. No row is begun that, going by the ones before
            it, would not be done by then; those in work are finished.
        standing: kept up to date; None begins with nothing counted.
        stop: asks the batch to end.
        on_results: gets results once the disk has them, in the order in which they were written.

    Raises:
        ResultsFileError: the results cannot be written.
        ModelError, SchemaError, EngineBusyError, ClusterError: no row can be judged.
        InputError: the rows cannot be read to their end; what was read has been judged.
    """
    standing = standing or Standing()
    return await _Batch(
        judge_row,
        results,
        standing,
        stop or Stop(),
        on_results,
        None if seconds is None else standing.began + seconds,
    ).run(rows, subjects, at_once, limit)


def pending(
    rows: Iterable[Row | BadRow], results: ResultsFile, subjects: Subjects, standing: Standing
) -> Iterator[Row | BadRow]:
    """The rows that have no result yet, with the text of their subject. Counts the others."""
    for row in rows:
        standing.read += 1
        if not results.has(row.id):
            yield subjects.with_text(row) if isinstance(row, Row) else row
            continue
        standing.found += 1
        if not isinstance(row, Row):
            continue
        subject = row.subject_file or subject_sha256(row.subject or "")
        if not results.has_same(row.id, row.claim, subject):
            standing.changed += 1
            standing.first_changed = standing.first_changed or row.line
    standing.rows = standing.read


def errored(row: Row | BadRow, error: str) -> Result:
    """The result of a row that could not be judged: no runs, a person's to look at."""
    return result_for(row, no_decision(), error)


class _Batch:
    """One call of `run_batch`."""

    def __init__(
        self,
        judge_row: JudgeRow,
        results: ResultsFile,
        standing: Standing,
        stop: Stop,
        on_results: Callable[[list[Result]], None],
        until: float | None,
    ) -> None:
        self._judge_row, self._results, self._standing = judge_row, results, standing
        self._stop, self._on_results, self._until = stop, on_results, until
        self._took: deque[float] = deque(maxlen=_ROWS_REMEMBERED)
        self._unsynced: list[Result] = []
        self._something = asyncio.Event()
        self._synced = asyncio.Event()
        self._out_of_time = self._beyond_limit = self._closing = False

    async def run(
        self, rows: Iterable[Row | BadRow], subjects: Subjects, at_once: int, limit: int | None
    ) -> Standing:
        ahead = LookAhead(self._up_to(limit, pending(rows, self._results, subjects, self._standing)))
        workers = [asyncio.create_task(self._work(ahead)) for _ in range(at_once)]
        syncer = asyncio.create_task(self._keep_synced())
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()

        def asked() -> None:
            ahead.stop()
            if self._stop.asked > 1 and not gone.done():
                gone.set_result(None)

        self._stop.listen(asked)
        if self._until is not None:  # Nobody waits any longer for a row that a slow pipe may bring.
            loop.call_later(max(0.0, self._until - time.monotonic()), self._end_admission, ahead)
        try:
            await _first_end(workers, syncer, gone)
        finally:
            ahead.stop()
            for worker in workers:
                worker.cancel()
            ends = await asyncio.gather(*workers, return_exceptions=True)
            self._closing = True
            self._something.set()
            ends += await asyncio.gather(syncer, return_exceptions=True)
        fault = next((end for end in ends if isinstance(end, Exception)), ahead.error)
        if fault is not None:
            raise fault
        self._standing.ended = self._how_it_ended(ahead)
        return self._standing

    def _up_to(self, limit: int | None, rows: Iterator[Row | BadRow]) -> Iterator[Row | BadRow]:
        for count, row in enumerate(rows):
            if count == limit:
                self._beyond_limit = True
                return
            yield row

    def _end_admission(self, ahead: LookAhead) -> None:
        self._out_of_time = True
        ahead.stop()

    def _how_it_ended(self, ahead: LookAhead) -> Ended:
        if self._stop.asked > 1 or (self._stop.asked and not ahead.exhausted):
            return Ended.INTERRUPTED
        if self._out_of_time and not ahead.exhausted:
            return Ended.TIME
        return Ended.LIMIT if self._beyond_limit else Ended.DONE

    async def _work(self, ahead: LookAhead) -> None:
        """Judge one row after the other until there is none."""
        while True:
            if self._is_late():
                self._end_admission(ahead)
            row = await ahead.next()
            if row is None:
                return
            self._standing.in_work += 1
            try:
                result = await self._judge(row)
            finally:
                self._standing.in_work -= 1
            self._results.append(result)
            self._unsynced.append(result)
            self._something.set()
            if len(self._unsynced) >= _UNSYNCED_AT_MOST:  # The disk is slower than the judge.
                self._synced.clear()
                await self._synced.wait()
            await asyncio.sleep(0)  # A judge that never waits must not keep the loop from all else.

    async def _judge(self, row: Row | BadRow) -> Result:
        if isinstance(row, BadRow):
            return errored(row, row.error)
        started = time.monotonic()
        try:
            return await self._judge_row(row)
        except JudgeLocalError as error:
            if isinstance(error, FATAL) and not isinstance(error, IsolationError):
                raise
            return errored(row, str(error))
        except Exception as error:  # noqa: BLE001 # One row's fault, whatever it is, is that row's result.
            return errored(row, f"unforeseen {type(error).__name__}: {excerpt(str(error))}")
        finally:
            self._took.append(time.monotonic() - started)

    def _is_late(self) -> bool:
        """Whether a row begun now would probably not be done in time."""
        if self._until is None:
            return False
        took = sorted(self._took)
        # Nine of ten rows take no longer than this; the very longest may have been one of a kind.
        likely = took[math.ceil(0.9 * len(took)) - 1] if took else 0.0
        return time.monotonic() + likely >= self._until

    async def _keep_synced(self) -> None:
        """Have the disk take what was written, a group of lines at a time, until the batch is over."""
        while not self._closing:
            await self._something.wait()
            until = time.monotonic() + SYNC_SECONDS
            while not self._closing and len(self._unsynced) < SYNC_LINES:
                self._something.clear()
                try:
                    await asyncio.wait_for(self._something.wait(), until - time.monotonic())
                except TimeoutError:
                    break
            self._something.clear()
            await self._sync()
        await self._sync()

    async def _sync(self) -> None:
        written, self._unsynced = self._unsynced, []
        if not written:
            return
        await asyncio.to_thread(self._results.sync)
        self._standing.judged += len(written)
        for result in written:
            self._standing.counts.add(result)
            self._standing.verdicts += result.decision.votes.graded
        self._synced.set()
        self._on_results(written)


async def _first_end(
    workers: list[asyncio.Task[None]], syncer: asyncio.Task[None], gone: asyncio.Future[None]
) -> None:
    """Return when all workers have ended, one of the tasks has failed, or nobody wants to wait any longer."""
    left: set[asyncio.Future[None]] = set(workers)
    while left:
        done, _ = await asyncio.wait({*left, syncer, gone}, return_when=asyncio.FIRST_COMPLETED)
        failed = any(task is not gone and task.exception() is not None for task in done)
        if failed or syncer in done or gone in done:
            return
        left -= done
