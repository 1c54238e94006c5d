"""The store: the models on this disk, and how a reference is found among them.

* The folder is ours alone (`JUDGE_LOCAL_MODELS_DIR`, else the platform's data folder), so removing a model can never
  take what another tool downloaded. Only its top level is looked at.
* Finding a model opens no network socket and loads nothing.
* A hash is trusted while the file's size and time of change stand; otherwise it is taken again, and must be the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from judge_local.errors import (
    ModelFileError,
    ModelMissingError,
    ModelStoreError,
    UnknownModelError,
    UsageError,
    excerpt,
)
from judge_local.models import hardware
from judge_local.models.barefile import bare_model
from judge_local.models.catalog import CatalogModel, by_alias, by_tier, catalog
from judge_local.models.files import (
    OnEvent,
    OnProgress,
    exclusively,
    human_size,
    sha256_of,
    store_error,
)
from judge_local.models.partfile import SUFFIX
from judge_local.models.references import (
    Alias,
    HubFile,
    HubQuant,
    LocalFile,
    Reference,
    Selector,
    matches_quant,
    parse_reference,
    split_parts,
    stem_of,
)
from judge_local.models.registry import (
    StoredFile,
    StoredModel,
    entry_path,
    read_entry,
    write_entry,
)

__all__ = ["FileCheck", "Removal", "Store", "StoredFile", "StoredModel", "models_directory"]


def models_directory() -> Path:
    """The models folder: `JUDGE_LOCAL_MODELS_DIR`, else the platform's folder for an application's data.

    Nothing is created.
    """
    if named := os.environ.get("JUDGE_LOCAL_MODELS_DIR"):
        return Path(named).expanduser().absolute()
    import platformdirs

    return platformdirs.user_data_path("judge-local", appauthor=False) / "models"


def cache_directory() -> Path:
    """What is quicker to read again than to compute again: `JUDGE_LOCAL_CACHE_DIR`, else the platform's cache folder.

    Nothing is created. Deleting it costs nothing but time.
    """
    if named := os.environ.get("JUDGE_LOCAL_CACHE_DIR"):
        return Path(named).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("judge-local", appauthor=False)


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What verifying one file found."""

    path: Path
    state: str
    """`ok`, `changed` or `missing`."""
    expected: str
    actual: str | None
    """sha256 as 64 hex digits; None where there is no file."""


@dataclass(frozen=True, slots=True)
class Removal:
    """What removing a model takes away, or would."""

    name: str
    paths: tuple[Path, ...]
    size_bytes: int


