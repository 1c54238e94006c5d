"""Follows a text through a grammar, byte by byte.

* Built from GBNF text alone; it knows nothing of schemas or of what wrote the grammar.
* A matcher is a value: `advance` gives a new one and leaves the old as it was. Matchers of one grammar share what they
  have worked out, so a step that was taken before is one look-up.
* Bytes are UTF-8 as the standard has it: no surrogates, no overlong forms. Inside a character, only bytes that can
  still become an admitted one are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from judge_local.grammar.gbnf import read_gbnf
from judge_local.grammar.items import Chain, Choice, Item, Loop, Name, Points, Ranges, Word, first_names

MAX_STATES: Final = 200_000
"""States kept for one grammar; beyond this all are forgotten and worked out again."""
_WIDE: Final = 256
"""A class with more members than this is called `a character` in words."""
_SHOWN: Final = 12
"""At most this many expectations are listed."""


class _Task:
    """What is still to be matched: `item`, then `then`; None for the end of the text."""

    __slots__ = ("item", "opening", "then")

    def __init__(self, item: Item, then: _Task | None) -> None:
        self.item, self.then = item, then
        self.opening: tuple[tuple[_Head, ...], bool] | None = None


class _Begin(NamedTuple):
    """One way an item may begin: a code point, and the items that follow it inside the item."""

    ranges: Ranges
    rest: tuple[Item, ...]
    source: Word | Points


class _Head(NamedTuple):
    """One way a text may go on: how an item begins, and what follows that item."""

    begin: _Begin
    then: _Task | None


class _State:
    """All that may follow a prefix. `partial` holds the bytes of a code point that is not complete yet."""

    __slots__ = ("ends", "heads", "moves", "partial")

    def __init__(self, heads: tuple[_Head, ...], ends: bool, partial: bytes) -> None:
        self.heads, self.ends, self.partial = heads, ends, partial
        self.moves: dict[int, _State | None] = {}


class _Machine:
    """The states of one grammar, worked out as they are needed."""

    def __init__(self, rules: dict[str, Item]) -> None:
        self._rules = rules
        self._first = first_names(rules)
        self._begins: dict[str | int, tuple[tuple[_Begin, ...], bool]] = {}
        self._items: dict[tuple[object, ...], Item] = {}
        self._tasks: dict[tuple[str | int, int], _Task] = {}
        self._states: dict[frozenset[_Task | None], _State] = {}
        self._partial: dict[tuple[int, bytes], _State] = {}
        self.start = self._state(frozenset({self._task(Name("root"), None)}))

    def step(self, state: _State, byte: int) -> _State | None:
        """The state after `byte`; None when it is refused."""
        if len(self._states) + len(self._partial) > MAX_STATES:
            self._forget()
        following = state.moves[byte] = self._step(state, byte)
        return following

    def only_point(self, state: _State) -> int | None:
        """The one code point that must come next, if there is one."""
        low, high = _possible(state.partial)
        only = -1
        for head in state.heads:
            for start, end in head.begin.ranges:
                first, last = max(start, low), min(end, high)
                if first > last:
                    continue
                if first < last or only not in (-1, first):
                    return None
                only = first
        return None if only < 0 else only

    def _step(self, state: _State, byte: int) -> _State | None:
        text = state.partial + bytes((byte,))
        size = _size(text[0])
        if size == 0 or (state.partial and byte >> 6 != 2):
            return None
        low, high = _possible(text)
        # An incomplete code point must be able to become an admitted one; a complete one has low == high.
        met = [head for head in state.heads if _meets(head.begin.ranges, low, high)]
        if not met:
            return None
        if len(text) < size:
            return self._unfinished(state, text)
        return self._state(frozenset(self._pushed(head.begin.rest, head.then) for head in met))

    def _state(self, tasks: frozenset[_Task | None]) -> _State:
        state = self._states.get(tasks)
        if state is None:
            heads: list[_Head] = []
            ends = False
            for task in tasks:
                more, may_end = self._opening(task)
                heads += more
                ends = ends or may_end
            state = self._states[tasks] = _State(tuple(heads), ends, b"")
        return state

    def _unfinished(self, state: _State, partial: bytes) -> _State:
        key = (id(state.heads), partial)
        found = self._partial.get(key)
        if found is None:
            found = self._partial[key] = _State(state.heads, ends=False, partial=partial)
        return found

    def _opening(self, task: _Task | None) -> tuple[tuple[_Head, ...], bool]:
        """How `task` may go on, and whether the text may be over."""
        if task is None:
            return (), True
        if task.opening is None:
            heads: list[_Head] = []
            part: _Task | None = task
            while part is not None:
                begins, empty = self._begin(part.item)
                heads += [_Head(begin, part.then) for begin in begins]
                if not empty:
                    break
                part = part.then
            task.opening = (tuple(heads), part is None)
        return task.opening

    def _begin(self, item: Item) -> tuple[tuple[_Begin, ...], bool]:
        """How `item` may begin, and whether it may be empty."""
        key = item.name if isinstance(item, Name) else id(item)
        known = self._begins.get(key)
        if known is None:
            if isinstance(item, Name):
                self._begin_rules(item.name)
                return self._begins[key]
            known = self._begins[key] = self._work_out(item)
        return known

    def _begin_rules(self, name: str) -> None:
        # Depth first without recursion: optional parts make long chains of rules that may be empty.
        pending = [name]
        while pending:
            missing = [first for first in self._first[pending[-1]] if first not in self._begins]
            if missing:
                pending += missing
            else:
                done = pending.pop()
                self._begins[done] = self._begin(self._rules[done])

    def _work_out(self, item: Item) -> tuple[tuple[_Begin, ...], bool]:
        if isinstance(item, Points):
            return (_Begin(item.ranges, (), item),), False
        if isinstance(item, Word):
            point, rest = ord(item.text[0]), item.text[1:]
            return (_Begin(((point, point),), (self._word(rest),) if rest else (), item),), False
        found: dict[tuple[object, ...], _Begin] = {}
        if isinstance(item, Choice):
            empty = False
            for way in item.ways:
                begins, may_be_empty = self._begin(way)
                _gather(found, begins, ())
                empty = empty or may_be_empty
        elif isinstance(item, Loop):
            begins, empty = self._begin(item.item) if item.high != 0 else ((), True)
            _gather(found, begins, self._less(item))
            empty = empty or item.low == 0
        else:
            assert isinstance(item, Chain)
            empty = True
            for index, part in enumerate(item.items):
                begins, empty = self._begin(part)
                _gather(found, begins, item.items[index + 1 :])
                if not empty:
                    break
        return tuple(found.values()), empty

    def _less(self, loop: Loop) -> tuple[Item, ...]:
        """What is left of `loop` when it was gone through once."""
        high = None if loop.high is None else loop.high - 1
        if high == 0:
            return ()
        low = max(loop.low - 1, 0)
        return (self._items.setdefault((id(loop.item), low, high), Loop(loop.item, low, high)),)

    def _word(self, text: str) -> Item:
        return self._items.setdefault((text,), Word(text))

    def _pushed(self, items: tuple[Item, ...], then: _Task | None) -> _Task | None:
        for item in reversed(items):
            then = self._task(item, then)
        return then

    def _task(self, item: Item, then: _Task | None) -> _Task:
        # Identity serves as a key: items come from the rules or from `_items`, and a task keeps its `then` alive.
        key = (item.name if isinstance(item, Name) else id(item), id(then))
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = _Task(item, then)
        return task

    def _forget(self) -> None:
        # The start state would otherwise keep every other one alive.
        for state in (*self._states.values(), *self._partial.values()):
            state.moves.clear()
        self._states.clear()
        self._partial.clear()
        self._tasks.clear()


def _gather(
    found: dict[tuple[object, ...], _Begin], begins: tuple[_Begin, ...], after: tuple[Item, ...]
) -> None:
    """Add `begins`, each followed by `after`; equal ones are kept once."""
    for begin in begins:
        rest = begin.rest + after
        found.setdefault((begin.ranges, *map(id, rest)), _Begin(begin.ranges, rest, begin.source))


def _meets(ranges: Ranges, low: int, high: int) -> bool:
    return low <= high and any(start <= high and low <= end for start, end in ranges)


@dataclass(frozen=True, slots=True)
class Matcher:
    """A place in the texts of a grammar: what was read, and so what may follow."""

    _machine: _Machine
    _state: _State

    @classmethod
    def from_gbnf(cls, source: str) -> Matcher:
        """A matcher that has read nothing, for the grammar whose start rule is `root`.

        Raises:
            GrammarTextError: the text is not a grammar, or one that cannot be followed safely.
        """
        machine = _Machine(read_gbnf(source))
        return cls(machine, machine.start)

    def advance(self, data: bytes) -> Matcher | None:
        """The matcher after `data`, which may end inside a character; None when the grammar refuses it."""
        state, machine = self._state, self._machine
        for byte in data:
            try:
                following = state.moves[byte]
            except KeyError:
                following = machine.step(state, byte)
            if following is None:
                return None
            state = following
        return Matcher(machine, state)

    @property
    def complete(self) -> bool:
        """Whether what was read is a whole text of the grammar; more may still be allowed to follow."""
        return self._state.ends and not self._state.partial

    @property
    def finished(self) -> bool:
        """Whether what was read is a whole text of the grammar, and nothing may follow."""
        return self.complete and not self._state.heads

    def forced(self) -> bytes:
        """The bytes that must follow, to the end of a character; empty where there is a choice or the text may end."""
        machine, state = self._machine, self._state
        found = bytearray()
        while not state.ends:
            point = machine.only_point(state)
            if point is None:
                break
            rest = chr(point).encode()[len(state.partial) :]
            found += rest
            after = Matcher(machine, state).advance(rest)
            assert after is not None, "the only way on is a way on"
            state = after._state
        return bytes(found)

    def expected(self) -> str:
        """What may follow, in words."""
        state = self._state
        if state.partial:
            return f"the rest of a character that begins with the bytes {state.partial.hex(' ')}"
        words = sorted({_words(head.begin.source) for head in state.heads})
        shown = [*words[:_SHOWN], *([f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else [])]
        if state.ends:
            shown.append("the end")
        return " or ".join(shown)


def _size(lead: int) -> int:
    """How many bytes the code point that begins with `lead` has; 0 when none does."""
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4:
        return 0
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def _possible(text: bytes) -> tuple[int, int]:
    """The code points whose UTF-8 begins with `text`, as a range that is empty when there is none."""
    if not text:
        return 0, 0x10FFFF
    size = _size(text[0])
    value = text[0] if size == 1 else text[0] & (0x7F >> size)
    for byte in text[1:]:
        value = value << 6 | byte & 0x3F
    left = 6 * (size - len(text))
    shortest = (0, 0, 0x80, 0x800, 0x10000)[size]
    return max(value << left, shortest), min((value + 1 << left) - 1, 0x10FFFF)


def _words(source: Word | Points) -> str:
    if isinstance(source, Word):
        return repr(source.text)
    if sum(high - low + 1 for low, high in source.ranges) > _WIDE:
        return "a character"
    return " or ".join(
        repr(chr(low)) if low == high else f"{chr(low)!r} to {chr(high)!r}" for low, high in source.ranges
    )
