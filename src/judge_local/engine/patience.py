"""When a worker counts as hung: it says nothing at all, or it computes and no step of computation ends.

Measured, not guessed: how long a step may take follows from the slowest one of the same worker. Before the first one is
done nothing is known, and a large model on a small machine may take minutes for it.

Pure: seconds come from the caller, in small steps, so that time in which this process itself was stopped does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long nothing may happen, in seconds."""

    silent: float = 120.0
    """Nothing is heard of a worker that has something to do, or that is loading."""
    first_step: float = 900.0
    """The first step of computation of a worker."""
    least: float = 60.0
    """Any step may take so long."""
    times: float = 20.0
    """And so many times as long as the slowest step so far."""


DEFAULT: Final = Patience()


class Watch:
    """What is known of one worker's progress. Not thread-safe: its owner holds a lock."""

    def __init__(self, patience: Patience = DEFAULT) -> None:
        self._patience = patience
        self._silent = 0.0
        self._still = 0.0
        self._steps = 0
        self._slowest: float | None = None

    def heard(self) -> None:
        """It said something."""
        self._silent = 0.0

    def beat(self, steps: int, *, working: bool) -> None:
        """It said how many steps it has done, and whether it is computing now or waits for something."""
        self._silent = 0.0
        if steps != self._steps:
            self._slowest = max(self._slowest or 0.0, self._still)
        if steps != self._steps or not working:
            self._still = 0.0
        self._steps = steps

    def rest(self) -> None:
        """It has nothing to do."""
        self._silent = self._still = 0.0

    def passed(self, seconds: float) -> str | None:
        """So much time went by while it had something to do. Why it counts as hung, or None."""
        self._silent += seconds
        self._still += seconds
        if self._silent >= self._patience.silent:
            return f"nothing was heard of it for {self._patience.silent:.0f} s"
        allowed = self._patience.first_step
        if self._slowest is not None:
            allowed = max(self._patience.least, self._patience.times * self._slowest)
        if self._still >= allowed:
            return f"no step of computation ended within {allowed:.0f} s"
        return None
