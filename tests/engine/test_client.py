"""The worker, real llama.cpp and random weights: what it answers, what stops it, and what its death costs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from judge_local.engine.children import engine_info
from judge_local.engine.client import EngineClient
from judge_local.engine.protocol import Generate, Generated, Settings
from judge_local.errors import (
    ChatTemplateError,
    ContextOverflowError,
    DeadlineExceededError,
    EngineBusyError,
    EngineCrashedError,
    EngineError,
    EngineProtocolError,
    GrammarRejectedError,
    ModelFileError,
    TruncatedOutputError,
    UsageError,
)

SHORT = r"""root ::= "{\"a\":\"" ch{1,30} "\",\"b\":" ("true" | "false") "}"
ch ::= [ !#-\[\]-~]
"""
# No answer of fewer characters than this, so that there is time to stop it.
LONG = 'root ::= "[" b b b b b b "0]"\nb ::= c c c c c c c c c c\nc ::= [1-9]{500} ","\n'
HANG_SECONDS = 60.0


@pytest.fixture
async def start(tiny_model: Path, tmp_path: Path) -> AsyncIterator[Callable[..., EngineClient]]:
    """Start clients of the tiny model; all are closed in the end."""
    clients: list[EngineClient] = []

    def make(*, say: Callable[[str], None] | None = None, **settings: Any) -> EngineClient:
        settings = {"path": str(tiny_model), "lock_path": str(tmp_path / "lock"), **settings}
        clients.append(EngineClient(Settings(**settings), say=say))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def ask(client: EngineClient, user: str = "The sky is blue.", **changes: Any) -> Generate:
    values = {
        "system": "Judge.",
        "grammar": SHORT,
        "max_tokens": 200,
        "typical_tokens": 30,
        "temperature": 1.0,
        **changes,
    }
    return Generate(id=client.next_id(), user=user, **values)


async def answers(client: EngineClient, requests: list[Generate], **kwargs: Any) -> list[Any]:
    outcomes, _ = await client.submit(requests, kwargs.get("deadlines", [None] * len(requests)))
    return outcomes


async def test_every_run_is_one_text_of_the_grammar(start: Callable[..., EngineClient]) -> None:
    client = start()
    done = await answers(client, [ask(client, seed=seed) for seed in range(20)])

    assert all(isinstance(outcome, Generated) for outcome in done)
    assert all(
        re.fullmatch(r'\{"a":"[ !#-\[\]-~]{1,30}","b":(true|false)\}', outcome.text) for outcome in done
    )
    assert len({outcome.text for outcome in done}) > 10


async def test_what_the_runs_share_is_evaluated_once(start: Callable[..., EngineClient]) -> None:
    client = start()
    subject = "The sky is blue. " * 60
    done = await answers(client, [ask(client, f"{subject}Run {run}.") for run in range(3)])

    read = (await client.stats())["read_tokens"]

    assert {outcome.prompt_tokens for outcome in done} == {done[0].prompt_tokens}
    assert done[0].prompt_tokens < read < done[0].prompt_tokens + 3 * 40


async def test_sharing_and_batching_change_no_greedy_answer(start: Callable[..., EngineClient]) -> None:
    """Runs that differ at the end of the prompt answer as each would alone, in a context of its own."""
    client, alone = start(), start(deterministic=True)
    users = [f"{'The sky is blue. ' * 40}Run {run}." for run in range(3)]
    together = await answers(client, [ask(client, user, temperature=0.0) for user in users])
    singly = [(await answers(alone, [ask(alone, user, temperature=0.0)]))[0] for user in users]

    assert [outcome.text for outcome in together] == [outcome.text for outcome in singly]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_deterministic_runs_repeat_in_a_row_and_in_a_new_process(
    start: Callable[..., EngineClient], temperature: float
) -> None:
    async def texts(client: EngineClient, user: str) -> list[str]:
        runs = [ask(client, f"{user} Run {run}", seed=run, temperature=temperature) for run in range(8)]
        return [outcome.text for outcome in await answers(client, runs)]

    one, two = start(deterministic=True), start(deterministic=True)
    first = await texts(one, "x" * 700)
    await texts(one, "something longer in between " * 100)

    assert first == await texts(one, "x" * 700)
    assert first == await texts(two, "x" * 700)


async def test_more_runs_than_slots(start: Callable[..., EngineClient]) -> None:
    client = start(slots=2)
    done = await answers(client, [ask(client, seed=seed) for seed in range(7)])

    assert [outcome.id for outcome in done] == [str(run) for run in range(7)]
    assert all(isinstance(outcome, Generated) for outcome in done)


async def test_answers_longer_than_what_was_set_aside_get_more_room(
    start: Callable[..., EngineClient],
) -> None:
    client = start()
    grammar = 'root ::= "[" a a "1]"\na ::= b b b\nb ::= c{250}\nc ::= [2-9] ","\n'
    done = await answers(
        client, [ask(client, grammar=grammar, max_tokens=4000, typical_tokens=10, seed=s) for s in range(3)]
    )

    assert [len(json.loads(outcome.text)) for outcome in done] == [1501] * 3


async def test_a_prompt_that_does_not_fit_is_refused_with_both_sizes(
    start: Callable[..., EngineClient],
) -> None:
    client = start()
    (outcome,) = await answers(client, [ask(client, "word " * 5000)])

    assert isinstance(outcome, ContextOverflowError)
    assert re.search(r"\d{5} tokens .* context of 8192 tokens", str(outcome))


async def test_one_that_does_not_fit_costs_the_others_nothing(start: Callable[..., EngineClient]) -> None:
    client = start()
    small, large = await answers(client, [ask(client), ask(client, "word " * 5000)])

    assert isinstance(small, Generated)
    assert isinstance(large, ContextOverflowError)


async def test_an_answer_that_runs_out_of_tokens_is_an_error(start: Callable[..., EngineClient]) -> None:
    client = start()
    (outcome,) = await answers(client, [ask(client, grammar=LONG, max_tokens=20)])

    assert isinstance(outcome, TruncatedOutputError)
    assert "20 tokens" in str(outcome)
    assert re.fullmatch(r"\[[1-9]+", str(outcome.raw))


async def test_a_grammar_that_llama_cpp_cannot_read_is_an_error_not_a_crash(
    start: Callable[..., EngineClient],
) -> None:
    client = start()
    (bad,) = await answers(client, [ask(client, grammar="root ::= (")])
    (good,) = await answers(client, [ask(client)])

    assert isinstance(bad, GrammarRejectedError)
    assert isinstance(good, Generated)


async def test_a_deadline_stops_a_run_and_the_next_one_works(start: Callable[..., EngineClient]) -> None:
    client = start()
    await client.facts()
    started = time.monotonic()
    late, good = await answers(
        client,
        [ask(client, grammar=LONG, max_tokens=8000), ask(client)],
        deadlines=[started + 0.1, None],
    )

    assert isinstance(late, DeadlineExceededError)
    assert "tokens of the answer were written" in str(late)
    assert isinstance(good, Generated)
    assert time.monotonic() - started < HANG_SECONDS


async def test_a_deadline_stops_prompt_processing(start: Callable[..., EngineClient]) -> None:
    client = start()
    await client.facts()
    (outcome,) = await answers(client, [ask(client, "y" * 8000)], deadlines=[time.monotonic() + 0.01])
    (again,) = await answers(client, [ask(client, "y" * 200)])

    assert isinstance(outcome, DeadlineExceededError)
    assert isinstance(again, Generated)


async def test_a_deadline_counts_the_loading(start: Callable[..., EngineClient]) -> None:
    client = start()

    with pytest.raises(DeadlineExceededError, match="loading"):
        await answers(client, [ask(client)], deadlines=[time.monotonic()])
    assert isinstance((await answers(client, [ask(client)]))[0], Generated)


async def test_cancelling_the_task_frees_the_engine(start: Callable[..., EngineClient]) -> None:
    client = start()
    await client.facts()
    task = asyncio.create_task(answers(client, [ask(client, grammar=LONG, max_tokens=8000)]))
    await asyncio.sleep(0.1)
    task.cancel()
    started = time.monotonic()
    (outcome,) = await answers(client, [ask(client)])

    assert task.cancelled()
    assert isinstance(outcome, Generated)
    assert time.monotonic() - started < HANG_SECONDS


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
async def test_a_death_costs_the_runs_in_flight_and_nothing_else(
    start: Callable[..., EngineClient], number: signal.Signals
) -> None:
    said: list[str] = []
    client = start(say=said.append)
    await client.facts()
    doomed = [ask(client, grammar=LONG, max_tokens=8000) for _ in range(2)]
    outcomes, _ = await asyncio.gather(answers(client, doomed), kill_soon(client, number))
    (good,) = await answers(client, [ask(client)])

    assert [type(outcome) for outcome in outcomes] == [EngineCrashedError] * 2
    assert f"signal {number.value} ({number.name})" in str(outcomes[0])
    assert isinstance(good, Generated)
    assert said == ["the engine died and is started again"]


async def test_the_third_death_blames_the_request_and_not_the_queue(
    start: Callable[..., EngineClient],
) -> None:
    client = start()
    killer = replace(ask(client, grammar=LONG, max_tokens=8000), id="k")
    deaths = []
    for attempt in range(3):
        await client.facts()
        (outcome,), _ = await asyncio.gather(
            answers(client, [replace(killer, id=f"k{attempt}")]), kill_soon(client, signal.SIGKILL)
        )
        deaths.append(str(outcome))
    blamed, good = await answers(client, [replace(killer, id="k3"), ask(client)])

    assert all("signal 9" in death for death in deaths)
    assert isinstance(blamed, EngineCrashedError)
    assert "died 3 times" in str(blamed)
    assert isinstance(good, Generated)


async def test_an_answer_clears_the_record(start: Callable[..., EngineClient]) -> None:
    """A request that was in flight when others killed the worker is not blamed once it has been answered."""
    client = start()
    request = ask(client)
    for attempt in range(4):
        await client.facts()
        bystander = replace(request, id=f"b{attempt}")
        if attempt == 2:
            (outcome,) = await answers(client, [bystander])
            assert isinstance(outcome, Generated)
            continue
        killer = ask(client, f"killer {attempt}", grammar=LONG, max_tokens=8000)
        await asyncio.gather(answers(client, [killer, bystander]), kill_soon(client, signal.SIGKILL, 0.0))

    assert isinstance((await answers(client, [replace(request, id="last")]))[0], Generated)


async def kill_soon(client: EngineClient, number: signal.Signals, seconds: float = 0.1) -> None:
    await asyncio.sleep(seconds)
    assert client.pid is not None
    os.kill(client.pid, number)


async def test_garbage_from_the_worker_is_named(
    start: Callable[..., EngineClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "judge_local.engine.process.worker_command", lambda: [sys.executable, "-c", "print('moo')"]
    )
    client = start()

    with pytest.raises(EngineProtocolError, match="moo"):
        await client.facts()


async def test_a_worker_that_ends_while_loading_is_named(
    start: Callable[..., EngineClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import sys; sys.exit('no such luck')"
    monkeypatch.setattr("judge_local.engine.process.worker_command", lambda: [sys.executable, "-c", program])
    client = start()

    with pytest.raises(EngineCrashedError, match="exit code 1; its last words: 'no such luck'"):
        await client.facts()


async def test_the_worker_ends_with_a_parent_that_was_killed(tiny_model: Path, tmp_path: Path) -> None:
    """Even in the middle of a decode: end of stdin raises the abort flag."""
    program = f"""
import asyncio, sys
from judge_local.engine.client import EngineClient
from judge_local.engine.protocol import Generate, Settings
client = EngineClient(Settings(path={str(tiny_model)!r}, lock_path={str(tmp_path / "lock")!r}))
async def main():
    await client.facts()
    print(client.pid, flush=True)
    await client.submit([Generate(id="0", system="s", user="u", grammar={LONG!r}, max_tokens=8000, typical_tokens=9)], [None])
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        await asyncio.sleep(0.2)
        parent.kill()
    until = time.monotonic() + HANG_SECONDS
    while Path(f"/proc/{worker}/stat").exists() and time.monotonic() < until:
        if Path(f"/proc/{worker}/stat").read_text().split(")")[1].split()[0] == "Z":
            break
        await asyncio.sleep(0.05)

    assert time.monotonic() < until


async def test_a_dropped_client_takes_its_worker_with_it(
    start: Callable[..., EngineClient], tiny_model: Path
) -> None:
    client = EngineClient(Settings(path=str(tiny_model)))
    await client.facts()
    pid = client.pid
    assert pid is not None
    del client

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "cannot load"), (b"GGUF", "cannot load"), (b"<html></html>", "cannot load")]
)
async def test_a_file_that_is_no_model(
    start: Callable[..., EngineClient], tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    client = start(path=str(path))

    with pytest.raises(ModelFileError, match=said):
        await client.facts()


async def test_a_missing_file(start: Callable[..., EngineClient], tmp_path: Path) -> None:
    client = start(path=str(tmp_path / "none.gguf"))

    with pytest.raises(ModelFileError, match="No such file"):
        await client.facts()


async def test_a_model_without_a_template_needs_one(
    start: Callable[..., EngineClient], tmp_path: Path, make_tiny_model: ModuleType
) -> None:
    path = tmp_path / "bare.gguf"
    make_tiny_model.write_tiny_model(path, chat_template=None)
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"

    with pytest.raises(ChatTemplateError, match="--chat-template"):
        await start(path=str(path)).facts()
    assert (await start(path=str(path), chat_template=template).facts()).template == template


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in", "^chat template: '{% for m in' is not Jinja: "),
        ("{{ messages[7].content.x }}", "^chat template: '{{ messages.*' fails: "),
        ("A chat.", "^chat template: 'A chat.' does not give each message back exactly once. Mend it"),
        ("", "^chat template: it is empty. Mend it"),
    ],
)
async def test_a_template_that_was_given_is_to_blame_itself(
    start: Callable[..., EngineClient], template: str, message: str
) -> None:
    """The model's file is all right, so it is no fault of a model."""
    with pytest.raises(UsageError, match=message):
        await start(chat_template=template).facts()


