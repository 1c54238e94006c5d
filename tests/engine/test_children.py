"""Children that do one thing: what they answer, and what becomes of one that fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from judge_local.engine.children import ask, probe, quantise, stock
from judge_local.engine.probe import SIZES, layout_of, unique_tokens
from judge_local.errors import EngineCrashedError, EngineError, EngineProtocolError, ModelFileError
from judge_local.models.gguf import read_header
from judge_local.models.quantisation import types_in

SAY = "import json, os, sys, time; q = json.loads(sys.stdin.readline()); "


def run(monkeypatch: pytest.MonkeyPatch, program: str) -> object:
    monkeypatch.setattr("judge_local.engine.children.command", lambda module: [sys.executable, "-c", program])
    return ask("probe", {"a": 1})


def test_the_answer_is_what_it_says_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, SAY + "print(json.dumps({'answer': q}))") == {"a": 1}


def test_its_error_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import json; print(json.dumps({'error': {'kind': 'EngineError', 'where': 'x', 'problem': 'broke'}}))"
    )

    with pytest.raises(EngineError, match="x: broke"):
        run(monkeypatch, program)


@pytest.mark.parametrize("line", ["moo", "[1]", '{"dance": 1}'])
def test_anything_else_is_named(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    with pytest.raises(EngineProtocolError, match="not in the protocol"):
        run(monkeypatch, f"print('''{line}''', flush=True); import time; time.sleep(1000)")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("os.kill(os.getpid(), 9)", "signal 9"),
        ("sys.exit('no luck')", "exit code 1; its last words: 'no luck'"),
        ("print('{', end='', flush=True); os.kill(os.getpid(), 11)", "signal 11"),
    ],
)
def test_its_death_is_named(monkeypatch: pytest.MonkeyPatch, program: str, said: str) -> None:
    with pytest.raises(EngineCrashedError, match=said):
        run(monkeypatch, SAY + program)


def test_a_probe_measures_every_size(tiny_model: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    found = probe(
        str(tiny_model),
        n_threads=1,
        memory_bytes=2**30,
        prompts=[("Judge.", f"Subject {n // 3}. {'The sky is blue. ' * 9} Run {n}.") for n in range(6)],
        lock_path=str(tmp_path / "lock"),
        on_progress=lambda done, total: steps.append((done, total)),
    )

    assert tuple(one["size"] for one in found["reading"]) == SIZES
    assert [one["size"] for one in found["writing"]][:3] == [1, 2, 4]
    assert all(one["seconds"] > 0 for one in found["reading"] + found["writing"])
    assert 0 < found["unique_tokens"] < found["prompt_tokens"]
    assert steps[-1] == (len(steps), len(steps))


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"moo")

    with pytest.raises(ModelFileError, match="cannot load"):
        probe(str(path), n_threads=1, memory_bytes=2**30, lock_path=str(tmp_path / "lock"))


def test_stock_answers_each_request(tiny_model: Path, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    seconds, answers = stock(
        str(tiny_model),
        [("Judge.", "x", schema)] * 2,
        n_ctx=1024,
        n_threads=1,
        max_tokens=5,
        lock_path=str(tmp_path / "lock"),
    )

    assert seconds > 0
    assert len(answers) == 2
    assert all(0 < tokens <= 5 for _, tokens in answers)


def test_weights_are_written_anew(tiny_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "q8.gguf"
    quantise(str(tiny_model), str(target), "Q8_0", n_threads=1)

    assert types_in(read_header(target))[0] == "Q8_0"


def test_what_cannot_be_quantised_is_named(tmp_path: Path) -> None:
    source = tmp_path / "bad.gguf"
    source.write_bytes(b"moo")

    with pytest.raises(EngineError, match="could not"):
        quantise(str(source), str(tmp_path / "q8.gguf"), "Q8_0", n_threads=1)


def test_what_is_common_counts_once() -> None:
    assert unique_tokens([[1, 2, 3], [1, 2, 4, 5], [7]]) == 6
    assert layout_of([[1, 2, 3, 4], [1, 2, 3, 5], [1, 7, 8, 4], [1, 7, 8, 5]], runs=2, tail=3) == {
        "shared": 1,
        "own": 2,
        "tail": 3,
    }
