"""The panel: N slots asked at once, and exactly N labelled results within a hard budget.

Conventions:

* One result for each occurrence of a slot, ever. What comes after the budget is dropped.
* A failed call is the target's fault and degrades its slot. Whatever else the caller's functions raise is a bug of the
  caller's, and propagates as it is; nothing is made up to hide it.
* Each slot is a task of ours, its *seat*, below which the caller's call runs in another. A seat ends within a few turns
  of the loop once it is cancelled, whatever the call does.
* A call that blocks the event loop's own thread cannot be bounded by anything on that loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

from judge_local.errors import BudgetExpiredError, CallCancelledError, CallTimeoutError, NumberError, excerpt
from judge_local.resilience import RetryOptions, check_seconds, observe, settle, with_retry, with_timeout

T = TypeVar("T")
"""What a panel gives for each slot."""
A = TypeVar("A")
"""What a call answers, before `decorate`."""
M = TypeVar("M")
"""A target: whoever is called."""

LAST_TURNS: Final = 6
"""Turns of the loop between the budget and the return, in which a plain call that is cancelled ends; the rest end later."""

_log: Final = logging.getLogger(__name__)


class Via(StrEnum):
    """How a slot came by its result."""

    REAL = "real"
    """Its own target answered."""
    SUBSTITUTE = "substitute"
    """Another target answered in its place."""
    FALLBACK = "fallback"
    """Nobody answered; the result is made by the caller's `fallback`."""


class FallbackCause(StrEnum):
    """Why a slot has a fallback."""

    UNKNOWN_SLOT = "unknown-slot"
    """`resolve_slot` knows no target for it."""
    ONLINE_FAILURE = "online-failure"
    """Its target was called and failed, or gave nothing usable."""
    OFFLINE_FAILURE = "offline-failure"
    """Its target was offline, and no substitute answered."""
    BUDGET = "budget"
    """Time ran out."""


@dataclass(frozen=True, slots=True)
class PanelResult(Generic[T]):
    """The one result of one slot."""

    slot: str
    via: Via
    result: T


async def run_panel(
    *,
    slots: Sequence[str],
    budget_seconds: float,
    retry: RetryOptions,
    resolve_slot: Callable[[str], M | None],
    is_online: Callable[[M], bool],
    target_key: Callable[[M], Hashable],
    describe_target: Callable[[M], str],
    call_timeout_seconds: Callable[[M], float],
    call: Callable[[M], Awaitable[A | None]],
    decorate: Callable[[A, M, Via, str], T],
    fallback: Callable[[str, FallbackCause], T],
    find_substitute: Callable[[frozenset[Hashable]], M | None],
    on_target_error: Callable[[M, Exception], object] | None = None,
    on_result: Callable[[PanelResult[T], int, int], object] | None = None,
    on_budget_exceeded: Callable[[BudgetExpiredError, list[PanelResult[T]]], object] | None = None,
) -> list[PanelResult[T]]:
    """Ask all slots at once, and resolve with one labelled result for each within the budget.

    A target that is offline, or whose call raised after its retries, is substituted once. The substitute gets the same
    retries and its own timeout; when it fails too, the slot falls back. One that answered None falls back at once.

    Args:
        slots: who has a seat; a slot that stands twice gets two results.
        budget_seconds: for the whole panel, above 0. At its end calls in flight are cancelled, and slots without a
            result get their fallback, in the order of `slots`.
        retry: for each target.
        resolve_slot: the slot's own target, or None when there is none. Asked once for each occurrence, before any
            call.
        is_online: whether to call the target at all.
        target_key: what makes two targets the same; a target is never used twice as a substitute, nor beside its own
            slot.
        describe_target: its name, for the error of a call that takes too long.
        call_timeout_seconds: how long one attempt may take.
        call: asks the target; awaited. None is no usable answer; anything else is one, 0 and "" and [] too.
        decorate: makes the result from (answer, target, via, slot).
        fallback: makes the result from (slot, cause) where nobody answered. One that raises is asked again for
            `online-failure`; after the budget, and when it raises again, what it raises propagates.
        find_substitute: a target whose key is not among those given, or None.
        on_target_error: told (target, error) once for each slot whose own target failed, after its retries.
        on_result: told (result, completed, total) of each result as it lands, those made after the budget too.
        on_budget_exceeded: told (error, results so far) when time runs out.

    The last three only observe: what they raise is logged and swallowed.

    Returns:
        As many results as slots, in the order in which they landed.

    Raises:
        NumberError: the budget is not finite and above 0. It is a `ValueError`.
        CancelledError: the task that awaits this was cancelled; so is every call, and none is begun.
        Exception: what `resolve_slot`, `is_online`, `target_key`, `describe_target`, `call_timeout_seconds`,
            `find_substitute` or `decorate` raised, as it was; every call is cancelled.
    """
    panel = _Panel(
        slots=tuple(slots),
        budget_seconds=check_budget(budget_seconds),
        retry=retry,
        resolve_slot=resolve_slot,
        is_online=is_online,
        target_key=target_key,
        describe_target=describe_target,
        call_timeout_seconds=call_timeout_seconds,
        call=call,
        decorate=decorate,
        fallback=fallback,
        find_substitute=find_substitute,
        on_target_error=on_target_error,
        on_result=on_result,
        on_budget_exceeded=on_budget_exceeded,
    )
    return await panel.run()


