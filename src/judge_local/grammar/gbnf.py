"""A reader of GBNF, the grammar language of llama.cpp, independent of what writes it.

* It reads what llama.cpp reads: literals, classes, groups, alternation, `? * + {m,n}`, `.`, comments, rule names.
* It refuses what llama.cpp refuses, and also what llama.cpp takes without a word and gets wrong: counts that it drops,
  empty and reversed classes, rules written twice, left recursion through a rule that may be empty, endless nesting.
* Token rules (`<[12]>`) are refused: they are about tokens, and this reader is about text.
"""

from __future__ import annotations

from typing import Final

from judge_local.errors import GrammarTextError, excerpt
from judge_local.grammar.items import (
    ANY,
    MAX_POINT,
    Chain,
    Choice,
    Item,
    Loop,
    Name,
    Points,
    Ranges,
    Word,
    names_in,
    refuse_unsafe,
)

MAX_COUNT: Final = 2000
"""llama.cpp refuses a larger count, or drops it."""
MAX_NESTING: Final = 100
"""Groups nested deeper than this are refused; llama.cpp runs out of stack at some depth."""


def read_gbnf(source: str) -> dict[str, Item]:
    """The rules of a grammar, by name; the start rule is `root`.

    Raises:
        GrammarTextError: the text is not a grammar, or one that no matcher can follow safely.
    """
    rules = _Reader(source).rules()
    for name, item in rules.items():
        for used in names_in(item):
            if used not in rules:
                raise GrammarTextError(f"rule {name}", f"there is no rule {used!r}", "Define it.")
    if "root" not in rules:
        raise GrammarTextError("grammar", "there is no rule 'root'", "Define it.")
    refuse_unsafe(rules)
    return rules


