"""Unions and intersections of shapes.

* An intersection distributes over the alternatives, and drops those that no value can be in. Whether one can is decided
  from the widest reading of patterns and formats, never from the caps of the grammar: it is a fact about the schema.
* A union keeps an alternative only if no other holds all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from judge_local.grammar.languages import Languages
from judge_local.grammar.nodes import (
    EVERY,
    NEVER,
    ArrayFacet,
    Goals,
    Items,
    Layer,
    ObjectFacet,
    Shape,
    StringFacet,
    has_type,
    type_of,
)
from judge_local.grammar.numbers import NumberFacet
from judge_local.grammar.parse import Json, canonical
from judge_local.grammar.regex import PatternError

MAX_WAYS: Final = 64
"""Alternatives of one type at one place."""
MAX_MEETS: Final = 6_000

T = TypeVar("T")
Facet = TypeVar("Facet", NumberFacet, StringFacet, ArrayFacet, ObjectFacet)


AnyFacet: TypeAlias = NumberFacet | StringFacet | ArrayFacet | ObjectFacet


class TooManyWaysError(Exception):
    """A combination that falls into too many alternatives."""


@dataclass(slots=True)
class Algebra:
    """Operations on the shapes of one document."""

    languages: Languages
    hopeless: Callable[[Goals], bool]
    """Whether no value can meet all of these goals."""
    meets: int = 0

    def join(self, *shapes: Shape) -> Shape:
        """What any of `shapes` holds."""
        kept = [shape for shape in shapes if not shape.empty or shape.lost]
        if len(kept) == 1:
            return kept[0]
        return Shape(
            plain=frozenset().union(*(shape.plain for shape in kept)),
            numbers=self._spare([facet for shape in kept for facet in shape.numbers], _number_in),
            strings=self._spare([facet for shape in kept for facet in shape.strings], _string_in),
            arrays=self._spare([facet for shape in kept for facet in shape.arrays], _array_in),
            objects=self._spare([facet for shape in kept for facet in shape.objects], _object_in),
            listed=_distinct(value for shape in kept for value in shape.listed),
            lost=frozenset().union(*(shape.lost for shape in kept)),
        )

    def meet(self, first: Shape, second: Shape) -> Shape:
        """What both hold."""
        if first is EVERY or second is EVERY:
            return second if first is EVERY else first
        return Shape(
            plain=first.plain & second.plain,
            numbers=self._pairs(first.numbers, second.numbers, NumberFacet.met, _number_in),
            strings=self._pairs(first.strings, second.strings, _meet_strings, _string_in),
            arrays=self._pairs(first.arrays, second.arrays, _meet_arrays, _array_in),
            objects=self._pairs(first.objects, second.objects, _meet_objects, _object_in),
            listed=_distinct(
                [value for value in first.listed if self._may_hold(second, value)]
                + [value for value in second.listed if self._may_hold(first, value)]
            ),
            lost=frozenset(lost for lost in first.lost if has_type(second, lost.type))
            | frozenset(lost for lost in second.lost if has_type(first, lost.type)),
        )

    def disjoint(self, facet: AnyFacet, shape: Shape) -> bool:
        """Whether no value of `facet` can be in `shape`. Losses count as values."""
        if isinstance(facet, NumberFacet):
            return self._apart("number", facet, shape.numbers, NumberFacet.met, shape)
        if isinstance(facet, StringFacet):
            return self._apart("string", facet, shape.strings, _meet_strings, shape)
        if isinstance(facet, ArrayFacet):
            return self._apart("array", facet, shape.arrays, _meet_arrays, shape)
        return self._apart("object", facet, shape.objects, _meet_objects, shape)

    def _apart(
        self,
        kind: str,
        facet: Facet,
        others: tuple[Facet, ...],
        combine: Callable[[Facet, Facet], Facet],
        shape: Shape,
    ) -> bool:
        if any(lost.type == kind for lost in shape.lost):
            return False
        if any(type_of(value) == kind and self._may_be_in(facet, value) for value in shape.listed):
            return False
        return all(self.impossible(combine(facet, other)) for other in others)

    def impossible(self, facet: AnyFacet) -> bool:
        """Whether the schema provably admits no value of `facet`."""
        if isinstance(facet, NumberFacet):
            return facet.hopeless()
        if isinstance(facet, StringFacet):
            return self._no_string(facet)
        return self._no_array(facet) if isinstance(facet, ArrayFacet) else self._no_object(facet)

    def _pairs(
        self,
        first: tuple[Facet, ...],
        second: tuple[Facet, ...],
        combine: Callable[[Facet, Facet], Facet],
        inside: Callable[[Facet, Facet], bool],
    ) -> tuple[Facet, ...]:
        self.meets += len(first) * len(second)
        if self.meets > MAX_MEETS:
            raise TooManyWaysError
        found = []
        for one in first:
            for other in second:
                both = combine(one, other)
                if not self.impossible(both):
                    found.append(both)
        return self._spare(found, inside)

    def _spare(self, facets: list[Facet], inside: Callable[[Facet, Facet], bool]) -> tuple[Facet, ...]:
        kept: list[Facet] = []
        for facet in facets:
            if any(inside(facet, other) for other in kept):
                continue
            kept = [other for other in kept if not inside(other, facet)]
            kept.append(facet)
            if len(kept) > MAX_WAYS:
                raise TooManyWaysError
        return tuple(kept)

    def _may_hold(self, shape: Shape, value: Json) -> bool:
        return has_type(shape, type_of(value))

    def _may_be_in(self, facet: Facet, value: object) -> bool:
        if isinstance(facet, NumberFacet):
            return facet.holds(value)  # type: ignore[arg-type] # of the facet's type
        if isinstance(facet, StringFacet):
            assert isinstance(value, str)
            if value in facet.excluded or not facet.low <= len(value) <= (facet.high or len(value)):
                return False
            try:
                return self.languages.upper(facet.atoms).matches(value)
            except PatternError:
                return True
        if isinstance(facet, ArrayFacet):
            assert isinstance(value, list)
            return facet.low <= len(value) <= (len(value) if facet.high is None else facet.high)
        assert isinstance(value, dict)
        return all(name in value for name in facet.required)

    def _no_string(self, facet: StringFacet) -> bool:
        if facet.high is not None and facet.low > facet.high:
            return True
        if len(facet.atoms) < 2 and not (facet.atoms and (facet.low or facet.high is not None)):
            return facet.high == 0 and "" in facet.excluded
        try:
            automaton = self.languages.upper(facet.atoms)
            if automaton.empty:
                return True
            longest = automaton.longest()
        except PatternError:
            return False
        return (facet.high is not None and automaton.shortest() > facet.high) or (
            longest is not None and longest < facet.low
        )

    def _no_array(self, facet: ArrayFacet) -> bool:
        if facet.high is not None and facet.low > facet.high:
            return True
        if any(one.high is not None and one.low > one.high for one in facet.contains):
            return True
        if facet.high is not None and any(one.low > facet.high for one in facet.contains):
            return True
        return any(self.hopeless(facet.item(index)) for index in range(min(facet.low, facet.fixed + 1)))

    def _no_object(self, facet: ObjectFacet) -> bool:
        if facet.high is not None and max(facet.low, len(facet.required), bool(facet.some)) > facet.high:
            return True
        return any(self.hopeless(self.languages.value_goals(facet, name)) for name in facet.required)


def _distinct(values: Iterable[Json]) -> tuple[Json, ...]:
    return tuple({canonical(value): value for value in values}.values())


def _least(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else min(first, second)


def _together(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(first + second))


def _meet_strings(first: StringFacet, second: StringFacet) -> StringFacet:
    return StringFacet(
        low=max(first.low, second.low),
        high=_least(first.high, second.high),
        atoms=first.atoms | second.atoms,
        excluded=first.excluded | second.excluded,
        blocked=_together(first.blocked, second.blocked),
        where=first.where or second.where,
    )


def _meet_arrays(first: ArrayFacet, second: ArrayFacet) -> ArrayFacet:
    return ArrayFacet(
        layers=_together(first.layers, second.layers),
        low=max(first.low, second.low),
        high=_least(first.high, second.high),
        contains=_together(first.contains, second.contains),
        unique=first.unique or second.unique,
        blocked=_together(first.blocked, second.blocked),
        where=first.where or second.where,
    )


def _meet_objects(first: ObjectFacet, second: ObjectFacet) -> ObjectFacet:
    return ObjectFacet(
        layers=_together(first.layers, second.layers),
        required=_together(first.required, second.required),
        names=first.names | second.names,
        low=max(first.low, second.low),
        high=_least(first.high, second.high),
        some=_together(first.some, second.some),
        blocked=_together(first.blocked, second.blocked),
        where=first.where or second.where,
    )


def _within(first: int | None, second: int | None) -> bool:
    return second is None or (first is not None and first <= second)


def _number_in(one: NumberFacet, other: NumberFacet) -> bool:
    """Whether every number of `one` is in `other`, as far as can be seen at once."""
    return one == other or other.met(one) == one


def _string_in(one: StringFacet, other: StringFacet) -> bool:
    return (
        other.low <= one.low
        and _within(one.high, other.high)
        and other.atoms <= one.atoms
        and other.excluded <= one.excluded
        and not other.blocked
    ) or one == other


def _array_in(one: ArrayFacet, other: ArrayFacet) -> bool:
    return (
        len(other.layers) <= len(one.layers)
        and other.low <= one.low
        and _within(one.high, other.high)
        and set(other.layers) <= set(one.layers)
        and set(other.contains) <= set(one.contains)
        and other.unique <= one.unique
        and not other.blocked
    ) or one == other


def _object_in(one: ObjectFacet, other: ObjectFacet) -> bool:
    return (
        len(other.layers) <= len(one.layers)
        and other.low <= one.low
        and _within(one.high, other.high)
        and set(other.layers) <= set(one.layers)
        and set(other.required) <= set(one.required)
        and other.names <= one.names
        and set(other.some) <= set(one.some)
        and not other.blocked
    ) or one == other


def uncounted(shape: Shape) -> Shape:
    """The same where nothing is evaluated, in the sense of `unevaluatedProperties`."""
    return replace(
        shape,
        arrays=tuple(
            replace(facet, layers=tuple(replace(layer, counts=False) for layer in facet.layers))
            for facet in shape.arrays
        ),
        objects=tuple(
            replace(facet, layers=tuple(replace(layer, counts=False) for layer in facet.layers))
            for facet in shape.objects
        ),
    )


def absent(name: str) -> Layer:
    """A layer under which no key is `name`."""
    return Layer(properties=((name, NEVER),))


def unevaluated_items(facet: ArrayFacet, rest: Goals) -> ArrayFacet:
    """The facet, with the items that no layer speaks of held to `rest`."""
    counted = [layer for layer in facet.layers if layer.counts]
    if any(layer.rest is not None for layer in counted):
        return facet
    fixed = max((len(layer.prefix) for layer in counted), default=0)
    return replace(facet, layers=(*facet.layers, Items((frozenset(),) * fixed, rest)))


def unevaluated_properties(facet: ObjectFacet, rest: Goals) -> ObjectFacet:
    """The facet, with the keys that no layer speaks of held to `rest`."""
    counted = [layer for layer in facet.layers if layer.counts]
    if any(layer.rest is not None for layer in counted):
        return facet
    free: Goals = frozenset()
    layer = Layer(
        tuple({name: free for one in counted for name, _ in one.properties}.items()),
        tuple({pattern: free for one in counted for pattern, _ in one.patterns}.items()),
        rest,
    )
    return replace(facet, layers=(*facet.layers, layer))
