"""Submissions that are there at the same time: read beside each other, decoded together, each answered as if alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judge_local.engine import scheduler as module
from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context, Decoded
from judge_local.engine.interrupt import Interrupter
from judge_local.engine.protocol import Generate, Generated, Settings
from judge_local.engine.runs import Outcome, Run
from judge_local.engine.scheduler import Scheduler
from judge_local.engine.shelf import Shelf
from judge_local.errors import EngineError, GrammarRejectedError

GRAMMAR = r"""root ::= "{\"a\":\"" ch{1,12} "\",\"b\":" ("true" | "false") "}"
ch ::= [ !#-\[\]-~]
"""
SUBJECTS = [f"Subject {n}. {'The sky is blue. ' * (4 + 3 * n)}" for n in range(6)]


class Bench:
    """A scheduler on the tiny model, and what it has answered."""

    def __init__(self, model: Model, shelf: Path | None = None, **settings: Any) -> None:
        self.answers: dict[str, Outcome] = {}
        self.order: list[str] = []
        self.interrupter = Interrupter(abort := AbortFlag())
        prompts = PromptAssembler(model, model.chat_template, where="tiny")
        self.scheduler = Scheduler(
            model,
            prompts,
            Settings(path="", **settings),
            self.interrupter,
            abort,
            self.deliver,
            Shelf(shelf, pytest.fail, stamp=settings.get("weights", "")),
        )

    def deliver(self, request: str, outcome: Outcome) -> None:
        assert request not in self.answers, "answered twice"
        self.answers[request] = outcome
        self.order.append(request)

    def submit(self, requests: Sequence[Generate]) -> None:
        for request in requests:
            self.interrupter.expect(request.id, request.seconds)
        self.scheduler.submit(requests)

    def finish(self, most: int = 100_000) -> dict[str, str]:
        """Step to the end; the texts by id."""
        for _ in range(most):
            if not self.scheduler.busy:
                break
            self.scheduler.step()
        assert not self.scheduler.busy
        return {key: one.text for key, one in self.answers.items() if isinstance(one, Generated)}


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    start_backend()
    return Model(tiny_model)


@pytest.fixture
def bench(model: Model) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(model, **settings))
        return made[-1]

    yield make
    for one in made:
        one.scheduler.close()
        one.interrupter.close()


def ask(subject: int, runs: int = 3, **changes: Any) -> list[Generate]:
    values = {"system": "Judge.", "grammar": GRAMMAR, "max_tokens": 100, "typical_tokens": 30, **changes}
    return [
        Generate(id=f"{subject}.{run}", user=f"{SUBJECTS[subject]}\nRun {run}.", seed=run, **values)
        for run in range(runs)
    ]


def everything(bench: Bench, order: Sequence[int] = range(6), **changes: Any) -> dict[str, str]:
    for subject in order:
        bench.submit(ask(subject, **changes))
    return bench.finish()


@pytest.mark.parametrize("slots", [1, 2, 4, 12])
def test_company_changes_no_answer(bench: Callable[..., Bench], slots: int) -> None:
    """Whatever stands beside it, and however many slots there are, a greedy run writes what it writes alone.

    Up to rounding: the last bits of a logit depend on the shape of the batch, and a near tie may fall the other way.
    """
    alone: dict[str, str] = {}
    for subject in range(6):
        single = bench(deterministic=True)
        single.submit(ask(subject))
        alone |= single.finish()
    together = everything(bench(slots=slots))

    assert together.keys() == alone.keys()
    assert sum(together[key] == alone[key] for key in alone) >= len(alone) - 1


def test_deterministic_answers_do_not_depend_on_the_queue(bench: Callable[..., Bench]) -> None:
    one = everything(bench(deterministic=True, slots=4), temperature=0.9)
    two = everything(bench(deterministic=True, slots=4), order=[3, 5, 0, 2, 4, 1], temperature=0.9)

    assert one == two
    assert len(one) == 18


def test_submissions_decode_together(bench: Callable[..., Bench]) -> None:
    """With slots for four submissions, the steps are those of the longest, not those of all."""
    together, apart = bench(slots=12), bench(slots=3)
    everything(together)
    everything(apart)

    assert together.scheduler.totals["steps"] < 0.6 * apart.scheduler.totals["steps"]


def test_what_submissions_share_is_read_once(bench: Callable[..., Bench]) -> None:
    """Several claims about one subject, known beforehand or one after the other."""
    texts = [f"{SUBJECTS[5]}\nClaim {claim}." for claim in range(5)]

    def requests(claim: int) -> list[Generate]:
        return [
            Generate(
                id=f"{claim}.{run}",
                system="Judge.",
                user=f"{texts[claim]} Run {run}.",
                grammar=GRAMMAR,
                max_tokens=100,
                typical_tokens=30,
            )
            for run in range(2)
        ]

    at_once, in_turn = bench(), bench()
    for claim in range(5):
        at_once.submit(requests(claim))
    at_once.finish()
    for claim in range(5):
        in_turn.submit(requests(claim))
        in_turn.finish()
    size = max(one.prompt_tokens for one in at_once.answers.values() if isinstance(one, Generated))

    for one in (at_once, in_turn):
        assert one.scheduler.totals["read_tokens"] < size + 5 * 2 * 45


def test_first_come_first_read(bench: Callable[..., Bench]) -> None:
    one = bench(slots=3)
    everything(one)

    assert [key.split(".")[0] for key in one.order] == [str(n) for n in range(6) for _ in range(3)]


@pytest.mark.parametrize("slots", [1, 4, 12])
def test_answers_longer_than_the_room_set_aside(bench: Callable[..., Bench], slots: int) -> None:
    """Runs give way to each other until all have had the cells they need."""
    long_ = 'root ::= "[" a a "1]"\na ::= b b\nb ::= c{100}\nc ::= [2-9] ","\n'
    one = bench(slots=slots)
    texts = everything(one, order=range(3), grammar=long_, max_tokens=4000, typical_tokens=5, temperature=0.5)

    assert [len(json.loads(texts[key])) for key in sorted(texts)] == [401] * 9


def test_a_faulty_grammar_costs_its_own_runs_only(bench: Callable[..., Bench]) -> None:
    one = bench()
    one.submit(ask(0))
    one.submit(ask(1, grammar="root ::= ("))
    one.submit(ask(2))
    texts = one.finish()

    assert {key[0] for key in texts} == {"0", "2"}
    assert {type(one.answers[f"1.{run}"]) for run in range(3)} == {GrammarRejectedError}


@pytest.mark.parametrize("stage", [0, 1, 2, 5, 20])
def test_cancelling_at_any_stage_leaves_the_others_alone(bench: Callable[..., Bench], stage: int) -> None:
    one, expected = bench(slots=3), everything(bench(slots=3))
    for subject in range(6):
        one.submit(ask(subject))
    for _ in range(stage):
        one.scheduler.step()
    doomed = [
        request.id for subject in (0, 2, 5) for request in ask(subject) if request.id not in one.answers
    ]
    one.interrupter.cancel(doomed)
    texts = one.finish()

    assert len(one.answers) == 18
    assert texts == {key: text for key, text in expected.items() if key not in doomed}


@pytest.mark.parametrize("code", [Decoded.NO_ROOM, Decoded.ABORTED])
@pytest.mark.parametrize("every", [2, 3, 7])
def test_a_decode_that_did_not_happen_is_done_again(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, code: Decoded, every: int
) -> None:
    """llama.cpp says now and then that it had no room or was stopped: no answer changes."""
    expected = everything(bench(slots=6))
    one = bench(slots=6)
    calls = 0
    decode = Context.decode

    def unreliable(self: Context, *batch: Any) -> Decoded:
        nonlocal calls
        calls += 1
        # A single run or prompt has room always: its context was made for it.
        return code if calls % every == 0 and len(one.scheduler._live) > 1 else decode(self, *batch)

    monkeypatch.setattr(Context, "decode", unreliable)

    assert everything(one) == expected


def test_a_fault_of_the_engine_ends_what_is_opened_and_the_rest_goes_on(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench(slots=3)
    decode = Context.decode
    calls = 0

    def failing(self: Context, *batch: Any) -> Decoded:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise EngineError("decode", "llama.cpp returned -3")
        return decode(self, *batch)

    monkeypatch.setattr(Context, "decode", failing)
    texts = everything(one)

    assert len(one.answers) == 18
    assert "5.0" in texts
    assert any(isinstance(outcome, EngineError) for outcome in one.answers.values())


def test_a_thousand_that_wait_cost_nothing_but_their_text(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is about to be read has been tokenised."""
    opened: list[str] = []
    open_group = module.open_group

    def counting(requests: Sequence[Generate], *rest: Any) -> Any:
        opened.extend(request.id for request in requests)
        return open_group(requests, *rest)

    monkeypatch.setattr(module, "open_group", counting)
    one = bench(slots=3)
    for number in range(1000):
        one.submit([Generate(**{**vars_of(ask(0, runs=1)[0]), "id": str(number)})])
    for _ in range(5):
        one.scheduler.step()

    assert len(opened) < 10
    one.interrupter.cancel([str(number) for number in range(1000)])
    one.finish()
    assert len(one.answers) == 1000


def vars_of(request: Generate) -> dict[str, Any]:
    return {name: getattr(request, name) for name in Generate.__slots__}


# --- guesses ----------------------------------------------------------------------------------------------------------

COPYING = r"""root ::= "{\"a\":\"" ("The sky " | "is " | "blue. "){10,16} "\"}"
"""
CHEAP = {1: 0.0100, 2: 0.0101, 4: 0.0102, 8: 0.0103, 16: 0.0104, 32: 0.0105}
"""What batches take where a place in one costs next to nothing: everything is guessed that can be."""


def guessing(bench: Bench) -> Bench:
    bench.scheduler._pace.seconds = dict(CHEAP)
    return bench


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("grammar", [GRAMMAR, COPYING])
@pytest.mark.parametrize("runs", [1, 3])
def test_guesses_change_no_answer(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, grammar: str, runs: int, temperature: float
) -> None:
    """What each token is drawn from is what it is without guesses, up to rounding, by which a near tie may fall elsewhere."""
    plain, one = bench(slots=3), guessing(bench(slots=3))
    drawn_from = [watched(each, monkeypatch) for each in (plain, one)]
    asked = {"runs": runs, "grammar": grammar, "temperature": temperature, "max_tokens": 300}
    expected, got = everything(plain, **asked), everything(one, **asked)
    totals = one.scheduler.totals

    assert got.keys() == expected.keys()
    assert len(got) == 6 * runs
    both = drawn_from[0].keys() & drawn_from[1].keys()
    assert all(np.allclose(*(each[key] for each in drawn_from), atol=0.05) for key in both)
    # Those that part at a near tie are few, and go on from there by themselves.
    assert len(both) > 0.7 * len(drawn_from[1])
    assert temperature > 0 or sum(got[key] == expected[key] for key in expected) >= len(expected) - 2
    assert 0 <= totals["accepted_tokens"] <= totals["drafted_tokens"]
    assert grammar == GRAMMAR or totals["accepted_tokens"] > 0


def watched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, tuple[int, ...]], Any]:
    """The logits that every token is drawn from, by the run and what it has written; filled while the bench works."""
    seen: dict[tuple[str, tuple[int, ...]], Any] = {}
    draw = bench.scheduler._writer.draw

    def watching(run: Run, logits: Any, forget: Any) -> Outcome | None:
        seen[run.id, tuple(run.tokens)] = logits.copy()
        return draw(run, logits, forget)

    monkeypatch.setattr(bench.scheduler._writer, "draw", watching)
    return seen


