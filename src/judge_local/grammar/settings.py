"""How a schema is to be read: what its caller chose, and the caps that keep answers finite."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

EXTRA_KEYS: Final = 64
"""Keys that are not declared, at most, after each key."""
KEY_CHARS: Final = 512
"""Characters of such a key, at most, where nothing else bounds it."""
MAX_ANY_ORDER: Final = 6
"""Keys known by name that may stand in any order where that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a schema is to be read."""

    order: tuple[str, ...] = ()
    optional: Literal["allow", "emit"] = "allow"
    additional: Literal["allow", "deny"] = "allow"
    checked: frozenset[str] = frozenset()
    pin: Mapping[str, str] = field(default_factory=dict)
    max_string: int = 4096
    """No string is longer than this many code points; in a pattern, no repetition of one character is."""
    unbounded_string: int = 4096
    """A string without `maxLength` is no longer than this."""
    string_limits: Mapping[str, int] = field(default_factory=dict)
    """The same for single places, by JSON pointer into the instance."""
    bound_patterns: bool = False
    """Whether a pattern without `maxLength` is held to `unbounded_string` characters."""
    max_items: int = 256
    max_depth: int = 10
    decimals: int = 6
    separators: tuple[str, str] = (",", ":")
    unknown: Literal["annotate", "refuse"] = "annotate"
    formats: Literal["annotate", "strict"] = "annotate"
    property_order: Literal["schema", "any"] = "schema"
    """`any`: up to `MAX_ANY_ORDER` keys that are known by name stand in any order."""
    unique: Literal["refuse", "one"] = "refuse"
    """`one`: where items that must differ cannot be written, at most one item is."""
