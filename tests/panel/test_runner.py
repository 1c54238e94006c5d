"""The rules of a panel, one by one, on a fake clock."""

from __future__ import annotations

import asyncio
import math
import threading

import pytest

from fake_time import play, turns
from judge_local.errors import BudgetExpiredError
from judge_local.resilience import RetryOptions
from panel.panels import Scene, Target, scene

THRICE = RetryOptions(3, 1.0, 4.0)


def quiet(played):
    """Nothing was printed, and nothing is left."""
    return (played.noise, played.left, played.timers) == ([], [], 0)


# --- one result each --------------------------------------------------------------------------------------------------


def test_results_come_as_they_land_each_labelled():
    panel = scene(Target("a", seconds=3), Target("b", seconds=1), Target("c", seconds=2))

    played = play(lambda: panel.run(["a", "b", "c"]))

    assert played.result == [(name, "real", ("answer", name)) for name in "bca"]
    assert panel.landed == [("b", "real", 1, 3), ("c", "real", 2, 3), ("a", "real", 3, 3)]
    assert panel.seconds == [1.0, 2.0, 3.0]
    assert quiet(played)


def test_a_slot_that_stands_twice_gets_two_results():
    panel = scene(Target("a"))

    played = play(lambda: panel.run(["a", "a", "a"]))

    assert played.result == [("a", "real", ("answer", "a"))] * 3
    assert panel.calls == {"a": 3}


@pytest.mark.parametrize("answer", [0, "", [], False, {}, 0.0])
def test_a_falsy_answer_is_one(answer):
    panel = scene(Target("a", answer))

    assert play(lambda: panel.run(["a"])).result == [("a", "real", (answer, "a"))]


def test_no_slots_no_results():
    assert play(lambda: scene().run([])).result == []


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, -math.inf, "1", None, True])
@pytest.mark.parametrize("slots", [[], ["a"]])
def test_a_budget_that_is_not_finite_and_positive_is_a_value_error(budget, slots):
    panel = scene(Target("a"))

    played = play(lambda: panel.run(slots, budget))

    assert isinstance(played.result, ValueError)
    assert not panel.calls


# --- the budget -------------------------------------------------------------------------------------------------------


def test_what_landed_survives_the_budget_and_the_rest_falls_back_in_slot_order():
    panel = scene(
        *(Target(name, seconds=seconds) for name, seconds in zip("abcd", (99, 2, 99, 1), strict=True))
    )

    played = play(lambda: panel.run(list("abcd"), 5))

    lost = ("fallback", "budget")
    assert played.result == [
        ("d", "real", ("answer", "d")),
        ("b", "real", ("answer", "b")),
        ("a", "fallback", lost),
        ("c", "fallback", lost),
    ]
    assert played.seconds == 5.0
    assert [completed for _, _, completed, _ in panel.landed] == [1, 2, 3, 4]
    assert panel.expired == [("BudgetExpiredError", 2)]
    assert panel.cancelled == {"a": 1, "c": 1}
    assert panel.failed == []
    assert panel.asked_for_spares == []
    assert quiet(played)


def test_a_call_that_ignores_its_cancellation_holds_nothing():
    panel = scene(Target("a", seconds=99, stubborn=True), Target("b"))

    async def main():
        results = await panel.run(["a", "b"], 5)
        at = asyncio.get_running_loop().time()
        await asyncio.sleep(2000)  # Its late outcome arrives, and is dropped.
        return results, at

    played = play(main)

    results, at = played.result
    assert at == 5.0
    assert results == [("b", "real", ("answer", "b")), ("a", "fallback", ("fallback", "budget"))]
    assert len(panel.landed) == 2
    assert quiet(played)


def test_a_late_error_makes_no_noise():
    panel = scene(Target("a", ValueError("late"), seconds=99, stubborn=True))

    async def main():
        await panel.run(["a"], 5)
        await asyncio.sleep(2000)

    assert quiet(play(main))


def test_a_call_that_turns_its_cancellation_into_an_error_is_neither_retried_nor_substituted():
    panel = scene(Target("a", seconds=99, on_cancel=TimeoutError("x")), spares=[Target("s")])

    played = play(lambda: panel.run(["a"], 5, retry=THRICE))

    assert played.result == [("a", "fallback", ("fallback", "budget"))]
    assert panel.calls == {"a": 1}
    assert panel.failed == []
    assert quiet(played)


def test_the_budget_ends_a_retry_in_the_middle_of_its_wait():
    panel = scene(Target("a", TimeoutError(), seconds=1))

    played = play(lambda: panel.run(["a"], 1.5, retry=THRICE))

    assert (played.seconds, panel.calls["a"]) == (1.5, 1)
    assert quiet(played)


