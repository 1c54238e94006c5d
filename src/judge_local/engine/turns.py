"""Back-pressure: how many requests the worker holds at once, and who of those that wait is next.

A caller may ask for thousands of answers at once. The worker is given so many that it never runs dry; the rest stay with
their callers as text, and are let through in the order in which they came. A caller with a great many asks for a few at a
time and stands in line again for the next few, so one that comes after it does not wait for all of them.
"""

from __future__ import annotations

import collections
import concurrent.futures
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

IN_FLIGHT: Final = 128
"""Requests that the worker holds at most: several times what it decodes at once, so that it can look ahead."""

PIECE: Final = 64
"""Requests of one submission that are let through together."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Ticket:
    """A place in the line."""

    count: int
    """Requests that are to be let through together."""
    granted: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)


class Turns:
    """The line. Called from any thread; the lock protects the two fields.

    Args:
        most: requests that may be inside at once. A ticket for more than that is let through when nothing is inside.
    """

    def __init__(self, most: int = IN_FLIGHT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._line: collections.deque[Ticket] = collections.deque()
        self._inside = 0

    @property
    def inside(self) -> int:
        """Requests that were let through and have not left."""
        return self._inside

    @property
    def waiting(self) -> int:
        """Tickets in the line."""
        return len(self._line)

    def ask(self, count: int) -> Ticket:
        """Stand in line with `count` requests, at least 1; `granted` is done when they may go on."""
        ticket = Ticket(count)
        with self._lock:
            self._line.append(ticket)
        self._let_through()
        return ticket

    def leave(self, count: int = 1) -> None:
        """So many have left."""
        with self._lock:
            self._inside -= count
        self._let_through()

    def shrink(self, ticket: Ticket, count: int) -> None:
        """`count` of the ticket's requests are no longer wanted, wherever it stands."""
        with self._lock:
            ticket.count -= count
            if ticket in self._line:
                if not ticket.count:
                    self._line.remove(ticket)
            else:
                self._inside -= count
        self._let_through()

    def give_up(self, ticket: Ticket) -> None:
        """Nothing of it is wanted any more."""
        self.shrink(ticket, ticket.count)

    def _let_through(self) -> None:
        granted = []
        with self._lock:
            while self._line and (not self._inside or self._inside + self._line[0].count <= self._most):
                ticket = self._line.popleft()
                self._inside += ticket.count
                granted.append(ticket)
        # Outside the lock: whoever waits may come back here at once.
        for ticket in granted:
            ticket.granted.set_result(None)


def pieces(items: Sequence[T], size: int = PIECE) -> Iterator[Sequence[T]]:
    """`items` in order, `size` at a time.

    >>> list(pieces("abcde", 2))
    ['ab', 'cd', 'e']
    """
    for start in range(0, len(items), size):
        yield items[start : start + size]
