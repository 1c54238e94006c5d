"""The limit and what it is made of: each token counts once, at the price of its kind."""

from __future__ import annotations

import pytest

from judge_local.bench.limit import Speeds, Timing, Tokens, limit_seconds

SPEEDS = Speeds(
    reading=(Timing(1, 0.1), Timing(100, 1.0), Timing(200, 4.0)), writing=(Timing(1, 0.1), Timing(4, 0.2))
)
"""At best 100 tokens a second read, in batches of 100, and 20 written, by 4 runs at once."""


def tokens(**changes: int) -> Tokens:
    return Tokens(**{"prompt": 0, "unique": 0, "read": 0, "written": 0, "forced": 0, **changes})


def test_the_best_batch_counts() -> None:
    assert (SPEEDS.best_reading.size, SPEEDS.best_writing.size) == (100, 4)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (tokens(), 0.0),
        (tokens(prompt=3000, unique=1000, read=1500), 10.0),
        (tokens(prompt=3000, unique=1000, read=400), 4.0),
        (tokens(written=100), 5.0),
        (tokens(written=100, forced=100), 1.0),
        (tokens(written=100, forced=40), 3.4),
        (tokens(written=100, forced=40, drafted=50, accepted=20), 2.6),
    ],
)
def test_each_token_costs_what_its_kind_costs(work: Tokens, seconds: float) -> None:
    """What the engine read twice does not make its limit longer, and neither does what it had kept from before."""
    assert limit_seconds(work, SPEEDS) == pytest.approx(seconds)


def test_kinds_that_the_worker_does_not_count_are_none() -> None:
    found = Tokens.from_stats({"prompt_tokens": 90.0, "read_tokens": 30.0, "written_tokens": 8.0}, unique=20)

    assert (found.shared, found.free, found.drafted, found.accepted) == (60, 8, 0, 0)


def test_speeds_are_read_from_a_probe() -> None:
    found = {"reading": [{"size": 8, "seconds": 2.0}], "writing": [{"size": 2, "seconds": 1.0}], "layout": {}}

    assert Speeds.from_probe(found) == Speeds(reading=(Timing(8, 2.0),), writing=(Timing(2, 1.0),))
