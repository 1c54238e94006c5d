"""Strings: which characters stand raw, which escaped, which not at all, and how lengths count."""

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.errors import UnsatisfiableSchemaError, UnsupportedSchemaError
from judge_local.grammar import compile_schema

SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


@cache
def any_string():
    return compile_schema({"type": "string"})


@pytest.mark.parametrize("point", range(0x20))
def test_a_control_character_has_one_escape_and_never_stands_raw(point):
    escape = SHORT.get(chr(point), f"\\u{point:04x}")

    assert any_string().accepts(f'"{escape}"')
    assert not any_string().accepts(f'"{chr(point)}"')
    assert (escape in SHORT.values()) != any_string().accepts(f'"\\u{point:04x}"')


@pytest.mark.parametrize("text", ['"\\""', '"\\\\"', '"a\\"b\\\\c"'])
def test_quotes_and_backslashes_are_escaped(text):
    assert any_string().accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        *('"', '"""', '"\\"', '"\\\\\\"', '"\\/"', '"\\\'"', '"\\a"', '"\\x41"', '"\\u0041"', '"\\u00e9"'),
        *('"\\ud800"', '"\\ud83d\\ude00"', '"\\u007f"', '"\\u001F"', '"\\u12"', '"\\U0001F600"'),
        *(' ""', '"" ', "''", '"\x7f"', '"\ud800"', '"\udfff"'),
    ],
)
def test_no_other_spelling_is_accepted(text):
    assert not any_string().accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            " ",
            "~",
            "/",
            "\x80",
            "\xad",
            "\u2028",
            "\u2029",
            "\ud7ff",
            "\ue000",
            "\ufeff",
            "\ufffe",
            "\uffff",
        ),
        *("\U00010000", "\U0010ffff", "😀", "e\u0301", "日本語", "한글", "שלום", "👩‍👩‍👧"),
    ],
)
def test_everything_else_stands_raw(text):
    assert any_string().accepts(f'"{text}"')


@pytest.mark.parametrize(
    "data",
    [
        *(
            b'"\xed\xa0\x80"',
            b'"\xed\xbf\xbf"',
            b'"\xc0\xaf"',
            b'"\xc1\xbf"',
            b'"\xe0\x82\xa2"',
            b'"\xe0\x9f\xbf"',
        ),
        *(
            b'"\xf0\x8f\xbf\xbf"',
            b'"\xf4\x90\x80\x80"',
            b'"\xf5\x80\x80\x80"',
            b'"\x80"',
            b'"\xe6\x97"',
            b'"\xff"',
        ),
    ],
)
def test_bytes_that_are_not_utf_8_are_refused(data):
    assert any_string().start().advance(data) is None


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=40))
def test_every_string_is_accepted_in_its_canonical_spelling(text):
    assert any_string().accepts(json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize("unit", ["a", "é", "\u2028", "😀", "\\n", "\\u0001", '\\"'])
def test_a_length_counts_code_points(unit):
    grammar = compile_schema({"type": "string", "minLength": 2, "maxLength": 3})

    assert [count for count in range(6) if grammar.accepts(f'"{unit * count}"')] == [2, 3]


def test_a_combining_accent_counts():
    grammar = compile_schema({"type": "string", "maxLength": 1})

    assert grammar.accepts('"\u00e9"')
    assert not grammar.accepts('"e\u0301"')


@pytest.mark.parametrize(
    ("low", "high"),
    [
        *((0, 0), (0, 1), (1, 1), (0, 99), (0, 100), (0, 101), (99, 101), (100, 100), (100, 200), (199, 301)),
        *((0, 199), (0, 200), (0, 201), (2000, 2000), (0, 2000), (1999, 2001), (0, 2001), (2001, 4097)),
        *((0, 9999), (0, 10000), (10001, 10001), (9999, 20001), (0, 50000), (50000, 50000), (49999, 50000)),
    ],
)
def test_lengths_are_exact(low, high):
    grammar = compile_schema({"type": "string", "minLength": low, "maxLength": high}, max_string=50000)
    inside = {1, (low + high) // 2, 2 * high + 1} if high < 5000 else set()

    for count in sorted({0, abs(low - 1), low, high, high + 1} | inside):
        assert (low <= count <= high) == grammar.accepts('"' + "x" * count + '"'), count


@pytest.mark.parametrize("high", [*range(12), 98, 99, 100, 101, 150, 200, 305])
def test_every_length_below_a_small_cap_is_accepted(high):
    for low in {0, 1, high // 2, high}:
        grammar = compile_schema({"type": "string", "minLength": min(low, high), "maxLength": high})
        accepted = [count for count in range(high + 3) if grammar.accepts('"' + "x" * count + '"')]

        assert list(range(min(low, high), high + 1)) == accepted


def test_fifty_thousand_characters_need_a_small_grammar():
    grammar = compile_schema({"type": "string", "maxLength": 50000}, max_string=50000)

    assert len(grammar.gbnf) < 16_000
    assert 6 * 50000 + 2 == grammar.max_bytes == grammar.max_chars
    assert grammar.min_bytes == 2


def test_a_string_without_a_maximum_gets_the_cap():
    grammar = compile_schema({"type": "string"}, max_string=7)

    assert grammar.accepts('"1234567"')
    assert not grammar.accepts('"12345678"')
    assert "at most 7 characters" in {row.detail for row in grammar.report.narrowed}


def test_a_maximum_above_the_cap_is_narrowed_and_said_to_be():
    grammar = compile_schema({"type": "string", "maxLength": 5000})

    assert ("", "maxLength", "", "at most 4096 characters") in {
        (row.pointer, row.keyword, row.place, row.detail) for row in grammar.report.narrowed
    }


def test_a_maximum_within_the_cap_is_not_narrowed():
    grammar = compile_schema({"type": "string", "maxLength": 4096})

    assert "maxLength" not in {row.keyword for row in grammar.report.narrowed}


def test_a_minimum_above_the_cap_is_refused():
    with pytest.raises(UnsupportedSchemaError, match="minLength 5000: no string of ours is longer than 4096"):
        compile_schema({"type": "string", "minLength": 5000})


def test_a_minimum_above_the_maximum_admits_nothing():
    with pytest.raises(UnsatisfiableSchemaError, match="at least 3 and at most 2"):
        compile_schema({"type": "string", "minLength": 3, "maxLength": 2})


@pytest.mark.parametrize("more", [{}, {"pattern": "^[^a]$"}, {"pattern": "^[\\u0000-\\u001f]$"}])
def test_of_all_escapes_of_four_digits_only_those_of_controls_without_a_short_one_are_written(more):
    grammar = compile_schema({"type": "string", "maxLength": 1, **more})
    accepted = {code for code in range(0x130) if grammar.accepts(f'"\\u{code:04x}"')}

    assert accepted == set(range(0x20)) - {8, 9, 10, 12, 13}
    for code in range(0x20):
        one = compile_schema({"type": "string", "pattern": f"^\\x{code:02x}$"})
        assert one.accepts(json.dumps(chr(code)))
        assert [other for other in range(0x20) if one.accepts(json.dumps(chr(other)))] == [code]
