"""Sources: where weights come from; each is asked what it has, then for the bytes, one file at a time.

* A source names the sha256 of each file before its bytes are taken; bytes that nobody vouches for are not taken.
* Whatever goes wrong is one of `PullError`'s classes, so that the next source can be tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from judge_local.models.files import OnProgress
from judge_local.models.partfile import PartFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """One file that a source has."""

    name: str
    """Its path within the source."""
    sha256: str
    """64 hex digits, by the source's own record."""
    size_bytes: int | None
    """None where the source does not say before it sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a source has for a reference."""

    source: str
    """The reference without its revision."""
    revision: str | None
    """The commit or version that the files belong to; what is fetched is fetched from there."""
    files: tuple[RemoteFile, ...]
    licence: str | None = None


class Source(Protocol):
    """One place to fetch a model from."""

    def look(self) -> Offer:
        """Ask the source what it has.

        Raises:
            PullError: it does not answer, does not have it, or does not give it to us.
        """
        ...

    def fetch(self, file: RemoteFile, part: PartFile, on_progress: OnProgress) -> None:
        """Append to `part` the bytes of `file` that it lacks, or all of them after a restart.

        Raises:
            PullError: they did not come, or are no weights. What came stays in `part`.
        """
        ...

    def close(self) -> None:
        """Give back what the source holds; it is not used afterwards."""
        ...
