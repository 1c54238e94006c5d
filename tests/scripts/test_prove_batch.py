"""A tenth of what scripts/prove_batch.py proves, on every run of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import ModuleType

import pytest

from conftest import load_script


@pytest.fixture(scope="module")
def prove() -> ModuleType:
    return load_script("prove_batch")


def test_a_batch_that_is_killed_again_and_again_loses_and_doubles_nothing(prove):
    assert prove.prove_kill(rows=30, kills=5, model=prove.MOCK, seed=1)


def test_rows_take_little_memory_and_time(prove, monkeypatch):
    monkeypatch.setattr(prove, "SECONDS_A_ROW_ALLOWED", 0.01)  # Ten times the figure: starting counts here.

    assert prove.prove_million(rows=2000)


def may_mount(folder) -> bool:
    """Whether a small disk can be made here."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True)
    return mounted.returncode == 0


def test_a_full_disk_is_one_clear_message_and_no_loss(prove, tmp_path):
    if not may_mount(tmp_path):
        pytest.skip("mounting a tmpfs needs Linux and root")

    assert prove.prove_full("200k")


def test_a_lost_line_would_be_noticed(prove, tmp_path):
    """The proof can fail: a file with an id twice, and one with a torn line, are seen for what they are."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"judgeLocalResults": 1}\n{"id": "a"}\n{"id": "a"}\n{"id": "b', "utf-8")

    assert prove.Disk.of(path) == prove.Disk(["a", "a"], torn=True)
