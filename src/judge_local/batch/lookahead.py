"""Rows read ahead in a thread of their own, and handed out in the order in which they are judged fastest.

* What has been read and not handed out is a window: rows in it about the subject of the last row come next, else the
  one that was read first. A window rather than a sort: the first row is judged while the millionth has not been read,
  and a slow pipe keeps nobody waiting.
* The window is bounded in rows and in characters, so that memory is flat however many rows there are.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from judge_local.batch.rows import BadRow, Row

WINDOW_ROWS: Final = 512
WINDOW_CHARS: Final = 8_000_000
"""Of subjects. A single one may be longer; then it is alone in the window."""


class Window:
    """Rows that wait, by subject. Not for several threads at once."""

    def __init__(self) -> None:
        self._groups: dict[str, deque[Row]] = {}
        self._bad: deque[BadRow] = deque()
        self._last: str | None = None
        self.count = 0
        """How many rows wait."""
        self._chars = 0

    @property
    def full(self) -> bool:
        """Whether no more should be read."""
        return self.count >= WINDOW_ROWS or self._chars >= WINDOW_CHARS

    def put(self, row: Row | BadRow) -> None:
        """Take in a row."""
        self.count += 1
        if isinstance(row, BadRow):
            self._bad.append(row)
            return
        subject = row.subject or ""
        if subject not in self._groups:
            self._groups[subject] = deque()
            self._chars += len(subject)
        self._groups[subject].append(row)

    def take(self) -> Row | BadRow | None:
        """The row that is next; None where none waits. Bad rows go ahead: they cost nothing."""
        if not self.count:
            return None
        self.count -= 1
        if self._bad:
            return self._bad.popleft()
        if self._last not in self._groups:
            self._last = next(iter(self._groups))  # A dict keeps its order: it has waited longest.
        group = self._groups[self._last]
        row = group.popleft()
        if not group:
            del self._groups[self._last]
            self._chars -= len(self._last)
        return row


class LookAhead:
    """Reads `rows` in a thread, and hands them out on the event loop that it was made on.

    Args:
        rows: are iterated in the thread; whatever they raise is kept as `error`, after all that came before.
    """

    def __init__(self, rows: Iterable[Row | BadRow]) -> None:
        self._rows = rows
        self._loop = asyncio.get_running_loop()
        self._window = Window()
        # Protects the window, the waiting and the two below: the thread fills, the loop empties.
        self._changed = threading.Condition()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ended = self._complete = self._stopped = False
        self.error: BaseException | None = None
        """What ended the reading before the last row; known once `next` has given None."""
        threading.Thread(target=self._read, name="rows", daemon=True).start()

    @property
    def exhausted(self) -> bool:
        """Whether every row has been read and handed out."""
        with self._changed:
            return self._complete and not self._window.count

    async def next(self) -> Row | BadRow | None:
        """The row to judge next; None after the last one, and after `stop`."""
        while True:
            with self._changed:
                if self._stopped:
                    return None
                row = self._window.take()
                if row is not None:
                    self._changed.notify()
                    return row
                if self._ended:
                    return None
                waiting = self._loop.create_future()
                self._waiting.append(waiting)
            await waiting

    def stop(self) -> None:
        """Hand out no more rows."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
            self._wake(len(self._waiting))

    def _read(self) -> None:
        try:
            for row in self._rows:
                with self._changed:
                    while self._window.full and not self._stopped:
                        self._changed.wait()
                    if self._stopped:
                        return
                    self._window.put(row)
                    self._wake(1)
            self._complete = True
        except BaseException as error:  # noqa: BLE001 # It is raised where the rows are awaited.
            self.error = error
        finally:
            close = getattr(self._rows, "close", None)
            if close is not None:
                close()  # A generator holds a file open.
            with self._changed:
                self._ended = True
                self._wake(len(self._waiting))

    def _wake(self, count: int) -> None:
        """Let some of those who wait look again."""
        for _ in range(min(count, len(self._waiting))):
            waiting = self._waiting.popleft()
            # A loop that is closed has nobody waiting any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_look_again, waiting)


def _look_again(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
