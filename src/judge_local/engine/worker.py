"""The worker process: one model, one context, driven over stdin and stdout; started by `engine.client`.

A native crash, an out-of-memory kill or a hang in here costs the runs in flight and nothing else. It ends with its
parent: end of stdin raises the abort flag, so it ends in the middle of a decode too, and at once while it loads. While it
has something to do it says about every second how far it is, so that a hang can be told from work.

    python -m judge_local.engine.worker            speak `engine.protocol`
    python -m judge_local.engine.worker --info     print what this build of llama.cpp can do, as JSON
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from judge_local.engine import planning, protocol
from judge_local.engine.childhood import ending_with_parent, messages_only
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
    from judge_local.engine.assembly import PromptAssembler
    from judge_local.engine.binding import Model
    from judge_local.engine.interrupt import Interrupter
    from judge_local.engine.scheduler import Scheduler

_LAST_GRACE_SECONDS: Final = 2.0
"""After the end of stdin, the process ends by force when a decode has not stopped by then."""

_BEAT_SECONDS: Final = 1.0

_TURN_SECONDS: Final = 5.0
"""So long a process keeps the machine while another waits for it."""

Write = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Entry point of the process."""
    messages = os.fdopen(messages_only(), "w", encoding="utf-8", newline="\n")
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
    pulse = _Pulse(write)
    try:
        message = json.loads(line)
        settings = protocol.Settings(**message["settings"])
        with ending_with_parent(stdin.fileno()):
            worker = _Worker(settings, write, pulse)
    except JudgeLocalError as error:
        write({"event": "error", "id": None, "error": protocol.error_to_json(error)})
        return
    write({"event": "loaded", "facts": protocol.to_json(worker.facts)})
    threading.Thread(target=worker.read, args=(stdin,), name="reader", daemon=True).start()
    worker.work()


