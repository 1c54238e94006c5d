r"""A reader of regular expressions as ECMA-262 writes them, Annex B included.

* Two readings of each: `lower` holds only what every engine in use takes, `upper` all that any of them takes. They
  differ where Python, which validates, and ECMAScript, which is the standard, do: `\w` beyond ASCII, `$` before a last
  line end, `.` at a line separator. What is admitted comes from `lower`, what is excluded from `upper`.
* What is no regular language is refused: references to groups, and looking ahead or behind.
* What the two would read in different ways altogether is refused: `[]`, `{,n}`, `\Z`, flags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from judge_local.grammar import points
from judge_local.grammar.items import ANY, Ranges

MAX_NESTING: Final = 100
MAX_COUNT: Final = 20_000

Reading: TypeAlias = Literal["lower", "upper"]


class PatternError(Exception):
    """A pattern that cannot be enforced; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Class:
    """One character out of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts one after another."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Any of the ways."""

    ways: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part from `low` to `high` times; without end when `high` is None."""

    part: Pattern
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    r"""A place between characters: `^`, `$`, `b` (a word's edge) or `B`."""

    kind: str


Pattern: TypeAlias = Class | Sequence | Either | Repeated | Edge

_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


def read_pattern(source: str, reading: Reading = "lower") -> Pattern:
    """Read a pattern.

    Raises:
        PatternError: it is none, or one that no finite automaton follows.
    """
    reader = _Reader(source, reading)
    found = reader.either(0)
    if reader.at < len(source):
        raise PatternError(f"the `)` at {reader.at} closes nothing")
    return found


@dataclass(slots=True)
class _Reader:
    source: str
    reading: Reading
    at: int = 0

    def either(self, depth: int) -> Pattern:
        if depth > MAX_NESTING:
            raise PatternError(f"it is nested deeper than {MAX_NESTING} groups")
        ways = [self._sequence(depth)]
        while self._take("|"):
            ways.append(self._sequence(depth))
        return ways[0] if len(ways) == 1 else Either(tuple(ways))

    def _sequence(self, depth: int) -> Pattern:
        parts: list[Pattern] = []
        while self.at < len(self.source) and self.source[self.at] not in "|)":
            begun = self.at
            part = self._atom(depth)
            counts = self._counts()
            if counts is not None:
                if isinstance(part, Edge):
                    raise PatternError(f"the edge at {begun} is repeated")
                part = Repeated(part, *counts)
                self._take("?")  # A lazy repetition admits the same texts.
                if self.at < len(self.source) and self.source[self.at] in "*+?":
                    raise PatternError(f"the repetition at {self.at} repeats a repetition")
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self, depth: int) -> Pattern:
        sign = self.source[self.at]
        self.at += 1
        if sign in "^$":
            return Edge(sign)
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return self._class()
        if sign == ".":
            return Class(points.complement(points.LINE_ENDS if self.reading == "lower" else points.of("\n")))
        if sign == "\\":
            return self._escape()
        if sign in "*+?":
            raise PatternError(f"the `{sign}` at {self.at - 1} repeats nothing")
        if sign == "{" and self._is_count(self.at):
            raise PatternError(f"the count at {self.at - 1} repeats nothing")
        return Class(points.of(sign))

    def _group(self, depth: int) -> Pattern:
        if self._take("?"):
            if self._take(":"):
                pass
            elif self.source.startswith(("=", "!", "<=", "<!"), self.at):
                raise PatternError("looking ahead or behind is no part of a regular language")
            elif self._take("<"):
                end = self.source.find(">", self.at)
                if end < 0 or not self.source[self.at : end].isidentifier():
                    raise PatternError(f"the group at {self.at} has no name")
                # Python has another spelling for names, so its `re` takes this one for a mistake.
                self.at = end + 1
            else:
                raise PatternError(f"the group at {self.at - 2} is of no kind that ECMA-262 knows")
        inner = self.either(depth + 1)
        if not self._take(")"):
            raise PatternError("a group is not closed")
        return inner

    def _is_count(self, at: int) -> bool:
        """Whether `{` just before `at` begins a count, as against standing for itself."""
        end = self.source.find("}", at)
        low, comma, high = self.source[at:end].partition(",") if end > 0 else ("", "", "")
        if comma and not low and (not high or high.isdecimal()):
            raise PatternError("`{,n}` is a count for some and five characters for others")
        return low.isascii() and low.isdecimal() and (not high or (high.isascii() and high.isdecimal()))

    def _counts(self) -> tuple[int, int | None] | None:
        sign = self.source[self.at : self.at + 1]
        if sign and sign in "*+?":
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        if sign != "{" or not self._is_count(self.at + 1):
            return None
        end = self.source.index("}", self.at)
        first, comma, second = self.source[self.at + 1 : end].partition(",")
        self.at = end + 1
        if max(len(first), len(second)) > 9:
            raise PatternError(f"a count is above {MAX_COUNT}")
        low = int(first)
        high = (int(second) if second else None) if comma else low
        if max(low, high or 0) > MAX_COUNT:
            raise PatternError(f"a count is above {MAX_COUNT}")
        if high is not None and high < low:
            raise PatternError("a count ends before it begins")
        return low, high

    def _class(self) -> Pattern:
        negated = self._take("^")
        if self.source.startswith("]", self.at):
            raise PatternError("`[]` and `[^]` are read in different ways")
        found: list[tuple[int, int]] = []
        # A negated class of `lower` is what is left by the widest reading of its members.
        outer = self.reading
        if negated:
            self.reading = "upper" if outer == "lower" else "lower"
        while not self._take("]"):
            low = self._member()
            dash = self.source.startswith("-", self.at) and not self.source.startswith("-]", self.at)
            if not dash:
                found += low
                continue
            self.at += 1
            high = self._member()
            if _single(low) is None or _single(high) is None:
                # Annex B: next to a class a dash stands for itself.
                found += [*low, *high, (ord("-"), ord("-"))]
            elif low[0][0] > high[0][0]:
                raise PatternError(f"the range {chr(low[0][0])}-{chr(high[0][0])} ends before it begins")
            else:
                found.append((low[0][0], high[0][0]))
        self.reading = outer
        ranges = points.normal(found)
        return Class(points.complement(ranges) if negated else ranges)

    def _member(self) -> Ranges:
        if self.at >= len(self.source):
            raise PatternError("a class is not closed")
        sign = self.source[self.at]
        self.at += 1
        if sign != "\\":
            return points.of(sign)
        if self._take("b"):
            return points.of("\b")
        if self._take("-"):
            return points.of("-")
        escaped = self._escape()
        if not isinstance(escaped, Class):
            raise PatternError("`\\B` in a class means nothing")
        return escaped.ranges

    def _escape(self) -> Pattern:
        if self.at >= len(self.source):
            raise PatternError("it ends in a backslash")
        sign = self.source[self.at]
        self.at += 1
        if sign in "bB":
            return Edge(sign)
        if sign in "dDwWsS":
            return Class(self._shorthand(sign))
        if sign in _CONTROLS:
            return Class(((_CONTROLS[sign], _CONTROLS[sign]),))
        if sign in "xu":
            return Class(points.normal([(point := self._point(sign), point)]))
        if sign == "c":
            letter = self.source[self.at : self.at + 1]
            if not (letter.isascii() and letter.isalpha()):
                raise PatternError("`\\c` needs a letter")
            self.at += 1
            return Class(((ord(letter) % 32, ord(letter) % 32),))
        if sign in "pP":
            return Class(self._category(negated=sign == "P"))
        if sign == "0" and not self.source[self.at : self.at + 1].isdecimal():
            return Class(((0, 0),))
        if sign.isdecimal() or sign == "k":
            raise PatternError("a reference to a group is no part of a regular language")
        if sign.isascii() and sign.isalpha():
            raise PatternError(f"`\\{sign}` is read in different ways")
        return Class(points.of(sign))

    def _shorthand(self, sign: str) -> Ranges:
        narrow = {"d": points.DIGITS, "w": points.WORD, "s": points.SPACE}[sign.lower()]
        if sign in "dw" and self.reading == "lower":
            return narrow  # Python's class holds all of it.
        wide = points.unicode_class(sign.lower())
        both = points.meet(narrow, wide)
        either = points.normal([*narrow, *wide])
        if sign.islower():
            return both if self.reading == "lower" else either
        return points.complement(either if self.reading == "lower" else both)

    def _category(self, negated: bool) -> Ranges:
        end = self.source.find("}", self.at)
        if not self._take("{") or end < 0:
            raise PatternError("`\\p` needs a category in braces")
        name = self.source[self.at : end].removeprefix("General_Category=").removeprefix("gc=")
        self.at = end + 1
        ranges = points.category(name)
        if ranges is None:
            raise PatternError(f"`\\p{{{name}}}` is no general category of Unicode")
        return points.complement(ranges) if negated else ranges

    def _hexadecimal(self, sign: str) -> int:
        if sign == "u" and self._take("{"):
            end = self.source.find("}", self.at)
            digits = self.source[self.at : end] if end > 0 else ""
            self.at = end + 1
        else:
            size = 2 if sign == "x" else 4
            digits = self.source[self.at : self.at + size]
            if len(digits) < size:
                raise PatternError(f"`\\{sign}` needs {size} hexadecimal digits")
            self.at += size
        try:
            point = int(digits, 16) if digits.isalnum() and len(digits) <= 8 else -1
        except ValueError:
            point = -1
        if not 0 <= point <= 0x10FFFF:
            raise PatternError(f"`\\{sign}` is not followed by a code point")
        return point

    def _point(self, sign: str) -> int:
        r"""The code point of `\x` or `\u`; two that are halves of a pair are one."""
        point = self._hexadecimal(sign)
        if 0xD800 <= point < 0xDC00 and self._take("\\u"):
            low = self._hexadecimal("u")
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
        if 0xD800 <= point < 0xE000:
            raise PatternError("half of a surrogate pair is no character")
        return point

    def _take(self, sign: str) -> bool:
        found = self.source.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found


def _single(ranges: Ranges) -> int | None:
    return ranges[0][0] if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else None


ANYTHING: Final = Class(ANY)
