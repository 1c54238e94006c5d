"""Random texts of a grammar, walked from its GBNF alone: what a model could write if it wrote anything at all.

Counts and characters are drawn at their limits about half of the time, because that is where compilers are wrong.
"""

from __future__ import annotations

from random import Random
from typing import Any

from judge_local.grammar.gbnf import read_gbnf
from judge_local.grammar.items import Chain, Choice, Item, Loop, Name, Points, Word

MORE = 5
"""An endless repetition is drawn at most this many times over its least."""


def derive(gbnf: str, random: Random) -> str:
    """One text of the grammar."""
    rules = read_gbnf(gbnf)
    return _derive(rules["root"], rules, random)


def _derive(item: Item, rules: dict[str, Item], random: Random) -> str:
    if isinstance(item, Word):
        return item.text
    if isinstance(item, Name):
        return _derive(rules[item.name], rules, random)
    if isinstance(item, Chain):
        return "".join(_derive(part, rules, random) for part in item.items)
    if isinstance(item, Choice):
        return _derive(random.choice(item.ways), rules, random)
    if isinstance(item, Points):
        low, high = random.choice(item.ranges)
        return chr(random.choice((low, high, random.randint(low, high))))
    assert isinstance(item, Loop)
    most = item.low + MORE if item.high is None else item.high
    count = random.choice((item.low, most, random.randint(item.low, most)))
    return "".join(_derive(item.item, rules, random) for _ in range(count))


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: a hook for `json.loads`."""
    found = dict(pairs)
    assert len(found) == len(pairs), f"a key twice in {pairs}"
    return found