class Store:
    """The models folder.

    Args:
        directory: the folder; None takes `models_directory()`. It need not exist.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (models_directory() if directory is None else Path(directory)).absolute()

    def list(self) -> tuple[StoredModel, ...]:
        """All models of the folder, by name. Entries that cannot be read are left to `problems`."""
        return self._scan()[0]

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the folder's registry, one line each."""
        return self._scan()[1]

    def get(self, name: str) -> StoredModel | None:
        """The model of that name, upper and lower case alike, or None. Its files are not looked at."""
        return next((model for model in self.list() if model.name.casefold() == name.casefold()), None)

    def stored(self, reference: Reference) -> StoredModel | None:
        """The model on this disk that `reference` means, or None. Its files are not looked at.

        Raises:
            UsageError: it means several.
        """
        models = self.list()
        if isinstance(reference, Alias):
            known = by_alias(reference.name)
            same = [m for m in models if known and known.sha256 is not None and m.sha256 == known.sha256]
            return next(iter([m for m in models if m.name == reference.name] + same), None)
        if isinstance(reference, HubFile | HubQuant):
            found = [m for m in models if _from_hub(m, reference)]
            if len(found) > 1:
                names = ", ".join(m.name for m in found)
                raise UsageError(
                    "model", f"{excerpt(str(reference))} is several on this disk: {names}", "Name one."
                )
        else:
            found = [m for m in models if m.source == str(reference)]
        if not found:
            # The same file may have come from another of the catalog's sources.
            found = [
                m for k in catalog() if str(reference) in k.sources and (m := self.stored(Alias(k.alias)))
            ]
        return found[0] if found else None

    def find(self, reference: str | Path, *, free_vram_bytes: int = 0) -> StoredModel:
        """The model on this disk that `reference` means, its files checked against the registry.

        A bare path is hashed once and remembered. `free_vram_bytes` counts when `auto` weighs what this machine can
        carry.

        Raises:
            UnknownModelError: the reference names nothing.
            ModelMissingError: it names a model or a file that is not here.
            ModelFileError: the file is no model, or has changed since it was fetched.
        """
        text = str(reference)
        if isinstance(reference, str) and (named := self.get(text)):
            return self.checked(named)
        if isinstance(reference, Path):
            return self.at_path(reference)
        parsed = parse_reference(text, known=[model.name for model in self.list()])
        if isinstance(parsed, LocalFile):
            return self.at_path(Path(text))
        if isinstance(parsed, Selector):
            return self.checked(self._select(parsed.word, free_vram_bytes))
        if found := self.stored(parsed):
            return self.checked(found)
        raise self._missing(text, by_alias(text))

    def the_only(self) -> StoredModel:
        """The one model on this disk: what is judged with when none is named.

        Raises:
            ModelMissingError: there is none.
            UsageError: there are several.
        """
        models = self.list()
        if not models:
            first = catalog()[0]
            raise ModelMissingError(
                "model",
                f"there is no model in {self.directory}",
                f"Run `judge-local pull {first.alias}` ({human_size(first.size_bytes)}) for a first try, "
                "or `judge-local pull auto` for a judge that this machine carries.",
            )
        if len(models) > 1:
            names = ", ".join(model.name for model in models)
            raise UsageError(
                "model", f"none is named and there are {len(models)}: {names}", "Choose with --model."
            )
        return self.checked(models[0])

    def verify(self, model: StoredModel, *, on_progress: OnProgress | None = None) -> tuple[FileCheck, ...]:
        """Hash all files of `model` anew.

        Raises:
            ModelStoreError: a file is there and cannot be read.
        """
        checks = []
        for file, path in zip(model.files, model.paths, strict=True):
            actual = sha256_of(path, on_progress=on_progress) if path.exists() else None
            state = "missing" if actual is None else "ok" if actual == file.sha256 else "changed"
            checks.append(FileCheck(path, state, file.sha256, actual))
        return tuple(checks)

    def remove(self, name: str, *, dry_run: bool = False) -> Removal:
        """Remove a model: its weights, what an unfinished pull left of it, and its registry entry.

        With `dry_run`, only say what would go.

        Raises:
            ModelMissingError: no model of that name, or reference, is in the folder.
            ModelStoreError: one of its files is in use, or cannot be removed.
        """
        model = self.get(name)
        if model is None and not self.parts_of(name):
            # A path finds nothing here: what the registry does not list is not ours to remove.
            model = self.stored(parse_reference(name, known=[m.name for m in self.list()]))
            if model is None:
                raise ModelMissingError(
                    name, f"is not in {self.directory}", "`judge-local ls` lists what is."
                )
        weights = [path for path in (model.paths if model else ()) if path.exists() or path.is_symlink()]
        weights += self.parts_of(model.name if model else name)
        entry = [entry_path(model.folder, model.name)] if model else []
        removal = Removal(
            model.name if model else name, (*weights, *entry), sum(path.lstat().st_size for path in weights)
        )
        if dry_run:
            return removal
        with exclusively(weights):
            try:
                # Weights first: an entry without files says so, files without an entry are seen by nobody.
                for path in removal.paths:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise store_error(self.directory, "cannot be removed from", error) from error
        return removal

    def parts_of(self, name: str) -> tuple[Path, ...]:
        """What unfinished pulls of model `name` left in the folder."""
        if not self.directory.is_dir():
            return ()
        stems = {
            path: path.name.removesuffix(SUFFIX).rpartition(".")[0]
            for path in self.directory.glob(f"*{SUFFIX}")
        }
        return tuple(sorted(path for path, stem in stems.items() if stem_of(f"{stem}.gguf") == name))

    def import_file(
        self,
        source: Path,
        *,
        name: str | None = None,
        sha256: str | None = None,
        on_progress: OnProgress | None = None,
        on_event: OnEvent = lambda text: None,
    ) -> StoredModel:
        """Take a model from elsewhere on this machine into the folder; the file itself stays where it is.

        A file whose bytes are a catalog model's takes that model's name and facts; a file that is to have such a name
        must have its bytes.

        Args:
            source: the GGUF file; of a split model, the first part.
            name: the model's name; None makes one from the file's.
            sha256: what the file must hash to, as 64 hex digits.
            on_progress: told of bytes hashed.
            on_event: told in words.

        Raises:
            ModelFileError: the file is no model, or not the one it should be.
            ModelMissingError: there is no such file.
            UsageError: the name cannot be used, or stands for other bytes already.
            ModelStoreError: the folder cannot be written.
            DiskSpaceError: there is no room.
        """
        from judge_local.models.importing import import_file

        return import_file(self, source, name=name, sha256=sha256, on_progress=on_progress, on_event=on_event)

    def lock_path(self, name: str) -> Path:
        """The lock file that guards the files of model `name` while they are put in place."""
        return self.directory / f".{name}.lock"

    def _scan(self) -> tuple[tuple[StoredModel, ...], tuple[str, ...]]:
        models, problems = [], []
        try:
            entries = sorted(path for path in self.directory.glob("*.json") if path.name[0] != ".")
        except OSError as error:
            raise store_error(self.directory, "the models folder cannot be read", error) from error
        for path in entries:
            try:
                model = read_entry(path)
            except ModelStoreError as error:
                problems.append(str(error))
                continue
            if model is not None:
                models.append(model)
        return tuple(models), tuple(problems)

    def _select(self, word: str, free_vram_bytes: int) -> StoredModel:
        """The model on this disk that a selector means: the largest that fits, for `auto`; else the tier's own."""
        if word != "auto":
            tier = by_tier(word)
            if found := self.stored(Alias(tier.alias)):
                return found
            raise self._missing(word, tier)
        models = sorted(self.list(), key=lambda model: (model.size_bytes, model.name))
        if not models:
            return self.the_only()
        budget = hardware.memory_budget(hardware.total_memory_bytes(), free_vram_bytes)
        return next((m for m in reversed(models) if hardware.fits(m.size_bytes, budget)), models[0])

    def _missing(self, text: str, known: CatalogModel | None) -> ModelMissingError:
        size = f" ({human_size(known.size_bytes)})" if known else ""
        here = ", ".join(model.name for model in self.list()) or "none"
        alias = known.alias if known else text
        return ModelMissingError(
            text, "is not on this disk", f"Run `judge-local pull {alias}`{size}, or use what is here: {here}."
        )

    def checked(self, model: StoredModel) -> StoredModel:
        """`model`, its files being what the registry says; hashed anew only where size or time differ.

        Raises:
            ModelMissingError: a file is gone.
            ModelFileError: a file has other bytes.
        """
        files = []
        for file, path in zip(model.files, model.paths, strict=True):
            try:
                stat = path.stat()
            except OSError as error:
                again = f"Run `judge-local rm {model.name}`, then pull it again."
                raise ModelMissingError(model.name, f"its file {path} is gone", again) from error
            fresh = file
            if (stat.st_size, stat.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
                if stat.st_size != file.size_bytes or sha256_of(path) != file.sha256:
                    raise ModelFileError(
                        str(path),
                        f"is not the file that was fetched as {model.name}: its bytes have changed",
                        f"Run `judge-local pull {model.name} --force`, or `judge-local rm {model.name}`.",
                    )
                fresh = dataclasses.replace(file, mtime_ns=stat.st_mtime_ns)
            files.append(fresh)
        checked = dataclasses.replace(model, files=tuple(files))
        if checked != model:
            # A folder that cannot be written costs taking the hash again the next time, no more.
            with contextlib.suppress(ModelStoreError):
                write_entry(checked)
        return checked

    def at_path(self, path: Path, *, on_progress: OnProgress | None = None) -> StoredModel:
        """The model whose first file is at `path`, which need not be in the folder.

        Raises:
            ModelMissingError: there is no such file, or a part of it is not there.
            ModelFileError: it is no model's weights, is cut short, or is not its model's first part.
        """
        path = path.expanduser().absolute()
        for model in self.list():
            if path in model.paths:
                return self.checked(model)
        return bare_model(path, memory=self.directory, on_progress=on_progress)


def _from_hub(model: StoredModel, reference: HubFile | HubQuant) -> bool:
    """Whether `model` was fetched from what `reference` names."""
    if not model.source.startswith("hf:"):
        return False
    try:
        source = parse_reference(model.source)
    except UnknownModelError:
        return False
    if not isinstance(source, HubFile) or source.repo.casefold() != reference.repo.casefold():
        return False
    if reference.revision is not None and reference.revision not in (
        model.revision,
        model.extra.get("asked"),
    ):
        return False
    if isinstance(reference, HubFile):
        return split_parts(source.filename)[0] == split_parts(reference.filename)[0]
    return matches_quant(source.filename, reference.quant)
