"""The blocking door: the asynchronous names of this package for scripts, notebooks and tests.

The work runs on one private event loop in a thread of its own, begun at first use. So these functions work where a
loop is running already, and a provider that is used twice meets the same loop both times.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from judge_local import completion, ensemble, panel, resilience, scoring
from judge_local.errors import UsageError

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
"""Guards `_loop` and `_thread`: two threads that come first must not start two loops."""
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` on the private loop and wait for what it returns. An interrupt cancels it.

    Raises:
        UsageError: called on the private loop itself, which would wait for itself for ever.
    """
    import asyncio

    if threading.current_thread() is _thread:
        coroutine.close()
        raise UsageError(
            "judge_local.sync", "it was called from its own loop", "Await the asynchronous function."
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, _running_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Does nothing where the work is done and it is the work that failed.
        raise


def _running_loop() -> asyncio.AbstractEventLoop:
    import asyncio

    global _loop, _thread  # noqa: PLW0603 # One loop a process, guarded by the lock.
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="judge-local", daemon=True)
            _thread.start()
        return _loop


def _forget_loop() -> None:
    """In a forked child the thread is gone, so its loop never answers."""
    global _loop, _thread, _lock  # As above; the lock may have been held while the parent forked.
    _loop, _thread, _lock = None, None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)


def _blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    return call


judge = _blocking(ensemble.judge)
judge_claim = _blocking(ensemble.judge_claim)
run_ensemble = _blocking(ensemble.run_ensemble)
score_claim = _blocking(scoring.score_claim)
score_claims = _blocking(scoring.score_claims)
complete_validated_json = _blocking(completion.complete_validated_json)
judge_panel = _blocking(panel.judge_panel)
run_panel = _blocking(panel.run_panel)
with_retry = _blocking(resilience.with_retry)
with_timeout = _blocking(resilience.with_timeout)
