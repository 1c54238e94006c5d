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
