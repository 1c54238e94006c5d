"""A grammar made ready to be written: what admits nothing is taken out, what is used once is put in its place.

* A rule without a finite text admits nothing. Alternatives that need one go; if the start rule goes, nothing is left.
* Rules are written in the order in which they are first used, the start rule first, and numbered in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from judge_local.grammar.emit import (
    Block,
    Body,
    Chars,
    Extent,
    Literal,
    Ref,
    Repeat,
    Rules,
    Term,
    body_text,
    comment_text,
    join,
)

_ROUNDS: Final = 4
_PREFIX: Final = "\x00"
"""Stands for the name of a block; no text of a grammar holds it."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A grammar and how long its texts are."""

    gbnf: str
    extent: Extent


def productive(rules: Rules) -> set[str]:
    """The names of the rules that some finite text satisfies."""
    waiting: dict[str, list[tuple[str, list[int]]]] = {}
    found: set[str] = set()
    pending: list[str] = list(rules.blocks)
    for name, bodies in rules.bodies.items():
        for body in bodies:
            needed = set(needs(body))
            left = [len(needed)]
            if not needed:
                pending.append(name)
            for other in needed:
                waiting.setdefault(other, []).append((name, left))
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        for other, left in waiting.get(name, ()):
            left[0] -= 1
            if left[0] == 0:
                pending.append(other)
    return found


def names(body: Body) -> Iterator[str]:
    """The rules that a body mentions."""
    for term in body:
        item = term.item if isinstance(term, Repeat) else term
        if isinstance(item, Ref):
            yield item.name


def needs(body: Body) -> Iterator[str]:
    """The rules without which a body admits nothing."""
    for term in body:
        if isinstance(term, Ref):
            yield term.name
        elif isinstance(term, Repeat) and term.low and isinstance(term.item, Ref):
            yield term.item.name


def finish(rules: Rules, root: Ref, live: set[str]) -> Finished:
    """The text of the grammar that begins with `root`, which must be among the `live` rules."""
    if root.name in rules.blocks:
        whole = rules.declare()
        rules.fill(whole, [(root,)])
        root, live = whole, live | {whole.name}
    bodies = _pruned(rules, root.name, live)
    for name, each in bodies.items():
        # A rule that only stands for a block is put in its place; what it was made for is said there.
        target = each[0][0] if len(each) == 1 and len(each[0]) == 1 else None
        if isinstance(target, Ref) and target.name in rules.blocks and name in rules.comments:
            rules.comments.setdefault(target.name, rules.comments[name])
    for _ in range(_ROUNDS):
        before = len(bodies)
        bodies, start = _one_of_each(_inlined(bodies, root.name), root.name)
        root = Ref(start)
        if len(bodies) == before:
            break
    order = _order(bodies, root.name)
    extents = _extents(bodies, {name: block.extent for name, block in rules.blocks.items()})
    renamed = {name: f"r{number}" for number, name in enumerate(order)}
    recurs = any(root.name in names(body) for each in bodies.values() for body in each)
    lines = [f"root ::= {renamed[root.name]}"] if recurs else []
    for name in order:
        comment = rules.comments.get(name)
        if comment and name != root.name:
            lines.append(f"# {comment_text(comment)}")
        if name in bodies:
            head = "root" if name == root.name and not recurs else renamed[name]
            lines.append(_line(head, bodies[name], renamed))
        else:
            lines += _block_lines(rules.blocks[name], renamed[name])
    return Finished("\n".join(lines) + "\n", extents[root.name])


def _line(name: str, each: tuple[Body, ...], renamed: dict[str, str]) -> str:
    return f"{name} ::= " + " | ".join(body_text(_renamed(body, renamed)) for body in each)


def _block_lines(block: Block, prefix: str) -> list[str]:
    return _template(block).replace(_PREFIX, prefix).split("\n")


