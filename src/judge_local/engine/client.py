"""The caller's side of the worker: starts it, lets requests through to it in turn, and starts it again when it died.

Imports no llama.cpp. One client is one model; its worker is started with the first submission, again after a death, and
ended with the client or with this process. Usable from any thread and any event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from judge_local.engine.deaths import DEATHS_ALLOWED, Record, blamed
from judge_local.engine.patience import DEFAULT, Patience
from judge_local.engine.process import NOT_BEGUN, Outcome, Say, WorkerProcess
from judge_local.engine.protocol import Facts, Generate, Settings
from judge_local.engine.turns import Turns, pieces
from judge_local.errors import DeadlineExceededError, EngineCrashedError, EngineError, JudgeLocalError
from judge_local.resilience import observe


class EngineClient:
    """A model behind a worker process.

    Args:
        settings: how the worker loads and runs.
        say: gets lines for a person (loading, waiting, restarted), from any thread.
        patience: after what a worker counts as hung.
    """

    def __init__(self, settings: Settings, *, say: Say | None = None, patience: Patience = DEFAULT) -> None:
        self._settings = settings
        self._say: Say = say or (lambda _text: None)
        self._lock = threading.Lock()  # Protects `_slot`: two threads must not start two workers.
        self._slot = _Slot()
        self._ids = itertools.count()
        self._record = Record()
        self._turns = Turns()
        self._patience = patience
        self._epoch = 0
        """Counts the calls of `close`: what waited before one is not to start a worker after it."""
        # A client that is dropped without `close` takes its worker with it.
        weakref.finalize(self, self._slot.close)

    def start(self) -> None:
        """Begin loading the model, without waiting for it."""
        self._running()

    async def facts(self) -> Facts:
        """What the worker says of the model; starts it when it is not there.

        Raises:
            ModelFileError, ChatTemplateError: the model cannot be used.
            EngineCrashedError: the worker died while loading.
        """
        return await _loaded(await self._awake())

    async def submit(
        self, requests: Sequence[Generate], deadlines: Sequence[float | None]
    ) -> tuple[list[Outcome], Facts]:
        """Answers to `requests`, in their order, and what the worker that was asked said of the model.

        Each is an answer or an error. Cancelling the task cancels the work. Requests beyond what the worker is given at
        once wait here, in turn with those of other callers; see `turns`.

        Args:
            requests: what is asked; their `seconds` are filled in here.
            deadlines: for each, a `time.monotonic()` instant or None. Loading the model and waiting count.

        Raises:
            ModelFileError, ChatTemplateError: the model cannot be used.
            EngineCrashedError: the worker died while loading.
            DeadlineExceededError: every deadline passed before the model was loaded.
        """
        epoch = self._epoch
        worker = await self._awake()
        last = None if None in deadlines else max((at for at in deadlines if at is not None), default=None)
        try:
            async with asyncio.timeout(None if last is None else max(0.0, last - time.monotonic())):
                facts = await _loaded(worker)
        except TimeoutError:
            raise DeadlineExceededError(
                "engine", "the time ran out while the model was loading", "Give it more time."
            ) from None
        asked = [_Asked(request, at) for request, at in zip(requests, deadlines, strict=True)]
        # One piece stands in line at a time, so that a caller with many does not keep out those who come after it.
        place = asyncio.Lock()
        await asyncio.gather(*(self._answer(piece, place, epoch) for piece in pieces(asked)))
        return [_outcome(one) for one in asked], facts

    async def _answer(self, piece: Sequence[_Asked], place: asyncio.Lock, epoch: int) -> None:
        """Fill in the outcomes of `piece`, through as many workers as it takes."""
        for _ in range(DEATHS_ALLOWED):
            async with place:
                await self._turn([one for one in piece if one.outcome is None])
            left = [one for one in piece if one.outcome is None]
            if not left:
                return
            given = 0
            try:
                # What `close` ended must not start a worker again.
                if epoch != self._epoch:
                    raise EngineError("engine", "closed while the run waited")
                worker = await self._awake()
                await _loaded(worker)
                for one in left:
                    if self._record.is_to_blame(one.request):
                        one.outcome = blamed()
                sent = [one for one in left if one.outcome is None]
                given = len(sent)
                await _through(worker, sent)
            except JudgeLocalError as error:
                _end_all(left, error)
            finally:
                # What was given to the worker leaves when the worker is done with it.
                if given != len(left):
                    self._turns.leave(len(left) - given)
            if all(one.outcome is not None for one in piece):
                return
        _end_all(
            piece,
            EngineCrashedError(
                "engine",
                f"{DEATHS_ALLOWED} worker processes in a row ended before they had begun this run",
                "Try it alone; if it fails again, report it.",
            ),
        )

    async def _turn(self, piece: Sequence[_Asked]) -> None:
        """Wait until `piece` may be given to the worker; those whose time runs out meanwhile end here."""
        wanted = list(piece)
        if not wanted:
            return
        ticket = self._turns.ask(len(wanted))
        try:
            while not ticket.granted.done():
                due = min((one.deadline for one in wanted if one.deadline is not None), default=None)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(0.0, due - time.monotonic())):
                        await _done(ticket.granted)
                        return
                late = [
                    one for one in wanted if one.deadline is not None and one.deadline <= time.monotonic()
                ]
                for one in late:
                    one.outcome = DeadlineExceededError(
                        "request",
                        "its time ran out; no token was written",
                        "Give it more time or use a faster model.",
                    )
                wanted = [one for one in wanted if one not in late]
                self._turns.shrink(ticket, len(late))
                if not wanted:
                    return
        except BaseException:
            self._turns.give_up(ticket)
            raise

    async def stats(self) -> dict[str, float]:
        """What the worker has done since it started, in counts and seconds; see `Scheduler.totals`.

        Raises:
            EngineCrashedError: the worker died.
        """
        worker = await self._awake()
        await _loaded(worker)
        return await asyncio.wrap_future(worker.ask_stats())

    def next_id(self) -> str:
        """An id no other request of this client has."""
        return str(next(self._ids))

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None when none runs."""
        worker = self._slot.worker
        return worker.process.pid if worker is not None and not worker.is_gone() else None

    def close(self) -> None:
        """End the worker. A later submission starts a new one."""
        with self._lock:
            self._epoch += 1
            self._slot.close()

    async def _awake(self) -> WorkerProcess:
        """The worker; started when there is none, after a wait when the ones before it died."""
        if self.pid is None:
            await asyncio.sleep(self._record.back_off())
        return self._running()

    def _running(self) -> WorkerProcess:
        with self._lock:
            slot = self._slot
            if slot.worker is not None and slot.worker.is_gone():
                if slot.worker.has_refused():
                    # The fault is of the model or the settings: another worker would say the same.
                    return slot.worker
                observe(self._say, "the engine died and is started again")
                slot.close()
            if slot.worker is None:
                slot.worker = WorkerProcess(
                    self._settings,
                    say=self._say,
                    record=self._record,
                    patience=self._patience,
                    settled=self._turns.leave,
                )
            return slot.worker


