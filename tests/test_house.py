"""The rules of the house, looked up by a machine: exports, imports, errors, layers, and what no file may say.

A rule that is only written down is kept until the first hurry.
"""

from __future__ import annotations

import ast
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import judge_local
from judge_local import errors

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = sorted((ROOT / "src").rglob("*.py"))
CODE: Final = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "scripts").rglob("*.py"))]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

LONG_FILES: Final[dict[str, str]] = {}
"""Path to the reason why a file that is longer than `LINES` holds one idea."""
LINES: Final = {"src": 450, "scripts": 450, "tests": 600}
"""About four hundred, with room to finish a thought; a list of cases may be longer than an argument."""
HEAVY: Final = (
    "llama_cpp",
    "huggingface_hub",
    "jsonschema",
    "numpy",
    "jinja2",
    "rich",
    "outlines",
    "ray",
    "starlette",
)
# Put together here, so that this file does not say what it looks for.
UNSPEAKABLE: Final = (
    *("/".join(("", name, "")) for name in ("work", "root", "farm")),
    ".".join(("pypi", "org")),
    ".".join(("files", "pythonhosted", "org")),
)


def error_classes(
    base: type[errors.JudgeLocalError] = errors.JudgeLocalError,
) -> Iterator[type[errors.JudgeLocalError]]:
    """`base` and everything below it, in the order of the source."""
    yield base
    for below in base.__subclasses__():
        yield from error_classes(below)


ERRORS: Final = list(dict.fromkeys(error_classes()))


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- what is public ---------------------------------------------------------------------------------------------------


def test_all_is_sorted_and_has_no_repeats() -> None:
    """Constants, then classes, then functions, each in alphabetical order."""

    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)

    assert judge_local.__all__ == sorted(set(judge_local.__all__), key=rank)


def test_all_is_complete() -> None:
    """Every public name of the package is in `__all__`, and every name in it exists."""
    tree = ast.parse((ROOT / "src/judge_local/__init__.py").read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("judge_local")
        for alias in node.names
    }

    assert imported - set(judge_local.__all__) == set()
    assert [name for name in judge_local.__all__ if not hasattr(judge_local, name)] == []


@pytest.mark.parametrize("name", judge_local.__all__)
def test_public_names_are_documented(name: str) -> None:
    """Each has a docstring of its own (a constant, one below its definition), and stands in the README or docs."""
    value = getattr(judge_local, name)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert re.search(rf"\b{name}\b", text), f"{name} is in no page"
    if callable(value):
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"
        assert value.__doc__ != f"{name}()", f"{name} has only a generated docstring"


def test_import_is_light() -> None:
    """`import judge_local` loads nothing heavy or native, prints nothing, and makes no folder."""
    done = run_python(
        "import os, sys\n"
        "made = []\n"
        "os.mkdir = lambda *a, **k: made.append(a)\n"
        "import judge_local\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], made)"
    )

    assert (done.stdout, done.stderr) == ("[] []\n", "")


def test_command_starts_light() -> None:
    """`judge-local --help` needs none of the heavy modules either."""
    done = run_python(
        "import sys\n"
        "from judge_local.cli import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        f"    print([name for name in {HEAVY!r} if name in sys.modules])"
    )

    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


# --- errors -----------------------------------------------------------------------------------------------------------


def example_of(cls: type[errors.JudgeLocalError]) -> errors.JudgeLocalError:
    """One of `cls`, with every field given."""
    if cls is errors.UnsupportedSchemaError:
        return errors.UnsupportedSchemaError(
            (
                errors.SchemaFault(
                    "/properties/a", "not", "{}", "a complement has no grammar", "Say what is allowed."
                ),
            )
        )
    return cls("place", "what is 'wrong'", "Do this.")


@pytest.mark.parametrize("cls", ERRORS)
def test_errors_travel(cls: type[errors.JudgeLocalError]) -> None:
    """An error means the same after a process boundary."""
    error = example_of(cls)
    arrived = pickle.loads(pickle.dumps(error))

    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert error.args == arrived.args


@pytest.mark.parametrize("cls", ERRORS)
def test_errors_are_one_line_with_a_place(cls: type[errors.JudgeLocalError]) -> None:
    text = str(example_of(cls))

    assert "\n" not in text
    assert re.match(r"\S+: ", text)