class _Reader:
    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0
        self._depth = 0

    def rules(self) -> dict[str, Item]:
        found: dict[str, Item] = {}
        self._space(newlines=True)
        while self._at < len(self._source):
            name = self._name()
            self._space(newlines=False)
            if not self._take("::="):
                raise self._fault("`::=` is missing")
            self._space(newlines=True)
            if name in found:
                raise self._fault(f"the rule {name!r} is written twice")
            found[name], _ = self._choice(nested=False)
            if self._at < len(self._source) and self._peek() not in "\r\n":
                raise self._fault(f"{excerpt(self._peek())} does not belong here")
            self._space(newlines=True)
        return found

    def _choice(self, nested: bool) -> tuple[Item, int]:
        """The alternatives, and how many rules llama.cpp makes of them."""
        ways, made = [], 0
        while True:
            way, count = self._chain(nested)
            ways.append(way)
            made += count
            if not self._take("|"):
                return (ways[0] if len(ways) == 1 else Choice(tuple(ways))), made
            self._space(newlines=True)

    def _chain(self, nested: bool) -> tuple[Item, int]:
        items: list[Item] = []
        made, weight = 0, 1
        while self._at < len(self._source):
            sign = self._peek()
            if sign in "*+?{":
                low, high = self._counts(nested)
                if not items or items[-1] == Chain(()):
                    raise self._fault("there is nothing to repeat")
                weight *= max(1, low if high is None else high)
                if weight > MAX_COUNT:
                    raise self._fault(f"the repetitions make {weight} rules, more than {MAX_COUNT}")
                made += 1 if high is None else high - low
                items[-1] = Loop(items[-1], low, high)
            else:
                item, inside = self._single(sign)
                if item is None:
                    break
                items.append(item)
                made, weight = made + inside, max(1, inside)
            self._space(newlines=nested)
        kept = tuple(item for item in items if item != Chain(()))
        return (kept[0] if len(kept) == 1 else Chain(kept)), made

    def _single(self, sign: str) -> tuple[Item | None, int]:
        if sign == '"':
            return self._word(), 0
        if sign == "[":
            return self._points(), 0
        if sign == ".":
            self._at += 1
            return Points(ANY), 0
        if sign == "(":
            return self._group()
        if sign in "<!":
            raise self._fault("token rules are not about text")
        return (Name(self._name()), 0) if _is_name(sign) else (None, 0)

    def _group(self) -> tuple[Item, int]:
        self._at += 1
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._fault(f"groups are nested deeper than {MAX_NESTING}")
        self._space(newlines=True)
        item, made = self._choice(nested=True)
        if not self._take(")"):
            raise self._fault("`)` is missing")
        self._depth -= 1
        return item, made + 1

    def _word(self) -> Item:
        self._at += 1
        letters = []
        while not self._take('"'):
            letters.append(chr(self._point()))
        return Word("".join(letters)) if letters else Chain(())

    def _points(self) -> Item:
        self._at += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        while not self._take("]"):
            low = high = self._point()
            if self._peek() == "-" and self._source[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._point()
            if high < low:
                raise self._fault(f"the range ends before it begins: U+{low:04X} to U+{high:04X}")
            ranges.append((low, high))
        if not ranges:
            raise self._fault("the class is empty")
        meant = _without(ANY, ranges) if negated else _meet(ANY, _merged(ranges))
        if not meant:
            raise self._fault("the class admits nothing")
        return Points(meant)

    def _counts(self, nested: bool) -> tuple[int, int | None]:
        sign = self._peek()
        self._at += 1
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        self._space(newlines=nested)
        low = self._number()
        high: int | None = low
        self._space(newlines=nested)
        if self._take(","):
            self._space(newlines=nested)
            high = self._number() if self._peek().isdecimal() else None
            self._space(newlines=nested)
        if not self._take("}"):
            raise self._fault("`}` is missing")
        if high is not None and high < low:
            raise self._fault(f"the count ends before it begins: {{{low},{high}}}")
        return low, high

    def _number(self) -> int:
        begun = self._at
        while self._peek() and self._peek() in "0123456789":
            self._at += 1
        digits = self._source[begun : self._at]
        if not digits or len(digits) > 9:
            raise self._fault(f"{excerpt(digits)} is no count")
        return int(digits)

    def _point(self) -> int:
        """One code point of a literal or a class."""
        sign = self._peek()
        if not sign:
            raise self._fault("the text ends inside a literal or a class")
        self._at += 1
        if sign != "\\":
            return ord(sign)
        mark = self._peek()
        self._at += 1
        if mark in ("x", "u", "U"):
            size = {"x": 2, "u": 4, "U": 8}[mark]
            digits = self._source[self._at : self._at + size]
            if len(digits) < size or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise self._fault(f"`\\{mark}` needs {size} hexadecimal digits")
            self._at += size
            point = int(digits, 16)
            if point > MAX_POINT:
                raise self._fault(f"U+{point:X} is no code point")
            return point
        plain = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
        if mark not in plain:
            raise self._fault(f"`\\{mark}` is no escape")
        return ord(plain[mark])

    def _name(self) -> str:
        begun = self._at
        while self._peek() and _is_name(self._peek()):
            self._at += 1
        if begun == self._at:
            raise self._fault("a rule's name is missing")
        return self._source[begun : self._at]

    def _space(self, newlines: bool) -> None:
        blanks = " \t\r\n" if newlines else " \t"
        while sign := self._peek():
            if sign == "#":
                while self._peek() and self._peek() not in "\r\n":
                    self._at += 1
            elif sign in blanks:
                self._at += 1
            else:
                return

    def _peek(self) -> str:
        return self._source[self._at : self._at + 1]

    def _take(self, sign: str) -> bool:
        found = self._source.startswith(sign, self._at)
        self._at += len(sign) if found else 0
        return found

    def _fault(self, problem: str) -> GrammarTextError:
        line = self._source.count("\n", 0, self._at) + 1
        column = self._at - (self._source.rfind("\n", 0, self._at) + 1) + 1
        return GrammarTextError(f"grammar, line {line}, column {column}", problem)


def _is_name(sign: str) -> bool:
    return sign == "-" or (sign.isascii() and sign.isalnum())


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _meet(first: Ranges, second: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for a, b in first for c, d in second)
    return tuple(sorted((low, high) for low, high in pairs if low <= high))


def _without(whole: Ranges, holes: list[tuple[int, int]]) -> Ranges:
    edges = [(-1, -1), *_merged(holes), (MAX_POINT + 1, MAX_POINT + 1)]
    gaps = [(edges[i][1] + 1, edges[i + 1][0] - 1) for i in range(len(edges) - 1)]
    return _meet(whole, tuple((low, high) for low, high in gaps if low <= high))
