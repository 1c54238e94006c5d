"""`judge-local panel` with scripted judges: what streams, what is decided, and what is exited with."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from judge_local.cli import main
from judge_local.cli import panel as module
from judge_local.errors import EngineCrashedError
from judge_local.panel.judges import Judge
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.results import Result

SUBJECT = "The train leaves at nine from platform two, every day but Sunday.\n"
CLAIM = "The train leaves at nine."
PASS, FAIL = mock_verdict("pass", 0.95), mock_verdict("fail", 0.95)
DEAD = EngineCrashedError("engine", "died")


class Closing(MockProvider):
    """Remembers whether it was closed."""

    closed = 0

    def close(self):
        self.closed += 1


@pytest.fixture
def subject(tmp_path, monkeypatch):
    """A subject in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "subject.txt").write_text(SUBJECT, "utf-8")
    return "subject.txt"


@pytest.fixture
def scripted(monkeypatch):
    """Put scripted judges in the place of those named; the name says what it answers."""
    providers = {}

    def open_judges(options, on_event):
        answers = {"pass": PASS, "fail": FAIL, "dead": DEAD}

        def made(name):
            if name not in providers:
                providers[name] = Closing([answers[name.split("-")[0]]], model=f"model-{name}")
            return Judge(name=name, provider=providers[name])

        judges = {name: made(name) for name in (*options.judge, *options.substitute)}
        return tuple(judges[n] for n in options.judge), tuple(judges[n] for n in options.substitute)

    monkeypatch.setattr(module, "open_judges", open_judges)
    monkeypatch.setattr(Judge, "is_local", True)
    return providers


def panel(*args, **kwargs):
    return CliRunner().invoke(main, ["panel", *args], **kwargs)


def seats(*names):
    return [word for name in names for word in ("--judge", name)]


@pytest.mark.parametrize(
    ("names", "zone", "code"),
    [
        (["pass-1", "pass-2"], "auto-pass", 0),
        (["fail-1", "fail-2"], "auto-fail", 1),
        (["pass-1", "fail-1"], "human-review", 3),
        (["pass-1", "dead-1"], "human-review", 3),
        (["dead-1", "dead-2"], "human-review", 3),
    ],
)
def test_the_zone_is_the_exit_code(subject, scripted, names, zone, code):
    result = panel(subject, "--claim", CLAIM, *seats(*names))

    assert result.exit_code == code, result.stderr
    assert f"\n{zone}: {CLAIM}\n" in result.stdout
    assert all(provider.closed for provider in scripted.values())


def test_runs_are_shown_as_they_land_and_then_the_decision(subject, scripted):
    result = panel(subject, "--claim", CLAIM, *seats("pass-1", "dead-1"), "--substitute", "pass-2")

    first, second, *rest = result.stdout.splitlines()
    assert first == "1 of 2: pass-1 (real): pass, confidence 0.95"
    assert second == "2 of 2: dead-1 (substitute, by model-pass-2): pass, confidence 0.95"
    assert rest[0] == f"auto-pass: {CLAIM}"
    assert "    seat        dead-1, substitute: model-pass-2 for model-dead-1" in rest


def test_json_is_one_line_for_each_run_and_one_for_the_decision(subject, scripted):
    result = panel(subject, "--claim", CLAIM, *seats("pass-1", "dead-1", "pass-1"), "--json", "--quiet")

    *runs, decision = map(json.loads, result.stdout.splitlines())
    assert [(run["row"], run["completed"], run["total"]) for run in runs] == [(1, 1, 3), (1, 2, 3), (1, 3, 3)]
    assert sorted((run["run"]["slot"], run["run"]["via"]) for run in runs) == [
        ("dead-1", "fallback"),
        ("pass-1", "real"),
        ("pass-1", "real"),
    ]
    assert decision["zone"] == "human-review"
    assert [run["slot"] for run in decision["runs"]] == ["pass-1", "dead-1", "pass-1"]
    assert Result.from_json(decision).to_json() == decision
    assert result.stderr == ""


def test_every_claim_has_a_panel_of_its_own_and_the_worst_counts(subject, scripted):
    result = panel(subject, "--claim", CLAIM, "--claim", "Another.", *seats("pass-1"), "--json")

    decisions = [line for line in map(json.loads, result.stdout.splitlines()) if "zone" in line]
    assert [decision["id"] for decision in decisions] == ["claim:1", "claim:2"]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--judge"),
        (["--judge", "pass-1", "--budget", "0"], "--budget"),
        (["--judge", "pass-1", "--budget", "nan"], "--budget"),
        (["--judge", "pass-1", "--call-timeout", "0"], "--call-timeout"),
    ],
)
def test_a_call_that_cannot_be_meant_is_2(subject, words, said):
    result = panel(subject, "--claim", CLAIM, *words)

    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nobody-knows-this", "names no model"),
        ("smollm2-135m", "judge-local pull smollm2-135m"),
        ("openai:m", "openai:MODEL@"),
        ("openai:m@http://user:secret@host/v1", "user or password"),
    ],
)
def test_a_judge_that_is_not_there_is_2_before_anything_runs(subject, reference, said):
    result = panel(subject, "--claim", CLAIM, "--judge", reference)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "secret" not in result.stderr


def test_an_empty_subject_is_5(subject, scripted, tmp_path):
    (tmp_path / "subject.txt").write_text(" \n")

    assert panel(subject, "--claim", CLAIM, *seats("pass-1")).exit_code == 5


def test_a_server_that_is_not_there_goes_to_a_person(subject):
    result = panel(
        subject, "--claim", CLAIM, "--judge", "openai:m@http://127.0.0.1:9/v1", "--json", "--budget", "20"
    )

    assert result.exit_code == 3
    line = json.loads(result.stdout.splitlines()[0])
    assert (line["run"]["via"], line["run"]["errorKind"]) == ("fallback", "RemoteError")


def test_a_full_disk_is_a_fault_and_not_a_decision(subject, scripted, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("judge_local.cli.output.emit_json", full)
    result = panel(subject, "--claim", CLAIM, *seats("pass-1"), "--json")

    assert result.exit_code == 2
    assert "No space left" in result.stderr
