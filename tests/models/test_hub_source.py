"""Pulling from a hub: the real client against a hub on loopback that misbehaves in every way reported of real ones."""

import collections
import json
import socket
import time
from pathlib import Path

import pytest

from judge_local.errors import (
    CorruptDownloadError,
    GatedModelError,
    ModelNotFoundError,
    SourceUnreachableError,
    UnknownModelError,
    UsageError,
)
from judge_local.models.pull import pull
from models.fakes import COMMIT, DATA, FILE, KIB, REFERENCE, REPO, gguf, keep_part, left, sha256, start_pull


def test_a_file_comes_whole_and_known(hub, store):
    hub.add(REPO, FILE, DATA)
    progress, events = [], []

    model = pull(
        REFERENCE, store=store, on_progress=lambda *now: progress.append(now), on_event=events.append
    )

    assert model.path.read_bytes() == DATA
    assert (model.name, model.source, model.revision) == ("Judge-Q4_K_M", REFERENCE, COMMIT)
    assert (model.sha256, model.size_bytes, model.licence) == (sha256(DATA), len(DATA), "apache-2.0")
    assert left(store) == ["Judge-Q4_K_M.gguf", "Judge-Q4_K_M.json"]
    assert progress[-1] == (len(DATA), len(DATA))
    assert events[-1] == f"Judge-Q4_K_M: 614.6 kB from {REFERENCE}, sha256 {sha256(DATA)[:12]}"
    assert store.find("Judge-Q4_K_M") == model


def test_what_is_here_needs_no_network(hub, store):
    """The registry is asked first: no request, although the hub is up, and none is missed when it is down."""
    hub.add(REPO, FILE, DATA)
    model = pull(REFERENCE, store=store)
    asked = len(hub.asked)

    again = [
        pull(text, store=store)
        for text in (REFERENCE, f"{REPO}:Q4_K_M", "Judge-Q4_K_M", f"{REFERENCE}@{COMMIT}")
    ]

    assert again == [model] * 4
    assert len(hub.asked) == asked