def test_right_guesses_save_steps(bench: Callable[..., Bench]) -> None:
    plain, one = bench(slots=3), guessing(bench(slots=3))
    everything(plain, grammar=COPYING)
    everything(one, grammar=COPYING)

    assert one.scheduler.totals["steps"] < plain.scheduler.totals["steps"]


def test_nothing_is_guessed_where_nothing_was_measured_or_results_must_repeat(
    bench: Callable[..., Bench],
) -> None:
    unmeasured, deterministic = bench(slots=3), guessing(bench(deterministic=True))
    for one in (unmeasured, deterministic):
        everything(one, grammar=COPYING)

    assert [one.scheduler.totals["drafted_tokens"] for one in (unmeasured, deterministic)] == [0, 0]


def test_an_abort_among_guesses_leaves_nothing_behind(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = everything(guessing(bench(slots=3)), grammar=COPYING)
    decode, calls = Context.decode, 0

    def sometimes(self: Context, *arguments: Any) -> Decoded:
        nonlocal calls
        calls += 1
        code = decode(self, *arguments)
        return Decoded.ABORTED if calls % 3 == 0 else code

    monkeypatch.setattr(Context, "decode", sometimes)
    got = everything(guessing(bench(slots=3)), grammar=COPYING)

    assert got.keys() == expected.keys()
    assert sum(got[key] == expected[key] for key in expected) >= len(expected) - 1


# --- what earlier processes left --------------------------------------------------------------------------------------

LONG_SYSTEM = "Judge with care, and say what you saw. " * 12


def test_the_beginning_of_all_prompts_is_read_once_for_all_processes(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    first, second, other = (bench(shelf=tmp_path, weights=name) for name in ("w", "w", "v"))
    answers = [everything(one, order=[2], system=LONG_SYSTEM) for one in (first, second, other)]
    read = [one.scheduler.totals["read_tokens"] for one in (first, second, other)]
    beginning = len(first.scheduler._assembler.beginning(LONG_SYSTEM))

    assert beginning > 64
    assert [read[0] - read[1], read[0] - read[2]] == [beginning, 0]
    # Up to rounding, as above.
    assert sum(answers[0][key] == answers[1][key] for key in answers[0]) >= len(answers[0]) - 1


@pytest.mark.parametrize("damage", [b"", b"x", bytes(5000)])
def test_a_damaged_beginning_is_read_again(
    bench: Callable[..., Bench], tmp_path: Path, damage: bytes
) -> None:
    first = bench(shelf=tmp_path, weights="w")
    answers = everything(first, order=[2], system=LONG_SYSTEM)
    for key in list(tmp_path.iterdir()):
        key.write_bytes(damage)
    second = bench(shelf=tmp_path, weights="w")

    assert everything(second, order=[2], system=LONG_SYSTEM) == answers
    assert first.scheduler.totals["read_tokens"] == second.scheduler.totals["read_tokens"]


def test_a_state_that_llama_cannot_use_is_read_again(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Whole by its digest, and still none of this model's."""
    first = bench(shelf=tmp_path, weights="w")
    answers = everything(first, order=[2], system=LONG_SYSTEM)
    beginning = first.scheduler._assembler.beginning(LONG_SYSTEM)
    Shelf(tmp_path, pytest.fail, stamp="w").put(str(beginning), b"nonsense" * 100)
    second, third = bench(shelf=tmp_path, weights="w"), bench(shelf=tmp_path, weights="w")

    assert everything(second, order=[2], system=LONG_SYSTEM) == answers
    # What was read again has taken its place.
    everything(third, order=[2], system=LONG_SYSTEM)
    read = [one.scheduler.totals["read_tokens"] for one in (second, third)]
    assert read[0] - read[1] == len(beginning)


def test_nothing_is_left_where_results_must_repeat(bench: Callable[..., Bench], tmp_path: Path) -> None:
    everything(bench(shelf=tmp_path, weights="w", deterministic=True), order=[2], system=LONG_SYSTEM)

    assert list(tmp_path.iterdir()) == []


# --- how many at once -------------------------------------------------------------------------------------------------


def test_a_machine_that_cannot_be_measured_judges_all_the_same(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory() -> dict[int, float]:
        raise EngineError("context", "llama.cpp could not make room for 396 tokens")

    one, said = bench(), list[str]()
    one.scheduler.tell(said.append)
    monkeypatch.setattr(one.scheduler._pace, "measure", no_memory)
    texts = everything(one, runs=6)

    assert len(texts) == 36
    assert said == [
        "not measured how many runs to decode at once: llama.cpp could not make room for 396 tokens"
    ]
