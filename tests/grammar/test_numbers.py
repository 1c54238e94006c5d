"""Number ranges: every pair of bounds against every numeral near them, both ways."""

import json
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammar.written import written
from judge_local.errors import UnsatisfiableSchemaError
from judge_local.grammar import Matcher, compile_schema
from judge_local.grammar.emit import Rules
from judge_local.grammar.numbers import Bound, NumberFacet, number

BOUNDS = (
    None,
    *map(
        Decimal,
        [
            "-12",
            "-10",
            "-9.5",
            "-1",
            "-0.25",
            "0",
            "0.05",
            "0.1",
            "0.99",
            "1",
            "1.5",
            "2",
            "9.99",
            "10",
            "10.01",
            "19.9",
            "100",
            "105",
        ],
    ),
)
WHOLES = [
    "0",
    "1",
    "2",
    "5",
    "9",
    "10",
    "11",
    "12",
    "15",
    "19",
    "20",
    "99",
    "100",
    "101",
    "104",
    "105",
    "106",
    "110",
    "999",
]
FRACTIONS = [
    "",
    *(
        f".{digits}"
        for digits in [
            "0",
            "1",
            "5",
            "9",
            "00",
            "01",
            "05",
            "09",
            "10",
            "24",
            "25",
            "26",
            "49",
            "50",
            "51",
            "89",
            "90",
            "98",
            "99",
        ]
    ),
]
NUMERALS = [sign + whole + fraction for sign, whole, fraction in product(("", "-"), WHOLES, FRACTIONS)]
NO_NUMERALS = [
    *(
        "",
        "-",
        "+1",
        "00",
        "01",
        "-01",
        "1.",
        ".5",
        "-.5",
        "1e5",
        "1E5",
        "1.0e1",
        "0x1",
        "--1",
        " 1",
        "1 ",
        "1,0",
    ),
    *("1.000", "NaN", "Infinity", "\u0661", "1_0"),
]


def admitted(numeral, low, high, integer):
    """Whether `numeral`, in its one spelling, lies in the range."""
    value = Decimal(numeral)
    if (numeral.startswith("-") and value == 0) or (integer and "." in numeral):
        return False
    if low is not None and (value < low.value or (low.exclusive and value == low.value)):
        return False
    return high is None or not (value > high.value or (high.exclusive and value == high.value))


def matcher_of(facet):
    rules = Rules()
    body = number(rules, facet)
    return Matcher.from_gbnf(written(rules, body)[0])


def accepts(matcher, text):
    after = matcher.advance(text.encode())
    return after is not None and after.complete


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("low_exclusive", [False, True])
@pytest.mark.parametrize("high_exclusive", [False, True])
def test_exactly_the_numerals_between_the_bounds_are_accepted(low_exclusive, high_exclusive, integer):
    swept = 0
    for low_value, high_value in product(BOUNDS, BOUNDS):
        low = None if low_value is None else Bound(low_value, low_exclusive)
        high = None if high_value is None else Bound(high_value, high_exclusive)
        facet = NumberFacet(low=low, high=high, integer=integer, decimals=2).fitted()
        inside = {numeral for numeral in NUMERALS if admitted(numeral, low, high, integer)}
        if not facet.satisfiable():
            assert set() == inside
            continue
        if facet.decimals > 2:  # widened, because nothing with two decimals lies between
            assert set() == inside
            continue
        matcher = matcher_of(facet)
        swept += 1

        assert inside == {numeral for numeral in NUMERALS + NO_NUMERALS if accepts(matcher, numeral)}, facet
    assert swept > 100


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"minimum": 100}, ["100", "999999999999999"], ["99", "10", "19", "1000000000000000"]),
        ({"minimum": 105}, ["105", "110", "1000"], ["15", "104", "100"]),
        ({"maximum": -100}, ["-100", "-101", "-1000"], ["-10", "-99", "0"]),
        ({"minimum": 5, "exclusiveMinimum": 5}, ["6"], ["5"]),
        ({"maximum": 9007199254740991}, ["9007199254740991", "9", "-3"], ["9007199254740992"]),
        ({"minimum": 0, "maximum": 1e308}, ["0", "999999999999999"], ["-1"]),
        ({"minimum": 10**20}, ["1" + "0" * 20], ["9" * 20]),
        ({"minimum": 10**40}, ["1" + "0" * 40, "9" * 41], ["9" * 40]),
        ({"minimum": 0.5, "maximum": 1.5}, ["1"], ["0", "2", "1.0"]),
    ],
)
def test_integers(schema, inside, outside):
    grammar = compile_schema({"type": "integer", **schema})

    for text in inside:
        assert grammar.accepts(text), text
    for text in outside:
        assert not grammar.accepts(text), text


def test_without_bounds_the_digits_are_capped():
    grammar = compile_schema({"type": "number"})

    assert grammar.accepts("-999999999999999.999999")
    assert not grammar.accepts("1" * 16)
    assert not grammar.accepts("0.1234567")
    assert grammar.max_bytes == 23


