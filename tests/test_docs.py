"""Documentation that cannot lie: every fenced block of README.md and docs/ is run, parsed, or says why it is not.

What happens to a block follows from its language:

* `python` is run as a program of its own; `console` is run line by line in bash, each line that begins with `$ ` being a
  command and the lines after it what the command prints, where `…` stands for any text.
* `json`, `jsonl` and `toml` must parse. `text`, `gbnf` and `mermaid` are only shown.
* Any other language, and none, is a failure.

A comment on the line above the fence changes that:

* `<!-- test: skip REASON -->` shows the block without running it.
* `<!-- test: live -->` runs it where the weights of smollm2-135m are at hand.
* `<!-- test: output -->` compares a `text` block with what the block before it printed.

Programs run in a fresh folder that holds a copy of `examples/`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN: Final = {"text", "gbnf", "mermaid"}
DATA: Final = {"json", "jsonl", "toml"}
RUN: Final = {"python", "console"}
ANYTHING: Final = "…"
END: Final = "\x1e"
"""Printed after each command of a `console` block."""

FENCE: Final = re.compile(r"^```(?P<language>\S*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
DIRECTIVE: Final = re.compile(r"<!-- test: (?P<what>\S+) ?(?P<reason>.*?) -->\n\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block and what its page says about it."""

    page: str
    line: int
    """Of the opening fence, from 1."""
    language: str
    body: str
    directive: str
    """`run`, `skip`, `live` or `output`."""
    reason: str = ""
    before: str = ""
    """For `output`: the body of the block before it."""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of `page`, in order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for fence in FENCE.finditer(text):
        directive = DIRECTIVE.search(text[: fence.start()])
        found.append(
            Block(
                page=page.relative_to(ROOT).as_posix(),
                line=text.count("\n", 0, fence.start()) + 1,
                language=fence["language"],
                body=fence["body"],
                directive=directive["what"] if directive else "run",
                reason=directive["reason"] if directive else "",
                before=found[-1].body if found else "",
            )
        )
    return found


BLOCKS: Final = [block for page in PAGES for block in blocks_of(page)]


def chosen(*languages: str, directive: str) -> list[object]:
    """The blocks in `languages` under `directive`, as parameters named after where they stand."""
    return [
        pytest.param(block, id=block.where)
        for block in BLOCKS
        if block.language in languages and block.directive == directive
    ]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A fresh folder with `examples/` in it, and a `judge-local` command in `bin/`."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    command = tmp_path / "bin" / "judge-local"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m judge_local "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return tmp_path


def environment(desk: Path) -> dict[str, str]:
    """A terminal of 100 columns without colours, in which `judge-local` is this checkout."""
    return {
        **os.environ,
        "PATH": f"{desk / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
        # Installed, it is there by itself; a second naming does nothing.
        "PYTEST_PLUGINS": "judge_local.pytest_plugin",
    }


def run_python(code: str, desk: Path, timeout: float) -> str:
    """What the program prints; fails with its traceback when it does not end well."""
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=desk,
        env=environment(desk),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_session(body: str) -> list[tuple[str, str]]:
    """(command, what it prints) of a `console` block; a command goes on in lines that begin with `>`."""
    session: list[tuple[str, str]] = []
    for line in body.splitlines(keepends=True):
        if line.startswith("$ "):
            session.append((line[2:], ""))
        elif line.startswith(("> ", ">\n")) and session and not session[-1][1]:
            session[-1] = (session[-1][0] + line[1:].removeprefix(" "), "")
        else:
            assert session, f"the block does not begin with a command: {line!r}"
            session[-1] = (session[-1][0], session[-1][1] + line)
    return session


def run_console(body: str, desk: Path, timeout: float) -> list[tuple[str, str, str]]:
    """(command, what the page shows, what it prints) for each command; both streams together, as on a terminal."""
    session = read_session(body)
    # The status survives the marker, so that `echo $?` shows what a reader would see.
    script = "".join(
        f"{command.rstrip()}\nstatus=$?; printf '{END}'; (exit $status)\n" for command, _ in session
    )
    done = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=desk,
        env=environment(desk),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    printed = done.stdout.split(END)
    assert len(printed) == len(session) + 1, done.stdout
    return [(command, shown, out) for (command, shown), out in zip(session, printed, strict=False)]


