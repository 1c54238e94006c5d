"""Resilience: a call that may fail is made again, and a call that may hang is left at its time.

Conventions:

* All times are in seconds, on the event loop's own clock.
* Cancelling the task that awaits one of these cancels the work below it, down to the call itself.
* Work that ignores its cancellation is left behind, its outcome read and dropped; nobody waits for it. Work that heeds
  it is over when the call returns.
* An observer's crash is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from judge_local.errors import CallTimeoutError, NumberError, excerpt
from judge_local.failures import ErrorCategory, categorize_error, is_retryable

__all__ = [
    "ErrorCategory",
    "RetryAttempt",
    "RetryOptions",
    "categorize_error",
    "check_seconds",
    "is_retryable",
    "observe",
    "settle",
    "with_retry",
    "with_timeout",
]

T = TypeVar("T")

SETTLE_TURNS: Final = 16
"""Turns of the event loop, not time, in which cancelled work may end; each nested `await` of its cleaning up takes one."""

GRACE_SECONDS: Final = 0.02
"""How long whoever cancels a call waits for work that takes a moment to end, to close a connection for one."""

_left: set[asyncio.Future[Any]] = set()
"""Work that ignored its cancellation. The loop itself holds tasks only weakly, and one that vanishes is reported."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """How often a call is made, and how long to wait in between.

    After attempt k the wait is `base_delay_seconds` * 2 ** (k - 1), plus up to half of `base_delay_seconds` by chance so
    that callers who failed together do not come back together, and never more than `max_delay_seconds`.

    Raises:
        NumberError: less than one attempt, a delay that is negative or not finite, or a longest delay below the first.
    """

    max_attempts: int
    """The first one included; 1 is no retry."""
    base_delay_seconds: float
    max_delay_seconds: float

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
            raise NumberError("max_attempts", f"{excerpt(attempts)} is not a whole number of at least 1")
        for name in ("base_delay_seconds", "max_delay_seconds"):
            if not math.isfinite(check_seconds(name, getattr(self, name))):
                raise NumberError(name, f"{getattr(self, name)} is not finite")
        if self.max_delay_seconds < self.base_delay_seconds:
            raise NumberError(
                "max_delay_seconds",
                f"{self.max_delay_seconds:g} is less than base_delay_seconds, {self.base_delay_seconds:g}",
                "Raise it.",
            )

    def delay_seconds(self, attempt: int, chance: float = 0.0) -> float:
        """The wait after `attempt`.

        Args:
            attempt: which attempt failed, from 1.
            chance: 0..1, the share of the jitter.

        >>> RetryOptions(5, 1.0, 5.0).delay_seconds(1), RetryOptions(5, 1.0, 5.0).delay_seconds(3, 0.5)
        (1.0, 4.25)
        """
        doubled = self.base_delay_seconds * 2.0 ** min(attempt - 1, 1000)  # Beyond it a float overflows.
        return min(self.max_delay_seconds, doubled + chance * self.base_delay_seconds / 2)


@dataclass(frozen=True, slots=True)
class RetryAttempt:
    """A failed attempt that another will follow."""

    attempt: int
    """Which attempt failed, from 1."""
    max_attempts: int
    delay_seconds: float
    """How long is waited before the next."""
    error: Exception


async def with_retry(
    fn: Callable[[], Awaitable[T]],
    options: RetryOptions,
    *,
    on_retry: Callable[[RetryAttempt], object] | None = None,
) -> T:
    """Await `fn()` until it succeeds, its error is not retryable, or the attempts are used up.

    An error that carries `retry_after_seconds`, as a server's Retry-After does, is waited for at least that long; when
    that is longer than `max_delay_seconds`, the error is final: coming back earlier would be refused again.

    Args:
        fn: makes one attempt; called anew for each.
        options: how often, and the waits in between.
        on_retry: told before each wait; its crash is logged and swallowed.

    Raises:
        CancelledError: the task was cancelled; at once, in the middle of a wait too.
        Exception: the error of the last attempt, as it was.
    """
    before = _cancels()
    for attempt in range(1, options.max_attempts + 1):
        try:
            return await fn()
        except Exception as error:
            if _cancels() > before:  # The call turned its cancellation into an error.
                raise asyncio.CancelledError from error
            asked = _retry_after(error)
            delay = max(options.delay_seconds(attempt, random.random()), asked)
            last = attempt == options.max_attempts or asked > options.max_delay_seconds
            if last or not is_retryable(error):
                raise
            if on_retry is not None:
                observe(on_retry, RetryAttempt(attempt, options.max_attempts, delay, error))
        await asyncio.sleep(delay)
    raise AssertionError  # The last attempt returns or raises.


async def with_timeout(
    awaitable_or_factory: Awaitable[T] | Callable[[], Awaitable[T]],
    seconds: float,
    message: str | None = None,
    error_factory: Callable[[str], BaseException] | None = None,
) -> T:
    """The result of the work, or an error at its time, whatever the work does with its cancellation.

    Args:
        awaitable_or_factory: a coroutine, a task or future, or a function that makes one. It is cancelled when its time
            is over, and when the task that awaits this is cancelled.
        seconds: how long the work may take; 0 is at once, so that work that is not done already never begins. Infinity
            is no limit.
        message: of the error.
        error_factory: makes the error to raise from `message`.

    Raises:
        NumberError: `seconds` is negative or NaN; the work is not begun.
        CallTimeoutError: the time is over, and there is no `error_factory`.
        Exception: what the work raised.
    """
    try:
        check_seconds("seconds", seconds)
    except NumberError:
        _dismiss(awaitable_or_factory)
        raise
    done = isinstance(awaitable_or_factory, asyncio.Future) and awaitable_or_factory.done()
    if seconds == 0 and not done:
        _dismiss(awaitable_or_factory)
        raise _timed_out(seconds, message, error_factory)
    work = _begin(awaitable_or_factory)
    try:
        await asyncio.wait({work}, timeout=None if seconds == math.inf else seconds)
        if not work.done():
            await _cancel(work)
            raise _timed_out(seconds, message, error_factory)
    except asyncio.CancelledError:
        await _cancel(work)
        if not work.done():
            await asyncio.wait({work}, timeout=GRACE_SECONDS)
        raise
    return work.result()


def check_seconds(name: str, seconds: float) -> float:
    """`seconds`, which must be a number of at least 0; infinity is one.

    Raises:
        NumberError: it is negative, NaN, or no number.
    """
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not seconds >= 0:
        raise NumberError(name, f"{excerpt(seconds)} is not a number of seconds", "Give 0 or more.")
    return seconds


def observe(observer: Callable[..., object], *told: object) -> None:
    """Call an observer of the caller's. What it raises is logged, and changes nothing for who is observed."""
    try:
        observer(*told)
    # It is called, not awaited, so a CancelledError of its own is no cancellation of ours.
    except (Exception, asyncio.CancelledError):  # noqa: BLE001 # An observer may raise what it likes; it is logged.
        _log.warning("%r crashed; it only observes, so nothing else changes", observer, exc_info=True)


