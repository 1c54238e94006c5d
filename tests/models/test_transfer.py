"""Bytes on their way: killed, cut, stalled, forged or too many, and what is left of them each time."""

import collections
import errno
import shutil
import signal
import tracemalloc

import pytest

from judge_local.errors import CorruptDownloadError, DiskSpaceError, ModelStoreError, SourceUnreachableError
from judge_local.models.partfile import PartFile
from judge_local.models.pull import pull
from judge_local.models.store import Store
from models.fakes import (
    DATA,
    FILE,
    KIB,
    REFERENCE,
    REPO,
    gguf,
    keep_part,
    left,
    part_of,
    sha256,
    start_pull,
    wait_until,
)


def test_a_killed_pull_goes_on_where_it_was(hub, store):
    """SIGKILL in mid-transfer: nothing is registered, and the next pull asks for the missing range only."""
    served = hub.add(REPO, FILE, DATA, stall_after=300 * KIB)
    with start_pull(store) as child:
        wait_until(lambda: part_of(store).exists() and part_of(store).stat().st_size >= 200 * KIB)
        child.send_signal(signal.SIGKILL)
        child.wait()
    kept = part_of(store).stat().st_size
    assert store.list() == ()
    assert not (store.directory / FILE).exists()
    served.stall_after = None

    model = pull(REFERENCE, store=store)

    assert model.path.read_bytes() == DATA
    assert hub.ranges() == [None, f"bytes={kept}-"]
    assert left(store) == ["Judge-Q4_K_M.gguf", "Judge-Q4_K_M.json"]


def test_ctrl_c_keeps_the_part(hub, store):
    hub.add(REPO, FILE, DATA)

    def interrupt(done, total):
        if done > 100 * KIB:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(REFERENCE, store=store, on_progress=interrupt)

    assert store.list() == ()
    assert 100 * KIB < part_of(store).stat().st_size < len(DATA)
    assert pull(REFERENCE, store=store).path.read_bytes() == DATA


def test_two_pulls_at_once_fetch_it_once(hub, store):
    served = hub.add(REPO, FILE, DATA, stall_after=300 * KIB)
    with start_pull(store) as first:
        wait_until(lambda: part_of(store).exists() and part_of(store).stat().st_size >= 200 * KIB)
        with start_pull(store) as second:
            waiting = second.stdout.readline()
            served.stall_after = None
            hub.ended.set()
            codes = [first.wait(30), second.wait(30)]
            found = second.stdout.read()

    assert waiting == "Judge-Q4_K_M: another process is fetching it; waiting\n"
    assert codes == [0, 0]
    assert found == "Judge-Q4_K_M: is on this disk already\n"
    assert store.find(REFERENCE).path.read_bytes() == DATA
    assert hub.ranges().count(None) == 1
    assert left(store) == ["Judge-Q4_K_M.gguf", "Judge-Q4_K_M.json"]


def test_a_broken_connection_is_made_anew_where_it_broke(hub, store):
    hub.add(REPO, FILE, DATA, cut_after=200 * KIB, cuts=2)

    model = pull(REFERENCE, store=store)

    assert model.path.read_bytes() == DATA
    assert len(hub.ranges()) == 3
    assert hub.ranges()[0] is None
    assert None not in hub.ranges()[1:]


def test_a_body_that_never_gets_longer_is_cut_short(hub, store):
    """The part stays; a later pull goes on from it."""
    served = hub.add(REPO, FILE, DATA, cut_after=0)
    keep_part(store, DATA[: 64 * KIB])

    with pytest.raises(CorruptDownloadError, match=r"ended after 65.5 kB of 614.6 kB.*resumes"):
        pull(REFERENCE, store=store)

    assert part_of(store).read_bytes() == DATA[: 64 * KIB]
    served.cut_after = None
    assert pull(REFERENCE, store=store).path.read_bytes() == DATA


def test_a_body_shorter_than_its_record_is_refused(hub, store):
    hub.add(REPO, FILE, DATA, body=DATA[:-1])

    with pytest.raises(CorruptDownloadError, match=f"{len(DATA) - 1} bytes of {len(DATA)}"):
        pull(REFERENCE, store=store)
    assert store.list() == ()


def test_a_body_longer_than_its_record_is_refused(hub, store):
    hub.add(REPO, FILE, DATA, body=DATA + b"!")

    with pytest.raises(CorruptDownloadError, match=f"more came than the {len(DATA)} bytes"):
        pull(REFERENCE, store=store)


def test_a_wrong_hash_is_refused_with_both_and_the_next_pull_starts_anew(hub, store):
    wrong = DATA[:-1] + bytes([DATA[-1] ^ 1])
    served = hub.add(REPO, FILE, DATA, body=wrong)

    with pytest.raises(CorruptDownloadError) as caught:
        pull(REFERENCE, store=store)

    assert sha256(wrong) in str(caught.value)
    assert sha256(DATA) in str(caught.value)
    assert store.list() == ()
    assert part_of(store).read_bytes() == wrong
    served.body = None
    assert pull(REFERENCE, store=store).path.read_bytes() == DATA


def test_a_part_that_does_not_fit_is_given_up_for_the_whole(hub, store):
    hub.add(REPO, FILE, DATA)
    keep_part(store, b"GGUF" + b"x" * 1000)
    events = []

    model = pull(REFERENCE, store=store, on_event=events.append)

    assert model.path.read_bytes() == DATA
    assert hub.ranges() == ["bytes=1004-", None]
    assert f"{REFERENCE}: what an earlier try left does not fit; fetching it whole" in events


