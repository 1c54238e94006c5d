"""Parcels: rows travel to other processes several at a time, and each comes back with a result or a fault, once.

Nothing here knows who carries them. `Parcels` is on the side that has the rows, `Post` between the two, and
`judge_parcel` on the side that judges.

* Parcels are small at first, so that a few rows occupy everyone, and grow, so that many rows keep an engine busy.
* What comes twice is taken once; what was lost with its process is judged again by another, a few times at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from judge_local.batch.rows import Row
from judge_local.batch.runner import JudgeRow
from judge_local.errors import EngineCrashedError, JudgeLocalError, excerpt
from judge_local.results import Result

FIRST_ROWS: Final = 4
MOST_ROWS: Final = 32
"""Rows in a parcel, at first and at last. A process that dies costs the parcel that it was at, which is judged again."""
MOST_CHARS: Final = 4_000_000
"""Of subjects in a parcel; a single one may be longer."""
STARTS: Final = 3
"""How often a parcel is begun. After that, whatever it is that ends the processes is the fault of its rows."""
_GATHER_SECONDS: Final = 0.1

Outcome = Result | JudgeLocalError
"""What became of one row."""


class Parcels:
    """Rows that were handed over and are not back yet. On one event loop.

    Args:
        send: takes a parcel on its way: its number, from 0, and its rows.
        judges: how many processes judge parcels.
    """

    def __init__(self, send: Callable[[int, Sequence[Row]], None], *, judges: int) -> None:
        self._send, self._judges = send, judges
        self._waiting: list[tuple[Row, asyncio.Future[Outcome]]] = []
        self._chars = 0
        self._away: dict[int, list[asyncio.Future[Outcome]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fault: JudgeLocalError | None = None
        self.sent = 0
        """How many parcels were sent."""

    @property
    def at_once(self) -> int:
        """How many rows in work keep all judges busy: each has a parcel, and another is waiting for it."""
        return 2 * MOST_ROWS * self._judges

    @property
    def away(self) -> int:
        """How many parcels are not back yet."""
        return len(self._away)

    async def judge_row(self, row: Row) -> Result:
        """Send `row`, and wait for what becomes of it.

        Raises:
            JudgeLocalError: the fault that came back, or that keeps everything from coming back.
        """
        if self._fault is not None:
            raise self._fault
        loop = asyncio.get_running_loop()
        back: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((row, back))
        self._chars += len(row.subject or "")
        if len(self._waiting) >= self._rows_in_next() or self._chars >= MOST_CHARS:
            self._dispatch()
        elif self._timer is None:
            self._timer = loop.call_later(_GATHER_SECONDS, self._dispatch)
        outcome = await back
        if isinstance(outcome, JudgeLocalError):
            raise outcome
        return outcome

    def arrived(self, number: int, outcomes: Sequence[Outcome]) -> None:
        """Take what came back for parcel `number`: an outcome for each of its rows, in their order. The first counts."""
        for back, outcome in zip(self._away.pop(number, ()), outcomes, strict=False):
            if not back.done():
                back.set_result(outcome)

    def fail(self, fault: JudgeLocalError) -> None:
        """Nothing comes back any more: every row that is away, or is handed over from now on, meets `fault`."""
        self._fault = fault
        for back in [back for parcel in self._away.values() for back in parcel]:
            if not back.done():
                back.set_result(fault)
        self._away.clear()
        self._dispatch()

    def _rows_in_next(self) -> int:
        # Doubled after every judge has had one of a size.
        return min(MOST_ROWS, FIRST_ROWS << min(self.sent // self._judges, 16))

    def _dispatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [(row, back) for row, back in self._waiting if not back.done()]
        self._waiting, self._chars = [], 0
        if self._fault is not None:
            for _, back in waiting:
                back.set_result(self._fault)
        elif waiting:
            number = self.sent
            self.sent += 1
            self._away[number] = [back for _, back in waiting]
            self._send(number, [row for row, _ in waiting])


class Post:
    """Hands parcels out in the order of their numbers, and keeps each until its outcomes have arrived.

    Whoever takes them may begin again from the first, as a task does that is started anew: what has been answered is
    given as nothing then, and all else once more. On one event loop.
    """

    def __init__(self) -> None:
        self._parcels: dict[int, bytes] = {}
        self._starts: Counter[int] = Counter()
        self._count = 0
        self._ended = False
        self._changed = asyncio.Condition()

    async def put(self, number: int, parcel: bytes) -> None:
        """Take in the parcel `number`."""
        async with self._changed:
            self._parcels[number] = parcel
            self._count = max(self._count, number + 1)
            self._changed.notify_all()

    async def answered(self, number: int) -> None:
        """The outcomes of parcel `number` are there."""
        async with self._changed:
            self._parcels.pop(number, None)
            self._starts.pop(number, None)

    async def end(self) -> None:
        """There are no more parcels."""
        async with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def get(self, number: int) -> bytes | None:
        """Parcel `number`, as soon as it is there: empty where it is answered, None after the last."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._ended or number in self._parcels or number < self._count
            )
            if number >= self._count:
                return None
            return self._parcels.get(number, b"")

    async def begin(self, number: int) -> int:
        """Parcel `number` is begun: how many times it has been, this one included."""
        self._starts[number] += 1
        return self._starts[number]


async def judge_parcel(rows: Sequence[Row], judge_row: JudgeRow, *, at_once: int) -> list[Outcome]:
    """What becomes of each row, in their order.

    Args:
        rows: of one parcel.
        judge_row: judges one row.
        at_once: how many are in work at a time.
    """
    room = asyncio.Semaphore(at_once)

    async def outcome(row: Row) -> Outcome:
        async with room:
            try:
                return await judge_row(row)
            except JudgeLocalError as error:
                return error
            except Exception as error:  # noqa: BLE001 # It has to travel, and only ours are known to.
                return JudgeLocalError("judging", f"unforeseen {type(error).__name__}: {excerpt(str(error))}")

    return list(await asyncio.gather(*map(outcome, rows)))


def given_up(rows: Sequence[Row]) -> list[Outcome]:
    """The outcomes of a parcel whose process died each time."""
    fault = EngineCrashedError(
        "ray",
        f"the process that judged this row and those with it died {STARTS} times",
        "Look into Ray's logs on that machine, for memory above all; --retry-errors judges them again.",
    )
    return [fault] * len(rows)