@dataclass(slots=True)
class _Slot:
    """Where a client keeps its worker: a thing of its own, so that a finaliser can reach it without the client."""

    worker: WorkerProcess | None = None

    def close(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()


@dataclass(slots=True, eq=False)
class _Asked:
    """A request on its way through the client."""

    request: Generate
    deadline: float | None
    """A `time.monotonic()` instant."""
    outcome: Outcome | None = field(default=None)


def _outcome(one: _Asked) -> Outcome:
    assert one.outcome is not None  # `_answer` has filled it in.
    return one.outcome


def _end_all(piece: Sequence[_Asked], error: JudgeLocalError) -> None:
    for one in piece:
        if one.outcome is None:
            one.outcome = error


async def _through(worker: WorkerProcess, sent: Sequence[_Asked]) -> None:
    """Give `sent` to the worker, and fill in what comes back; what it had not begun when it ended stays open."""
    now = time.monotonic()
    futures = worker.submit(
        [
            replace(one.request, seconds=None if one.deadline is None else max(0.0, one.deadline - now))
            for one in sent
        ]
    )
    try:
        for one, future in zip(sent, futures, strict=True):
            ending = await asyncio.wrap_future(future)
            one.outcome = None if ending is NOT_BEGUN else ending
    except asyncio.CancelledError:
        worker.cancel([one.request.id for one in sent])
        raise


async def _loaded(worker: WorkerProcess) -> Facts:
    await _done(worker.loaded)
    return worker.loaded.result()


async def _done(future: concurrent.futures.Future[Any]) -> None:
    """Wait until `future` is done."""
    # Not `wrap_future`: a caller that is cancelled must not cancel the loading for the others, and one whose loop has
    # ended must leave no future behind that nobody asks for its exception.
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()

    def wake(_: object) -> None:
        # A loop that is closed has nobody waiting any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ready.set)

    future.add_done_callback(wake)
    await ready.wait()
