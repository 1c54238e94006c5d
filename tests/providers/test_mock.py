"""The scripted provider: in order, around again, and nothing repaired."""

import asyncio

import pytest

from judge_local.errors import EngineCrashedError, ProviderError, UsageError
from judge_local.providers.base import CompletionRequest, CompletionResponse, InferenceProvider
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.verdict import VERDICT_SCHEMA, JudgeVerdict, Match


def request(run=0):
    return CompletionRequest(system="s", user="u", schema=VERDICT_SCHEMA, run=run)


async def test_answers_come_in_order_and_start_over():
    provider = MockProvider([{"json": 1}, {"json": None}, {"json": [2]}])

    answers = [(await provider.complete_json(request(k))).json for k in range(5)]

    assert answers == [1, None, [2], 1, None]


async def test_requests_are_remembered_as_they_came_also_where_the_answer_was_an_error():
    provider = MockProvider([{"error": "429 rate limited"}, {"json": 1}])

    with pytest.raises(ProviderError, match="429 rate limited"):
        await provider.complete_json(request(0))
    await provider.complete_json(request(1))

    assert provider.requests == [request(0), request(1)]


async def test_a_scripted_error_may_be_any_exception_and_an_answer_a_whole_response():
    response = CompletionResponse(json=1, text="1", fingerprint="f")
    provider = MockProvider([EngineCrashedError("worker", "it died"), response])

    with pytest.raises(EngineCrashedError):
        await provider.complete_json(request())
    assert await provider.complete_json(request()) is response


async def test_what_a_caller_does_to_an_answer_does_not_change_the_script():
    provider = MockProvider([{"json": {"a": []}}])

    (await provider.complete_json(request())).json["a"].append(1)

    assert (await provider.complete_json(request())).json == {"a": []}


def test_names_can_be_chosen_and_are_fixed():
    provider = MockProvider([{"json": 1}], provider="p", model="m")

    assert (provider.provider, provider.model) == ("p", "m")
    assert (MockProvider([{"json": 1}]).provider, MockProvider([{"json": 1}]).model) == ("mock", "mock-model")
    assert isinstance(provider, InferenceProvider)
    assert not hasattr(provider, "complete_many")


@pytest.mark.parametrize("match", ["pass", Match.FAIL, "partial"])
def test_a_mock_verdict_is_a_verdict(match):
    script = mock_verdict(match, 0.9)

    verdict = JudgeVerdict.from_json(script["json"])
    assert (verdict.match, verdict.confidence) == (Match(match), 0.9)
    assert asyncio.run(MockProvider([script]).complete_json(request())).json == script["json"]


@pytest.mark.parametrize("match", ["pass", "maybe"])
def test_a_mock_verdict_may_be_wrong_on_purpose(match):
    assert mock_verdict(match, 4.2)["json"]["confidence"] == 4.2
    assert type(mock_verdict(Match.PASS, 1)["json"]["match"]) is str


@pytest.mark.parametrize(
    "responses", [[], [{}], [{"json": 1, "error": "x"}], [{"text": "1"}], ["pass"], [None]]
)
def test_a_script_without_sense_is_refused(responses):
    with pytest.raises(UsageError, match="MockProvider"):
        MockProvider(responses)
