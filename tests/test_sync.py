"""The blocking door: the same names, with and without a loop running, interrupted and forked."""

import asyncio
import inspect
import os
import subprocess
import sys
import threading

import pytest

from judge_local import completion, ensemble, panel, resilience, sync
from judge_local.cache import JsonCache
from judge_local.completion import make_validator
from judge_local.errors import UsageError, VerdictSchemaError
from judge_local.providers.base import CompletionRequest
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.verdict import VERDICT_SCHEMA
from judge_local.zones import Zone

PASS = mock_verdict("pass", 0.9)
SUBJECT = "The gate opens at nine."
CALLS = {
    "judge": lambda provider: sync.judge(provider=provider, system="s", user="u").zone,
    "judge_claim": lambda provider: sync.judge_claim(provider, SUBJECT, "c").zone,
    "run_ensemble": lambda provider: len(sync.run_ensemble(provider=provider, system="s", user="u")),
    "complete_validated_json": lambda provider: (
        sync.complete_validated_json(
            provider, CompletionRequest(system="s", user="u", schema=VERDICT_SCHEMA)
        ).result
    ),
}
ANSWERS = {
    "judge": Zone.AUTO_PASS,
    "judge_claim": Zone.AUTO_PASS,
    "run_ensemble": 3,
    "complete_validated_json": PASS["json"],
}


@pytest.mark.parametrize("name", CALLS)
def test_each_name_blocks_until_it_has_an_answer(name):
    assert CALLS[name](MockProvider([PASS])) == ANSWERS[name]


@pytest.mark.parametrize("name", CALLS)
async def test_each_name_works_inside_a_running_loop(name):
    """As in a notebook, whose cells run on a loop of their own."""
    assert CALLS[name](MockProvider([PASS])) == ANSWERS[name]


@pytest.mark.parametrize("name", CALLS)
def test_each_name_has_the_parameters_and_the_words_of_its_twin(name):
    twin = getattr(completion if name == "complete_validated_json" else ensemble, name)

    assert inspect.signature(getattr(sync, name)) == inspect.signature(twin)
    assert getattr(sync, name).__doc__ == twin.__doc__


@pytest.mark.parametrize(
    ("name", "home"),
    [("judge_panel", panel), ("run_panel", panel), ("with_retry", resilience), ("with_timeout", resilience)],
)
def test_the_names_of_panels_have_twins_too(name, home):
    assert inspect.signature(getattr(sync, name)) == inspect.signature(getattr(home, name))
    assert getattr(sync, name).__doc__ == getattr(home, name).__doc__


def test_a_retry_and_a_timeout_can_be_waited_for():
    async def answer():
        return 7

    options = resilience.RetryOptions(1, 0.0, 0.0)

    assert sync.with_retry(answer, options) == 7
    assert sync.with_timeout(answer, 5) == 7


class Noting(MockProvider):
    """Remembers the loop and the thread that each request came on."""

    def __init__(self):
        super().__init__([PASS])
        self.places = set()

    async def complete_json(self, request):
        self.places.add((asyncio.get_running_loop(), threading.current_thread()))
        return await super().complete_json(request)


def test_a_provider_that_is_used_twice_meets_one_loop():
    provider = Noting()

    for _ in range(2):
        CALLS["judge"](provider)

    ((_, thread),) = provider.places
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_threads_that_come_together_share_it():
    provider = Noting()
    threads = [threading.Thread(target=CALLS["judge"], args=[provider]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(provider.requests) == 12
    assert len(provider.places) == 1


def test_errors_arrive_as_they_are():
    with pytest.raises(VerdictSchemaError):
        sync.judge(provider=MockProvider([PASS]), system="s", user="u", schema={})


def test_warnings_arrive_too(tmp_path):
    (tmp_path / "file").touch()
    cache = JsonCache(tmp_path / "file")

    with pytest.warns(RuntimeWarning, match="cannot be written"):
        sync.judge_claim(MockProvider([PASS]), SUBJECT, "c", cache=cache)


class Calling(MockProvider):
    """A provider that blocks the private loop by calling back through the blocking door."""

    async def complete_json(self, request):
        return sync.judge(provider=MockProvider([PASS]), system="s", user="u")


def test_a_call_that_would_wait_for_itself_is_refused():
    with pytest.raises(UsageError, match="own loop"):
        sync.judge(provider=Calling([PASS]), system="s", user="u")


def test_an_interrupt_cancels_the_work(monkeypatch):
    begun, cancelled = threading.Event(), threading.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    submit = asyncio.run_coroutine_threadsafe

    def interrupted(coroutine, loop):
        future = submit(coroutine, loop)

        def result(timeout=None):
            begun.wait(30)
            raise KeyboardInterrupt

        future.result = result
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sync.run(work())

    assert cancelled.wait(30)


INTERRUPTED = """
import asyncio, os, signal, threading
from judge_local import sync
async def work():
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        done.set()
        raise
done = threading.Event()
try:
    sync.run(work())
except KeyboardInterrupt:
    done.wait(30)
    print("interrupted", flush=True)
"""


def test_a_real_interrupt_cancels_the_work():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.split() == ["cancelled", "interrupted"]


FORKED = """
import os
from judge_local import MockProvider, mock_verdict, sync
ask = lambda: sync.judge(provider=MockProvider([mock_verdict("pass", 0.9)]), system="s", user="u").zone
assert ask() == "auto-pass"
child = os.fork()
if child == 0:
    os._exit(0 if ask() == "auto-pass" else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_begins_a_loop_of_its_own():
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "0"


async def nothing_else():
    await asyncio.sleep(0)
    return 7


def test_any_coroutine_can_be_run():
    assert sync.run(nothing_else()) == 7


def test_the_validator_may_be_handed_over():
    provider = MockProvider([{"json": 1}])
    schema = {"type": "integer"}
    asked = CompletionRequest(system="s", user="u", schema=schema)

    run = sync.complete_validated_json(provider, asked, validator=make_validator(schema), attempts=1)

    assert run.result == 1
