"""Printing: nothing untrusted steers a terminal, a pipe gets plain lines, and a closed pipe is no crash."""

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.cli.output import Line, Progress, clean, emit, emit_json, say, show
from judge_local.errors import UsageError


class Terminal(io.StringIO):
    """Standard output or error as a person's terminal."""

    def isatty(self):
        return True


@given(st.text())
def test_no_control_character_survives(text):
    """What is shown can always be encoded, and holds no escape sequence, whatever a model wrote."""
    shown = clean(text)

    assert not [c for c in shown if (ord(c) < 32 and c not in "\t\n") or 127 <= ord(c) < 160]
    assert shown == shown.encode().decode()


@pytest.mark.parametrize("text", ["plain", "tab\tand\nline", "Ünïcödé", "क्‍ष", "👩‍🚀"])
def test_text_without_tricks_is_shown_as_it_is(text):
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("pass\u202efail", "pass\\u202efail"),
        ("a\u200bb", "a\\u200bb"),
        ("\ud800", "\\ud800"),
        ("a\rb", "a\\rb"),
    ],
)
def test_tricks_are_shown_and_not_played(text, shown):
    assert clean(text) == shown


def test_a_message_is_one_line_on_standard_error(capsys):
    say("first\nsecond\x1b[0m")

    out, err = capsys.readouterr()
    assert out == ""
    assert err == "judge-local: first second\\x1b[0m\n"


def test_a_pipe_gets_one_fact_a_line(capsys):
    show([Line("title", style="bold"), Line("two\nlines", indent=1, label="observed")])

    assert capsys.readouterr().out == "title\n  observed    two\\nlines\n"


def test_a_terminal_gets_wrapped_lines(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())

    show([Line("word " * 20, indent=1, label="observed", style="green")])

    shown = terminal.getvalue()
    assert "\x1b[32m" in shown
    assert shown.count("\n") > 3


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())

    show([Line("auto-pass", style="green"), Line("[red]markup stays text[/red]")])

    assert "\x1b[32m" not in terminal.getvalue()
    assert "[red]markup stays text[/red]" in terminal.getvalue()


def test_json_is_ascii_and_refuses_nan(capsys):
    emit_json({"claim": "Ü\u2028\ud800\x9b"})

    assert capsys.readouterr().out == '{"claim": "\\u00dc\\u2028\\ud800\\u009b"}\n'
    with pytest.raises(ValueError, match="Out of range"):
        emit_json(float("nan"))


@given(st.text(st.sampled_from('#[]: \\"ab\n'), max_size=30))
def test_json_holds_what_it_was_given_and_no_order_for_a_runner(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out := io.StringIO())
        emit_json({text: [text]})
        emit_json({text: [text]}, indent=2)

    assert "##[" not in out.getvalue()
    assert not [line for line in out.getvalue().splitlines() if line.strip().startswith("::")]
    assert json.loads(out.getvalue().split("\n", 1)[0]) == {text: [text]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", r"\x3a:error::x"),
        ("  ::add-mask::x", r"  \x3a:add-mask::x"),
        ("a ##[group]b ####[c", r"a #\x23[group]b ###\x23[c"),
        ("a::b ## [c] #[d]", "a::b ## [c] #[d]"),
    ],
)
def test_a_runner_that_obeys_lines_is_shown_none_that_it_would_obey(capsys, monkeypatch, text, shown):
    show([Line(text), Line("x")])
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    show([Line(text), Line("x")])
    say(text)

    said = capsys.readouterr()
    assert said.out == f"{text}\nx\n{shown}\nx\n"
    assert "##[" not in said.err


def test_a_locale_that_lacks_a_letter_gets_its_escape(monkeypatch):
    monkeypatch.setattr("sys.stdout", out := io.TextIOWrapper(io.BytesIO(), encoding="ascii"))

    emit("naïve")

    assert out.buffer.getvalue() == b"na\\xefve\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line(monkeypatch):
    with open("/dev/full", "w") as full:  # noqa: PTH123 # Nothing of Path fits a device better.
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(UsageError, match="standard output: cannot be written: No space left"):
            emit("x")
        monkeypatch.undo()
        # What could not be written went to /dev/null instead, so closing the file says nothing more.


def test_closed_standard_output_is_one_line(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)

    with pytest.raises(UsageError, match="standard output: is closed"):
        emit("x")


def test_progress_in_a_pipe_is_plain_lines_said_once(capsys):
    with Progress(quiet=False) as progress:
        progress.update("loading")
        progress.update("loading")
        progress.update("run 1 of 3")

    out, err = capsys.readouterr()
    assert out == ""
    assert err == "judge-local: loading\njudge-local: run 1 of 3\n"


def test_quiet_progress_says_nothing(capsys):
    with Progress(quiet=True) as progress:
        progress.update("loading")

    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_is_taken_away_again(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())

    with Progress(quiet=False) as progress:
        progress.update("loading")
        progress.update("run 1 of 3 [red]\x1b[2J")
        progress.pause()
        shown = terminal.getvalue()

    assert "\x1b[2J" not in shown
    assert "[red]" in shown
    assert shown.endswith("\x1b[2K")  # The last thing written erases the line.
    assert sys.stderr is terminal
