"""The registry: what the models folder knows about each model, one `<name>.json` beside the model's files.

* An entry names only files in its own folder; one that points elsewhere is refused, so nothing outside can be touched.
* `version` 1 marks an entry as ours. Keys that we do not know survive being read and written.
* Size and time of change are recorded with the hash: while both stand, the hash is trusted.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from judge_local.errors import ModelStoreError, UsageError, excerpt
from judge_local.models.files import write_json
from judge_local.models.references import SELECTORS, split_parts, stem_of

VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = ("version", "source", "revision", "files", "licence", "kind", "parent", "pulledAt")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a model, as it was when its hash was taken."""

    name: str
    size_bytes: int
    sha256: str
    mtime_ns: int
    """Time of last change, in nanoseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A model on this disk."""

    name: str
    folder: Path
    files: tuple[StoredFile, ...]
    """At least one; the parts of a split model in order."""
    source: str
    """Where it came from, as a reference: `hf:…`, `pypi:…`, an address, or the path of an imported file."""
    revision: str | None = None
    """The hub's commit or the package's version, pinned when it was fetched."""
    licence: str | None = None
    kind: str = "model"
    parent: str | None = None
    """The model that this one was made from, where known."""
    pulled_at: str | None = None
    """UTC, ISO 8601; None for a bare path, which nobody pulled."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file that llama.cpp is given: the first, which finds the others."""
        return self.folder / self.files[0].name

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, in order."""
        return tuple(self.folder / file.name for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size_bytes for file in self.files)

    @property
    def sha256(self) -> str:
        """The file's sha256; for a split model, the sha256 of the parts' sha256 joined by line feeds."""
        if len(self.files) == 1:
            return self.files[0].sha256
        return hashlib.sha256("\n".join(file.sha256 for file in self.files).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The registry entry."""
        optional = {"parent": self.parent} if self.parent is not None else {}
        return {
            "version": VERSION,
            "source": self.source,
            "revision": self.revision,
            "files": [
                {"name": f.name, "size": f.size_bytes, "sha256": f.sha256, "mtimeNs": f.mtime_ns}
                for f in self.files
            ],
            "licence": self.licence,
            "kind": self.kind,
            **optional,
            "pulledAt": self.pulled_at,
            **self.extra,
        }


def check_name(name: str) -> str:
    """`name`, if it can stand as a file's name on any disk and means nothing else.

    Raises:
        UsageError: it cannot.
    """
    if not _NAME.fullmatch(name) or name in SELECTORS:
        reason = "is a selector" if name in SELECTORS else "is not a model's name"
        raise UsageError(
            "name", f"{excerpt(name)} {reason}", "Use letters, digits, '.', '_' and '-', at most 100."
        )
    return name


def name_from(filename: str) -> str:
    """A model's name made from a file's name.

    >>> name_from("Q8_0/Big model-Q8_0-00001-of-00003.gguf")
    'Big-model-Q8_0'
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem_of(filename)).strip("-._")[:100]
    return name if name and name not in SELECTORS else f"model-{name}".rstrip("-")


def file_names(name: str, count: int) -> tuple[str, ...]:
    """What the `count` files of model `name` are called in the folder."""
    return split_parts(f"{name}-00001-of-{count:05}.gguf") if count > 1 else (f"{name}.gguf",)


def taken(model: StoredModel) -> UsageError:
    """The refusal to put other bytes under a name that is in use."""
    return UsageError(
        "name",
        f"{model.name} is on this disk already, from {model.source}"
        + (f" at {model.revision}" if model.revision else ""),
        f"Give another --name, or run `judge-local rm {model.name}` first.",
    )


def now_utc() -> str:
    """This instant as the registry writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stored_file(folder: Path, name: str, sha256: str) -> StoredFile:
    """The record of a file whose hash is known; size and time are read from the disk."""
    stat = (folder / name).stat()
    return StoredFile(name=name, size_bytes=stat.st_size, sha256=sha256, mtime_ns=stat.st_mtime_ns)


def entry_path(folder: Path, name: str) -> Path:
    """Where the entry of model `name` stands."""
    return folder / f"{name}.json"


def register(
    folder: Path,
    name: str,
    files: Sequence[StoredFile],
    *,
    source: str,
    licence: str | None,
    revision: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> StoredModel:
    """Make a model of `files`, which are in their places in `folder`: from now on it is on this disk.

    Args:
        folder: the models folder.
        name: the model's.
        files: at least one, all parts of it.
        source: where it came from.
        licence: its SPDX name, where it is known.
        revision: the commit it was at, where its source has such.
        extra: what else is to be remembered.

    Raises:
        ModelStoreError: the folder cannot be written.
    """
    model = StoredModel(
        name=name,
        folder=folder,
        files=tuple(files),
        source=source,
        revision=revision,
        licence=licence,
        pulled_at=now_utc(),
        extra=extra or {},
    )
    write_entry(model)
    return model


def write_entry(model: StoredModel) -> None:
    """Write the model's entry, completely or not at all.

    Raises:
        ModelStoreError: the folder cannot be written.
    """
    write_json(entry_path(model.folder, model.name), model.to_json())


def read_entry(path: Path) -> StoredModel | None:
    """The model whose entry stands at `path`; None for a JSON file that is not one of ours.

    Raises:
        ModelStoreError: the file cannot be read, or claims to be an entry and is none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = f"the registry entry cannot be read: {excerpt(str(error))}"
        raise ModelStoreError(str(path), problem, "Remove it and pull the model again.") from error
    if not isinstance(data, dict) or "version" not in data or "files" not in data:
        return None
    if data["version"] != VERSION:
        problem = f"the registry entry has version {excerpt(data['version'])}; {VERSION} is readable"
        raise ModelStoreError(str(path), problem, "Use the judge-local that wrote it.")
    files = [_read_file(path, entry) for entry in _list(data["files"])]
    if not files or not _NAME.fullmatch(path.stem):
        raise _damaged(path, "files", data["files"])
    return StoredModel(
        name=path.stem,
        folder=path.parent,
        files=tuple(files),
        source=_text(path, data, "source") or "",
        revision=_text(path, data, "revision"),
        licence=_text(path, data, "licence"),
        kind=_text(path, data, "kind") or "model",
        parent=_text(path, data, "parent"),
        pulled_at=_text(path, data, "pulledAt"),
        extra={key: value for key, value in data.items() if key not in _KEYS},
    )


def _read_file(path: Path, entry: Any) -> StoredFile:
    values = (
        [entry.get(key) for key in ("name", "size", "sha256", "mtimeNs")] if isinstance(entry, dict) else []
    )
    match values:
        case [str(name), int(size), str(sha256), int(mtime)] if (
            Path(name).name == name and name[:1] != "." and size >= 0 and _SHA256.fullmatch(sha256)
        ):
            return StoredFile(name=name, size_bytes=size, sha256=sha256, mtime_ns=mtime)
    raise _damaged(path, "files", entry)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _text(path: Path, data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise _damaged(path, key, value)
    return value


def _damaged(path: Path, key: str, value: Any) -> ModelStoreError:
    problem = f"the registry entry is damaged: {key} is {excerpt(value)}"
    return ModelStoreError(str(path), problem, "Remove it and pull the model again.")
