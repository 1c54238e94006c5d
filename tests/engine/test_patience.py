"""What counts as hung: silence, or a step far longer than any before it; never work, and never waiting."""

from __future__ import annotations

import pytest

from judge_local.engine.patience import Patience, Watch

PATIENCE = Patience(silent=10.0, first_step=100.0, least=20.0, times=3.0)


def pass_time(watch: Watch, seconds: int, *, steps: int | None = None, working: bool = True) -> str | None:
    """Second by second; with `steps`, the worker says each second that it is still there."""
    for _ in range(seconds):
        if steps is not None:
            watch.beat(steps, working=working)
        if (why := watch.passed(1.0)) is not None:
            return why
    return None


def test_silence_is_a_hang() -> None:
    watch = Watch(PATIENCE)

    assert pass_time(watch, 9) is None
    watch.heard()
    assert pass_time(watch, 9) is None
    assert pass_time(watch, 1) == "nothing was heard of it for 10 s"


def test_the_first_step_may_take_long() -> None:
    watch = Watch(PATIENCE)

    assert pass_time(watch, 99, steps=0) is None
    assert pass_time(watch, 1, steps=0) == "no step of computation ended within 100 s"


@pytest.mark.parametrize(("slowest", "allowed"), [(2, 20), (30, 90)])
def test_a_later_step_is_held_to_the_slowest(slowest: int, allowed: int) -> None:
    watch = Watch(PATIENCE)
    pass_time(watch, slowest, steps=0)
    pass_time(watch, 1, steps=1)

    assert pass_time(watch, allowed - 2, steps=1) is None
    assert pass_time(watch, 2, steps=1) == f"no step of computation ended within {allowed} s"


def test_waiting_for_the_machine_is_no_hang() -> None:
    watch = Watch(PATIENCE)

    assert pass_time(watch, 1000, steps=5, working=False) is None


def test_rest_is_no_hang() -> None:
    watch = Watch(PATIENCE)
    for _ in range(1000):
        watch.rest()
        assert watch.passed(1.0) is None
