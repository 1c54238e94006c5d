"""Objects as rules: declared keys in one order, others anywhere among and after them.

* What may follow is a state: the next declared key, which of the free keys stand already, what is still owed, and how
  many keys there are, as far as that matters. One rule a state, so that the size is linear in the keys.
* Keys that are not declared come in classes: those that match the same patterns share their values. A declared name is
  in none of them, however it is spelled.
* After each key stand at most `EXTRA_KEYS` others. That their names differ is nothing that a grammar can say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from judge_local.grammar import automata
from judge_local.grammar.emit import Body, Ref, join, text
from judge_local.grammar.keys import KeyClass, declared_keys, key_classes
from judge_local.grammar.nodes import NEVER, Goals, ObjectFacet
from judge_local.grammar.parse import escape_pointer, string_text
from judge_local.grammar.regex import PatternError
from judge_local.grammar.report import Kind
from judge_local.grammar.settings import EXTRA_KEYS, KEY_CHARS, MAX_ANY_ORDER

if TYPE_CHECKING:
    from judge_local.grammar.languages import Languages
    from judge_local.grammar.places import Places

MAX_STATES: Final = 6000
MAX_FREE: Final = 4
"""Keys known by name only that may stand in any order."""
MAX_PAID: Final = 3
"""Witnesses that one key is tried as in all combinations."""


class _State(NamedTuple):
    """Where an object is: `free` and `owed` are sets of bits."""

    begun: bool
    """Whether a key stands already."""
    after: bool
    """Whether a key was just written, so that keys without an order may follow."""
    step: int
    free: int
    owed: int
    size: int


@dataclass(slots=True)
class _Key:
    """A key that is known by name."""

    name: str
    goals: Goals
    required: bool
    pays: frozenset[int]
    """The witnesses that it can be."""


@dataclass(slots=True)
class ObjectWriter:
    """Writes one object."""

    places: Places
    facet: ObjectFacet
    depth: int
    place: str
    _ordered: list[_Key] = field(default_factory=list)
    _free: list[_Key] = field(default_factory=list)
    _others: list[KeyClass] = field(default_factory=list)
    _rules: dict[_State, Ref] = field(default_factory=dict)
    _pending: list[_State] = field(default_factory=list)
    _low: int = 0
    _high: int | None = None
    _counted: bool = False

    def _too_many(self) -> None:
        keywords = ("minProperties", "maxProperties") if self._counted else ("properties", "required")
        schema = self.places.reader.document.at(self.facet.where)
        known = [keyword for keyword in keywords if isinstance(schema, dict) and keyword in schema]
        self.places.refuse(self.facet.where, (known or keywords)[0], "its keys may stand in too many ways")

    def written(self) -> Body | None:
        """The body of the object; None after a fault, or when no object is possible."""
        if sum(len(layer.properties) for layer in self.facet.layers) > MAX_STATES // 2:
            self._too_many()
            return None
        try:
            if not self._collect():
                return None
        except PatternError as error:
            self.places.refuse(
                self.facet.where, "patternProperties", f"its keys cannot be told apart: {error}"
            )
            return None
        self._limits()
        facet = self.facet
        owed = (1 << len(facet.some)) - 1
        if not (self._ordered or self._free or owed) and self._others:
            return self._only_others()
        start = self._state(_State(False, True, 0, 0, owed, 0))
        while self._pending:
            if len(self._rules) > MAX_STATES:
                self._too_many()
                return None
            state = self._pending.pop()
            self.places.rules.fill(self._rules[state], self._ways(state))
        return join(text("{"), (start,))

    # What there is.

    def _collect(self) -> bool:
        facet, places = self.facet, self.places
        languages = places.reader.languages
        allowed = places.key_automaton(facet.names) if facet.names else automata.ALL
        declared = declared_keys(facet)
        names = places.in_order(declared, self.place)
        closed = places.settings.additional == "deny"
        unnamed = [name for name in facet.required if name not in names]
        if closed and unnamed:
            reason = (
                f"the required name {unnamed[0]!r} is not among its properties, and no other key may stand"
            )
            places.nothing(facet.where, reason)
            return False
        for name in [*names, *unnamed]:
            goals = languages.value_goals(facet, name)
            if any(
                not _sure(languages, source, name) for layer in facet.layers for source, _ in layer.patterns
            ):
                raise PatternError(f"engines differ on whether a pattern is found in {name!r}")
            if not allowed.matches(name):
                goals = NEVER
            if goals >= NEVER:
                if name in facet.required:
                    why = "`false` admits nothing" if allowed.matches(name) else "no key may be called so"
                    pointer = places.property_pointer(facet, name)
                    places.nothing(pointer, f"the required property {name!r} has no value: {why}")
                    return False
                places.pruned(
                    facet,
                    name,
                    self.place,
                    "`false` admits nothing" if allowed.matches(name) else "no key may be called so",
                )
                continue
            pays = frozenset(at for at, one in enumerate(facet.some) if places.pays(one, name))
            key = _Key(name, goals, name in facet.required, pays)
            loose = name in unnamed and len(unnamed) <= MAX_FREE
            any_order = places.settings.property_order == "any" and len(names) + len(unnamed) <= MAX_ANY_ORDER
            (self._free if loose or any_order else self._ordered).append(key)
        if not closed:
            self._others = key_classes(places, facet, [*names, *unnamed], allowed)
        elif any(layer.rest != NEVER for layer in facet.layers) or not facet.layers:
            places.narrowed(facet.where, "additionalProperties", self.place, "no keys but the declared ones")
        if len(self._ordered) > 1:
            order = ", ".join(key.name for key in self._ordered)
            places.narrowed(facet.where, "properties", self.place, f"keys in the order {order}")
        forced = [key.name for key in [*self._ordered, *self._free] if not key.required and self._always(key)]
        if forced:
            detail = f"always written though optional: {', '.join(forced)}"
            places.narrowed(facet.where, "required", self.place, detail)
        if self._others:
            cap = f"at most {EXTRA_KEYS} undeclared keys after each key, of at most {KEY_CHARS} characters"
            places.narrowed(facet.where, "additionalProperties", self.place, cap)
            note = "that no undeclared key is repeated is checked when the answer is read"
            places.reader.findings.note_once(
                Kind.CHECKED, facet.where, "additionalProperties", self.place, note
            )
        return True

    def _limits(self) -> None:
        facet = self.facet
        sure = sum(key.required for key in [*self._ordered, *self._free])
        most = len(self._ordered) + len(self._free)
        self._low = facet.low if facet.low > sure else 0
        self._high = facet.high if facet.high is not None and (self._others or facet.high < most) else None
        self._counted = bool(self._low) or self._high is not None
        ways = (len(self._ordered) + 1) << (len(self._free) + len(facet.some))
        if self._high is not None and (self._ordered or self._free):
            # So that no more states are made than may be: two for each way and each size, none among them.
            room = max(self._low, sure, MAX_STATES // (2 * ways) - 1)
            if self._high > room:
                self._high = room
                self.places.narrowed(facet.where, "maxProperties", self.place, f"at most {room} keys")

    # States.

    def _state(self, state: _State) -> Ref:
        if not self._counted:
            state = state._replace(size=0)
        elif self._high is None:
            state = state._replace(size=min(state.size, self._low))
        known = self._rules.get(state)
        if known is None:
            comment = ""
            if not state.after and state.step < len(self._ordered):
                comment = f"{self.place or '(root)'}, from {string_text(self._ordered[state.step].name)} on"
            known = self._rules[state] = self.places.rules.declare(comment)
            self._pending.append(state)
        return known

    def _ways(self, state: _State) -> list[Body]:
        full = self._high is not None and state.size >= self._high
        before = text(self.places.separators[0]) if state.begun else ()
        written = state._replace(begun=True, after=True, size=state.size + 1)
        if state.after:
            return self._among(state, written, before, full)
        ways: list[Body] = []
        if state.step == len(self._ordered):
            if self._may_end(state):
                ways.append(text("}"))
            return ways
        key = self._ordered[state.step]
        if not full:
            ways += self._written(key, state.owed, before, written._replace(step=state.step + 1))
        if not self._always(key):
            ways.append((self._state(state._replace(step=state.step + 1)),))
        return ways

    def _among(self, state: _State, written: _State, before: Body, full: bool) -> list[Body]:
        """Keys without an order, or the next in order."""
        ways: list[Body] = []
        looped = state.begun and not self._counted
        if not full:
            for at, key in enumerate(self._free):
                if not state.free >> at & 1:
                    ways += self._written(
                        key, state.owed, before, written._replace(free=state.free | 1 << at)
                    )
            for one in self._others:
                for paid, more in self._payments(one.pays, state.owed):
                    pair = self._other(one, more)
                    ways.append(join(before, pair, (self._state(written._replace(owed=state.owed & ~paid)),)))
                if not looped:
                    ways.append(join(before, self._other(one), (self._state(written),)))
        ways.append((self._state(state._replace(after=False)),))
        if looped and self._others:
            rules = self.places.rules
            rest = rules.declare()
            rules.fill(rest, ways)
            other = rules.define(join(before, self._other(one)) for one in self._others)
            return [join(rules.times(other, 0, EXTRA_KEYS), (rest,))]
        return ways

    def _may_end(self, state: _State) -> bool:
        missing = any(self._always(key) and not state.free >> at & 1 for at, key in enumerate(self._free))
        return not (missing or state.owed or state.size < self._low)

    def _always(self, key: _Key) -> bool:
        return key.required or self.places.always(key.goals, self.depth, key.name, self.place)

    def _written(self, key: _Key, owed: int, before: Body, after: _State) -> list[Body]:
        start = join(before, text(string_text(key.name) + self.places.separators[1]))
        value = self._value(key)
        ways = [join(start, value, (self._state(after),))]
        for paid, more in self._payments(key.pays, owed):
            value = self._value(key, more)
            ways.append(join(start, value, (self._state(after._replace(owed=owed & ~paid)),)))
        return ways

    def _payments(self, pays: frozenset[int], owed: int) -> list[tuple[int, Goals]]:
        """Which of the witnesses that are owed a key can be at once, as bits, and what its value must meet then."""
        able = [at for at in sorted(pays) if owed >> at & 1]
        if all(not self.facet.some[at].value for at in able):
            # Nothing more is asked of the value, so it may as well be all of them.
            return [(sum(1 << at for at in able), frozenset())] if able else []
        sizes = range(1, len(able) + 1) if len(able) <= MAX_PAID else (1, len(able))
        return [
            (sum(1 << at for at in chosen), frozenset().union(*(self.facet.some[at].value for at in chosen)))
            for size in sizes
            for chosen in combinations(able, size)
        ]

    def _value(self, key: _Key, more: Goals = frozenset()) -> Body:
        inside = f"{self.place}/{escape_pointer(key.name)}"
        pinned = self.places.pinned(key.goals | more, key.name, self.place)
        if pinned is not None:
            return text(pinned)
        value = self.places.ref(key.goals | more, self.depth, inside)
        self.places.watch(value, self.facet, key.name, self.place, required=key.required)
        return value

    def _other(self, one: KeyClass, more: Goals = frozenset()) -> Body:
        key = self.places.strings.following(one.names, KEY_CHARS)
        value = self.places.ref(one.goals | more, self.depth, f"{self.place}/*")
        return join(text('"'), key, text('"' + self.places.separators[1]), value)

    def _only_others(self) -> Body:
        """An object in which no key is known by name."""
        rules, comma = self.places.rules, text(self.places.separators[0])
        pair = rules.define(self._other(one) for one in self._others)
        low = self.facet.low
        high = EXTRA_KEYS if self.facet.high is None else min(self.facet.high, max(EXTRA_KEYS, low))
        high = max(high, low)
        if high == 0:
            return text("{}")
        more = join(pair, rules.times(join(comma, pair), max(low, 1) - 1, high - 1), text("}"))
        return join(text("{"), more if low else rules.define([more, text("}")]))


def _sure(languages: Languages, source: str, name: str) -> bool:
    try:
        languages.matches(source, name)
    except PatternError:
        return False
    return True
