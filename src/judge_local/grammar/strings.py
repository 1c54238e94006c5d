r"""Strings as rules: characters, lengths, automata, and the quotes around them.

* A character is written raw, or by its one canonical escape: `\" \\ \n \t \r \b \f`, other C0 controls as `\u00xx`.
  No other escape, so a text has one spelling and lone surrogates cannot be written.
* A length counts code points: an emoji is one, an escape is one, a letter with a combining accent is two.
* An automaton becomes one rule for each state. A state that can go round on itself does so a bounded number of times.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from judge_local.grammar import points
from judge_local.grammar.automata import Automaton
from judge_local.grammar.emit import Block, Body, Chars, Rules, chars, join, text
from judge_local.grammar.finish import sealed
from judge_local.grammar.items import ANY, Ranges

RAW = chars(" ", "!", "#-[", "]-~", "\x80-\ud7ff", "\ue000-\U0010ffff")
"""What stands in a string as itself: everything but controls, `"`, `\\` and surrogates."""
_ESCAPED: Final = ((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
_SHORT: Final = {0x22: '"', 0x5C: "\\", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t"}


class StringWriter:
    """Writes strings into the rules of one grammar."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._known: dict[tuple[int, int], tuple[Automaton, Body]] = {}

    def sized(self, low: int, high: int) -> Body:
        """Any text of `low` to `high` characters, in quotes."""
        return self._rules.embed(_sized(low, high))

    def following(self, automaton: Automaton, loop: int) -> Body:
        """The texts of `automaton`, without quotes.

        Args:
            automaton: not empty.
            loop: how often a state may go round on itself.
        """
        known = self._known.get((id(automaton), loop))
        if known is None:
            known = (automaton, self._rules.embed(block_of(automaton, loop)))
            self._known[id(automaton), loop] = known
        return known[1]


@lru_cache(256)
def _sized(low: int, high: int) -> Block:
    rules = Rules()
    return sealed(rules, join(text('"'), rules.times(character(rules, ANY), low, high), text('"')))


@lru_cache(256)
def block_of(automaton: Automaton, loop: int) -> Block:
    """The texts of an automaton as rules, each state's way round itself bounded by `loop`."""
    rules = Rules()
    states = [rules.declare() for _ in automaton.moves]
    for state, row in enumerate(automaton.moves):
        groups: dict[int, list[tuple[int, int]]] = {}
        for low, high, to in row:
            groups.setdefault(to, []).append((low, high))
        again = groups.pop(state, None)
        ways: list[Body] = []
        for to, ranges in groups.items():
            one = character(rules, points.normal(ranges))
            if one:
                ways.append(join(one, (states[to],)))
        if automaton.accepts[state]:
            ways.append(())
        step = character(rules, points.normal(again)) if again else ()
        if step:
            rest = rules.declare()
            rules.fill(rest, ways)
            ways = [join(rules.times(step, 0, loop), (rest,))]
        rules.fill(states[state], ways)
    return sealed(rules, (states[0],))


def character(rules: Rules, ranges: Ranges) -> Body:
    """One character of `ranges`, in its one spelling; nothing where it has none."""
    ways = list(_raw(ranges))
    escapes = _escapes(ranges)
    if escapes:
        known = rules.escapes.get(escapes)
        if known is None:
            short, rare = escapes
            inner: list[Body] = [(Chars(short),)] if short else []
            if rare:
                inner.append(
                    rules.define(join(text(f"u00{high}"), (Chars(digits),)) for high, digits in rare)
                )
            known = rules.escapes[escapes] = join(text("\\"), rules.define(inner))
        ways.append(known)
    return rules.define(ways) if ways else ()


@lru_cache(4096)
def _raw(ranges: Ranges) -> tuple[Body, ...]:
    """What stands as itself of `ranges`: one way, or none."""
    raw = points.meet(ranges, RAW.ranges)
    if len(raw) == 1 and raw[0][0] == raw[0][1]:
        return (text(chr(raw[0][0])),)
    return ((Chars(raw),),) if raw else ()


@lru_cache(4096)
def _escapes(ranges: Ranges) -> tuple[Ranges, tuple[tuple[int, Ranges], ...]] | None:
    """What is escaped of `ranges`: the letters of the short escapes, and the digits of `u000x` and `u001x`."""
    held = [point for low, high in points.meet(ranges, _ESCAPED) for point in range(low, high + 1)]
    if not held:
        return None
    short = points.of("".join(_SHORT[point] for point in held if point in _SHORT))
    rare = []
    for high in (0, 1):
        last = [point % 16 for point in held if point // 16 == high and point not in _SHORT]
        if last:
            rare.append((high, points.of("".join(f"{digit:x}" for digit in last))))
    return short, tuple(rare)


def quoted(body: Body) -> Body:
    """A body between quotes."""
    return join(text('"'), body, text('"'))
