"""Following a text byte by byte: a matcher is a value, says what must come, and works inside characters."""

from random import Random

import pytest

from grammar.derivations import derive
from judge_local.grammar import Matcher, compile_schema, compile_verdict, recogniser
from judge_local.verdict import VERDICT_SCHEMA


def matcher(body):
    return Matcher.from_gbnf(f"root ::= {body}\n")


def test_a_matcher_is_a_value():
    start = matcher('"a" ("b" | "c")')
    middle = start.advance(b"a")

    assert middle.advance(b"b").complete
    assert middle.advance(b"c").complete
    assert middle.advance(b"d") is None
    assert start.advance(b"ab").complete
    assert [start.complete, middle.complete] == [False, False]
    assert start == start.advance(b"")


@pytest.mark.parametrize(
    "text", ["é", "日", "😀", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U0010ffff"]
)
def test_a_character_may_come_in_pieces(text):
    place = matcher(f'"{text}" | "{text}z"')
    for byte in text.encode():
        assert not place.complete
        place = place.advance(bytes([byte]))

    assert place.complete
    assert place.advance(b"z").complete


def test_a_byte_that_can_no_longer_become_an_admitted_character_is_refused():
    place = matcher("[\\u65E5-\\u65E6]")  # E6 97 A5 and E6 97 A6

    assert place.advance(b"\xe5") is None
    assert place.advance(b"\xe6\x98") is None
    assert place.advance(b"\xe6\x97\xa7") is None
    assert place.advance(b"\xe6\x97\xa6").complete


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8",
        b"\xff",
    ],
)
def test_any_character_is_any_that_utf_8_carries(data):
    assert matcher(".").advance(data) is None
    assert matcher("[^a]").advance(data) is None


def test_a_newline_inside_a_character_is_refused():
    assert matcher(".").advance(b"\xe6\n") is None


@pytest.mark.parametrize(
    ("body", "prefix", "forced"),
    [
        ('"abc"', b"", b"abc"),
        ('"abc"', b"ab", b"c"),
        ('"abc"', b"abc", b""),
        ('"ab" ("cd" | "ce") "f"', b"", b"abc"),
        ('"ab"? "c"', b"", b""),
        ('"a"*', b"", b""),
        ('"a"{3}', b"a", b"aa"),
        ('"aé" | "aè"', b"", b"a"),
        ('"é"', b"\xc3", b"\xa9"),
        ('"é" | "è"', b"\xc3", b""),
        ('"é" | "日"', b"\xc3", b"\xa9"),
        ('[a] "b" | "ab"', b"", b"ab"),
        ("[a-b]", b"", b""),
    ],
)
def test_forced(body, prefix, forced):
    assert forced == matcher(body).advance(prefix).forced()


def test_what_is_forced_is_accepted_and_nothing_else_is():
    """Walked over texts of the verdict grammar, at every place in them."""
    random = Random(4)
    grammar = compile_verdict(VERDICT_SCHEMA)
    for _ in range(3):
        data = derive(grammar.gbnf, random).encode()
        place = grammar.start()
        for index, byte in enumerate(data):
            forced = place.forced()
            assert data[index:].startswith(forced)
            if forced:
                assert not [other for other in range(256) if other != byte and place.advance(bytes([other]))]
            place = place.advance(bytes([byte]))

        assert place.complete
        assert place.forced() == b""


@pytest.mark.parametrize(
    ("body", "prefix", "expected"),
    [
        ('"abc" | "xyz"', b"", "'abc' or 'xyz'"),
        ('"abc"', b"a", "'bc'"),
        ('[0-9] "."?', b"1", "'.' or the end"),
        ("[0-9a]", b"", "'0' to '9' or 'a'"),
        ("[^a]", b"", "a character"),
        ('"a"', b"a", "the end"),
        ('"é"', b"\xc3", "the rest of a character that begins with the bytes c3"),
    ],
)
def test_expected_in_words(body, prefix, expected):
    assert expected == matcher(body).advance(prefix).expected()


def test_a_long_list_of_expectations_is_cut():
    grammar = compile_schema({"enum": [f"v{number}" for number in range(20)]})

    assert grammar.expected('"v').endswith("or 8 more")


def test_forgetting_states_changes_no_answer(monkeypatch):
    monkeypatch.setattr(recogniser, "MAX_STATES", 5)
    grammar = compile_schema({"type": "string", "minLength": 300, "maxLength": 300})
    held = grammar.start().advance(b'"' + b"x" * 150)

    assert grammar.accepts('"' + "x" * 300 + '"')
    assert not grammar.accepts('"' + "x" * 301 + '"')
    assert held.advance(b"x" * 150 + b'"').complete


def test_steps_already_taken_are_look_ups():
    """The second reading of a text works nothing out: every step is in the table."""
    start = compile_schema({"type": "string"}).start()
    text = b'"' + "日本".encode() * 50 + b'"'
    assert start.advance(text).complete

    place, known = start._state, 0
    for byte in text:
        place = place.moves[byte]
        known += 1
    assert len(text) == known


@pytest.mark.parametrize("text", ["\x00", "\n", "\x7f", "\ufffe", "\U0010ffff"])
def test_any_character_admits_the_odd_ones(text):
    assert matcher(".").advance(text.encode()).complete
    assert matcher("[^a]").advance(text.encode()).complete
