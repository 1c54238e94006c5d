"""Models that think: their templates are recognised, their blocks closed or budgeted, and no thought reaches an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context
from judge_local.engine.interrupt import Interrupter
from judge_local.engine.protocol import Generate, Generated, Settings, Slot
from judge_local.engine.runs import Outcome
from judge_local.engine.sampling import Sampler
from judge_local.engine.scheduler import Scheduler
from judge_local.engine.shelf import Shelf
from judge_local.engine.thinking import Budget, Style, Thinking
from judge_local.errors import ChatTemplateError, ContextOverflowError, UsageError

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}"
QWEN3 = (
    TURNS
    + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
R1 = TURNS + "{{ '<think>\n' }}"
R1_EARLY = TURNS + "{# content.split('</think>')[-1] #}"
QWQ = "{% if enable_thinking is false %}{{ raise_exception('it always thinks') }}{% endif %}" + R1
SMOLLM3 = (
    "<|im_start|>system\nReasoning: {{ '/think' if enable_thinking else '/no_think' }}<|im_end|>\n"
    + TURNS
    + "{% if not enable_thinking %}<think>\n\n</think>\n{% endif %}"
)
GRANITE = "{% if thinking %}Think between <think></think>.\n{% endif %}" + TURNS
V31 = TURNS + "{{ '<think>' if thinking else '</think>' }}"
GPT_OSS = "{# <|channel|>analysis, <|channel|>final #}" + TURNS.replace(
    "<|im_start|>assistant\n", "<|start|>assistant"
)
PLAIN = TURNS

GRAMMAR = r"""root ::= "{\"why\":\"" ch{1,9} "\",\"match\":" ("\"pass\"" | "\"fail\"" | "\"partial\"") "}"
ch ::= [ !#-\[\]-~]
"""
FIRST = r"""root ::= "{\"match\":" ("\"pass\"" | "\"fail\"" | "\"partial\"") ",\"why\":\"" ch{1,9} "\"}"
ch ::= [ !#-\[\]-~]
"""
SLOT = Slot(pointer="/match", options=("pass", "fail", "partial"), grammar=FIRST, lead='{"match":')


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    start_backend()
    return Model(tiny_model)


def prompt_of(model: Model, template: str, thinking: int) -> str:
    prompts = PromptAssembler(model, template, where="tiny", thinking=thinking)
    return "".join(piece.text for piece in prompts.pieces("S", "U"))


def asked(system: str = "S", first: str = "") -> str:
    return f"{first}<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "closed", "opened"),
    [
        (QWEN3, "<think>\n\n</think>\n\n", "<think>\n"),
        (R1, "<think>\n\n</think>\n\n", "<think>\n"),
        (R1_EARLY, "<think>\n\n</think>\n\n", "<think>\n"),
        (QWQ, "<think>\n\n</think>\n\n", "<think>\n"),
        (TURNS + "<think>", "<think>\n\n</think>\n\n", "<think>"),
        (TURNS + "{{ '<think></think>' if not enable_thinking }}", "<think></think>", "<think>\n"),
        (V31, "</think>", "<think>"),
        (TURNS + "[THINK]", "[THINK]\n\n[/THINK]\n\n", "[THINK]"),
    ],
)
def test_a_block_is_closed_at_once_or_opened(model: Model, template: str, closed: str, opened: str) -> None:
    assert prompt_of(model, template, 0) == asked() + closed
    assert prompt_of(model, template, 5) == asked() + opened


def test_a_switch_may_be_anywhere_in_the_prompt(model: Model) -> None:
    first = "<|im_start|>system\nReasoning: {}<|im_end|>\n"

    assert prompt_of(model, SMOLLM3, 0) == asked(first=first.format("/no_think")) + "<think>\n\n</think>\n"
    assert prompt_of(model, SMOLLM3, 5) == asked(first=first.format("/think")) + "<think>\n"
    assert prompt_of(model, GRANITE, 0) == asked()
    assert prompt_of(model, GRANITE, 5) == asked(first="Think between <think></think>.\n") + "<think>\n"


def test_channels(model: Model) -> None:
    start = asked().replace("<|im_start|>assistant\n", "<|start|>assistant")

    assert prompt_of(model, GPT_OSS, 0) == f"{start}<|channel|>final<|message|>"
    assert prompt_of(model, GPT_OSS, 5) == f"{start}<|channel|>analysis<|message|>"
    style = PromptAssembler(model, GPT_OSS, where="tiny").style
    assert style is not None
    assert style.end + style.after == "<|end|><|start|>assistant<|channel|>final<|message|>"


def test_what_stands_after_a_closed_block_is_what_the_template_puts_there(model: Model) -> None:
    after = {}
    for name, template in {"qwen3": QWEN3, "smollm3": SMOLLM3, "granite": GRANITE, "v3.1": V31}.items():
        style = PromptAssembler(model, template, where="tiny").style
        after[name] = style and style.after

    assert after == {"qwen3": "\n\n", "smollm3": "\n", "granite": "\n\n", "v3.1": ""}


def test_a_model_that_does_not_think(model: Model) -> None:
    prompts = PromptAssembler(model, PLAIN, where="tiny")

    assert prompts.style is None
    assert prompts.thinking is None
    assert prompts.notes == ()
    with pytest.raises(UsageError, match="thinking: tiny has no template of a model that thinks"):
        PromptAssembler(model, PLAIN, where="tiny", thinking=5)
    with pytest.raises(ChatTemplateError, match="exactly once"):
        PromptAssembler(model, QWQ.replace("m.content", "1"), where="tiny", thinking=5)


def test_it_is_said(model: Model) -> None:
    assert PromptAssembler(model, QWEN3, where="tiny").notes == (
        "a thinking model: its think block is closed at once",
    )
    assert PromptAssembler(model, QWEN3, where="tiny", thinking=7).notes == (
        "a thinking model: it thinks for at most 7 tokens before it answers",
    )


# One run's thinking: a vocabulary of bytes, 256 the end mark as one token, 257 an end of generation, 258 `>\n`.
STYLE = Style(closed="", opened="", end="</t>", after="\n\n", before_end="\n")
MARK, END, BEYOND = 256, 257, 258


def spell(text: str, *, mark: bool = True) -> list[int]:
    head, found, tail = text.partition("</t>")
    return [*head.encode(), *([MARK] if mark else b"</t>"), *tail.encode()] if found else list(text.encode())


def think(says: list[int], most: int = 100, *, mark: bool = True) -> list[list[int]]:
    """What is evaluated, step by step, of a model that says this."""
    budget = Budget(STYLE, most, lambda text: spell(text, mark=mark))
    thinking = Thinking(
        budget, lambda t: b">\n" if t == BEYOND else b"" if t > 255 else bytes([t]), frozenset([END])
    )
    steps = []
    for token in says:
        logits = np.zeros(259, dtype=np.float32)
        logits[token] = 9
        steps.append(thinking.draw(logits, Sampler(temperature=0, seed=0)))
        if thinking.over:
            return steps
    raise AssertionError("it never ended")


NEWLINES = [10, 10]


@pytest.mark.parametrize(
    ("says", "mark", "expected"),
    [
        ([*b"hm", MARK], True, [[104], [109], [MARK, *NEWLINES]]),
        ([*b"a</t>"], False, [[97], [60], [47], [116], [62, *NEWLINES]]),  # spelled out
        (
            [*b"a</t", BEYOND],
            False,
            [[97], [60], [47], [116], [BEYOND, 10]],
        ),  # with the first of two line feeds
        ([*b"a", END], True, [[97], [10, MARK, *NEWLINES]]),  # its turn is not over
        ([*b"<<</t>"], False, [[60], [60], [60], [47], [116], [62, *NEWLINES]]),
    ],
)
def test_a_thought_ends(says: list[int], mark: bool, expected: list[list[int]]) -> None:
    assert think(says, mark=mark) == expected


@pytest.mark.parametrize("most", [1, 2, 30])
def test_a_budget_ends_what_does_not_end(most: int) -> None:
    steps = think([97] * 100, most)

    assert steps == [*[[97]] * (most - 1), [97, 10, MARK, *NEWLINES]]


# Whole answers.


@pytest.fixture
def bench(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    closing: list[Any] = []
    decode = Context.decode
    evaluated: list[tuple[int, int, int]] = []

    def decoded(context: Context, tokens: Any, positions: Any, owners: Any, wanted: Any) -> Any:
        evaluated.extend(zip(owners, positions, tokens, strict=True))
        return decode(context, tokens, positions, owners, wanted)

    monkeypatch.setattr(Context, "decode", decoded)

    def ask(
        template: str, *, thinking: int, runs: int = 1, **changes: Any
    ) -> tuple[list[Outcome], list[list[int]]]:
        """The outcomes, and the tokens of each run's sequence in order of evaluation."""
        evaluated.clear()
        outcomes: dict[str, Outcome] = {}
        interrupter = Interrupter(abort := AbortFlag())
        prompts = PromptAssembler(model, template, where="tiny", thinking=thinking)
        settings = Settings(path="", thinking=thinking)
        scheduler = Scheduler(
            model, prompts, settings, interrupter, abort, outcomes.__setitem__, Shelf(None, pytest.fail)
        )
        closing.extend([scheduler, interrupter])
        values = {"grammar": GRAMMAR, "max_tokens": 60, "typical_tokens": 30, "temperature": 1.0, **changes}
        requests = [Generate(id=str(k), system="S", user=f"U{k}", seed=k, **values) for k in range(runs)]
        for request in requests:
            interrupter.expect(request.id, None)
        scheduler.submit(requests)
        while scheduler.busy:
            scheduler.step()
        owners = sorted({owner for owner, _, _ in evaluated if owner > 1}, reverse=False)
        return [outcomes[request.id] for request in requests], [
            [token for owner, _, token in evaluated if owner == one] for one in owners
        ]

    yield ask
    for one in closing:
        one.close()


@pytest.mark.parametrize("template", [QWEN3, R1, GPT_OSS], ids=["qwen3", "r1", "gpt-oss"])
@pytest.mark.parametrize("thinking", [0, 1, 40])
def test_the_answer_is_the_grammars_whatever_was_thought(
    bench: Callable[..., Any], template: str, thinking: int
) -> None:
    """Random weights think nonsense for as long as they may."""
    outcomes, _ = bench(template, thinking=thinking, runs=6)

    for done in outcomes:
        assert isinstance(done, Generated)
        assert set(json.loads(done.text)) == {"why", "match"}
        assert done.stats["thought"] <= thinking
        assert done.output_tokens >= done.stats["thought"]
    if thinking == 40:
        assert max(done.stats["thought"] for done in outcomes) == 40


def test_thinking_forges_no_control_token(
    bench: Callable[..., Any], model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that wants to open a turn above all: the control tokens it evaluates are those of its prompt."""
    (opening,) = model.tokenize(b"<|im_start|>", special=True)
    logits = Context.logits

    def eager(context: Context, row: int) -> Any:
        said = logits(context, row)
        said[opening] = 50.0
        return said

    monkeypatch.setattr(Context, "logits", eager)
    _, sequences = bench(QWEN3, thinking=20, runs=3)
    prompts = PromptAssembler(model, QWEN3, where="tiny", thinking=20)
    own = [token for token in prompts.tokens("S", "U0") if token in model.control]

    assert [[token for token in tokens if token in model.control] for tokens in sequences] == [own[-2:]] * 3
    assert sum(map(len, sequences)) > 60


def test_scores_before_an_answer_are_those_of_a_closed_block(bench: Callable[..., Any]) -> None:
    """`before` stands before any thought."""
    tables = []
    for thinking, score_only in ((0, True), (12, True), (12, False)):
        grammar = FIRST if score_only else GRAMMAR
        (done,), _ = bench(R1, thinking=thinking, slot=SLOT, score_only=score_only, grammar=grammar)
        assert isinstance(done, Generated)
        tables.append(done.probabilities["before"])

    # The prompts end in the same text; its tokens are cut at another place, and logits move with the batch.
    assert tables[1] == pytest.approx(tables[2], abs=0.01)
    assert tables[0] == pytest.approx(tables[1], abs=0.05)


def test_room_to_think_counts(bench: Callable[..., Any], model: Model) -> None:
    ((done,), _) = bench(R1, thinking=model.n_ctx_train)

    assert isinstance(done, ContextOverflowError)
