"""Ask, validate, ask once more: what is recorded, what is raised, and what is never done."""

import asyncio
import time
from typing import Any

import pytest

from judge_local import completion
from judge_local.completion import (
    ask_again,
    complete_many_validated,
    complete_validated_json,
)
from judge_local.errors import (
    ChatTemplateError,
    ContextOverflowError,
    DeadlineExceededError,
    EngineBusyError,
    EngineCrashedError,
    EngineProtocolError,
    GrammarRejectedError,
    InvalidAnswerError,
    IsolationError,
    ModelFileError,
    ModelMissingError,
    ProviderError,
    TruncatedOutputError,
    UnknownModelError,
    UnsupportedSchemaError,
    UsageError,
)
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.run import Note, TokenUsage
from judge_local.verdict import VERDICT_SCHEMA

GOOD = mock_verdict("pass", 0.9)
BAD = mock_verdict("pass", 4.2)


def request(**changes: Any) -> CompletionRequest:
    return CompletionRequest(**{"system": "s", "user": "u", "schema": VERDICT_SCHEMA, **changes})


async def complete(*responses, **changes):
    """What comes of one request to a mock, and the mock."""
    provider = MockProvider(responses)
    return await complete_validated_json(provider, request(**changes)), provider


async def test_a_valid_answer_needs_one_attempt():
    run, provider = await complete(GOOD)

    assert run.result == GOOD["json"]
    assert (run.error, run.error_kind, run.raw, run.attempts) == (None, None, None, 1)
    assert (run.provider, run.model) == ("mock", "mock-model")
    assert len(provider.requests) == 1


async def test_the_model_is_told_what_was_wrong_in_one_line_at_the_end():
    _, provider = await complete(BAD, GOOD)

    first, second = (r.user for r in provider.requests)
    assert second.startswith(f"{first}\n\n")
    line = second.removeprefix(f"{first}\n\n")
    assert "\n" not in line
    assert "answer.confidence" in line
    assert "4.2 is greater than the maximum of 1" in line


async def test_the_model_is_not_told_of_faults_that_are_not_its_own():
    _, provider = await complete({"error": "429 rate limited"}, GOOD)

    assert [r.user for r in provider.requests] == ["u", "u"]


def test_asking_again_changes_nothing_else():
    asked = request(run=2, seed=7, temperature=0.5, order=("claim",), pinned={"claim": "c"}, deadline=1.0)

    again = ask_again(asked, ProviderError("mock", "it broke"))

    assert again == request(
        run=2, seed=7, temperature=0.5, order=("claim",), pinned={"claim": "c"}, deadline=1.0, attempt=1
    )


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        (ProviderError("p", "503"), 2),
        (RuntimeError("socket hang up"), 2),
        (TimeoutError("the client's own"), 2),
        (InvalidAnswerError("answer", "not JSON"), 2),
        (EngineCrashedError("worker", "it died"), 1),
        (ContextOverflowError("prompt", "9 tokens, 8 fit"), 1),
        (TruncatedOutputError("answer", "cut at 5 tokens"), 1),
        (EngineProtocolError("worker", "it said 'x'"), 1),
        (DeadlineExceededError("deadline", "it passed"), 1),
    ],
)
async def test_which_faults_are_worth_another_attempt(fault, calls):
    run, provider = await complete(fault)

    assert len(provider.requests) == calls == run.attempts
    assert run.result is None
    kind = type(fault).__name__
    assert run.error_kind == (kind if hasattr(fault, "exit_code") else "ProviderError")
    assert run.error is not None
    assert (str(fault) if hasattr(fault, "exit_code") else f"{kind}: {fault}") in run.error


@pytest.mark.parametrize(
    "fault",
    [
        UsageError("n_ctx", "0 is too small"),
        UnsupportedSchemaError(()),
        UnknownModelError("model", "'x' is no model"),
        ModelMissingError("model", "it is not on this disk"),
        ModelFileError("x.gguf", "it is truncated"),
        ChatTemplateError("x.gguf", "there is none"),
        IsolationError("x.gguf", "text would be changed"),
        EngineBusyError("engine", "another process judges"),
        GrammarRejectedError("grammar", "llama.cpp cannot read it"),
    ],
)
async def test_a_fault_of_the_setup_is_raised(fault):
    with pytest.raises(type(fault)):
        await complete(fault)


async def test_cancelling_the_task_cancels_the_work():
    begun, cancelled = asyncio.Event(), asyncio.Event()

    class Slow(MockProvider):
        async def complete_json(self, request):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    task = asyncio.create_task(complete_validated_json(Slow([GOOD]), request()))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cancelled.is_set()


async def test_more_attempts_can_be_had_and_none_cannot():
    provider = MockProvider([BAD, {"error": "x"}, GOOD])

    run = await complete_validated_json(provider, request(), attempts=3)

    assert (run.error, run.attempts) == (None, 3)
    for attempts in (0, -1, True, 1.5, "2"):
        with pytest.raises(UsageError, match="attempts"):
            await complete_validated_json(provider, request(), attempts=attempts)
        with pytest.raises(UsageError, match="attempts"):
            await complete_many_validated(provider, [], attempts=attempts)


async def test_what_was_spent_on_refused_answers_is_counted():
    spent = CompletionResponse(json="no", usage=TokenUsage(10, 5))
    run, _ = await complete(spent, CompletionResponse(json=GOOD["json"], usage=TokenUsage(11, 7)))

    assert run.usage == TokenUsage(21, 12)


