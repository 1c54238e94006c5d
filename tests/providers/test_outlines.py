"""OutlinesProvider for real: outlines over llama-cpp-python over the random model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest

from judge_local.ensemble import judge_claim
from judge_local.errors import (
    DeadlineExceededError,
    InvalidAnswerError,
    ProviderError,
    SchemaError,
    UsageError,
)
from judge_local.providers.base import CompletionRequest
from judge_local.providers.outlines import OutlinesProvider
from judge_local.verdict import VERDICT_SCHEMA

outlines = pytest.importorskip("outlines")
# They come from numba, which outlines compiles its kernels with, and from llama.cpp's Python side.
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.timeout(120)]


def short_schema():
    """A verdict whose texts are short, so that random weights come to an end."""
    schema = json.loads(json.dumps(dict(VERDICT_SCHEMA)))
    for name in ("observed", "reasoning"):
        schema["properties"][name]["maxLength"] = 8
    return schema


def request(**changes):
    values = {"system": "Judge.", "user": "The sky is blue.", "schema": short_schema(), **changes}
    return CompletionRequest(**values)


@pytest.fixture(scope="module")
def llama(tiny_model):
    """The model as outlines wraps it."""
    from llama_cpp import Llama

    model = Llama(str(tiny_model), n_ctx=2048, n_threads=1, verbose=False)
    yield outlines.from_llamacpp(model)
    model.close()


@pytest.fixture(scope="module")
def provider(llama):
    return OutlinesProvider(llama, "tiny")


async def test_a_claim_is_judged(provider):
    result = await judge_claim(provider, "The sky is blue.", "It is blue.", schema=short_schema(), runs=2)

    for run in result.runs:
        assert (run.provider, run.model) == ("outlines", "tiny")
        assert run.verdict is not None, run.error
        assert run.verdict.claim == "It is blue."
        assert len(run.verdict.observed) <= 8
    assert result.distinct_runs == 2


async def test_keys_are_written_in_the_order_asked_for(provider):
    order = ("claim", "observed", "reasoning", "match", "confidence")
    response = await provider.complete_json(request(order=order, pinned={"claim": "c"}))

    assert tuple(json.loads(response.text)) == order
    assert response.json["claim"] == "c"


async def test_tokens_that_run_out_are_no_answer(provider):
    with pytest.raises(InvalidAnswerError):
        await provider.complete_json(request(max_tokens=3))


async def test_cancelling_stops_at_the_next_token(provider):
    """Unbounded texts would take a minute."""
    endless = asyncio.create_task(provider.complete_json(request(schema=VERDICT_SCHEMA)))
    await asyncio.sleep(0.3)
    endless.cancel()
    with pytest.raises(asyncio.CancelledError):
        await endless
    started = time.monotonic()
    await provider.complete_json(request(pinned={"claim": "c"}))

    assert time.monotonic() - started < 20


async def test_a_deadline_is_kept(provider):
    with pytest.raises(DeadlineExceededError):
        await provider.complete_json(request(schema=VERDICT_SCHEMA, deadline=time.monotonic() + 0.2))


async def test_a_schema_that_outlines_cannot_compile_is_refused(provider):
    schema = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}, "required": ["a"]}

    with pytest.raises(SchemaError, match="outlines cannot compile it"):
        await provider.complete_json(request(schema=schema))


@pytest.mark.parametrize("field", [{"score_only": True}, {"option_bias": {"pass": 1.0}}])
async def test_scores_are_refused(provider, field):
    with pytest.raises(UsageError):
        await provider.complete_json(request(**field))


class Fake(outlines.models.openai.OpenAI):
    """A model of outlines that plays a part: it is not on this machine, so it takes types and not processors."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.given = []
        self.type_adapter = None

    def generate(self, model_input, output_type=None, **parameters):
        self.given.append((model_input, parameters))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeAsync(outlines.models.openai.AsyncOpenAI):
    """The same, awaited."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.type_adapter = None

    async def generate(self, model_input, output_type=None, **parameters):
        await asyncio.sleep(0)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize("kind", [Fake, FakeAsync])
async def test_a_model_that_is_elsewhere_answers_too(kind):
    provider = OutlinesProvider(kind('{"a": 1}'), "fake")

    assert not provider.replays
    assert (await provider.complete_json(request())).json == {"a": 1}


@pytest.mark.parametrize("kind", [Fake, FakeAsync])
@pytest.mark.parametrize("error", [RuntimeError("boom"), TimeoutError("its own")])
async def test_a_fault_of_the_library_is_the_providers(kind, error):
    with pytest.raises(ProviderError, match=f"{type(error).__name__}: {error}"):
        await OutlinesProvider(kind(error), "fake").complete_json(request())


async def test_parameters_and_roles_are_the_callers():
    model = Fake("{}")
    provider = OutlinesProvider(model, "fake", parameters=lambda asked: {"seed": asked.seed}, chat=False)
    await provider.complete_json(request(seed=7))

    ((prompt, parameters),) = model.given
    assert parameters == {"seed": 7}
    assert prompt.endswith("The sky is blue.\n")


@pytest.mark.parametrize("values", [(object(), "name"), (Fake("{}"), " ")], ids=["no model", "no name"])
def test_what_cannot_be_meant_is_refused(values):
    with pytest.raises(UsageError):
        OutlinesProvider(*values)


def test_without_the_library_one_line_says_what_to_install():
    code = (
        "import sys; sys.modules['outlines'] = None\n"
        "from judge_local import OutlinesProvider, JudgeLocalError\n"
        "try: OutlinesProvider(object(), 'x')\n"
        "except JudgeLocalError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "judge-local[outlines]" in done.stdout
