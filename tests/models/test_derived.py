"""Derived models: an entry of their own, whole or not at all, and never in place of what they were made from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from judge_local.errors import DiskSpaceError, ModelFileError, UsageError
from judge_local.models.derived import derive
from judge_local.models.store import Store, StoredModel


@pytest.fixture
def store(tmp_path: Path, tiny_model: Path) -> Store:
    store = Store(tmp_path / "models")
    store.import_file(tiny_model, name="tiny")
    return store


def make(
    store: Store,
    write: Callable[[Path], object],
    *,
    name: str = "tiny-q8_0",
    source: str = "requantised:tiny:Q8_0",
    size: int = 1,
) -> StoredModel:
    parent = store.get("tiny")
    assert parent is not None
    return derive(
        store, parent, name=name, source=source, size_bytes=size, facts={"weights": "Q8_0"}, write=write
    )


def test_the_new_model_names_its_parent(store: Store, tiny_model: Path) -> None:
    made = make(store, lambda path: shutil.copyfile(tiny_model, path))
    found = store.get("tiny-q8_0")

    assert found == made
    assert (found.kind, found.parent, found.extra["weights"]) == ("requantised", "tiny", "Q8_0")
    assert found.extra["parentSha256"] == store.find("tiny").sha256
    assert {check.state for check in store.verify(found)} == {"ok"}


def test_the_second_time_it_is_there(store: Store, tiny_model: Path) -> None:
    first = make(store, lambda path: shutil.copyfile(tiny_model, path))

    assert make(store, lambda path: pytest.fail("made again")) == first


@pytest.mark.parametrize(
    ("name", "source"), [("tiny", "requantised:tiny:Q8_0"), ("tiny-q8_0", "requantised:tiny:Q4_0")]
)
def test_a_name_that_is_taken_is_refused(store: Store, tiny_model: Path, name: str, source: str) -> None:
    make(store, lambda path: shutil.copyfile(tiny_model, path))

    with pytest.raises(UsageError, match="on this disk already"):
        make(store, lambda path: pytest.fail("written"), name=name, source=source)


def test_no_room_is_said_before_the_first_byte(store: Store) -> None:
    with pytest.raises(DiskSpaceError):
        make(store, lambda path: pytest.fail("written"), size=10**18)


def test_what_fails_leaves_nothing_behind(store: Store) -> None:
    before = sorted(store.directory.iterdir())

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(store, fail)
    with pytest.raises(ModelFileError):
        make(store, lambda path: path.write_bytes(b"no model" * 10))

    assert sorted(store.directory.iterdir()) == before
