"""scripts/quickstart, scripts/test and scripts/check, run in a copy of the checkout with a Python and a pip that only pretend.

The fake Python notes how it was called, makes a `.venv` with a fake `judge-local`, and takes its answers from variables.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = ("scripts/quickstart", "scripts/test", "scripts/check", ".ci/run", "scripts/lib/venv.sh")
TOOLS: Final = (
    "bash", "cat", "chmod", "cksum", "cp", "dirname", "env", "grep", "mkdir", "mktemp", "rm", "sed", "tail",
    "tr", "uname",
)  # fmt: skip

FAKE_PYTHON: Final = """#!/usr/bin/env bash
# A Python that notes what it is asked for. FAKE_VERSION, FAKE_PIP (its status), FAKE_NO_VENV, FAKE_BUILT.
echo "python $*" >>"$FAKE_CALLS"
case "$*" in
  -V) echo "Python ${FAKE_VERSION:-3.12}.1" ;;
  "-c ") ;;
  *version_info*) echo "${FAKE_VERSION:-3.12}" ;;
  *ensurepip*) [ -z "${FAKE_NO_VENV:-}" ] ;;
  *llama-cpp-python*) [ -n "${FAKE_BUILT:-}" ] ;;
  "-m venv"*)
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python
    for tool in judge-local ruff mypy lint-imports pytest; do
      printf '#!/usr/bin/env bash\\necho "%s $*" >>"$FAKE_CALLS"\\n' "$tool" >".venv/bin/$tool"
      printf 'env | grep JUDGE_LOCAL_ >>"$FAKE_CALLS"\\n' >>".venv/bin/$tool"
    done
    cat >>.venv/bin/judge-local <<'END'
case $1 in
  pull) exit "${FAKE_PULL:-0}" ;;
  judge) echo "human-review"; exit "${FAKE_JUDGE:-3}" ;;
