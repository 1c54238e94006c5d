"""Optimising: a model whose weights this machine reads slowly, written anew in a type that it reads fast, and measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from judge_local.bench.limit import Speeds, typical_seconds
from judge_local.engine import children
from judge_local.errors import UsageError
from judge_local.models.derived import derive
from judge_local.models.files import need_space
from judge_local.models.gguf import read_header
from judge_local.models.hardware import available_memory_bytes, usable_cores
from judge_local.models.quantisation import Target, loss, size_as, target, types_in
from judge_local.models.registry import StoredModel, name_from
from judge_local.models.store import Store

WORTH_IT: Final = 1.1
"""It pays when a typical verdict takes so many times less."""

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is to be done."""

    model: StoredModel
    to: Target
    name: str
    """Of the new model."""
    types: tuple[str, ...]
    """Of the weights as they are, the most frequent first."""
    size_bytes: int
    """About what the new file will have."""
    loss: str | None
    """Why it loses something, or None."""


def intend(store: Store, reference: str, *, to: str, name: str | None = None) -> Intent:
    """Look at a model and at what would be made of it. Nothing is written.

    Raises:
        UnknownModelError, ModelMissingError, ModelFileError: no such model, or it cannot be used.
        UsageError: it is in that type already, is split over several files, or the type is none.
    """
    model, wanted = store.find(reference), target(to)
    header = read_header(model.path)
    types = types_in(header)
    if types[:1] == (wanted.name,):
        raise UsageError(model.name, f"is in {wanted.name} already", "Name another type with --to.")
    if len(model.files) > 1:
        raise UsageError(
            model.name,
            f"is split over {len(model.files)} files",
            "Join them with llama-gguf-split --merge first.",
        )
    return Intent(
        model=model,
        to=wanted,
        name=name or name_from(f"{model.name[:90]}-{wanted.name.lower()}.gguf"),
        types=types,
        size_bytes=size_as(header, wanted),
        loss=loss(header, wanted),
    )


def check_room(store: Store, intent: Intent) -> None:
    """Ask the disk for room, where the folder is there.

    Raises:
        DiskSpaceError: there is none.
    """
    if store.directory.is_dir():
        need_space(store.directory, intent.size_bytes)


def make(
    store: Store,
    intent: Intent,
    *,
    n_threads: int | None = None,
    on_progress: OnProgress,
    on_event: Callable[[str], None],
) -> StoredModel:
    """Write the new model.

    Raises:
        JudgeLocalError: see `derived.derive`; and what llama.cpp's quantiser says.
    """

    def write(path: Path) -> None:
        children.quantise(
            str(intent.model.path),
            str(path),
            intent.to.name,
            n_threads=n_threads or usable_cores(),
            on_progress=on_progress,
        )

    return derive(
        store,
        intent.model,
        name=intent.name,
        source=f"requantised:{intent.model.name}:{intent.to.name}",
        size_bytes=intent.size_bytes,
        facts={"weights": intent.to.name},
        write=write,
        on_event=on_event,
    )


def measure(model: StoredModel, *, n_threads: int | None, wait: bool, **tell: Any) -> Speeds:
    """How fast `model` is read and written with on this machine's processor.

    Raises:
        JudgeLocalError: it cannot be loaded.
    """
    found = children.probe(
        str(model.path),
        n_threads=n_threads or usable_cores(),
        memory_bytes=available_memory_bytes(),
        wait=wait,
        **tell,
    )
    return Speeds.from_probe(found)


def gain(before: Speeds, after: Speeds) -> float:
    """How many times less a typical verdict takes."""
    return typical_seconds(before) / typical_seconds(after)
