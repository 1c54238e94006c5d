"""Grammar rules, and their text in GBNF.

* Two rules that are defined with the same body are one rule.
* Rule names are counters, never user text; the place a rule was made for stands in a comment line before it.
* A repetition counts to at most `BLOCK`, and what it repeats is a class, a literal or a rule's name, never a group:
  llama.cpp gives up on larger ones, or drops the bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
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


def chars(*members: str) -> Chars:
    """A class from single characters (`"a"`) and ranges (`"a-z"`), given in ascending order."""
    return Chars(tuple((ord(member[0]), ord(member[-1])) for member in members))


def text(value: str) -> Body:
    """The body that admits exactly `value`."""
    return (Literal(value),) if value else ()


def join(*bodies: Body) -> Body:
    """The bodies one after another, neighbouring literals made one."""
    joined: list[Term] = []
    for body in bodies:
        if not body:
            continue
        first = body[0]
        if joined and isinstance(first, Literal) and isinstance(last := joined[-1], Literal):
            # Within a body neighbours were made one already.
            joined[-1] = Literal(last.text + first.text)
            joined += body[1:]
        else:
            joined += body
    return tuple(joined)


@dataclass(frozen=True, slots=True)
class Extent:
    """How long the texts of a rule are. None means that there is no longest one."""

    min_bytes: int
    max_bytes: int | None
    max_chars: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Rules that are as they will be written, under names of their own. The first is where they begin."""

    bodies: dict[str, tuple[Body, ...]]
    extent: Extent


class Rules:
    """The rules of one grammar while it is made. Rules may be named before they are written, so they may recur."""

    def __init__(self) -> None:
        self.bodies: dict[str, tuple[Body, ...]] = {}
        self.comments: dict[str, str] = {}
        self.blocks: dict[str, Block] = {}
        self.escapes: dict[object, Body] = {}
        """Escapes that were written before."""
        self._names: dict[tuple[Body, ...], str] = {}
        self._embedded: dict[int, tuple[Block, Ref]] = {}
        self._count = 0

    def declare(self, comment: str = "") -> Ref:
        """A rule that is written later, with `fill`."""
        self._count += 1
        name = f"r{self._count}"
        if comment:
            self.comments[name] = comment
        return Ref(name)

    def fill(self, rule: Ref, alternatives: Iterable[Body]) -> None:
        """Write a declared rule. Without alternatives it admits nothing, and is taken out in the end."""
        self.bodies[rule.name] = tuple(dict.fromkeys(alternatives))

    def define(self, alternatives: Iterable[Body], comment: str = "") -> Body:
        """The body that admits any of `alternatives`: a rule's name, or the one alternative if that is short.

        At least one alternative must be given.
        """
        bodies = tuple(dict.fromkeys(alternatives))
        if not bodies:
            raise AssertionError("a rule needs an alternative")
        if len(bodies) == 1 and len(bodies[0]) <= 1:
            return bodies[0]
        return (self._named(bodies, comment),)

    def embed(self, block: Block) -> Body:
        """The body that admits the texts of `block`."""
        known = self._embedded.get(id(block))
        if known is None:
            rule = self.declare()
            self.blocks[rule.name] = block
            known = self._embedded[id(block)] = (block, rule)
        return (known[1],)

    def times(self, item: Body, low: int, high: int, comment: str = "") -> Body:
        """`item` between `low` and `high` times, exactly, whatever the counts: blocks of blocks, then a tail."""
        if not item or high == 0:
            return ()
        unit = self._unit(item)
        return join(self._exactly(unit, low), self._at_most(unit, high - low, comment))

    def _named(self, bodies: tuple[Body, ...], comment: str = "") -> Ref:
        name = self._names.get(bodies)
        if name is None:
            rule = self.declare(comment)
            name = self._names[bodies] = rule.name
            self.bodies[name] = bodies
        return Ref(name)

    def _unit(self, item: Body) -> Literal | Chars | Ref:
        if len(item) == 1 and not isinstance(item[0], Repeat):
            return item[0]
        return self._named((item,))

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
        size = BLOCK
        if blocks > BLOCK:
            # Blocks of blocks keep the rules few.
            block, size = self._unit((Repeat(block, BLOCK, BLOCK),)), BLOCK * BLOCK
            blocks, rest = divmod(count, size)
        # The tail is a rule: llama.cpp writes a repetition out wherever it stands.
        tail: Body = (self._unit(self._at_most(unit, size - 1, comment)),)
        body = self._at_most(unit, rest, comment)
        for _ in range(blocks):
            body = self.define([join((block,), body), tail], comment)
        return body


def body_text(body: Body) -> str:
    """A body in GBNF."""
    return " ".join(_term_text(term) for term in body) or '""'


def _term_text(term: Term) -> str:
    if isinstance(term, Ref):
        return term.name
    if isinstance(term, Repeat):
        item = _term_text(term.item)
        if term.low == term.high:
            return item if term.low == 1 else f"{item}{{{term.low}}}"
        return f"{item}?" if (term.low, term.high) == (0, 1) else f"{item}{{{term.low},{term.high}}}"
    return _leaf_text(term)


@lru_cache(4096)
def _leaf_text(term: Literal | Chars) -> str:
    if isinstance(term, Literal):
        return '"' + "".join(_escaped(ord(character), '"\\') for character in term.text) + '"'
    return "[" + "".join(_range_text(low, high) for low, high in term.ranges) + "]"


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


def comment_text(comment: str) -> str:
    """A comment, on one line and not too long."""
    plain = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in comment
    )
    return plain if len(plain) <= COMMENT_CHARS else plain[: COMMENT_CHARS - 1] + "…"