@lru_cache(512)
def _template(block: Block) -> str:
    """The text of a block with a mark where its own name goes: many grammars share a block."""
    renamed = {name: f"{_PREFIX}-{number}" if number else _PREFIX for number, name in enumerate(block.bodies)}
    return "\n".join(_line(renamed[name], each, renamed) for name, each in block.bodies.items())


def sealed(rules: Rules, root: Body) -> Block:
    """What `root` admits as a block: rules all of which admit something."""
    (term,) = root if len(root) == 1 else (None,)
    if isinstance(term, Ref):
        start = term
    else:
        start = rules.declare()
        rules.fill(start, [root])
    bodies = _inlined(rules.bodies, start.name)
    for name, block in rules.blocks.items():
        own = {inner: f"{name}-{number}" if number else name for number, inner in enumerate(block.bodies)}
        for inner, each in block.bodies.items():
            bodies[own[inner]] = tuple(_renamed(body, own) for body in each)
    order = _order(bodies, start.name)
    bodies = {name: bodies[name] for name in order}
    return Block(bodies, _extents(bodies, {})[start.name])


def _pruned(rules: Rules, root: str, live: set[str]) -> dict[str, tuple[Body, ...]]:
    kept: dict[str, tuple[Body, ...]] = {}
    pending = [root]
    while pending:
        name = pending.pop()
        if name in kept or name in rules.blocks:
            continue
        bodies = [
            tuple(term for term in body if not _is_dead(term, live))
            for body in rules.bodies[name]
            if all(other in live for other in needs(body))
        ]
        kept[name] = tuple(dict.fromkeys(bodies))
        pending += [other for body in kept[name] for other in names(body)]
    return kept


def _is_dead(term: Term, live: set[str]) -> bool:
    """Whether a repetition that may be none repeats what admits nothing."""
    return isinstance(term, Repeat) and isinstance(term.item, Ref) and term.item.name not in live


def _inlined(bodies: dict[str, tuple[Body, ...]], root: str) -> dict[str, tuple[Body, ...]]:
    """The same, rules with one alternative put where they are used: if they are short, or used once."""
    uses = Counter(name for each in bodies.values() for body in each for name in names(body))
    inline = {
        name: each[0]
        for name, each in bodies.items()
        if name != root and len(each) == 1 and (uses[name] == 1 or _is_short(each[0]))
    }
    done: dict[str, Body] = {}
    for first in inline:
        pending = [first]
        while pending:
            # There is no way round in a circle: rules with one alternative each would admit nothing.
            missing = [other for other in names(inline[pending[-1]]) if other in inline and other not in done]
            if missing:
                pending += missing
            else:
                name = pending.pop()
                done[name] = _with(inline[name], done)
    kept = {
        name: tuple(dict.fromkeys(_with(body, done) for body in each))
        for name, each in bodies.items()
        if name not in done
    }
    # A repetition still needs the name of what is more than one term.
    asked = list(kept)
    while asked:
        for other in [other for body in kept[asked.pop()] for other in names(body)]:
            if other not in kept and other in done:
                kept[other] = (done[other],)
                asked.append(other)
    return kept


def _is_short(body: Body) -> bool:
    # A repetition is not: llama.cpp writes it out wherever it stands.
    return not body or (len(body) == 1 and not isinstance(body[0], Repeat))


def _with(body: Body, inline: dict[str, Body]) -> Body:
    if not any(name in inline for name in names(body)):
        return body
    parts: list[Body] = []
    for term in body:
        if isinstance(term, Ref) and term.name in inline:
            parts.append(inline[term.name])
        elif isinstance(term, Repeat) and isinstance(term.item, Ref) and term.item.name in inline:
            item = inline[term.item.name]
            if len(item) == 1 and not isinstance(item[0], Repeat):
                parts.append((Repeat(item[0], term.low, term.high),))
            else:
                parts.append((term,) if item else ())
        else:
            parts.append((term,))
    return join(*parts)


