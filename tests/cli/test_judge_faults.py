"""`judge-local judge` as a process with the real engine: bad models, long texts, signals, and pipes that close."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from judge_local.verdict import VERDICT_SCHEMA

CLAIM = "The train leaves at nine."
# The command with a machine lock of the test's own, so that it waits for nobody else's judging.
COMMAND = """
import functools, os, sys
from judge_local.engine import protocol

protocol.Settings = functools.partial(protocol.Settings, lock_path=os.path.abspath("engine.lock"))
from judge_local.cli import main

main()
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a subject, a schema of short answers, and a models folder that is not there yet."""
    (tmp_path / "subject.txt").write_text("The train leaves at nine.")
    schema = json.loads(json.dumps(dict(VERDICT_SCHEMA)))
    for name in ("observed", "reasoning"):
        schema["properties"][name]["maxLength"] = 8
    (tmp_path / "short.json").write_text(json.dumps(schema))
    return tmp_path


def start(folder, *args, **environment):
    """A judge in a process group of its own, so that its worker can be looked for afterwards."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "judge", *map(str, args)],
        cwd=folder,
        env={**os.environ, "JUDGE_LOCAL_MODELS_DIR": str(folder / "models"), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def judge(folder, *args, **environment):
    """What came of it: exit code, standard output, standard error. The engine must be gone."""
    process = start(folder, *args, **environment)
    out, err = process.communicate(timeout=110)
    assert_alone(process)
    return process.returncode, out, err


def assert_alone(process):
    """Nothing of the process's group is left."""
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_a_decision_by_a_real_engine(folder, tiny_model):
    """What random weights decide means nothing; that the whole way works, and the exit code says the zone, does."""
    code, out, err = judge(
        folder, "subject.txt", "--claim", CLAIM, "--runs", 1, "--json", "--quiet", "--model", tiny_model
    )
    data = json.loads(out)
    (run,) = data["runs"]

    assert code == {"auto-pass": 0, "auto-fail": 1, "human-review": 3}[data["zone"]]
    assert err == ""
    assert run["verdict"]["claim"] == CLAIM
    assert run["usage"]["inputTokens"] > 0
    assert run["model"].startswith("tiny@")


def test_a_models_folder_that_cannot_be_written_does_not_keep_from_judging(folder, tiny_model):
    (folder / "models").write_text("a file stands where the folder would")

    code, out, err = judge(
        folder, "subject.txt", "--claim", CLAIM, "--runs", 1, "--json", "--quiet", "--model", tiny_model,
        "--schema", "short.json",
    )  # fmt: skip

    assert code in (0, 1, 3)
    assert json.loads(out)["id"] == "claim:1"
    assert err == ""


def whole(tiny):
    return tiny.read_bytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda tiny: b"", "is an empty file"),
        (lambda tiny: b"<html>Not found</html>", "is a web page"),
        (lambda tiny: b"PK" + whole(tiny)[2:], "is not a GGUF file"),
        (lambda tiny: whole(tiny)[:30], "cut short"),
        (lambda tiny: whole(tiny)[:2000], "cut short"),
        (lambda tiny: whole(tiny)[:-1], "cut short"),
    ],
    ids=["empty", "html", "no magic", "header cut", "metadata cut", "one byte short"],
)
def test_a_file_that_is_no_whole_model_is_one_line_and_4(folder, tiny_model, data, message):
    (folder / "bad.gguf").write_bytes(data(tiny_model))

    code, out, err = judge(folder, "subject.txt", "--claim", CLAIM, "--quiet", "--model", "bad.gguf")

    assert (code, out) == (4, "")
    assert message in err
    assert "bad.gguf" in err
    assert err.count("\n") == 1


def test_a_model_without_a_chat_template_is_one_line_and_4(folder, make_tiny_model):
    make_tiny_model.write_tiny_model(folder / "bare.gguf", chat_template=None)

    code, out, err = judge(folder, "subject.txt", "--claim", CLAIM, "--quiet", "--model", "bare.gguf")

    assert (code, out) == (4, "")
    assert "chat template" in err
    assert "--chat-template" in err
    assert err.count("\n") == 1