def test_a_blocked_thread_does_not_hold_the_panel():
    """With the real clock, and ten times the time against hangs."""
    release = threading.Event()
    panel = scene(Target("a"))

    async def main():
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            results = await panel.run(["a"], 0.05, call=lambda _: asyncio.to_thread(release.wait, 30))
            return results, loop.time() - started
        finally:
            release.set()

    results, seconds = asyncio.run(main(), debug=True)

    assert results == [("a", "fallback", ("fallback", "budget"))]
    assert seconds < 0.5 + 0.05


def test_an_expiry_inside_a_call_is_only_a_failed_call():
    panel = scene(Target("a", BudgetExpiredError("other", "x")))

    played = play(lambda: panel.run(["a"]))

    assert played.result == [("a", "fallback", ("fallback", "online-failure"))]
    assert panel.expired == []
    assert panel.failed == [("a", "BudgetExpiredError")]


def test_nothing_begins_when_resolving_took_all_of_the_time():
    panel = scene(Target("a"))

    async def main():
        loop = asyncio.get_running_loop()

        def resolve(slot):
            loop._fake.now += 50
            return panel.targets[slot]

        return await panel.run(["a"], resolve_slot=resolve)

    assert play(main).result == [("a", "fallback", ("fallback", "budget"))]
    assert not panel.calls


# --- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stubborn", [False, True])
def test_cancelling_the_panel_cancels_everything_and_begins_nothing(stubborn):
    panel = scene(
        Target("a", seconds=99, stubborn=stubborn),
        Target("b", TimeoutError(), seconds=1),
        spares=[Target("s")],
    )

    async def main():
        before = asyncio.all_tasks()
        task = asyncio.create_task(panel.run(["a", "b"], 50, retry=THRICE))
        await asyncio.sleep(1.5)
        task.cancel()
        await asyncio.wait([task])
        left = len(asyncio.all_tasks() - before)
        assert asyncio.get_running_loop().time() <= 1.55
        return task.cancelled(), left, dict(panel.calls)

    played = play(main)

    assert played.result == (True, int(stubborn), {"a": 1, "b": 1})
    assert panel.landed == []
    assert played.noise == []


def test_a_call_that_is_cancelled_is_cancelled_and_not_failed():
    """So that a loop that shuts down reports nothing."""
    works = []

    async def call(_):
        works.append(asyncio.current_task())
        await asyncio.sleep(99)

    async def main():
        await scene(Target("a")).run(["a"], 1, call=call)
        return [work.cancelled() for work in works]

    assert play(main).result == [True]


def test_an_observer_that_cancels_the_panel_lets_nothing_begin():
    panel = scene(Target("a", ValueError()), spares=[Target("s")])

    async def main():
        task = asyncio.current_task()
        await panel.run(["a"], on_target_error=lambda *_: task.cancel())

    played = play(main)

    assert isinstance(played.result, asyncio.CancelledError)
    assert panel.calls == {"a": 1}
    assert quiet(played)


def test_a_cancellation_in_the_turn_in_which_a_wait_ends_lets_no_retry_begin():
    """The seat's timer has fired, the panel's task is cancelled but has not run: an attempt would begin in between."""
    panel = scene(Target("a", TimeoutError(), seconds=1))

    async def main():
        task = asyncio.create_task(panel.run(["a"], 50, retry=RetryOptions(3, 1.0, 1.0)))
        await asyncio.sleep(2)  # The timer of this stands before the seat's, for the same instant.
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    played = play(main)

    assert played.result is True
    assert panel.calls == {"a": 1}
    assert quiet(played)


@pytest.mark.parametrize("observer", ["on_target_error", "on_result", "on_budget_exceeded"])
def test_an_observer_that_raises_a_cancellation_cancels_nothing(observer, caplog):
    """It is called, not awaited: what it raises says nothing about the task that calls it."""

    def crash(*_):
        raise asyncio.CancelledError

    panel = scene(Target("a", ValueError()), Target("b", seconds=99), spares=[Target("s")])

    played = play(lambda: panel.run(["a", "b"], 5, **{observer: crash}))

    assert played.result == [("a", "substitute", ("answer", "s")), ("b", "fallback", ("fallback", "budget"))]
    assert quiet(played)
    assert "crashed" in caplog.text


def test_a_timeout_around_the_panel_is_a_timeout():
    panel = scene(Target("a", seconds=99))

    async def main():
        async with asyncio.timeout(2):
            await panel.run(["a"], 50)

    played = play(main)

    assert isinstance(played.result, TimeoutError)
    assert panel.cancelled == {"a": 1}
    assert quiet(played)


