"""Set equality: of a small world of values, a grammar admits exactly those that are valid, whatever the schema says."""

import json
from functools import cache

import pytest
from jsonschema import Draft202012Validator

from grammar.tiny_schemas import ATOMS, COUNT, says_so, schemas, text_of, world
from judge_local.errors import UnsatisfiableSchemaError, UnsupportedSchemaError
from judge_local.grammar import compile_schema

SCHEMAS = schemas()
WORLD = [(value, text_of(value)) for value in world()]


@cache
def judged(number):
    """The values that are valid, those that are accepted, and whether the compiler says that some are left out."""
    schema = SCHEMAS[number]
    validator = Draft202012Validator(schema)
    valid = {text for value, text in WORLD if validator.is_valid(value)}
    grammar = compile_schema(json.dumps(schema))
    accepted = {text for _, text in WORLD if grammar.accepts(text)}
    lossy = says_so(grammar.report)
    return valid, accepted, lossy


@pytest.mark.parametrize("number", range(COUNT))
def test_exactly_the_valid_values_are_accepted(number):
    schema = SCHEMAS[number]
    try:
        valid, accepted, lossy = judged(number)
    except UnsatisfiableSchemaError:
        assert not any(Draft202012Validator(schema).is_valid(value) for value, _ in WORLD), schema
        return
    except UnsupportedSchemaError:
        return  # How many these are is held down below.

    assert accepted <= valid, (schema, sorted(accepted - valid))
    assert lossy or accepted == valid, (schema, sorted(valid - accepted))


def test_few_of_them_are_refused_or_lossy():
    """The test above is worth something only if most schemas are held to equality."""
    refused = lossy = 0
    for number in range(COUNT):
        try:
            lossy += judged(number)[2]
        except UnsatisfiableSchemaError:
            continue
        except UnsupportedSchemaError:
            refused += 1

    assert len(ATOMS) < COUNT
    assert refused <= COUNT // 20
    assert lossy <= COUNT // 8
