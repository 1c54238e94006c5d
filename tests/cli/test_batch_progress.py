"""How a batch says that it is going on."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from judge_local.batch.runner import Standing
from judge_local.cli.batch_progress import BatchProgress, human_time, rows_expected, standing_line


def source(share):
    return SimpleNamespace(share_read=lambda: share)


@pytest.mark.parametrize(
    ("standing", "share", "limit", "expected"),
    [
        (Standing(), None, None, None),
        (Standing(read=10), None, None, None),
        (Standing(read=10), 0.5, None, 20),
        (Standing(read=10), 1e-9, 3, 3),
        (Standing(read=10, rows=10), 0.5, None, 10),
        (Standing(read=10, rows=10, found=4), None, 3, 7),
    ],
)
def test_how_many_rows_there_are_is_told_from_what_was_read(standing, share, limit, expected):
    assert rows_expected(standing, source(share), limit) == expected


def test_a_line_says_how_it_stands():
    standing = Standing(found=10, judged=20, verdicts=60, started=time.monotonic() - 60)
    standing.counts.zones.update({"auto-pass": 25, "auto-fail": 1, "human-review": 4})
    standing.counts.errors = 2

    assert standing_line(standing, 1030) == (
        "30 of about 1,030 rows · 25 pass, 1 fail, 4 review (2 errored) · 60 verdicts a minute · 50 min left"
    )
    standing.rows = 30
    assert standing_line(standing, 30) == (
        "30 of 30 rows · 25 pass, 1 fail, 4 review (2 errored) · 60 verdicts a minute"
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min"), (3599, "1 h 0 min"), (48 * 3600, "2 d 0 h")]
)
def test_times_for_a_person(seconds, text):
    assert human_time(seconds) == text


def test_on_a_terminal_there_is_one_bar_and_it_goes_away(capsys, monkeypatch):
    monkeypatch.setattr("judge_local.cli.batch_progress.stderr_is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # Rich asks the stream itself, and shows no bar elsewhere.
    monkeypatch.setenv("COLUMNS", "160")
    standing = Standing(judged=3, rows=7)

    with BatchProgress(quiet=False) as progress:
        progress.show(standing, 7)
        progress.event("started again")
        progress.show(standing, 7)

    err = capsys.readouterr().err
    assert "judge-local: started again" in err
    assert "3 of 7 rows" in err


def test_quiet_is_quiet(capsys):
    with BatchProgress(quiet=True) as progress:
        progress.show(Standing(), None)
        progress.event("loading")

    assert capsys.readouterr() == ("", "")
