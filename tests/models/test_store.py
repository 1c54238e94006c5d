"""The models folder: what is found, what is trusted, what may be removed, and what is never touched."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from judge_local.errors import (
    ModelFileError,
    ModelMissingError,
    ModelStoreError,
    UnknownModelError,
    UsageError,
)
from judge_local.models import barefile, hardware
from judge_local.models.catalog import CatalogModel
from judge_local.models.registry import StoredModel, stored_file, write_entry
from judge_local.models.store import Store, models_directory
from models.fakes import gguf, sha256

REPO = "org/Repo-GGUF"


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return Store(folder)


def put(store, name="judge", *, data=None, source=None, revision="c0ffee", files=1, **more):
    """A model in the store, as a pull leaves it."""
    data = gguf(1000, seed=name.encode()) if data is None else data
    names = (
        [f"{name}.gguf"] if files == 1 else [f"{name}-{k:05}-of-{files:05}.gguf" for k in range(1, files + 1)]
    )
    for each in names:
        (store.directory / each).write_bytes(data)
    model = StoredModel(
        name=name,
        folder=store.directory,
        files=tuple(stored_file(store.directory, each, sha256(data)) for each in names),
        source=source or f"hf:{REPO}/{name}.gguf",
        revision=revision,
        licence="MIT",
        pulled_at="2026-01-02T03:04:05Z",
        **more,
    )
    write_entry(model)
    return model


def touch(path, seconds=5):
    """Change the file's time, not its bytes."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + seconds * 10**9))


