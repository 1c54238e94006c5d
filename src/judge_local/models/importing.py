"""Import: take a model from elsewhere on this machine into the models folder; the file itself stays where it is.

* A file is known by its bytes: those of a catalog model give it that model's name and facts, whatever it was called.
* A file that is to have a catalog model's name must have its bytes.
* Where the disk can share blocks or names, nothing is copied.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from judge_local.errors import ModelFileError
from judge_local.models.catalog import by_alias, by_sha256
from judge_local.models.files import (
    OnEvent,
    OnProgress,
    clone,
    locked,
    make_folder,
    need_space,
    sha256_of,
    store_error,
    sync_folder,
)
from judge_local.models.registry import (
    StoredFile,
    StoredModel,
    check_name,
    file_names,
    name_from,
    register,
    stored_file,
    taken,
)

if TYPE_CHECKING:
    from judge_local.models.store import Store


def import_file(
    store: Store,
    source: Path,
    *,
    name: str | None,
    sha256: str | None,
    on_progress: OnProgress | None,
    on_event: OnEvent,
) -> StoredModel:
    """See `Store.import_file`."""
    bare = store.at_path(source, on_progress=on_progress)
    if sha256 is not None and bare.sha256 != sha256.lower():
        raise ModelFileError(str(source), f"has sha256 {bare.sha256}, not {sha256}", "Fetch the file again.")
    known = by_sha256(bare.sha256)
    name = check_name(name or (known.alias if known else name_from(source.name)))
    _hold_to_catalog(name, bare)
    known = known or by_alias(name)
    make_folder(store.directory)
    with locked(store.lock_path(name), on_wait=lambda: on_event(f"{name}: waiting for another process")):
        if (here := store.get(name)) is not None:
            if here.sha256 != bare.sha256:
                raise taken(here)
            if all(check.state == "ok" for check in store.verify(here)):
                on_event(f"{name}: is on this disk already")
                return here
        return register(
            store.directory,
            name,
            _take(store.directory, name, bare, on_event),
            source=f"file:{bare.path}",
            licence=known.licence if known else None,
        )


def _hold_to_catalog(name: str, model: StoredModel) -> None:
    """Refuse a model that is to have a catalog model's name and has not its bytes."""
    known = by_alias(name)
    if known is None:
        return
    if known.sha256 is not None and model.sha256 != known.sha256:
        problem = f"has sha256 {model.sha256}; {name} has {known.sha256}"
        raise ModelFileError(str(model.path), problem, "Give it another --name.")
    if model.size_bytes != known.size_bytes:
        problem = f"has {model.size_bytes} bytes; {name} has {known.size_bytes}"
        raise ModelFileError(str(model.path), problem, "Give it another --name.")


def _take(folder: Path, name: str, bare: StoredModel, on_event: OnEvent) -> tuple[StoredFile, ...]:
    """Put the files of `bare` into `folder` under `name`, each whole or not at all."""
    files = []
    try:
        for file, path, target in zip(bare.files, bare.paths, file_names(name, len(bare.files)), strict=True):
            # A link to a file is often a name in another tool's cache: what it points to is what is taken.
            original = path.resolve()
            temporary = folder / f".{target}.import"
            temporary.unlink(missing_ok=True)
            try:
                if original.stat().st_dev != folder.stat().st_dev:
                    need_space(folder, file.size_bytes)
                how = clone(original, temporary)
                if how == "copy" and sha256_of(temporary) != file.sha256:
                    raise ModelFileError(str(path), "changed while it was copied", "Import it again.")
                temporary.replace(folder / target)
            finally:
                temporary.unlink(missing_ok=True)
            on_event(f"{name}: {how} of {path}")
            files.append(stored_file(folder, target, file.sha256))
        sync_folder(folder)
    except OSError as error:
        raise store_error(folder, "the model cannot be put in", error) from error
    return tuple(files)
