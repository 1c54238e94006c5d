"""Grammar rules, and their text in GBNF.

* Rules are built from the leaves up; two rules with the same body are one rule.
* Rule names are counters, never user text; the place a rule was made for stands in a comment line before it.
* A repetition counts to at most `BLOCK`, and what it repeats is a class, a literal or a rule's name, never a group:
  llama.cpp gives up on larger ones, or drops the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

BLOCK: Final = 100
"""The largest count in a repetition."""
COMMENT_CHARS: Final = 120


@dataclass(frozen=True, slots=True)
class Literal:
    """A fixed text, at least one character long."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character out of inclusive ranges of code points, ascending."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` between `low` and `high` times, 0 ≤ low ≤ high ≤ `BLOCK`."""

    item: Literal | Chars | Ref
    low: int
    high: int


Term: TypeAlias = Literal | Chars | Ref | Repeat
Body: TypeAlias = tuple[Term, ...]
"""Terms one after another; empty for the empty text."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How long the texts of a rule are. None means that there is no longest one."""

    min_bytes: int
    max_bytes: int | None
    max_chars: int | None


def chars(*members: str) -> Chars:
    """A class from single characters (`"a"`) and ranges (`"a-z"`), given in ascending order."""
    return Chars(tuple((ord(member[0]), ord(member[-1])) for member in members))


def text(value: str) -> Body:
    """The body that admits exactly `value`."""
    return (Literal(value),) if value else ()


def join(*bodies: Body) -> Body:
    """The bodies one after another, neighbouring literals made one."""
    joined: list[Term] = []
    for term in (term for body in bodies for term in body):
        if joined and isinstance(term, Literal) and isinstance(last := joined[-1], Literal):
            joined[-1] = Literal(last.text + term.text)
        else:
            joined.append(term)
    return tuple(joined)


class Rules:
    """The rules of one grammar, in the order in which they were made."""

    def __init__(self) -> None:
        self._bodies: dict[str, tuple[tuple[Body, ...], str]] = {}
        self._names: dict[tuple[Body, ...], str] = {}
        self._extents: dict[str, Extent] = {}

    def define(self, alternatives: Iterable[Body], comment: str = "") -> Body:
        """The body that admits any of `alternatives`: a rule's name, or the one alternative if that is short.

        At least one alternative must be given: a rule that admits nothing is never written.
        """
        bodies = tuple(dict.fromkeys(alternatives))
        if not bodies:
            raise AssertionError("a rule needs an alternative")
        if len(bodies) == 1 and len(bodies[0]) <= 1:
            return bodies[0]
        name = self._names.get(bodies)
        if name is None:
            name = f"r{len(self._bodies) + 1}"
            self._names[bodies] = name
            self._bodies[name] = (bodies, comment)
            self._extents[name] = self._extent_of(bodies)
        return (Ref(name),)

    def extent(self, body: Body) -> Extent:
        """How long the texts of `body` are."""
        return self._extent_of((body,))

    def times(self, item: Body, low: int, high: int, comment: str = "") -> Body:
        """`item` between `low` and `high` times, exactly, whatever the counts: blocks of blocks, then a tail."""
        if not item or high == 0:
            return ()
        unit = self._unit(item)
        return join(self._exactly(unit, low), self._at_most(unit, high - low, comment))

    def text(self, root: Body) -> str:
        """The grammar in GBNF: `root` first, then the rules, newest first."""
        lines = [f"root ::= {_body_text(root)}"]
        for name, (bodies, comment) in reversed(self._bodies.items()):
            if comment:
                lines.append(f"# {_comment_text(comment)}")
            lines.append(f"{name} ::= {' | '.join(_body_text(body) for body in bodies)}")
        return "\n".join(lines) + "\n"

    def _unit(self, item: Body) -> Literal | Chars | Ref:
        if len(item) == 1 and not isinstance(item[0], Repeat):
            return item[0]
        name = f"r{len(self._bodies) + 1}"
        if (item,) in self._names:
            return Ref(self._names[item,])
        self._names[item,] = name
        self._bodies[name] = ((item,), "")
        self._extents[name] = self._extent_of((item,))
        return Ref(name)

    def _exactly(self, unit: Literal | Chars | Ref, count: int) -> Body:
        if count <= BLOCK:
            return (Repeat(unit, count, count),) if count else ()
        block = self._unit((Repeat(unit, BLOCK, BLOCK),))
        return join(self._exactly(block, count // BLOCK), self._exactly(unit, count % BLOCK))

    def _at_most(self, unit: Literal | Chars | Ref, count: int, comment: str) -> Body:
        blocks, rest = divmod(count, BLOCK)
        if not blocks:
            return (Repeat(unit, 0, rest),) if rest else ()
        block = self._unit((Repeat(unit, BLOCK, BLOCK),))
        # The tail is a rule: llama.cpp writes a repetition out wherever it stands.
        tail: Body = (self._unit((Repeat(unit, 0, BLOCK - 1),)),)
        body: Body = (Repeat(unit, 0, rest),) if rest else ()
        for _ in range(blocks):
            body = self.define([join((block,), body), tail], comment)
        return body

    def _extent_of(self, bodies: Sequence[Body]) -> Extent:
        extents = [self._extent_of_sequence(body) for body in bodies]
        return Extent(
            min(extent.min_bytes for extent in extents),
            _largest(extent.max_bytes for extent in extents),
            _largest(extent.max_chars for extent in extents),
        )

    def _extent_of_sequence(self, body: Body) -> Extent:
        extents = [self._extent_of_term(term) for term in body]
        return Extent(
            sum(extent.min_bytes for extent in extents),
            _total(extent.max_bytes for extent in extents),
            _total(extent.max_chars for extent in extents),
        )

    def _extent_of_term(self, term: Term) -> Extent:
        if isinstance(term, Literal):
            size = len(term.text.encode())
            return Extent(size, size, len(term.text))
        if isinstance(term, Chars):
            return Extent(len(chr(term.ranges[0][0]).encode()), len(chr(term.ranges[-1][1]).encode()), 1)
        if isinstance(term, Ref):
            return self._extents[term.name]
        one = self._extent_of_term(term.item)
        return Extent(
            term.low * one.min_bytes,
            None if one.max_bytes is None else term.high * one.max_bytes,
            None if one.max_chars is None else term.high * one.max_chars,
        )


def _largest(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else max(value for value in known if value is not None)


def _total(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _body_text(body: Body) -> str:
    return " ".join(_term_text(term) for term in body) or '""'


def _term_text(term: Term) -> str:
    if isinstance(term, Literal):
        return '"' + "".join(_escaped(ord(character), '"\\') for character in term.text) + '"'
    if isinstance(term, Chars):
        return "[" + "".join(_range_text(low, high) for low, high in term.ranges) + "]"
    if isinstance(term, Ref):
        return term.name
    item = _term_text(term.item)
    if term.low == term.high:
        return item if term.low == 1 else f"{item}{{{term.low}}}"
    return f"{item}?" if (term.low, term.high) == (0, 1) else f"{item}{{{term.low},{term.high}}}"


def _range_text(low: int, high: int) -> str:
    ends = [_class_escaped(low)] if low == high else [_class_escaped(low), _class_escaped(high)]
    return "-".join(ends)


def _class_escaped(point: int) -> str:
    # `^` has no escape of its own and means something at the start of a class.
    return f"\\x{point:02X}" if point == ord("^") else _escaped(point, "\\]-[")


def _escaped(point: int, marks: str) -> str:
    character = chr(point)
    if character in marks:
        return "\\" + character
    if 0x20 <= point < 0x7F:
        return character
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if point > 0xFFFF:
        return character if character.isprintable() and point < 0x10FFFF else f"\\U{point:08X}"
    if point <= 0x7F:
        return f"\\x{point:02X}"
    return character if character.isprintable() and not 0xD7FF <= point <= 0xE000 else f"\\u{point:04X}"


def _comment_text(comment: str) -> str:
    plain = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in comment
    )
    return plain if len(plain) <= COMMENT_CHARS else plain[: COMMENT_CHARS - 1] + "…"
