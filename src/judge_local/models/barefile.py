"""A model at a path: usable where it lies, without being taken into the models folder.

Its hash is taken once and remembered in the models folder, with the file's size and time of change; where that folder
is not there or cannot be written, it is taken each time.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from judge_local.errors import ModelFileError, ModelMissingError, ModelStoreError
from judge_local.models.files import OnProgress, sha256_of, write_json
from judge_local.models.gguf import read_header
from judge_local.models.references import is_weights_name, split_parts
from judge_local.models.registry import StoredFile, StoredModel, name_from

HASHES = ".hashes.json"


def bare_model(path: Path, *, memory: Path, on_progress: OnProgress | None = None) -> StoredModel:
    """The model at the absolute `path`; `memory` is the folder that remembers hashes.

    Raises:
        ModelMissingError: there is no such file, or a part of it is not there.
        ModelFileError: it is no model's weights, is cut short, or is not its model's first part.
    """
    if not path.is_file():
        problem = "is a folder, not a file" if path.is_dir() else "there is no such file"
        raise ModelMissingError(
            str(path), problem, "Check the path; `judge-local ls` lists what is on this disk."
        )
    if not is_weights_name(path.name):
        raise ModelFileError(
            str(path), "is not a model's weights by its name", "Name the model's own .gguf file."
        )
    parts = [path.with_name(name) for name in split_parts(path.name)]
    if path != parts[0]:
        raise ModelFileError(str(path), "is not the first part of its model", f"Name {parts[0]}.")
    for part in parts:
        if not part.is_file():
            raise ModelMissingError(str(part), f"this part of {path.name} is not there", "Fetch all parts.")
        if reason := read_header(part).not_weights:
            raise ModelFileError(
                str(part), f"is not a model's weights: {reason}", "Name the model's own file."
            )
    files = tuple(_hashed(part, memory, on_progress) for part in parts)
    return StoredModel(name=name_from(path.name), folder=path.parent, files=files, source=f"file:{path}")


def _hashed(path: Path, memory: Path, on_progress: OnProgress | None) -> StoredFile:
    """The record of the file, its hash remembered or taken now."""
    stat = path.stat()
    hashes = _remembered(memory)
    match hashes.get(str(path)):
        case [int(size), int(mtime), str(sha256)] if (size, mtime) == (stat.st_size, stat.st_mtime_ns):
            pass
        case _:
            sha256 = sha256_of(path, on_progress=on_progress)
            kept = {name: value for name, value in hashes.items() if Path(name).exists()}
            if memory.is_dir():
                # Remembering saves work, no more: a folder that cannot be written is no fault here.
                with contextlib.suppress(ModelStoreError):
                    write_json(memory / HASHES, kept | {str(path): [stat.st_size, stat.st_mtime_ns, sha256]})
    return StoredFile(name=path.name, size_bytes=stat.st_size, sha256=sha256, mtime_ns=stat.st_mtime_ns)


def _remembered(memory: Path) -> dict[str, Any]:
    """Hashes taken before; none where none were kept, or what was kept is damaged."""
    try:
        data = json.loads((memory / HASHES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
