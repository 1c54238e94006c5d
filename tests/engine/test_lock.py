"""One worker computes on a machine at a time; a loaded file is held."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from judge_local.engine.lock import hold_shared, machine_lock
from judge_local.errors import EngineBusyError, EngineError


def never() -> bool:
    return False


def test_a_second_holder_fails_when_it_may_not_wait(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        machine_lock(path, wait=True, say=print, given_up=never),
        pytest.raises(EngineBusyError, match=str(os.getpid())),
        machine_lock(path, wait=False, say=print, given_up=never),
    ):
        pass


def test_a_second_holder_says_that_it_waits_and_for_whom(tmp_path: Path) -> None:
    path, said = tmp_path / "lock", []
    with (
        machine_lock(path, wait=True, say=print, given_up=never),
        machine_lock(path, wait=True, say=said.append, given_up=lambda: bool(said)) as turn,
    ):
        assert not turn.held
    assert said == [f"waiting for process {os.getpid()}, which is judging on this machine"]


def test_the_lock_ends_with_its_block(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with machine_lock(path, wait=False, say=print, given_up=never) as turn:
            assert turn.held
            assert not turn.is_wanted()

    assert path.stat().st_mode & 0o777 == 0o666


def test_who_waits_has_its_turn_before_the_holder_has_another(tmp_path: Path) -> None:
    """A process that judges row after row lets go in between, long enough for another to see it."""
    path = tmp_path / "lock"
    turns: list[str] = []
    busy, done = threading.Event(), threading.Event()

    def many() -> None:
        while not done.is_set():
            with machine_lock(path, wait=True, say=print, given_up=never):
                turns.append("many")
                busy.set()
                time.sleep(0.02)

    thread = threading.Thread(target=many)
    thread.start()
    busy.wait()
    for _ in range(3):
        with machine_lock(path, wait=True, say=print, given_up=never):
            turns.append("one")
    done.set()
    thread.join()

    assert turns.count("one") == 3


def test_a_lock_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "lock"

    with (
        pytest.raises(EngineError, match=str(path)),
        machine_lock(path, wait=True, say=print, given_up=never),
    ):
        pass


def test_a_held_file_refuses_an_exclusive_lock(tmp_path: Path) -> None:
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"GGUF")
    held = hold_shared(path)
    with path.open("rb") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(held)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
