"""Random panels: whatever happens, N results, one for each occurrence, no target twice, nothing after the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_time import play
from judge_local.resilience import RetryOptions
from panel.panels import Scene, Target

SECONDS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 5.0, 50.0])
OUTCOMES = st.sampled_from(
    [
        "answer",
        0,
        "",
        None,
        ValueError("v"),
        TimeoutError("t"),
        ConnectionError("c"),
        asyncio.CancelledError(),
    ]
)
CAUSES = {"unknown-slot", "online-failure", "offline-failure", "budget"}


@st.composite
def targets(draw, names):
    return [
        Target(
            name,
            outcome=draw(OUTCOMES),
            seconds=draw(SECONDS),
            online=draw(st.sampled_from([True, True, False])),
            stubborn=draw(st.sampled_from([False, False, True])),
            on_cancel=draw(st.sampled_from([None, None, TimeoutError("cancelled")])),
            timeout=draw(st.sampled_from([0.0, 1.0, 3.0, 100.0])),
        )
        for name in names
    ]


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    primaries=targets("abcd"),
    spares=targets(["a", "s", "t"]),
    slots=st.lists(st.sampled_from([*"abcd", "nobody"]), max_size=7),
    budget=st.sampled_from([0.05, 0.1, 1.0, 2.0, 4.0, 1000.0]),
    retry=st.sampled_from([RetryOptions(1, 0, 0), RetryOptions(3, 0.2, 1)]),
    cancel_at=st.sampled_from([None, None, None, 0.0, 0.5, 1.0]),
)
def test_whatever_happens(primaries, spares, slots, budget, retry, cancel_at):
    panel = Scene({target.name: target for target in primaries}, spares)
    started_after: list[str] = []
    over = False
    call = panel.call

    async def watched(target):
        if over:
            started_after.append(target.name)
        return await call(target)

    async def main():
        nonlocal over
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(panel.run(slots, budget, retry=retry, call=watched))
        if cancel_at is not None:
            loop.call_later(cancel_at, task.cancel)
        await asyncio.wait([task])
        over, ended, emitted = True, loop.time(), len(panel.landed)
        await asyncio.sleep(3000)  # All that is stubborn comes to its end.
        assert len(panel.landed) == emitted
        return None if task.cancelled() else task.result(), ended

    played = play(main, debug=False)
    results, ended = played.result

    assert started_after == []
    assert (played.noise, played.left, played.timers) == ([], [], 0)
    assert ended <= budget + (1e-6 if cancel_at is None else 0.05)
    used = {name for name in slots if name in panel.targets}
    claimed = [keys - used for keys in panel.asked_for_spares]
    assert all(len(later - earlier) <= 1 for earlier, later in pairwise(claimed))
    if results is None:
        assert cancel_at is not None
        return
    assert Counter(slot for slot, _, _ in results) == Counter(slots)
    assert [(slot, via) for slot, via, _, _ in panel.landed] == [(slot, via) for slot, via, _ in results]
    assert [(done, total) for _, _, done, total in panel.landed] == [
        (count, len(slots)) for count in range(1, len(slots) + 1)
    ]
    substitutes = [result[1] for _, via, result in results if via == "substitute"]
    assert len(set(substitutes)) == len(substitutes)
    assert not set(substitutes) & used
    for slot, via, result in results:
        if via == "fallback":
            assert result[0] == "fallback"
            assert result[1] in CAUSES
            assert (result[1] == "unknown-slot") == (slot == "nobody")
        else:
            assert result[0] is not None
            assert (via == "real") == (result[1] == slot)
