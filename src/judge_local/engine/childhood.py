"""The inside of a child process: its end when its parent is gone, and how it reads a question and answers it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from judge_local.engine import protocol
from judge_local.errors import JudgeLocalError

_LOOK_MILLISECONDS: Final = 500

Tell = Callable[[Mapping[str, Any]], None]


@contextlib.contextmanager
def ending_with_parent(stdin: int) -> Iterator[None]:
    """While inside, the process ends at once when nobody holds the other end of `stdin`; nothing is read from it.

    For what cannot be stopped in another way, a model being loaded for one. Outside, the owner notices by reading.
    """
    over = threading.Event()

    def look() -> None:
        poll = select.poll()
        poll.register(stdin, 0)  # A hang-up is reported unasked.
        while not over.is_set():
            if any(what & (select.POLLHUP | select.POLLERR) for _, what in poll.poll(_LOOK_MILLISECONDS)):
                os._exit(0)

    threading.Thread(target=look, name="parent", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def messages_only() -> int:
    """A descriptor for messages, which takes the place of standard output; what native code prints there goes to stderr."""
    # llama.cpp would start a debugger on an abort.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def answer(work: Callable[[dict[str, Any], Tell], Any]) -> None:
    """Be a child: read the question, do `work`, and say what came of it; see `children`.

    Args:
        work: gets the question and a function that tells of something meanwhile.
    """
    with os.fdopen(messages_only(), "w", encoding="utf-8", newline="\n") as messages:

        def tell(message: Mapping[str, Any]) -> None:
            with contextlib.suppress(BrokenPipeError):
                messages.write(json.dumps(message) + "\n")
                messages.flush()

        line = sys.stdin.buffer.readline()
        if not line:
            return
        with ending_with_parent(sys.stdin.fileno()):
            try:
                tell({"answer": work(json.loads(line), tell)})
            except JudgeLocalError as error:
                tell({"error": protocol.error_to_json(error)})
