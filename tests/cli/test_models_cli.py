"""The commands that keep the models folder, as a person and a script meet them."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge_local.cli import models as commands
from judge_local.errors import ModelFileError, ModelMissingError, ModelStoreError, UsageError
from judge_local.models.store import Store
from models.fakes import KIB, gguf, serving, sha256

DATA = gguf(
    100 * KIB, seed=b"cli", metadata={"general.name": "Test\x1b[2J", "tokenizer.chat_template": "{{ m }}"}
)
SRC = Path(__file__).parents[2] / "src"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The models folder, which is not there yet."""
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "Judge-Q8_0.gguf"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def stored(folder, weights):
    """A model in the folder."""
    return Store(folder).import_file(weights, name="judge")


def run(command, *words, fails=None):
    """Run a command; returns (standard output, standard error). An error of `fails`' class is expected, or none."""
    result = CliRunner().invoke(command, [str(word) for word in words])
    if fails is None:
        assert result.exception is None, result.output
    else:
        assert isinstance(result.exception, fails), result.output
    return result.stdout, result.stderr


def test_path_prints_the_folder_or_a_file(folder, stored):
    assert run(commands.path) == (f"{folder}\n", "")
    assert run(commands.path, "judge") == (f"{folder}/judge.gguf\n", "")
    assert json.loads(run(commands.path, "--json")[0]) == {"folder": str(folder)}
    assert json.loads(run(commands.path, "judge", "--json")[0]) == {
        "name": "judge",
        "path": f"{folder}/judge.gguf",
        "sha256": sha256(DATA),
    }


def test_looking_makes_no_folder(folder):
    run(commands.path)
    run(commands.ls)
    run(commands.verify)

    assert not folder.exists()


def test_ls_lists_what_is_here(folder, stored):
    out, err = run(commands.ls)

    head, row = out.splitlines()
    assert head.split() == ["NAME", "SIZE", "LICENCE", "SINCE", "SHA256", "SOURCE"]
    assert row.split()[:3] == ["judge", "102.7", "kB"]
    assert sha256(DATA)[:12] in row
    assert err == ""


def test_ls_of_nothing_prints_nothing_and_says_what_to_do(folder):
    out, err = run(commands.ls)

    assert out == ""
    assert "judge-local pull smollm2-135m" in err
    assert json.loads(run(commands.ls, "--json")[0]) == []


def test_ls_for_a_machine(folder, stored):
    (entry,) = json.loads(run(commands.ls, "--json")[0])

    assert (entry["name"], entry["path"], entry["sha256"]) == ("judge", f"{folder}/judge.gguf", sha256(DATA))
    assert (entry["sizeBytes"], entry["kind"], entry["licence"]) == (len(DATA), "model", None)
    assert entry["files"][0]["name"] == "judge.gguf"


def test_ls_says_what_is_wrong_with_the_folder(folder, stored):
    (folder / "broken.json").write_text("{")

    out, err = run(commands.ls)

    assert "judge" in out
    assert "broken.json" in err


def test_ls_of_the_catalog(folder):
    out, _ = run(commands.ls, "--catalog")
    entries = json.loads(run(commands.ls, "--catalog", "--json")[0])

    assert [line.split()[0] for line in out.splitlines()[1:]] == [entry["name"] for entry in entries]
    assert entries[0]["name"] == "smollm2-135m"
    assert {entry["tier"] for entry in entries} == {None, "fast", "balanced", "quality"}
    assert not any(entry["onDisk"] for entry in entries)


def test_show_reads_the_file_and_spoils_no_terminal(folder, stored):
    out, _ = run(commands.show, "judge")
    facts = json.loads(run(commands.show, "judge", "--json")[0])

    assert "chat template  yes" in out
    assert "\x1b" not in out
    assert facts["architecture"] == "llama"
    assert facts["contextLength"] == 2048
    assert facts["chatTemplate"] is True
    assert facts["title"] == "Test\x1b[2J"


def test_show_takes_a_path_and_a_catalog_model(folder, weights):
    assert f"path           {weights}" in run(commands.show, weights)[0]
    out, _ = run(commands.show, "gemma-4-e2b")
    assert "onDisk   no" in out
    assert json.loads(run(commands.show, "gemma-4-e2b", "--json")[0])["sizeBytes"] == 2620370976


def test_show_of_what_is_not_here_fails(folder):
    run(commands.show, "./none.gguf", fails=ModelMissingError)


def test_rm_prints_what_it_took(folder, stored):
    out, err = run(commands.rm, "judge")

    assert out.splitlines() == [f"{folder}/judge.gguf", f"{folder}/judge.json"]
    assert "102.7 kB are freed" in err
    assert list(folder.iterdir()) == []


def test_rm_with_dry_run_takes_nothing(folder, stored):
    out, err = run(commands.rm, "judge", "--dry-run")

    assert out.splitlines() == [f"{folder}/judge.gguf", f"{folder}/judge.json"]
    assert "would be freed" in err
    assert stored.path.exists()


