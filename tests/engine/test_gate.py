"""A token passes when both recognisers let it, and only as UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.gate import Gate
from judge_local.errors import EngineError
from judge_local.grammar.recogniser import Matcher

END = 256
ANY_TEXT = Matcher.from_gbnf(r"root ::= [\x00-\uD7FF\uE000-\U0010FFFF]*")


class Everything:
    """A grammar that lets any token through but those named, as llama.cpp's does with overlong bytes."""

    def __init__(self, *refused: int) -> None:
        self.refused = refused

    def allows(self, token: int) -> bool:
        return token not in self.refused

    def allowed(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return ~np.isin(tokens, self.refused)

    def accept(self, token: int) -> None:
        assert token not in self.refused

    def close(self) -> None:
        return


class Bytes:
    """A vocabulary in which every byte is a token, and there is an end."""

    eog = frozenset({END})

    def piece(self, token: int) -> bytes:
        return b"" if token == END else bytes([token])


def prefixes_that_pass(text: bytes) -> int:
    """How many bytes of `text` pass, one by one."""
    gate = Gate(Everything(), ANY_TEXT, Bytes())
    for place, byte in enumerate(text):
        if not gate.allows(byte):
            return place
        gate.accept(byte)
    return len(text)


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_valid_text_passes_byte_by_byte(text: str) -> None:
    assert prefixes_that_pass(text.encode()) == len(text.encode())


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (b"\xe0\x82\xa2", 1),  # overlong, three bytes
        (b"\xf0\x8f\xbf\xbf", 1),  # overlong, four bytes
        (b"\xc0\x80", 0),
        (b"\xed\xa0\xbd", 1),  # a surrogate
        (b"\xf4\x90\x80\x80", 1),  # above U+10FFFF
        (b"a\x80", 1),
        (b"\xe2\x82a", 2),  # a code point cut short
        (b"\xff", 0),
    ],
)
def test_what_is_not_utf8_stops_at_its_first_wrong_byte(text: bytes, passes: int) -> None:
    assert prefixes_that_pass(text) == passes


def test_either_recogniser_refuses() -> None:
    matcher = Matcher.from_gbnf('root ::= "ab" | "cd"')
    gate = Gate(Everything(ord("c")), matcher, Bytes())

    assert [token for token in range(256) if gate.allows(token)] == [ord("a")]


def test_asking_about_many_leaves_out_none_that_is_allowed() -> None:
    gate = Gate(Everything(0x41, 0xA2), ANY_TEXT, Bytes())
    tokens = np.arange(257)
    for byte in (None, 0x42, 0xE2, 0x82):
        if byte is not None:
            gate.accept(byte)

        assert not any(gate.allows(token) for token in tokens[~gate.not_refused(tokens)])


def test_the_end_passes_where_the_text_may_end() -> None:
    gate = Gate(Everything(), Matcher.from_gbnf('root ::= "a" "b"?'), Bytes())
    seen = []
    for byte in b"ab":
        seen.append((gate.allows(END), gate.finished, gate.forced()))
        gate.accept(byte)

    assert seen == [(False, False, b"a"), (True, False, b"")]
    assert gate.finished


@pytest.mark.parametrize("token", [ord("x"), END])
def test_accepting_what_is_not_allowed_is_an_error_not_an_abort(token: int) -> None:
    gate = Gate(Everything(), Matcher.from_gbnf('root ::= "ab"'), Bytes())

    with pytest.raises(EngineError, match=f"token {token} .* is not allowed: 'ab'"):
        gate.accept(token)
