"""Deterministic automata over code points: met, complemented, bounded in length.

* A state has transitions on ranges of code points, ascending and apart; what no transition takes is refused.
* Every state of an automaton leads to acceptance. The empty language has one state, which accepts nothing.
* Work is bounded: an automaton that grows beyond `MAX_STATES`, or takes too many steps to build, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from judge_local.grammar import points
from judge_local.grammar.items import ANY
from judge_local.grammar.regex import PatternError

MAX_STATES: Final = 4000
MAX_WORK: Final = 2_000_000
"""Steps, of which a machine of today takes a few millions a second."""

Move = tuple[int, int, int]
"""First and last code point, and the state that follows."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Automaton:
    """States are numbered from 0, where it begins."""

    moves: tuple[tuple[Move, ...], ...]
    accepts: tuple[bool, ...]

    def __hash__(self) -> int:
        # Large tables are hashed by a part of them; equality looks at all.
        return hash((len(self.moves), self.moves[0], self.moves[-1], self.accepts[0]))

    @property
    def empty(self) -> bool:
        """Whether it accepts nothing."""
        return not any(self.accepts)

    @property
    def everything(self) -> bool:
        """Whether it accepts every text."""
        return self == ALL

    def matches(self, text: str) -> bool:
        """Whether it accepts `text`."""
        state = 0
        for character in text:
            point = ord(character)
            following = next((to for low, high, to in self.moves[state] if low <= point <= high), None)
            if following is None:
                return False
            state = following
        return self.accepts[state]

    def longest(self) -> int | None:
        """Characters of its longest text; None when there is none."""
        depth: dict[int, int] = {}
        pending: list[tuple[int, bool]] = [(0, False)]
        open_: set[int] = set()
        while pending:
            state, left = pending.pop()
            if left:
                open_.discard(state)
                depth[state] = max((depth[to] + 1 for _, _, to in self.moves[state]), default=0)
            elif state not in depth:
                if state in open_:
                    return None
                open_.add(state)
                pending.append((state, True))
                for _, _, to in self.moves[state]:
                    if to in open_:
                        return None
                    pending.append((to, False))
        return depth[0]

    def loops(self) -> tuple[int, int] | None:
        """Characters of the longest way that goes round no state, and the most states on a way that go round themselves.

        None when some way goes round more than one state.
        """
        straight = Automaton(
            tuple(tuple(move for move in row if move[2] != state) for state, row in enumerate(self.moves)),
            self.accepts,
        )
        if straight.longest() is None:
            return None
        most: dict[int, tuple[int, int]] = {}
        pending = [0]
        while pending:
            state = pending[-1]
            row = straight.moves[state]
            missing = [to for _, _, to in row if to not in most]
            if missing:
                pending += missing
                continue
            pending.pop()
            own = len(row) < len(self.moves[state])
            steps = max((most[to][0] + 1 for _, _, to in row), default=0)
            most[state] = (steps, max((most[to][1] for _, _, to in row), default=0) + own)
        return most[0]

    def shortest(self) -> int:
        """Characters of its shortest text; the language must not be empty."""
        level, seen, length = [0], {0}, 0
        while not any(self.accepts[state] for state in level):
            level = list({to for state in level for _, _, to in self.moves[state]} - seen)
            seen.update(level)
            length += 1
        return length

    def texts(self, limit: int) -> list[str] | None:
        """All its texts, when there are at most `limit`."""
        if self.longest() is None:
            return None
        found, pending = [], [(0, "")]
        while pending:
            state, text = pending.pop()
            if self.accepts[state]:
                found.append(text)
            for low, high, to in self.moves[state]:
                if high - low >= limit:
                    return None
                pending += [(to, text + chr(point)) for point in range(low, high + 1)]
            if len(found) + len(pending) > limit * 4 or len(found) > limit:
                return None
        return sorted(found)


ALL: Final = Automaton((tuple((low, high, 0) for low, high in ANY),), (True,))
NONE: Final = Automaton(((),), (False,))


def explore(
    start: Key,
    moves: Callable[[Key], Iterable[tuple[int, int, Key]]],
    accepts: Callable[[Key], bool],
    limit: int = MAX_STATES,
) -> Automaton:
    """The automaton whose states are reached from `start`.

    Raises:
        PatternError: there are more than `limit`.
    """
    numbers: dict[Key, int] = {start: 0}
    order: list[Key] = [start]
    table: list[tuple[Move, ...]] = []
    work = 0
    for key in order:
        row: list[Move] = []
        for low, high, to in moves(key):
            number = numbers.get(to)
            if number is None:
                if len(order) >= limit:
                    raise PatternError(f"its automaton has more than {limit} states")
                number = numbers[to] = len(order)
                order.append(to)
            if row and row[-1][2] == number and row[-1][1] + 1 == low:
                row[-1] = (row[-1][0], high, number)
            else:
                row.append((low, high, number))
        work += len(row)
        if work > MAX_WORK:
            raise PatternError("its automaton has too many transitions")
        table.append(tuple(row))
    return _trimmed(table, [accepts(key) for key in order])


def _trimmed(moves: list[tuple[Move, ...]], accepts: list[bool]) -> Automaton:
    """The same without the states that lead nowhere."""
    back: list[list[int]] = [[] for _ in moves]
    for state, row in enumerate(moves):
        for _, _, to in row:
            back[to].append(state)
    live = {state for state, good in enumerate(accepts) if good}
    pending = list(live)
    while pending:
        for state in back[pending.pop()]:
            if state not in live:
                live.add(state)
                pending.append(state)
    if 0 not in live:
        return NONE
    kept = [state for state in range(len(moves)) if state in live]
    renamed = {state: number for number, state in enumerate(kept)}
    rows = tuple(
        tuple((low, high, renamed[to]) for low, high, to in moves[state] if to in live) for state in kept
    )
    return _merged(rows, tuple(accepts[state] for state in kept))


