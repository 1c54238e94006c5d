"""Part files: a download as far as it came, kept so that the next try goes on from there.

The file's name carries the hash that it must have in the end, so that bytes of another revision are never continued.
Its bytes are hashed as they are written; those of an earlier process are read once, when it is opened.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from types import TracebackType

from judge_local.errors import DiskSpaceError, ModelStoreError
from judge_local.models.files import CHUNK_BYTES, store_error, sync_folder

SUFFIX = ".gguf.part"


def part_path(folder: Path, target: str, sha256: str) -> Path:
    """Where the part file of `folder/target` stands.

    >>> part_path(Path("models"), "m.gguf", "b179c9523d0e" + 52 * "0").name
    'm.b179c9523d0e.gguf.part'
    """
    return folder / f"{target.removesuffix('.gguf')}.{sha256[:12]}{SUFFIX}"


class PartFile:
    """An open part file; a context manager that closes it and leaves it where it is.

    Raises:
        ModelStoreError: the folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("r+b" if path.exists() else "x+b")
            # So that `rm` leaves alone what is being fetched.
            fcntl.flock(self._file.fileno(), fcntl.LOCK_SH)
            self._hasher, self._size = hashlib.sha256(), 0
            while chunk := self._file.read(CHUNK_BYTES):
                self._count(chunk)
        except OSError as error:
            raise store_error(path.parent, "the models folder cannot be written", error) from error

    @property
    def size(self) -> int:
        """Bytes written so far, by this process and those before it."""
        return self._size

    @property
    def sha256(self) -> str:
        """sha256 of the bytes so far, as 64 hex digits."""
        return self._hasher.hexdigest()

    def append(self, chunk: bytes) -> None:
        """Write `chunk` at the end.

        Raises:
            DiskSpaceError: the disk is full. What was written stays.
            ModelStoreError: the disk refuses for another reason.
        """
        try:
            self._file.write(chunk)
            self._file.flush()
        except OSError as error:
            raise self._cannot_write(error) from error
        self._count(chunk)

    def restart(self) -> None:
        """Forget all bytes.

        Raises:
            ModelStoreError: the disk refuses.
        """
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise self._cannot_write(error) from error
        self._hasher, self._size = hashlib.sha256(), 0

    def finish(self, target: Path) -> None:
        """Put the file, complete and on the disk, in the place of `target`.

        Raises:
            ModelStoreError: the disk refuses.
        """
        try:
            os.fsync(self._file.fileno())
            self.path.replace(target)
            sync_folder(target.parent)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _count(self, chunk: bytes) -> None:
        self._hasher.update(chunk)
        self._size += len(chunk)

    def _cannot_write(self, error: OSError) -> ModelStoreError | DiskSpaceError:
        return store_error(self.path, "cannot be written", error)

    def __enter__(self) -> PartFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
