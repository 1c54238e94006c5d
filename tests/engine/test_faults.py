"""What a failing worker costs: the runs that were begun, each with the fault's name, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from judge_local.engine import client as module
from judge_local.engine.client import EngineClient
from judge_local.engine.patience import Patience
from judge_local.engine.protocol import Facts, Generate, Generated, Settings, to_json
from judge_local.engine.turns import IN_FLIGHT, Turns
from judge_local.errors import (
    DeadlineExceededError,
    EngineCrashedError,
    EngineError,
    EngineProtocolError,
)

HANG_SECONDS = 60.0
SHORT = 'root ::= "{\\"a\\":" ("1" | "2") "}"\n'
FACTS = to_json(
    Facts(
        description="fake",
        template="",
        n_ctx=100,
        n_vocab=1,
        engine="fake",
        recurrent=False,
        gpu_offload=False,
        n_gpu_layers=0,
        load_seconds=0.0,
    )
)
PROLOGUE = f"""
import json, os, signal, sys, time
def tell(**message):
    sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
def answer(request):
    tell(event="result", id=request["id"], text="{{}}", prompt_tokens=1, output_tokens=1, forced_tokens=0)
def asked():
    for line in sys.stdin:
        message = json.loads(line)
        yield from message.get("requests", []) if message["op"] == "submit" else [message]
tell(event="hello", protocol=1, pid=os.getpid())
sys.stdin.readline()
tell(event="loaded", facts=json.loads({json.dumps(FACTS)!r}))
"""
"""A worker without a model: what it does with its requests is up to the test."""


@pytest.fixture
async def start(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., EngineClient]]:
    """Start clients: of a worker that runs `program` after the prologue, or of the real one."""
    clients: list[EngineClient] = []

    def make(
        program: str | None = None, *, patience: Patience | None = None, say: Any = None, **settings: Any
    ) -> EngineClient:
        if program is not None:
            command = [sys.executable, "-c", PROLOGUE + program]
            monkeypatch.setattr("judge_local.engine.process.worker_command", lambda: command)
        settings = {"path": str(tiny_model), "lock_path": str(tmp_path / "lock"), **settings}
        clients.append(EngineClient(Settings(**settings), say=say, patience=patience or Patience()))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def ask(client: EngineClient, user: str = "x", **changes: Any) -> Generate:
    values = {"system": "s", "grammar": SHORT, "max_tokens": 50, "typical_tokens": 10, **changes}
    return Generate(id=client.next_id(), user=user, **values)


async def answers(client: EngineClient, count: int = 1, deadline: float | None = None) -> list[Any]:
    requests = [ask(client, f"x{number}") for number in range(count)]
    return (await client.submit(requests, [deadline] * count))[0]


async def test_a_stopped_worker_is_ended_and_the_next_one_answers(start: Callable[..., EngineClient]) -> None:
    """SIGSTOP: the process is there and says nothing."""
    said: list[str] = []
    client = start(patience=Patience(silent=3.0), say=said.append)
    await client.facts()
    assert client.pid is not None
    os.kill(client.pid, signal.SIGSTOP)
    (hung,) = await answers(client)
    (good,) = await answers(client)

    assert isinstance(hung, EngineCrashedError)
    assert "the worker process hung (nothing was heard of it for 3 s)" in str(hung)
    assert isinstance(good, Generated)
    assert said == ["the engine died and is started again"]


async def test_a_decode_that_never_ends_is_ended(
    start: Callable[..., EngineClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's other threads live and say so; its computation makes no step."""
    program = (
        "import time; import judge_local.engine.context as context; from judge_local.engine.worker import main; "
        "context.Context.decode = lambda *_: time.sleep(1000); main()"
    )
    command = [sys.executable, "-c", program]
    monkeypatch.setattr("judge_local.engine.process.worker_command", lambda: command)
    client = start(patience=Patience(first_step=2.0))
    (hung,) = await answers(client)

    assert isinstance(hung, EngineCrashedError)
    assert "no step of computation ended within 2 s" in str(hung)


async def test_waiting_long_for_nothing_is_no_hang(start: Callable[..., EngineClient]) -> None:
    client = start("for request in asked(): answer(request)", patience=Patience(silent=1.0))
    await client.facts()
    await asyncio.sleep(2.5)

    assert isinstance((await answers(client))[0], Generated)


