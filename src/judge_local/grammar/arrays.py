"""Arrays as rules: items with a place of their own, the rest, counts, and items that must be there or must differ.

* Lengths are exact up to the cap. Where items must be contained, the others are counted in stretches.
* Items must differ where there are few enough values to say which were written; otherwise that is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from judge_local.grammar.emit import Body, Ref, join, text
from judge_local.grammar.nodes import ANYTHING, NEVER, ArrayFacet, Goal, Goals
from judge_local.grammar.parse import canonical

if TYPE_CHECKING:
    from judge_local.grammar.places import Places

MAX_UNIQUE: Final = 8
"""Values that items which must differ may have."""
MAX_STATES: Final = 4000


@dataclass(frozen=True, slots=True)
class ArrayWriter:
    """Writes one array."""

    places: Places
    facet: ArrayFacet
    depth: int
    place: str
    high: int
    """At most this many items."""

    def written(self) -> Body | None:
        """The body of the array; None after a fault."""
        facet = self.facet
        if facet.unique and not self._differ_anyway():
            return self._unique()
        if facet.contains:
            return self._containing()
        rules, comma = self.places.rules, text(self.places.separators[0])
        fixed = min(facet.fixed, self.high)
        rest = facet.item(facet.fixed)
        tail: Body = text("]")
        if rest != NEVER and self.high > fixed:
            least = max(facet.low - fixed, 0)
            item = self._item(facet.fixed)
            if fixed == 0:
                return self._plain(item, facet.low, self.high)
            more = rules.times(join(comma, item), least, self.high - fixed)
            tail = join(more, text("]"))
        elif facet.low > fixed:
            self.places.nothing(facet.where, f"no array of {facet.low} items is possible")
            return None
        for index in range(fixed - 1, -1, -1):
            body = join(comma if index else (), self._item(index), tail)
            tail = rules.define([body, text("]")]) if index >= facet.low else body
        return join(text("["), tail)

    def _plain(self, item: Body, low: int, high: int) -> Body:
        rules, comma = self.places.rules, text(self.places.separators[0])
        more = join(item, rules.times(join(comma, item), max(low, 1) - 1, high - 1), text("]"))
        return join(text("["), more if low else rules.define([more, text("]")]))

    def _item(self, index: int, more: Goals = ANYTHING) -> Body:
        where = str(index) if index < self.facet.fixed else "*"
        return self.places.ref(self.facet.item(index) | more, self.depth, f"{self.place}/{where}")

    # Items that must be contained.

    def _containing(self) -> Body | None:
        """States are (index of the next item, how often each was met); the rest of the items come in stretches."""
        facet, rules = self.facet, self.places.rules
        wanted = facet.contains
        exact = facet.high is not None or facet.fixed > 0 or facet.low > sum(one.low for one in wanted)
        limit = [one.low if one.high is None else one.high for one in wanted]
        known: dict[tuple[int, tuple[int, ...]], Ref] = {}
        pending: list[tuple[int, tuple[int, ...]]] = []
        room = MAX_STATES // prod(size + 1 for size in limit)
        high = min(self.high, room) if exact else sum(limit) + 1
        if exact and room < self.high:
            self.places.narrowed(facet.where, "maxItems", self.place, f"at most {room} items")

        def state(index: int, counts: tuple[int, ...]) -> Ref:
            key = (index, counts)
            if key not in known:
                known[key] = rules.declare()
                pending.append(key)
            return known[key]

        first = state(0, (0,) * len(wanted))
        comma = text(self.places.separators[0])
        while pending:
            index, counts = pending.pop()
            if len(known) > MAX_STATES:
                self.places.refuse(facet.where, "contains", "too many items would have to be counted")
                return None
            before = comma if index else ()
            ways: list[Body] = []
            done = all(count >= one.low for count, one in zip(counts, wanted, strict=True))
            if done and index >= facet.low:
                ways.append(text("]"))
            if index < high:
                for goals, after in self._choices(counts, limit):
                    item = self._item(index, goals)
                    ways.append(join(before, item, (state(index + 1, after),)))
            rules.fill(known[index, counts], ways)
            if not exact and index:
                stretch = self._stretch(index, counts, limit)
                if stretch:
                    inner = rules.declare()
                    rules.fill(inner, ways)
                    many = rules.times(join(comma, stretch), 0, max(1, self.high // (sum(limit) + 1) - 1))
                    rules.fill(known[index, counts], [join(many, (inner,))])
        return join(text("["), (first,))

    def _choices(self, counts: tuple[int, ...], limit: list[int]) -> list[tuple[Goals, tuple[int, ...]]]:
        """What the next item may meet, and the counts after it."""
        found: list[tuple[Goals, tuple[int, ...]]] = [(ANYTHING, ())]
        for at, one in enumerate(self.facet.contains):
            opposite = frozenset(Goal(goal.where, not goal.positive) for goal in one.value)
            following = []
            for goals, after in found:
                if one.high is None:
                    if counts[at] < limit[at]:
                        following.append((goals | one.value, (*after, counts[at] + 1)))
                    following.append((goals, (*after, counts[at])))
                else:
                    if counts[at] < limit[at]:
                        following.append((goals | one.value, (*after, counts[at] + 1)))
                    following.append((goals | opposite, (*after, counts[at])))
            found = following
        return found

    def _stretch(self, index: int, counts: tuple[int, ...], limit: list[int]) -> Body:
        """An item that counts for nothing."""
        goals = next((goals for goals, after in self._choices(counts, limit) if after == counts), None)
        return () if goals is None else self._item(index, goals)

    # Items that must differ.

    def _differ_anyway(self) -> bool:
        if self.high <= 1:
            return True
        facet = self.facet
        if facet.fixed < self.high and facet.item(facet.fixed) != NEVER:
            return False
        return all(
            self.places.reader.hopeless(facet.item(one) | facet.item(other))
            for one in range(min(facet.fixed, self.high))
            for other in range(one)
        )

    def _unique(self) -> Body | None:
        facet, places = self.facet, self.places
        values = None if facet.fixed or facet.contains else places.values(facet.item(0), MAX_UNIQUE)
        if values is None and places.settings.unique == "one" and facet.low <= 1:
            places.narrowed(facet.where, "uniqueItems", self.place, "at most one item")
            return replace(self, high=1).written()
        if values is None:
            reason = f"items that must differ are written only where at most {MAX_UNIQUE} values are possible"
            hint = "Name 'uniqueItems' in `checked` to leave it to the validator"
            hint += ", or set `unique` to 'one' to write at most one item." if facet.low <= 1 else "."
            places.refuse(facet.where, "uniqueItems", reason, hint)
            return None
        if facet.low > len(values):
            places.nothing(facet.where, f"no {facet.low} of {len(values)} values differ")
            return None
        rules, comma = places.rules, text(places.separators[0])
        words = [text(canonical(value, places.separators)) for value in values]
        known: dict[int, Ref] = {0: rules.declare()}
        pending = [0]
        while pending:
            used = pending.pop()
            size = used.bit_count()
            ways = [text("]")] if size >= facet.low else []
            for at, word in enumerate(words):
                after = used | 1 << at
                if after != used and size < self.high:
                    if after not in known:
                        known[after] = rules.declare()
                        pending.append(after)
                    ways.append(join(comma if used else (), word, (known[after],)))
            rules.fill(known[used], ways)
        return join(text("["), (known[0],))