async def test_one_engine_a_machine(start: Callable[..., EngineClient]) -> None:
    """The second waits and says so, or fails when it may not wait."""
    said: list[str] = []
    first, second, impatient = start(), start(say=said.append), start(wait=False)
    async with AsyncExitStack() as stack:
        busy = await stack.enter_async_context(running(first))
        await second.facts()
        waiting = asyncio.create_task(answers(second, [ask(second)]))
        (refused,) = await answers(impatient, [ask(impatient)])
        while not said:
            await asyncio.sleep(0.05)
        busy.cancel()
        (outcome,) = await waiting

    assert isinstance(refused, EngineBusyError)
    assert said == [f"waiting for process {first.pid}, which is judging on this machine"]
    assert isinstance(outcome, Generated)


async def test_a_deadline_passes_while_waiting_for_the_machine(start: Callable[..., EngineClient]) -> None:
    first, second = start(), start()
    await second.facts()
    async with running(first):
        (outcome,) = await answers(second, [ask(second)], deadlines=[time.monotonic() + 0.1])

    assert isinstance(outcome, DeadlineExceededError)
    assert "while another process was judging on this machine; no token was written" in str(outcome)

    first.close()
    long = ask(second, grammar=LONG, max_tokens=8000)
    (outcome,) = await answers(second, [long], deadlines=[time.monotonic() + 0.2])

    assert "its time ran out; " in str(outcome)


