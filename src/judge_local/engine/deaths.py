"""What the workers of one client died of: requests to blame, and how long to wait before the next start."""

from __future__ import annotations

import collections
import hashlib
import threading
from collections.abc import Iterable
from typing import Final

from judge_local.engine.protocol import Generate
from judge_local.errors import EngineCrashedError

DEATHS_ALLOWED: Final = 3
"""After so many deaths of a worker with one and the same request in flight, the request is blamed and not sent again."""

BACK_OFF_SECONDS: Final = (0.0, 0.0, 0.5, 2.0, 5.0)
"""Wait before a worker is started again, by how many have died in a row without an answer; the last for all beyond."""


class Record:
    """Deaths by request, and in a row. Called from the workers' threads; the lock protects the counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deaths: collections.Counter[str] = collections.Counter()
        self._in_a_row = 0

    def died(self, in_flight: Iterable[Generate]) -> None:
        """A worker died with these in flight."""
        with self._lock:
            self._in_a_row += 1
            self._deaths.update({_digest(request) for request in in_flight})

    def answered(self, request: Generate) -> None:
        """A worker answered."""
        with self._lock:
            self._in_a_row = 0
            self._deaths.pop(_digest(request), None)

    def is_to_blame(self, request: Generate) -> bool:
        """Whether every worker that had it in flight died, and there were enough of them."""
        with self._lock:
            return self._deaths[_digest(request)] >= DEATHS_ALLOWED

    def back_off(self) -> float:
        """Seconds to wait before the next worker is started."""
        with self._lock:
            return BACK_OFF_SECONDS[min(self._in_a_row, len(BACK_OFF_SECONDS) - 1)]


def _digest(request: Generate) -> str:
    """The same for the same request, however often and by whomever it is made."""
    filters = (request.top_k, request.top_p, request.min_p)
    settings = (request.temperature, filters, request.seed, request.slot, request.score_only)
    parts = (request.system, request.user, request.grammar, *map(repr, settings))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def blamed() -> EngineCrashedError:
    """What becomes of a request that is to blame."""
    return EngineCrashedError(
        "engine",
        f"the worker process died {DEATHS_ALLOWED} times with this request in flight; it is not sent again",
        "Judge it with another model, and report it.",
    )
