"""The results file: append-only JSON Lines, which is at once the output and the checkpoint.

* One process at a time: the file is locked for as long as it is open.
* A line is written as soon as there is something to write, and acknowledged only after the disk has it. Killed at any
  instant, the file ends in whole lines and at most one torn one, which is cut off when the file is opened again.
* The header says what the results were made with. Results made with anything else do not get into the same file.
* Nothing is overwritten: what replaces the file keeps the old one under a new name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import shutil
import stat
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from judge_local.batch.digests import DigestSet
from judge_local.batch.results_lines import (
    BUFFER_BYTES,
    FREE_SETTINGS,
    check_header,
    header_differences,
    header_of,
    line_of,
    no_results_file,
    open_to_read,
    result_of,
    sync_folder,
)
from judge_local.errors import ResultsFileError, UsageError, excerpt
from judge_local.results import Result, ResultsHeader

__all__ = [
    "FREE_SETTINGS",
    "ResultsFile",
    "check_header",
    "header_differences",
    "header_of",
    "line_of",
    "open_results",
    "open_to_read",
    "read_results",
    "sync_folder",
]

_BEGINS: Final = b'{"judgeLocalResults": '
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def read_results(path: str | Path) -> tuple[ResultsHeader, Iterator[Result]]:
    """The header of a results file, and its results, streamed. A torn last line is left out.

    Raises:
        UsageError: it is no results file, or a line of it is no result; the latter while the results are read.
        ResultsFileError: it cannot be read.
    """
    path = Path(path)
    with open_to_read(path) as file:
        header = header_of(path, file.readline())

    def results() -> Iterator[Result]:
        with open_to_read(path) as file:
            file.readline()
            for number, line in enumerate(file, 2):
                if line.endswith(b"\n"):
                    yield result_of(path, number, line)

    return header, results()


class ResultsFile:
    """A results file that is being written. Made by `open_results`; to be closed."""

    def __init__(self, path: Path, descriptor: int, *, text: bool) -> None:
        self.path = path
        self._fd = descriptor
        self._text = text
        self._end = 0
        # Protects the two below: rows are looked up in another thread than results are written in.
        self._lock = threading.Lock()
        self._ids = DigestSet()
        self._contents = DigestSet()
        """What was judged, of the results that were there when the file was opened."""

    def has(self, name: str) -> bool:
        """Whether the row with this id has a result."""
        with self._lock:
            return name in self._ids

    def has_same(self, name: str, claim: str, subject: str) -> bool:
        """Whether that result was there from the start, and is about this claim and this subject.

        Args:
            name: the row's id.
            claim: the row's claim.
            subject: the path that the subject is read from, or its sha256 where the row holds it.
        """
        with self._lock:
            return _content(name, claim, subject) in self._contents

    def __len__(self) -> int:
        """How many results there are."""
        return len(self._ids)

    def append(self, result: Result) -> None:
        """Write one result. It is safe only after `sync`.

        Raises:
            ResultsFileError: the disk is full, or failed; what was written before is whole.
            UsageError: the id has a result already.
        """
        line = line_of(result.to_json(text=self._text))
        if self.has(result.id):
            raise UsageError(str(self.path), f"{excerpt(result.id)} has a result already")
        self._write(line)
        with self._lock:
            self._ids.add(result.id)

    def sync(self) -> None:
        """Return when the disk has everything that was written. May be called from another thread.

        Raises:
            ResultsFileError: the disk failed.
        """
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._unwritable(error) from error

    def sort(self) -> None:
        """Put the results in the order of their rows, in one step.

        Raises:
            ResultsFileError: there is no room for a second copy; the file is as it was.
        """
        rows, starts, sizes = array("Q"), array("Q"), array("Q")
        with open_to_read(self.path) as file:
            header = file.readline()
            at = len(header)
            for line in file:
                rows.append(json.loads(line)["row"])
                starts.append(at)
                sizes.append(len(line))
                at += len(line)
        order = sorted(range(len(rows)), key=rows.__getitem__)
        if order != list(range(len(rows))):
            pieces = (os.pread(self._fd, sizes[index], starts[index]) for index in order)
            self._replace(chain([header], pieces))

    def close(self) -> None:
        """Let go of the file and its lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, header: ResultsHeader, on_kept: Callable[[Result], None]) -> None:
        """Take in what the file holds, or give it its header."""
        with open_to_read(self.path) as file:
            first = file.readline()
            if not first.endswith(b"\n"):
                if not _BEGINS.startswith(first[: len(_BEGINS)]):
                    raise no_results_file(self.path)
                self._cut(0)  # Empty, or torn in its very first line.
                self._write(line_of(header.to_json()))
                self.sync()
                sync_folder(self.path.parent)
                return
            check_header(self.path, header_of(self.path, first), header)
            end = len(first)
            for number, line in enumerate(file, 2):
                if not line.endswith(b"\n"):
                    break
                result = result_of(self.path, number, line)
                if not self._ids.add(result.id):
                    raise UsageError(
                        f"{self.path} line {number}",
                        f"{excerpt(result.id)} has a result in a line before",
                        "Remove one of the two.",
                    )
                subject = result.subject_file or result.subject_sha256
                self._contents.add(_content(result.id, result.claim, subject))
                on_kept(result)
                end += len(line)
        self._cut(end)

    def _cut(self, end: int) -> None:
        """Let the file end at `end`, whatever stands behind it."""
        try:
            if os.fstat(self._fd).st_size > end:
                os.ftruncate(self._fd, end)
        except OSError as error:
            raise self._unwritable(error) from error
        self._end = end

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            # Cutting a file shorter needs no room. Where even that fails, the torn line is cut off at the next start.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            raise self._unwritable(error) from error
        self._end += len(data)

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Put a file with `lines` in the place of this one, in one step, and hold its lock instead."""
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        descriptor = -1
        try:
            descriptor = os.open(temporary, _FLAGS | os.O_TRUNC, 0o666)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(descriptor, "wb", closefd=False, buffering=BUFFER_BYTES) as file:
                file.writelines(lines)
                file.flush()
                end = file.tell()
            os.fsync(descriptor)
            temporary.replace(self.path)
            sync_folder(self.path.parent)
        except BaseException as error:
            if descriptor >= 0:
                os.close(descriptor)
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise self._unwritable(error) from error
            raise
        os.close(self._fd)
        self._fd, self._end = descriptor, end

    def _unwritable(self, error: OSError) -> ResultsFileError:
        if error.errno in _FULL:
            return ResultsFileError(
                str(self.path),
                f"the disk is full ({error.strerror})",
                "What was written is whole. Make room and run the same command again: it goes on from there.",
            )
        return ResultsFileError(
            str(self.path),
            f"cannot be written ({error.strerror or error})",
            "What was written before is whole; the same command goes on from there.",
        )


_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def open_results(
    path: str | Path,
    header: ResultsHeader,
    *,
    fresh: bool = False,
    retry_errors: bool = False,
    text: bool = True,
    on_kept: Callable[[Result], None] = lambda _result: None,
) -> ResultsFile:
    """Open the results file at `path` to add to it; it is made where it is not there.

    Args:
        path: of the file.
        header: what the results to come are made with.
        fresh: keep what is there under another name, and begin anew.
        retry_errors: take out the results of rows that could not be judged or have an errored run; the file as it was
            is kept under another name.
        text: `False` writes no subjects and references.
        on_kept: gets each result that is there and stays.

    Raises:
        UsageError: it is no results file, or was made with other settings.
        ResultsFileError: another process writes to it, or it cannot be read or written.
    """
    # Through a link, so that what replaces the file does not replace the link.
    path = Path(path).resolve() if Path(path).is_symlink() else Path(path)
    file = ResultsFile(path, _lock(path), text=text)
    try:
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            left.unlink(missing_ok=True)  # By a process that was killed: whoever writes one holds the lock.
        if fresh and os.fstat(file._fd).st_size:
            _keep_old(path, file._fd)
            path.unlink()
            os.close(file._fd)
            file._fd = -1
            file._fd = _lock(path)
        elif retry_errors:
            _without_errors(file)
        file._begin(header, on_kept)
    except BaseException:
        file.close()
        raise
    return file


def _lock(path: Path) -> int:
    """A descriptor of the file at `path`, locked."""
    while True:
        try:
            descriptor = os.open(path, _FLAGS, 0o666)
        except OSError as error:
            raise ResultsFileError(
                str(path), f"cannot be opened ({error.strerror})", "Name a file that can be written."
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            if _is_at(path, found):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise ResultsFileError(
                str(path), "another process is writing to it", "Wait for it to end, or name another file."
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise ResultsFileError(
                str(path), f"cannot be locked ({error.strerror})", "Name a file on a disk that can lock."
            ) from error
        os.close(descriptor)  # It was replaced between the two steps: the one that is there now is meant.


def _is_at(path: Path, found: os.stat_result) -> bool:
    """Whether `found` is the file that has this path now; it may have been replaced, and live on under another name."""
    try:
        return os.path.samestat(path.stat(), found)
    except FileNotFoundError:
        return False


def _without_errors(file: ResultsFile) -> None:
    with open_to_read(file.path) as old:
        first = old.readline()
        if not first.endswith(b"\n"):
            return
        header_of(file.path, first)
        numbers = {
            number
            for number, line in enumerate(old, 2)
            if not line.endswith(b"\n") or _is_errored(result_of(file.path, number, line))
        }
        if not numbers:
            return
        _keep_old(file.path, file._fd)
        old.seek(0)
        file._replace(line for number, line in enumerate(old, 1) if number not in numbers)


def _is_errored(result: Result) -> bool:
    return result.error is not None or result.decision.votes.errors > 0


def _keep_old(path: Path, descriptor: int) -> Path:
    """Give the file a second name, in one step where the disk can; the first stays."""
    number = 1
    while True:
        name = path.with_name(f"{path.name}.old-{number}")
        try:
            os.link(path, name)
            return name
        except FileExistsError:
            number += 1
        except OSError:
            try:  # A disk without second names gets a copy.
                with name.open("xb") as copy, open(descriptor, "rb", closefd=False) as old:
                    old.seek(0)
                    shutil.copyfileobj(old, copy, BUFFER_BYTES)
                    copy.flush()
                    os.fsync(copy.fileno())
            except FileExistsError:
                number += 1
                continue
            except OSError as error:
                name.unlink(missing_ok=True)
                raise ResultsFileError(
                    str(name), f"cannot be written ({error.strerror})", "The results are as they were."
                ) from error
            return name


def _content(name: str, claim: str, subject: str) -> str:
    return json.dumps([name, claim, subject])
