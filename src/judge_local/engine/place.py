"""The place in a JSON text: follows what is written and says where the value of one property begins.

Held to compact JSON that is valid so far, which is what a grammar lets through; nothing is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence


class Place:
    """Follows a text until the property at `pointer` has been met once.

    Args:
        pointer: keys from the outermost object inwards; arrays have none.
    """

    def __init__(self, pointer: Sequence[str]) -> None:
        self._wanted = list(pointer)
        # The key that is written or whose value is, for each open object; None for each open array.
        self._open: list[str | None] = []
        self._string: bytearray | None = None
        self._escaped = False
        self._is_key = False
        self.value: bytes | None = None
        """What is written of the property's value; None before it begins."""

    def copy(self) -> Place:
        """Another one, at the same place."""
        other = Place(self._wanted)
        other._open, other._escaped, other._is_key = list(self._open), self._escaped, self._is_key
        other._string, other.value = None if self._string is None else bytearray(self._string), self.value
        return other

    def feed(self, data: bytes) -> None:
        """Go past `data`."""
        for at, byte in enumerate(data):
            if self.value is not None:
                self.value += data[at:]
                return
            if self._string is not None:
                self._inside(self._string, byte)
            else:
                self._between(byte)

    def until_value(self, data: bytes) -> int | None:
        """How much of `data` stands before the value, which does not begin before `data` does; None if all of it."""
        ahead = self.copy()
        for at in range(len(data)):
            ahead.feed(data[at : at + 1])
            if ahead.value is not None:
                return at + 1
        return None

    def _inside(self, string: bytearray, byte: int) -> None:
        """A byte of a string, or its closing quote."""
        if self._escaped or byte == 0x5C:
            self._escaped = not self._escaped
            string.append(byte)
        elif byte == 0x22:
            if self._is_key:
                self._open[-1] = json.loads(f'"{string.decode()}"')
            self._string = None
        else:
            string.append(byte)

    def _between(self, byte: int) -> None:
        """A byte that stands outside strings."""
        if byte == 0x22:
            self._string = bytearray()
        elif byte in b"{[":
            self._open.append("" if byte == 0x7B else None)
            self._is_key = byte == 0x7B
        elif byte in b"}]":
            self._open.pop()
            self._is_key = False
        elif byte == 0x3A:
            self._is_key = False
            if self._open == self._wanted:
                self.value = b""
        elif byte == 0x2C:
            self._is_key = bool(self._open) and self._open[-1] is not None


def keys_of(pointer: str) -> tuple[str, ...]:
    """The keys of a JSON pointer.

    >>> keys_of("/a/b~1c")
    ('a', 'b/c')
    """
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