@pytest.mark.parametrize("cls", ERRORS)
def test_errors_are_documented(cls: type[errors.JudgeLocalError]) -> None:
    """A docstring, a place in the tree, and a row in docs/errors.md with the exit code that the class has."""
    assert cls.__doc__ != cls.__mro__[1].__doc__
    assert (cls.__doc__ or "").strip()
    assert isinstance(cls.exit_code, int)
    assert cls.exit_code in {2, 4, 5}
    assert re.search(rf"\b{cls.__name__} +{cls.exit_code}\b", errors.__doc__ or "")

    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \|", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [(name, code) for name, code in rows if name == cls.__name__] == [
        (cls.__name__, str(cls.exit_code))
    ]


def test_no_error_is_documented_that_is_not_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(rows) == {cls.__name__ for cls in ERRORS}


# --- how the code is laid out -----------------------------------------------------------------------------------------


def test_imports_point_one_way() -> None:
    """The layers in pyproject.toml hold: import-linter says so."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def imports_of(path: Path) -> set[str]:
    """Top-level packages that `path` imports anywhere, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


@pytest.mark.parametrize(
    ("package", "door"),
    [("llama_cpp", "src/judge_local/engine/"), ("huggingface_hub", "src/judge_local/models/")],
)
def test_outside_things_have_one_door(package: str, door: str) -> None:
    """Imports inside functions count."""
    through = {relative(path) for path in SOURCES if package in imports_of(path)}

    assert through
    assert {path for path in through if not path.startswith(door)} == set()


@pytest.mark.parametrize("path", [pytest.param(path, id=relative(path)) for path in CODE])
def test_files_begin_with_what_they_are(path: Path) -> None:
    """The first line of the docstring is one sentence."""
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]

    assert first.endswith((".", "?"))
    assert "\n" not in first
    assert not re.search(r"\. [A-Z]", first), "that is more than one sentence"


def is_long(path: str) -> bool:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines()) > LINES[path.partition("/")[0]]


@pytest.mark.parametrize("path", [relative(path) for path in CODE])
def test_files_are_read_in_one_sitting(path: str) -> None:
    """A long file holds a second idea, or its reason stands in `LONG_FILES`."""
    assert not is_long(path) or LONG_FILES.get(path)


def test_no_excuse_is_out_of_date() -> None:
    assert [path for path in LONG_FILES if not is_long(path)] == []


def test_test_files_have_names_of_their_own() -> None:
    """So that a name on the command line or in a report means one file."""
    names = [path.name for path in CODE if path.name.startswith("test_")]

    assert sorted(names) == sorted(set(names))


# --- what no file says ------------------------------------------------------------------------------------------------


def project_files() -> list[Path]:
    """Everything that git has or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is no git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_names_this_machine_or_a_registry() -> None:
    """The project works on any machine, with the reader's own package index."""
    found = [
        f"{relative(path)}: {word}"
        for path in project_files()
        for word in UNSPEAKABLE
        if word.encode() in path.read_bytes()
    ]

    assert found == []


def test_no_weights_in_git() -> None:
    assert [relative(path) for path in project_files() if path.suffix in {".gguf", ".part"}] == []


def test_nothing_is_left_for_later() -> None:
    """No TO-DO marks, no stubs."""
    marks = re.compile(
        r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b|raise NotImplemented" + "Error"
    )
    found = [
        f"{relative(path)}: {mark[0]}" for path in CODE for mark in marks.finditer(path.read_text("utf-8"))
    ]

    assert found == []


# --- examples ---------------------------------------------------------------------------------------------------------


def test_examples_agree() -> None:
    """The plain claims are the labelled ones, in the same order, and every label occurs."""
    plain = (ROOT / "examples/claims.txt").read_text(encoding="utf-8").splitlines()
    rows = [
        json.loads(line) for line in (ROOT / "examples/claims.jsonl").read_text(encoding="utf-8").splitlines()
    ]

    assert plain == [row["claim"] for row in rows]
    assert {row["label"] for row in rows} == {match.value for match in judge_local.Match}
    assert len({row["id"] for row in rows}) == len(rows) == 8
