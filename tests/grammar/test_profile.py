"""The judge's profile: reasons first, short strings, two decimals, every key, and the golden file."""

import json

import pytest

from judge_local.errors import UsageError
from judge_local.grammar import compile_verdict
from judge_local.verdict import VERDICT_SCHEMA

ANSWER = {"claim": "c", "observed": "o", "reasoning": "r", "match": "partial", "confidence": 0.5}


def text_of(answer):
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def accepts(grammar, **changes):
    return grammar.accepts(text_of({**ANSWER, **changes}))


def test_the_golden_file_is_what_the_compiler_writes(root):
    golden = (root / "grammars" / "verdict.gbnf").read_text(encoding="utf-8")

    assert compile_verdict(VERDICT_SCHEMA).gbnf == golden, (
        "run scripts/make_grammars.py and read the difference"
    )


@pytest.mark.parametrize(("field", "most"), [("claim", 400), ("observed", 400), ("reasoning", 600)])
def test_lengths(field, most):
    grammar = compile_verdict(VERDICT_SCHEMA)

    assert [accepts(grammar, **{field: "日" * count}) for count in (0, most, most + 1)] == [True, True, False]


@pytest.mark.parametrize("numeral", ["0", "1", "0.5", "0.05", "0.95", "1.0", "1.00", "0.00"])
def test_confidence_within_0_and_1_with_two_decimals(numeral):
    assert compile_verdict(VERDICT_SCHEMA).accepts(text_of(ANSWER).replace("0.5", numeral))


@pytest.mark.parametrize(
    "numeral", ["1.01", "0.555", "-0.5", "2", "1e0", ".5", "00", "0.", "-0", "10", "null"]
)
def test_other_confidences(numeral):
    assert not compile_verdict(VERDICT_SCHEMA).accepts(text_of(ANSWER).replace("0.5", numeral))


def test_the_match_is_one_of_three():
    grammar = compile_verdict(VERDICT_SCHEMA)

    assert [
        match for match in ("pass", "fail", "partial", "Pass", "", "passed") if accepts(grammar, match=match)
    ] == ["pass", "fail", "partial"]


def test_every_key_is_written_and_none_beside_them():
    grammar = compile_verdict(VERDICT_SCHEMA)
    for name in ANSWER:
        assert not grammar.accepts(text_of({key: value for key, value in ANSWER.items() if key != name})), (
            name
        )
    assert not accepts(grammar, extra=1)


def test_reasons_come_before_the_answer():
    in_schema_order = {name: ANSWER[name] for name in VERDICT_SCHEMA["properties"]}

    assert not compile_verdict(VERDICT_SCHEMA).accepts(text_of(in_schema_order))
    assert compile_verdict(VERDICT_SCHEMA, order=list(in_schema_order)).accepts(text_of(in_schema_order))


def test_a_pinned_claim_is_forced_and_may_be_long():
    claim = 'It says "no" 😀\n' * 100
    grammar = compile_verdict(VERDICT_SCHEMA, pin={"claim": claim})

    assert accepts(grammar, claim=claim)
    assert not accepts(grammar, claim="c")
    assert grammar.forced() == text_of({"claim": claim})[:-1] + ',"observed":"'


def test_a_pin_must_be_a_property():
    with pytest.raises(UsageError, match="pin: 'clam' is not a top-level property"):
        compile_verdict(VERDICT_SCHEMA, pin={"clam": "x"})


def test_a_schema_of_ones_own():
    schema = {
        "type": "object",
        "properties": {
            "severity": {"type": "integer", "minimum": 1, "maximum": 5},
            "match": {"enum": ["pass", "fail"]},
            "claim": {"type": "string", "maxLength": 500},
            "notes": {"type": ["string", "null"]},
            "where": {"type": "object", "properties": {"line": {"type": "string"}}},
        },
        "required": ["match"],
    }
    grammar = compile_verdict(schema)
    answer = {"claim": "c" * 500, "match": "pass", "severity": 5, "notes": None, "where": {"line": "l" * 400}}

    assert grammar.accepts(text_of(answer))
    assert not grammar.accepts(text_of(answer | {"claim": "c" * 501}))
    assert not grammar.accepts(text_of(answer | {"where": {"line": "l" * 401}}))
    assert not grammar.accepts(text_of(answer | {"where": {}}))
    assert not grammar.accepts(text_of({name: answer[name] for name in schema["properties"]}))


def test_a_long_minimum_outweighs_the_profile():
    schema = {"type": "object", "properties": {"observed": {"type": "string", "minLength": 500}}}

    assert compile_verdict(schema).accepts(text_of({"observed": "x" * 500}))


def test_what_is_narrowed_is_said():
    details = {(row.place, row.detail) for row in compile_verdict(VERDICT_SCHEMA).report.narrowed}

    assert {
        ("/claim", "at most 400 characters"),
        ("/observed", "at most 400 characters"),
        ("/reasoning", "at most 600 characters"),
        ("", "keys in the order claim, observed, reasoning, match, confidence"),
    } <= details


def test_the_longest_answer_is_known():
    grammar = compile_verdict(VERDICT_SCHEMA, pin={"claim": "c"})
    fixed = len('{"claim":"c","observed":"","reasoning":"","match":"partial","confidence":0.00}')

    assert grammar.max_bytes == fixed + 6 * 1000