def test_a_part_longer_than_the_file_is_given_up(hub, store):
    hub.add(REPO, FILE, DATA)
    keep_part(store, DATA + b"!")

    assert pull(REFERENCE, store=store).path.read_bytes() == DATA
    assert hub.ranges() == [None]


def test_a_complete_part_is_hashed_and_not_fetched(hub, store):
    hub.add(REPO, FILE, DATA)
    keep_part(store, DATA)

    assert pull(REFERENCE, store=store).path.read_bytes() == DATA
    assert hub.ranges() == []


def test_416_means_complete_and_the_hash_decides(hub, store):
    """A stale part made other tools fail for good; here it is hashed, and fetched anew where it is wrong."""
    served = hub.add(REPO, FILE, DATA, always_416=True)
    keep_part(store, DATA[: 64 * KIB])

    assert pull(REFERENCE, store=store).path.read_bytes() == DATA
    assert hub.ranges() == [f"bytes={64 * KIB}-", None]
    assert served.always_416


def test_a_server_that_ignores_ranges_sends_it_whole(hub, store):
    hub.add(REPO, FILE, DATA, ranges=False)
    keep_part(store, DATA[: 64 * KIB])

    assert pull(REFERENCE, store=store).path.read_bytes() == DATA


def test_a_file_that_was_in_place_before_the_kill_is_registered(hub, store):
    hub.add(REPO, FILE, DATA)
    store.directory.mkdir()
    (store.directory / FILE).write_bytes(DATA)

    assert pull(REFERENCE, store=store).path.read_bytes() == DATA
    assert hub.ranges() == []


@pytest.mark.parametrize(
    "how",
    [
        {"kind": "text/html; charset=utf-8", "body": b"<!doctype html><html>Sign in</html>"},
        {"body": b"\n  <!doctype html><html>Sign in</html>"},
        {"body": b"<" + b"x" * len(DATA)},
    ],
    ids=["by its type", "by its bytes", "as long as the file"],
)
def test_a_web_page_is_not_taken_for_weights(hub, store, how):
    hub.add(REPO, FILE, DATA, **how)

    with pytest.raises(CorruptDownloadError, match="a web page comes instead of weights"):
        pull(REFERENCE, store=store)
    assert store.list() == ()
    assert part_of(store).stat().st_size == 0


def test_an_empty_body_is_refused(hub, store):
    hub.add(REPO, FILE, DATA, body=b"")

    with pytest.raises(CorruptDownloadError, match=r"stopped after 0 B of 614.6 kB"):
        pull(REFERENCE, store=store)


def test_other_bytes_are_not_taken_for_weights(hub, store):
    hub.add(REPO, FILE, DATA, body=b"PK\x03\x04" + b"\0" * 1000)

    with pytest.raises(CorruptDownloadError, match="not a GGUF file: it begins with b'PK"):
        pull(REFERENCE, store=store)


@pytest.mark.parametrize(
    ("data", "say"),
    [
        (
            gguf(1000, metadata={"general.type": "adapter"}),
            "no model's weights: its general.type is 'adapter'",
        ),
        (gguf(1000)[:-1], "no usable GGUF: is cut short"),
    ],
)
def test_a_published_file_that_is_no_model_is_refused_and_not_kept(hub, store, data, say):
    hub.add(REPO, FILE, data)

    with pytest.raises(CorruptDownloadError, match=say):
        pull(REFERENCE, store=store)
    assert left(store) == []


def test_a_stall_ends_with_a_hint_and_keeps_the_part(hub, store):
    served = hub.add(REPO, FILE, DATA, stall_after=128 * KIB)

    with pytest.raises(
        SourceUnreachableError, match=r"no byte came for 0.3 seconds, after 131.1 kB.*HTTPS_PROXY"
    ):
        pull(REFERENCE, store=store, stall_seconds=0.3)

    served.stall_after = None
    assert pull(REFERENCE, store=store).path.read_bytes() == DATA
    assert hub.ranges() == [None, f"bytes={128 * KIB}-"]


def test_no_space_is_said_before_the_first_byte(hub, store, monkeypatch):
    hub.add(REPO, FILE, DATA)
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 1000, 1000))

    with pytest.raises(DiskSpaceError, match=r"614.6 kB are needed and 1.0 kB are free"):
        pull(REFERENCE, store=store)
    assert hub.ranges() == []
    assert left(store) == []


def test_what_is_here_already_needs_no_space_again(hub, store, monkeypatch):
    hub.add(REPO, FILE, DATA)
    keep_part(store, DATA[:-1000])
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 1000, 1000))

    assert pull(REFERENCE, store=store).path.read_bytes() == DATA


def test_a_disk_that_fills_up_keeps_the_part(hub, store, monkeypatch):
    hub.add(REPO, FILE, DATA)

    def full(self, chunk):
        raise self._cannot_write(OSError(errno.ENOSPC, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr(PartFile, "append", full)
        with pytest.raises(DiskSpaceError, match=r"the disk is full.*resumes"):
            pull(REFERENCE, store=store)
    assert pull(REFERENCE, store=store).path.read_bytes() == DATA


def test_a_folder_that_cannot_be_written_is_one_clear_line(hub, store, tmp_path):
    hub.add(REPO, FILE, DATA)
    (tmp_path / "file").write_text("")

    with pytest.raises(ModelStoreError, match=r"cannot be created.*JUDGE_LOCAL_MODELS_DIR"):
        pull(REFERENCE, store=Store(tmp_path / "file" / "models"))


def test_memory_stays_flat(hub, store):
    """A file eight times the bound on what is held at once."""
    hub.add(REPO, FILE, gguf(16_000 * KIB))
    pull(REFERENCE, store=Store(store.directory / "warm"))
    tracemalloc.start()
    try:
        pull(REFERENCE, store=store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 4_000 * KIB