def test_a_call_that_ends_as_cancelled_by_itself_is_a_failed_call():
    panel = scene(Target("a", asyncio.CancelledError()), spares=[Target("s")])

    played = play(lambda: panel.run(["a"], retry=THRICE))

    assert played.result == [("a", "substitute", ("answer", "s"))]
    assert panel.failed == [("a", "CallCancelledError")]
    assert panel.calls["a"] == 1


def test_a_seat_that_somebody_else_cancels_falls_back():
    panel = scene(Target("a", seconds=5), Target("b", seconds=2))

    async def main():
        task = asyncio.create_task(panel.run(["a", "b"]))
        await asyncio.sleep(1)
        for other in asyncio.all_tasks() - {task, asyncio.current_task()}:
            if "_seat" in repr(other.get_coro()) and not panel.cancelled:
                other.cancel()
                await turns(5)
        return await task

    played = play(main)

    assert {slot: via for slot, via, _ in played.result} in (
        {"a": "fallback", "b": "real"},
        {"a": "real", "b": "fallback"},
    )


# --- timeouts and retries ---------------------------------------------------------------------------------------------


def test_each_attempt_has_its_own_time_and_its_error_names_the_target():
    errors = []
    panel = scene(Target("a", seconds=99, timeout=2))

    played = play(
        lambda: panel.run(["a"], 50, retry=THRICE, on_target_error=lambda _, error: errors.append(str(error)))
    )

    assert played.seconds == pytest.approx(2 + 2 + 2, abs=3 + 1)  # The waits in between hold some chance.
    assert panel.calls == {"a": 3}
    assert len(errors) == 1
    assert "the one called a" in errors[0]


def test_a_call_that_recovers_counts_as_real():
    panel = scene(Target("a", [TimeoutError(), ConnectionError(), "third"]))

    played = play(lambda: panel.run(["a"], 50, retry=THRICE))

    assert played.result == [("a", "real", ("third", "a"))]
    assert panel.failed == []


# --- substitutes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        (Target("a", ValueError()), "online-failure"),
        (Target("a", online=False), "offline-failure"),
    ],
    ids=["raised", "offline"],
)
@pytest.mark.parametrize(
    ("spare", "answered"),
    [
        (Target("s"), True),
        (Target("s", ValueError()), False),
        (Target("s", None), False),
        (Target("s", 0), True),
        (None, False),
    ],
    ids=["answers", "raises", "none", "zero", "nobody"],
)
def test_a_target_that_is_down_is_substituted_once(target, cause, spare, answered):
    panel = scene(target, spares=[] if spare is None else [spare, Target("t")])

    played = play(lambda: panel.run(["a"]))

    expected = (
        ("substitute", (spare and spare.outcome, "s")) if answered else ("fallback", ("fallback", cause))
    )
    assert played.result == [("a", *expected)]
    assert panel.calls["t"] == 0
    assert panel.failed == ([("a", "ValueError")] if target.online else [])


def test_no_usable_answer_falls_back_without_a_substitute():
    panel = scene(Target("a", None), spares=[Target("s")])

    assert play(lambda: panel.run(["a"])).result == [("a", "fallback", ("fallback", "online-failure"))]
    assert panel.asked_for_spares == []
    assert panel.failed == []


def test_an_unknown_slot_falls_back():
    panel = scene(Target("a"), spares=[Target("s")])

    assert play(lambda: panel.run(["x", "a"])).result == [
        ("x", "fallback", ("fallback", "unknown-slot")),
        ("a", "real", ("answer", "a")),
    ]
    assert panel.asked_for_spares == []


def test_the_used_keys_are_targets_not_slots_and_grow_as_substitutes_are_claimed():
    down = [Target(name, online=False, key=f"key-{name}") for name in "ab"]
    panel = scene(*down, Target("c"), spares=[Target("b"), Target("d")])

    played = play(lambda: panel.run(["a", "b", "c", "nobody"]))

    assert panel.asked_for_spares == [
        frozenset({"key-a", "key-b", "c"}),
        frozenset({"key-a", "key-b", "c", "b"}),
    ]
    assert {slot: result for slot, _, result in played.result} == {
        "a": ("answer", "b"),
        "b": ("answer", "d"),
        "c": ("answer", "c"),
        "nobody": ("fallback", "unknown-slot"),
    }


