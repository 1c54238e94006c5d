"""Child processes that do one thing with llama.cpp and end: no native code is loaded in the process that asks.

Each is a module of this package, `python -m judge_local.engine.<module>`. It is asked with one JSON object on its
standard input, which stays open: its end means that the one who asked is gone, and ends the child. It answers with JSON
objects, a line each: `{"say": "…"}`, `{"done": n, "total": n}`, and last `{"answer": …}` or `{"error": …}`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from judge_local.engine import protocol
from judge_local.engine.protocol import LOCK_PATH
from judge_local.errors import EngineCrashedError, EngineError, EngineProtocolError, excerpt

_INFO_SECONDS: Final = 60.0
_STDERR_LINES: Final = 20

_PATIENT: Final = {"GOMP_SPINCOUNT": "2000"}
"""Environment of a child, where the user has not said how OpenMP's threads are to wait.

llama.cpp's threads meet hundreds of times a token. By default the first to arrive spins for about a millisecond before it
sleeps; when other programs keep the cores busy, that spinning takes the time the other threads need. A short spin keeps
the full speed of a quiet machine and most of it on a busy one. See docs/engine.md for the figures.
"""

Say = Callable[[str], None]
OnProgress = Callable[[int, int], None]


def command(module: str) -> list[str]:
    """How a module of this package is run as a process."""
    return [sys.executable, "-m", f"judge_local.engine.{module}"]


def environment() -> dict[str, str]:
    """What a child's environment is."""
    return dict(os.environ) if "OMP_WAIT_POLICY" in os.environ else {**_PATIENT, **os.environ}


