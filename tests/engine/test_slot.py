"""Probabilities of a run are those of its own model after its own tokens, and reading them changes no answer.

Held to an enumeration that draws every token there is. llama.cpp's own logits move with the shape of the batch, so what
the model says is put in their place here: a function of the tokens that the sequence holds, and of nothing else. One
test leaves llama.cpp its word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from judge_local.engine import slot as module
from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context
from judge_local.engine.interrupt import Interrupter
from judge_local.engine.protocol import Generate, Generated, Settings, Slot, generate_from_json, to_json
from judge_local.engine.runs import Outcome
from judge_local.engine.sampling import Floats
from judge_local.engine.scheduler import Scheduler
from judge_local.engine.shelf import Shelf
from judge_local.errors import EngineError
from judge_local.grammar.recogniser import Matcher

OPTIONS = [("pass", "fail", "partial"), ("no", "none", "nothing"), ("è", "é"), ("pa", "pas", "pass", "aim")]
TEXT = "ch ::= [ !#-\\[\\]-~]\n"


def words(options: Sequence[str]) -> str:
    return " | ".join(
        json.dumps(json.dumps(option, ensure_ascii=False), ensure_ascii=False) for option in options
    )


def answer(options: Sequence[str]) -> str:
    return f'root ::= "{{\\"why\\":\\"" ch{{3,9}} "\\",\\"match\\":" ({words(options)}) ",\\"sure\\":" ("0" | "1") "}}"\n{TEXT}'


def slot_first(options: Sequence[str]) -> str:
    return f'root ::= "{{\\"match\\":" ({words(options)}) ",\\"why\\":\\"" ch{{3,9}} "\\"}}"\n{TEXT}'


def ask(options: Sequence[str], runs: int = 2, **changes: Any) -> list[Generate]:
    slot = Slot(pointer="/match", options=tuple(options), grammar=slot_first(options), lead='{"match":')
    values = {
        "system": "Judge.",
        "grammar": slot.grammar if changes.get("score_only") else answer(options),
        "max_tokens": 60,
        "typical_tokens": 30,
        "slot": slot,
        **changes,
    }
    return [
        Generate(id=str(run), user=f"The sky is blue.\nRun {run}.", seed=run, **values) for run in range(runs)
    ]


class Bench:
    """A scheduler, what it has answered, and what each run had before its slot."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.model = model
        self.answers: dict[str, Outcome] = {}
        self.at_slot: dict[int, tuple[list[int], Matcher]] = {}
        self.held: dict[int, list[int]] = {}
        self.interrupter = Interrupter(abort := AbortFlag())
        self.prompts = PromptAssembler(model, model.chat_template, where="tiny")
        self.scheduler = Scheduler(
            model,
            self.prompts,
            Settings(path="", **settings),
            self.interrupter,
            abort,
            self.answers.__setitem__,
            Shelf(None, pytest.fail),
        )
        self.rows: list[tuple[int, int]] = []
        self.quotes = False
        """Whether the model likes to go on as the text went on where it stood like this before."""
        self._spy(monkeypatch)

        def logits(_: Context, row: int) -> Floats:
            owner, position = self.rows[row]
            return self.says(self.held[owner][: position + 1])

        monkeypatch.setattr(Context, "logits", logits)

    def _spy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keep what every sequence holds, and a copy of it where a run comes to its slot."""
        decode, copy, forget = Context.decode, Context.copy, Context.forget
        is_at_slot = module.SlotReader._is_at_slot

        def decoded(context: Context, tokens: Any, positions: Any, owners: Any, wanted: Any) -> Any:
            for token, position, owner in zip(tokens, positions, owners, strict=True):
                assert len(self.held.setdefault(owner, [])) == position, "a hole, or a place taken twice"
                self.held[owner].append(token)
            self.rows = list(zip(owners, positions, strict=True))
            return decode(context, tokens, positions, owners, wanted)

        def copied(context: Context, source: int, target: int) -> None:
            self.held[target] = list(self.held.get(source, []))
            copy(context, source, target)

        def forgot(context: Context, sequence: int, start: int = 0) -> bool:
            self.held[sequence] = self.held.get(sequence, [])[:start]
            return forget(context, sequence, start)

        def noted(reader: Any, run: Any, matcher: Matcher) -> bool:
            found: bool = is_at_slot(reader, run, matcher)
            if found:
                self.at_slot[run.request.seed] = (self.held[run.sequence][: run.position], matcher)
            return found

        monkeypatch.setattr(Context, "decode", decoded)
        monkeypatch.setattr(Context, "copy", copied)
        monkeypatch.setattr(Context, "forget", forgot)
        monkeypatch.setattr(module.SlotReader, "_is_at_slot", noted)

    def ask(self, requests: Sequence[Generate]) -> list[Generated]:
        for request in requests:
            self.interrupter.expect(request.id, request.seconds)
        self.scheduler.submit(requests)
        for _ in range(2000):
            if self.scheduler.busy:
                self.scheduler.step()
        outcomes = [self.answers.pop(request.id) for request in requests]
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Generated)]

    def enumerated(self, before: Sequence[int], matcher: Matcher, options: Sequence[str]) -> dict[str, float]:
        """Probability of each option after the tokens `before`, by drawing all tokens there are."""
        rests = {option: rest_of(matcher, option) for option in options}
        banned = self.model.control | set(self.model.unwritable.tolist())
        pieces = {
            t: self.model.piece(t)
            for t in range(self.model.n_vocab)
            if t not in banned and self.model.piece(t)
        }

        def inner(tokens: list[int], at: Matcher, text: bytes) -> dict[str, float]:
            fits = [
                option for option, rest in rests.items() if rest.startswith(text) or text.startswith(rest)
            ]
            if len(fits) == 1:
                return {fits[0]: 1.0}
            values = self.says(tokens).astype(np.float64)
            open_ = [(t, after) for t, piece in pieces.items() if (after := at.advance(piece)) is not None]
            weights = np.exp(values[[t for t, _ in open_]])
            found = dict.fromkeys(options, 0.0)
            for (token, after), weight in zip(open_, weights / weights.sum(), strict=True):
                for option, share in inner([*tokens, token], after, text + pieces[token]).items():
                    found[option] += float(weight) * share
            return found

        return inner(list(before), matcher, b"")

    def says(self, tokens: Sequence[int]) -> Floats:
        """Logits after `tokens`."""
        source = np.random.default_rng(list(tokens))
        said = (3 * source.standard_normal(self.model.n_vocab)).astype(np.float32)
        if self.quotes:
            pairs = zip(tokens, tokens[1:], tokens[2:], strict=False)
            said[[after for *pair, after in pairs if pair == list(tokens[-2:])]] += 9
        return said


def rest_of(matcher: Matcher, option: str) -> bytes:
    """What is still to be written of an option and what leads to it."""
    text = f'"match":{json.dumps(option, ensure_ascii=False)}'.encode()
    return next(text[at:] for at in range(len(text)) if matcher.advance(text[at:]) is not None)


@pytest.fixture(scope="module", params=["bytes", "sentencepiece"])
def model(
    request: pytest.FixtureRequest, make_tiny_model: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Model:
    start_backend()
    path = tmp_path_factory.mktemp("slot") / "tiny.gguf"
    make_tiny_model.write_tiny_model(path, vocabulary=request.param)
    return Model(path)


@pytest.fixture
def bench(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(model, monkeypatch, slots=4)
    yield made
    made.scheduler.close()
    made.interrupter.close()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_read_is_what_drawing_would_give(bench: Bench, options: Sequence[str]) -> None:
    requests = ask(options, temperature=1.0)
    for request, done in zip(requests, bench.ask(requests), strict=True):
        tokens, matcher = bench.at_slot[request.seed]
        prompt = bench.prompts.tokens(request.system, request.user)
        lead = '{"match":' + ('"' if options != OPTIONS[1] else '"no')
        start = Matcher.from_gbnf(slot_first(options)).advance(lead.encode())
        assert start is not None
        expected = {
            "before": bench.enumerated([*prompt, *bench.prompts.plain(lead)], start, options),
            "slot": bench.enumerated(tokens, matcher, options),
        }

        assert list(done.probabilities) == ["before", "slot"]
        for name, table in done.probabilities.items():
            assert table == pytest.approx(expected[name], abs=1e-5)
            assert sum(table.values()) == pytest.approx(1.0, abs=1e-9)


def test_it_is_what_the_model_says(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """With llama.cpp's own logits, up to the rounding of its cache (16 bits)."""
    with monkeypatch.context() as patch:
        made = Bench(model, patch)
        patch.undo()
        (done,) = made.ask(ask(OPTIONS[0], runs=1))
        made.scheduler.close()
        made.interrupter.close()
    (request,) = ask(OPTIONS[0], runs=1)
    context = Context(
        model, n_ctx=1024, n_sequences=1, n_outputs=1, n_batch=512, n_threads=1, abort=AbortFlag()
    )

    def says(tokens: Sequence[int]) -> Floats:
        context.forget(0)
        n = len(tokens)
        context.decode(tokens, range(n), [0] * n, [False] * (n - 1) + [True])
        return context.logits(n - 1)

    monkeypatch.setattr(made, "says", says)
    start = Matcher.from_gbnf(slot_first(OPTIONS[0])).advance(b'{"match":"')
    assert start is not None
    tokens = [*made.prompts.tokens(request.system, request.user), *made.prompts.plain('{"match":"')]

    assert done.probabilities["before"] == pytest.approx(made.enumerated(tokens, start, OPTIONS[0]), abs=2e-3)
    context.close()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_reading_changes_no_answer(bench: Bench, temperature: float) -> None:
    requests = ask(OPTIONS[0], runs=6, temperature=temperature)
    plain = [replace(request, slot=None) for request in requests]
    with_scores, without = bench.ask(requests), bench.ask(plain)

    assert [one.text for one in with_scores] == [one.text for one in without]
    assert [dict(one.probabilities) for one in without] == [{}] * 6
    assert all(0 < one.stats["scored"] <= 30 for one in with_scores)


