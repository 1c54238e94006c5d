"""The worker process: one model, one context, driven over stdin and stdout; started by `engine.client`.

A native crash, an out-of-memory kill or a hang in here costs the runs in flight and nothing else. It ends with its
parent: end of stdin raises the abort flag, so it ends in the middle of a decode too.

    python -m judge_local.engine.worker            speak `engine.protocol`
    python -m judge_local.engine.worker --info     print what this build of llama.cpp can do, as JSON
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from judge_local.engine import protocol
from judge_local.engine.lock import Turn, hold_shared, machine_lock
from judge_local.errors import (
    ChatTemplateError,
    EngineError,
    JudgeLocalError,
    ModelFileError,
    UsageError,
    excerpt,
)

if TYPE_CHECKING:
    from judge_local.engine.interrupt import Interrupter
    from judge_local.engine.scheduler import Scheduler

_LAST_GRACE_SECONDS: Final = 2.0
"""After the end of stdin, the process ends by force when a decode has not stopped by then."""

_TURN_SECONDS: Final = 5.0
"""So long a process keeps the machine while another waits for it."""

Write = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Entry point of the process."""
    # llama.cpp would start a debugger on an abort.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    # Whatever native code prints to stdout must not stand between two messages.
    messages = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    if "--info" in sys.argv[1:]:
        from judge_local.engine.binding import build_info, start_backend

        start_backend()
        messages.write(json.dumps(build_info()) + "\n")
        messages.flush()
        return
    _serve(sys.stdin.buffer, _writer(messages))


def _writer(messages: IO[str]) -> Write:
    lock = (
        threading.Lock()
    )  # Protects the stream: the reader's thread answers `stats` while the main thread decodes.

    def write(message: Mapping[str, Any]) -> None:
        line = json.dumps(message, ensure_ascii=True)
        with lock:
            try:
                messages.write(line + "\n")
                messages.flush()
            except (BrokenPipeError, ValueError):
                # Nobody listens any more; end of stdin ends the process.
                return

    return write


def _serve(stdin: IO[bytes], write: Write) -> None:
    write({"event": "hello", "protocol": protocol.PROTOCOL, "pid": os.getpid()})
    line = stdin.readline()
    if not line:
        return
    try:
        message = json.loads(line)
        settings = protocol.Settings(**message["settings"])
        worker = _Worker(settings, write)
    except JudgeLocalError as error:
        write({"event": "error", "id": None, "error": protocol.error_to_json(error)})
        return
    write({"event": "loaded", "facts": protocol.to_json(worker.facts)})
    threading.Thread(target=worker.read, args=(stdin,), name="reader", daemon=True).start()
    worker.work()