def engine_info() -> dict[str, Any]:
    """What the installed llama.cpp is and can do, asked in a child process.

    Returns:
        `version`, `system`, `gpu_offload`, `mmap`, `max_sequences`, `devices`; see `binding.build_info`.

    Raises:
        EngineError: it cannot be loaded.
    """
    try:
        done = subprocess.run(
            [*command("worker"), "--info"], capture_output=True, text=True, timeout=_INFO_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError("engine", f"llama.cpp did not load within {_INFO_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise EngineError(
            "engine",
            f"llama.cpp does not load ({excerpt(last_line(done.stderr))})",
            "Install llama-cpp-python again.",
        )
    info: dict[str, Any] = json.loads(done.stdout)
    return info


def ask(
    module: str,
    question: Mapping[str, Any],
    *,
    say: Say = lambda _text: None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Any:
    """What the child `module` answers to `question`. Blocks; an exception in here, Ctrl-C for one, ends the child.

    Raises:
        JudgeLocalError: what the child says is wrong.
        EngineCrashedError: it died.
        EngineProtocolError: it said something else.
    """
    with subprocess.Popen(
        command(module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        env=environment(),
    ) as process:
        stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        drain = threading.Thread(
            target=keep_last, args=(process, stderr), name=f"{module}-stderr", daemon=True
        )
        drain.start()
        assert process.stdin is not None  # Pipes were asked for.
        assert process.stdout is not None
        try:
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # It died; how is said below.
            for line in process.stdout:
                if not line.endswith(b"\n"):
                    break
                try:
                    message = json.loads(line)
                    if "answer" in message:
                        return message["answer"]
                    if "error" in message:
                        raise protocol.error_from_json(message["error"])
                    if "say" in message:
                        say(message["say"])
                    else:
                        on_progress(message["done"], message["total"])
                except (ValueError, KeyError, TypeError) as error:
                    raise EngineProtocolError(
                        module,
                        f"it wrote {excerpt(line.decode('utf-8', 'replace'))}, which is not in the protocol",
                    ) from error
            process.wait()
            drain.join(1.0)
            raise EngineCrashedError(module, f"the process {how_it_died(process.returncode, stderr)}")
        finally:
            process.kill()


def how_it_died(code: int | None, stderr: deque[str]) -> str:
    """`died: signal 11 (SIGSEGV); its last words: '…'`."""
    how = f"exit code {code}"
    if code is not None and code < 0:
        try:
            how = f"signal {-code} ({signal.Signals(-code).name})"
        except ValueError:  # A real-time signal has no name.
            how = f"signal {-code}"
    said = last_line("\n".join(stderr))
    return f"died: {how}" + (f"; its last words: {excerpt(said)}" if said else "")


def keep_last(process: subprocess.Popen[bytes], lines: deque[str]) -> None:
    """Read the child's standard error to its end, and keep what `lines` has room for."""
    assert process.stderr is not None  # A pipe was asked for.
    with process.stderr:
        while line := process.stderr.readline(4096):
            lines.append(line.decode("utf-8", "replace").rstrip())


def last_line(text: str) -> str:
    """The last line of `text` that is not empty; `""` without one."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def probe(
    path: str,
    *,
    n_threads: int,
    memory_bytes: int,
    n_gpu_layers: int = 0,
    prompts: Sequence[tuple[str, str]] = (),
    runs: int = 3,
    tail: int = 64,
    chat_template: str | None = None,
    lock_path: str = LOCK_PATH,
    wait: bool = True,
    say: Say = lambda _text: None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> dict[str, Any]:
    """How fast the model at `path` reads and writes on this machine.

    Args:
        path: the weights.
        n_threads: threads of computation.
        memory_bytes: main memory that can be had; half of it may be taken for context.
        n_gpu_layers: layers on the graphics card.
        prompts: (system, user) of each run, those of one row together: then the context is filled as they would fill it.
        runs: runs of one row.
        tail: tokens of an answer that are there, in the middle of writing.
        chat_template: Jinja source in place of the file's own.
        lock_path: the machine's lock, held while measuring.
        wait: wait for it, rather than fail.
        say: gets lines for a person.
        on_progress: gets (sizes measured, sizes in all).

    Returns:
        `reading` and `writing`: lists of `{size, seconds}`, for N tokens of one prompt, and for one token in each of N
        runs. `layout`: `shared`, `own` and `tail` tokens that the context was filled with. With prompts,
        `prompt_tokens`, and `unique_tokens`, where every common beginning counts once. `load_seconds`.

    Raises:
        JudgeLocalError: the model cannot be loaded, or not be measured.
    """
    question = {
        "path": path,
        "n_threads": n_threads,
        "memory_bytes": memory_bytes,
        "n_gpu_layers": n_gpu_layers,
        "prompts": [list(prompt) for prompt in prompts],
        "runs": runs,
        "tail": tail,
        "chat_template": chat_template,
        "lock_path": lock_path,
        "wait": wait,
    }
    found: dict[str, Any] = ask("probe", question, say=say, on_progress=on_progress)
    return found


def stock(
    path: str,
    requests: Sequence[tuple[str, str, Mapping[str, Any]]],
    *,
    n_ctx: int,
    n_threads: int,
    max_tokens: int,
    n_gpu_layers: int = 0,
    lock_path: str = LOCK_PATH,
    wait: bool = True,
    say: Say = lambda _text: None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> tuple[float, list[tuple[str, int]]]:
    """What llama-cpp-python's own chat completion makes of (system, user, schema) requests, one after the other.

    Returns:
        Seconds, without loading, and for each request the answer's text and its tokens.

    Raises:
        JudgeLocalError: the process failed.
    """
    question = {
        "path": path,
        "requests": [list(request) for request in requests],
        "n_ctx": n_ctx,
        "n_threads": n_threads,
        "max_tokens": max_tokens,
        "n_gpu_layers": n_gpu_layers,
        "lock_path": lock_path,
        "wait": wait,
    }
    found = ask("stock", question, say=say, on_progress=on_progress)
    return found["seconds"], [(text, tokens) for text, tokens in found["answers"]]


def quantise(
    source: str,
    target: str,
    type_name: str,
    *,
    n_threads: int,
    on_progress: OnProgress = lambda _done, _total: None,
) -> None:
    """Write the weights of `source` to the new file `target` as `type_name`, one of `quantise.TYPES`.

    Raises:
        JudgeLocalError: llama.cpp could not.
    """
    question = {"source": source, "target": target, "type": type_name, "n_threads": n_threads}
    ask("quantise", question, on_progress=on_progress)