def test_reading_changes_no_answer_whose_first_token_is_free(bench: Bench) -> None:
    """Then the prompt's last token is evaluated again, for its logits."""
    free = answer(OPTIONS[0]).replace("root ::= ", 'root ::= (" " | "\\n") ', 1)
    requests = ask(OPTIONS[0], runs=6, temperature=1.0, grammar=free)
    with_scores = bench.ask(requests)
    without = bench.ask([replace(request, slot=None) for request in requests])

    assert [one.text for one in with_scores] == [one.text for one in without]
    assert all(list(one.probabilities) == ["before", "slot"] for one in with_scores)


@pytest.mark.parametrize("bias", [{}, {"fail": 2.0}])
def test_guesses_change_no_probability(bench: Bench, bias: dict[str, float]) -> None:
    """A run may come to its slot in the middle of what was guessed."""
    bench.quotes = True
    slot = ask(OPTIONS[0])[0].slot
    assert slot is not None
    written = (
        'It is like {"why":"blue sky","match":"partial","sure":1} or {"why":"clear","match":"pass","sure":0}'
    )
    requests = [
        replace(request, user=f"{written}. {request.user}", slot=replace(slot, bias=bias))
        for request in ask(OPTIONS[0], runs=16, temperature=1.0)
    ]
    plain = bench.ask(requests)
    bench.scheduler._pace.seconds = {4: 0.040, 8: 0.041, 16: 0.042, 32: 0.043}
    guessed = bench.ask(requests)

    assert bench.scheduler.totals["accepted_tokens"] > 20
    assert bench.scheduler.totals["drafted_tokens"] > bench.scheduler.totals["accepted_tokens"]
    assert [one.text for one in guessed] == [one.text for one in plain]
    for one, other in zip(guessed, plain, strict=True):
        assert list(one.probabilities) == ["before", "slot"]
        for name, table in one.probabilities.items():
            assert table == pytest.approx(other.probabilities[name], abs=1e-9)


