"""The compiler's own picture of a schema: what each place of an instance admits.

A node is the intersection of all keywords at its place, read type by type: a facet says which values of its type are
admitted, and no facet means none. A place that admits nothing is `Empty`, never a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from judge_local.grammar.numbers import NumberFacet
from judge_local.grammar.parse import Json
from judge_local.grammar.strings import StringFacet


@dataclass(frozen=True, slots=True)
class Empty:
    """A place that admits no value, and why."""

    pointer: str
    """Into the schema."""
    reason: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A place that admits exactly these values, at least one, each already checked against every keyword there."""

    pointer: str
    values: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A property of an object."""

    name: str
    node: Node
    required: bool


@dataclass(frozen=True, slots=True)
class ObjectFacet:
    """Objects with these members and no others, their keys in this order."""

    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A place that admits values by type. At least one facet is there."""

    pointer: str
    null: bool = False
    boolean: bool = False
    number: NumberFacet | None = None
    string: StringFacet | None = None
    object: ObjectFacet | None = None


Node: TypeAlias = Listed | Typed
