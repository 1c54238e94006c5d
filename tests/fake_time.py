"""An event loop whose clock jumps to the next timer, and a player that reports what a coroutine left behind."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any


class _Selector(selectors.SelectSelector):
    """Waits for nothing: where the loop would wait for a timer, its clock is moved instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(timeout if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class FakeLoop(asyncio.SelectorEventLoop):
    """Begins at 0 seconds."""

    def __init__(self) -> None:
        self._fake = _Selector()
        super().__init__(self._fake)

    def time(self) -> float:
        return self._fake.now


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a coroutine."""

    result: Any
    """Its result, or the exception that it raised."""
    seconds: float
    """How long it took, on the fake clock."""
    noise: list[str]
    """What asyncio would have printed: exceptions never retrieved, tasks destroyed while pending, and such."""
    left: list[str]
    """Tasks that were still there after it had ended and the loop had turned some more."""
    timers: int
    """Timers that were still there then."""


def play(main: Callable[[], Coroutine[Any, Any, Any]], *, debug: bool = True) -> Played:
    """Run `main()` on a fake clock in asyncio's debug mode."""
    gc.freeze()  # The collection below then looks at what was made here, and at nothing else.
    loop = FakeLoop()
    loop.set_debug(debug)
    loop.slow_callback_duration = 60.0
    noise: list[str] = []
    loop.set_exception_handler(lambda _loop, context: noise.append(context["message"]))
    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(main())
        (done,) = loop.run_until_complete(asyncio.wait([task]))[0]
        seconds = loop.time()
        result = asyncio.CancelledError() if done.cancelled() else done.exception() or done.result()
        loop.run_until_complete(turns(50))
        left = asyncio.all_tasks(loop)
        timers = sum(not handle.cancelled() for handle in loop._scheduled)
        names = [str(one.get_coro()) for one in left]
        del task, done
        gc.collect()
        for one in left:
            one.cancel()
        loop.run_until_complete(turns(50))
        for one in asyncio.all_tasks(loop):
            one._log_destroy_pending = False  # It ignores its cancellation, on purpose.
        return Played(result, seconds, noise, names, timers)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        gc.unfreeze()


async def turns(count: int) -> None:
    """Let the loop turn `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)