def test_the_folder_is_the_one_named_or_the_platforms(monkeypatch, tmp_path):
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path / "here"))
    named = models_directory()
    monkeypatch.delenv("JUDGE_LOCAL_MODELS_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    usual = models_directory()

    assert named == tmp_path / "here"
    assert usual.parts[-2:] == ("judge-local", "models")
    assert tmp_path in usual.parents
    assert not usual.exists()


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    store = Store(tmp_path / "none")

    assert (store.list(), store.problems()) == ((), ())
    assert not store.directory.exists()


def test_an_entry_survives_the_disk(store):
    model = put(store, extra={"asked": "main"}, parent="base")

    entry = json.loads((store.directory / "judge.json").read_text())

    assert store.list() == (model,)
    assert entry == {
        "version": 1,
        "source": f"hf:{REPO}/judge.gguf",
        "revision": "c0ffee",
        "files": [
            {
                "name": "judge.gguf",
                "size": model.size_bytes,
                "sha256": model.sha256,
                "mtimeNs": model.files[0].mtime_ns,
            }
        ],
        "licence": "MIT",
        "kind": "model",
        "parent": "base",
        "pulledAt": "2026-01-02T03:04:05Z",
        "asked": "main",
    }


@pytest.mark.parametrize(
    "reference",
    [
        "judge",
        "JUDGE",
        f"hf:{REPO}/judge.gguf",
        f"hf:{REPO}/judge.gguf@c0ffee",
        "https://huggingface.co/org/Repo-GGUF/resolve/main/judge.gguf",
    ],
)
def test_a_model_is_found_by_every_name_it_has(store, reference):
    model = put(store)

    assert store.find(reference) == model


def test_a_model_is_found_by_its_path(store, monkeypatch):
    model = put(store)
    monkeypatch.chdir(store.directory)

    assert store.find(model.path) == store.find(str(model.path)) == store.find("./judge.gguf") == model


def test_a_quantisation_is_found_and_two_are_listed(store):
    model = put(store, "m-Q4_K_M")

    assert store.find(f"{REPO}:q4_k_m") == model

    put(store, "m-UD-Q4_K_M")
    with pytest.raises(UsageError, match="m-Q4_K_M, m-UD-Q4_K_M"):
        store.find(f"{REPO}:Q4_K_M")


def test_another_revision_is_another_model(store):
    put(store)

    with pytest.raises(ModelMissingError, match=r"judge-local pull hf:org/Repo-GGUF/judge.gguf@other"):
        store.find(f"hf:{REPO}/judge.gguf@other")


def test_a_known_model_that_is_not_here_names_the_pull(store):
    with pytest.raises(ModelMissingError, match=r"Run `judge-local pull gemma-4-e2b` \(2.6 GB\)"):
        store.find("gemma-4-e2b")


def test_a_selector_names_the_pull_of_its_model(store):
    with pytest.raises(ModelMissingError, match=r"Run `judge-local pull gemma-4-12b` \(6.7 GB\)"):
        store.find("quality")


def test_a_misspelt_name_is_refused_with_what_is_here(store):
    put(store, "my-judge")

    with pytest.raises(UnknownModelError, match="Did you mean my-judge"):
        store.find("my-jugde")


def test_the_catalogs_model_is_found_under_another_name(store, monkeypatch):
    """Bytes decide, and any source of the catalog means the same model."""
    model = put(store, "mine")
    known = CatalogModel(
        alias="small",
        sources=("hf:a/b/c.gguf@r1", "pypi:p==1/c.gguf"),
        size_bytes=model.size_bytes,
        sha256=model.sha256,
        licence="MIT",
    )
    for module in ("catalog", "store", "references"):
        monkeypatch.setattr(f"judge_local.models.{module}.catalog", lambda: (known,))

    assert [store.find(text) for text in ("small", *known.sources)] == [model, model, model]


def test_the_only_model_is_taken_when_none_is_named(store):
    with pytest.raises(ModelMissingError, match="judge-local pull smollm2-135m"):
        store.the_only()

    model = put(store)
    assert store.the_only() == model

    put(store, "other")
    with pytest.raises(UsageError, match="there are 2: judge, other"):
        store.the_only()


def test_auto_takes_the_largest_that_this_machine_carries(store, monkeypatch):
    small, middle, large = (
        put(store, name, data=gguf(size)) for name, size in (("a", 1000), ("b", 5000), ("c", 90_000))
    )
    monkeypatch.setattr(hardware, "total_memory_bytes", lambda: 7 * middle.size_bytes + 2)

    assert store.find("auto") == middle
    assert store.find("auto", free_vram_bytes=4 * large.size_bytes) == large
    monkeypatch.setattr(hardware, "total_memory_bytes", lambda: 1)
    assert store.find("auto") == small


def test_auto_with_nothing_here_says_what_to_pull(store):
    with pytest.raises(ModelMissingError, match="judge-local pull"):
        store.find("auto")


def test_a_tier_takes_its_own_model(store):
    model = put(store, "gemma-4-e2b")

    assert store.find("fast") == model


def test_a_hash_is_trusted_while_size_and_time_stand(store, monkeypatch):
    model = put(store)
    monkeypatch.setattr("judge_local.models.store.sha256_of", lambda path: pytest.fail("hashed"))

    assert store.find("judge") == model


def test_a_touched_file_is_hashed_again_and_remembered(store, monkeypatch):
    model = put(store)
    touch(model.path)

    found = store.find("judge")

    assert found.sha256 == model.sha256
    assert found.files[0].mtime_ns == model.path.stat().st_mtime_ns
    monkeypatch.setattr("judge_local.models.store.sha256_of", lambda path: pytest.fail("hashed"))
    assert store.find("judge") == found


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1] + b"!", lambda data: data + b"!"], ids=["byte", "size"]
)
def test_changed_bytes_are_refused(store, change):
    model = put(store)
    model.path.write_bytes(change(model.path.read_bytes()))
    touch(model.path)

    with pytest.raises(ModelFileError, match=r"its bytes have changed.*pull judge --force"):
        store.find("judge")


def test_a_file_that_is_gone_is_missing(store):
    put(store).path.unlink()

    with pytest.raises(ModelMissingError, match="is gone"):
        store.find("judge")