def on_a_terminal(*words, typed=""):
    """Run the program on a terminal; returns (exit code, standard output, what the terminal showed)."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "judge_local", *words],
        stdin=its,
        stdout=subprocess.PIPE,
        stderr=its,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC), "TERM": "xterm", "COLUMNS": "100"},
    ) as program:
        os.close(its)
        os.write(ours, typed.encode())
        shown = b""
        while chunk := read_terminal(ours):
            shown += chunk
        out = program.stdout.read()
    os.close(ours)
    return program.returncode, out, shown.decode()


def read_terminal(descriptor):
    """What comes next; nothing once the program has gone, which Linux words as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("typed", "options", "stays"), [("n\n", [], True), ("y\n", [], False), ("", ["--yes"], False)]
)
def test_rm_asks_a_person(folder, stored, typed, options, stays):
    code, _, shown = on_a_terminal("rm", "judge", *options, typed=typed)

    assert code == 0
    assert ("Remove judge (102.7 kB)?" in shown) == (not options)
    assert stored.path.exists() == stays


def test_rm_goes_on_after_what_it_cannot_take(folder, stored):
    out, err = run(commands.rm, "none", "judge", fails=ModelStoreError)

    assert "judge.gguf" in out
    assert "'none' names no model" in err
    assert not stored.path.exists()


def test_verify_does_not_pass_over_an_entry_it_cannot_read(folder, stored):
    """What cannot be read was not verified, so the answer is not yes."""
    (folder / "broken.json").write_text("{")

    out, err = run(commands.verify, fails=ModelStoreError)

    assert out == f"ok       {folder}/judge.gguf\n"
    assert "broken.json" in err


def test_verify_says_ok_or_fails(folder, stored):
    assert run(commands.verify) == (f"ok       {folder}/judge.gguf\n", "")

    times = stored.path.stat()
    data = bytearray(DATA)
    data[-1] ^= 1
    stored.path.unlink()
    stored.path.write_bytes(bytes(data))
    os.utime(stored.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    out, _ = run(commands.verify, "judge", fails=ModelFileError)
    assert out == f"changed  {folder}/judge.gguf\n"

    stored.path.unlink()
    (check,) = json.loads(run(commands.verify, "--json", fails=ModelFileError)[0])
    assert check == {
        "name": "judge",
        "path": f"{folder}/judge.gguf",
        "state": "missing",
        "expected": sha256(DATA),
        "actual": None,
    }


def test_import_prints_the_path_and_the_rest_elsewhere(folder, weights):
    out, err = run(commands.import_, weights)

    assert out == f"{folder}/Judge-Q8_0.gguf\n"
    assert "Judge-Q8_0" in err
    assert run(commands.import_, weights, "--quiet") == (out, "")
    assert json.loads(run(commands.import_, weights, "--json")[0])["name"] == "Judge-Q8_0"


def test_import_of_a_file_that_is_not_there_fails(folder):
    run(commands.import_, "none.gguf", fails=ModelMissingError)


def test_pull_of_a_path_names_the_import(folder, weights):
    run(commands.pull, weights, fails=UsageError)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.add("org/Repo", "Judge-Q8_0.gguf", DATA)
        yield hub


def test_pull_prints_the_path_and_the_rest_elsewhere(folder, hub):
    out, err = run(commands.pull, "org/Repo:Q8_0")

    assert out == f"{folder}/Judge-Q8_0.gguf\n"
    assert "fetching from hf:org/Repo/Judge-Q8_0.gguf" in err
    assert run(commands.pull, "org/Repo:Q8_0", "--quiet") == (out, "")
    assert json.loads(run(commands.pull, "org/Repo:Q8_0", "--json")[0])["sha256"] == sha256(DATA)


def test_pull_says_how_far_it_is_where_nobody_watches(folder, hub, monkeypatch):
    monkeypatch.setattr(commands, "_LINE_EVERY_SECONDS", 0.0)

    _, err = run(commands.pull, "org/Repo:Q8_0")

    assert "judge-local: 102.7 kB of 102.7 kB" in err.splitlines()


def test_a_terminal_gets_a_moving_bar(folder, hub):
    code, out, shown = on_a_terminal("pull", "org/Repo:Q8_0")

    assert (code, out) == (0, f"{folder}/Judge-Q8_0.gguf\n")
    assert "102.7/102.7 kB" in shown


def test_a_pipe_gets_no_escapes(folder, hub):
    out, err = run(commands.pull, "org/Repo:Q8_0")

    assert "\x1b" not in out + err


def test_the_whole_program_fails_in_one_line(folder, tmp_path):
    """No source to be had, the models folder a file: no traceback, the class's exit code."""
    folder.write_text("a file")
    environment = {**os.environ, "PYTHONPATH": str(SRC), "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-m", "judge_local", "pull", "hf:org/repo/x.gguf"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.count("\n") == 1
    assert "JUDGE_LOCAL_MODELS_DIR" in done.stderr