def test_a_chat_template_of_ones_own_that_is_none_is_a_fault_of_the_call(folder, tiny_model):
    (folder / "t.j2").write_text("{% for")

    code, out, err = judge(
        folder, "subject.txt", "--claim", CLAIM, "--quiet", "--model", tiny_model, "--chat-template", "t.j2"
    )

    assert (code, out) == (2, "")
    assert err.startswith("judge-local: chat template: '{% for' is not Jinja: ")
    assert err.count("\n") == 1


def test_a_chat_template_of_ones_own_serves_such_a_model(folder, make_tiny_model):
    make_tiny_model.write_tiny_model(folder / "bare.gguf", chat_template=None)
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    (folder / "t.j2").write_text(template)

    code, out, _ = judge(
        folder, "subject.txt", "--claim", CLAIM, "--runs", 1, "--json", "--model", "bare.gguf",
        "--chat-template", "t.j2", "--schema", "short.json",
    )  # fmt: skip

    assert code in (0, 1, 3)
    assert "verdict" in json.loads(out)["runs"][0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("smolm2-135m", "Did you mean smollm2-135m?"),
        ("smollm2-135m", "judge-local pull smollm2-135m"),
        ("none.gguf", "no such file"),
        (None, "judge-local pull smollm2-135m"),
    ],
)
def test_a_model_that_is_not_here_is_one_line_and_2(folder, model, message):
    named = [] if model is None else ["--model", model]

    code, out, err = judge(folder, "subject.txt", "--claim", CLAIM, "--quiet", *named)

    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_subject_longer_than_the_context_is_one_line_and_2(folder, tiny_model):
    (folder / "long.txt").write_text("All of it counts. " * 1000)

    code, out, err = judge(folder, "long.txt", "--claim", CLAIM, "--quiet", "--model", tiny_model)

    assert (code, out) == (2, "")
    assert "do not fit the context of" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("to_all", [True, False], ids=["from the terminal", "to the command alone"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_model_works_ends_everything(folder, tiny_model, number, to_all):
    """A terminal's Ctrl-C reaches the worker too. Neither may leave a traceback, a process or half a file."""
    process = start(
        folder, "subject.txt", "--claim", CLAIM, "--runs", 500, "--model", tiny_model, "--cache", "answers"
    )
    first = process.stderr.readline()
    if to_all:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=110)

    assert first == "judge-local: claim: 500 runs\n"
    assert (process.returncode, out) == (130, "")
    assert err == "judge-local: interrupted\n"
    assert_alone(process)
    assert not (folder / "answers").exists()


def test_a_signal_while_standard_input_is_awaited(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", AWAITING, "judge", "-", "--claim", CLAIM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert process.stdout.readline() == "awaiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, "", "judge-local: interrupted\n")


AWAITING = """
import os, sys, types
from judge_local.cli import main

def read(size):
    os.write(1, b"awaiting\\n")
    return os.read(0, size)

sys.stdin = types.SimpleNamespace(buffer=types.SimpleNamespace(read=read))
main()
"""


def test_a_reader_who_left_costs_nothing_but_the_output(folder, tiny_model):
    args = ["subject.txt", "--claim", CLAIM, "--runs", 1, "--quiet", "--schema", "short.json"]
    process = start(folder, *args, "--model", tiny_model)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()

    assert (process.wait(110), err) == (141, "")
    assert_alone(process)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_the_output_is_one_line_and_2(folder, tiny_model):
    with open("/dev/full", "w") as full:  # noqa: PTH123 # Nothing of Path fits a device better.
        done = subprocess.run(
            [sys.executable, "-c", COMMAND, "judge", "subject.txt", "--claim", CLAIM, "--runs", "1", "--quiet",
             "--schema", "short.json", "--model", str(tiny_model)],
            cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert done.returncode == 2
    assert done.stderr.startswith("judge-local: standard output: cannot be written: No space left on device.")
    assert done.stderr.count("\n") == 1
