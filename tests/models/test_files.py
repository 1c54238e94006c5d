"""Locks between processes, and files that are whole or not there."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from judge_local.errors import DiskSpaceError, ModelStoreError
from judge_local.models.files import human_size, locked, sha256_of, store_error, write_json
from judge_local.models.partfile import PartFile, part_path


def test_the_lock_is_held_by_one_at_a_time_and_leaves_no_file(tmp_path):
    """Sixteen threads that each come back for it: no two inside, and nothing left behind."""
    path, inside, most, rounds = tmp_path / ".m.lock", 0, [], 20
    guard = threading.Lock()

    def work():
        nonlocal inside
        for _ in range(rounds):
            with locked(path, on_wait=lambda: None):
                with guard:
                    inside += 1
                    most.append(inside)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == [1] * 16 * rounds
    assert not path.exists()


def test_a_lock_ends_with_its_process(tmp_path):
    path = tmp_path / ".m.lock"
    hold = (
        "import sys; from judge_local.models.files import locked; from pathlib import Path\n"
        "with locked(Path(sys.argv[1]), on_wait=lambda: None): print(flush=True); sys.stdin.read()"
    )
    src = str(Path(__file__).parents[2] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": src},
    ) as holder:
        holder.stdout.readline()
        told = []

        def on_wait():
            told.append(path.exists())
            holder.kill()

        with locked(path, on_wait=on_wait):
            assert told == [True]


def test_a_lock_in_a_folder_that_is_not_there_is_one_clear_line(tmp_path):
    with (
        pytest.raises(ModelStoreError, match="JUDGE_LOCAL_MODELS_DIR"),
        locked(tmp_path / "none" / ".m.lock", on_wait=lambda: None),
    ):
        pytest.fail("was locked")


def test_json_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "m.json"
    write_json(path, {"a": 1})

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskSpaceError):
        write_json(path, {"a": 2})

    assert path.read_text() == '{\n  "a": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


@pytest.mark.parametrize(
    ("number", "kind", "say"),
    [
        (errno.ENOSPC, DiskSpaceError, "the disk is full"),
        (errno.EDQUOT, DiskSpaceError, "the disk is full"),
        (errno.EROFS, ModelStoreError, "JUDGE_LOCAL_MODELS_DIR"),
        (errno.EACCES, ModelStoreError, "JUDGE_LOCAL_MODELS_DIR"),
        (errno.EIO, ModelStoreError, "Check the disk"),
    ],
)
def test_what_the_system_refuses_is_said_with_what_to_do(number, kind, say):
    error = store_error(Path("/m"), "cannot be written", OSError(number, os.strerror(number)))

    assert type(error) is kind
    assert say in str(error)


def test_a_part_file_goes_on_and_knows_its_hash(tmp_path):
    path = part_path(tmp_path, "m.gguf", "0" * 64)
    with PartFile(path) as part:
        part.append(b"one")
    with PartFile(path) as part:
        part.append(b"two")

        assert (part.size, path.read_bytes()) == (6, b"onetwo")
        assert part.sha256 == sha256_of(path)

        part.restart()
        part.append(b"three")
        assert part.sha256 == sha256_of(path)
        part.finish(tmp_path / "m.gguf")

    assert (tmp_path / "m.gguf").read_bytes() == b"three"
    assert not path.exists()


def test_a_part_file_of_another_hash_is_another_file(tmp_path):
    assert part_path(tmp_path, "m.gguf", "a" * 64) != part_path(tmp_path, "m.gguf", "b" * 64)


def test_a_part_file_that_cannot_be_opened_is_one_clear_line(tmp_path):
    with pytest.raises(ModelStoreError, match="cannot be written"):
        PartFile(tmp_path / "none" / "m.gguf.part")


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5 * 10**12, "5.0 TB"),
    ],
)
def test_sizes_are_said_in_decimal_units(size, said):
    assert human_size(size) == said
