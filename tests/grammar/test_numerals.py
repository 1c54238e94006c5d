"""Numbers under more than bounds: every numeral of a small world, held to decimal arithmetic."""

from decimal import Decimal
from itertools import product

import pytest

from judge_local.errors import UnsupportedSchemaError
from judge_local.grammar import compile_schema

WHOLES = [str(number) for number in (*range(31), 99, 100, 101, 105, 110, 995, 1000)]
NUMERALS = [
    sign + whole + fraction
    for sign, whole, fraction in product(
        ("", "-"), WHOLES, ("", ".0", ".5", ".25", ".50", ".125", ".3", ".05", ".000")
    )
]
SCHEMAS = [
    ({"type": "integer", "multipleOf": 7}, lambda x: x % 7 == 0),
    (
        {"type": "integer", "multipleOf": 7, "minimum": -20, "exclusiveMaximum": 21},
        lambda x: x % 7 == 0 and -20 <= x < 21,
    ),
    ({"type": "number", "multipleOf": 5}, lambda x: x % 5 == 0),
    ({"type": "number", "multipleOf": 0.25}, lambda x: x % Decimal("0.25") == 0),
    ({"type": "number", "multipleOf": 2.5, "maximum": 10}, lambda x: x % Decimal("2.5") == 0 and x <= 10),
    ({"type": "number", "allOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, lambda x: x % 6 == 0),
    ({"type": "number", "not": {"multipleOf": 5}, "minimum": 0}, lambda x: x % 5 != 0 and x >= 0),
    ({"type": "number", "not": {"type": "integer"}}, lambda x: x % 1 != 0),
    (
        {"type": "number", "not": {"type": "integer"}, "minimum": -1, "maximum": 1},
        lambda x: x % 1 != 0 and -1 <= x <= 1,
    ),
    ({"type": "number", "not": {"enum": [0, 10, 0.5]}}, lambda x: x not in (0, 10, Decimal("0.5"))),
    ({"type": "integer", "not": {"const": 100}, "minimum": 99, "maximum": 101}, lambda x: x in (99, 101)),
    ({"type": "number", "not": {"minimum": 10}}, lambda x: x < 10),
    ({"type": "number", "not": {"exclusiveMaximum": -1}}, lambda x: x >= -1),
    ({"type": "number", "multipleOf": 5, "not": {"multipleOf": 10}}, lambda x: abs(x) % 10 == 5),
]


@pytest.mark.parametrize(("schema", "holds"), SCHEMAS)
def test_exactly_the_numerals_that_keep_it_are_accepted(schema, holds):
    grammar = compile_schema(schema)
    accepted = 0
    for numeral in NUMERALS:
        value = Decimal(numeral)
        expected = (
            bool(holds(value))
            and not (value == 0 and numeral.startswith("-"))
            and not (schema["type"] == "integer" and "." in numeral)
        )
        accepted += expected

        assert expected == grammar.accepts(numeral), numeral
    assert 0 < accepted < len(NUMERALS)


@pytest.mark.parametrize("text", ["", "-", "0.", ".5", "00", "-0", "-0.0", "1e1", "+1", "0x1", "1.", "--1"])
def test_what_is_no_numeral_is_refused(text):
    assert not compile_schema({"type": "number", "multipleOf": 0.5}).accepts(text)


def test_what_floats_round_is_listed_and_tried():
    """19.99 / 0.01 is no whole number in floats, so a validator that reads floats would refuse it."""
    grammar = compile_schema({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 20})

    for text in ("0.5", "0.25", "0.75", "7.5"):
        assert grammar.accepts(text)
    for hundredths in range(2001):
        value = Decimal(hundredths) / 100
        if grammar.accepts(format(value, "f")):
            assert int(float(value) / 0.01) == float(value) / 0.01


@pytest.mark.parametrize("schema", [{"multipleOf": 2001}, {"not": {"multipleOf": 0.01}}])
def test_what_cannot_be_followed_is_refused(schema):
    with pytest.raises(UnsupportedSchemaError, match=r"multipleOf|not"):
        compile_schema({"type": "number", **schema})