@pytest.mark.parametrize(
    "garbage", ["moo", "[]", '{"event": "dance"}', '{"event": "result", "id": "nobody"}', "\\xff"]
)
async def test_garbage_costs_what_is_in_flight(start: Callable[..., EngineClient], garbage: str) -> None:
    program = f"""
for request in asked():
    if request["user"] == "x1":
        sys.stdout.buffer.write(b'{garbage}\\n'); sys.stdout.buffer.flush(); time.sleep(1000)
    answer(request)
"""
    client = start(program)
    first, second, third = await answers(client, 3)

    assert isinstance(first, Generated)
    assert {type(second), type(third)} == {EngineProtocolError}
    assert "not in the protocol" in str(second)


async def test_a_line_that_never_ends_is_garbage(
    start: Callable[..., EngineClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judge_local.engine.process._LONGEST_LINE", 10_000)
    client = start("next(asked())\nwhile True: sys.stdout.write('x' * 1000)")

    assert isinstance((await answers(client))[0], EngineProtocolError)


async def test_a_message_that_death_cut_short_is_a_death_and_no_garbage(
    start: Callable[..., EngineClient],
) -> None:
    program = "next(asked())\nsys.stdout.write('{\"event\": '); sys.stdout.flush(); os.kill(os.getpid(), signal.SIGSEGV)"
    (outcome,) = await answers(start(program))

    assert isinstance(outcome, EngineCrashedError)
    assert "signal 11 (SIGSEGV)" in str(outcome)


async def test_last_words_stand_in_the_error(start: Callable[..., EngineClient]) -> None:
    program = "next(asked())\nprint('std::bad_alloc', file=sys.stderr); os.abort()"
    (outcome,) = await answers(start(program))

    assert "signal 6 (SIGABRT); its last words: 'std::bad_alloc'" in str(outcome)


async def test_a_kill_may_be_for_want_of_memory(start: Callable[..., EngineClient]) -> None:
    (outcome,) = await answers(start("next(asked())\nos.kill(os.getpid(), signal.SIGKILL)"))

    assert isinstance(outcome, EngineCrashedError)
    assert "signal 9 (SIGKILL)" in str(outcome)
    assert "want of memory" in str(outcome)


async def test_a_worker_that_closes_its_output_is_ended(
    start: Callable[..., EngineClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("judge_local.engine.process._CLOSE_SECONDS", 0.5)
    (outcome,) = await answers(start("next(asked())\nos.close(1); time.sleep(1000)"))

    assert isinstance(outcome, EngineCrashedError)
    assert "closed its output" in str(outcome)


async def test_what_was_not_begun_is_given_to_the_next_worker(
    start: Callable[..., EngineClient], tmp_path: Path
) -> None:
    """The first worker begins two of five and dies; only these two are lost."""
    flag = tmp_path / "died"
    program = f"""
requests = asked()
if not os.path.exists({str(flag)!r}):
    open({str(flag)!r}, "w").close()
    tell(event="begun", ids=[next(requests)["id"], next(requests)["id"]])
    os.kill(os.getpid(), signal.SIGKILL)
for request in requests: answer(request)
"""
    outcomes = await answers(start(program), 5)

    assert [type(outcome) for outcome in outcomes] == [EngineCrashedError] * 2 + [Generated] * 3


async def test_a_request_that_kills_before_it_is_begun_is_found_out(
    start: Callable[..., EngineClient],
) -> None:
    """Its neighbours are errored with it, because nobody can tell them apart; after three deaths it is not sent again."""
    client = start("next(asked())\nos.kill(os.getpid(), signal.SIGSEGV)")
    texts = []
    for _ in range(4):
        (outcome,) = (await client.submit([ask(client)], [None]))[0]
        texts.append(str(outcome))

    assert ["signal 11" in text for text in texts] == [True, True, True, False]
    assert "died 3 times" in texts[3]


async def test_the_worker_never_holds_more_than_its_share(start: Callable[..., EngineClient]) -> None:
    """Of 1,000 requests it has `IN_FLIGHT` at most; all are answered, and each caller gets its own, in order."""
    program = """
held = most = 0
waiting = []
for request in asked():
    waiting.append(request)
    most = max(most, len(waiting))
    if len(waiting) >= 64 or request["user"] == "last":
        for one in waiting: tell(event="result", id=one["id"], text=json.dumps([one["user"], most]), prompt_tokens=1,
                                 output_tokens=1, forced_tokens=0)
        waiting.clear()
"""
    client = start(program)
    requests = [ask(client, f"x{number}") for number in range(999)] + [ask(client, "last")]
    outcomes, _ = await client.submit(requests, [None] * 1000)
    said = [json.loads(outcome.text) for outcome in outcomes if isinstance(outcome, Generated)]

    assert [user for user, _ in said] == [request.user for request in requests]
    assert max(most for _, most in said) <= IN_FLIGHT


async def test_a_caller_with_many_does_not_keep_out_the_next(start: Callable[..., EngineClient]) -> None:
    client = start("for request in asked(): time.sleep(0.002); answer(request)")
    await client.facts()
    order: list[str] = []

    async def call(name: str, count: int) -> None:
        await answers(client, count)
        order.append(name)

    await asyncio.gather(call("many", 600), call("few", 3))

    assert order == ["few", "many"]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request at a time."""
    monkeypatch.setattr(module, "Turns", lambda: Turns(most=1))


@pytest.mark.usefixtures("narrow")
async def test_one_that_waits_in_line_can_be_cancelled_and_can_be_late(
    start: Callable[..., EngineClient],
) -> None:
    client = start("for request in asked(): time.sleep(0.5); answer(request) if 'id' in request else None")
    await client.facts()
    first = asyncio.create_task(answers(client))
    await asyncio.sleep(0.1)
    cancelled, late, last = (
        asyncio.create_task(answers(client, deadline=deadline))
        for deadline in (None, time.monotonic() + 0.1, None)
    )
    await asyncio.sleep(0.1)
    cancelled.cancel()
    (overdue,), (good,), (also,) = await late, await first, await last

    assert isinstance(overdue, DeadlineExceededError)
    assert isinstance(good, Generated)
    assert isinstance(also, Generated)
    assert cancelled.cancelled()


@pytest.mark.usefixtures("narrow")
async def test_closing_ends_those_in_line_and_starts_nothing(start: Callable[..., EngineClient]) -> None:
    client = start("for request in asked(): time.sleep(1000)")
    await client.facts()
    tasks = [asyncio.create_task(answers(client)) for _ in range(3)]
    await asyncio.sleep(0.1)
    await asyncio.to_thread(client.close)
    outcomes = [(await task)[0] for task in tasks]

    assert [type(outcome) for outcome in outcomes] == [EngineError] * 3
    assert client.pid is None


async def test_a_worker_that_loads_ends_with_a_parent_that_was_killed(tiny_model: Path) -> None:
    """Nothing can stop llama.cpp while it loads, so the process ends at once."""
    slow = (
        "import time; import judge_local.engine.binding as binding; from judge_local.engine.worker import main; "
        "binding.start_backend = lambda: time.sleep(1000); main()"
    )
    program = f"""
import sys, time
import judge_local.engine.process as process
from judge_local.engine.client import EngineClient
from judge_local.engine.protocol import Settings
process.worker_command = lambda: [sys.executable, "-c", {slow!r}]
client = EngineClient(Settings(path={str(tiny_model)!r}))
client.start()
print(client.pid, flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        await asyncio.sleep(1.0)
        assert is_running(worker)
        parent.kill()
    until = time.monotonic() + HANG_SECONDS
    while is_running(worker) and time.monotonic() < until:
        await asyncio.sleep(0.05)

    assert time.monotonic() < until


def is_running(pid: int) -> bool:
    """Whether the process lives; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("layers", [-1, 3])
async def test_layers_without_a_card_are_said_and_judged_on_the_processor(
    start: Callable[..., EngineClient], layers: int
) -> None:
    said: list[str] = []
    client = start(n_gpu_layers=layers, say=said.append)
    facts = await client.facts()
    if facts.gpu_offload:
        pytest.skip("this build of llama.cpp can use a graphics card")

    assert facts.n_gpu_layers == 0
    assert said == ["this build of llama.cpp uses no graphics card: judging on the processor"]


async def test_little_memory_means_little_context_and_a_line_says_so(
    start: Callable[..., EngineClient],
) -> None:
    said: list[str] = []
    client = start(memory_bytes=1, say=said.append)
    facts = await client.facts()

    assert facts.n_ctx == 1024
    assert said == ["memory carries 1024 of 8192 tokens of context: a longer prompt is refused"]