def test_bounds_are_read_from_the_text_and_not_as_floats():
    grammar = compile_schema('{"type": "number", "exclusiveMinimum": 0.1, "maximum": 0.3}', decimals=2)

    assert not grammar.accepts("0.1")
    assert not grammar.accepts("0.10")
    assert grammar.accepts("0.11")
    assert grammar.accepts("0.30")


def test_a_range_finer_than_the_cap_gets_the_decimals_it_needs():
    grammar = compile_schema({"type": "number", "minimum": 0.001, "maximum": 0.002}, decimals=2)

    assert grammar.accepts("0.001")
    assert not grammar.accepts("0.00")
    assert not grammar.accepts("0.0015")


def test_both_bounds_may_need_the_further_decimals():
    grammar = compile_schema({"type": "number", "exclusiveMinimum": 0.99, "exclusiveMaximum": 1}, decimals=1)

    assert [n for n in range(1001) if grammar.accepts(f"0.{n:03}")] == list(range(991, 1000))


@pytest.mark.parametrize(
    "schema",
    [
        {"minimum": 2, "maximum": 1},
        {"exclusiveMinimum": 1, "maximum": 1},
        {"exclusiveMinimum": 0, "exclusiveMaximum": 1, "type": "integer"},
        {"minimum": 0.2, "maximum": 0.8, "type": "integer"},
    ],
)
def test_an_empty_range_is_refused(schema):
    with pytest.raises(UnsatisfiableSchemaError, match="no number lies between"):
        compile_schema({"type": "number"} | schema)


def test_draft_4_says_exclusive_with_a_boolean():
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "integer",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 2,
        "exclusiveMaximum": False,
    }
    grammar = compile_schema(schema)

    assert [n for n in range(-1, 4) if grammar.accepts(str(n))] == [1, 2]


DECIMALS = st.decimals(min_value=-1000, max_value=1000, places=3)


@given(low=DECIMALS, high=DECIMALS, drawn=DECIMALS, exclusive=st.booleans())
def test_any_decimal_is_accepted_if_and_only_if_it_lies_in_the_range(low, high, drawn, exclusive):
    low, high = sorted((low, high))
    facet = NumberFacet(low=Bound(low, exclusive), high=Bound(high), decimals=3).fitted()
    if facet.satisfiable():
        text = format(drawn, "f").replace("-0.000", "0.000")

        assert accepts(matcher_of(facet), text) == admitted(text, Bound(low, exclusive), Bound(high), False)
    else:
        assert low == high


def test_an_exclusive_bound_is_not_reached_when_the_numeral_is_read_as_a_float():
    """99999999999999.999999 is below 1e14, and is 1e14 as a float."""
    grammar = compile_schema({"type": "number", "exclusiveMaximum": 100000000000000})

    assert not grammar.accepts("99999999999999.999999")
    assert grammar.accepts("99999999999999")
    assert json.loads("99999999999999.999999") == 1e14


@pytest.mark.parametrize(
    ("schema", "decimals"),
    [
        ({"exclusiveMaximum": 1234567890123}, 2),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1234567890123}, 2),
        ({"exclusiveMinimum": -1234567890123, "exclusiveMaximum": 7}, 2),
        ({"minimum": 0, "maximum": 1234567890123}, 6),
        ({"exclusiveMinimum": 0}, 6),
    ],
)
def test_exclusive_bounds_with_many_digits_leave_fewer_for_the_fraction(schema, decimals):
    grammar = compile_schema({"type": "number"} | schema)
    negative = schema.get("exclusiveMinimum", 0) < 0

    for count in range(1, 8):
        numeral = ("-" if negative else "") + "5." + "1" * count
        assert (count <= decimals) == grammar.accepts(numeral), numeral


def test_bounds_longer_than_decimal_arithmetic_are_exact():
    """28 digits are where `Decimal` begins to round."""
    digits = "123456789012345678901234567890"
    grammar = compile_schema(f'{{"type": "integer", "minimum": -{digits}, "maximum": {digits}}}')

    assert [grammar.accepts(digits), grammar.accepts(f"-{digits}")] == [True, True]
    for last in "123456789":
        assert not grammar.accepts(digits[:-1] + last)
        assert not grammar.accepts("-" + digits[:-1] + last)


@pytest.mark.parametrize(("digits", "longest"), [(29, 29), (30, 30), (31, 15), (40, 15)])
def test_a_bound_of_up_to_30_digits_raises_the_cap_and_a_longer_one_does_not(digits, longest):
    grammar = compile_schema(f'{{"type": "integer", "maximum": {"9" * digits}}}')

    assert grammar.accepts("9" * longest)
    assert grammar.accepts("-" + "9" * longest)
    assert not grammar.accepts("1" + "0" * longest)
