r"""From a pattern to the automaton of the texts in which it is found.

* Edges (`^`, `$`, `\b`) are free steps that ask what stands before and after; a state remembers what came before.
* Work is bounded, so that a pattern made to explode is refused within a second.
"""

from __future__ import annotations

from collections.abc import Iterable

from judge_local.grammar import points
from judge_local.grammar.automata import MAX_WORK, Automaton, explore
from judge_local.grammar.items import ANY, Ranges
from judge_local.grammar.regex import Class, Edge, Either, Pattern, PatternError, Reading, Repeated, Sequence


class _Nfa:
    """A pattern's own automaton: edges on characters, and free ones that may ask for an edge of the text."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[Ranges, int]]] = []
        self.free: list[list[tuple[str, int]]] = []

    def state(self) -> int:
        if len(self.steps) >= MAX_WORK // 50:
            raise PatternError("its counts make it too large")
        self.steps.append([])
        self.free.append([])
        return len(self.steps) - 1

    def add(self, pattern: Pattern, begin: int) -> int:
        """Append `pattern` after `begin`; the state where it ends."""
        if isinstance(pattern, Class):
            end = self.state()
            if pattern.ranges:
                self.steps[begin].append((pattern.ranges, end))
            return end
        if isinstance(pattern, Edge):
            end = self.state()
            self.free[begin].append((pattern.kind, end))
            return end
        if isinstance(pattern, Sequence):
            for part in pattern.parts:
                begin = self.add(part, begin)
            return begin
        if isinstance(pattern, Either):
            end = self.state()
            for way in pattern.ways:
                first = self.state()
                self.free[begin].append(("", first))
                self.free[self.add(way, first)].append(("", end))
            return end
        return self._repeated(pattern, begin)

    def _repeated(self, pattern: Repeated, begin: int) -> int:
        for _ in range(pattern.low):
            begin = self.add(pattern.part, begin)
        if pattern.high is None:
            loop, end = self.state(), self.state()
            self.free[begin].append(("", loop))
            self.free[self.add(pattern.part, loop)].append(("", loop))
            self.free[loop].append(("", end))
            return end
        end = self.state()
        for _ in range(pattern.high - pattern.low):
            self.free[begin].append(("", end))
            begin = self.add(pattern.part, begin)
        self.free[begin].append(("", end))
        return end


def of_pattern(pattern: Pattern, reading: Reading = "lower", *, search: bool = True) -> Automaton:
    """The texts in which `pattern` is found (`search`), or which it is whole.

    Raises:
        PatternError: its automaton is too large.
    """
    nfa = _Nfa()
    start = nfa.state()
    final = nfa.add(pattern, start)
    if search:
        begin = nfa.state()
        nfa.steps[begin].append((ANY, begin))
        nfa.free[begin].append(("", start))
        nfa.steps[final].append((ANY, final))
        start = begin
    return _Determinised(nfa, start, final, reading).automaton()


class _Determinised:
    def __init__(self, nfa: _Nfa, start: int, final: int, reading: Reading) -> None:
        self._nfa, self._start, self._final, self._upper = nfa, start, final, reading == "upper"
        kinds = {kind for free in nfa.free for kind, _ in free}
        self._words = bool(kinds & {"b", "B"}) and not self._upper
        self._begins = "^" in kinds
        # What the next character may be, as far as edges ask: (characters, is a word's, is a line end).
        self._next: list[tuple[Ranges, bool, bool]]
        if self._words:
            # Beyond ASCII engines differ in what a word is, so no such letter is admitted.
            plain = points.without(points.complement(points.WORD), points.unicode_class("w"))
            self._next = [(points.WORD, True, False), (plain, False, False)]
        elif "$" in kinds and self._upper:
            line_end = points.of("\n")
            self._next = [(line_end, False, True), (points.complement(line_end), False, False)]
        else:
            self._next = [(ANY, False, False)]
        self._work = 0
        self._closures: dict[tuple[frozenset[int], int, str], frozenset[int]] = {}

    def automaton(self) -> Automaton:
        before = 0 if self._begins or self._words else 1
        return explore((frozenset({self._start}), before), self._moves, self._accepts)

    def _accepts(self, key: tuple[frozenset[int], int]) -> bool:
        return self._final in self._closure(*key, "end")

    def _moves(
        self, key: tuple[frozenset[int], int]
    ) -> Iterable[tuple[int, int, tuple[frozenset[int], int]]]:
        found: list[tuple[int, int, tuple[frozenset[int], int]]] = []
        for allowed, word, line_end in self._next:
            after = "word" if word else "line end" if line_end else "other"
            states = self._closure(*key, after)
            steps = [step for state in states for step in self._nfa.steps[state]]
            before = 2 if word and self._words else 1
            for low, high, targets in self._parts(steps, allowed):
                found.append((low, high, (targets, before)))
        return sorted(found, key=lambda move: move[0])

    def _parts(
        self, steps: list[tuple[Ranges, int]], allowed: Ranges
    ) -> Iterable[tuple[int, int, frozenset[int]]]:
        """The allowed characters in stretches that lead to the same states."""
        events: dict[int, list[int]] = {}
        for ranges, to in steps:
            for low, high in ranges if allowed is ANY else points.meet(ranges, allowed):
                events.setdefault(low, []).append(to + 1)
                events.setdefault(high + 1, []).append(-to - 1)
        counts: dict[int, int] = {}
        borders = sorted(events)
        self._work += len(borders) + len(steps)
        for at, border in enumerate(borders):
            for mark in events[border]:
                state, change = abs(mark) - 1, 1 if mark > 0 else -1
                counts[state] = counts.get(state, 0) + change
                if not counts[state]:
                    del counts[state]
            if counts:
                self._work += len(counts)
                yield border, borders[at + 1] - 1, frozenset(counts)
        if self._work > MAX_WORK:
            raise PatternError("its automaton takes too long to build")

    def _closure(self, states: frozenset[int], before: int, after: str) -> frozenset[int]:
        key = (states, before, after)
        known = self._closures.get(key)
        if known is None:
            found, pending = set(states), list(states)
            while pending:
                for kind, to in self._nfa.free[pending.pop()]:
                    if to not in found and self._holds(kind, before, after):
                        found.add(to)
                        pending.append(to)
            self._work += len(found)
            if self._work > MAX_WORK:
                raise PatternError("its automaton takes too long to build")
            known = self._closures[key] = frozenset(found)
        return known

    def _holds(self, kind: str, before: int, after: str) -> bool:
        if kind == "^":
            return before == 0
        if kind == "$":
            return after in ("end", "line end")
        if not kind or self._upper:
            return True
        return ((before == 2) != (after == "word")) == (kind == "b")