async def test_what_a_provider_reports_is_handed_on():
    response = CompletionResponse(
        json=GOOD["json"],
        probabilities={"slot": {"pass": 1.0}},
        fingerprint="f",
        notes=(Note("template", "folded"),),
    )
    run, _ = await complete(response)

    assert (run.probabilities, run.fingerprint, run.notes) == (
        response.probabilities,
        "f",
        response.notes,
    )
    assert run.usage is None
    assert run.duration_ms >= 0


async def test_what_a_fault_carries_is_kept_too():
    fault = TruncatedOutputError("answer", "cut at 5 tokens")
    fault.raw = '{"claim": "hal\ud800'

    run, _ = await complete(fault)

    assert run.raw == '{"claim": "hal\\ud800'


async def test_a_run_is_not_asked_once_its_time_is_over():
    run, provider = await complete(GOOD, deadline=time.monotonic() - 1)

    assert provider.requests == []
    assert (run.error_kind, run.result) == ("DeadlineExceededError", None)


async def test_a_deadline_still_to_come_changes_nothing():
    run, provider = await complete(GOOD, deadline=time.monotonic() + 3600)

    assert run.error is None
    assert provider.requests[0].deadline is not None


async def test_a_provider_that_forgets_the_deadline_is_cancelled(monkeypatch):
    monkeypatch.setattr(completion, "DEADLINE_GRACE", 0.0)
    cancelled = asyncio.Event()

    class Forgetful(MockProvider):
        async def complete_json(self, request):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    run = await complete_validated_json(Forgetful([GOOD]), request(deadline=time.monotonic() + 0.05))

    assert run.error_kind == "DeadlineExceededError"
    assert cancelled.is_set()


async def test_a_provider_that_gives_no_response_has_failed():
    class Broken(MockProvider):
        async def complete_json(self, request):
            self.requests.append(request)
            return {"json": 1}

    provider = Broken([GOOD])
    run = await complete_validated_json(provider, request())

    assert (run.error_kind, len(provider.requests)) == ("ProviderError", 2)


class Batched(MockProvider):
    """A provider that takes many requests at once; `batches` remembers how many came together."""

    def __init__(self, responses):
        super().__init__(responses)
        self.batches = []

    async def complete_many(self, requests):
        self.batches.append([(r.run, r.attempt) for r in requests])
        outcomes = []
        for one in requests:
            try:
                outcomes.append(await self.complete_json(one))
            except Exception as error:  # noqa: BLE001 # The contract: a fault stands in the list.
                outcomes.append(error)
        return outcomes


def three():
    return [request(run=k) for k in range(3)]


async def test_all_first_attempts_are_one_batch_and_all_second_ones_another():
    provider = Batched([GOOD, BAD, {"error": "503"}, GOOD])

    runs = await complete_many_validated(provider, three())

    assert provider.batches == [[(0, 0), (1, 0), (2, 0)], [(1, 1), (2, 1)]]
    assert [run.attempts for run in runs] == [1, 2, 2]
    assert [run.error for run in runs] == [None, None, None]


async def test_a_batch_whose_runs_are_final_has_no_second():
    provider = Batched([GOOD, EngineCrashedError("worker", "it died")])

    runs = await complete_many_validated(provider, three())

    assert len(provider.batches) == 1
    assert [run.error_kind for run in runs] == [None, "EngineCrashedError", None]


async def test_one_request_at_a_time_goes_without_a_batch():
    provider = Batched([GOOD])

    await complete_validated_json(provider, request())

    assert provider.batches == []


@pytest.mark.parametrize("outcome", [RuntimeError("gone"), [], [CompletionResponse(json=1)] * 4])
async def test_a_batch_that_fails_as_a_whole_fails_every_run(outcome):
    class Broken(Batched):
        async def complete_many(self, requests):
            self.batches.append(requests)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    provider = Broken([GOOD])
    runs = await complete_many_validated(provider, three())

    assert [run.error_kind for run in runs] == ["ProviderError"] * 3
    assert len(provider.batches) == 2


@pytest.mark.parametrize("kind", [MockProvider, Batched])
async def test_a_setup_fault_after_the_first_run_costs_no_answer(kind):
    """The weights may be taken away while an ensemble runs; what was answered before is kept."""
    provider = kind([GOOD, ModelFileError("x.gguf", "it is gone"), GOOD])

    runs = await complete_many_validated(provider, three())

    assert [run.error_kind for run in runs] == [None, "ModelFileError", None]


async def test_a_setup_fault_after_the_first_attempt_is_recorded():
    run, _ = await complete(BAD, ModelFileError("x.gguf", "it is gone"))

    assert (run.error_kind, run.attempts) == ("ModelFileError", 2)


@pytest.mark.parametrize("kind", [MockProvider, Batched])
async def test_a_setup_fault_that_every_run_meets_is_raised(kind):
    provider = kind([ModelFileError("x.gguf", "it is truncated")])

    with pytest.raises(ModelFileError):
        await complete_many_validated(provider, three())


async def test_without_a_batch_all_attempts_of_a_run_come_before_the_next_run():
    provider = MockProvider([BAD, BAD, GOOD])

    runs = await complete_many_validated(provider, three())

    assert [(r.run, r.attempt) for r in provider.requests] == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert [run.error is None for run in runs] == [False, True, False]


@pytest.mark.parametrize("kind", [MockProvider, Batched])
async def test_no_requests_have_no_runs(kind):
    assert await complete_many_validated(kind([GOOD]), []) == []
