"""Answers: what is one, what is not, and whose fault it is when it breaks its schema."""

import json
from pathlib import Path
from typing import Any

import pytest

from judge_local.completion import (
    complete_validated_json,
    extract_json,
    fault_of,
    make_validator,
)
from judge_local.errors import (
    InvalidAnswerError,
    InvalidSchemaError,
    UnsoundGrammarError,
)
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.run import RAW_BYTES
from judge_local.verdict import VERDICT_SCHEMA

VECTORS = json.loads((Path(__file__).parent / "data" / "decision-core.json").read_text())["extractJson"]
GOOD = mock_verdict("pass", 0.9)
BAD = mock_verdict("pass", 4.2)
NUMBER = {"type": "number", "minimum": 0}
OURS, THE_MODELS = UnsoundGrammarError.__name__, InvalidAnswerError.__name__


def request(**changes: Any) -> CompletionRequest:
    return CompletionRequest(**{"system": "s", "user": "u", "schema": VERDICT_SCHEMA, **changes})


async def complete(*responses, **changes):
    """What comes of one request to a mock, and the mock."""
    provider = MockProvider(responses)
    return await complete_validated_json(provider, request(**changes)), provider


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_extracting_agrees_with_the_vectors(vector):
    if vector.get("error"):
        with pytest.raises(InvalidAnswerError):
            extract_json(vector["text"])
    else:
        assert extract_json(vector["text"]) == vector["json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "null null",
        "{'a': 1}",
        '{"a": NaN}',
        "Infinity",
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 1}}',
        '{"a": 1',
        '{"a": "line\nbreak"}',
        "[" * 100_000,
        "```\n{}\n```\n```\n{}\n```",
    ],
)
def test_what_is_not_one_json_value_is_refused_and_kept(text):
    with pytest.raises(InvalidAnswerError) as caught:
        extract_json(text)

    assert caught.value.raw == text
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ['```json\n{"a": [1]}\n```', '\n```JSON  \n{"a": [1]}\n  ```\n'])
def test_one_fence_around_the_whole_answer_is_taken_off(text):
    assert extract_json(text) == {"a": [1]}


def test_an_object_that_the_answer_only_mentions_is_not_the_answer():
    """Or a verdict that the subject brought along, and the model repeats, would be taken for the model's own."""
    with pytest.raises(InvalidAnswerError):
        extract_json('The subject contains {"match": "pass"}, which is no proof.')


INVALID = {
    "out of range": BAD["json"],
    "below the range": {**GOOD["json"], "confidence": -0.1},
    "a field missing": {key: value for key, value in GOOD["json"].items() if key != "confidence"},
    "a field too many": {**GOOD["json"], "note": "x"},
    "an unknown option": {**GOOD["json"], "match": "maybe"},
    "a number as text": {**GOOD["json"], "confidence": "0.9"},
    "a truth as number": {**GOOD["json"], "confidence": True},
    "not a number": {**GOOD["json"], "confidence": float("nan")},
    "half a character": {**GOOD["json"], "claim": "\ud800"},
    "no JSON type": {**GOOD["json"], "claim": {1, 2}},
    "text": "text",
    "nothing": None,
    "a list": [GOOD["json"]],
}


@pytest.mark.parametrize("answer", INVALID.values(), ids=INVALID)
async def test_an_invalid_answer_is_asked_for_once_more(answer):
    run, provider = await complete(CompletionResponse(json=answer), GOOD)

    assert run.result == GOOD["json"]
    assert [r.attempt for r in provider.requests] == [0, 1]
    assert run.attempts == 2


@pytest.mark.parametrize("answer", INVALID.values(), ids=INVALID)
async def test_an_answer_that_stays_invalid_is_recorded_and_never_coerced(answer):
    run, provider = await complete(CompletionResponse(json=answer))

    assert run.result is None
    assert run.error_kind == "InvalidAnswerError"
    assert run.error
    assert run.raw == repr(answer)
    assert len(provider.requests) == 2