def test_bytes_come_from_the_pinned_commit_and_the_token_stays_with_the_hub(hub, store, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add(REPO, FILE, DATA)

    pull(f"{REFERENCE}@main", store=store)

    fetched = [
        path
        for server, method, path, _ in hub.asked
        if (server, method) == ("hub", "GET") and "/resolve/" in path
    ]
    tokens = collections.defaultdict(set)
    for server, _, _, headers in hub.asked:
        tokens[server].add({k.lower(): v for k, v in headers.items()}.get("authorization"))
    assert fetched == [f"/{REPO}/resolve/{COMMIT}/{FILE}"]
    assert tokens == {"hub": {"Bearer hf_secret"}, "cdn": {None}}


def test_a_revision_is_remembered_as_asked_and_as_it_was(hub, store):
    hub.add(REPO, FILE, DATA)

    model = pull(f"{REFERENCE}@main", store=store)

    assert (model.revision, model.extra) == (COMMIT, {"asked": "main"})
    assert store.find(f"{REFERENCE}@main") == store.find(f"{REFERENCE}@{COMMIT}") == model


def test_another_revision_under_the_same_name_is_refused(hub, store):
    hub.add(REPO, FILE, DATA)
    pull(REFERENCE, store=store)

    with pytest.raises(UsageError, match=f"on this disk already, from {REFERENCE} at {COMMIT}.*--name"):
        pull(f"{REFERENCE}@v2", store=store)
    assert pull(f"{REFERENCE}@v2", store=store, name="second").name == "second"


def test_the_client_asks_for_nothing_but_the_model(hub, store, tmp_path, monkeypatch):
    """In a process of its own, where the library's own habits would show: it likes to look itself up."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    hub.add(REPO, FILE, DATA)

    with start_pull(store) as child:
        child.communicate(timeout=30)

    assert child.returncode == 0
    assert {path for _, _, path, _ in hub.asked} == {
        f"/{REPO}/resolve/main/{FILE}",
        f"/{REPO}/resolve/{COMMIT}/{FILE}",
        f"/api/models/{REPO}/revision/{COMMIT}",
        f"/cdn/{REPO}/{FILE}",
    }
    assert all(
        headers["user-agent"].startswith("judge-local")
        for server, _, _, headers in hub.asked
        if server == "hub"
    )


def test_a_login_page_is_not_taken_for_a_hub(hub, store):
    hub.portal = True

    with pytest.raises(SourceUnreachableError, match=r"what answers is no hub.*Open it in a browser"):
        pull(REFERENCE, store=store)


@pytest.mark.parametrize(("status", "code"), [(401, ""), (401, "GatedRepo"), (403, "GatedRepo"), (403, "")])
def test_a_gated_model_says_where_to_accept_its_terms(hub, store, status, code):
    hub.add(REPO, FILE, DATA, status=status, error_code=code)

    with pytest.raises(GatedModelError, match=f"{hub.url}/{REPO}.*HF_TOKEN"):
        pull(REFERENCE, store=store)


def test_a_file_that_is_not_there_is_missing_and_what_is_there_is_listed(hub, store):
    hub.add(REPO, "Judge-Q8_0.gguf", DATA)
    hub.add(REPO, "mmproj-F16.gguf", DATA)

    with pytest.raises(
        ModelNotFoundError, match=r"has no such file \(HTTP 404\). The repository has Judge-Q8_0.gguf.$"
    ):
        pull(REFERENCE, store=store)


def test_a_repository_that_is_not_there_is_missing(hub, store):
    with pytest.raises(ModelNotFoundError, match="org/None:Q4_K_M: the hub has no such repository"):
        pull("org/None:Q4_K_M", store=store)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_that_cannot_answer_is_out_of_reach(hub, store, status):
    hub.add(REPO, FILE, DATA, status=status)

    with pytest.raises(SourceUnreachableError, match=f"HTTP {status}") as caught:
        pull(REFERENCE, store=store)
    assert caught.value.retryable


def test_without_a_network_the_import_is_named(store, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")

    with pytest.raises(SourceUnreachableError, match=r"does not answer.*`judge-local import FILE`"):
        pull(REFERENCE, store=store)


def test_a_switch_for_offline_work_holds(hub, store, monkeypatch):
    hub.add(REPO, FILE, DATA)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(SourceUnreachableError, match="HF_HUB_OFFLINE is set"):
        pull(REFERENCE, store=store)
    assert hub.asked == []


def test_a_host_that_swallows_connections_costs_seconds(store, monkeypatch):
    """A name server that never answers is bounded too, which no timeout of the HTTP library does."""
    monkeypatch.setattr("judge_local.models.sources.hub.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(2))
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")

    with pytest.raises(SourceUnreachableError, match=r"does not answer within 0.2 seconds"):
        pull(REFERENCE, store=store)


def split_files(hub, count=3, stem="Big-Q8_0"):
    names = [f"Q8_0/{stem}-{k:05}-of-{count:05}.gguf" for k in range(1, count + 1)]
    datas = [gguf(100 * KIB, seed=name.encode()) for name in names]
    for name, data in zip(names, datas, strict=True):
        hub.add(REPO, name, data)
    return names, datas


@pytest.mark.parametrize("reference", [f"{REPO}:Q8_0", f"hf:{REPO}/Q8_0/Big-Q8_0-00002-of-00003.gguf"])
def test_split_files_are_one_model(hub, store, reference):
    _, datas = split_files(hub)
    progress = []

    model = pull(reference, store=store, on_progress=lambda *now: progress.append(now))

    assert model.name == "Big-Q8_0"
    assert [path.name for path in model.paths] == [f"Big-Q8_0-{k:05}-of-00003.gguf" for k in (1, 2, 3)]
    assert [path.read_bytes() for path in model.paths] == datas
    assert progress[-1] == (model.size_bytes, model.size_bytes)
    assert progress == sorted(progress)
    assert store.find(reference) == model
    assert len(left(store)) == 4


def test_a_split_model_with_a_missing_part_is_not_registered(hub, store):
    names, _ = split_files(hub)
    del hub.files[REPO, names[2]]

    with pytest.raises(ModelNotFoundError):
        pull(f"{REPO}:Q8_0", store=store)
    assert store.list() == ()
    assert hub.ranges() == []


def test_a_split_model_goes_on_with_the_part_it_lacks(hub, store):
    names, datas = split_files(hub)
    served = hub.files[REPO, names[1]]
    served.cut_after = 0
    with pytest.raises(CorruptDownloadError):
        pull(f"{REPO}:Q8_0", store=store)
    served.cut_after = None
    before = len(hub.ranges())

    model = pull(f"{REPO}:Q8_0", store=store)

    assert [path.read_bytes() for path in model.paths] == datas
    assert len(hub.ranges()) - before == 2


def test_a_quantisation_chooses_among_weights_only(hub, store):
    hub.add(REPO, FILE, DATA)
    for name in (
        "mmproj-Q4_K_M.gguf",
        "imatrix-Q4_K_M.gguf",
        "mtp-Judge-Q4_K_M.gguf",
        "Judge-Q4_K_M.safetensors",
    ):
        hub.add(REPO, name, b"no weights")

    assert pull(f"{REPO}:q4_k_m", store=store).path.read_bytes() == DATA


def test_an_ambiguous_quantisation_lists_what_is_there(hub, store):
    hub.add(REPO, "Judge-Q4_K_M.gguf", DATA)
    hub.add(REPO, "Judge-UD-Q4_K_M.gguf", DATA)

    with pytest.raises(
        UnknownModelError, match=f"2 files have 'Q4_K_M'.*hf:{REPO}/Judge-Q4_K_M.gguf, hf:{REPO}/Judge-UD"
    ):
        pull(f"{REPO}:Q4_K_M", store=store)
    assert pull(f"{REPO}:UD-Q4_K_M", store=store).name == "Judge-UD-Q4_K_M"


def test_a_quantisation_that_is_not_there_lists_what_is(hub, store):
    hub.add(REPO, FILE, DATA)

    with pytest.raises(ModelNotFoundError, match=f"no file has 'Q2_K'. The repository has {FILE}"):
        pull(f"{REPO}:Q2_K", store=store)


@pytest.mark.parametrize("name", ["mmproj-F16.gguf", "Judge.imatrix.gguf", "mtp-Judge-Q4_K_M.gguf"])
def test_companions_of_weights_are_refused_by_name(hub, store, name):
    hub.add(REPO, name, DATA)

    with pytest.raises(UnknownModelError, match="travels beside weights"):
        pull(f"hf:{REPO}/{name}", store=store)
    assert hub.asked == []


def test_a_hash_is_asked_of_the_repository_where_the_file_is_served_without(hub, store):
    hub.add(REPO, FILE, DATA, etag=False)

    assert pull(REFERENCE, store=store).sha256 == sha256(DATA)


def test_bytes_that_nobody_vouches_for_are_not_taken(hub, store, monkeypatch):
    hub.add(REPO, FILE, DATA, etag=False)
    monkeypatch.setattr("judge_local.models.sources.hub.Hub.recorded_sha256", lambda *_: None)

    with pytest.raises(CorruptDownloadError, match="records no sha256"):
        pull(REFERENCE, store=store)
    assert hub.ranges() == []


def test_a_given_hash_outranks_the_hubs_record(hub, store):
    hub.add(REPO, FILE, DATA)

    with pytest.raises(CorruptDownloadError, match="--sha256 says"):
        pull(REFERENCE, store=store, sha256="0" * 64)
    assert hub.ranges() == []
    assert pull(REFERENCE, store=store, sha256=sha256(DATA).upper()).path.read_bytes() == DATA


def test_force_fetches_it_again_from_the_first_byte(hub, store):
    hub.add(REPO, FILE, DATA)
    pull(REFERENCE, store=store)
    keep_part(store, DATA[:1000])

    model = pull(REFERENCE, store=store, force=True)

    assert model.path.read_bytes() == DATA
    assert hub.ranges() == [None, None]
    assert pull("Judge-Q4_K_M", store=store, force=True).revision == COMMIT


def test_a_damaged_file_is_fetched_again(hub, store):
    hub.add(REPO, FILE, DATA)
    model = pull(REFERENCE, store=store)
    model.path.write_bytes(b"damaged")
    events = []

    assert pull(REFERENCE, store=store, on_event=events.append).path.read_bytes() == DATA
    assert "its bytes have changed" in events[0]


def test_a_repository_without_a_licence_leaves_it_open(hub, store):
    hub.licence = ""
    hub.add(REPO, FILE, DATA)

    assert pull(REFERENCE, store=store).licence is None
    assert json.loads((store.directory / "Judge-Q4_K_M.json").read_text())["licence"] is None


def test_a_name_of_ones_own_is_kept(hub, store):
    hub.add(REPO, FILE, DATA)

    model = pull(REFERENCE, store=store, name="mine")

    assert (model.name, model.path.name) == ("mine", "mine.gguf")
    assert pull(REFERENCE, store=store) == model


def test_the_catalogs_name_is_not_given_to_other_weights(hub, store):
    hub.add(REPO, FILE, DATA)

    with pytest.raises(UsageError, match="smollm2-135m is the catalog's name"):
        pull(REFERENCE, store=store, name="smollm2-135m")


def test_the_fake_hub_is_a_hub_to_the_real_client(hub, tmp_path):
    """The library's own download from it succeeds, so what is tested here is not a hub of our imagination."""
    from huggingface_hub import HfApi, hf_hub_download

    hub.add(REPO, FILE, DATA)

    path = hf_hub_download(
        REPO, FILE, endpoint=hub.url, local_dir=tmp_path / "theirs", cache_dir=tmp_path / "cache"
    )

    assert Path(path).read_bytes() == DATA
    assert HfApi(endpoint=hub.url).model_info(REPO).card_data.license == "apache-2.0"
