"""The caller's side of the worker: starts it, speaks the protocol, and turns its death into errors of the runs in flight.

Imports no llama.cpp. One client is one model; its worker is started with the first submission, again after a death, and
ended with the client or with this process. Usable from any thread and any event loop.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import io
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from judge_local.engine import protocol
from judge_local.engine.deaths import Record, blamed
from judge_local.engine.protocol import Facts, Generate, Generated, Settings
from judge_local.errors import (
    DeadlineExceededError,
    EngineCrashedError,
    EngineError,
    EngineProtocolError,
    JudgeLocalError,
    excerpt,
)
from judge_local.resilience import observe

_STDERR_LINES: Final = 20
_CLOSE_SECONDS: Final = 5.0
_INFO_SECONDS: Final = 60.0

_PATIENT: Final = {"GOMP_SPINCOUNT": "2000"}
"""Environment of the worker, where the user has not said how OpenMP's threads are to wait.

llama.cpp's threads meet hundreds of times a token. By default the first to arrive spins for about a millisecond before it
sleeps; when other programs keep the cores busy, that spinning takes the time the other threads need. A short spin keeps
the full speed of a quiet machine and most of it on a busy one. See docs/engine.md for the figures.
"""

Outcome = Generated | JudgeLocalError
Say = Callable[[str], None]
T = TypeVar("T")


def engine_info() -> dict[str, Any]:
    """What the installed llama.cpp is and can do, asked in a child process: no native code is loaded here.

    Returns:
        `version`, `system`, `gpu_offload`, `mmap`, `max_sequences`; see `binding.build_info`.

    Raises:
        EngineError: it cannot be loaded.
    """
    try:
        done = subprocess.run(
            [*_command(), "--info"], capture_output=True, text=True, timeout=_INFO_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError("engine", f"llama.cpp did not load within {_INFO_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise EngineError(
            "engine",
            f"llama.cpp does not load ({excerpt(_last_line(done.stderr))})",
            "Install llama-cpp-python again.",
        )
    info: dict[str, Any] = json.loads(done.stdout)
    return info


class EngineClient:
    """A model behind a worker process.

    Args:
        settings: how the worker loads and runs.
        say: gets lines for a person (loading, waiting, restarted), from any thread.
    """

    def __init__(self, settings: Settings, *, say: Say | None = None) -> None:
        self._settings = settings
        self._say: Say = say or (lambda _text: None)
        self._lock = threading.Lock()  # Protects `_slot`: two threads must not start two workers.
        self._slot = _Slot()
        self._ids = itertools.count()
        self._record = Record()
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

        Each is an answer or an error. Cancelling the task cancels the work.

        Args:
            requests: what is asked; their `seconds` are filled in here.
            deadlines: for each, a `time.monotonic()` instant or None. Loading the model counts.

        Raises:
            ModelFileError, ChatTemplateError: the model cannot be used.
            EngineCrashedError: the worker died while loading.
            DeadlineExceededError: every deadline passed before the model was loaded.
        """
        worker = await self._awake()
        last = None if None in deadlines else max((at for at in deadlines if at is not None), default=None)
        try:
            async with asyncio.timeout(None if last is None else max(0.0, last - time.monotonic())):
                facts = await _loaded(worker)
        except TimeoutError:
            raise DeadlineExceededError(
                "engine", "the time ran out while the model was loading", "Give it more time."
            ) from None
        now = time.monotonic()
        requests = [
            replace(request, seconds=None if at is None else max(0.0, at - now))
            for request, at in zip(requests, deadlines, strict=True)
        ]
        outcomes: dict[str, Outcome] = {
            request.id: blamed() for request in requests if self._record.is_to_blame(request)
        }
        sent = [request for request in requests if request.id not in outcomes]
        futures = worker.submit(sent)
        try:
            for request, future in zip(sent, futures, strict=True):
                outcomes[request.id] = await asyncio.wrap_future(future)
            return [outcomes[request.id] for request in requests], facts
        except asyncio.CancelledError:
            worker.cancel([request.id for request in requests])
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
            self._slot.close()

    async def _awake(self) -> _Worker:
        """The worker; started when there is none, after a wait when the ones before it died."""
        if self.pid is None:
            await asyncio.sleep(self._record.back_off())
        return self._running()

    def _running(self) -> _Worker:
        with self._lock:
            slot = self._slot
            if slot.worker is not None and slot.worker.is_gone():
                if slot.worker.has_refused():
                    # The fault is of the model or the settings: another worker would say the same.
                    return slot.worker
                observe(self._say, "the engine died and is started again")
                slot.close()
            if slot.worker is None:
                slot.worker = _Worker(self._settings, self._say, self._record)
            return slot.worker


