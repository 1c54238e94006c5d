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


def test_a_divisor_of_2000_remainders_is_followed_and_one_of_more_is_refused():
    bounds = {"type": "integer", "minimum": 0, "maximum": 9999}
    grammar = compile_schema(bounds | {"multipleOf": 2000})
    tried = [*range(0, 10001, 250), *range(1, 10000, 999)]

    assert [value for value in tried if grammar.accepts(str(value))] == [0, 2000, 4000, 6000, 8000]
    with pytest.raises(
        UnsupportedSchemaError, match="multipleOf 2001: a divisor has more than 2000 remainders"
    ):
        compile_schema(bounds | {"multipleOf": 2001})


def test_a_divisor_beyond_what_floats_count_is_listed():
    grammar = compile_schema({"type": "integer", "multipleOf": 10**15})

    assert all(grammar.accepts(str(times * 10**15)) for times in range(-1000, 1001))
    assert not any(
        grammar.accepts(str(value)) for value in (1, 10**14, 10**15 + 1, 10**16 - 1, 1001 * 10**15)
    )


@pytest.mark.parametrize(
    ("low", "high", "nearest"),
    [(None, None, 0), (None, -150, -150), (100, None, 100), (-50, 50, 0), (-5000, 5000, 0)],
)
def test_far_from_zero_and_between_wide_bounds_there_are_multiples_too(low, high, nearest):
    schema = {"type": "number", "multipleOf": 0.01}
    schema |= {} if low is None else {"minimum": low}
    schema |= {} if high is None else {"maximum": high}
    grammar = compile_schema(schema)

    for value in (-5000, -150.5, -150, -50, -2.5, 0, 0.25, 7.5, 50, 100, 110.5, 5000):
        inside = (low is None or value >= low) and (high is None or value <= high)
        assert inside or not grammar.accepts(f"{value:g}"), value
    assert grammar.accepts(f"{nearest}")
    assert grammar.accepts(f"{nearest - 2.5 if nearest < 0 else nearest + 2.5}")
    assert ("multipleOf", "at most 2001 values, those nearest to zero that floats take for multiples") in {
        (row.keyword, row.detail) for row in grammar.report.narrowed
    }


def test_a_divisor_that_floats_hold_is_not_said_to_be_listed():
    assert "multipleOf" not in {
        row.keyword for row in compile_schema({"type": "number", "multipleOf": 0.25}).report.narrowed
    }


def test_no_more_digits_than_floats_keep_apart():
    sevens = compile_schema({"type": "integer", "multipleOf": 7})
    halves = compile_schema({"type": "number", "multipleOf": 0.5})

    assert [size for size in range(1, 18) if sevens.accepts("7" * size)] == list(range(1, 16))
    for before in range(1, 17):
        found = [after for after in range(9) if halves.accepts("1" * before + ".5000000000"[: after + 1])]
        assert found == list(range(1, min(6, 15 - before) + 1)), before


@pytest.mark.parametrize("schema", [{"multipleOf": 2001}, {"not": {"multipleOf": 0.01}}])
def test_what_cannot_be_followed_is_refused(schema):
    with pytest.raises(UnsupportedSchemaError, match=r"multipleOf|not"):
        compile_schema({"type": "number", **schema})


@pytest.mark.parametrize("sign", [1, -1])
def test_of_a_step_that_floats_do_not_hold_the_nearest_2000_are_written(sign):
    bound = {"minimum": 0} if sign > 0 else {"maximum": 0}
    grammar = compile_schema({"type": "number", "multipleOf": 0.1, **bound})

    assert grammar.accepts(f"{sign * 200}")
    assert grammar.accepts(f"{sign * 199.9}")
    assert not grammar.accepts(f"{sign * 200.1}")


@pytest.mark.parametrize(
    ("divisor", "reason"), [(2000, "more than 8000 states"), (2001, "more than 2000 remainders")]
)
def test_a_divisor_that_takes_too_many_states_is_refused_and_one_that_must_is_not_tried(divisor, reason):
    with pytest.raises(UnsupportedSchemaError, match=reason):
        compile_schema({"type": "integer", "multipleOf": divisor})
