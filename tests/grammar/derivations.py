"""Random texts of a grammar, walked from its GBNF alone: what a model could write if it wrote anything at all.

Counts and characters are drawn at their limits about half of the time, because that is where compilers are wrong. A text
that has become long is brought to its end by the shortest way.
"""

from __future__ import annotations

from random import Random
from typing import Any

from judge_local.grammar.gbnf import read_gbnf
from judge_local.grammar.items import Chain, Choice, Item, Loop, Name, Points, Word

MORE = 5
"""An endless repetition is drawn at most this many times over its least."""
ENOUGH = 3000
"""Characters after which a text is brought to its end."""


class Deriver:
    """Draws texts of one grammar."""

    def __init__(self, gbnf: str, enough: int = ENOUGH) -> None:
        self._rules = read_gbnf(gbnf)
        self._enough = enough
        self._least: dict[str, float] = {}
        changed = True
        while changed:
            changed = False
            for name, item in reversed(self._rules.items()):
                size = self._size(item)
                if size < self._least.get(name, float("inf")):
                    self._least[name], changed = size, True

    def draw(self, random: Random) -> str:
        """One text."""
        found: list[str] = []
        length = 0
        pending: list[Item] = [self._rules["root"]]
        while pending:
            item = pending.pop()
            if isinstance(item, Word):
                found.append(item.text)
                length += len(item.text)
            elif isinstance(item, Name):
                pending.append(self._rules[item.name])
            elif isinstance(item, Chain):
                pending += reversed(item.items)
            elif isinstance(item, Choice):
                pending.append(
                    min(item.ways, key=self._size) if length > self._enough else random.choice(item.ways)
                )
            elif isinstance(item, Points):
                low, high = random.choice(item.ranges)
                found.append(chr(random.choice((low, high, random.randint(low, high)))))
                length += 1
            elif isinstance(item, Loop):
                most = item.low + MORE if item.high is None else item.high
                few = min(most, item.low + MORE)
                count = random.choice((item.low, most, few, random.randint(item.low, few)))
                pending += [item.item] * (item.low if length > self._enough else count)
        return "".join(found)

    def _size(self, item: Item) -> float:
        if isinstance(item, Word):
            return len(item.text)
        if isinstance(item, Points):
            return 1
        if isinstance(item, Name):
            return self._least.get(item.name, float("inf"))
        if isinstance(item, Chain):
            return sum(self._size(part) for part in item.items)
        if isinstance(item, Choice):
            return min(self._size(way) for way in item.ways)
        return item.low * self._size(item.item) if item.low else 0


def derive(gbnf: str, random: Random) -> str:
    """One text of the grammar."""
    return Deriver(gbnf).draw(random)


class RepeatedKeyError(ValueError):
    """An object of a text holds a key twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: a hook for `json.loads`.

    Raises:
        RepeatedKeyError: a key stands twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RepeatedKeyError(f"a key twice in {[key for key, _ in pairs]}")
    return found