def _merged(moves: tuple[tuple[Move, ...], ...], accepts: tuple[bool, ...]) -> Automaton:
    """States that accept the same made one, as far as a few rounds show."""
    if len(moves) > 120:
        return Automaton(moves, accepts)
    block = [int(accept) for accept in accepts]
    count = len(set(block))
    while True:
        known: dict[object, int] = {}
        following = []
        for state, row in enumerate(moves):
            signature: list[tuple[int, int, int]] = []
            for low, high, to in row:
                if signature and signature[-1][2] == block[to] and signature[-1][1] + 1 == low:
                    signature[-1] = (signature[-1][0], high, block[to])
                else:
                    signature.append((low, high, block[to]))
            following.append(known.setdefault((block[state], tuple(signature)), len(known)))
        block = following
        if len(known) == count:
            break
        count = len(known)
    if count == len(moves):
        return Automaton(moves, accepts)
    first: dict[int, int] = {}
    for state, number in enumerate(block):
        first.setdefault(number, state)
    # Blocks are numbered in the order of their first states, so that 0 stays the start.
    rows = []
    for state in first.values():
        kept: list[Move] = []
        for low, high, to in moves[state]:
            if kept and kept[-1][2] == block[to] and kept[-1][1] + 1 == low:
                kept[-1] = (kept[-1][0], high, block[to])
            else:
                kept.append((low, high, block[to]))
        rows.append(tuple(kept))
    return Automaton(tuple(rows), tuple(accepts[state] for state in first.values()))


def meet(first: Automaton, second: Automaton) -> Automaton:
    """What both accept."""
    if first.everything:
        return second
    if second.everything:
        return first

    def moves(pair: tuple[int, int]) -> Iterable[tuple[int, int, tuple[int, int]]]:
        left, right = first.moves[pair[0]], second.moves[pair[1]]
        i = j = 0
        while i < len(left) and j < len(right):
            low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
            if low <= high:
                yield low, high, (left[i][2], right[j][2])
            if left[i][1] < right[j][1]:
                i += 1
            else:
                j += 1

    return explore((0, 0), moves, lambda pair: first.accepts[pair[0]] and second.accepts[pair[1]])


def union(first: Automaton, second: Automaton) -> Automaton:
    """What either accepts."""
    return complement(meet(complement(first), complement(second)))


def complement(automaton: Automaton) -> Automaton:
    """All that it does not accept."""

    def moves(state: int | None) -> Iterable[tuple[int, int, int | None]]:
        if state is None:
            yield from ((low, high, None) for low, high in ANY)
            return
        taken = points.normal((low, high) for low, high, _ in automaton.moves[state])
        rest: list[tuple[int, int, int | None]] = [
            (low, high, None) for low, high in points.complement(taken)
        ]
        yield from sorted([*automaton.moves[state], *rest], key=lambda move: move[0])

    start: int | None = 0
    return explore(start, moves, lambda state: state is None or not automaton.accepts[state])


def bounded(automaton: Automaton, low: int, high: int | None) -> Automaton:
    """Its texts of `low` to `high` characters."""
    longest = automaton.longest()
    if high is not None and longest is not None and longest <= high:
        high = None
    if high is None and (low == 0 or (not automaton.empty and automaton.shortest() >= low)):
        return automaton

    def moves(key: tuple[int, int]) -> Iterable[tuple[int, int, tuple[int, int]]]:
        state, count = key
        if high is not None and count == high:
            return
        following = count + 1 if high is not None else min(count + 1, low)
        for first, last, to in automaton.moves[state]:
            yield first, last, (to, following)

    return explore((0, 0), moves, lambda key: key[1] >= low and automaton.accepts[key[0]])


def of_words(words: Iterable[str]) -> Automaton:
    """Exactly these texts."""
    table: list[dict[int, int]] = [{}]
    accepts = [False]
    for word in words:
        state = 0
        for character in word:
            point = ord(character)
            if point not in table[state]:
                table[state][point] = len(table)
                table.append({})
                accepts.append(False)
            state = table[state][point]
        accepts[state] = True
    return _trimmed(
        [tuple((point, point, to) for point, to in sorted(row.items())) for row in table], accepts
    )


def other_than(words: Iterable[str]) -> Automaton:
    """Every text but these."""
    table: list[dict[int, int]] = [{}]
    named = {0} if "" in (words := list(words)) else set()
    for word in words:
        state = 0
        for character in word:
            following = table[state].get(ord(character))
            if following is None:
                following = table[state][ord(character)] = len(table)
                table.append({})
            state = following
        named.add(state)
    free = len(table)
    rows: list[tuple[Move, ...]] = []
    for children in table:
        row: list[Move] = []
        begin = 0
        for point, to in sorted(children.items()):
            row += _free_moves(begin, point - 1, free)
            row.append((point, point, to))
            begin = point + 1
        row += _free_moves(begin, ANY[-1][1], free)
        rows.append(tuple(row))
    rows.append(tuple((low, high, free) for low, high in ANY))
    return Automaton(tuple(rows), tuple(state not in named for state in range(len(rows))))


def _free_moves(low: int, high: int, to: int) -> list[Move]:
    return [(max(low, a), min(high, b), to) for a, b in ANY if max(low, a) <= min(high, b)]
