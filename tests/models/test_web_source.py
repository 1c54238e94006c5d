"""A file at an address of its own, and the pulls that no source decides."""

import pytest

from judge_local.errors import (
    CorruptDownloadError,
    GatedModelError,
    ModelNotFoundError,
    SourceUnreachableError,
    UnknownModelError,
    UsageError,
)
from judge_local.models import hardware
from judge_local.models.pull import pull
from models.fakes import KIB, gguf, sha256

DATA = gguf(200 * KIB, seed=b"web")


def address(hub, name="Judge.gguf"):
    return f"{hub.cdn_url}/cdn/a/b/{name}?download=true"


def test_a_file_comes_by_its_hash(hub, store):
    hub.add("a/b", "Judge.gguf", DATA)

    model = pull(address(hub), store=store, sha256=sha256(DATA))

    assert model.path.read_bytes() == DATA
    assert (model.name, model.source, model.revision) == ("Judge", address(hub), None)
    assert pull(address(hub), store=store, sha256=sha256(DATA)) == model
    assert store.find(address(hub)) == model


def test_without_a_hash_it_is_not_asked_for(hub, store):
    hub.add("a/b", "Judge.gguf", DATA)

    with pytest.raises(UsageError, match="needs --sha256"):
        pull(address(hub), store=store)
    assert hub.asked == []


@pytest.mark.parametrize("digits", ["", "abc", "g" * 64])
def test_a_hash_that_is_none_is_refused(store, digits):
    with pytest.raises(UsageError, match="not 64 hex digits"):
        pull("https://example.com/x.gguf", store=store, sha256=digits)


def test_a_wrong_hash_is_refused(hub, store):
    hub.add("a/b", "Judge.gguf", DATA)

    with pytest.raises(CorruptDownloadError, match=f"has sha256 {sha256(DATA)}; it should have {'0' * 64}"):
        pull(address(hub), store=store, sha256="0" * 64)


def test_what_is_here_with_another_hash_is_not_handed_out(hub, store):
    hub.add("a/b", "Judge.gguf", DATA)
    pull(address(hub), store=store, sha256=sha256(DATA))

    with pytest.raises(CorruptDownloadError, match="is on this disk with sha256"):
        pull(address(hub), store=store, sha256="0" * 64)


def test_a_broken_connection_goes_on(hub, store):
    hub.add("a/b", "Judge.gguf", DATA, cut_after=100 * KIB, cuts=1)

    assert pull(address(hub), store=store, sha256=sha256(DATA)).path.read_bytes() == DATA
    assert len(hub.ranges()) == 2


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("org/Repo", 404, ModelNotFoundError),
        ("org/Repo", 401, GatedModelError),
        ("org/Repo", 500, SourceUnreachableError),
    ],
)
def test_what_a_server_says_is_told_apart(hub, store, name, status, error):
    hub.add(name, "x.gguf", DATA, status=status)

    with pytest.raises(error, match=f"HTTP {status}"):
        pull(f"{hub.url}/{name}/resolve/main/x.gguf", store=store, sha256=sha256(DATA))


def test_a_path_is_imported_not_pulled(store, tmp_path):
    with pytest.raises(UsageError, match=r"judge-local import ./x.gguf"):
        pull("./x.gguf", store=store)


def test_an_unknown_word_is_refused(store):
    with pytest.raises(UnknownModelError, match="Did you mean smollm2-135m"):
        pull("smollm2", store=store)
    assert not store.directory.exists()


@pytest.mark.parametrize(
    ("word", "memory", "vram", "alias"),
    [
        ("auto", 8 * 10**9, 0, "gemma-4-e2b"),
        ("auto", 32 * 10**9, 0, "gemma-4-e4b"),
        ("auto", 32 * 10**9, 24 * 10**9, "gemma-4-12b"),
        ("quality", 0, 0, "gemma-4-12b"),
    ],
)
def test_a_selector_chooses_by_the_machine_and_says_so(store, monkeypatch, word, memory, vram, alias):
    monkeypatch.setattr(hardware, "total_memory_bytes", lambda: memory)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    events = []

    with pytest.raises(SourceUnreachableError, match=f"judge-local import FILE --name {alias}"):
        pull(word, store=store, on_event=events.append, free_vram_bytes=vram)
    assert events[0].startswith(f"{word} is {alias} here (")