async def settle(works: Iterable[asyncio.Future[Any]], turns: int = SETTLE_TURNS) -> None:
    """Let cancelled work end, for some turns of the loop and no time. What does not is kept track of and left alone."""
    waiting = list(works)
    for work in waiting:
        work.add_done_callback(_drop_outcome)
        if not work.done():
            _left.add(work)
            work.add_done_callback(_left.discard)
    for _ in range(turns):
        if all(work.done() for work in waiting):
            return
        await asyncio.sleep(0)


async def _cancel(work: asyncio.Future[Any]) -> None:
    work.cancel()
    await settle([work])


def _begin(work: Awaitable[T] | Callable[[], Awaitable[T]]) -> asyncio.Future[T]:
    return asyncio.ensure_future(work if isinstance(work, Awaitable) else work())


def _cancels() -> int:
    """How often the running task has been asked to end, as far as nobody took that back."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _drop_outcome(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()  # Looked at, so that asyncio does not report it as never retrieved.


def _dismiss(work: Any) -> None:
    """End work that is not going to be awaited, so that nothing warns of it."""
    if inspect.iscoroutine(work):
        work.close()
    elif isinstance(work, asyncio.Future):
        work.cancel()
        work.add_done_callback(_drop_outcome)


def _timed_out(
    seconds: float, message: str | None, error_factory: Callable[[str], BaseException] | None
) -> BaseException:
    text = f"it took longer than {seconds:g} s" if message is None else message
    return CallTimeoutError("call", text.removesuffix(".")) if error_factory is None else error_factory(text)


def _retry_after(error: Exception) -> float:
    asked: Any = getattr(error, "retry_after_seconds", None)
    number = isinstance(asked, int | float) and not isinstance(asked, bool)
    return float(asked) if number and asked >= 0 else 0.0