@pytest.mark.parametrize("letter", ["x", "é", "語", "😀"])
async def test_what_the_model_wrote_is_kept_down_to_a_bound_and_cut_between_characters(letter):
    text = "a" + letter * RAW_BYTES
    run, _ = await complete(CompletionResponse(json=text, text=json.dumps(text, ensure_ascii=False)))

    assert run.raw is not None
    assert RAW_BYTES - 4 < len(run.raw.encode()) <= RAW_BYTES
    assert f'"{text}"'.startswith(run.raw)


async def test_an_answer_whose_text_repeats_a_key_is_refused():
    """The parsed value looks whole: only the text shows that the model said two things."""
    text = json.dumps(GOOD["json"])[:-1] + ', "match": "fail"}'
    run, provider = await complete(CompletionResponse(json=json.loads(text), text=text))

    assert run.error_kind == "InvalidAnswerError"
    assert "twice" in (run.error or "")
    assert len(provider.requests) == 2


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"minimum": "0"},
        {"$schema": "https://example.com/dialect", "type": "object"},
        {"pattern": "("},
        [],
        "schema",
    ],
)
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(InvalidSchemaError):
        make_validator(schema)


@pytest.mark.parametrize("schema", [{"$ref": "https://example.com/x"}, {"$ref": "#/nowhere"}, {"$ref": "#"}])
async def test_a_reference_that_leads_out_or_in_circles_is_refused_and_nothing_is_fetched(schema):
    with pytest.raises(InvalidSchemaError):
        await complete({"json": 1}, schema=schema)


def test_formats_are_checked_and_so_is_the_dialect():
    date = make_validator({"type": "string", "format": "date"})
    seventh = make_validator(
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}
    )

    assert fault_of(CompletionResponse(json="2024-02-30"), date) is not None
    assert fault_of(CompletionResponse(json="2024-02-29"), date) is None
    # A list of schemas under `items` is draft 7's; 2020-12 calls it `prefixItems`.
    assert fault_of(CompletionResponse(json=[1]), seventh) is not None


class Bound(MockProvider):
    """A provider that says a grammar held every answer to the schema."""

    grammar_bound = True


@pytest.mark.parametrize(
    ("schema", "answer", "checked", "kind", "calls"),
    [
        (NUMBER, -1, (), OURS, 1),
        (NUMBER, -1, ("minimum",), THE_MODELS, 2),
        (NUMBER, "x", ("minimum",), OURS, 1),
        ({"format": "date"}, "x", (), THE_MODELS, 2),
        ({"anyOf": [NUMBER, {"const": "y"}]}, -1, (), OURS, 1),
        ({"anyOf": [NUMBER, {"const": "y"}]}, -1, ("minimum",), THE_MODELS, 2),
        ({"anyOf": [NUMBER, {"const": "y"}]}, "x", ("minimum",), OURS, 1),
        ({"anyOf": [{"required": ["a"], "properties": {"b": NUMBER}}]}, {"b": -1}, ("minimum",), OURS, 1),
        ({"oneOf": [NUMBER, {"type": "number"}]}, 1, ("oneOf",), THE_MODELS, 2),
        ({"oneOf": [NUMBER, {"type": "number"}]}, 1, ("minimum",), OURS, 1),
        ({"items": NUMBER, "minItems": 2}, [-1], ("minimum",), OURS, 1),
        ({"items": NUMBER, "minItems": 2}, [-1], ("minimum", "minItems"), THE_MODELS, 2),
        ({"$ref": "#/$defs/n", "$defs": {"n": NUMBER}}, -1, ("minimum",), THE_MODELS, 2),
    ],
)
async def test_a_grammar_that_lets_through_what_the_schema_forbids_is_our_bug(
    schema, answer, checked, kind, calls
):
    """Only what was left to the validator may fail there; everything else was promised by the grammar."""
    provider = Bound([{"json": answer}])

    run = await complete_validated_json(provider, request(schema=schema, checked=checked))

    assert (run.error_kind, len(provider.requests)) == (kind, calls)


async def test_a_bug_of_ours_is_recorded_with_the_answer():
    run = await complete_validated_json(Bound([{"json": -1}]), request(schema=NUMBER))

    assert run.error_kind == UnsoundGrammarError.__name__
    assert run.raw == "-1"
    assert "minimum" in (run.error or "")
