"""What a panel costs: 200 slots that never answer under one second, and 1,000 that answer at once.

    python scripts/bench_panel.py [--rounds 5]

Prints, for each round, how long the panel took: with calls that heed their cancellation, with calls that ignore it, with
calls that block a thread each, and with calls that are over at once. Then 10,000 retried and timed calls in asyncio's
debug mode, and what they left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

from judge_local.panel import PanelResult, run_panel
from judge_local.resilience import RetryOptions, with_retry, with_timeout

ONCE: Final = RetryOptions(max_attempts=1, base_delay_seconds=0.0, max_delay_seconds=0.0)
released: Final = threading.Event()


async def heeds(_: str) -> str:
    """Never answers."""
    await asyncio.sleep(3600)
    return ""


async def ignores(_: str) -> str:
    """Never answers, and goes on when it is cancelled."""
    while not released.is_set():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if released.is_set():
                raise
    return ""


async def blocks(_: str) -> str:
    """Holds a thread."""
    await asyncio.to_thread(released.wait)
    return ""


async def answers(_: str) -> str:
    """Answers at once."""
    return "yes"


async def seat(call: Callable[[str], Awaitable[str]], slots: int, budget: float) -> tuple[float, int]:
    """Seconds and results of one panel."""
    started = time.perf_counter()
    results: list[PanelResult[str]] = await run_panel(
        slots=[str(k) for k in range(slots)],
        budget_seconds=budget,
        retry=ONCE,
        resolve_slot=lambda slot: slot,
        is_online=lambda _: True,
        target_key=lambda target: target,
        describe_target=str,
        call_timeout_seconds=lambda _: 60.0,
        call=call,
        decorate=lambda answer, _target, _via, _slot: answer,
        fallback=lambda _slot, cause: cause.value,
        find_substitute=lambda _: None,
    )
    return time.perf_counter() - started, len(results)


async def leave_nothing() -> None:
    """10,000 calls: half answer, a quarter recover, a quarter run out of time."""
    noise: list[str] = []
    loop = asyncio.get_running_loop()
    loop.slow_callback_duration = 60.0  # A busy machine is not what is looked for.
    loop.set_exception_handler(lambda _loop, context: noise.append(str(context["message"])))
    before = asyncio.all_tasks()

    async def once(turn: int) -> None:
        failures = iter([True] if turn % 4 == 1 else [])

        async def call() -> str:
            if next(failures, False):
                raise TimeoutError
            return await (heeds("") if turn % 4 == 2 else answers(""))

        try:
            await with_retry(lambda: with_timeout(call, 0.001), RetryOptions(2, 0.0, 0.0))
        except TimeoutError:
            return

    started = time.perf_counter()
    for hundred in range(100):
        await asyncio.gather(*(once(100 * hundred + turn) for turn in range(100)))
    seconds = time.perf_counter() - started
    await asyncio.sleep(0.01)
    gc.collect()
    left = len(asyncio.all_tasks() - before)
    print(f"10,000 calls in debug mode: {seconds:.1f} s, {left} tasks left, {len(noise)} lines of noise")


async def bench(rounds: int) -> None:
    """Print the figures."""
    kinds: list[tuple[str, Callable[[str], Awaitable[str]], int, float]] = [
        ("200 slots, 1 s budget, calls heed their cancellation", heeds, 200, 1.0),
        ("200 slots, 1 s budget, calls ignore it", ignores, 200, 1.0),
        ("200 slots, 1 s budget, calls block a thread", blocks, 200, 1.0),
        ("1,000 instant calls", answers, 1000, 60.0),
    ]
    for name, call, slots, budget in kinds:
        taken = []
        for _ in range(rounds):
            seconds, results = await seat(call, slots, budget)
            if results != slots:
                raise SystemExit(f"{name}: {results} results for {slots} slots")
            taken.append(seconds)
        middle = statistics.median(taken)
        print(f"{name}: median {middle:.3f} s ({min(taken):.3f} to {max(taken):.3f}) of {rounds} rounds")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(leave_nothing(), debug=True)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(bench(options.rounds))
    # The calls that ignore their cancellation are still there, which is the point; nobody waits for them.
    sys.stdout.flush()
    released.set()
    os._exit(0)


if __name__ == "__main__":
    main()
