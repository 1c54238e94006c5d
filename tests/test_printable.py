"""Printable text: what is left after cleaning is what XML 1.0 can hold, and it is on one line where it must be."""

from hypothesis import given
from hypothesis import strategies as st

from judge_local.printable import clean, one_line

ANY_TEXT = st.text(st.characters(), max_size=60)
"""Lone surrogates and control characters included."""


def is_xml_character(character: str) -> bool:
    """The production Char of XML 1.0, fifth edition."""
    code = ord(character)
    return (
        code in (0x9, 0xA, 0xD)
        or 0x20 <= code <= 0xD7FF
        or 0xE000 <= code <= 0xFFFD
        or 0x10000 <= code <= 0x10FFFF
    )


def test_every_character_there_is():
    """All 1,114,112 of them: what stays is XML's, and plain letters stay."""
    everything = "".join(map(chr, range(0x110000)))
    left = clean(everything)

    assert all(map(is_xml_character, set(left)))
    assert "\r" not in left
    assert not set("\t\n azÄß漢🙂") - set(left)


@given(ANY_TEXT, st.integers(1, 40))
def test_one_line_is_short_and_has_no_line_end(text, limit):
    line = one_line(text, limit)

    assert len(line) <= limit + 1
    assert line.splitlines() in ([], [line])
    assert line == line.strip()


@given(st.text(st.characters(categories=["L", "N"]), max_size=40))
def test_letters_and_digits_are_left_alone(text):
    assert text == one_line(text, 40)


def test_a_long_text_is_cut_with_a_mark():
    assert one_line("word " * 100, 11) == "word word w…"
    assert one_line(" " * 100 + "end", 5) == "…"
