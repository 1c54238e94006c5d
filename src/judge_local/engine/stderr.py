"""What llama.cpp says on standard error and tells nobody else, caught where a reason is wanted."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def because(said: str) -> str:
    r"""The last line of what was said, in brackets, to end a sentence with; `""` where nothing was.

    >>> because("one\ntwo\n"), because("")
    (' (two)', '')
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f" ({lines[-1][:200]})" if lines else ""


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Hold file descriptor 2 in a file meanwhile: some of llama.cpp's reasons go there, past its log callback.

    What is yielded gives the text once the block has ended.
    """
    sys.stderr.flush()
    text = ""
    with tempfile.TemporaryFile() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield lambda: text
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            text = held.read().decode("utf-8", "replace")
