"""A set of texts that only remembers their digests: a million ids in some 32 MB, and no two that fall together.

Python's own set of a million short strings takes three times as much. An entry is 16 bytes of BLAKE2b; among 10⁹ texts
two share one with a probability of about 10⁻²¹.
"""

from __future__ import annotations

import hashlib
from typing import Final

_BYTES: Final = 16
_EMPTY: Final = bytes(_BYTES)
_FIRST_PLACES: Final = 1024
"""A power of two, as every size of the table is."""


class DigestSet:
    """Open addressing over one byte array, at most two thirds full."""

    def __init__(self) -> None:
        self._places = _FIRST_PLACES
        self._table = bytearray(_BYTES * self._places)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, text: str) -> bool:
        digest = _digest(text)
        return self._table[(at := self._find(digest)) : at + _BYTES] == digest

    def add(self, text: str) -> bool:
        """Put `text` in. False where it was in already."""
        digest = _digest(text)
        at = self._find(digest)
        if self._table[at : at + _BYTES] == digest:
            return False
        self._table[at : at + _BYTES] = digest
        self._count += 1
        if 3 * self._count > 2 * self._places:
            self._grow()
        return True

    def _find(self, digest: bytes | bytearray) -> int:
        """Where `digest` lies, or the empty place where it belongs: an offset into the table."""
        table, mask = self._table, self._places - 1
        place = int.from_bytes(digest[:8], "little") & mask
        while True:
            at = place * _BYTES
            found = table[at : at + _BYTES]
            if found in (digest, _EMPTY):
                return at
            place = (place + 1) & mask

    def _grow(self) -> None:
        old = self._table
        self._places *= 2
        self._table = bytearray(_BYTES * self._places)
        for start in range(0, len(old), _BYTES):
            digest = old[start : start + _BYTES]
            if digest != _EMPTY:
                at = self._find(digest)
                self._table[at : at + _BYTES] = digest


def _digest(text: str) -> bytes:
    # A text from JSON may hold half of a surrogate pair, and is another text than any without.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()
