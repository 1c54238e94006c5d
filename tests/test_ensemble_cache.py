"""Ensembles and the cache: what is kept, what is read again, and what is a miss."""

import json
from typing import Any

import pytest

from judge_local.cache import JsonCache
from judge_local.ensemble import (
    run_ensemble,
)
from judge_local.providers.mock import MockProvider, mock_verdict

PASS = mock_verdict("pass", 0.9)
BAD = mock_verdict("pass", 4.2)


async def ask(provider, **changes: Any):
    return await run_ensemble(**{"provider": provider, "system": "s", "user": "u", **changes})


KEY = "key"


async def test_a_second_ensemble_is_read_from_the_cache(tmp_path):
    cache, provider = JsonCache(tmp_path), MockProvider([PASS, mock_verdict("pass", 0.8)])

    first = await ask(provider, cache=cache, cache_key=KEY)
    again = await ask(provider, cache=JsonCache(tmp_path), cache_key=KEY)

    assert len(provider.requests) == 3
    assert [run.cached for run in first] == [False] * 3
    assert [run.cached for run in again] == [True] * 3
    assert [run.verdict for run in again] == [run.verdict for run in first]
    assert [entry["cached"] for entry in json.loads((tmp_path / "key.json").read_text())] == [False] * 3


@pytest.mark.parametrize("changes", [{"cache_key": KEY}, {"cache": True}])
async def test_the_cache_is_used_only_with_a_key(tmp_path, changes):
    if "cache" in changes:
        changes = {"cache": JsonCache(tmp_path)}
    provider = MockProvider([PASS])

    await ask(provider, **changes)
    await ask(provider, **changes)

    assert len(provider.requests) == 6
    assert list(tmp_path.iterdir()) == []


async def test_an_ensemble_with_an_errored_run_is_not_kept(tmp_path):
    cache = JsonCache(tmp_path)

    await ask(MockProvider([PASS, PASS, BAD, BAD]), cache=cache, cache_key=KEY)

    assert cache.get(KEY) is None


def entry(**changes):
    run = {"verdict": PASS["json"], "provider": "mock", "model": "m", "cached": False, "durationMs": 1}
    return {**run, **changes}


ERRORED = {"error": "e", "provider": "mock", "model": "m", "cached": False, "durationMs": 1}


@pytest.mark.parametrize(
    "kept",
    [
        {},
        "text",
        [],
        [entry()] * 2,
        [entry()] * 4,
        [entry(), entry(), {}],
        [entry(), entry(), entry(verdict={**PASS["json"], "confidence": 7})],
        [entry(), entry(), ERRORED],
        {"0": entry(), "1": entry(), "2": entry()},
    ],
    ids=range(9),
)
async def test_an_entry_that_is_not_this_ensemble_is_a_miss_and_replaced(tmp_path, kept):
    cache, provider = JsonCache(tmp_path), MockProvider([PASS])
    cache.set(KEY, kept)

    runs = await ask(provider, cache=cache, cache_key=KEY)

    assert len(provider.requests) == 3
    assert [run.cached for run in runs] == [False] * 3
    assert len(cache.get(KEY)) == 3


async def test_an_entry_of_another_tool_is_a_hit_and_keeps_its_unknown_keys(tmp_path):
    cache = JsonCache(tmp_path)
    cache.set(KEY, [entry(theirs=[1])] * 3)

    runs = await ask(MockProvider([PASS]), cache=cache, cache_key=KEY)

    assert [run.to_json() for run in runs] == [entry(theirs=[1], cached=True)] * 3


async def test_a_cache_that_cannot_be_written_loses_no_result(tmp_path):
    (tmp_path / "file").touch()

    with pytest.warns(RuntimeWarning, match="cannot be written"):
        runs = await ask(MockProvider([PASS]), cache=JsonCache(tmp_path / "file"), cache_key=KEY)

    assert len(runs) == 3


@pytest.mark.parametrize(
    "damage",
    [
        ('"confidence": 0.9', '"confidence": 1' + "0" * 400),
        ('"confidence": 0.9', '"confidence": NaN'),
        ('"match": "pass"', '"match": "fail", "match": "pass"'),
        ('"durationMs": ', '"durationMs": 1e999, "was": '),
        ('"durationMs": ', '"durationMs": Infinity, "was": '),
        ('"provider"', '"probabilities": {"slot": {"pass": "x"}}, "provider"'),
        ('"provider"', '"probabilities": {"slot": {"pass": 2}}, "provider"'),
    ],
)
async def test_a_damaged_entry_is_a_miss(tmp_path, damage):
    """Whatever happened to the file, it never crashes and never passes for an answer."""
    cache = JsonCache(tmp_path)
    provider = MockProvider([PASS])
    ask = {"provider": provider, "system": "s", "user": "u", "runs": 1, "cache": cache, "cache_key": "k"}
    await run_ensemble(**ask)
    entry = tmp_path / "k.json"
    before, after = damage
    assert before in entry.read_text()
    entry.write_text(entry.read_text().replace(before, after))
    (run,) = await run_ensemble(**ask)

    assert not run.cached
    assert len(provider.requests) == 2
