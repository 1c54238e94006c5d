"""What each rule of the compiler says, held to the validator: the texts of the zoo, and random ones of its grammars."""

import json
from random import Random

import pytest

from grammar.derivations import Deriver, RepeatedKeyError, unique
from grammar.zoo import ZOO, validator_of
from judge_local.grammar import compile_schema
from judge_local.grammar.parse import canonical, read_schema

TEXTS = 10_000 // len(ZOO) + 1


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo(name):
    case = ZOO[name]
    grammar, validator = compile_schema(json.dumps(case.schema)), validator_of(case.schema)
    for text in case.accepted:
        assert validator.is_valid(json.loads(text)), text
        assert grammar.accepts(text), text
    for text in case.refused:
        assert not grammar.accepts(text), text
    assert any(row.pointer == "" for row in grammar.report.entries) or case.schema is True


@pytest.mark.parametrize("name", ZOO)
def test_whatever_is_derived_is_valid(name):
    """Ten thousand texts in all; a repeated key is what a grammar cannot exclude, and nothing else may be wrong."""
    case = ZOO[name]
    grammar, validator = compile_schema(json.dumps(case.schema)), validator_of(case.schema)
    deriver, random = Deriver(grammar.gbnf, enough=200), Random(name)
    repeated = any(row.keyword == "additionalProperties" for row in grammar.report.checked)
    for _ in range(TEXTS):
        text = deriver.draw(random)
        try:
            value = json.loads(text, object_pairs_hook=unique, parse_constant=pytest.fail)
        except RepeatedKeyError:
            assert repeated, text
            continue

        assert list(validator.iter_errors(value)) == [], text
        assert grammar.max_bytes is None or len(text.encode()) <= grammar.max_bytes
        assert grammar.min_bytes <= len(text.encode())


@pytest.mark.parametrize("name", ZOO)
def test_every_keyword_of_the_zoo_has_a_row(name):
    """Nothing is dropped in silence: every keyword that can be reached is in the report."""
    schema = ZOO[name].schema
    if not isinstance(schema, dict):
        return
    rows = {(row.pointer, row.keyword) for row in compile_schema(json.dumps(schema)).report.entries}

    assert {("", keyword) for keyword in schema} <= rows


def test_the_order_of_definitions_changes_nothing():
    one = {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/b"}}}, "b": {"type": "null"}},
    }
    other = one | {"$defs": dict(reversed(one["$defs"].items()))}

    assert compile_schema(one).gbnf == compile_schema(other).gbnf


def test_the_canonical_text_is_what_a_grammar_takes():
    value = {"a": [1, {"b": "é\n"}], "c": None}

    assert compile_schema({}).accepts(canonical(read_schema(value)))