def test_scores_alone_are_those_before_an_answer(bench: Bench) -> None:
    whole = bench.ask(ask(OPTIONS[0]))
    alone = bench.ask(ask(OPTIONS[0], score_only=True))

    for one, other in zip(whole, alone, strict=True):
        assert other.text == ""
        assert other.output_tokens == 0
        assert list(other.probabilities) == ["before"]
        assert other.probabilities["before"] == pytest.approx(one.probabilities["before"], abs=1e-5)


@pytest.mark.parametrize("part", ["before", "slot"])
def test_each_can_be_left_out(bench: Bench, part: str) -> None:
    slot = ask(OPTIONS[0])[0].slot
    assert slot is not None
    left = replace(slot, grammar="") if part == "before" else replace(slot, here=False)
    (done,) = bench.ask(ask(OPTIONS[0], runs=1, slot=left))

    assert list(done.probabilities) == [{"before": "slot", "slot": "before"}[part]]


@pytest.mark.parametrize("option", ["pass", "fail", "partial"])
def test_a_great_bias_chooses(bench: Bench, option: str) -> None:
    slot = ask(OPTIONS[0])[0].slot
    assert slot is not None
    for temperature in (0.0, 1.0):
        (plain,) = bench.ask(ask(OPTIONS[0], runs=1, temperature=temperature))
        (done,) = bench.ask(
            ask(OPTIONS[0], runs=1, temperature=temperature, slot=replace(slot, bias={option: 50.0}))
        )

        assert json.loads(done.text)["match"] == option
        assert done.probabilities["slot"] == pytest.approx(plain.probabilities["slot"], abs=1e-5)
        assert json.loads(done.text)["why"] == json.loads(plain.text)["why"]


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_a_bias_changes_the_odds_by_its_exponential(bench: Bench, options: Sequence[str]) -> None:
    """Frequencies over 600 seeds lie within four standard errors of P(option)·exp(bias), renormalised."""
    slot = ask(options)[0].slot
    assert slot is not None
    bias = {options[0]: 1.0, options[1]: -0.5}
    fixed = f'root ::= "{{\\"match\\":" ({words(options)}) "}}"\n'
    slot = replace(slot, grammar="", bias=bias)
    requests = [
        replace(request, user="The sky is blue.", id=str(seed), seed=seed)
        for seed in range(600)
        for request in ask(options, runs=1, temperature=1.0, grammar=fixed, slot=slot)
    ]
    done = bench.ask(requests)
    written = [json.loads(one.text)["match"] for one in done]
    # What leads to the slot may be spelled in several ways, each with odds of its own.
    shares = np.zeros(len(options))
    for one in done:
        weights = np.array(
            [one.probabilities["slot"][name] * np.exp(bias.get(name, 0.0)) for name in options]
        )
        shares += weights / weights.sum() / len(done)

    for name, share in zip(options, shares, strict=True):
        assert written.count(name) / 600 == pytest.approx(share, abs=4 * (share * (1 - share) / 600) ** 0.5)


