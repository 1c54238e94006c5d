"""Deadlines and cancellation: what stops a decode that is already running, and which requests it was about.

llama.cpp runs for seconds in one call and looks at nothing but the abort flag. One thread sleeps until the earliest
deadline among the requests being worked on, or until a cancellation or the end of the process, and raises the flag.
The scheduler then drops the requests that are over, lowers the flag, and goes on with the rest.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from judge_local.errors import DeadlineExceededError


class Flag(Protocol):
    """What stops the decode in progress while it is up."""

    def raise_(self) -> None:
        """Stop."""

    def lower(self) -> None:
        """Go on."""


class Interrupter:
    """Knows which requests are over. Called from the reader's and the scheduler's thread; the lock protects all fields.

    Args:
        flag: stops the decode in progress.
        on_begun: told, from the scheduler's thread, of requests that are about to be decoded for the first time.
    """

    def __init__(self, flag: Flag, on_begun: Callable[[Sequence[str]], None] = lambda _ids: None) -> None:
        self._flag = flag
        self._on_begun = on_begun
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self._deadlines: dict[str, float] = {}
        """Every request that was read and not yet answered, with the instant its time ends (infinity for none)."""
        self._cancelled: set[str] = set()
        self._watched: frozenset[str] = frozenset()
        self._closing = False
        self.machine_taken = False
        """Whether another process holds the machine, so that nothing can be decoded here. Said by the scheduler's thread."""
        self._thread = threading.Thread(target=self._sleep, name="deadlines", daemon=True)
        self._thread.start()

    @property
    def closing(self) -> bool:
        """Whether the worker is to end."""
        return self._closing

    def expect(self, request: str, seconds: float | None) -> None:
        """A request was read; its time runs from now."""
        with self._changed:
            self._deadlines[request] = math.inf if seconds is None else time.monotonic() + seconds

    def cancel(self, requests: Iterable[str]) -> None:
        """These are no longer wanted, whether waiting or running. One that was answered already is nothing to cancel."""
        with self._changed:
            self._cancelled.update(self._deadlines.keys() & set(requests))
            if self._cancelled & self._watched:
                self._flag.raise_()

    def close(self) -> None:
        """End everything: the flag goes up and stays up."""
        with self._changed:
            self._closing = True
            self._flag.raise_()
            self._changed.notify()

    def watch(self, requests: Iterable[str]) -> None:
        """These are being decoded: only their deadlines and cancellations may stop the decode."""
        watched = frozenset(requests)
        if new := sorted(watched - self._begun):
            self._begun.update(new)
            self._on_begun(new)
        with self._changed:
            self._watched = watched
            if not self._closing:
                self._flag.lower()
            if self._over() & self._watched:
                self._flag.raise_()
            self._changed.notify()

    def is_cancelled(self, request: str) -> bool:
        """Whether nobody wants the answer any more."""
        return self._closing or request in self._cancelled

    def is_over(self, request: str) -> bool:
        """Whether it is cancelled, or its deadline has passed."""
        return self.is_cancelled(request) or time.monotonic() >= self._deadlines.get(request, math.inf)

    def lateness(self, written: str) -> DeadlineExceededError:
        """The error of a request whose deadline has passed: what the time went by with, and what was `written`."""
        if self.machine_taken:
            return DeadlineExceededError(
                "request",
                f"its time ran out while another process was judging on this machine; {written}",
                "Give it more time, or try again when the other is done.",
            )
        return DeadlineExceededError(
            "request", f"its time ran out; {written}", "Give it more time or use a faster model."
        )

    def settle(self, request: str) -> None:
        """Forget a request that has been answered."""
        with self._changed:
            self._deadlines.pop(request, None)
            self._cancelled.discard(request)
            self._begun.discard(request)
            self._watched -= {request}

    def _over(self) -> set[str]:
        now = time.monotonic()
        return self._cancelled | {request for request, at in self._deadlines.items() if at <= now}

    def _sleep(self) -> None:
        with self._changed:
            while not self._closing:
                due = min((self._deadlines.get(r, math.inf) for r in self._watched), default=math.inf)
                left = due - time.monotonic()
                if left > 0:
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                self._flag.raise_()
                # The scheduler answers with `watch`; until then there is nothing more to do.
                self._changed.wait()
