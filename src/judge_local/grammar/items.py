"""What a grammar is made of, and what can be told of it without reading a text.

Rules may call each other in any way but one: no rule begins with itself, not even behind parts that may be empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from judge_local.errors import GrammarTextError

MAX_POINT: Final = 0x10FFFF

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points, ascending and apart."""

ANY: Final[Ranges] = ((0, 0xD7FF), (0xE000, MAX_POINT))
"""Every code point that UTF-8 can carry."""


@dataclass(frozen=True, slots=True)
class Points:
    """One code point out of `ranges`."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Word:
    """A fixed text, at least one character long."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A rule, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Items one after another; none for the empty text."""

    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of `ways`, at least one."""

    ways: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`item` from `low` to `high` times; without an end when `high` is None."""

    item: Item
    low: int
    high: int | None


Item: TypeAlias = Points | Word | Name | Chain | Choice | Loop


def names_in(item: Item) -> list[str]:
    """The names of the rules that `item` mentions."""
    found, pending = [], [item]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            found.append(part.name)
        elif isinstance(part, Chain):
            pending += part.items
        elif isinstance(part, Choice):
            pending += part.ways
        elif isinstance(part, Loop):
            pending.append(part.item)
    return found


def refuse_unsafe(rules: dict[str, Item]) -> None:
    """Refuse rules that no matcher can follow safely.

    Raises:
        GrammarTextError: a rule that begins with itself, or that no finite text satisfies.
    """
    _refuse_cycles(first_names(rules))
    for name in rules.keys() - _closure(rules, is_finite):
        raise GrammarTextError(f"rule {name}", "no finite text satisfies it", "Give it a way to end.")


def first_names(rules: dict[str, Item]) -> dict[str, set[str]]:
    """For each rule the names that one of its texts may begin with.

    Raises:
        GrammarTextError: an endless repetition of what may be empty.
    """
    nullable = _closure(rules, is_empty)
    first: dict[str, set[str]] = {}
    for name, item in rules.items():
        first[name] = set()
        pending = [item]
        while pending:
            part = pending.pop()
            if isinstance(part, Name):
                first[name].add(part.name)
            elif isinstance(part, Choice):
                pending += part.ways
            elif isinstance(part, Loop):
                if part.high is None and is_empty(part.item, nullable):
                    raise GrammarTextError(
                        f"rule {name}", "an endless repetition of what may be empty", "Bound it."
                    )
                pending.append(part.item)
            elif isinstance(part, Chain):
                for inner in part.items:
                    pending.append(inner)
                    if not is_empty(inner, nullable):
                        break
    return first


def _closure(rules: dict[str, Item], holds: Callable[[Item, set[str]], bool]) -> set[str]:
    """The names of the rules for which `holds`, given the names for which it is known to."""
    found: set[str] = set()
    while True:
        before = len(found)
        # Leaves mostly come last, so that one round settles most of it.
        for name in reversed(rules):
            if name not in found and holds(rules[name], found):
                found.add(name)
        if len(found) == before:
            return found


def is_empty(item: Item, known: set[str]) -> bool:
    """Whether the empty text satisfies `item`, when it satisfies the rules in `known`."""
    if isinstance(item, Name):
        return item.name in known
    if isinstance(item, Chain):
        return all(is_empty(part, known) for part in item.items)
    if isinstance(item, Choice):
        return any(is_empty(way, known) for way in item.ways)
    return isinstance(item, Loop) and (item.low == 0 or is_empty(item.item, known))


def is_finite(item: Item, known: set[str]) -> bool:
    """Whether some finite text satisfies `item`, when some satisfies each rule in `known`."""
    if isinstance(item, Name):
        return item.name in known
    if isinstance(item, Chain):
        return all(is_finite(part, known) for part in item.items)
    if isinstance(item, Choice):
        return any(is_finite(way, known) for way in item.ways)
    return not isinstance(item, Loop) or item.low == 0 or is_finite(item.item, known)


def _refuse_cycles(first: dict[str, set[str]]) -> None:
    done: set[str] = set()
    for start in first:
        path: dict[str, list[str]] = {}
        pending = [start]
        while pending:
            name = pending[-1]
            if name in done:
                pending.pop()
                continue
            ahead = path.setdefault(name, sorted(first[name]))
            if not ahead:
                done.add(name)
                del path[name]
                pending.pop()
                continue
            following = ahead.pop()
            if following in path:
                raise GrammarTextError(
                    f"rule {following}", "it begins with itself", "Rewrite it without left recursion."
                )
            pending.append(following)
