"""Retries and timeouts on a fake clock: when, how often, what is cancelled, and what is left behind."""

from __future__ import annotations

import asyncio
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_time import play, turns
from judge_local.errors import CallTimeoutError, NumberError, RemoteError
from judge_local.resilience import RetryOptions, with_retry, with_timeout

pytestmark = pytest.mark.filterwarnings("error")

THRICE = RetryOptions(3, 1.0, 10.0)


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch):
    """Chance has no part unless a test wants it."""
    monkeypatch.setattr(random, "random", lambda: 0.0)


def script(*outcomes):
    """A call that plays `outcomes` in order, and counts."""
    played = []

    async def call():
        played.append(len(played))
        outcome = outcomes[len(played) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    call.played = played
    return call


def quiet(played):
    """Nothing was printed, and nothing is left."""
    return (played.noise, played.left, played.timers) == ([], [], 0)


# --- retries ----------------------------------------------------------------------------------------------------------


def test_it_is_asked_again_until_it_answers():
    call = script(TimeoutError(), ConnectionError(), 0)

    played = play(lambda: with_retry(call, THRICE))

    assert (played.result, played.seconds, len(call.played)) == (0, 1.0 + 2.0, 3)
    assert quiet(played)


def test_the_last_error_comes_out_as_it_was():
    last = TimeoutError("third")
    call = script(TimeoutError(), TimeoutError(), last)

    played = play(lambda: with_retry(call, THRICE))

    assert played.result is last
    assert played.seconds == 3.0


def test_what_no_retry_helps_is_not_retried():
    call = script(ValueError("no"))

    played = play(lambda: with_retry(call, THRICE))

    assert isinstance(played.result, ValueError)
    assert (played.seconds, len(call.played)) == (0.0, 1)


def test_a_call_that_raises_before_it_can_be_awaited_counts_as_an_attempt():
    attempts = []

    def call():
        attempts.append(1)
        raise TimeoutError

    assert isinstance(play(lambda: with_retry(call, THRICE)).result, TimeoutError)
    assert len(attempts) == 3


@given(
    st.integers(1, 2000),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.floats(0, 1),
)
def test_waits_double_and_are_capped(attempt, base, extra, chance):
    options = RetryOptions(2000, base, base + extra)
    delay = options.delay_seconds(attempt, chance)

    assert 0 <= delay <= options.max_delay_seconds
    assert delay >= min(options.max_delay_seconds, base * 2.0 ** min(attempt - 1, 40))
    assert delay <= base * 2.0 ** min(attempt - 1, 1000) + base / 2 * (1 + 1e-9)


def test_jitter_is_at_most_half_the_base(monkeypatch):
    monkeypatch.setattr(random, "random", lambda: 1.0)

    assert play(lambda: with_retry(script(TimeoutError(), 1), THRICE)).seconds == 1.5


def test_each_wait_is_announced_and_a_crash_there_changes_nothing(caplog):
    told = []

    def crash(attempt):
        told.append((attempt.attempt, attempt.max_attempts, attempt.delay_seconds, str(attempt.error)))
        raise RuntimeError("observer")

    played = play(lambda: with_retry(script(TimeoutError("a"), TimeoutError("b"), 7), THRICE, on_retry=crash))

    assert told == [(1, 3, 1.0, "a"), (2, 3, 2.0, "b")]
    assert played.result == 7
    assert len(caplog.records) == 2


def test_it_stops_at_once_in_the_middle_of_a_wait():
    call = script(TimeoutError(), 1)

    async def main():
        task = asyncio.create_task(with_retry(call, THRICE))
        await asyncio.sleep(0.4)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    played = play(main)

    assert (played.result, played.seconds, len(call.played)) == (True, 0.4, 1)
    assert quiet(played)


def test_a_call_that_turns_its_cancellation_into_an_error_is_not_retried():
    calls = []

    async def call():
        calls.append(1)
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            raise TimeoutError from None

    async def main():
        task = asyncio.create_task(with_retry(call, THRICE))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert play(main).result is True
    assert len(calls) == 1


def test_a_cancellation_of_long_ago_does_not_end_the_retries():
    async def main():
        asyncio.current_task().cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(1)
        return await with_retry(script(TimeoutError(), 5), THRICE)

    assert play(main).result == 5


@pytest.mark.parametrize(("asked", "seconds", "calls"), [(0.2, 1.0, 2), (7.0, 7.0, 2), (11.0, 0.0, 1)])
def test_a_server_that_says_when_to_come_back_is_obeyed(asked, seconds, calls):
    """Longer than the longest wait: then it is final, because coming earlier would be refused again."""
    call = script(RemoteError("s", "busy", "", 429, asked), 1)

    played = play(lambda: with_retry(call, THRICE))

    assert (seconds, calls) == (played.seconds, len(call.played))


@pytest.mark.parametrize(
    "numbers",
    [
        (0, 1, 1),
        (-1, 1, 1),
        (1.5, 1, 1),
        (True, 1, 1),
        (1, -1, 1),
        (1, 1, 0.5),
        (1, math.nan, 1),
        (1, 1, math.inf),
        (1, 1, math.nan),
        (1, "1", 1),
    ],
)
def test_options_that_cannot_be_meant_are_refused(numbers):
    with pytest.raises(ValueError, match=r"delay_seconds|max_attempts"):
        RetryOptions(*numbers)


# --- timeouts ---------------------------------------------------------------------------------------------------------


class Work:
    """Work that takes its time, and what became of it."""

    def __init__(self, seconds=100.0, *, stubborn=False, late=None):
        self.seconds, self.stubborn, self.late = seconds, stubborn, late
        self.begun = self.cancelled = 0

    async def __call__(self):
        self.begun += 1
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            if self.late is not None:
                raise self.late from None
            if not self.stubborn:
                raise
            await asyncio.sleep(5)
        return "done"


@pytest.mark.parametrize("form", ["factory", "coroutine", "task"])
def test_work_is_cancelled_at_its_time(form):
    work = Work()

    async def main():
        handed = {"factory": lambda: work, "coroutine": work, "task": lambda: asyncio.create_task(work())}[
            form
        ]()
        await with_timeout(handed, 3)

    played = play(main)

    assert isinstance(played.result, CallTimeoutError)
    assert isinstance(played.result, TimeoutError)
    assert (played.seconds, work.begun, work.cancelled) == (3.0, 1, 1)
    assert quiet(played)


def test_work_that_is_done_in_time_is_its_result():
    played = play(lambda: with_timeout(Work(2), 3))

    assert (played.result, played.seconds) == ("done", 2.0)
    assert quiet(played)


def test_work_that_ignores_its_cancellation_does_not_hold_the_call():
    async def main():
        with pytest.raises(CallTimeoutError):
            await with_timeout(Work(stubborn=True), 3)
        at = asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        return at

    played = play(main)

    assert played.result == 3.0
    assert quiet(played)


def test_a_late_error_is_read_and_dropped():
    played = play(lambda: with_timeout(Work(late=ValueError("late")), 3))

    assert isinstance(played.result, CallTimeoutError)
    assert quiet(played)


def test_cancelling_the_caller_cancels_the_work():
    work = Work()

    async def main():
        task = asyncio.create_task(with_timeout(work, 50))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), work.cancelled

    played = play(main)

    assert (played.result, played.seconds) == ((True, 1), 1.0)
    assert quiet(played)


