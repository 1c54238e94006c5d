"""Sets of code points as inclusive ranges, ascending and apart; surrogates are never among them."""

from __future__ import annotations

import re
import sys
import unicodedata
from array import array
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from judge_local.grammar.items import ANY, Ranges

NOTHING: Final[Ranges] = ()


def normal(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """`ranges`, in any order and overlapping, as a set; surrogates are left out."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        elif low <= high:
            merged.append((low, high))
    return tuple(merged) if not merged or merged[-1][1] < 0xD800 else meet(tuple(merged), ANY)


def meet(first: Ranges, second: Ranges) -> Ranges:
    """What both hold."""
    found, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        low, high = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if low <= high:
            found.append((low, high))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def without(first: Ranges, second: Ranges) -> Ranges:
    """What `first` holds and `second` does not."""
    return meet(first, complement(second))


def complement(ranges: Ranges) -> Ranges:
    """Every code point that is not in `ranges`."""
    gaps, begin = [], 0
    for low, high in ranges:
        if begin < low:
            gaps.append((begin, low - 1))
        begin = high + 1
    if begin <= sys.maxunicode:
        gaps.append((begin, sys.maxunicode))
    return meet(tuple(gaps), ANY)


def of(text: str) -> Ranges:
    """The characters of `text`."""
    return normal((ord(character), ord(character)) for character in text)


DIGITS: Final = normal([(0x30, 0x39)])
WORD: Final = normal([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
# ECMA-262, WhiteSpace and LineTerminator.
SPACE: Final = normal(
    [
        (9, 13),
        (0x20, 0x20),
        (0xA0, 0xA0),
        (0x1680, 0x1680),
        (0x2000, 0x200A),
        (0x2028, 0x2029),
        (0x202F, 0x202F),
        (0x205F, 0x205F),
        (0x3000, 0x3000),
        (0xFEFF, 0xFEFF),
    ]
)
LINE_ENDS: Final = normal([(10, 10), (13, 13), (0x2028, 0x2029)])


_ORDER: Final = "le" if sys.byteorder == "little" else "be"


@cache
def unicode_class(letter: str) -> Ranges:
    r"""What Python's `\d`, `\w` or `\s` stand for in a text."""
    if letter == "s":
        return normal(
            [(9, 13), (0x1C, 0x20), (0x85, 0x85), *(pair for pair in SPACE if 0x20 < pair[0] < 0xFEFF)]
        )
    everything = b"".join(array("I", range(low, high + 1)).tobytes() for low, high in ANY).decode(
        "utf-32-" + _ORDER
    )
    # A stretch may reach across the surrogates, which are not there; they are left out of what it makes.
    return normal((ord(found[0][0]), ord(found[0][-1])) for found in re.finditer(rf"\{letter}+", everything))


_LONG: Final = {
    "Letter": "L",
    "Lowercase_Letter": "Ll",
    "Uppercase_Letter": "Lu",
    "Titlecase_Letter": "Lt",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Punctuation": "P",
    "punct": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Other": "C",
}


@cache
def category(name: str) -> Ranges | None:
    r"""The characters of a Unicode general category, such as `Zs` or `L`; None when there is no such one."""
    name = _LONG.get(name, name)
    if not re.fullmatch("[CLMNPSZ][a-z]?", name):
        return None
    holds: Callable[[str], bool] = lambda kind: kind.startswith(name)  # noqa: E731
    found = normal(
        (point, point)
        for low, high in ANY
        for point in range(low, high + 1)
        if holds(unicodedata.category(chr(point)))
    )
    return found or None