@pytest.mark.parametrize("spare", ["a", "b", "s"])
def test_a_substitute_whose_key_is_used_counts_as_none(spare):
    spares = {"a": Target("x", key="a"), "b": Target("y", key="b"), "s": Target("s")}
    panel = scene(Target("a", ValueError()), Target("b", ValueError()))

    played = play(lambda: panel.run(["a", "b"], find_substitute=lambda _: spares[spare]))

    assert sorted(via for _, via, _ in played.result) == (
        ["fallback", "substitute"] if spare == "s" else ["fallback", "fallback"]
    )
    assert panel.calls[spares[spare].name] == (spare == "s")


def test_a_substitute_gets_the_same_retries_and_its_own_time():
    panel = scene(Target("a", ValueError()), spares=[Target("s", seconds=99, timeout=2)])

    played = play(lambda: panel.run(["a"], 50, retry=THRICE))

    assert played.result == [("a", "fallback", ("fallback", "online-failure"))]
    assert panel.calls == {"a": 1, "s": 3}


# --- callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["on_result", "on_target_error", "on_budget_exceeded"])
def test_a_crash_of_an_observer_changes_nothing(name, caplog):
    def crash(*_):
        raise RuntimeError("observer")

    targets = [Target("a", ValueError()), Target("b"), Target("c", seconds=99)]
    expected = play(lambda: scene(*targets, spares=[Target("s")]).run(list("abc"), 5)).result
    played = play(lambda: scene(*targets, spares=[Target("s")]).run(list("abc"), 5, **{name: crash}))

    assert played.result == expected
    assert ("a", "substitute", ("answer", "s")) in played.result
    assert quiet(played)
    assert caplog.records


def failing_fallback(*causes):
    asked = []

    def fallback(slot, cause):
        asked.append((slot, cause.value))
        if cause in causes:
            raise LookupError(slot, cause.value)
        return ("fallback", cause.value)

    fallback.asked = asked
    return fallback


@pytest.mark.parametrize(
    ("slot", "cause"), [("nobody", "unknown-slot"), ("off", "offline-failure")], ids=["unknown", "offline"]
)
def test_a_fallback_that_raises_degrades_its_slot(slot, cause):
    panel = scene(Target("off", online=False))

    played = play(lambda: panel.run([slot], fallback=failing_fallback(cause)))

    assert played.result == [(slot, "fallback", ("fallback", "online-failure"))]


def test_a_fallback_that_raises_for_that_too_propagates():
    panel = scene(Target("a", seconds=99))

    played = play(lambda: panel.run(["a", "x"], fallback=failing_fallback("unknown-slot", "online-failure")))

    assert isinstance(played.result, LookupError)
    assert played.seconds == 0.0
    assert panel.cancelled == panel.calls
    assert quiet(played)


def test_a_fallback_that_raises_after_the_budget_propagates():
    panel = scene(Target("a", seconds=99), Target("b", seconds=99))
    fallback = failing_fallback("budget")

    played = play(lambda: panel.run(["a", "b"], 5, fallback=fallback))

    assert isinstance(played.result, LookupError)
    assert fallback.asked == [("a", "budget")]
    assert quiet(played)


CALLERS = [
    "resolve_slot",
    "is_online",
    "target_key",
    "describe_target",
    "call_timeout_seconds",
    "find_substitute",
    "decorate",
]


@pytest.mark.parametrize("name", CALLERS)
def test_a_bug_of_the_caller_propagates_as_itself_and_cancels_the_rest(name):
    bug = LookupError("a bug")
    panel = scene(Target("slow", seconds=99), Target("a", ValueError()), Target("b", seconds=2))

    def crash(*given):
        hits = [g for g in given if g == "a" or getattr(g, "name", None) in ("a", "b")]
        if hits or name == "find_substitute":
            raise bug
        whole = {"resolve_slot": panel.targets.get(given[0]) if isinstance(given[0], str) else None}
        return {"is_online": True, "call_timeout_seconds": 9.0, **whole}.get(name, "x")

    played = play(lambda: panel.run(["slow", "a", "b"], retry=THRICE, **{name: crash}))

    assert played.result is bug
    assert played.seconds <= 2.0
    assert panel.cancelled == {
        key: 1 for key in panel.calls if key == "slow" or (key == "b" and played.seconds < 2)
    }
    assert quiet(played)


def test_a_timeout_that_cannot_be_meant_is_a_bug_of_the_caller():
    played = play(lambda: scene(Target("a", timeout=math.nan)).run(["a"]))

    assert isinstance(played.result, ValueError)


def test_two_panels_on_one_loop_do_not_meet():
    first, second = scene(Target("a", seconds=2)), Scene({"a": Target("b", seconds=99)})

    async def main():
        return await asyncio.gather(first.run(["a"], 5), second.run(["a"], 1))

    assert play(main).result == [
        [("a", "real", ("answer", "a"))],
        [("a", "fallback", ("fallback", "budget"))],
    ]
