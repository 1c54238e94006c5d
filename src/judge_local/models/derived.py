"""Derived models: a new entry of the registry whose weights were made from another's; never in place of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judge_local.models.files import (
    OnEvent,
    OnProgress,
    locked,
    make_folder,
    need_space,
    sha256_of,
    store_error,
    sync_folder,
)
from judge_local.models.gguf import read_header
from judge_local.models.registry import (
    StoredModel,
    check_name,
    file_names,
    now_utc,
    stored_file,
    taken,
    write_entry,
)

if TYPE_CHECKING:
    from judge_local.models.store import Store

KIND = "requantised"


def derive(
    store: Store,
    parent: StoredModel,
    *,
    name: str,
    source: str,
    size_bytes: int,
    facts: Mapping[str, Any],
    write: Callable[[Path], None],
    on_progress: OnProgress | None = None,
    on_event: OnEvent = lambda text: None,
) -> StoredModel:
    """Make a model from `parent`: the same call twice makes it once.

    Args:
        store: where it goes.
        parent: what it is made from; it stays as it is.
        name: of the new model.
        source: how it was made, in one word with the parent's name; the same for the same work.
        size_bytes: about what it will take; asked of the disk first.
        facts: further keys of its registry entry.
        write: writes the weights to the path it is given, where nothing is.
        on_progress: told of bytes hashed.
        on_event: told in words.

    Returns:
        The new model, or the one that was made so before.

    Raises:
        UsageError: the name cannot be used, or stands for other weights.
        DiskSpaceError: there is no room.
        ModelStoreError: the folder cannot be written.
        ModelFileError: what was written is no model.
    """
    check_name(name)
    folder = store.directory
    make_folder(folder)
    with locked(store.lock_path(name), on_wait=lambda: on_event(f"{name}: waiting for another process")):
        if (here := store.get(name)) is not None:
            if here.source != source or here.extra.get("parentSha256") != parent.sha256:
                raise taken(here)
            on_event(f"{name}: is on this disk already")
            return store.checked(here)
        need_space(folder, size_bytes)
        (file_name,) = file_names(name, 1)
        temporary = folder / f".{file_name}.making"
        temporary.unlink(missing_ok=True)
        try:
            write(temporary)
            read_header(temporary)
            sha256 = sha256_of(temporary, on_progress=on_progress)
            _sync(temporary)
            temporary.replace(folder / file_name)
            sync_folder(folder)
        except OSError as error:
            raise store_error(folder, "the model cannot be put in", error) from error
        finally:
            temporary.unlink(missing_ok=True)
        model = StoredModel(
            name=name,
            folder=folder,
            files=(stored_file(folder, file_name, sha256),),
            source=source,
            licence=parent.licence,
            kind=KIND,
            parent=parent.name,
            pulled_at=now_utc(),
            extra={"parentSha256": parent.sha256, **facts},
        )
        write_entry(model)
    return model


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