class _Worker:
    """The loaded model, the queue of submissions, and the thread that reads the client."""

    def __init__(self, settings: protocol.Settings, write: Write) -> None:
        from judge_local.engine.assembly import PromptAssembler
        from judge_local.engine.binding import AbortFlag, Model, build_info, start_backend
        from judge_local.engine.interrupt import Interrupter
        from judge_local.engine.scheduler import Scheduler
        from judge_local.engine.shelf import Shelf

        started = time.monotonic()
        path = Path(settings.path)
        self._settings, self._write = settings, write
        try:
            # Kept open for the life of the process: whoever wants to remove the file asks for an exclusive lock.
            self._weights = hold_shared(path)
        except OSError as error:
            raise ModelFileError(
                str(path), f"cannot be opened ({error.strerror})", "Check the path."
            ) from error
        start_backend()
        info = build_info()
        layers = settings.n_gpu_layers
        if layers is None:
            layers = -1 if info["gpu_offload"] else 0
        model = Model(path, n_gpu_layers=layers)
        if not model.eog or not model.has_decoder:
            raise ModelFileError(
                str(path), "is not a model that writes text", "Choose an instruction-tuned model."
            )
        template = model.chat_template if settings.chat_template is None else settings.chat_template
        try:
            assembler = PromptAssembler(model, template, where=path.name)
        except ChatTemplateError as error:
            if settings.chat_template is None:
                raise
            raise _blamed_on(settings.chat_template, error) from error
        abort = AbortFlag()
        self._interrupter: Interrupter = Interrupter(abort)
        engine = f"llama-cpp-python {info['version']}; {info['system']}"
        cache = settings.cache_path
        shelf = Shelf(
            # What another build of llama.cpp has computed is of no use, and may not even be readable.
            None
            if cache is None or not settings.weights
            else Path(cache) / hashlib.sha256(engine.encode()).hexdigest()[:16],
            say=lambda text: write({"event": "log", "text": text}),
        )
        self._scheduler: Scheduler = Scheduler(
            model, assembler, settings, self._interrupter, abort, self._deliver, shelf
        )
        self._queue: queue.SimpleQueue[list[protocol.Generate] | None] = queue.SimpleQueue()
        self.facts = protocol.Facts(
            description=model.description,
            template=template or "",
            n_ctx=self._scheduler.n_ctx,
            n_vocab=model.n_vocab,
            engine=engine,
            recurrent=model.recurrent,
            gpu_offload=info["gpu_offload"],
            n_gpu_layers=layers,
            load_seconds=time.monotonic() - started,
            notes=assembler.notes,
        )

    def read(self, stdin: IO[bytes]) -> None:
        """Read the client until it goes away. Cancellations take effect at once, whatever the main thread does."""
        for line in iter(stdin.readline, b""):
            message = json.loads(line)
            operation = message.get("op")
            if operation == "submit":
                requests = [protocol.generate_from_json(data) for data in message["requests"]]
                for request in requests:
                    self._interrupter.expect(request.id, request.seconds)
                self._queue.put(requests)
            elif operation == "cancel":
                self._interrupter.cancel(message["ids"])
            elif operation == "stats":
                self._write({"event": "stats", "stats": dict(self._scheduler.totals)})
            elif operation == "shutdown":
                break
            else:
                self._write({"event": "log", "text": f"worker: unknown operation {operation!r}"})
        self._interrupter.close()
        self._queue.put(None)
        time.sleep(_LAST_GRACE_SECONDS)
        os._exit(0)

    def work(self) -> None:
        """Answer submissions until the client is gone. The machine is held while there is anything to do."""
        while (requests := self._queue.get()) is not None:
            self._scheduler.submit(requests)
            while self._scheduler.busy:
                try:
                    with machine_lock(
                        Path(self._settings.lock_path),
                        wait=self._settings.wait,
                        say=lambda text: self._write({"event": "log", "text": text}),
                        given_up=self._nothing_left,
                    ) as turn:
                        if turn.held:
                            self._work_off(turn)
                except EngineError as error:
                    self._take_in()
                    self._scheduler.refuse(error)
        self._scheduler.close()

    def _work_off(self, turn: Turn) -> None:
        """Step until nothing is left, or until another process has waited long enough, taking in what comes meanwhile."""
        self._interrupter.machine_taken = False
        until = time.monotonic() + _TURN_SECONDS
        while self._scheduler.busy:
            self._take_in()
            self._scheduler.step()
            if time.monotonic() >= until:
                if turn.is_wanted():
                    return
                until = time.monotonic() + _TURN_SECONDS

    def _take_in(self) -> None:
        while not self._queue.empty():
            more = self._queue.get()
            if more is None:
                # The end: everything is cancelled, and the scheduler says so to each.
                self._queue.put(None)
                return
            self._scheduler.submit(more)

    def _nothing_left(self) -> bool:
        """While the machine is another's: end what is cancelled or late. True when that was all."""
        self._interrupter.machine_taken = True
        self._take_in()
        self._scheduler.drop_over()
        return not self._scheduler.busy

    def _deliver(self, request: str, outcome: protocol.Generated | JudgeLocalError) -> None:
        if isinstance(outcome, protocol.Generated):
            self._write({"event": "result", **protocol.to_json(outcome)})
        else:
            self._write({"event": "error", "id": request, "error": protocol.error_to_json(outcome)})


def _blamed_on(template: str, error: ChatTemplateError) -> UsageError:
    """The fault of a template that was given by hand: nothing is wrong with the model's file."""
    problem = error.problem.replace("its chat template", excerpt(template, 60)) if template else "it is empty"
    return UsageError("chat template", problem, "Mend it, or leave it out to use the model's own.")


if __name__ == "__main__":
    main()
