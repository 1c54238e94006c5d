"""Taking in a file brought by hand: known by its bytes, put in place whole, left where it was."""

import errno
import os

import pytest

from judge_local.errors import DiskSpaceError, ModelFileError, ModelStoreError, UsageError
from judge_local.models import files as files_module
from judge_local.models.catalog import CatalogModel
from judge_local.models.store import Store
from models.fakes import gguf, sha256

DATA = gguf(5000, seed=b"import")


@pytest.fixture
def brought(tmp_path):
    path = tmp_path / "Brought by hand.gguf"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def known(monkeypatch):
    """A catalog of one model whose bytes are those of `brought`."""
    model = CatalogModel(
        alias="small", sources=("hf:a/b/c.gguf",), size_bytes=len(DATA), sha256=sha256(DATA), licence="MIT"
    )
    for module in ("catalog", "store", "references"):
        monkeypatch.setattr(f"judge_local.models.{module}.catalog", lambda: (model,))
    return model


def test_a_file_is_taken_in_and_stays(store, brought):
    model = store.import_file(brought)

    assert (model.name, model.sha256, model.source) == ("Brought-by-hand", sha256(DATA), f"file:{brought}")
    assert model.path == store.directory / "Brought-by-hand.gguf"
    assert model.path.read_bytes() == brought.read_bytes() == DATA
    assert store.find("Brought-by-hand") == model
    assert sorted(p.name for p in store.directory.iterdir() if p.name[0] != ".") == [
        "Brought-by-hand.gguf",
        "Brought-by-hand.json",
    ]


def test_the_catalogs_bytes_get_the_catalogs_name(store, brought, known):
    model = store.import_file(brought)

    assert (model.name, model.licence) == ("small", "MIT")
    assert store.find("small") == model


def test_the_catalogs_name_needs_the_catalogs_bytes(store, brought, known):
    brought.write_bytes(gguf(5000, seed=b"another"))

    with pytest.raises(ModelFileError, match=f"small has {sha256(DATA)}"):
        store.import_file(brought, name="small")
    assert store.list() == ()


def test_the_catalogs_size_is_held_to_where_it_has_no_hash(store, brought):
    with pytest.raises(ModelFileError, match="gemma-4-e2b has 2620370976"):
        store.import_file(brought, name="gemma-4-e2b")


def test_a_given_hash_is_held_to(store, brought):
    assert store.import_file(brought, sha256=sha256(DATA).upper()).sha256 == sha256(DATA)

    with pytest.raises(ModelFileError, match="has sha256"):
        store.import_file(brought, name="again", sha256="0" * 64)


def test_a_second_import_finds_it_done(store, brought):
    first = store.import_file(brought)

    assert store.import_file(brought) == first


def test_a_damaged_model_is_mended_by_importing_it_again(store, brought):
    model = store.import_file(brought)
    model.path.unlink()
    model.path.write_bytes(b"damaged")

    assert store.import_file(brought).path.read_bytes() == DATA


def test_a_name_in_use_for_other_bytes_is_refused(store, brought, tmp_path):
    store.import_file(brought, name="judge")
    other = tmp_path / "other.gguf"
    other.write_bytes(gguf(1000))

    with pytest.raises(UsageError, match="judge is on this disk already"):
        store.import_file(other, name="judge")


@pytest.mark.parametrize("name", ["auto", "../x", "a/b", "", ".x", "x" * 101])
def test_a_name_that_cannot_stand_is_refused(store, brought, name):
    with pytest.raises(UsageError, match="name:"):
        store.import_file(brought, name=name or " ")


def test_all_parts_come_in(store, tmp_path):
    parts = [tmp_path / f"big-{k:05}-of-00003.gguf" for k in (1, 2, 3)]
    for part in parts:
        part.write_bytes(gguf(1000, seed=part.name.encode()))

    model = store.import_file(parts[0], name="large")

    assert [path.name for path in model.paths] == [f"large-{k:05}-of-00003.gguf" for k in (1, 2, 3)]
    assert [path.read_bytes() for path in model.paths] == [part.read_bytes() for part in parts]


def test_a_link_brings_the_file_it_points_to(store, brought, tmp_path):
    link = tmp_path / "link.gguf"
    link.symlink_to(brought)

    model = store.import_file(link)

    assert not model.path.is_symlink()
    brought.unlink()
    assert model.path.read_bytes() == DATA


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.EPERM])
def test_where_nothing_can_be_shared_it_is_copied(store, brought, monkeypatch, refusal):
    def refuse(source, target):
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(files_module, "_reflink", lambda source, target: False)
    monkeypatch.setattr(os, "link", refuse)
    events = []

    model = store.import_file(brought, on_event=events.append)

    assert model.path.read_bytes() == DATA
    assert model.path.stat().st_ino != brought.stat().st_ino
    assert events == [f"Brought-by-hand: copy of {brought}"]


def test_a_file_that_is_in_the_folder_already_is_registered(store):
    store.directory.mkdir()
    path = store.directory / "dropped.gguf"
    path.write_bytes(DATA)

    model = store.import_file(path)

    assert (model.name, model.path) == ("dropped", path)
    assert path.read_bytes() == DATA
    assert [p.name for p in store.directory.glob(".*import*")] == []


def test_a_full_disk_leaves_nothing(store, brought, monkeypatch):
    def full(source, target):
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("judge_local.models.importing.clone", full)

    with pytest.raises(DiskSpaceError):
        store.import_file(brought)
    assert store.list() == ()
    assert list(store.directory.glob("*.gguf")) + list(store.directory.glob("*import*")) == []


def test_a_folder_that_cannot_be_made_is_one_clear_line(brought, tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "models")

    with pytest.raises(ModelStoreError, match=r"cannot be created.*JUDGE_LOCAL_MODELS_DIR"):
        store.import_file(brought)


def test_progress_tells_of_bytes(store, brought):
    seen = []

    store.import_file(brought, on_progress=lambda done, total: seen.append((done, total)))

    assert seen[-1] == (len(DATA), len(DATA))
