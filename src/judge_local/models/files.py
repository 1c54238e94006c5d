"""Files of the models folder: hashing, writing whole or not at all, and locks between processes.

* Contents are read in pieces of 1 MiB, so that memory stays flat whatever the size.
* A file appears under its name only when it is complete and on the disk.
* A lock lives on an open file (`flock`): it ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from judge_local.errors import DiskSpaceError, ModelStoreError

CHUNK_BYTES = 1 << 20

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""
OnEvent = Callable[[str], None]
"""Called with one line for a person."""


def sha256_of(path: Path, *, on_progress: OnProgress | None = None) -> str:
    """sha256 of a file's bytes, as 64 hex digits.

    Raises:
        ModelStoreError: the file cannot be read.
    """
    hasher, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            while chunk := file.read(CHUNK_BYTES):
                hasher.update(chunk)
                done += len(chunk)
                if on_progress is not None:
                    on_progress(done, total)
    except OSError as error:
        raise store_error(path, "cannot be read", error) from error
    return hasher.hexdigest()


def store_error(path: Path, problem: str, error: OSError) -> ModelStoreError | DiskSpaceError:
    """What an operating system's refusal means for the models folder, with what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskSpaceError(
            str(path), "the disk is full", "Make room, then run the same command: it resumes."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
        remedy = "Check its permissions, or name another folder with JUDGE_LOCAL_MODELS_DIR."
    else:
        remedy = "Check the disk."
    return ModelStoreError(str(path), f"{problem}: {error.strerror or error}", remedy)


def make_folder(directory: Path) -> None:
    """Create the models folder where it is not there yet.

    Raises:
        ModelStoreError: it cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error(directory, "the models folder cannot be created", error) from error


def write_json(path: Path, data: Any) -> None:
    """Write `data` as JSON under `path`: completely, or not at all.

    Raises:
        ModelStoreError: the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with temporary.open("x", encoding="utf-8") as file:
                json.dump(data, file, indent=2, ensure_ascii=False)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise store_error(path, "cannot be written", error) from error


def sync_folder(directory: Path) -> None:
    """Put a rename in `directory` on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path`, waiting for whoever holds it now; the file is gone afterwards.

    What it protects: one model's files while they are fetched or put in place.

    Raises:
        ModelStoreError: the folder cannot be written.
    """
    try:
        descriptor = _take(path, on_wait)
    except OSError as error:
        raise store_error(path.parent, "the models folder cannot be written", error) from error
    try:
        yield
    finally:
        # Still locked while it goes, so that whoever waits on it sees that it is no longer the one in the folder.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path, on_wait: Callable[[], None]) -> int:
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not told:
                    on_wait()
                    told = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
            # Whoever held it has removed it meanwhile; those who come now lock another file of that name.
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def exclusively(paths: Sequence[Path]) -> Iterator[None]:
    """Hold the exclusive lock of each file that is there: a worker holds a shared one on the weights it has loaded.

    What it protects: weights in use, from being taken away.

    Raises:
        ModelStoreError: another process holds one of them, or a file cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        for path in paths:
            try:
                file = stack.enter_context(path.open("rb"))
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                continue
            except BlockingIOError as error:
                raise ModelStoreError(
                    str(path),
                    "is in use by another process",
                    "End the judging or the pull that uses it.",
                ) from error
            except OSError as error:
                raise store_error(path, "cannot be opened", error) from error
        yield


def need_space(directory: Path, wanted_bytes: int) -> None:
    """Refuse unless `directory` has room for `wanted_bytes` more.

    Raises:
        DiskSpaceError: it has not.
    """
    free = shutil.disk_usage(directory).free
    if wanted_bytes > free:
        raise DiskSpaceError(
            str(directory),
            f"{human_size(wanted_bytes)} are needed and {human_size(free)} are free",
            "Make room (`judge-local ls` lists what can go), or name another folder with JUDGE_LOCAL_MODELS_DIR.",
        )


def clone(source: Path, target: Path) -> str:
    """Give `target` the bytes of `source` the cheapest way the disk offers; returns `reflink`, `hardlink` or `copy`.

    `target` must not exist.
    """
    if _reflink(source, target):
        return "reflink"
    try:
        os.link(source, target)
        return "hardlink"
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES):
            raise
    with source.open("rb") as reader, target.open("xb") as writer:
        shutil.copyfileobj(reader, writer, CHUNK_BYTES)
        writer.flush()
        os.fsync(writer.fileno())
    return "copy"


def _reflink(source: Path, target: Path) -> bool:
    """Share the blocks of `source` where the file system can (btrfs, XFS); otherwise leave nothing behind."""
    if sys.platform != "linux":
        return False
    ficlone = 0x40049409
    with source.open("rb") as reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer.fileno(), ficlone, reader.fileno())
        except OSError:
            # Another disk, or a file system without shared blocks: the next way is tried.
            target.unlink()
            return False
    return True


def human_size(size_bytes: int) -> str:
    """A size for a person, in decimal units.

    >>> human_size(98_362_432), human_size(512), human_size(4_215_695_776)
    ('98.4 MB', '512 B', '4.2 GB')
    """
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
