"""Pull: bring a model to this disk, whole and known, or say what stands in the way.

* What is on this disk already is found in the registry, without any network.
* Sources are tried in order. Every byte goes through a part file; a name appears only over a file of the right hash.
* A pull that is killed at any instant leaves nothing half-registered, and goes on from its part file the next time.
* Two pulls of one model: the second waits, and then finds it done.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from judge_local.errors import (
    CorruptDownloadError,
    GatedModelError,
    ModelFileError,
    ModelMissingError,
    ModelNotFoundError,
    PullError,
    SourceUnreachableError,
    UnknownModelError,
    UsageError,
    excerpt,
)
from judge_local.models import hardware
from judge_local.models.catalog import CatalogModel, by_alias, by_tier
from judge_local.models.files import (
    OnEvent,
    OnProgress,
    human_size,
    locked,
    make_folder,
    need_space,
    sha256_of,
)
from judge_local.models.gguf import read_header
from judge_local.models.partfile import PartFile, part_path
from judge_local.models.references import (
    Alias,
    HubFile,
    HubQuant,
    LocalFile,
    PypiFile,
    Reference,
    Selector,
    WebFile,
    is_weights_name,
    parse_reference,
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
from judge_local.models.sources import Offer, RemoteFile, Source
from judge_local.models.sources.web import STALL_SECONDS
from judge_local.models.store import Store

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_NEXT_SOURCE = (SourceUnreachableError, ModelNotFoundError, GatedModelError, CorruptDownloadError)


def pull(
    reference: str,
    *,
    store: Store | None = None,
    on_progress: OnProgress | None = None,
    on_event: OnEvent | None = None,
    force: bool = False,
    name: str | None = None,
    sha256: str | None = None,
    free_vram_bytes: int = 0,
    stall_seconds: float = STALL_SECONDS,
) -> StoredModel:
    """Bring the model that `reference` names to this disk.

    Args:
        reference: any reference but a path; a selector chooses by this machine's memory.
        store: the models folder; None takes the usual one.
        on_progress: called with the bytes done and the bytes in all.
        on_event: called with one line for a person: what a selector means, who serves, who is waited for.
        force: fetch it again although it is here, from the first byte.
        name: the model's name on this disk; None takes the alias, or the file's name.
        sha256: what the file must hash to; needed for an address, which nobody else vouches for.
        free_vram_bytes: free memory of the graphics card, for selectors.
        stall_seconds: how long a source may send nothing.

    Raises:
        UnknownModelError: the reference names nothing, or several files.
        UsageError: it is a path, lacks its sha256, or its name is taken.
        PullError: no source delivers; each reason has a class of its own.
        ModelStoreError: the models folder cannot be written.
    """
    puller = _Puller(
        store=store if store is not None else Store(),
        on_progress=on_progress or (lambda done, total: None),
        on_event=on_event or (lambda text: None),
        force=force,
        sha256=_checked_sha256(sha256),
        stall_seconds=stall_seconds,
    )
    return puller.pull(reference, name, free_vram_bytes)


def _checked_sha256(sha256: str | None) -> str | None:
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise UsageError(
            "sha256", f"{excerpt(sha256)} is not 64 hex digits", "Copy it from the file's publisher."
        )
    return sha256.lower() if sha256 is not None else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Puller:
    """One pull: its settings, and the steps."""

    store: Store
    on_progress: OnProgress
    on_event: OnEvent
    force: bool
    sha256: str | None
    stall_seconds: float

    def pull(self, text: str, name: str | None, free_vram_bytes: int) -> StoredModel:
        reference = self._reference(text, free_vram_bytes)
        if here := self._here(reference):
            return here
        if isinstance(reference, HubQuant):
            from judge_local.models.sources.hub import resolve_quant

            reference = resolve_quant(reference)
            if here := self._here(reference):
                return here
        known = by_alias(reference.name) if isinstance(reference, Alias) else None
        references = [parse_reference(source) for source in known.sources] if known else [reference]
        name = check_name(name or (known.alias if known else name_from(_file_name(reference))))
        if by_alias(name) not in (None, known):
            raise UsageError(
                "name", f"{name} is the catalog's name for other weights", "Give another --name."
            )
        make_folder(self.store.directory)
        with locked(
            self.store.lock_path(name),
            on_wait=lambda: self.on_event(f"{name}: another process is fetching it; waiting"),
        ):
            if here := self._here(reference):
                return here
            there = self.store.get(name)
            if there is not None and not self.force and not any(_is_of(there, each) for each in references):
                raise taken(there)
            if self.force:
                for part in self.store.parts_of(name):
                    part.unlink(missing_ok=True)
            return self._from_any(name, references, known)

    def _reference(self, text: str, free_vram_bytes: int) -> Reference:
        """What `text` means to a pull: never a selector, never a file that is here."""
        if (
            (named := self.store.get(text))
            and named.source.startswith(("hf:", "pypi:", "http"))
            and not by_alias(text)
        ):
            return _pinned(parse_reference(named.source), named.revision)
        reference = parse_reference(text, known=[model.name for model in self.store.list()])
        if isinstance(reference, LocalFile):
            raise UsageError(
                "model", f"{excerpt(text)} is a path", f"Run `judge-local import {text}` to take it in."
            )
        if isinstance(reference, Selector):
            budget = hardware.memory_budget(hardware.total_memory_bytes(), free_vram_bytes)
            tier = hardware.tier_for(budget) if reference.word == "auto" else reference.word
            model = by_tier(tier)
            self.on_event(f"{text} is {model.alias} here ({human_size(model.size_bytes)}, {model.licence})")
            return Alias(model.alias)
        if isinstance(reference, WebFile) and self.sha256 is None:
            raise UsageError(
                "sha256", f"{excerpt(text)} needs --sha256", "Copy it from the file's publisher."
            )
        filename = _file_name(reference)
        if filename and not is_weights_name(filename):
            raise UnknownModelError(
                "model",
                f"{excerpt(filename)} travels beside weights and is none",
                "Name the model's own file.",
            )
        return reference

    def _here(self, reference: Reference) -> StoredModel | None:
        """The model, if it is on this disk, whole, and wanted as it is."""
        found = None if self.force else self.store.stored(reference)
        if found is None:
            return None
        try:
            model = self.store.checked(found)
        except (ModelMissingError, ModelFileError) as error:
            self.on_event(f"{error} Fetching it again.")
            return None
        if self.sha256 is not None and model.sha256 != self.sha256:
            raise CorruptDownloadError(
                model.name,
                f"is on this disk with sha256 {model.sha256}, not {self.sha256}",
                "Run it again with --force.",
            )
        self.on_event(f"{model.name}: is on this disk already")
        return model

    def _from_any(
        self, name: str, references: Sequence[Reference], known: CatalogModel | None
    ) -> StoredModel:
        """The model from the first source that delivers."""
        failures: list[PullError] = []
        for reference in references:
            with closing(self._source(reference, known)) as source:
                try:
                    return self._from(name, reference, source, known)
                except _NEXT_SOURCE as error:
                    failures.append(error)
            if len(failures) < len(references):
                self.on_event(f"{failures[-1]} Trying the next source.")
        raise _none_delivers(name, failures, known)

    def _source(self, reference: Reference, known: CatalogModel | None) -> Source:
        """The source that `reference` names. What it needs is imported here, and nowhere on the way to judging."""
        if isinstance(reference, PypiFile):
            from judge_local.models.sources.pypi import PypiSource

            size = known.size_bytes if known else None
            return PypiSource(reference, self.store.directory, size_bytes=size, on_event=self.on_event)
        if isinstance(reference, HubFile):
            from judge_local.models.sources.hub import HubSource

            return HubSource(reference, ask_licence=known is None, stall_seconds=self.stall_seconds)
        if isinstance(reference, WebFile) and self.sha256 is not None:
            from judge_local.models.sources.web import WebSource

            return WebSource(reference, self.sha256, stall_seconds=self.stall_seconds)
        raise UsageError("model", f"{excerpt(str(reference))} cannot be fetched", "Import it instead.")

    def _from(
        self, name: str, reference: Reference, source: Source, known: CatalogModel | None
    ) -> StoredModel:
        """The model from one source."""
        offer = source.look()
        self._hold(offer, known)
        targets = file_names(name, len(offer.files))
        self._ask_for_space(offer, targets)
        total = sum(file.size_bytes or 0 for file in offer.files)
        size = f", {human_size(total)}" if total else ""
        self.on_event(f"{name}: fetching from {offer.source}{size}")
        files, done = [], 0
        for file, target in zip(offer.files, targets, strict=True):
            files.append(self._one(str(reference), source, file, target, done, total))
            done += files[-1].size_bytes
        asked = getattr(reference, "revision", None)
        model = register(
            self.store.directory,
            name,
            files,
            source=offer.source,
            licence=known.licence if known else offer.licence,
            revision=offer.revision,
            extra={"asked": asked} if asked not in (None, offer.revision) else None,
        )
        for part in self.store.parts_of(name):
            part.unlink(missing_ok=True)
        self.on_event(
            f"{name}: {human_size(model.size_bytes)} from {offer.source}, sha256 {model.sha256[:12]}"
        )
        return model

    def _hold(self, offer: Offer, known: CatalogModel | None) -> None:
        """Refuse an offer that is not what the catalog or the user says, before any byte of it."""
        for wanted, who in ((known.sha256 if known else None, "the catalog"), (self.sha256, "--sha256")):
            if wanted is not None and [file.sha256 for file in offer.files] != [wanted]:
                offered = ", ".join(file.sha256 for file in offer.files)
                raise CorruptDownloadError(
                    offer.source,
                    f"the source has sha256 {offered}; {who} says {wanted}",
                    "Do not use this source.",
                )

    def _ask_for_space(self, offer: Offer, targets: Sequence[str]) -> None:
        folder, wanted = self.store.directory, 0
        for file, target in zip(offer.files, targets, strict=True):
            part = part_path(folder, target, file.sha256)
            if file.size_bytes is not None and not _same_size(folder / target, file.size_bytes):
                wanted += max(0, file.size_bytes - (part.stat().st_size if part.exists() else 0))
        need_space(folder, wanted)

    def _one(
        self, where: str, source: Source, file: RemoteFile, target: str, done: int, total: int
    ) -> StoredFile:
        """One file, in its place. `done` of `total` bytes came before it."""
        folder = self.store.directory
        final = folder / target

        def progress(now: int, of: int) -> None:
            self.on_progress(done + now, total or of)

        if not self.force and _same_size(final, file.size_bytes) and sha256_of(final) == file.sha256:
            # A pull that was killed after its last rename, before it was registered.
            return stored_file(folder, target, file.sha256)
        left = part_path(folder, target, file.sha256)
        if left.exists() and left.stat().st_size:
            self.on_event(f"{where}: going on after {human_size(left.stat().st_size)}")
        with PartFile(left) as part:
            self._complete(where, source, file, part, progress)
            try:
                _refuse_other_than_weights(where, part.path)
            except CorruptDownloadError:
                # It has the right hash, so no other try brings anything else.
                part.path.unlink()
                raise
            part.finish(final)
        return stored_file(folder, target, file.sha256)

    def _complete(
        self, where: str, source: Source, file: RemoteFile, part: PartFile, on_progress: OnProgress
    ) -> None:
        """Fill `part` until it has the right hash; what an earlier try left is given one chance."""
        while True:
            kept = part.size
            if file.size_bytes is not None and part.size > file.size_bytes:
                part.restart()
            if file.size_bytes is None or part.size < file.size_bytes:
                source.fetch(file, part, on_progress)
            if part.sha256 == file.sha256:
                return
            if not kept:
                size = (
                    f"{part.size} bytes of {file.size_bytes}"
                    if part.size != file.size_bytes
                    else f"{part.size} bytes"
                )
                raise CorruptDownloadError(
                    where,
                    f"what came ({size}) has sha256 {part.sha256}; it should have {file.sha256}",
                    "Run it again: it starts anew, and the part file stays until then.",
                )
            self.on_event(f"{where}: what an earlier try left does not fit; fetching it whole")
            part.restart()


def _refuse_other_than_weights(where: str, path: Path) -> None:
    try:
        header = read_header(path)
    except ModelFileError as error:
        problem = f"the published file is no usable GGUF: {error.problem}"
        raise CorruptDownloadError(where, problem, "Name another file.") from error
    if header.not_weights:
        problem = f"the file is no model's weights: {header.not_weights}"
        raise CorruptDownloadError(where, problem, "Name the model's own file.")


def _none_delivers(name: str, failures: Sequence[PullError], known: CatalogModel | None) -> PullError:
    """All that failed in one error; of the class that says most: one source that answered outweighs one that did not."""
    telling = next((f for f in failures if not isinstance(f, SourceUnreachableError)), failures[-1])
    by_hand = f"judge-local import FILE --name {name}" if known else "judge-local import FILE"
    remedy = telling.remedy
    if all(isinstance(failure, SourceUnreachableError) for failure in failures):
        remedy = f"{telling.remedy} With a file brought by hand: `{by_hand}`."
    if len(failures) == 1:
        return type(telling)(telling.where, telling.problem, remedy)
    told = "; ".join(f"{failure.where} {failure.problem}" for failure in failures)
    return type(telling)(name, f"no source delivers: {told}", remedy)


def _file_name(reference: Reference) -> str:
    """The file that `reference` names within its source, or `""`."""
    if isinstance(reference, HubFile):
        return reference.filename
    if isinstance(reference, PypiFile):
        return reference.member
    if isinstance(reference, WebFile):
        return reference.url.partition("?")[0].rpartition("/")[2]
    return ""


def _is_of(model: StoredModel, reference: Reference) -> bool:
    """Whether `model` came from `reference`, at its revision if it names one."""
    if not isinstance(reference, HubFile):
        return model.source == str(reference)
    same = model.source == str(dataclasses.replace(reference, revision=None))
    return same and reference.revision in (None, model.revision, model.extra.get("asked"))


def _pinned(reference: Reference, revision: str | None) -> Reference:
    return dataclasses.replace(reference, revision=revision) if isinstance(reference, HubFile) else reference


def _same_size(path: Path, size_bytes: int | None) -> bool:
    return path.is_file() and path.stat().st_size == size_bytes