@pytest.mark.parametrize(
    "entry",
    [
        "{",
        '{"version": 2, "files": []}',
        '{"version": 1, "files": []}',
        '{"version": 1, "files": [{"name": "../x.gguf", "size": 1, "sha256": "%s", "mtimeNs": 1}]}'
        % ("0" * 64),
        '{"version": 1, "files": [{"name": "/etc/x", "size": 1, "sha256": "%s", "mtimeNs": 1}]}' % ("0" * 64),
        '{"version": 1, "files": [{"name": "x", "size": 1, "sha256": "short", "mtimeNs": 1}]}',
        '{"version": 1, "files": [{"name": "x", "size": "1", "sha256": "%s", "mtimeNs": 1}]}' % ("0" * 64),
        '{"version": 1, "source": 7, "files": [{"name": "x", "size": 1, "sha256": "%s", "mtimeNs": 1}]}'
        % ("0" * 64),
    ],
)
def test_a_damaged_entry_is_a_problem_and_hides_no_other(store, entry):
    model = put(store)
    (store.directory / "broken.json").write_text(entry)

    assert store.list() == (model,)
    assert len(store.problems()) == 1
    assert "broken.json" in store.problems()[0]


def test_json_of_another_tool_is_left_alone(store):
    (store.directory / "config.json").write_text('{"model_type": "llama"}')

    assert (store.list(), store.problems()) == ((), ())


def test_a_bare_path_is_hashed_once_and_remembered(store, tmp_path, monkeypatch):
    path = tmp_path / "some Model.gguf"
    path.write_bytes(gguf(1000))

    first = store.find(path)
    monkeypatch.setattr(barefile, "sha256_of", lambda *_, **__: pytest.fail("hashed"))
    second = store.find(str(path))

    assert first == second
    assert (first.name, first.path, first.sha256) == ("some-Model", path, sha256(path.read_bytes()))
    assert store.list() == ()


def test_a_changed_bare_file_is_hashed_again(store, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(1000, seed=b"a"))
    first = store.find(path)
    path.write_bytes(gguf(1000, seed=b"b"))
    touch(path)

    assert store.find(path).sha256 == sha256(gguf(1000, seed=b"b")) != first.sha256


@pytest.mark.parametrize("kept", ["nonsense", "[]", '{"/x": 5}'])
def test_a_damaged_memory_of_hashes_costs_a_hash(store, tmp_path, kept):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(1000))
    (store.directory / barefile.HASHES).write_text(kept)

    assert store.find(path).sha256 == sha256(path.read_bytes())


def test_a_bare_path_needs_no_models_folder(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(1000))
    store = Store(tmp_path / "none")

    assert store.find(path).path == path
    assert not store.directory.exists()


def test_a_split_model_is_its_parts(store, tmp_path):
    parts = [tmp_path / f"big-{k:05}-of-00002.gguf" for k in (1, 2)]
    for part in parts:
        part.write_bytes(gguf(1000, seed=part.name.encode()))

    model = store.find(parts[0])

    assert (model.name, model.paths, model.size_bytes) == (
        "big",
        tuple(parts),
        sum(p.stat().st_size for p in parts),
    )
    assert model.sha256 == sha256("\n".join(sha256(p.read_bytes()) for p in parts).encode())
    with pytest.raises(ModelFileError, match="first part"):
        store.find(parts[1])
    parts[1].unlink()
    with pytest.raises(ModelMissingError, match=r"big-00002-of-00002.gguf: this part"):
        store.find(parts[0])


@pytest.mark.parametrize(
    ("name", "data", "error", "say"),
    [
        ("none.gguf", None, ModelMissingError, "there is no such file"),
        ("mmproj-m.gguf", gguf(100), ModelFileError, "not a model's weights by its name"),
        (
            "m.gguf",
            gguf(100, metadata={"general.type": "adapter"}),
            ModelFileError,
            "general.type is 'adapter'",
        ),
        ("m.gguf", gguf(1000)[:-1], ModelFileError, "cut short"),
        ("m.gguf", b"<html>", ModelFileError, "web page"),
    ],
)
def test_a_path_that_is_no_model_is_refused(store, tmp_path, name, data, error, say):
    if data is not None:
        (tmp_path / name).write_bytes(data)

    with pytest.raises(error, match=say):
        store.find(str(tmp_path / name))


