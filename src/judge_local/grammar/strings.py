r"""Strings as rules: characters, lengths, and the quotes around them.

* A character is written raw, or by its one canonical escape: `\" \\ \n \t \r \b \f`, other C0 controls as `\u00xx`.
  No other escape, so a text has one spelling and lone surrogates cannot be written.
* A length counts code points: an emoji is one, an escape is one, a letter with a combining accent is two.
"""

from __future__ import annotations

from dataclasses import dataclass

from judge_local.grammar.emit import Body, Chars, Rules, chars, join, text


@dataclass(frozen=True, slots=True, kw_only=True)
class StringFacet:
    """The strings a place admits: between `low` and `high` code points long."""

    low: int = 0
    high: int

    def satisfiable(self) -> bool:
        """Whether any string is left."""
        return self.low <= self.high


RAW = chars(" ", "!", "#-[", "]-~", "\x80-\ud7ff", "\ue000-\U0010ffff")
"""What stands in a string as itself: everything but controls, `"`, `\\` and surrogates."""


def string(rules: Rules, facet: StringFacet, comment: str = "") -> Body:
    """The body that admits the strings of `facet`, which must be satisfiable."""
    return rules.define(
        [join(text('"'), rules.times(_character(rules), facet.low, facet.high), text('"'))], comment
    )


def _character(rules: Rules) -> Body:
    hexadecimal = chars("0-9", "a-f")
    # 08, 09, 0a, 0c and 0d have short escapes.
    rare = rules.define(
        [
            join(text("u000"), (chars("0-7", "b", "e-f"),)),
            join(text("u001"), (hexadecimal,)),
        ],
    )
    short = Chars(tuple((ord(letter), ord(letter)) for letter in '"\\bfnrt'))
    escape = rules.define([(short,), rare])
    return rules.define([(RAW,), join(text("\\"), escape)], "a character")
