"""Hostile schemas are compiled or refused, with a reason, within moments; none crashes."""

import json
import time
import tracemalloc

import pytest

from grammar.hostile import HOSTILE
from judge_local.errors import SchemaError, UnsupportedSchemaError
from judge_local.grammar import compile_schema

SECONDS = 10
"""Ten times what is asked for: a guard against hanging, not a measure."""


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_ends_soon(name):
    began = time.monotonic()
    outcome = outcome_of(HOSTILE[name])

    assert time.monotonic() - began < SECONDS
    if isinstance(outcome, UnsupportedSchemaError):
        assert all(fault.keyword and fault.reason and fault.hint for fault in outcome.faults)
    else:
        assert isinstance(outcome, SchemaError) or outcome.startswith("root ::= ")


def outcome_of(source):
    """The grammar of a schema, or the error that refuses it."""
    try:
        return compile_schema(source).gbnf
    except SchemaError as error:
        return error


def test_the_memory_stays_small():
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedSchemaError):
            compile_schema(HOSTILE["exponential states"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 200 * 2**20


def test_five_hundred_properties_half_of_them_optional():
    """The grammar is linear in the keys: twice as many make it about twice as long."""
    sizes = []
    for count in (250, 500):
        names = [f"property_{number}" for number in range(count)]
        schema = {
            "type": "object",
            "properties": {n: {"type": "string"} for n in names},
            "required": names[::2],
        }
        grammar = compile_schema(json.dumps(schema))
        sizes.append(len(grammar.gbnf))
        text = json.dumps(dict.fromkeys(names[::2], "x"), separators=(",", ":"))

        assert grammar.accepts(text)
        assert not grammar.accepts(text.replace('"property_0":"x",', ""))
    assert sizes[1] < 2.5 * sizes[0]