@pytest.mark.parametrize("option", OPTIONS[2])
def test_a_bias_chooses_inside_a_character(bench: Bench, option: str) -> None:
    slot = ask(OPTIONS[2])[0].slot
    assert slot is not None
    done = bench.ask(ask(OPTIONS[2], slot=replace(slot, bias={option: 50.0})))

    assert {json.loads(one.text)["match"] for one in done} == {option}


def test_a_slot_that_is_fixed_has_no_probabilities(bench: Bench) -> None:
    fixed = 'root ::= "{\\"match\\":\\"pass\\",\\"sure\\":" ("0" | "1") "}"\n'
    (done,) = bench.ask(ask(OPTIONS[0], runs=1, grammar=fixed))

    assert list(done.probabilities) == ["before"]


def test_an_answer_that_does_not_begin_with_the_slot_has_no_score(bench: Bench) -> None:
    slot = ask(OPTIONS[0])[0].slot
    assert slot is not None
    with pytest.raises(EngineError, match="no answer begins with"):
        bench.ask(ask(OPTIONS[0], runs=1, score_only=True, slot=replace(slot, lead='{"other":')))


def test_a_model_that_cannot_step_back_reads_what_it_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.model, "recurrent", True)
    plain = [replace(request, slot=None) for request in ask(OPTIONS[0])]
    done = bench.ask(ask(OPTIONS[0]))

    assert [one.text for one in done] == [one.text for one in bench.ask(plain)]
    # `pass` and `partial` share a token in this vocabulary.
    assert [dict(one.probabilities) for one in done] == [{}, {}]
    with pytest.raises(EngineError, match="cannot step back"):
        bench.ask(ask(OPTIONS[0], score_only=True))
    (apart,) = bench.ask(ask(("yes", "no"), runs=1, score_only=True))
    assert sum(apart.probabilities["before"].values()) == pytest.approx(1.0)


def test_a_request_survives_the_pipe() -> None:
    (request,) = ask(OPTIONS[0], runs=1)

    assert generate_from_json(json.loads(json.dumps(to_json(request)))) == request
    assert generate_from_json(to_json(replace(request, slot=None))) == replace(request, slot=None)
