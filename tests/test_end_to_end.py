"""The promises a user can see, with real processes: the command line, the worker, llama.cpp, and a file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from judge_local import VERDICT_SCHEMA
from judge_local.engine.protocol import Settings

CLAIM = "The sky is blue."
WAIT_SECONDS = 240.0
MACHINE_LOCK = Path(Settings(path="").lock_path)
"""Holds the pid of the worker that decodes."""


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    path = tmp_path / "subject.md"
    # Long enough that reading it takes a while, short enough for the tiny model's byte-level context.
    path.write_text("The sky is blue. Grass is green.\n" * 60, encoding="utf-8")
    return path


@pytest.fixture
def short_schema(tmp_path: Path) -> Path:
    """Random weights write every string to its greatest length: this one has short ones."""
    strings = {name: {"type": "string", "maxLength": 30} for name in ("observed", "reasoning")}
    path = tmp_path / "short.json"
    path.write_text(json.dumps({**VERDICT_SCHEMA, "properties": {**VERDICT_SCHEMA["properties"], **strings}}))
    return path


@pytest.fixture
def judging(
    subject: Path, tiny_model: Path, short_schema: Path
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `judge-local judge` on the tiny model; whatever still runs in the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [*before, sys.executable, "-m", "judge_local", "judge", str(subject), "--claim", CLAIM]
        process = subprocess.Popen(
            [*command, "--model", str(tiny_model), "--schema", str(short_schema), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def worker_of(process: subprocess.Popen[str]) -> int:
    """The pid of the worker, once it has been at work for a moment."""
    until = time.monotonic() + WAIT_SECONDS
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not list a process's children in /proc")
    while time.monotonic() < until:
        for child in children.read_text().split():
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            if b"judge_local.engine.worker" in command and MACHINE_LOCK.read_text().strip() == child:
                time.sleep(0.1)
                return int(child)
        time.sleep(0.01)
    raise AssertionError("no worker was started")


def is_gone(pid: int) -> bool:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_worker_killed_in_mid_run_sends_the_claim_to_a_person(
    judging: Callable[..., subprocess.Popen[str]],
) -> None:
    """The runs in flight are errored, the zone is human-review, the exit code 3; and the next call works."""
    process = judging("--runs", "400", "--json")
    os.kill(worker_of(process), signal.SIGKILL)
    out, _ = process.communicate(timeout=WAIT_SECONDS)
    decision = json.loads(out)

    assert process.returncode == 3
    assert decision["zone"] == "human-review"
    assert decision["votes"]["error"] > 0
    assert {run["errorKind"] for run in decision["runs"] if "error" in run} == {"EngineCrashedError"}

    again = judging("--runs", "1", "--json")
    out, err = again.communicate(timeout=WAIT_SECONDS)

    assert json.loads(out)["votes"]["error"] == 0, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_at_work(judging: Callable[..., subprocess.Popen[str]], number: signal.Signals) -> None:
    """Ctrl-C goes to the whole process group: exit 130, no traceback, nothing on stdout, no worker left."""
    process = judging("--runs", "400", "--json")
    worker = worker_of(process)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert is_gone(worker)


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8])
def test_interrupted_at_any_moment(judging: Callable[..., subprocess.Popen[str]], delay: float) -> None:
    """From the first instruction of Python to the middle of a decode."""
    process = judging("--runs", "400", "--json")
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_SECONDS)

    # Until Python has reached the command line's own code, the interrupt is the interpreter's.
    assert process.returncode in (130, -signal.SIGINT) or "init_import_site" in err
    assert out == ""
    assert "Traceback" not in err or "judge_local/cli" not in err


def test_judging_needs_no_network_interface(judging: Callable[..., subprocess.Popen[str]]) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("this system has no unshare")
    probe = subprocess.run(["unshare", "-n", "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this user may not make a network namespace: {probe.stderr.strip()}")
    process = judging("--runs", "1", "--json", before=("unshare", "-n"))
    out, err = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode in (0, 1, 3), err
    assert json.loads(out)["votes"]["error"] == 0


def test_several_claims_read_the_subject_once(
    judging: Callable[..., subprocess.Popen[str]], tiny_model: Path
) -> None:
    """One load, one prefill of the subject, one decision each as it lands."""
    process = judging("--claim", "Grass is red.", "--claim", "Snow is white.", "--runs", "2", "--json")
    out, err = process.communicate(timeout=WAIT_SECONDS)
    decisions = [json.loads(line) for line in out.splitlines()]

    assert [decision["claim"] for decision in decisions] == [CLAIM, "Grass is red.", "Snow is white."], err
    assert [decision["row"] for decision in decisions] == [1, 2, 3]
    assert process.returncode in (0, 1, 3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda good: b"<!DOCTYPE html><html></html>", "bad.gguf: is a web page"),
        (lambda good: good[:200_000], "bad.gguf: is cut short: 200000 bytes of"),
        (lambda good: b"", "bad.gguf: is an empty file"),
    ],
)
def test_a_file_that_is_no_whole_model(
    judging: Callable[..., subprocess.Popen[str]],
    tiny_model: Path,
    tmp_path: Path,
    make: Callable[[bytes], bytes],
    said: str,
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(make(tiny_model.read_bytes()))
    process = judging("--model", str(bad), "--quiet")
    out, err = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 4
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1


def test_a_model_without_a_chat_template(
    judging: Callable[..., subprocess.Popen[str]], tmp_path: Path, make_tiny_model: ModuleType
) -> None:
    bare = tmp_path / "bare.gguf"
    make_tiny_model.write_tiny_model(bare, chat_template=None)
    process = judging("--model", str(bare), "--quiet")
    _, err = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 4
    assert err.strip().splitlines() == [
        "judge-local: bare.gguf: there is no chat template. Choose an instruction-tuned model, or give a template "
        "with --chat-template FILE."
    ]


def test_a_subject_longer_than_the_context(
    judging: Callable[..., subprocess.Popen[str]], subject: Path
) -> None:
    subject.write_text("word " * 5000, encoding="utf-8")
    process = judging("--quiet")
    out, err = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 2
    assert out == ""
    assert "8192 tokens" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.live
def test_the_real_model_judges_the_example(live_model: Path, root: Path) -> None:
    """What the quick start does, for one claim, with no model named: it is the only one in the folder."""
    command = [sys.executable, "-m", "judge_local", "judge", str(root / "examples" / "tidemark.md")]
    done = subprocess.run(
        [*command, "--claim", "A pinned snapshot is never thinned.", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    decision = json.loads(done.stdout)

    assert done.returncode in (0, 1, 3), done.stderr
    assert decision["votes"]["error"] == 0
    assert {run["model"] for run in decision["runs"]} == {"smollm2-135m@b179c9523d0e"}
