"""The compiler's own picture of a schema: what a place of an instance admits, type by type.

* A `Shape` is a union of alternatives. A facet is one of them: the intersection of constraints on one type.
* What lies inside an array or an object is named, not spelled out: a `Goal` is a schema to satisfy, or to break, so that
  recursion costs nothing and schemas that are merged are merged only where a value meets them.
* A shape may hold less than its schema admits, never more. What it lacks stands in `lost`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from judge_local.errors import SchemaFault
from judge_local.grammar.numbers import NumberFacet
from judge_local.grammar.parse import Json


class Goal(NamedTuple):
    """A schema that a value must satisfy, or must not."""

    where: str
    """JSON pointer to the schema."""
    positive: bool = True


Goals: TypeAlias = frozenset[Goal]
"""All of them at once; none for any value."""

ANYTHING: Final[Goals] = frozenset()
NEVER: Final[Goals] = frozenset([Goal("(false)")])
"""No value."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A pattern to be found in a string, or a format to be kept; or the opposite."""

    kind: str
    """`pattern` or `format`."""
    text: str
    positive: bool = True
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class StringFacet:
    """Strings of `low` to `high` code points that keep every atom."""

    low: int = 0
    high: int | None = None
    atoms: frozenset[Atom] = frozenset()
    excluded: frozenset[str] = frozenset()
    blocked: tuple[SchemaFault, ...] = ()
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Layer:
    """What one schema says of the keys of an object and of their values."""

    properties: tuple[tuple[str, Goals], ...] = ()
    patterns: tuple[tuple[str, Goals], ...] = ()
    """By the pattern that a key matches."""
    rest: Goals | None = None
    """For keys that are neither named nor matched; None when nothing is said of them."""
    counts: bool = field(default=True, compare=False)
    """Whether what it names is evaluated, in the sense of `unevaluatedProperties`."""


@dataclass(frozen=True, slots=True)
class Witness:
    """At least one key that `layer` says nothing of, or that matches `pattern`, has a value that meets `value`."""

    value: Goals
    layer: Layer = Layer()
    pattern: str | None = None
    names: Goals = ANYTHING
    """What the key itself must meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFacet:
    """Objects that keep every layer."""

    layers: tuple[Layer, ...] = ()
    required: tuple[str, ...] = ()
    """In the order in which they are mentioned."""
    names: Goals = ANYTHING
    """What every key must meet."""
    low: int = 0
    high: int | None = None
    some: tuple[Witness, ...] = ()
    blocked: tuple[SchemaFault, ...] = ()
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Items:
    """What one schema says of the items of an array."""

    prefix: tuple[Goals, ...] = ()
    rest: Goals | None = None
    """For the items after those; None when nothing is said of them."""
    counts: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Contains:
    """Between `low` and `high` items meet `value`."""

    value: Goals
    """One goal; its opposite is what the other items meet where `high` is given."""
    low: int = 1
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFacet:
    """Arrays of `low` to `high` items that keep every layer."""

    layers: tuple[Items, ...] = ()
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    blocked: tuple[SchemaFault, ...] = ()
    where: str = field(default="", compare=False)

    def item(self, index: int) -> Goals:
        """What the item at `index` must meet."""
        found = ANYTHING
        for layer in self.layers:
            if index < len(layer.prefix):
                found |= layer.prefix[index]
            elif layer.rest is not None:
                found |= layer.rest
        return found

    @property
    def fixed(self) -> int:
        """How many items have a place of their own."""
        return max((len(layer.prefix) for layer in self.layers), default=0)


class Lost(NamedTuple):
    """Values of one type that the schema may admit and the shape does not hold."""

    type: str
    fault: SchemaFault


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a place admits: the union of all that is here."""

    plain: frozenset[str] = frozenset()
    """`null`, `true`, `false`."""
    numbers: tuple[NumberFacet, ...] = ()
    strings: tuple[StringFacet, ...] = ()
    arrays: tuple[ArrayFacet, ...] = ()
    objects: tuple[ObjectFacet, ...] = ()
    listed: tuple[Json, ...] = ()
    """Single values. They may turn out not to satisfy everything that is asked here, so each is checked at the end."""
    lost: frozenset[Lost] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nothing is held."""
        return not (self.plain or self.numbers or self.strings or self.arrays or self.objects or self.listed)


PLAIN: Final = frozenset(["null", "true", "false"])
EVERY: Final = Shape(
    plain=PLAIN,
    numbers=(NumberFacet(),),
    strings=(StringFacet(),),
    arrays=(ArrayFacet(),),
    objects=(ObjectFacet(),),
)
NO: Final = Shape()


def type_of(value: Json) -> str:
    """The JSON type of a value: `number` for whole ones too."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "array"
    return "object" if isinstance(value, dict) else "number"


def has_type(shape: Shape, kind: str) -> bool:
    """Whether `shape` may hold a value of the type."""
    if any(lost.type == kind for lost in shape.lost):
        return True
    if kind == "null":
        return "null" in shape.plain
    if kind == "boolean":
        return bool(shape.plain & {"true", "false"})
    facets = {
        "number": shape.numbers,
        "string": shape.strings,
        "array": shape.arrays,
        "object": shape.objects,
    }
    return bool(facets[kind]) or any(type_of(value) == kind for value in shape.listed)
