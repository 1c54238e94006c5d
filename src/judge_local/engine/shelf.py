"""The shelf: what is quicker to read again than to compute again, kept on disk between processes under a content hash.

* A value is kept under all that it depends on: what the process is made of (weights, engine build), and tokens. Nothing
  is ever out of date.
* The folder is capped: what was used longest ago goes first. Deleting it costs nothing but time.
* A value that is not whole is a miss. A shelf that cannot be written says so once, and then is none.
* No subject is ever kept here, only what stands before every subject.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from judge_local.cache import write_atomically

MOST_BYTES: Final = 512 * 2**20
_DIGEST_BYTES: Final = 32


class Shelf:
    """Values by key, a file each.

    Args:
        folder: made at the first write; None keeps nothing.
        say: told once when the folder cannot be written.
        stamp: what all values of this process depend on; a part of every key.
        most_bytes: what all files together may take.
    """

    def __init__(
        self,
        folder: Path | None,
        say: Callable[[str], None],
        *,
        stamp: str = "",
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._folder, self._say, self._stamp, self._most_bytes = folder, say, stamp, most_bytes

    def get(self, key: str) -> bytes | None:
        """What is kept under `key`."""
        if self._folder is None:
            return None
        path = self._path(self._folder, key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None  # Not there, or not to be read: it is computed.
        digest, value = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return value if hashlib.sha256(value).digest() == digest else None

    def put(self, key: str, value: bytes) -> None:
        """Keep `value` under `key`, whole or not at all, and drop what has become too much."""
        folder = self._folder
        if folder is None or len(value) > self._most_bytes // 4:
            return
        path = self._path(folder, key)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, hashlib.sha256(value).digest() + value)
            self._drop_oldest(folder, path)
        except OSError as error:
            self._folder = None
            self._say(
                f"nothing can be kept in {folder} ({error.strerror or error}); it is computed each time"
            )

    def _drop_oldest(self, folder: Path, newest: Path) -> None:
        files = []
        for path in folder.iterdir():  # With what a process that was killed has left half written.
            try:
                facts = path.stat()
            except FileNotFoundError:
                continue  # Another process was quicker.
            files.append((facts.st_mtime_ns, facts.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._most_bytes or path == newest:
                return
            path.unlink(missing_ok=True)
            total -= size

    def _path(self, folder: Path, key: str) -> Path:
        return folder / f"{hashlib.sha256(f'{self._stamp}|{key}'.encode()).hexdigest()}.state"