class _Pulse:
    """Says from a thread of its own how far the worker is, whatever the main thread does."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.busy = True
        """Whether there is anything to do; a worker that waits for requests says nothing."""
        self.working = False
        """Whether it computes: loading, and waiting for the machine, are no steps of computation."""
        self.totals: Mapping[str, float] = {}
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def _beat(self) -> None:
        while True:
            time.sleep(_BEAT_SECONDS)
            if self.busy:
                steps = int(self.totals.get("steps", 0))
                self._write({"event": "beat", "steps": steps, "working": self.working})


def _load(path: Path, wanted: int | None, say: Callable[[str], None]) -> tuple[Model, int]:
    """The model, with as many layers on the graphics card as were `wanted` and could be had.

    Raises:
        ModelFileError: it cannot be loaded at all.
    """
    from judge_local.engine.binding import Model, build_info
    from judge_local.engine.devices import devices

    offloads = bool(build_info()["gpu_offload"])
    cards = devices() if offloads else ()
    if wanted is None and not cards:
        return Model(path), 0
    # The plan needs the model's shape, which its header gives without the weights.
    header = Model(path, vocab_only=True)
    plan = planning.plan_offload(wanted, header.shape, cards, build_offloads=offloads)
    header.close()
    if plan.line:
        say(plan.line)
    tries = [plan.layers, *planning.smaller(plan.layers)]
    for place, layers in enumerate(tries):
        try:
            return Model(path, n_gpu_layers=layers), layers
        except ModelFileError:
            if place == len(tries) - 1:
                raise
            say(f"{layers} layers do not load on the graphics card: trying {tries[place + 1]}")
    raise AssertionError("there is always a last try")


def _within_memory(
    settings: protocol.Settings, model: Model, layers: int, say: Callable[[str], None]
) -> protocol.Settings:
    """`settings`, with no more context than main memory carries."""
    fit = planning.cells_that_fit(model.shape, settings.memory_bytes, layers_on_card=layers)
    wanted = min(settings.n_ctx or model.n_ctx_train, model.n_ctx_train)
    if fit is None:
        return settings
    settings = replace(settings, most_cells=fit)
    if fit >= wanted:
        return settings
    if settings.n_ctx is not None or fit < planning.CELLS_AHEAD:
        say(f"memory carries {fit} of {wanted} tokens of context: a longer prompt is refused")
    return replace(settings, n_ctx=fit)


class _Worker:
    """The loaded model, the queue of submissions, and the thread that reads the client."""

    def __init__(self, settings: protocol.Settings, write: Write, pulse: _Pulse) -> None:
        from judge_local.engine.binding import AbortFlag, build_info, start_backend
        from judge_local.engine.interrupt import Interrupter
        from judge_local.engine.scheduler import Scheduler
        from judge_local.engine.shelf import Shelf

        started = time.monotonic()
        path = Path(settings.path)
        self._settings, self._write, self._pulse = settings, write, pulse
        try:
            # Kept open for the life of the process: whoever wants to remove the file asks for an exclusive lock.
            self._weights = hold_shared(path)
        except OSError as error:
            raise ModelFileError(
                str(path), f"cannot be opened ({error.strerror})", "Check the path."
            ) from error
        start_backend()
        info = build_info()
        model, layers = _load(path, settings.n_gpu_layers, self._log)
        if not model.eog or not model.has_decoder:
            raise ModelFileError(
                str(path), "is not a model that writes text", "Choose an instruction-tuned model."
            )
        template = model.chat_template if settings.chat_template is None else settings.chat_template
        assembler = _assembler(model, settings, path.name)
        settings = _within_memory(settings, model, layers, self._log)
        abort = AbortFlag()
        self._interrupter: Interrupter = Interrupter(
            abort, on_begun=lambda ids: write({"event": "begun", "ids": ids})
        )
        engine = f"llama-cpp-python {info['version']}; {info['system']}"
        # From here on, what there is and not what was asked for.
        settings = replace(settings, n_gpu_layers=layers)
        shelf = Shelf(
            Path(settings.cache_path) if settings.cache_path and settings.weights else None,
            self._log,
            # What another build of llama.cpp has computed is of no use, and may not even be readable.
            stamp=f"{engine}|{settings.weights}|{layers}",
        )
        self._scheduler: Scheduler = Scheduler(
            model, assembler, settings, self._interrupter, abort, self._deliver, shelf
        )
        self._scheduler.tell(self._log)
        pulse.totals = self._scheduler.totals
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
            thinks=assembler.style is not None,
            notes=assembler.notes,
        )

    def _log(self, text: str) -> None:
        self._write({"event": "log", "text": text})

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
                self._log(f"worker: unknown operation {operation!r}")
        self._interrupter.close()
        self._queue.put(None)
        time.sleep(_LAST_GRACE_SECONDS)
        os._exit(0)

    def work(self) -> None:
        """Answer submissions until the client is gone. The machine is held while there is anything to do."""
        self._pulse.busy = False
        while (requests := self._queue.get()) is not None:
            self._pulse.busy = True
            self._scheduler.submit(requests)
            while self._scheduler.busy:
                try:
                    with machine_lock(
                        Path(self._settings.lock_path),
                        wait=self._settings.wait,
                        say=self._log,
                        given_up=self._nothing_left,
                    ) as turn:
                        if turn.held:
                            self._pulse.working = True
                            self._work_off(turn)
                except EngineError as error:
                    self._take_in()
                    self._scheduler.refuse(error)
                finally:
                    self._pulse.working = False
            self._pulse.busy = False
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


def _assembler(model: Model, settings: protocol.Settings, name: str) -> PromptAssembler:
    """The maker of prompts for `model`.

    Raises:
        ChatTemplateError: the model has no template, or one that cannot be used.
        UsageError: the template that was given by hand cannot be used; nothing is wrong with the model's file.
    """
    from judge_local.engine.assembly import PromptAssembler

    given = settings.chat_template
    if given is None:
        return PromptAssembler(model, model.chat_template, where=name, thinking=settings.thinking)
    try:
        return PromptAssembler(model, given, where=name, thinking=settings.thinking)
    except ChatTemplateError as error:
        problem = error.problem.replace("its chat template", excerpt(given, 60)) if given else "it is empty"
        remedy = "Mend it, or leave it out to use the model's own."
        raise UsageError("chat template", problem, remedy) from error


if __name__ == "__main__":
    main()
