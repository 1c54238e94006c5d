"""A panel of real workers: two variations of the random model, and one model whose worker is killed."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from judge_local.panel import judge_panel
from judge_local.panel.judges import Judge, open_judge
from judge_local.verdict import VERDICT_SCHEMA
from judge_local.zones import Zone

SUBJECT = "The gate opens at nine and closes at five, every day of the week."
SHORT = {
    **VERDICT_SCHEMA,
    "properties": {
        **VERDICT_SCHEMA["properties"],
        **{name: {"type": "string", "maxLength": 8} for name in ("observed", "reasoning")},
    },
}


@pytest.fixture
def models(make_tiny_model, tmp_path):
    """Three files: the first two differ in their seed, the third is to die."""
    return [make_tiny_model.write_tiny_model(tmp_path / f"m{seed}.gguf", seed=seed) for seed in range(3)]


async def killing(judge):
    """Kill the judge's worker whenever it is there."""
    while True:
        pid = judge.provider.worker_pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.001)


async def test_a_judge_that_dies_costs_its_seat_and_sends_it_to_a_person(models):
    """Three labelled results, and nothing of the third's is made up."""
    *alive, dying = (open_judge(str(path), n_threads=1) for path in models)
    killer = asyncio.create_task(killing(dying))
    try:
        result = await judge_panel(
            [*alive, dying], SUBJECT, "It opens at nine.", budget_seconds=100, schema=SHORT
        )
    finally:
        killer.cancel()
        for judge in (*alive, dying):
            judge.close()

    assert [(run.slot, run.via) for run in result.runs] == [
        (str(models[0]), "real"),
        (str(models[1]), "real"),
        (str(models[2]), "fallback"),
    ]
    assert [run.verdict is None for run in result.runs] == [False, False, True]
    assert len({run.model for run in result.runs}) == 3
    assert result.runs[2].error_kind == "EngineCrashedError"
    assert "SIGKILL" in result.runs[2].error
    assert result.votes.errors == 1
    assert result.zone is Zone.HUMAN_REVIEW


async def test_a_panel_that_named_its_models_leaves_no_worker(models, monkeypatch):
    pids = []
    close = Judge.close
    monkeypatch.setattr(Judge, "close", lambda self: (pids.append(self.provider.worker_pid), close(self)))

    result = await judge_panel(
        [str(models[0]), str(models[1])], SUBJECT, "c", budget_seconds=100, schema=SHORT
    )

    assert [run.via for run in result.runs] == ["real", "real"]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
