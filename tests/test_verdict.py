"""What is a verdict, and which schemas can only yield one."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from judge_local.errors import InvalidSchemaError, UsageError, VerdictSchemaError
from judge_local.verdict import (
    VERDICT_FIELDS,
    VERDICT_SCHEMA,
    JudgeVerdict,
    Match,
    check_verdict_schema,
    match_options,
)

VECTORS = json.loads((Path(__file__).parent / "data" / "decision-core.json").read_text())


def canonical() -> dict[str, Any]:
    return copy.deepcopy(dict(VERDICT_SCHEMA))


def changed(path: str, value: Any = None) -> dict[str, Any]:
    """The canonical schema with the place at `path` set to `value`, or taken out when it is None."""
    schema = canonical()
    *way, last = path.split(".")
    place = schema
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return schema


def without_required(name: str) -> dict[str, Any]:
    return changed("required", [field for field in VERDICT_FIELDS if field != name])


def test_the_canonical_schema_is_the_one_that_existing_caches_were_made_with():
    assert dict(VERDICT_SCHEMA) == VECTORS["verdictSchema"]
    assert list(VERDICT_SCHEMA["properties"]) == list(VECTORS["verdictSchema"]["properties"])


def test_the_canonical_schema_passes_the_guard():
    check_verdict_schema(VERDICT_SCHEMA)

    assert match_options(VERDICT_SCHEMA) == ("pass", "fail", "partial")


REFUSED = {
    **{f"{name} not required": (without_required(name), name) for name in VERDICT_FIELDS},
    **{f"{name} missing": (changed(f"properties.{name}"), name) for name in VERDICT_FIELDS},
    **{
        f"{name} of any type": (changed(f"properties.{name}", {"description": "?"}), name)
        for name in VERDICT_FIELDS
    },
    **{f"{name} is true": (changed(f"properties.{name}", True), name) for name in VERDICT_FIELDS},
    **{
        f"{name} nullable": (changed(f"properties.{name}.type", ["string", "null"]), name)
        for name in ("claim", "observed", "reasoning")
    },
    "claim a number": (changed("properties.claim.type", "number"), "claim"),
    "a strange option": (changed("properties.match.enum", ["pass", "fail", "unclear"]), "match"),
    "an option in capitals": (changed("properties.match.enum", ["PASS", "FAIL"]), "match"),
    "a null option": (changed("properties.match.enum", ["pass", "fail", None]), "match"),
    "nothing to decide": (changed("properties.match.enum", ["pass"]), "match"),
    "one option twice": (changed("properties.match.enum", ["pass", "pass"]), "match"),
    "no option": (changed("properties.match.enum", []), "match"),
    "match a const": (changed("properties.match", {"const": "pass"}), "match"),
    "match a plain string": (changed("properties.match", {"type": "string"}), "match"),
    "match behind anyOf": (
        changed("properties.match", {"anyOf": [{"const": "pass"}, {"const": "fail"}]}),
        "match",
    ),
    "confidence without lower bound": (changed("properties.confidence.minimum"), "confidence"),
    "confidence without upper bound": (changed("properties.confidence.maximum"), "confidence"),
    "confidence up to 100": (changed("properties.confidence.maximum", 100), "confidence"),
    "confidence below zero": (changed("properties.confidence.minimum", -0.1), "confidence"),
    "confidence a string": (changed("properties.confidence.type", "string"), "confidence"),
    "confidence nullable": (changed("properties.confidence.type", ["number", "null"]), "confidence"),
    "confidence bounded by NaN": (changed("properties.confidence.maximum", float("nan")), "confidence"),
    "confidence bounded by true": (changed("properties.confidence.maximum", True), "confidence"),
    "confidence an enum too wide": (changed("properties.confidence", {"enum": [0, 2]}), "confidence"),
    "not an object": (changed("type"), "object"),
    "an object or null": (changed("type", ["object", "null"]), "object"),
    "a field abroad": (
        changed("properties.match", {"$ref": "https://example.com/match.json"}),
        "match",
    ),
    "a field nowhere": (changed("properties.match", {"$ref": "#/$defs/none"}), "match"),
    "a field behind a dynamic reference": (
        changed("properties.match", {"$dynamicRef": "#match", "enum": ["pass", "fail"]}),
        "match",
    ),
    "a field that is itself": (
        changed("properties.match", {"$ref": "#/properties/match", "enum": ["pass", "fail"]}),
        "match",
    ),
    "properties a list": (changed("properties", ["claim"]), "claim"),
    "required a word": (changed("required", "claim"), "claim"),
}


@pytest.mark.parametrize(("schema", "name"), REFUSED.values(), ids=REFUSED)
def test_a_schema_that_need_not_yield_a_verdict_is_refused_by_the_name_of_the_field(schema, name):
    with pytest.raises(VerdictSchemaError) as caught:
        check_verdict_schema(schema)

    assert name in str(caught.value)
    assert caught.value.exit_code == 2


def behind_definitions() -> dict[str, Any]:
    schema = canonical()
    schema["$defs"] = schema.pop("properties")
    schema["properties"] = {name: {"$ref": f"#/$defs/{name}"} for name in VERDICT_FIELDS}
    return schema


def wholly_referred() -> dict[str, Any]:
    return {"$ref": "#/$defs/verdict", "$defs": {"verdict": canonical() | {"$id": "my:verdict:1"}}}


def by_anchor() -> dict[str, Any]:
    schema = changed("properties.match", {"$ref": "#match"})
    schema["$defs"] = {"m": {"$anchor": "match", "enum": ["fail", "pass"]}}
    return schema


def in_parts() -> dict[str, Any]:
    return {"allOf": [canonical(), {"properties": {"match": {"enum": ["fail", "pass"]}}}]}


ACCEPTED = {
    "other words": (changed("properties.claim.description", "The rule."), ("pass", "fail", "partial")),
    "two options": (changed("properties.match.enum", ["fail", "pass"]), ("fail", "pass")),
    "a bounded claim": (changed("properties.claim.maxLength", 80), ("pass", "fail", "partial")),
    "tighter confidence": (changed("properties.confidence.minimum", 0.5), ("pass", "fail", "partial")),
    "open bounds": (
        changed("properties.confidence", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        ("pass", "fail", "partial"),
    ),
    "listed confidence": (
        changed("properties.confidence", {"enum": [0, 0.5, 1]}),
        ("pass", "fail", "partial"),
    ),
    "one more property": (changed("properties.severity", {"type": "integer"}), ("pass", "fail", "partial")),
    "no $schema": (changed("$schema"), ("pass", "fail", "partial")),
    "an older dialect": (
        changed("$schema", "http://json-schema.org/draft-07/schema#"),
        ("pass", "fail", "partial"),
    ),
    "a further condition": (changed("anyOf", [{"required": ["claim"]}]), ("pass", "fail", "partial")),
    "fields behind $ref": (behind_definitions(), ("pass", "fail", "partial")),
    "the whole behind $ref": (wholly_referred(), ("pass", "fail", "partial")),
    "an anchor": (by_anchor(), ("fail", "pass")),
    "allOf": (in_parts(), ("pass", "fail")),
}


@pytest.mark.parametrize(("schema", "options"), ACCEPTED.values(), ids=ACCEPTED)
def test_a_schema_that_can_only_yield_verdicts_is_accepted(schema, options):
    Draft202012Validator.check_schema(schema)

    assert match_options(schema) == options


def test_in_older_dialects_a_reference_hides_what_stands_beside_it():
    """Draft 7 validators ignore the enum here, so any string would come through."""
    schema = changed("$schema", "http://json-schema.org/draft-07/schema#")
    schema["properties"]["match"] = {"$ref": "#/definitions/any", "enum": ["pass", "fail"]}
    schema["definitions"] = {"any": {"type": "string"}}

    with pytest.raises(VerdictSchemaError, match="match"):
        check_verdict_schema(schema)


def test_const_is_no_keyword_before_draft_6():
    schema = changed("$schema", "http://json-schema.org/draft-04/schema#")
    schema["properties"]["claim"] = {"const": "the claim"}

    with pytest.raises(VerdictSchemaError, match="claim"):
        check_verdict_schema(schema)


@pytest.mark.parametrize("schema", [[], "text", None, {"$schema": "https://example.com/my-dialect"}])
def test_what_is_no_schema_of_a_known_dialect_is_refused(schema):
    with pytest.raises(InvalidSchemaError, match="schema"):
        check_verdict_schema(schema)


WORDS = st.sampled_from([*VERDICT_FIELDS, "pass", "fail", "partial", "note", "unclear"])
VALUES = st.one_of(WORDS, st.none(), st.booleans(), st.sampled_from([-1, 0, 0.5, 1, 2]))
BOUNDS = st.sampled_from([-1, 0, 0.5, 1, 100])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "number", "integer", ["number"], ["string", "null"]]),
        "enum": st.lists(VALUES, min_size=1, max_size=4),
        "const": VALUES,
        "minimum": BOUNDS,
        "maximum": BOUNDS,
        "exclusiveMinimum": BOUNDS,
        "exclusiveMaximum": BOUNDS,
    },
)


@given(st.sampled_from(VERDICT_FIELDS), FIELDS, VALUES)
def test_whatever_is_valid_under_an_accepted_schema_is_a_verdict(name, field, value):
    """The promise of the guard, for a field of any shape and any value: `from_json` never fails behind it."""
    schema = changed(f"properties.{name}", field)
    try:
        check_verdict_schema(schema)
    except VerdictSchemaError:
        return
    answer = {
        "claim": "c",
        "observed": "o",
        "match": "fail",
        "confidence": 0.5,
        "reasoning": "r",
        name: value,
    }
    if Draft202012Validator(schema).is_valid(answer):
        assert JudgeVerdict.from_json(answer).to_json() == answer


ANSWER = {"claim": "c", "observed": "o", "match": "partial", "confidence": 1, "reasoning": "r"}


def test_a_verdict_keeps_what_a_schema_of_ones_own_adds():
    answer = {**ANSWER, "severity": 3, "tags": ["a"]}

    verdict = JudgeVerdict.from_json(answer)

    assert verdict.match is Match.PARTIAL
    assert dict(verdict.extra) == {"severity": 3, "tags": ["a"]}
    assert json.dumps(verdict.to_json()) == json.dumps(answer)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), float("inf"), True, "0.9", None])
def test_confidence_is_a_number_within_0_and_1(confidence):
    with pytest.raises(UsageError, match="confidence"):
        JudgeVerdict.from_json({**ANSWER, "confidence": confidence})


@pytest.mark.parametrize("match", ["PASS", "maybe", None, 1, ["pass"]])
def test_match_is_one_of_three_words(match):
    with pytest.raises(UsageError, match="match"):
        JudgeVerdict.from_json({**ANSWER, "match": match})


@pytest.mark.parametrize("name", VERDICT_FIELDS)
def test_every_field_of_a_verdict_must_be_there(name):
    with pytest.raises(UsageError, match=name):
        JudgeVerdict.from_json({key: value for key, value in ANSWER.items() if key != name})
