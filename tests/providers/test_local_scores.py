"""LocalProvider's probabilities: on every run, alone, moved by a bias, and refused where there are none to be had."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from judge_local import VERDICT_SCHEMA, CompletionRequest, JudgeRun, LocalProvider, judge_claim
from judge_local.errors import UsageError

SHORT: dict[str, Any] = {
    **VERDICT_SCHEMA,
    "properties": {
        **VERDICT_SCHEMA["properties"],
        **{name: {"type": "string", "maxLength": 20} for name in ("claim", "observed", "reasoning")},
    },
}


@pytest.fixture(scope="module")
def provider(tiny_model: Path) -> Iterator[LocalProvider]:
    with LocalProvider(tiny_model) as made:
        yield made


def request(**changes: Any) -> CompletionRequest:
    values: dict[str, Any] = {"system": "Judge.", "user": "The sky is blue.", "schema": SHORT, **changes}
    return CompletionRequest(**values)


async def test_every_run_holds_both_and_they_survive_the_file(provider: LocalProvider) -> None:
    result = await judge_claim(provider, "The sky is blue.", "It is blue.", schema=SHORT)

    assert len(result.runs) == 3
    for run in result.runs:
        assert run.probabilities is not None
        assert list(run.probabilities) == ["before", "slot"]
        for table in run.probabilities.values():
            assert list(table) == ["pass", "fail", "partial"]
            assert sum(table.values()) == pytest.approx(1.0)
        assert JudgeRun.from_json(json.loads(json.dumps(run.to_json()))) == run


@pytest.mark.parametrize("places", [(), ("before",), ("slot",)])
async def test_places_can_be_left_out(tiny_model: Path, places: tuple[str, ...]) -> None:
    async with LocalProvider(tiny_model, probabilities=places) as some:
        response = await some.complete_json(request())

    assert tuple(response.probabilities or ()) == places


async def test_score_only_writes_nothing(provider: LocalProvider) -> None:
    whole, alone = await provider.complete_many([request(), request(score_only=True)])

    assert not isinstance(whole, Exception)
    assert not isinstance(alone, Exception)
    assert (alone.json, alone.text) == (None, None)
    assert alone.usage is not None
    assert alone.usage.output_tokens == 0
    assert whole.probabilities is not None
    assert alone.probabilities is not None
    # llama.cpp's logits move with the shape of the batch.
    assert alone.probabilities["before"] == pytest.approx(whole.probabilities["before"], abs=0.01)
    assert list(alone.probabilities) == ["before"]


async def test_any_enum_of_strings_is_a_slot(provider: LocalProvider) -> None:
    inner = {
        "type": "object",
        "properties": {"kind": {"$ref": "#/$defs/kind"}},
        "required": ["kind"],
    }
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": 5}, "in": inner},
        "required": ["text", "in"],
        "$defs": {"kind": {"enum": ["été", "hiver"]}},
    }
    response = await provider.complete_json(request(schema=schema, slot="/in/kind"))

    assert response.probabilities is not None
    assert [list(table) for table in response.probabilities.values()] == [["été", "hiver"]] * 2
    for slot in ("/text", "/in", "/none", "/in/kind/x", ""):
        without = await provider.complete_json(request(schema=schema, slot=slot))
        assert without.probabilities is None
        with pytest.raises(UsageError, match="score_only"):
            await provider.complete_json(request(schema=schema, slot=slot, score_only=True))


@pytest.mark.parametrize("option", ["pass", "fail", "partial"])
async def test_a_bias_moves_the_choice_and_not_what_is_recorded(provider: LocalProvider, option: str) -> None:
    plain, moved = await provider.complete_many([request(), request(option_bias={option: 40.0})])

    assert not isinstance(plain, Exception)
    assert not isinstance(moved, Exception)
    assert moved.json["match"] == option
    assert moved.probabilities is not None
    assert moved.probabilities["slot"][option] < 0.9
    assert moved.fingerprint != plain.fingerprint


async def test_a_bias_of_nothing_is_none(provider: LocalProvider) -> None:
    plain, moved = await provider.complete_many([request(), request(option_bias={"pass": 0.0})])

    assert not isinstance(plain, Exception)
    assert not isinstance(moved, Exception)
    assert moved.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"option_bias": {"maybe": 1.0}}, "'maybe' is no option of /match.*pass, fail, partial"),
        ({"option_bias": {"pass": float("nan")}}, "nan for 'pass' is not a number"),
        ({"option_bias": {"pass": 1.0}, "slot": "/claim"}, "no option of /claim"),
        ({"score_only": True, "slot": "/claim"}, "/claim is no property with two options"),
    ],
)
async def test_what_cannot_be_had_is_refused(
    provider: LocalProvider, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        await provider.complete_json(request(**changes))


def test_places_that_are_none(tiny_model: Path) -> None:
    with pytest.raises(UsageError, match="are not places"):
        LocalProvider(tiny_model, probabilities=("after",))
    with pytest.raises(UsageError, match="are not places"):
        LocalProvider(tiny_model, probabilities="slot")


async def test_filters_reach_the_draw_and_the_fingerprint(tiny_model: Path, provider: LocalProvider) -> None:
    """With one token to draw from, sampling writes what greedy decoding writes, as far as logits are the same."""
    asked = [request(temperature=1.5, seed=seed) for seed in range(3)]
    async with LocalProvider(tiny_model, top_k=1) as narrow:
        drawn = [done for done in await narrow.complete_many(asked) if not isinstance(done, Exception)]
        greedy = await narrow.complete_json(request())
        keys = {narrow.settings_key, provider.settings_key}
    wide = [done for done in await provider.complete_many(asked) if not isinstance(done, Exception)]

    assert len({done.text for done in drawn}) < len({done.text for done in wide}) == 3
    assert drawn[0].fingerprint != wide[0].fingerprint
    assert greedy.fingerprint == (await provider.complete_json(request())).fingerprint
    assert sum(done.stats["fell_back"] for done in drawn) > 0
    assert len(keys) == 2


@pytest.mark.parametrize(("name", "value"), [("top_k", -1), ("top_p", 1.1), ("min_p", float("nan"))])
def test_filters_that_cannot_be_meant(tiny_model: Path, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        LocalProvider(tiny_model, **{name: value})


THINKER = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}{% if not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)


async def test_a_thinking_model_thinks_under_its_budget(tiny_model: Path) -> None:
    prints, keys = set(), set()
    for thinking in (0, 25):
        async with LocalProvider(tiny_model, chat_template=THINKER, thinking=thinking) as thinker:
            response = await thinker.complete_json(request(temperature=1.0))
            facts = await thinker.facts()
        assert set(response.json) == set(SHORT["properties"])
        assert response.usage is not None
        assert response.stats["thought"] <= thinking
        assert (response.stats["thought"] > 0) == (thinking > 0)
        assert response.usage.output_tokens > response.stats["thought"]
        assert [note.detail for note in response.notes] == list(facts.notes)
        assert "thinking model" in facts.notes[0]
        assert facts.thinks
        prints.add(response.fingerprint)
        keys.add(thinker.settings_key)

    assert len(prints) == len(keys) == 2


async def test_a_model_that_does_not_think_is_not_let(tiny_model: Path) -> None:
    async with LocalProvider(tiny_model, thinking=5) as plain:
        with pytest.raises(UsageError, match="no template of a model that thinks"):
            await plain.complete_json(request())


@pytest.mark.live
async def test_the_real_model_thinks_where_a_template_lets_it(live_model: Path) -> None:
    """One that was never taught to: it writes on until it is stopped, and answers all the same."""
    async with LocalProvider("smollm2-135m", chat_template=THINKER, thinking=30) as real:
        result = await judge_claim(real, "The sky is blue. Grass is green.", "The sky is blue.", runs=2)

    assert result.votes.errors == 0
    for run in result.runs:
        assert run.probabilities is not None
        assert list(run.probabilities) == ["before", "slot"]
        assert any("thinks for at most 30 tokens" in note.detail for note in run.notes)