def _one_of_each(bodies: dict[str, tuple[Body, ...]], root: str) -> tuple[dict[str, tuple[Body, ...]], str]:
    """The same with rules that have the same alternatives made one."""
    first: dict[tuple[Body, ...], str] = {}
    same: dict[str, Body] = {}
    for name, each in bodies.items():
        kept = first.setdefault(each, name)
        if kept != name:
            same[name] = (Ref(kept),)
    if not same:
        return bodies, root
    start = root
    if root in same:
        start = first[bodies[root]]
    merged = {
        name: tuple(dict.fromkeys(_with(body, same) for body in each))
        for name, each in bodies.items()
        if name not in same
    }
    return merged, start


def _order(bodies: dict[str, tuple[Body, ...]], root: str) -> list[str]:
    found: dict[str, None] = {}
    pending = [root]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = None
            pending += reversed([other for body in bodies.get(name, ()) for other in names(body)])
    return list(found)


def _renamed(body: Body, new: dict[str, str]) -> Body:
    return tuple(
        Ref(new[term.name])
        if isinstance(term, Ref)
        else Repeat(Ref(new[term.item.name]), term.low, term.high)
        if isinstance(term, Repeat) and isinstance(term.item, Ref)
        else term
        for term in body
    )


def _extents(bodies: dict[str, tuple[Body, ...]], known: dict[str, Extent]) -> dict[str, Extent]:
    """The extents of all rules; those that lead into a cycle have no longest text. Those of blocks are `known`."""
    users: dict[str, set[str]] = {}
    left: dict[str, int] = {}
    for name, each in bodies.items():
        needed = {other for body in each for other in names(body) if other not in known}
        left[name] = len(needed)
        for other in needed:
            users.setdefault(other, set()).add(name)
    found: dict[str, Extent] = dict(known)
    pending = [name for name, count in left.items() if not count]
    while pending:
        name = pending.pop()
        found[name] = _of_rule(bodies[name], found)
        for user in users.get(name, ()):
            left[user] -= 1
            if not left[user]:
                pending.append(user)
    endless = [name for name in bodies if name not in found]
    shortest = dict.fromkeys(endless, -1)
    changed = bool(endless)
    while changed:
        changed = False
        for name in endless:
            least = min(
                (_least(body, found, shortest) for body in bodies[name]), key=lambda size: (size < 0, size)
            )
            if least != shortest[name]:
                shortest[name], changed = least, True
    return found | {name: Extent(shortest[name], None, None) for name in endless}


def _least(body: Body, found: dict[str, Extent], shortest: dict[str, int]) -> int:
    """Bytes of the shortest text of a body; -1 while that is not known."""
    total = 0
    for term in body:
        item, times = (term.item, term.low) if isinstance(term, Repeat) else (term, 1)
        if not times:
            continue
        if isinstance(item, Ref) and item.name not in found:
            if shortest[item.name] < 0:
                return -1
            total += times * shortest[item.name]
        else:
            total += times * _of_item(item, found).min_bytes
    return total


def _of_rule(each: tuple[Body, ...], found: dict[str, Extent]) -> Extent:
    least = most = wide = 0
    endless = False
    for number, body in enumerate(each):
        low = high = across = 0
        for term in body:
            item, fewest, times = (
                (term.item, term.low, term.high) if isinstance(term, Repeat) else (term, 1, 1)
            )
            one = _of_item(item, found)
            low += fewest * one.min_bytes
            if one.max_bytes is None or one.max_chars is None:
                endless = endless or times > 0
            else:
                high += times * one.max_bytes
                across += times * one.max_chars
        least = low if number == 0 else min(least, low)
        most, wide = max(most, high), max(wide, across)
    return Extent(least, None if endless else most, None if endless else wide)


def _of_item(item: Literal | Chars | Ref, found: dict[str, Extent]) -> Extent:
    if isinstance(item, Literal):
        size = len(item.text.encode())
        return Extent(size, size, len(item.text))
    if isinstance(item, Chars):
        return Extent(len(chr(item.ranges[0][0]).encode()), len(chr(item.ranges[-1][1]).encode()), 1)
    return found[item.name]
