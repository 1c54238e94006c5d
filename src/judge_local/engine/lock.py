"""One worker computes on a machine at a time, and no file is removed that a worker has loaded.

Both are advisory locks of the operating system (`flock`), which end with the process that holds them, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from judge_local.errors import EngineBusyError, EngineError

_POLL_SECONDS: Final = 0.05
_SAY_AFTER_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Turn:
    """What `machine_lock` came to."""

    held: bool
    """False when waiting was given up: then the machine is another's."""
    path: Path

    def is_wanted(self) -> bool:
        """Whether another process waits for the machine."""
        return _someone_waits(self.path)


@contextlib.contextmanager
def machine_lock(
    path: Path, *, wait: bool, say: Callable[[str], None], given_up: Callable[[], bool]
) -> Iterator[Turn]:
    """Hold the machine's engine, or give up waiting for it; what is yielded says which.

    llama.cpp's threads spin while they wait for each other, so two processes that decode at once slow each other
    tenfold: waiting is faster for both.

    Args:
        path: the lock file, made when it is not there, writable by every user of the machine.
        wait: whether to wait for another process that holds it.
        say: gets one line for a person when the wait is long.
        given_up: asked while waiting; True ends the wait without the lock.

    Raises:
        EngineBusyError: another process holds it and `wait` is False.
        EngineError: the file cannot be opened.
    """
    file = _open_shared(path)
    queue: int | None = None
    started = time.monotonic()
    said = False
    try:
        while not (held := _try(file)) and not given_up():
            if queue is None and wait:
                queue = _stand_in_line(path)
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            if not wait:
                raise EngineBusyError(
                    "engine",
                    f"process {holder} is judging on this machine",
                    "Try later, or leave out --no-wait.",
                )
            if not said and time.monotonic() - started > _SAY_AFTER_SECONDS:
                say(f"waiting for process {holder}, which is judging on this machine")
                said = True
            time.sleep(_POLL_SECONDS)
        if held:
            # Whose it is is for people to read; a file of another user's that cannot be written stays as it is.
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
        if queue is not None:
            os.close(queue)
            queue = None
        yield Turn(held, path)
    finally:
        os.close(file)
        if queue is not None:
            os.close(queue)
    if held and _someone_waits(path):
        # The next submission of this process would otherwise have the lock again before the other looks.
        time.sleep(2 * _POLL_SECONDS)


def hold_shared(path: Path) -> int:
    """Open `path` and keep a shared lock on it until the descriptor returned is closed, or the process ends.

    Raises:
        OSError: it cannot be opened.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _line(path: Path) -> Path:
    """The file on which those who wait hold a shared lock, so that the holder can see that there are some."""
    return path.with_name(f"{path.name}.line")


def _stand_in_line(path: Path) -> int:
    file = _open_shared(_line(path))
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _someone_waits(path: Path) -> bool:
    if not _line(path).exists():
        return False
    file = _open_shared(_line(path))
    try:
        return not _try(file)
    finally:
        os.close(file)


def _open_shared(path: Path) -> int:
    # First without O_CREAT: with it, Linux refuses another user's file in a world-writable folder (fs.protected_regular).
    for flags in (os.O_RDWR, os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except FileNotFoundError:
            break
        except PermissionError:
            continue
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # The mode above is subject to the umask; another user must be able to open it too.
        with contextlib.suppress(PermissionError):
            os.fchmod(file, 0o666)
    except OSError as error:
        raise EngineError(
            "engine",
            f"the lock file {path} cannot be opened ({error.strerror})",
            "Make it readable for this user.",
        ) from error
    return file


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
