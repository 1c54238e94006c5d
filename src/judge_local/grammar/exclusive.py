"""`oneOf`: of each branch, what breaks every other.

* Two branches that share nothing need no more than that; whether they do is decided type by type.
* A single value is kept for every branch it may be in, and checked at the end by the full evaluator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from judge_local.grammar.nodes import NO, ArrayFacet, Goal, ObjectFacet, Shape, StringFacet
from judge_local.grammar.numbers import NumberFacet

if TYPE_CHECKING:
    from judge_local.grammar.reader import Reader

_Facet: TypeAlias = NumberFacet | StringFacet | ArrayFacet | ObjectFacet


def exclusive(reader: Reader, goals: list[Goal]) -> Shape:
    """The values that satisfy exactly one of the schemas."""
    shapes = [reader.shape(goal) for goal in goals]
    found = NO
    for index, shape in enumerate(shapes):
        others = [at for at in range(len(shapes)) if at != index]
        own = Shape(
            plain=frozenset(
                each for each in shape.plain if not any(_may_hold(shapes[at], each) for at in others)
            ),
            listed=shape.listed,
            lost=shape.lost,
        )
        for facet in facets(shape):
            own = reader.algebra.join(own, _alone(reader, facet, goals, shapes, others))
        found = reader.algebra.join(found, own)
    return found


def facets(shape: Shape) -> list[_Facet]:
    """All facets of a shape."""
    return [*shape.numbers, *shape.strings, *shape.arrays, *shape.objects]


def _may_hold(shape: Shape, plain: str) -> bool:
    kind = "null" if plain == "null" else "boolean"
    return plain in shape.plain or any(lost.type == kind for lost in shape.lost)


def _alone(reader: Reader, facet: _Facet, goals: list[Goal], shapes: list[Shape], others: list[int]) -> Shape:
    """What of `facet` breaks each of the other schemas."""
    found: Shape = _of(facet)
    for at in others:
        parts: list[Shape] = []
        for one in facets(found):
            if reader.algebra.disjoint(one, shapes[at]):
                parts.append(_of(one))
            else:
                broken = reader.shape(Goal(goals[at].where, positive=False))
                parts.append(reader.algebra.meet(_of(one), broken))
        found = reader.algebra.join(replace(NO, lost=found.lost), *parts)
    return found


def _of(facet: _Facet) -> Shape:
    if isinstance(facet, NumberFacet):
        return Shape(numbers=(facet,))
    if isinstance(facet, StringFacet):
        return Shape(strings=(facet,))
    return Shape(arrays=(facet,)) if isinstance(facet, ArrayFacet) else Shape(objects=(facet,))