def test_verify_hashes_although_nothing_seems_changed(store):
    good, bad, gone = (put(store, name) for name in ("good", "bad", "gone"))
    stat = bad.path.stat()
    bad.path.write_bytes(bad.path.read_bytes()[:-1] + b"!")
    os.utime(bad.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    gone.path.unlink()

    states = [store.verify(model)[0].state for model in (good, bad, gone)]

    assert states == ["ok", "changed", "missing"]


def test_remove_takes_what_the_registry_lists_and_no_more(store):
    put(store, "judge", files=2)
    keep = put(store, "judge-2")
    (store.directory / "judge-00001-of-00002.0123456789ab.gguf.part").write_bytes(b"x")
    (store.directory / "judge-2.0123456789ab.gguf.part").write_bytes(b"x")
    (store.directory / "notes.txt").write_text("mine")
    (store.directory / "sub").mkdir()
    (store.directory / "sub" / "judge.gguf").write_bytes(b"x")

    removal = store.remove("judge")

    left = sorted(
        str(path.relative_to(store.directory)) for path in store.directory.rglob("*") if path.is_file()
    )
    assert left == [
        "judge-2.0123456789ab.gguf.part",
        "judge-2.gguf",
        "judge-2.json",
        "notes.txt",
        "sub/judge.gguf",
    ]
    assert len(removal.paths) == 4
    assert store.list() == (keep,)


def test_a_dry_run_removes_nothing(store):
    model = put(store)

    removal = store.remove("judge", dry_run=True)

    assert removal.paths == (model.path, store.directory / "judge.json")
    assert removal.size_bytes == model.size_bytes
    assert all(path.exists() for path in removal.paths)


def test_what_an_unfinished_pull_left_can_be_removed(store):
    part = store.directory / "judge.0123456789ab.gguf.part"
    part.write_bytes(b"x")

    assert store.remove("judge").paths == (part,)
    assert not part.exists()


def test_a_link_goes_and_what_it_points_to_stays(store, tmp_path):
    model = put(store)
    elsewhere = tmp_path / "elsewhere.gguf"
    model.path.rename(elsewhere)
    model.path.symlink_to(elsewhere)

    store.remove("judge")

    assert elsewhere.exists()
    assert not model.path.is_symlink()


def test_a_path_is_not_removed(store, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(100))

    with pytest.raises(ModelMissingError, match="is not in"):
        store.remove(str(path))
    assert path.exists()


def test_what_is_held_open_stays(store):
    """A worker holds a shared lock on its weights; the lock ends with the process."""
    model = put(store)
    hold = "import fcntl, sys; f = open(sys.argv[1], 'rb'); fcntl.flock(f, fcntl.LOCK_SH); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(model.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        worker.stdout.readline()
        with pytest.raises(ModelStoreError, match="is in use by another process"):
            store.remove("judge")
        assert model.path.exists()
        worker.stdin.close()
        worker.wait()
    store.remove("judge")

    assert not model.path.exists()


def test_judging_holds_a_shared_lock_that_a_second_reader_may_share(store):
    model = put(store)
    with model.path.open("rb") as one, model.path.open("rb") as two:
        fcntl.flock(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(two, fcntl.LOCK_SH | fcntl.LOCK_NB)

        assert store.find("judge") == model


def test_finding_imports_no_client_and_no_library():
    """What judging needs of this folder is standard library alone."""
    code = (
        "import sys; from judge_local.models.store import Store; Store('/nowhere').list();"
        "print([m for m in ('huggingface_hub', 'httpx', 'httpx2', 'rich', 'click', 'platformdirs') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": src()},
    )

    assert done.stdout.strip() == "[]"


def src():
    return str(Path(__file__).parents[2] / "src")