@pytest.mark.parametrize(("closing", "ended"), [(0.01, True), (30.0, False)])
def test_work_that_takes_a_moment_to_end_is_waited_for_and_no_other(closing, ended):
    async def work():
        try:
            await asyncio.sleep(99)
        finally:
            await asyncio.sleep(closing)

    async def main():
        before = asyncio.all_tasks()
        task = asyncio.create_task(with_timeout(work, 50))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled(), asyncio.all_tasks() == before

    played = play(main)

    assert played.result == (True, ended)
    assert played.seconds <= 1.05


@pytest.mark.parametrize("form", ["factory", "coroutine", "task"])
def test_zero_is_at_once_and_nothing_begins(form):
    work = Work()

    async def main():
        handed = {"factory": lambda: work, "coroutine": work, "task": lambda: asyncio.create_task(work())}[
            form
        ]()
        await with_timeout(handed, 0)

    played = play(main)

    assert isinstance(played.result, CallTimeoutError)
    assert (played.seconds, work.begun) == (0.0, 0)
    assert quiet(played)


def test_zero_takes_what_is_done_already():
    async def main():
        task = asyncio.create_task(turns(0))
        await task
        return await with_timeout(task, 0)

    assert play(main).result is None


def test_infinity_is_no_limit():
    assert play(lambda: with_timeout(Work(1e6), math.inf)).result == "done"


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, "1", None, True])
def test_times_that_cannot_be_meant_are_refused(seconds):
    work = Work()

    async def main():
        await with_timeout(work(), seconds)

    played = play(main)

    assert isinstance(played.result, NumberError)
    assert work.begun == 0
    assert quiet(played)


def test_the_error_is_the_callers_where_wanted():
    class OwnError(Exception):
        pass

    assert "too slow" in str(play(lambda: with_timeout(Work(), 1, message="too slow")).result)
    own = play(lambda: with_timeout(Work(), 1, "too slow", OwnError)).result
    assert (OwnError, ("too slow",)) == (type(own), own.args)


def test_what_the_work_raises_comes_out_as_it_was():
    error = ValueError("mine")

    assert play(lambda: with_timeout(script(error), 1)).result is error


def test_a_task_that_its_owner_cancels_ends_as_cancelled():
    async def main():
        task = asyncio.create_task(Work()())
        asyncio.get_running_loop().call_later(1, task.cancel)
        await with_timeout(task, 5)

    assert isinstance(play(main).result, asyncio.CancelledError)


@pytest.mark.parametrize(
    ("hundreds", "debug"), [(100, False), (10, True)], ids=["10,000", "1,000 in debug mode"]
)
def test_many_calls_leave_nothing_behind(hundreds, debug):
    """No task, no timer, nothing printed."""
    wait = RetryOptions(2, 0.001, 0.001)

    async def once(turn):
        work = [script(1), script(TimeoutError(), 1), Work(0.001), Work(10, late=ValueError())][turn % 4]
        try:
            return await with_retry(lambda: with_timeout(work, 0.01), wait)
        except TimeoutError:
            return None

    async def main():
        return [await asyncio.gather(*(once(turn) for turn in range(100))) for _ in range(hundreds)]

    played = play(main, debug=debug)

    assert [[1, 1, "done", None] * 25] * hundreds == played.result
    assert quiet(played)
