"""Ctrl-C while modules are imported: the process ends at once.

Python raises KeyboardInterrupt wherever it stands, and drops it when that is a callback of the garbage collector or of a
weak reference; the import system is full of these, so an interrupt during an import can be lost, and the program goes on.
While nothing has been written yet there is nothing to clean up, and ending at once is right. The engine's worker ends
with the process that started it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"judge-local: interrupted\n")
    os._exit(INTERRUPTED)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """While inside, Ctrl-C ends the process. For steps that import or prepare, and write nothing."""
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:  # Where SIGINT is ignored or handled by a caller, it stays so.
        signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
