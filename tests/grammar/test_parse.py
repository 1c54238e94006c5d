"""Reading a schema: exact numbers, ordered keys, nothing that JSON does not have."""

import json
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.errors import InvalidSchemaError
from judge_local.grammar.parse import MAX_NESTING, canonical, is_text, number_text, read_schema, to_plain


class Colour(StrEnum):
    RED = "red"


def test_numbers_are_exact():
    assert {"a": Decimal("0.1"), "b": Decimal("1e2")} == read_schema('{"a": 0.1, "b": 1e2}')


def test_a_float_counts_as_its_repr():
    assert {"a": Decimal("0.1")} == read_schema({"a": 0.1})


def test_a_whole_number_of_any_length_is_read():
    digits = "9" * 300

    assert {"a": Decimal(digits)} == read_schema(f'{{"a": {digits}}}')


def test_booleans_are_no_numbers():
    assert read_schema({"a": True})["a"] is True


def test_keys_keep_their_order():
    assert list(read_schema('{"b": 1, "a": 2}')) == ["b", "a"]


@pytest.mark.parametrize("value", [MappingProxyType({"enum": ("red",)}), {"enum": [Colour.RED]}])
def test_mappings_sequences_and_enumerations_are_read_as_json(value):
    assert read_schema(value) == {"enum": ["red"]}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1', "line 1, column 8"),
        ("", "not JSON"),
        ('{"a": "\\ud800"}', "lone surrogate"),
        ('{"\\udc00": 1}', "lone surrogate"),
        ('{"a": 1e999}', "out of range"),
        ('{"a": 1e-999}', "out of range"),
        ('{"a": 0e999999999}', "out of range"),
        ("[" * (MAX_NESTING + 2) + "]" * (MAX_NESTING + 2), "nested deeper"),
        ("[" * 100_000, "nested deeper"),
        ({"a": float("nan")}, "nan is not JSON"),
        ({"a": {1: 2}}, "the key '1' is not a string"),
        ({"a": {1, 2}}, "is not a JSON value"),
        ({"a": b"x"}, "is not a JSON value"),
        (7, "neither JSON text nor a mapping"),
    ],
)
def test_what_json_does_not_have_is_refused(source, says):
    with pytest.raises(InvalidSchemaError, match=says):
        read_schema(source)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("-0.00", "0"),
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("1e3", "1000"),
        ("-12e-1", "-1.2"),
        ("100", "100"),
        ("1e-7", "0.0000001"),
    ],
)
def test_a_number_has_one_spelling(written, text):
    assert text == number_text(Decimal(written))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text().filter(is_text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text().filter(is_text), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_canonical_text_reads_back_as_the_same_value(value):
    text = canonical(read_schema({"value": value}))

    assert {"value": value} == json.loads(text)
    assert {"value": value} == to_plain(read_schema(text))


def test_separators_are_written_as_asked():
    assert canonical(read_schema({"a": [1, 2]}), (", ", ": ")) == '{"a": [1, 2]}'


def nested(depth, wrap):
    value = True
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}], ids=["array", "object"])
def test_nesting_is_read_down_to_its_limit(wrap):
    deepest = {"a": nested(MAX_NESTING - 1, wrap)}

    assert deepest == read_schema(deepest)
    with pytest.raises(InvalidSchemaError, match=f"nested deeper than {MAX_NESTING} levels"):
        read_schema({"a": nested(MAX_NESTING, wrap)})


def test_a_value_that_is_not_json_is_named_with_its_place():
    with pytest.raises(InvalidSchemaError) as caught:
        read_schema({"a/b": [0, {"c": float("inf")}]})

    assert caught.value.where == "/a~1b/1/c"


def test_strings_are_written_raw():
    assert canonical(read_schema({"é": "😀\u2028\x7f\x1f/"})) == '{"é":"😀\u2028\x7f\\u001f/"}'


def test_whole_numbers_are_integers_for_validators_and_others_stay_exact():
    plain = to_plain(read_schema('{"a": 2.0, "b": 2.5}'))

    assert (2, int, Decimal("2.5")) == (plain["a"], type(plain["a"]), plain["b"])
