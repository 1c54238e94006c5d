"""`judge-local bench` and `judge-local optimize`: what they refuse, and what they print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from judge_local.bench.compare import Pair, Plan, Report
from judge_local.bench.limit import Speeds, Timing, Tokens
from judge_local.bench.sides import Score
from judge_local.cli import main
from judge_local.models.store import Store

SLOW = Speeds(reading=(Timing(512, 2.0),), writing=(Timing(6, 0.1),))
FAST = Speeds(reading=(Timing(512, 1.0),), writing=(Timing(6, 0.05),))


@pytest.fixture
def store(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A folder with the tiny model, whose weights are F32 and F16."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path / "models"))
    store = Store()
    store.import_file(tiny_model, name="tiny")
    return store


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first model measured is slow, and what is made of it is fast."""
    monkeypatch.setattr(
        "judge_local.bench.optimize.measure", lambda model, **_: SLOW if model.name == "tiny" else FAST
    )


def run(*args: str) -> Result:
    return CliRunner().invoke(main, list(args))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--against", "moo"), "no http(s) URL"),
        (("--against", "stock", "--against", "stock"), "names one side twice"),
        (("--count", "0"), "'--count'"),
        (("--model", "nope"), "names no model"),
        (("--rows", "none.jsonl"), "none.jsonl"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_loaded(
    store: Store, args: tuple[str, ...], said: str
) -> None:
    result = run("bench", *args)

    assert result.exit_code == 2
    assert said in result.stderr


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was to be measured; the figures are made up."""
    plans: list[Plan] = []

    async def compare(plan: Plan, **_: object) -> Report:
        plans.append(plan)
        others = {name: Score(60.0, 20, 48, 200.0) for name in plan.against}
        pair = Pair(
            score=Score(60.0, 48, 48, 100.0),
            tokens=Tokens(prompt=900, unique=280, read=300, written=80, forced=30, drafted=9, accepted=4),
            phases={"decode": 50.0, "outside": 10.0},
            limit=51.0,
            others=others,
        )
        return Report(engine="fake", speeds=SLOW, layout={}, pairs=(pair,) * plan.pairs)

    monkeypatch.setattr("judge_local.bench.compare.compare", compare)
    return plans


def test_bench_says_everything(store: Store, compared: list[Plan]) -> None:
    result = run("bench", "--count", "2", "--against", "stock", "--quiet")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "pair 1      judge-local: 48.0 verdicts a minute (48 of 48 valid in 60.0 s, 100 tokens each)",
        "pair 1      stock: 20.0 verdicts a minute (20 of 48 valid in 60.0 s, 200 tokens each)",
        "pair 1      ratio to stock: 2.40",
        "  tokens      prompt 900 (shared 600, read 300, unique 280), written 80 (free 50, forced 30), drafted 9 (right 4)",
        "  time        decode 50.0 s, outside 10.0 s",
        "  limit       51.0 s of 60.0 s: efficiency 85%",
        "reading     tokens a second by tokens in a batch: 512: 256",
        "writing     tokens a second by runs at once: 6: 60",
    ]
    assert (len(compared[0].rows), compared[0].runs) == (2, 3)


def test_bench_as_json(store: Store, compared: list[Plan]) -> None:
    result = run("bench", "--pairs", "3", "--json", "--quiet")
    data = json.loads(result.stdout)

    assert (data["model"], data["runs"], len(data["pairs"])) == ("tiny", 3, 3)
    assert data["pairs"][0]["efficiency"] == 0.85
    assert data["pairs"][0]["tokens"]["unique"] == 280


@pytest.mark.usefixtures("measured")
def test_what_would_lose_something_needs_a_word(store: Store) -> None:
    refused = run("optimize", "tiny")
    assert refused.exit_code == 2
    assert "--lossy" in refused.stderr
    assert [model.name for model in store.list()] == ["tiny"]


@pytest.mark.usefixtures("measured")
def test_a_dry_run_writes_nothing(store: Store) -> None:
    result = run("optimize", "tiny", "--dry-run", "--json", "--quiet")
    data = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (data["name"], data["to"], data["before"]["readingTokensPerSecond"]) == (
        "tiny-q8_0",
        "Q8_0",
        256.0,
    )
    assert data["loss"]
    assert [model.name for model in store.list()] == ["tiny"]


@pytest.mark.usefixtures("measured")
def test_optimize_makes_an_entry_of_its_own_and_says_whether_it_pays(store: Store) -> None:
    result = run("optimize", "tiny", "--lossy", "--quiet")
    made = store.get("tiny-q8_0")

    assert result.exit_code == 0
    assert made is not None
    assert (made.parent, made.kind) == ("tiny", "requantised")
    assert "before: reads 256 tokens a second, writes 60 at 6 runs at once" in result.stdout
    assert "a typical verdict takes 50% of the time: it pays" in result.stdout
    assert "judge-local judge --model tiny-q8_0" in result.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nope",), "names no model"),
        (("tiny", "--to", "Q9"), "'Q9'"),
        (("tiny", "--name", "a b", "--lossy"), "is not a model's name"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_what_cannot_be_optimised_is_refused(store: Store, args: tuple[str, ...], said: str) -> None:
    result = run("optimize", *args)

    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.usefixtures("measured")
def test_a_type_it_has_already_is_refused(store: Store) -> None:
    run("optimize", "tiny", "--lossy", "--quiet")

    result = run("optimize", "tiny-q8_0")

    assert result.exit_code == 2
    assert "is in Q8_0 already" in result.stderr
