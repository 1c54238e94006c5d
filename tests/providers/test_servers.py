"""The pool on a clock of its own: who is asked, who rests, and for how long."""

from __future__ import annotations

import pytest

from judge_local.providers.servers import LONGEST_REST_SECONDS, Pool


class Clock:
    """Says what it is told."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pool(clock):
    return Pool(["http://a/v1/", "http://b/v1", "http://a/v1/"], clock=clock)


def names(servers):
    return [server.url[7] for server in servers]


def test_each_server_counts_once(pool):
    assert [server.url for server in pool.servers] == ["http://a/v1", "http://b/v1"]


def test_the_one_with_the_fewest_in_flight_comes_first_and_then_the_one_that_waited_longest(pool):
    a, b = pool.servers

    assert names(pool.in_order()) == ["a", "b"]
    pool.began(a)
    assert names(pool.in_order()) == ["b", "a"]
    pool.began(b)
    pool.ended(b)
    pool.ended(a)
    assert names(pool.in_order()) == ["a", "b"]


def test_one_that_failed_rests_longer_each_time_and_comes_last_until_it_works(pool, clock):
    a, _ = pool.servers

    for rest in (1.0, 2.0, 4.0):
        pool.failed(a)
        assert names(pool.in_order()) == ["b"]
        clock.now += rest - 0.01
        assert names(pool.in_order()) == ["b"]
        clock.now += 0.01
        assert names(pool.in_order()) == ["b", "a"]
    for _ in range(100):
        pool.failed(a)
    assert a.rests_until == clock.now + LONGEST_REST_SECONDS
    pool.worked(a)
    assert names(pool.in_order()) == ["a", "b"]


def test_when_all_rest_the_one_that_is_nearest_its_end_is_asked(pool, clock):
    a, b = pool.servers
    pool.failed(a)
    pool.failed(b)
    pool.failed(b)

    assert names(pool.in_order()) == ["a"]
    assert not pool.any_up()
    clock.now += 1
    assert pool.any_up()


@pytest.mark.parametrize(("asked", "rest"), [(None, 1.0), (7.0, 7.0), (9000.0, LONGEST_REST_SECONDS)])
def test_one_that_is_busy_is_left_alone_as_it_asks_and_is_not_ill(pool, clock, asked, rest):
    a, _ = pool.servers
    pool.busy(a, asked)

    assert a.rests_until == clock.now + rest
    assert a.failures == 0
