"""`judge-local panel` as a process with real workers: interrupted, it ends at once and leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# The command with a machine lock of the test's own, so that it waits for nobody else's judging.
COMMAND = """
import functools, os
from judge_local.engine import protocol

protocol.Settings = functools.partial(protocol.Settings, lock_path=os.path.abspath("engine.lock"))
from judge_local.cli import main

main()
"""


def children(pid):
    """Processes that `pid` began and that are still there."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
    return [one for one, parent in pairs if parent == pid]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupt_ends_the_workers_too(tmp_path, tiny_model, make_tiny_model, number):
    other = make_tiny_model.write_tiny_model(tmp_path / "other.gguf", seed=1)
    (tmp_path / "subject.txt").write_text("The train leaves at nine.", "utf-8")
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            COMMAND,
            "panel",
            "subject.txt",
            "--claim",
            "It leaves at nine.",
            "--budget",
            "100",
            "--judge",
            str(tiny_model),
            "--judge",
            str(other),
        ],
        cwd=tmp_path,
        env={**os.environ, "JUDGE_LOCAL_MODELS_DIR": str(tmp_path / "models")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while not (workers := children(process.pid)):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "judge-local: interrupted"
    assert "Traceback" not in err
    assert [pid for pid in workers if is_there(pid)] == []
    assert Path(other).is_file()
