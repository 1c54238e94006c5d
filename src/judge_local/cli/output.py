"""Printing: results to standard output, everything else to standard error.

* Text that came from a model, a subject or a file is untrusted: control characters are shown, never sent to a terminal.
* A terminal gets colours and wrapping from rich, which honours NO_COLOR; a pipe gets plain lines, one fact a line.
* JSON is written in ASCII, so that no locale can spoil it.
* What GitHub's runner would take for an order (`##[` anywhere in a line, `::` at its start) is escaped, in JSON always and
  in text where the runner says that it is there: only `--github` may give it orders.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from judge_local.errors import UsageError
from judge_local.printable import clean
from judge_local.report.decision import LABEL_WIDTH, Line, plain

if TYPE_CHECKING:
    from rich.status import Status


_ORDER: Final = re.compile(r"##(?=\[)|^(\s*):(?=:)", re.MULTILINE)


def _inert(text: str) -> str:
    """`text` for people, without what the runner that reads it would obey (actions/runner, `ActionCommand.cs`)."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return text
    return _ORDER.sub(lambda found: r"#\x23" if found[1] is None else rf"{found[1]}\x3a", text)


def say(line: str, *, command: str = "judge-local") -> None:
    """One line for a person on standard error."""
    if sys.stderr is None:
        return
    try:
        print(
            _inert(f"{command}: {clean(' '.join(line.splitlines()))}")
            .encode(errors="backslashreplace")
            .decode(),
            file=sys.stderr,
        )
    except OSError:
        return  # Nobody reads standard error, and there is no third place to say so.


def emit(text: str) -> None:
    """`text` and a line end to standard output, written out at once.

    Raises:
        UsageError: standard output cannot be written, a full disk for one.
        BrokenPipeError: its reader left.
    """
    if sys.stdout is None:
        raise UsageError("standard output", "is closed", "Send it to a file, or to /dev/null.")
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise unwritable(error) from error


def unwritable(error: OSError) -> UsageError:
    """The fault of a standard output that takes no more, a full disk for one."""
    return UsageError(
        "standard output", f"cannot be written: {error.strerror or error}", "Make room, or send it elsewhere."
    )


def emit_json(value: Any, *, indent: int | None = None) -> None:
    """`value` as JSON to standard output: one line, or indented."""
    # A `#` can only stand inside of a string, where its escape means the same.
    emit(json.dumps(value, allow_nan=False, indent=indent).replace("##[", r"#\u0023["))


def silence_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush says nothing."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):
        return  # Not a file of the system's, so there is no last flush to fear.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def is_terminal() -> bool:
    """Whether standard output is a person's terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def stderr_is_terminal() -> bool:
    """Whether standard error is a person's terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def show(lines: Iterable[Line]) -> None:
    """Print `lines` to standard output: styled and wrapped on a terminal, plain in a pipe."""
    if not is_terminal():
        emit(_inert("\n".join(plain(line) for line in lines)))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    for line in lines:
        text = Text(clean(line.text), style=line.style)
        if line.label:
            grid = Table.grid(padding=(0, 1, 0, 0))
            grid.add_column(width=LABEL_WIDTH)
            grid.add_column(ratio=1)
            grid.add_row(Text(line.label, style="dim"), text)
            console.print(Padding(grid, (0, 0, 0, 2 * line.indent)))
        else:
            console.print(Padding(text, (0, 0, 0, 2 * line.indent)))


class Progress:
    """What is going on, on standard error: a moving line on a terminal, plain lines otherwise, nothing when quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = stderr_is_terminal()
        self._status: Status | None = None
        self._last = ""
        # Protects the two above: the engine's lines come from a thread of its own.
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.pause()

    def update(self, text: str) -> None:
        """Say that `text` is going on now. The same text twice in a row is said once."""
        if self._quiet:
            return
        with self._lock:
            if text != self._last:
                self._last = text
                self._show(text)

    def pause(self) -> None:
        """Take the moving line away, so that a result can be printed."""
        with self._lock:
            self._last = ""
            if self._status is not None:
                self._status.stop()
                self._status = None

    def _show(self, text: str) -> None:
        if not self._terminal:
            say(text)
            return
        from rich.console import Console
        from rich.markup import escape

        shown = escape(clean(text))
        if self._status is None:
            self._status = Console(stderr=True).status(shown)
            self._status.start()
        else:
            self._status.update(shown)


__all__ = [
    "Line",
    "Progress",
    "clean",
    "emit",
    "emit_json",
    "is_terminal",
    "say",
    "show",
    "silence_stdout",
    "stderr_is_terminal",
    "unwritable",
]
