"""A whole measurement on random weights: every figure is there and they agree with each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from judge_local.bench.compare import Pair, Plan, _in_quarters, compare
from judge_local.bench.limit import Tokens
from judge_local.bench.rows import read_rows
from judge_local.bench.sides import Score
from judge_local.engine.children import probe
from judge_local.engine.protocol import Settings


@pytest.fixture
def machine_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that no other process waits for."""
    lock = str(tmp_path / "lock")
    monkeypatch.setattr("judge_local.engine.protocol.Settings", partial(Settings, lock_path=lock))
    monkeypatch.setattr("judge_local.engine.children.probe", partial(probe, lock_path=lock))


@pytest.mark.usefixtures("machine_of_ones_own")
async def test_a_measurement(tiny_model: Path) -> None:
    rows = read_rows(None, 1)
    progress: list[str] = []
    report = await compare(
        Plan(model=tiny_model, rows=rows, runs=2, max_tokens=20, n_threads=1),
        on_progress=progress.append,
        on_event=lambda _text: None,
    )
    (pair,) = report.pairs
    tokens = pair.tokens

    # Random weights write every string to its end, so all answers are cut off, and none counts.
    assert (pair.score.asked, pair.score.verdicts, pair.score.rate) == (2, 0, 0.0)
    assert 0 < tokens.needed <= tokens.unique
    assert pair.limit > 0
    assert sum(pair.phases.values()) == pytest.approx(pair.score.seconds, rel=0.2)
    assert {"decode", "draw", "outside"} <= pair.phases.keys()
    assert progress[0] == "loading"
    assert any("judge-local: 1 of 1" in line for line in progress)
    shown = report.to_json()
    assert shown["pairs"][0]["tokens"]["unique"] == tokens.unique
    assert len(shown["machine"]["reading"]) == len(report.speeds.reading)


@pytest.mark.parametrize(("theirs", "ratio"), [(30, 2.0), (0, None)])
def test_a_ratio_needs_an_answer_to_compare_with(theirs: int, ratio: float | None) -> None:
    pair = Pair(
        score=Score(60.0, 60, 60, 100.0),
        tokens=Tokens(prompt=1, unique=1, read=1, written=1, forced=0),
        phases={},
        limit=45.0,
        others={"stock": Score(60.0, theirs, 60, 100.0)},
    )

    assert pair.efficiency == 0.75
    assert pair.ratio("stock") == ratio
    assert pair.to_json()["against"][0]["ratio"] == ratio


@pytest.mark.parametrize("total", [1, 3, 4, 48, 1000])
def test_progress_is_told_in_quarters(total: int) -> None:
    """Where nobody sees a moving line, each is a line: a thousand rows must not fill a log."""
    said: list[str] = []
    tell = _in_quarters("rows", said.append)
    for done in range(total + 1):
        tell(done, total)

    assert len(said) == min(total, 4) + 1
    assert (said[0], said[-1]) == (f"rows: 0 of {total}", f"rows: {total} of {total}")
