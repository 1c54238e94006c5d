"""The provider contract, asked of every provider there is."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from judge_local.ensemble import run_ensemble
from judge_local.errors import JudgeLocalError
from judge_local.providers.base import CompletionRequest, CompletionResponse, InferenceProvider
from judge_local.providers.local import LocalProvider
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.providers.openai import OpenAIProvider
from judge_local.providers.outlines import OutlinesProvider
from judge_local.resilience import RetryOptions
from judge_local.verdict import VERDICT_FIELDS, VERDICT_SCHEMA

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.timeout(120)]

SCHEMA: dict[str, Any] = json.loads(json.dumps(dict(VERDICT_SCHEMA)))
for _name in ("claim", "observed", "reasoning"):
    SCHEMA["properties"][_name]["maxLength"] = 8


class Slow(MockProvider):
    """A scripted provider that takes a moment."""

    async def complete_json(self, request):
        await asyncio.sleep(0.05)
        return await super().complete_json(request)


def mock(_request):
    yield Slow([mock_verdict("pass", 0.9)])


def local(request):
    with LocalProvider(request.getfixturevalue("tiny_model"), n_threads=1) as provider:
        yield provider


def openai(request):
    url = request.getfixturevalue("llama_server")
    yield OpenAIProvider(url, "tiny", retry=RetryOptions(1, 0, 0), max_tokens=300)


def over_outlines(request):
    outlines = pytest.importorskip("outlines")
    from llama_cpp import Llama

    model = Llama(str(request.getfixturevalue("tiny_model")), n_ctx=2048, n_threads=1, verbose=False)
    yield OutlinesProvider(outlines.from_llamacpp(model), "tiny")
    model.close()


MAKERS = {"mock": mock, "local": local, "openai": openai, "outlines": over_outlines}


@pytest.fixture(scope="module", params=MAKERS)
def provider(request):
    yield from MAKERS[request.param](request)


def asked(**changes: Any) -> CompletionRequest:
    values: dict[str, Any] = {"system": "Judge.", "user": "The sky is blue.", "schema": SCHEMA, **changes}
    return CompletionRequest(**values)


async def outcome_of(provider: InferenceProvider, **changes: Any) -> CompletionResponse | JudgeLocalError:
    """An answer or an error of ours; anything else is a breach of the contract."""
    try:
        return await provider.complete_json(asked(**changes))
    except JudgeLocalError as error:
        return error


def test_it_says_who_it_is(provider):
    assert isinstance(provider, InferenceProvider)
    assert provider.provider
    assert provider.model
    assert provider.model not in {"auto", "fast", "balanced", "quality"}


async def test_an_answer_is_the_text_parsed_and_its_keys_are_in_the_schemas_order(provider):
    outcome = await outcome_of(provider)

    if isinstance(outcome, CompletionResponse):
        assert outcome.text is None or json.loads(outcome.text) == outcome.json
        assert list(outcome.json) == [name for name in VERDICT_FIELDS if name in outcome.json]


async def test_every_run_of_an_ensemble_is_recorded(provider):
    runs = await run_ensemble(
        provider=provider, system="Judge.", user="The sky is blue.", schema=SCHEMA, runs=2
    )

    assert len(runs) == 2
    for run in runs:
        assert (run.provider, run.model) == (provider.provider, provider.model)
        assert (run.verdict is None) != (run.error is None)
        assert run.verdict is None or 0 <= run.verdict.confidence <= 1


async def test_requests_that_come_together_all_come_back(provider):
    outcomes = await asyncio.gather(*(outcome_of(provider, run=k, seed=k) for k in range(3)))

    assert len(outcomes) == 3


async def test_a_request_that_is_cancelled_ends_at_once_and_the_next_is_answered(provider):
    await outcome_of(provider)  # Whatever is loaded or compiled at first is there now.
    task = asyncio.create_task(provider.complete_json(asked(schema=VERDICT_SCHEMA)))
    await asyncio.sleep(0.02)
    started = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    cancelled = time.monotonic() - started
    outcome = await outcome_of(provider)

    assert cancelled < 5
    assert isinstance(outcome, CompletionResponse | JudgeLocalError)


async def test_a_deadline_that_has_passed_is_recorded(provider):
    runs = await run_ensemble(
        provider=provider, system="s", user="u", schema=SCHEMA, runs=1, deadline=time.monotonic() - 1
    )

    assert [run.error_kind for run in runs] == ["DeadlineExceededError"]
