"""Untrusted text made safe to show: what steers a terminal, hides, or is no text at all becomes a visible escape."""

from __future__ import annotations

import re
from typing import Final

# Control characters but for tab and newline, what reverses the direction of text, what hides, lone surrogates, and the
# two that XML forbids although Unicode assigns them to nobody.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def clean(text: str) -> str:
    r"""`text` with everything that could steer a terminal shown as an escape; what is left, XML 1.0 can hold.

    >>> clean("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str, limit: int) -> str:
    r"""`text` cleaned, on one line, and cut with a mark after `limit` characters.

    >>> one_line("two\n lines", 20)
    'two lines'
    >>> one_line("x" * 300, 5)
    'xxxxx…'
    """
    # Cut first: a text of megabytes is not worth cleaning to its end. Spaces that go can only make it shorter.
    words = " ".join(clean(text[: 2 * limit + 2].replace("\r", " ")).split())
    return words if len(words) <= limit and len(text) <= 2 * limit + 2 else words[:limit] + "…"