@dataclass(slots=True)
class _Slot:
    """Where a client keeps its worker: a thing of its own, so that a finaliser can reach it without the client."""

    worker: _Worker | None = None

    def close(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()


async def _loaded(worker: _Worker) -> Facts:
    # Not `wrap_future`: a caller that is cancelled must not cancel the loading for the others, and one whose loop has
    # ended must leave no future behind that nobody asks for its exception.
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()

    def wake(_: object) -> None:
        # A loop that is closed has nobody waiting any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ready.set)

    worker.loaded.add_done_callback(wake)
    await ready.wait()
    return worker.loaded.result()


class _Worker:
    """One worker process from its start to its end."""

    def __init__(self, settings: Settings, say: Say, record: Record) -> None:
        self._say, self._record = say, record
        self.loaded: concurrent.futures.Future[Facts] = concurrent.futures.Future()
        self._lock = threading.Lock()  # Protects `_pending`, `_asked`, `_stats` and `dead`.
        self._pending: dict[str, concurrent.futures.Future[Outcome]] = {}
        self._asked: dict[str, Generate] = {}
        self._stats: collections.deque[concurrent.futures.Future[dict[str, float]]] = collections.deque()
        self.dead = False
        self._closing = False
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: collections.deque[str] = collections.deque(maxlen=_STDERR_LINES)
        self.process = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=True,
            bufsize=0,
            # Out of the terminal's reach: Ctrl-C goes to a whole process group, and what it means is this process's to say.
            process_group=0,
            env=dict(os.environ) if "OMP_WAIT_POLICY" in os.environ else {**_PATIENT, **os.environ},
        )
        errors = threading.Thread(
            target=_drain, args=(self.process, self._stderr), name="worker-stderr", daemon=True
        )
        errors.start()
        threading.Thread(target=self._write, name="worker-stdin", daemon=True).start()
        threading.Thread(target=self._listen, args=(errors,), name="worker-stdout", daemon=True).start()
        self._send({"op": "load", "settings": protocol.to_json(settings)})

    def is_gone(self) -> bool:
        """Whether the process has ended, noticed by the listener yet or not."""
        return self.dead or self.process.poll() is not None

    def has_refused(self) -> bool:
        """Whether it ended by itself because the model or the settings cannot be used."""
        error = self.loaded.exception() if self.loaded.done() else None
        return isinstance(error, JudgeLocalError) and not isinstance(error, EngineError)

    def submit(self, requests: Sequence[Generate]) -> list[concurrent.futures.Future[Outcome]]:
        """One future for each request, in order; each ends with an answer or an error, never with an exception."""
        futures: list[concurrent.futures.Future[Outcome]] = [concurrent.futures.Future() for _ in requests]
        with self._lock:
            dead = self.dead
            if not dead:
                self._pending.update(zip((request.id for request in requests), futures, strict=True))
                self._asked.update((request.id, request) for request in requests)
        if dead:
            for future in futures:
                future.set_result(self._death())
        else:
            self._send({"op": "submit", "requests": [protocol.to_json(request) for request in requests]})
        return futures

    def ask_stats(self) -> concurrent.futures.Future[dict[str, float]]:
        """A future of the worker's totals."""
        future: concurrent.futures.Future[dict[str, float]] = concurrent.futures.Future()
        with self._lock:
            dead = self.dead
            if not dead:
                self._stats.append(future)
        if dead:
            future.set_exception(self._death())
        else:
            self._send({"op": "stats"})
        return future

    def cancel(self, ids: Sequence[str]) -> None:
        """Stop the work on these; their futures still end."""
        self._send({"op": "cancel", "ids": list(ids)})

    def close(self) -> None:
        """End the process: politely, then by force."""
        self._closing = True
        # End of stdin is the message: it stops a decode in progress too.
        self._outbox.put(None)
        try:
            self.process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._outbox.put(json.dumps(message).encode() + b"\n")

    def _write(self) -> None:
        """Write what is to be sent, in a thread of its own: a worker that stops reading must not stop its caller."""
        stdin = self.process.stdin
        assert stdin is not None  # A pipe was asked for.
        # A worker that is gone is noticed, and its requests are answered, by `_listen`.
        with contextlib.suppress(OSError), stdin:
            while (line := self._outbox.get()) is not None:
                rest = memoryview(line)
                while rest:
                    rest = rest[stdin.write(rest) :]

    def _listen(self, errors: threading.Thread) -> None:
        assert self.process.stdout is not None  # A pipe was asked for.
        garbage: str | None = None
        with io.BufferedReader(self.process.stdout) as stream:  # type: ignore[type-var] # unbuffered, so it is raw
            for line in stream:
                try:
                    self._take(json.loads(line))
                except Exception:  # noqa: BLE001 # Whatever it stumbled over, nobody may wait for ever.
                    garbage = line[:200].decode("utf-8", "replace")
                    self.process.kill()
                    break
        self.process.wait()
        errors.join(1.0)
        with self._lock:
            self.dead = True
            pending, self._pending = self._pending, {}
            asked, self._asked = self._asked, {}
            stats, self._stats = self._stats, collections.deque()
        self._outbox.put(None)
        if not self._closing:
            self._record.died(asked.values())
        death = (
            self._death()
            if garbage is None
            else EngineProtocolError("worker", f"it wrote {excerpt(garbage)}, which is not in the protocol")
        )
        if not self.loaded.done():
            self.loaded.set_exception(death)
        for future in pending.values():
            _end(future, death)
        for waiting in stats:
            if waiting.set_running_or_notify_cancel():
                waiting.set_exception(death)

    def _take(self, message: Mapping[str, Any]) -> None:
        event = message["event"]
        if event == "hello":
            if message["protocol"] != protocol.PROTOCOL:
                raise ValueError(message["protocol"])
        elif event == "loaded":
            facts = dict(message["facts"])
            self.loaded.set_result(Facts(**{**facts, "notes": tuple(facts["notes"])}))
        elif event == "result":
            fields = {key: value for key, value in message.items() if key != "event"}
            self._finish(message["id"], Generated(**fields))
        elif event == "error":
            error = protocol.error_from_json(message["error"])
            if message["id"] is None:
                self.loaded.set_exception(error)
            else:
                self._finish(message["id"], error)
        elif event == "log":
            observe(self._say, message["text"])
        elif event == "stats":
            _end(self._stats.popleft(), dict(message["stats"]))
        else:
            raise ValueError(event)

    def _finish(self, request: str, outcome: Outcome) -> None:
        with self._lock:
            future = self._pending.pop(request)
            asked = self._asked.pop(request)
        self._record.answered(asked)
        _end(future, outcome)

    def _death(self) -> EngineError:
        if self._closing:
            return EngineError("engine", "closed while the run was in flight")
        code = self.process.returncode
        how = (
            f"signal {-code} ({signal.Signals(-code).name})"
            if code is not None and code < 0
            else f"exit code {code}"
        )
        said = _last_line("\n".join(self._stderr))
        because = f"; its last words: {excerpt(said)}" if said else ""
        return EngineCrashedError(
            "engine", f"the worker process died: {how}{because}", "The next run starts a new one."
        )


def _end(future: concurrent.futures.Future[T], outcome: T) -> None:
    # A future is cancelled when the task that awaits it is; then nobody wants the outcome.
    if future.set_running_or_notify_cancel():
        future.set_result(outcome)


def _command() -> list[str]:
    return [sys.executable, "-m", "judge_local.engine.worker"]


def _drain(process: subprocess.Popen[bytes], lines: collections.deque[str]) -> None:
    assert process.stderr is not None  # A pipe was asked for.
    with process.stderr:
        for line in process.stderr:
            lines.append(line.decode("utf-8", "replace").rstrip())


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