@asynccontextmanager
async def running(client: EngineClient) -> AsyncIterator[asyncio.Task[list[Any]]]:
    """`client` decodes something long meanwhile."""
    await client.facts()
    requests = [ask(client, grammar=LONG, max_tokens=8000) for _ in range(40)]
    task = asyncio.create_task(answers(client, requests))
    await asyncio.sleep(0.2)
    yield task
    task.cancel()


async def test_closing_answers_what_is_in_flight(start: Callable[..., EngineClient]) -> None:
    client = start()
    async with running(client) as task:
        client.close()
        outcomes = await task

    assert {type(outcome) for outcome in outcomes} == {EngineError}


def test_the_client_is_usable_from_any_event_loop(start: Callable[..., EngineClient]) -> None:
    """Each `asyncio.run` is a loop of its own; the worker outlives them."""

    async def once(client: EngineClient) -> Any:
        return (await answers(client, [ask(client)]))[0]

    client = start()
    outcomes = [asyncio.run(once(client)) for _ in range(2)]

    assert all(isinstance(outcome, Generated) for outcome in outcomes)


def test_engine_info_loads_no_native_code_here() -> None:
    program = (
        "from judge_local.engine.children import engine_info; import sys; i = engine_info(); "
        "assert 'llama_cpp' not in sys.modules; print(i['version'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == engine_info()["version"]


async def test_a_worker_that_reads_nothing_holds_up_nobody(start: Callable[..., EngineClient]) -> None:
    """More than a pipe holds, sent to a worker that was stopped: the caller's loop stays free, and closing ends it."""
    client = start()
    await client.facts()
    assert client.pid is not None
    os.kill(client.pid, signal.SIGSTOP)
    task = asyncio.create_task(answers(client, [ask(client, "word " * 100_000)]))
    started = time.monotonic()
    await asyncio.sleep(0.1)

    assert time.monotonic() - started < HANG_SECONDS / 10
    task.cancel()
    client.close()
    assert client.pid is None


async def test_an_observer_that_raises_costs_no_answer(start: Callable[..., EngineClient]) -> None:
    said: list[str] = []

    def crash(text: str) -> None:
        said.append(text)
        raise BrokenPipeError

    first, second = start(), start(say=crash)
    async with AsyncExitStack() as stack:
        busy = await stack.enter_async_context(running(first))
        waiting = asyncio.create_task(answers(second, [ask(second)]))
        while not said:
            await asyncio.sleep(0.05)
        busy.cancel()
        (outcome,) = await waiting

    assert isinstance(outcome, Generated)


async def test_giving_up_the_wait_does_not_take_the_machine(start: Callable[..., EngineClient]) -> None:
    """The first that waits is cancelled; the second still waits until the machine is free."""
    first, second = start(), start()
    async with AsyncExitStack() as stack:
        busy = await stack.enter_async_context(running(first))
        await second.facts()
        given_up = asyncio.create_task(answers(second, [ask(second)]))
        patient = asyncio.create_task(answers(second, [ask(second)]))
        late = asyncio.create_task(answers(second, [ask(second)], deadlines=[time.monotonic() + 0.1]))
        await asyncio.sleep(0.2)
        given_up.cancel()
        (expired,) = await late
        await asyncio.sleep(0.2)

        assert not patient.done()
        assert isinstance(expired, DeadlineExceededError)
        busy.cancel()
        (outcome,) = await patient

    assert isinstance(outcome, Generated)


async def test_a_model_that_cannot_be_used_is_not_loaded_again_and_again(
    start: Callable[..., EngineClient],
) -> None:
    said: list[str] = []
    client = start(say=said.append, chat_template="{% for")
    for _ in range(2):
        with pytest.raises(UsageError, match="not Jinja"):
            await client.facts()

    assert said == []
