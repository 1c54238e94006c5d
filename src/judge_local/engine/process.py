"""One worker process from its start to its end: what it is sent, what it says, and what its end means for the requests.

A request ends with an answer, with an error, or, when the worker ended before it was begun, as `NOT_BEGUN`: then it has
cost nothing and can be given to the next worker.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import enum
import io
import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from judge_local.engine import protocol
from judge_local.engine.children import command, environment, how_it_died, keep_last
from judge_local.engine.deaths import Record
from judge_local.engine.patience import Patience, Watch
from judge_local.engine.protocol import Facts, Generate, Generated, Settings
from judge_local.errors import EngineCrashedError, EngineError, EngineProtocolError, JudgeLocalError, excerpt
from judge_local.resilience import observe

_STDERR_LINES: Final = 20
_CLOSE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0

_LONGEST_LINE: Final = 32 * 2**20
"""Bytes; a longer line is no message."""


class NotBegun(enum.Enum):
    """A request that was given to a worker and not begun when it ended."""

    NOT_BEGUN = enum.auto()


NOT_BEGUN: Final = NotBegun.NOT_BEGUN

Outcome = Generated | JudgeLocalError
Ending = Outcome | NotBegun
Say = Callable[[str], None]
T = TypeVar("T")


def worker_command() -> list[str]:
    """How a worker is run."""
    return command("worker")


class WorkerProcess:
    """A worker that was started with `settings`.

    Args:
        settings: how it loads and runs.
        say: gets lines for a person.
        record: is told of answers, and of the death with the requests that it cost.
        patience: after what it counts as hung, and is ended.
        settled: called once for each request given to `submit`, when it has ended.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        say: Say,
        record: Record,
        patience: Patience,
        settled: Callable[[], None],
    ) -> None:
        self._say, self._record, self._settled = say, record, settled
        self.loaded: concurrent.futures.Future[Facts] = concurrent.futures.Future()
        # Protects all down to `_watch`: callers, the listener and the watcher are threads of their own.
        self._lock = threading.Lock()
        self._pending: dict[str, concurrent.futures.Future[Ending]] = {}
        self._asked: dict[str, Generate] = {}
        self._begun: set[str] = set()
        self._stats: collections.deque[concurrent.futures.Future[dict[str, float]]] = collections.deque()
        self.dead = False
        self._watch = Watch(patience)
        self._closing = False
        self._fault: EngineError | None = None
        """Why it was ended from here, if it was."""
        self._ended = threading.Event()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: collections.deque[str] = collections.deque(maxlen=_STDERR_LINES)
        self.process = subprocess.Popen(
            worker_command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            close_fds=True,
            bufsize=0,
            # Out of the terminal's reach: Ctrl-C goes to a whole process group, and what it means is this process's to say.
            process_group=0,
            env=environment(),
        )
        errors = threading.Thread(
            target=keep_last, args=(self.process, self._stderr), name="worker-stderr", daemon=True
        )
        errors.start()
        for name, target in (("stdin", self._write), ("watch", self._look_after)):
            threading.Thread(target=target, name=f"worker-{name}", daemon=True).start()
        threading.Thread(target=self._listen, args=(errors,), name="worker-stdout", daemon=True).start()
        self._send({"op": "load", "settings": protocol.to_json(settings)})

    def is_gone(self) -> bool:
        """Whether the process has ended, noticed by the listener yet or not."""
        return self.dead or self.process.poll() is not None

    def has_refused(self) -> bool:
        """Whether it ended by itself because the model or the settings cannot be used."""
        error = self.loaded.exception() if self.loaded.done() else None
        return isinstance(error, JudgeLocalError) and not isinstance(error, EngineError)

    def submit(self, requests: Sequence[Generate]) -> list[concurrent.futures.Future[Ending]]:
        """One future for each request, in order; each ends with a value, never with an exception."""
        futures: list[concurrent.futures.Future[Ending]] = [concurrent.futures.Future() for _ in requests]
        with self._lock:
            dead = self.dead
            if not dead:
                self._pending.update(zip((request.id for request in requests), futures, strict=True))
                self._asked.update((request.id, request) for request in requests)
        if dead:
            for future in futures:
                self._settled()
                _end(future, NOT_BEGUN)
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
            future.set_exception(self.death())
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

    def death(self) -> EngineError:
        """What becomes of a request that was begun when the worker ended."""
        if self._closing:
            return EngineError("engine", "closed while the run was in flight")
        if self._fault is not None:
            return self._fault
        code = self.process.returncode
        remedy = "The next run starts a new one."
        if code == -signal.SIGKILL:
            remedy += " If the system ended it for want of memory, use a smaller model or a shorter subject."
        return EngineCrashedError("engine", f"the worker process {how_it_died(code, self._stderr)}", remedy)

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

    def _look_after(self) -> None:
        """End the process when it has hung, in a thread of its own: a stopped worker says nothing that could be heard."""
        last = time.monotonic()
        while not self._ended.wait(_LOOK_SECONDS):
            now = time.monotonic()
            # When this process was stopped for a while, the worker could not be heard, so that while does not count.
            passed, last = min(now - last, 2 * _LOOK_SECONDS), now
            with self._lock:
                if not self._pending and self.loaded.done():
                    self._watch.rest()
                    continue
                why = self._watch.passed(passed)
            if why is not None:
                self._end_it(
                    EngineCrashedError(
                        "engine",
                        f"the worker process hung ({why}) and was ended",
                        "The next run starts a new one.",
                    )
                )

    def _end_it(self, fault: EngineError) -> None:
        if self._fault is None:
            self._fault = fault
        self.process.kill()

    def _listen(self, errors: threading.Thread) -> None:
        assert self.process.stdout is not None  # A pipe was asked for.
        with io.BufferedReader(self.process.stdout) as stream:  # type: ignore[type-var] # unbuffered, so it is raw
            while line := stream.readline(_LONGEST_LINE):
                if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                    break  # It died in the middle of a message.
                try:
                    self._take(json.loads(line))
                except Exception:  # noqa: BLE001 # Whatever it stumbled over, nobody may wait for ever.
                    said = excerpt(line[:200].decode("utf-8", "replace"))
                    self._end_it(
                        EngineProtocolError(
                            "worker",
                            f"it wrote {said}, which is not in the protocol",
                            "The next run starts a new one.",
                        )
                    )
                    break
        try:
            self.process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._end_it(EngineCrashedError("engine", "the worker process closed its output and was ended"))
            self.process.wait()
        self._ended.set()
        errors.join(1.0)
        with self._lock:
            self.dead = True
            pending, self._pending = self._pending, {}
            asked, self._asked = self._asked, {}
            stats, self._stats = self._stats, collections.deque()
            # When none was begun, what ended it happened on the way to the first of them: all are suspects.
            begun = self._begun & pending.keys() or set(pending)
        self._outbox.put(None)
        death = self.death()
        if not self._closing:
            self._record.died(asked[request] for request in begun)
        if not self.loaded.done():
            self.loaded.set_exception(death)
        for request, future in pending.items():
            self._settled()
            _end(future, death if request in begun or self._closing else NOT_BEGUN)
        for waiting in stats:
            if waiting.set_running_or_notify_cancel():
                waiting.set_exception(death)

    def _take(self, message: Mapping[str, Any]) -> None:
        event = message["event"]
        with self._lock:
            if event == "beat":
                self._watch.beat(message["steps"], working=message["working"])
                return
            self._watch.heard()
        if event == "hello":
            if message["protocol"] != protocol.PROTOCOL:
                raise ValueError(message["protocol"])
        elif event == "loaded":
            facts = dict(message["facts"])
            self.loaded.set_result(Facts(**{**facts, "notes": tuple(facts["notes"])}))
        elif event == "begun":
            with self._lock:
                self._begun.update(message["ids"])
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
            with self._lock:
                waiting = self._stats.popleft()
            _end(waiting, dict(message["stats"]))
        else:
            raise ValueError(event)

    def _finish(self, request: str, outcome: Outcome) -> None:
        with self._lock:
            future = self._pending.pop(request)
            asked = self._asked.pop(request)
            self._begun.discard(request)
        self._record.answered(asked)
        self._settled()
        _end(future, outcome)


def _end(future: concurrent.futures.Future[T], outcome: T) -> None:
    # A future is cancelled when the task that awaits it is; then nobody wants the outcome.
    if future.set_running_or_notify_cancel():
        future.set_result(outcome)