esac
END
    echo 'exit "${FAKE_RUFF:-0}"' >>.venv/bin/ruff
    chmod +x .venv/bin/*
    ;;
  "-m pip install"*)
    printf '%s\\n' "Collecting llama-cpp-python" "[3/54] Building CXX object" "${FAKE_LINE:-the compiler gave up}"
    exit "${FAKE_PIP:-0}"
    ;;
esac
"""


@dataclass
class Clone:
    """A fresh clone on a machine that holds nothing but the tools a bare system has."""

    path: Path
    machine: Path
    answers: dict[str, str] = field(default_factory=dict)

    def install(self, name: str, text: str = "#!/bin/sh\nexit 0\n") -> None:
        """Put a command on the machine's PATH."""
        tool = self.machine / name
        tool.write_text(text, encoding="utf-8")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)

    def run(self, script: str, *arguments: str, **answers: str) -> subprocess.CompletedProcess[str]:
        """Run `script` with the fakes answering as told."""
        self.calls_file.write_text("", encoding="utf-8")
        return subprocess.run(
            [f"./{script}", *arguments],
            cwd=self.path,
            env={
                "PATH": str(self.machine),
                "TMPDIR": str(self.machine),
                "FAKE_CALLS": str(self.calls_file),
                **self.answers,
                **answers,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def calls_file(self) -> Path:
        return self.machine / "calls"

    @property
    def calls(self) -> str:
        """What the fakes were asked for in the last run."""
        return self.calls_file.read_text(encoding="utf-8")


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    path = tmp_path / "a clone"
    machine = tmp_path / "machine"
    machine.mkdir()
    for name in ("scripts", ".ci", "examples"):
        shutil.copytree(ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", path)
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, f"{tool} is not on this machine"
        (machine / tool).symlink_to(found)
    made = Clone(path, machine)
    made.install("python3", FAKE_PYTHON)
    made.install("c++")
    # The scripts look once a second whether pip has ended; here it ends at once.
    made.install("sleep", f"#!/bin/sh\nexec {shutil.which('sleep')} 0.05\n")
    return made


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_parse_and_can_be_run(script: str) -> None:
    path = ROOT / script
    subprocess.run(["bash", "-n", path], check=True)

    assert os.access(path, os.X_OK) == (path.suffix == "")


def test_the_first_run_installs_pulls_and_judges(clone: Clone) -> None:
    done = clone.run("scripts/quickstart")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "human-review\n"
    assert "llama.cpp is compiled here" in done.stderr
    assert "python -m pip install -v --no-input --disable-pip-version-check -e .\n" in clone.calls
    assert "judge-local pull smollm2-135m\n" in clone.calls
    assert f"JUDGE_LOCAL_MODELS_DIR={clone.path}/models\n" in clone.calls
    assert (
        "judge-local judge examples/tidemark.md --claims examples/claims.txt --model smollm2-135m\n"
        in clone.calls
    )


def test_what_is_judged_is_there(clone: Clone) -> None:
    text = (clone.path / "scripts/quickstart").read_text(encoding="utf-8")

    for name in ("examples/tidemark.md", "examples/claims.txt"):
        assert name in text
        assert (ROOT / name).is_file()


@pytest.mark.parametrize("status", ["0", "1", "3"])
def test_decisions_are_no_failure(clone: Clone, status: str) -> None:
    assert clone.run("scripts/quickstart", FAKE_JUDGE=status).returncode == 0


@pytest.mark.parametrize("status", ["2", "4", "5", "130"])
def test_faults_keep_their_exit_code(clone: Clone, status: str) -> None:
    assert clone.run("scripts/quickstart", FAKE_JUDGE=status).returncode == int(status)


def test_a_failed_pull_ends_it(clone: Clone) -> None:
    done = clone.run("scripts/quickstart", FAKE_PULL="4")

    assert done.returncode == 4
    assert "judge-local judge" not in clone.calls


def test_the_second_run_installs_nothing(clone: Clone) -> None:
    clone.run("scripts/quickstart")
    done = clone.run("scripts/quickstart")

    assert done.returncode == 0
    assert "pip install" not in clone.calls


def test_a_changed_pyproject_installs_again(clone: Clone) -> None:
    clone.run("scripts/quickstart")
    with (clone.path / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("# one more line\n")
    clone.run("scripts/quickstart", FAKE_BUILT="1")

    assert "pip install" in clone.calls
    assert "venv" not in clone.calls


def test_another_python_installs_again(clone: Clone) -> None:
    clone.run("scripts/quickstart")
    clone.run("scripts/quickstart", FAKE_VERSION="3.13")

    assert "pip install" in clone.calls


def test_a_moved_clone_installs_again(clone: Clone) -> None:
    """An editable install points at the folder it was made in."""
    clone.run("scripts/quickstart")
    clone.path = clone.path.rename(clone.path.with_name("moved"))
    clone.run("scripts/quickstart")

    assert "pip install" in clone.calls


def test_the_test_extras_are_enough_for_the_quickstart(clone: Clone) -> None:
    clone.run("scripts/test")
    clone.run("scripts/quickstart")

    assert "pip install" not in clone.calls


def test_the_quickstart_is_not_enough_for_the_tests(clone: Clone) -> None:
    clone.run("scripts/quickstart")
    clone.run("scripts/test")

    assert "pip install -v --no-input --disable-pip-version-check -e .[test]\n" in clone.calls


def test_an_old_python_is_named(clone: Clone) -> None:
    done = clone.run("scripts/quickstart", FAKE_VERSION="3.10")

    assert done.returncode == 2
    assert "Python 3.11 or newer is needed (python3 is 3.10)" in done.stderr
    assert "pip" not in clone.calls


def test_a_newer_python_is_found_beside_an_old_one(clone: Clone) -> None:
    clone.install("python3", FAKE_PYTHON.replace("FAKE_VERSION:-3.12", "OLD:-3.9"))
    clone.install("python3.13", FAKE_PYTHON.replace("FAKE_VERSION:-3.12", "NEW:-3.13"))
    done = clone.run("scripts/quickstart")

    assert done.returncode == 0, done.stderr
    assert "Making .venv with python3.13 (3.13)" in done.stderr


def test_a_named_python_is_the_only_one_tried(clone: Clone) -> None:
    clone.install("my python", FAKE_PYTHON.replace("FAKE_VERSION:-3.12", "OLD:-3.9"))
    done = clone.run("scripts/quickstart", PYTHON=str(clone.machine / "my python"))

    assert done.returncode == 2
    assert "my python is 3.9" in done.stderr


def test_no_python_is_said(clone: Clone) -> None:
    (clone.machine / "python3").unlink()
    done = clone.run("scripts/quickstart")

    assert done.returncode == 2
    assert "none found" in done.stderr


def test_a_missing_venv_module_is_named(clone: Clone) -> None:
    done = clone.run("scripts/quickstart", FAKE_NO_VENV="1")

    assert done.returncode == 2
    assert "apt install python3-venv" in done.stderr
    assert "pip" not in clone.calls.replace("ensurepip", "")


@pytest.mark.parametrize("compiler", [None, "#!/bin/sh\nexit 1\n"])
def test_a_missing_compiler_is_named_before_pip_starts(clone: Clone, compiler: str | None) -> None:
    """A compiler that is there and does not work (macOS has one) is a missing one."""
    (clone.machine / "c++").unlink()
    if compiler:
        clone.install("c++", compiler)
    done = clone.run("scripts/quickstart")

    assert done.returncode == 2
    for remedy in ("sudo apt install g++", "sudo dnf install gcc-c++", "xcode-select --install"):
        assert remedy in done.stderr
    assert "pip install" not in clone.calls
    assert done.stderr.count("\n") == 1


def test_no_compiler_is_needed_once_llama_cpp_is_built(clone: Clone) -> None:
    clone.run("scripts/quickstart")
    (clone.machine / "c++").unlink()
    done = clone.run("scripts/test", FAKE_BUILT="1")

    assert done.returncode == 0, done.stderr


def test_a_failed_compile_shows_its_end_and_its_log(clone: Clone) -> None:
    done = clone.run("scripts/quickstart", FAKE_PIP="1")
    log = clone.path / ".venv" / "install.log"

    assert done.returncode == 2
    assert "the compiler gave up" in done.stderr
    assert str(log) in done.stderr
    assert "the compiler gave up" in log.read_text(encoding="utf-8")
    assert "judge-local pull" not in clone.calls


def test_a_failed_install_is_tried_again(clone: Clone) -> None:
    clone.run("scripts/quickstart", FAKE_PIP="1")
    clone.run("scripts/quickstart")

    assert "pip install" in clone.calls


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("c++: fatal error: Killed signal terminated program cc1plus", "CMAKE_BUILD_PARALLEL_LEVEL=1"),
        ("Temporary failure in name resolution", "pip cannot reach its package index"),
    ],
)
def test_known_failures_say_what_to_do(clone: Clone, line: str, remedy: str) -> None:
    done = clone.run("scripts/quickstart", FAKE_PIP="1", FAKE_LINE=line)

    assert remedy in done.stderr.splitlines()[-1]


def test_progress_is_read_from_the_log(clone: Clone, tmp_path: Path) -> None:
    """The last line of cmake or ninja, in words; nothing of the rest."""
    log = tmp_path / "log"
    shell = '. scripts/lib/venv.sh; phase "$1"'

    def phase(text: str) -> str:
        log.write_text(text, encoding="utf-8")
        return subprocess.run(
            ["bash", "-c", shell, "-", str(log)], cwd=clone.path, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert phase("") == ""
    assert (
        phase("Collecting numpy>=1.26\n  Downloading https://a.host/b/numpy-2.whl (3 MB)\n")
        == "downloading numpy-2.whl"
    )
    assert phase("Collecting numpy>=1.26\n-- Found OpenMP\n") == "looking for numpy"
    assert (
        phase("  [12/54] Building CXX object x.o\n  warning: something\n")
        == "compiling llama.cpp, step 12 of 54"
    )
    assert phase("  [ 10%] Building C object\n") == "compiling llama.cpp, 10 %"


def test_every_check_runs_and_one_failure_fails(clone: Clone) -> None:
    done = clone.run("scripts/test", "-k", "some words", FAKE_RUFF="1")

    assert done.returncode == 1
    assert "FAILED: format, lint" in done.stderr
    for call in (
        "ruff format --check .",
        "ruff check .",
        "mypy",
        "lint-imports",
        "pytest -n 2 --dist loadfile -k some words",
    ):
        assert f"\n{call}" in clone.calls


def test_live_tests_are_required_when_the_model_is_there(clone: Clone) -> None:
    clone.run("scripts/test")

    assert "JUDGE_LOCAL_REQUIRE_LIVE=1\n" in clone.calls


def test_without_a_source_the_other_tests_run(clone: Clone) -> None:
    done = clone.run("scripts/test", FAKE_PULL="4")

    assert done.returncode == 0, done.stderr
    assert "could not be pulled" in done.stderr
    assert "JUDGE_LOCAL_REQUIRE_LIVE" not in clone.calls


def test_ci_lets_nothing_be_skipped(clone: Clone) -> None:
    clone.run(".ci/run")

    assert "JUDGE_LOCAL_NO_SKIP=1\n" in clone.calls


def test_checking_without_tools_says_how_to_get_them(clone: Clone) -> None:
    done = clone.run("scripts/check")

    assert done.returncode == 2
    assert "Run scripts/test once" in done.stderr


def test_usage(clone: Clone) -> None:
    assert clone.run("scripts/quickstart", "--help").returncode == 0
    assert clone.run("scripts/quickstart", "--fast").returncode == 2
    assert clone.calls == ""
