"""Admission: the submissions that wait, and the next one to be opened, in the order they came.

Thousands that wait cost nothing but their text: a submission is tokenised when its turn has come.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from judge_local.engine.protocol import Generate
from judge_local.engine.runs import Group
from judge_local.errors import JudgeLocalError

SWEEP_SECONDS: Final = 0.1
"""How often waiting submissions are looked through for those that are over."""

EndIfOver = Callable[[str], bool]
"""Ends a request that is cancelled or late; whether it was."""

Open = Callable[[Sequence[Generate], float], tuple[Group | None, dict[str, JudgeLocalError]]]
"""Tokenises a submission that came at that time; see `runs.open_group`."""


@dataclass(slots=True)
class _Waiting:
    requests: list[Generate]
    asked_at: float


class Admission:
    """The queue of a scheduler.

    Args:
        open_group: makes a group of a submission.
        end_if_over: asked before a request is opened.
        end: told of a request that cannot be opened.
    """

    def __init__(
        self, open_group: Open, end_if_over: EndIfOver, end: Callable[[str, JudgeLocalError], None]
    ) -> None:
        self._open_group, self._end_if_over, self._end = open_group, end_if_over, end
        self._waiting: deque[_Waiting] = deque()
        self._swept_at = 0.0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Generate]:
        return (request for each in self._waiting for request in each.requests)

    def holds_more_than(self, runs: int) -> bool:
        """Whether more requests than `runs` wait."""
        waiting = 0
        for each in self._waiting:
            waiting += len(each.requests)
            if waiting > runs:
                return True
        return False

    def add(self, requests: Sequence[Generate]) -> None:
        """A submission, behind those that wait."""
        self._waiting.append(_Waiting(list(requests), time.monotonic()))

    def put_back(self, requests: Sequence[Generate], asked_at: float) -> None:
        """One that had been opened, before those that wait."""
        self._waiting.appendleft(_Waiting(list(requests), asked_at))

    def clear(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()

    def open_next(self) -> Group | None:
        """The next submission of which something is left; None when none waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            wanted = [request for request in waiting.requests if not self._end_if_over(request.id)]
            group, errors = self._open_group(wanted, waiting.asked_at)
            for request, error in errors.items():
                self._end(request, error)
            if group is not None:
                return group
        return None

    def sweep(self) -> None:
        """End what is cancelled or late, if it is time to look."""
        now = time.monotonic()
        if now - self._swept_at < SWEEP_SECONDS:
            return
        self._swept_at = now
        for waiting in self._waiting:
            waiting.requests = [request for request in waiting.requests if not self._end_if_over(request.id)]
        self._waiting = deque(waiting for waiting in self._waiting if waiting.requests)
