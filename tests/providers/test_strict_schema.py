"""Strict mode: what a schema becomes, what is left out of it, and answers taken back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from judge_local.providers.strict_schema import arrange, response_schema, without_made_up_nulls
from judge_local.verdict import VERDICT_SCHEMA


def of(properties, **more):
    return {"type": "object", "properties": properties, **more}


def test_the_verdict_is_strict_as_it_stands():
    schema, strict = response_schema(VERDICT_SCHEMA)

    assert strict
    assert schema["required"] == list(schema["properties"]) == VERDICT_SCHEMA["required"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["confidence"] == VERDICT_SCHEMA["properties"]["confidence"]
    assert schema["title"] == VERDICT_SCHEMA["title"]
    assert not {"$schema", "$id"} & schema.keys()
    json.dumps(schema)


def test_what_may_be_left_out_becomes_required_and_nullable():
    schema, strict = response_schema(
        of({"a": {"type": "string"}, "b": {"type": ["integer", "null"]}, "c": {}}, required=["a"])
    )

    assert strict
    assert schema["required"] == ["a", "b", "c"]
    assert schema["properties"] == {
        "a": {"type": "string"},
        "b": {"type": ["integer", "null"]},
        "c": {},
    }
    assert response_schema(of({"a": {"type": "string"}}))[0]["properties"]["a"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }


@pytest.mark.parametrize(
    "keyword", ["minLength", "maxLength", "default", "examples", "$comment", "deprecated"]
)
def test_what_strict_mode_refuses_and_the_validator_holds_is_left_out(keyword):
    schema, strict = response_schema(of({"a": {"type": "string", keyword: 1}}, required=["a"]))

    assert strict
    assert schema["properties"]["a"] == {"type": "string"}


def test_forms_that_strict_mode_says_otherwise():
    schema, strict = response_schema(
        of(
            {
                "a": {"const": 1},
                "b": {"oneOf": [{"type": "string"}, {"type": "null"}]},
                "c": {"type": "array", "items": of({"d": {"$ref": "#/$defs/e"}}, required=["d"])},
            },
            required=["a", "b", "c"],
            **{"$defs": {"e": of({"f": {"type": "string", "maxLength": 3}}, required=["f"])}},
        )
    )

    assert strict
    assert schema["properties"]["a"] == {"enum": [1]}
    assert schema["properties"]["b"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schema["properties"]["c"]["items"]["additionalProperties"] is False
    assert schema["$defs"]["e"]["properties"]["f"] == {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"anyOf": [of({"a": {}})]},
        of({}),
        of({"a": {}}, additionalProperties={"type": "string"}),
        of({"a": {}}, required=["b"]),
        of({"a": {"not": {"type": "string"}}}),
        of({"a": {"allOf": [{"type": "string"}]}}),
        of({"a": {"type": "object"}}),
        of({"a": True}),
        of({"a": {}}, patternProperties={"^x": {}}),
        of({"a": {"type": "array", "prefixItems": [{}]}}),
    ],
    ids=str,
)
def test_a_schema_whose_meaning_would_be_lost_is_sent_as_it_is(schema):
    assert response_schema(schema) == (schema, False)


def test_order_and_pins_are_of_the_top_level_only():
    schema = arrange(
        VERDICT_SCHEMA, order=["match", "claim", "nothing"], pinned={"claim": "c", "nothing": "n"}
    )

    assert list(schema["properties"]) == ["match", "claim", "observed", "confidence", "reasoning"]
    assert schema["properties"]["claim"]["enum"] == ["c"]
    assert "nothing" not in schema["properties"]
    assert "enum" not in VERDICT_SCHEMA["properties"]["claim"]


LEAF = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": ["string", "null"]}, {"enum": ["x", None]}]
)


@st.composite
def schemas(draw, depth=2):
    """Objects with optional and required properties, in objects and lists."""
    kinds = [LEAF] if depth == 0 else [LEAF, schemas(depth=depth - 1)]
    properties = draw(st.dictionaries(st.sampled_from("abc"), st.one_of(*kinds), min_size=1))
    for name in draw(st.sets(st.sampled_from(sorted(properties)))):
        if depth:
            properties[name] = {"type": "array", "items": properties[name]}
    required = sorted(draw(st.sets(st.sampled_from(sorted(properties)))))
    return of(properties, required=required, additionalProperties=False)


@st.composite
def instances(draw, schema):
    """An instance of a strict schema from `schemas`."""
    if "anyOf" in schema:
        return draw(st.one_of(*(instances(member) for member in schema["anyOf"])))
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    kind = draw(st.sampled_from(schema["type"])) if isinstance(schema["type"], list) else schema["type"]
    if kind == "object":
        return {name: draw(instances(member)) for name, member in schema["properties"].items()}
    if kind == "array":
        return draw(st.lists(instances(schema["items"]), max_size=2))
    return {"string": "s", "integer": 7, "null": None}[kind]


@given(st.data(), schemas())
def test_whatever_strict_mode_admits_is_valid_once_its_nulls_are_taken_out(data, schema):
    strict, is_strict = response_schema(schema)
    answer = data.draw(instances(strict))

    assert is_strict
    assert Draft202012Validator(strict).is_valid(answer)
    assert Draft202012Validator(schema).is_valid(without_made_up_nulls(answer, schema))


def test_a_null_that_the_schema_knows_stays():
    schema = of(
        {"a": {"type": ["string", "null"]}, "b": {"$ref": "#/$defs/n"}, "c": {}, "d": {"type": "string"}},
        **{"$defs": {"n": {"type": "null"}}},
    )
    answer = {"a": None, "b": None, "c": None, "d": None, "e": None}

    assert without_made_up_nulls(answer, schema) == {"a": None, "b": None, "c": None, "e": None}