def tidy(text: str) -> str:
    """Without the blank space at the ends of lines and of the text, which no reader sees."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def agrees(shown: str, printed: str) -> bool:
    """Whether `printed` is what the page shows, `…` standing for any text."""
    pattern = re.escape(tidy(shown)).replace(re.escape(ANYTHING), ".*")
    return re.fullmatch(pattern, tidy(printed), re.DOTALL) is not None


def check_console(block: Block, desk: Path, timeout: float) -> None:
    for command, shown, printed in run_console(block.body, desk, timeout):
        assert agrees(shown, printed), f"{block.where}: {command}shows\n{shown}\nand prints\n{printed}"


def test_there_are_blocks_to_run() -> None:
    assert {block.language for block in BLOCKS} >= RUN


@pytest.mark.parametrize("block", [pytest.param(block, id=block.where) for block in BLOCKS])
def test_every_block_has_a_convention(block: Block) -> None:
    """A block that is neither run nor parsed says why."""
    assert block.directive in {"run", "skip", "live", "output"}
    assert block.language in RUN | DATA | SHOWN or (
        block.directive == "skip" and block.language in {"bash", "yaml"}
    )
    assert block.directive != "skip" or block.reason
    assert block.directive != "live" or block.language in RUN
    assert block.directive != "output" or (block.language == "text" and block.before)


@pytest.mark.parametrize("block", chosen(*DATA, directive="run"))
def test_data_parses(block: Block) -> None:
    if block.language == "toml":
        assert tomllib.loads(block.body)
    else:
        texts = [block.body] if block.language == "json" else block.body.splitlines()
        assert [json.loads(text) for text in texts]


@pytest.mark.parametrize("block", chosen("python", directive="run"))
def test_python_runs(block: Block, desk: Path) -> None:
    run_python(block.body, desk, timeout=240)


@pytest.mark.parametrize("block", chosen("text", directive="output"))
def test_python_prints_what_the_page_shows(block: Block, desk: Path) -> None:
    printed = run_python(block.before, desk, timeout=240)

    assert agrees(block.body, printed), (
        f"{block.where} shows\n{block.body}\nand the program prints\n{printed}"
    )


@pytest.mark.parametrize("block", chosen("console", directive="run"))
def test_console_prints_what_the_page_shows(block: Block, desk: Path) -> None:
    check_console(block, desk, timeout=240)


@pytest.mark.live
@pytest.mark.timeout(400)
@pytest.mark.parametrize("block", chosen("python", "console", directive="live"))
def test_live_blocks_run(block: Block, desk: Path, live_model: Path) -> None:
    assert live_model.is_file()
    if block.language == "python":
        run_python(block.body, desk, timeout=380)
    else:
        check_console(block, desk, timeout=380)


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    """Links inside the project name files that are there."""
    targets = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


def walk(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    """`command` and all below it that are not hidden, each with the words that call it."""
    if not isinstance(command, click.Group):
        return [(path, command)]
    context = click.Context(command)
    below = [command.get_command(context, name) for name in command.list_commands(context)]
    return [
        (path, command),
        *(found for one in below if one and not one.hidden for found in walk(one, (*path, str(one.name)))),
    ]


def test_every_command_and_option_is_documented() -> None:
    """docs/command-line.md has a heading for each command, and names each option under it."""
    from judge_local.cli import main

    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    missing = []
    for path, command in walk(main, ("judge-local",)):
        section = re.search(
            rf"^#+ [^\n]*`{re.escape(' '.join(path))}`[^\n]*\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL
        )
        names = [
            max(parameter.opts, key=len)
            for parameter in command.params
            if isinstance(parameter, click.Option) and not parameter.hidden
        ]
        missing += [
            f"{' '.join(path)} {name}" for name in names if not section or f"`{name}" not in section[1]
        ]
        missing += [] if section else [" ".join(path)]

    assert missing == []


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a\n", "a\n", True),
        ("a…c\n", "abbc\n", True),
        ("a\n…\nc\n", "a\nb\nb\nc\n", True),
        ("a\n", "b\n", False),
        ("a.c", "abc", False),
        ("a  \nb\n", "a\nb", True),
    ],
)
def test_comparison(shown: str, printed: str, expected: bool) -> None:
    assert expected == agrees(shown, printed)


def test_sessions_keep_the_exit_status(desk: Path) -> None:
    """`echo $?` shows the status of the command before it, and both streams are shown."""
    body = "$ echo out; echo err >&2; (exit 3)\nout\nerr\n$ echo $?\n3\n"

    assert all(agrees(shown, printed) for _, shown, printed in run_console(body, desk, timeout=10))
