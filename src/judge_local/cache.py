"""The cache: answers kept as one JSON file each, under a key that names everything they depend on.

A damaged entry is a miss and never a crash; an entry is either whole or not there; a write that fails costs a warning
and never the result. Keys are length-prefixed, so that no two lists of parts share one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from judge_local.answer_text import strict_json
from judge_local.errors import UsageError, excerpt

_SAFE_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def sha256(text: str) -> str:
    """The SHA-256 of `text` in UTF-8, as 64 hex digits.

    Raises:
        UsageError: `text` holds a lone surrogate, so it is not text that UTF-8 can write.
    """
    return hashlib.sha256(_utf8(text)).hexdigest()


def build_cache_key(parts: Sequence[str]) -> str:
    """One key for `parts`: the SHA-256 of `<length>:<part>` joined by `|`, lengths in UTF-16 code units.

    Different lists give different keys: `["a|b", "c"]` and `["a", "b|c"]` too. A selector such as `auto` has no
    place among the parts; the model it stands for has.

    Raises:
        UsageError: a part is not a string, or holds a lone surrogate.
    """
    if isinstance(parts, str):
        raise UsageError("cache key", f"{excerpt(parts)} is one string", "Give a list of parts.")
    return sha256("|".join(f"{_utf16_length(part)}:{part}" for part in parts))


class JsonCache:
    """JSON values by key, each in `<directory>/<key>.json`, indented by two.

    Args:
        directory: where the entries lie; made at the first write.
        enabled: `False` turns every `get` into a miss and every `set` into nothing.
        label: stands before the text of warnings.
    """

    def __init__(
        self, directory: str | os.PathLike[str], enabled: bool = True, label: str = "judge-local"
    ) -> None:
        self.directory = Path(directory)
        self.enabled = enabled
        self.label = label
        self._warned = False

    def get(self, key: str) -> Any | None:
        """The value under `key`; None when there is none, or none that can be read.

        Raises:
            UsageError: `key` is not a safe file name.
        """
        path = self._path(key)
        if not self.enabled:
            return None
        try:
            return strict_json(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._warn_once(f"{path} cannot be read ({error}). Answers are computed afresh.")
            return None
        except (ValueError, RecursionError):  # Torn, not UTF-8, or not JSON: the next `set` replaces it.
            return None

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`, whole or not at all. A write that fails warns once for this cache and returns.

        Raises:
            UsageError: `key` is not a safe file name.
            TypeError: `value` is not made of JSON's types.
        """
        path = self._path(key)
        if not self.enabled:
            return
        try:
            data = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode()
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        except (OSError, ValueError) as error:
            self._warn_once(f"{path} cannot be written ({error}). Results are not kept.")

    def _path(self, key: str) -> Path:
        if not isinstance(key, str) or not _SAFE_KEY.fullmatch(key):
            raise UsageError(
                "cache key",
                f"{excerpt(key)} is not a safe file name",
                "Use build_cache_key(parts), or letters, digits, dots, dashes and underscores (at most 200).",
            )
        return self.directory / f"{key}.json"

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"{self.label}: the cache entry {text}", RuntimeWarning, stacklevel=4)


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, flush to the disk, then rename: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _utf16_length(part: str) -> int:
    if not isinstance(part, str):
        raise UsageError("cache key", f"the part {excerpt(part)} is not a string")
    return len(part) + sum(character > "\uffff" for character in part)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "text",
            f"position {error.start} holds a lone surrogate (U+{ord(text[error.start]):04X})",
            "Decode the text as UTF-8 before handing it over.",
        ) from None
