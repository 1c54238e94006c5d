"""A context that memory does not carry becomes a smaller one, and a line says so."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from judge_local.engine import cells as module
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.cells import Cells, padded
from judge_local.engine.context import Context
from judge_local.engine.protocol import Generate, Settings
from judge_local.engine.runs import Group, Run
from judge_local.engine.shelf import Shelf
from judge_local.errors import EngineError


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many cells memory carries."""
    limit = {"cells": 10**9}

    def context(*args: Any, n_ctx: int, **kwargs: Any) -> Context:
        if n_ctx > limit["cells"]:
            raise EngineError("context", f"llama.cpp could not make room for {n_ctx} tokens")
        return Context(*args, n_ctx=n_ctx, **kwargs)

    monkeypatch.setattr(module, "Context", context)
    return limit


def group(prompt: int, runs: int = 8) -> Group:
    request = Generate(id="0", system="", user="", grammar="", max_tokens=100, typical_tokens=100)
    made = deque(Run(request, [1] * prompt, limit=100, asked_at=0.0) for _ in range(runs))
    return Group(made, [1] * (prompt - 10))


@pytest.fixture
def cells(tiny_model: Path) -> Cells:
    start_backend()
    settings = Settings(path=str(tiny_model), slots=8)
    return Cells(Model(tiny_model), settings, AbortFlag(), Shelf(None, print))


def test_less_is_taken_and_said(cells: Cells, carried: dict[str, int]) -> None:
    said: list[str] = []
    cells.say = said.append
    carried["cells"] = 2500
    wanted = cells.wanted(group(800), slots=8, more_wait=True)
    assert wanted > 2500
    cells.make(wanted)

    assert padded(900) <= cells.count <= 2500
    assert f"no memory for {wanted} tokens of context" in said[0]
    # What was learned is kept: the next submission does not ask for more again.
    assert cells.wanted(group(800), slots=8, more_wait=True) <= cells.count
    cells.discard()


def test_what_one_run_needs_is_not_given_up(cells: Cells, carried: dict[str, int]) -> None:
    carried["cells"] = 800
    wanted = cells.wanted(group(2000), slots=8, more_wait=True)

    with pytest.raises(EngineError, match="could not make room"):
        cells.make(wanted)
    assert cells.count == 0
