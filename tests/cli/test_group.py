"""The door of the command line: help, names, and what every way out looks like."""

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from judge_local import errors
from judge_local.cli import main
from judge_local.cli.group import ENTRIES, load, report

HELP = Path(__file__).parents[1] / "data" / "help"
UPDATE = os.environ.get("UPDATE_GOLDENS") == "1"


def run(*args, **kwargs):
    return CliRunner().invoke(main, list(args), **kwargs)


@pytest.fixture
def failing(monkeypatch):
    """Make `judge-local doctor` raise whatever is asked for."""

    def put(error):
        @click.command()
        def command():
            raise error

        monkeypatch.setattr("judge_local.cli.doctor.doctor", command)

    return put


@pytest.mark.parametrize("name", ["", *ENTRIES])
def test_help_is_what_the_golden_file_says(name):
    """Run with UPDATE_GOLDENS=1 to write the files anew, and read the difference."""
    # A real process: click's runner forces a width of its own.
    command = [sys.executable, "-m", "judge_local", *name.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "100"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    golden = HELP / f"{name or 'judge-local'}.txt"
    if UPDATE:
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(result.stdout, "utf-8")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == golden.read_text("utf-8")


def test_no_golden_outlives_its_command():
    assert {path.stem for path in HELP.iterdir()} == {"judge-local", *ENTRIES}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_summary_is_the_first_sentence_of_the_help(name):
    """The list of commands is written without importing them, so it could lie."""
    first = (load(name).help or "").split("\n\n")[0]

    assert ENTRIES[name].summary == " ".join(first.split())


def test_help_imports_no_command():
    code = """
        import sys
        from judge_local.cli import main
        try:
            main(["--help"])
        except SystemExit:
            pass
        heavy = {"rich", "numpy", "jsonschema", "jinja2", "huggingface_hub", "llama_cpp", "asyncio"}
        print(sorted(heavy & set(sys.modules)), sorted(m for m in sys.modules if m == "judge_local.cli.judge"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == "[] []"


def test_short_help_and_version():
    assert run("-h").output == run("--help").output
    assert run("--version").output.startswith("judge-local ")


def test_a_near_miss_is_named():
    result = run("jugde")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert (
        result.stderr
        == "judge-local: No such command 'jugde'. Did you mean 'judge'? Try 'judge-local --help'.\n"
    )


@pytest.mark.parametrize("args", [["--nonsense"], ["doctor", "--nonsense"], ["doctor", "extra"], ["judge"]])
def test_a_wrong_call_is_one_line_and_2(args):
    result = run(*args)

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "--help'." in result.stderr


def test_no_command_is_the_help_on_standard_error():
    result = run()

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == run("--help").output


def classes(root=errors.JudgeLocalError):
    yield root
    for child in root.__subclasses__():
        yield from classes(child)


@pytest.mark.parametrize("kind", dict.fromkeys(classes()), ids=lambda kind: kind.__name__)
def test_every_error_of_ours_is_one_line_and_its_own_exit_code(failing, kind):
    fault = errors.SchemaFault("", "not", "{}", "is not\nenforced")
    error = (
        kind((fault,))
        if kind is errors.UnsupportedSchemaError
        else kind("where", "what is\nwrong", "Do this.")
    )
    failing(error)

    result = run("doctor")

    assert result.exit_code == kind.exit_code
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("judge-local: ")


def test_what_nobody_foresaw_is_one_line_and_4(failing):
    failing(RuntimeError("boom\nand more"))

    result = run("doctor")

    assert result.exit_code == 4
    assert result.stderr == (
        "judge-local: unforeseen RuntimeError: boom and more. This is a fault of ours. "
        "Run `judge-local --verbose …` for the traceback.\n"
    )


@pytest.mark.parametrize("error", [RuntimeError("boom"), errors.UsageError("a", "b")])
def test_verbose_adds_the_traceback(failing, error):
    failing(error)

    result = run("--verbose", "doctor")

    assert result.exit_code == (2 if isinstance(error, errors.UsageError) else 4)
    assert "Traceback (most recent call last)" in result.stderr
    assert "--verbose" not in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_is_130_without_a_traceback(failing, error):
    failing(error)

    result = run("doctor")

    assert result.exit_code == 130
    assert result.stderr == "judge-local: interrupted\n"


def test_a_reader_who_left_is_no_fault(failing):
    failing(BrokenPipeError())

    result = run("doctor")

    assert result.exit_code == 141
    assert result.stderr == ""


def test_an_error_word_for_word_from_click_is_one_line(capsys):
    assert report(click.FileError("a.txt", "no\nsuch")) == 1
    assert capsys.readouterr().err == "judge-local: Could not open file 'a.txt': no such\n"


def test_a_warning_is_one_line(monkeypatch):
    @click.command()
    def command():
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("judge-local: the cache\ncannot be written", RuntimeWarning, stacklevel=1)

    monkeypatch.setattr("judge_local.cli.doctor.doctor", command)

    result = run("doctor")

    assert result.exit_code == 0
    assert result.stderr == "judge-local: warning: the cache cannot be written\n"


def test_windows_is_refused_with_a_line(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")

    result = run("doctor")

    assert result.exit_code == 2
    assert result.stderr.startswith("judge-local: Windows: is not supported.")


def test_a_broken_configuration_stops_a_command_but_not_its_help(tmp_path, monkeypatch):
    (tmp_path / "judge-local.toml").write_text("rnus = 3")
    monkeypatch.chdir(tmp_path)

    assert run("judge", "--help").exit_code == 0
    refused = run("doctor")
    assert refused.exit_code == 2
    assert "'rnus' is not an option. Did you mean runs?" in refused.stderr


def test_completion_knows_the_commands():
    words = {"COMP_WORDS": "judge-local gr", "COMP_CWORD": "1", "_JUDGE_LOCAL_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "judge_local"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "plain,grammar\n"
    assert done.stderr == ""


def script(code, *args):
    """A process that runs `code`, with both streams held by us."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


SLOW = """
    import sys, time, click
    import judge_local.cli.doctor as module
    from judge_local.cli import main

    @click.command()
    def doctor():
        try:
            print("ready", flush=True)
            time.sleep(60)
        finally:
            print("closed", flush=True)

    module.doctor = doctor
    sys.argv = ["judge-local", "doctor"]
    main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_through_its_finally(number):
    process = script(SLOW)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, "closed\n", "judge-local: interrupted\n")


def test_sigterm_ends_a_command_that_a_shell_put_in_the_background():
    """There SIGINT is ignored; SIGTERM must not be ignored with it."""
    process = script("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + textwrap.dedent(SLOW))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, "closed\n", "judge-local: interrupted\n")


def test_ctrl_c_while_the_imports_run_is_no_traceback():
    """And it is not lost where Python would drop a KeyboardInterrupt: in a finaliser that runs during the import."""
    code = """
        import os, signal, sys
        class Interrupting:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000): pass
            def find_spec(self, name, path=None, target=None):
                if name == "judge_local.cli.config":
                    sys.meta_path.remove(self)
        sys.meta_path.insert(0, Interrupting())
        from judge_local.cli import main
        print("went on")
    """
    process = script(code)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, "", "judge-local: interrupted\n")


def test_a_pipe_that_closes_early_is_quiet():
    """`judge-local --help | head -0` and its like."""
    process = script(
        """
        import sys
        from judge_local.cli import main
        sys.stdin.readline()
        sys.argv = ["judge-local", "--help"]
        main()
        """
    )
    process.stdout.close()
    process.stdin.write("\n")
    process.stdin.close()
    err = process.stderr.read()
    process.stderr.close()

    assert (process.wait(60), err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line_and_2():
    with open("/dev/full", "w") as full:  # noqa: PTH123 # Nothing of Path fits a device better.
        done = subprocess.run(
            [sys.executable, "-m", "judge_local", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 2
    assert (
        done.stderr
        == "judge-local: standard output: cannot be written: No space left on device. Make room, or send it elsewhere.\n"
    )