@dataclass(frozen=True, slots=True)
class _Failed:
    """A call that raised, after its retries."""

    error: Exception


@dataclass(slots=True, kw_only=True)
class _Panel(Generic[T, A, M]):
    """One panel from its start to its end: what the caller gave, and what has landed."""

    slots: tuple[str, ...]
    budget_seconds: float
    retry: RetryOptions
    resolve_slot: Callable[[str], M | None]
    is_online: Callable[[M], bool]
    target_key: Callable[[M], Hashable]
    describe_target: Callable[[M], str]
    call_timeout_seconds: Callable[[M], float]
    call: Callable[[M], Awaitable[A | None]]
    decorate: Callable[[A, M, Via, str], T]
    fallback: Callable[[str, FallbackCause], T]
    find_substitute: Callable[[frozenset[Hashable]], M | None]
    on_target_error: Callable[[M, Exception], object] | None
    on_result: Callable[[PanelResult[T], int, int], object] | None
    on_budget_exceeded: Callable[[BudgetExpiredError, list[PanelResult[T]]], object] | None

    results: list[PanelResult[T]] = field(default_factory=list)
    """In the order in which they landed."""
    open: set[int] = field(default_factory=set)
    """Indices of slots without a result."""
    used: set[Hashable] = field(default_factory=set)
    """Keys of all targets that have a part in this panel."""
    sealed: bool = False
    """Whether it is over, so that no seat may land anything more."""
    deadline: float = math.inf
    """On the loop's clock."""
    cancelled: Callable[[], bool] = bool
    """Whether somebody asked the task that awaits the panel to end."""

    async def run(self) -> list[PanelResult[T]]:
        loop = asyncio.get_running_loop()
        self.deadline = loop.time() + self.budget_seconds
        self.cancelled = _cancellation()
        self.open = set(range(len(self.slots)))
        targets = [self.resolve_slot(slot) for slot in self.slots]
        self.used = {self.target_key(target) for target in targets if target is not None}
        seats = [
            loop.create_task(self._seat(index, slot, target))
            for index, (slot, target) in enumerate(zip(self.slots, targets, strict=True))
        ]
        if not seats:
            return []
        try:
            _, pending = await asyncio.wait(
                seats,
                timeout=max(0.0, self.deadline - loop.time()),
                return_when=asyncio.FIRST_EXCEPTION,
            )
        except asyncio.CancelledError:
            await self._end(seats)
            raise
        bug = next((e for seat in seats if (e := _raised_by(seat)) is not None), None)
        if bug is not None:
            await self._end(seats)
            raise bug
        if pending:
            return await self._expire(seats)
        self._fill(FallbackCause.ONLINE_FAILURE)  # Somebody else cancelled a seat.
        return self.results

    async def _seat(self, index: int, slot: str, target: M | None) -> None:
        if target is None:
            self._fall_back(index, slot, FallbackCause.UNKNOWN_SLOT)
            return
        cause = FallbackCause.OFFLINE_FAILURE
        if self.is_online(target):
            cause = FallbackCause.ONLINE_FAILURE
            answer = await self._ask(target)
            if answer is None:
                self._fall_back(index, slot, cause)
                return
            if not isinstance(answer, _Failed):
                self._land(index, Via.REAL, self.decorate(answer, target, Via.REAL, slot))
                return
            if self.on_target_error is not None:
                observe(self.on_target_error, target, answer.error)
        substitute = self._claim_substitute()
        if substitute is not None:
            answer = await self._ask(substitute)
            if answer is not None and not isinstance(answer, _Failed):
                self._land(index, Via.SUBSTITUTE, self.decorate(answer, substitute, Via.SUBSTITUTE, slot))
                return
        self._fall_back(index, slot, cause)

    async def _ask(self, target: M) -> A | _Failed | None:
        """What `target` answers, with its retries. Only what the call itself raises is a failure."""
        seconds = check_seconds("call_timeout_seconds", self.call_timeout_seconds(target))
        name = str(self.describe_target(target))

        def too_late(message: str) -> CallTimeoutError:
            return CallTimeoutError(name, message, "Allow more time for a call.")

        async def attempt() -> A | None:
            if self._is_over():
                await asyncio.get_running_loop().create_future()  # Until the seat is cancelled, which is due.
            problem = f"no answer within {seconds:g} s"
            return await with_timeout(lambda: self._called(target), seconds, problem, too_late)

        try:
            return await with_retry(attempt, self.retry)
        except Exception as error:  # noqa: BLE001 # A call may raise what it likes.
            return _Failed(error)

    async def _called(self, target: M) -> A | None:
        try:
            return await self.call(target)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Left as it is, it would pass for our own cancellation, and the slot would stay empty.
            raise CallCancelledError("call", "it ended as cancelled although nobody cancelled it") from error

    def _claim_substitute(self) -> M | None:
        substitute = self.find_substitute(frozenset(self.used))
        if substitute is None:
            return None
        key = self.target_key(substitute)
        if key in self.used:
            return None
        self.used.add(key)
        return substitute

    def _fall_back(self, index: int, slot: str, cause: FallbackCause) -> None:
        try:
            result = self.fallback(slot, cause)
        except Exception:  # noqa: BLE001 # It has a second chance, and what it raises then propagates.
            _log.warning("fallback(%r, %r) crashed", slot, cause.value, exc_info=True)
            result = self.fallback(slot, FallbackCause.ONLINE_FAILURE)
        self._land(index, Via.FALLBACK, result)

    def _land(self, index: int, via: Via, result: T) -> None:
        if not self.sealed:
            self._emit(index, via, result)

    def _emit(self, index: int, via: Via, result: T) -> None:
        self.open.remove(index)
        landed = PanelResult(self.slots[index], via, result)
        self.results.append(landed)
        if self.on_result is not None:
            observe(self.on_result, landed, len(self.results), len(self.slots))

    async def _expire(self, seats: Sequence[asyncio.Task[None]]) -> list[PanelResult[T]]:
        self.sealed = True
        for seat in seats:
            seat.cancel()
        if self.on_budget_exceeded is not None:
            error = BudgetExpiredError(
                "panel",
                f"{len(self.results)} of {len(self.slots)} results came within {self.budget_seconds:g} s",
                "Allow more time, or ask fewer.",
            )
            observe(self.on_budget_exceeded, error, list(self.results))
        try:
            self._fill(FallbackCause.BUDGET)
        finally:
            await settle(seats, LAST_TURNS)
        return self.results

    def _fill(self, cause: FallbackCause) -> None:
        for index in sorted(self.open):
            self._emit(index, Via.FALLBACK, self.fallback(self.slots[index], cause))

    async def _end(self, seats: Sequence[asyncio.Task[None]]) -> None:
        """Cancel all seats, and let what heeds it end."""
        self.sealed = True
        for seat in seats:
            seat.cancel()
        await settle(seats)
        # They end within some turns more than theirs that do not heed it.
        await asyncio.wait(seats)

    def _is_over(self) -> bool:
        return self.sealed or self.cancelled() or asyncio.get_running_loop().time() >= self.deadline


def check_budget(seconds: Any) -> float:
    """`seconds`, which must be finite and above 0.

    Raises:
        NumberError: it is not.
    """
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not math.isfinite(seconds) or seconds <= 0:
        raise NumberError(
            "budget_seconds",
            f"{excerpt(seconds)} is not a finite number above 0",
            "Say how long it may take.",
        )
    return float(seconds)


def _cancellation() -> Callable[[], bool]:
    """Whether the running task is asked to end from now on."""
    task = asyncio.current_task()
    if task is None:
        return bool
    before = task.cancelling()
    return lambda: task.cancelling() > before


def _raised_by(seat: asyncio.Task[None]) -> BaseException | None:
    return seat.exception() if seat.done() and not seat.cancelled() else None
