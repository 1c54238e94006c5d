"""A token passes when the grammar lets it and the bytes so far are still the beginning of UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.gate import Gate


class Everything:
    """A grammar that lets any token through but those named."""

    def __init__(self, *refused: int) -> None:
        self.refused = refused
        self.accepted: list[int] = []

    def allows(self, token: int) -> bool:
        return token not in self.refused

    def allowed(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return ~np.isin(tokens, self.refused)

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def close(self) -> None:
        self.accepted.clear()


class Bytes:
    """A vocabulary in which every byte is a token."""

    def piece(self, token: int) -> bytes:
        return bytes([token])


def prefixes_that_pass(text: bytes) -> int:
    """How many bytes of `text` pass, one by one."""
    gate = Gate(Everything(), Bytes())
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


@given(st.binary(max_size=6))
def test_nothing_passes_whole_that_cannot_be_completed(data: bytes) -> None:
    """What passes is a prefix of some valid text: adding continuation bytes makes it decode."""
    passed = data[: prefixes_that_pass(data)]
    endings = [b"", b"\x80", b"\xbf", b"\x80\x80", b"\xbf\x80", b"\x90\x80\x80", b"\x80\x80\x80", b"\xa0\x80"]

    assert any(_decodes(passed + ending) for ending in endings)


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_asking_about_many_agrees_with_asking_about_each() -> None:
    gate = Gate(Everything(0x41, 0xA2), Bytes())
    tokens = np.arange(256)
    for byte in (None, 0x42, 0xE2, 0x82):
        if byte is not None:
            gate.accept(byte)

        assert gate.allowed(tokens).tolist() == [gate.allows(token) for token in range(256)]
