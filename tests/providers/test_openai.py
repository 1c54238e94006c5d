"""OpenAIProvider against a server that plays faults, and against llama-cpp-python's own server."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from judge_local.ensemble import judge_claim
from judge_local.errors import (
    ContextOverflowError,
    DeadlineExceededError,
    InvalidAnswerError,
    RemoteError,
    RemoteRefusedError,
    TruncatedOutputError,
    UsageError,
)
from judge_local.panel import judge_panel
from judge_local.providers.base import CompletionRequest
from judge_local.providers.mock import mock_verdict
from judge_local.providers.openai import OpenAIProvider
from judge_local.resilience import RetryOptions
from judge_local.run import TokenUsage
from judge_local.verdict import VERDICT_SCHEMA
from judge_local.zones import Zone
from providers.scripted_server import Act, ScriptedServer, completion, fault

VERDICT = mock_verdict("pass", 0.9)["json"]
VECTORS = json.loads((Path(__file__).parents[1] / "data/decision-core.json").read_text("utf-8"))[
    "extractJson"
]
SOON = RetryOptions(3, 0.001, 0.2)
GOOD = completion(VERDICT, usage={"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17})


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    """The person's own key has no part in a test."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def request(**changes):
    values = {"system": "Judge.", "user": "The sky is blue.", "schema": VERDICT_SCHEMA, **changes}
    return CompletionRequest(**values)


async def ask(*acts, **changes):
    """What came of one request to a server that plays `acts`, and what it was asked."""
    options = {"retry": SOON, **changes.pop("options", {})}
    with ScriptedServer(acts) as server:
        provider = OpenAIProvider(server.url, "m", **options)
        try:
            return await provider.complete_json(request(**changes)), server
        except Exception as error:  # noqa: BLE001 # The error is what came of it.
            return error, server


async def test_an_answer_is_read_with_its_cost():
    response, server = await ask(GOOD)

    assert response.json == VERDICT
    assert list(response.json) == list(VERDICT_SCHEMA["properties"])
    assert json.loads(response.text) == VERDICT
    assert response.usage == TokenUsage(12, 5)
    (asked,) = server.posts
    assert asked.path == "/v1/chat/completions"
    assert asked.json["model"] == "m"
    assert [message["role"] for message in asked.json["messages"]] == ["system", "user"]
    assert asked.json["messages"][1]["content"] == "The sky is blue."
    assert VERDICT_SCHEMA["properties"]["observed"]["description"] in asked.json["messages"][0]["content"]
    assert "authorization" not in asked.headers


# --- forms of structured output ---------------------------------------------------------------------------------------


def forms(server):
    return [post.json.get("response_format", {}).get("type", "text") for post in server.posts]


@pytest.mark.parametrize("status", [400, 415, 422])
async def test_a_form_that_is_refused_gives_way_to_the_next(status):
    response, server = await ask(fault(status), fault(status), GOOD)

    assert response.json == VERDICT
    assert forms(server) == ["json_schema", "json_object", "text"]
    assert server.posts[1].json["response_format"]["schema"]["required"] == VERDICT_SCHEMA["required"]


async def test_a_grammar_that_cannot_be_made_is_a_refused_form_too():
    _, server = await ask(fault(500, "failed to parse grammar"), GOOD)

    assert forms(server) == ["json_schema", "json_object"]


async def test_what_was_refused_is_not_tried_again():
    with ScriptedServer([fault(400), GOOD]) as server:
        provider = OpenAIProvider(server.url, "m")
        for _ in range(3):
            await provider.complete_json(request())

    assert forms(server) == ["json_schema", "json_object", "json_object", "json_object"]


async def test_a_request_that_every_form_refuses_is_refused():
    error, server = await ask(fault(400, "no such thing"))

    assert isinstance(error, RemoteRefusedError)
    assert "no such thing" in str(error)
    assert forms(server) == ["json_schema", "json_object", "text"]


async def test_the_schema_is_sent_in_strict_form_in_the_order_asked_for_and_pinned():
    _, server = await ask(
        GOOD, order=("claim", "observed", "reasoning", "match", "confidence"), pinned={"claim": "c"}
    )

    sent = server.posts[0].json["response_format"]["json_schema"]
    assert sent["strict"] is True
    assert list(sent["schema"]["properties"]) == ["claim", "observed", "reasoning", "match", "confidence"]
    assert sent["schema"]["properties"]["claim"]["enum"] == ["c"]
    assert "$schema" not in sent["schema"]


async def test_plain_text_may_be_fenced_and_nothing_is_searched_in_it():
    fenced, _ = await ask(fault(400), fault(400), completion(f"```json\n{json.dumps(VERDICT)}\n```"))
    wrapped, _ = await ask(fault(400), fault(400), completion(f"Here: {json.dumps(VERDICT)}"))

    assert fenced.json == VERDICT
    assert isinstance(wrapped, InvalidAnswerError)


@pytest.mark.parametrize("case", VECTORS, ids=[case["text"] for case in VECTORS])
async def test_plain_text_is_read_as_the_vectors_say(case):
    outcome, _ = await ask(fault(400), fault(400), completion(case["text"]))

    if case.get("error"):
        assert isinstance(outcome, InvalidAnswerError)
    else:
        assert outcome.json == case["json"]


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        fault(500),
        fault(502),
        fault(503),
        fault(408),
        fault(429),
        fault(429, retry_after="0.01"),
        Act(hang_up=True),
        Act(GOOD.body[:40], declared=len(GOOD.body)),
        Act(GOOD.body[:40]),
        Act(b'{"object": "nothing"}'),
        Act(b'{"choices": []}'),
        Act(b'{"error": {"message": "model is loading"}}'),
        Act(b""),
    ],
    ids=[
        "500",
        "502",
        "503",
        "408",
        "429",
        "429 with Retry-After",
        "hangs up",
        "half a body",
        "cut JSON",
        "wrong JSON",
        "no choices",
        "an error that says 200",
        "nothing",
    ],
)
async def test_a_fault_that_may_pass_is_asked_through(act):
    response, server = await ask(act, act, GOOD)
    lasting, all_of_it = await ask(act)

    assert response.json == VERDICT
    assert len(server.posts) == 3
    assert isinstance(lasting, RemoteError)
    assert lasting.retryable
    assert len(all_of_it.posts) == 3


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (fault(401, "bad key"), "bad key"),
        (fault(403), "403"),
        (fault(404, "no model m"), "no model m"),
        (fault(429, "You exceeded your current quota"), "quota"),
        (fault(402), "402"),
        (Act(status=307, headers=(("location", "http://127.0.0.1:1/"),)), "redirect"),
        (Act(b"<html>Welcome</html>", headers=(("content-type", "text/html"),)), "web page"),
    ],
    ids=["401", "403", "404", "quota", "402", "redirect", "HTML"],
)
async def test_a_refusal_is_final_and_says_what_the_server_says(act, said):
    error, server = await ask(act)

    assert isinstance(error, RemoteRefusedError)
    assert said in str(error)
    assert not error.retryable
    assert len(server.posts) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_waited_for(status):
    started = time.monotonic()
    response, _ = await ask(fault(status, retry_after="0.15"), GOOD)

    assert response.json == VERDICT
    assert time.monotonic() - started >= 0.15


async def test_a_retry_after_that_is_too_long_is_not_begun():
    error, server = await ask(fault(429, retry_after="3600"))

    assert isinstance(error, RemoteError)
    assert error.retry_after_seconds == 3600
    assert len(server.posts) == 1


async def test_a_slow_drip_ends_at_its_time():
    started = time.monotonic()
    slow = Act(GOOD.body, seconds=0.5)
    error, _ = await ask(slow, options={"timeout_seconds": 0.2, "retry": RetryOptions(1, 0, 0)})
    late, _ = await ask(slow, deadline=time.monotonic() + 0.2)

    assert isinstance(error, RemoteError)
    assert "0.2 s" in str(error)
    assert isinstance(late, DeadlineExceededError)
    assert time.monotonic() - started < 10 * 0.4


async def test_cancelling_closes_the_connection_and_leaves_nothing():
    with ScriptedServer([Act(GOOD.body, seconds=0.5)]) as server:
        task = asyncio.create_task(OpenAIProvider(server.url, "m").complete_json(request()))
        while not server.posts:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    "text",
    [
        "Requested tokens (9000) exceed context window of 2048",
        "This model's maximum context length is 4096 tokens",
        "the request exceeds the available context size: exceed_context_size_error",
        "context_length_exceeded",
    ],
)
async def test_a_prompt_that_is_too_long_is_an_overflow(text):
    error, server = await ask(fault(400, text))

    assert isinstance(error, ContextOverflowError)
    assert len(server.posts) == 1


async def test_an_answer_that_was_cut_is_never_read():
    error, server = await ask(completion(VERDICT, finish="length"))

    assert isinstance(error, TruncatedOutputError)
    assert json.loads(error.raw) == VERDICT
    assert len(server.posts) == 1


@pytest.mark.parametrize(
    "content", [None, "", "  ", "No.", '{"a": 1} {"b": 2}', '{"a": NaN}', '{"a": 1, "a": 2}']
)
async def test_what_is_no_json_is_an_invalid_answer_and_asked_again_by_who_asked(content):
    error, server = await ask(completion(content))

    assert isinstance(error, InvalidAnswerError)
    assert len(server.posts) == 1


async def test_a_reply_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("judge_local.providers.servers.MAX_REPLY_BYTES", 50)

    error, _ = await ask(GOOD, options={"retry": RetryOptions(1, 0, 0)})

    assert isinstance(error, RemoteError)
    assert "longer than 50 bytes" in str(error)


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_comes_from_the_environment_and_stands_in_no_message(monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setenv("OWN_KEY", "sk-very-secret")
    error, server = await ask(
        fault(401, "Incorrect API key: sk-very-secret"), options={"api_key_env": "OWN_KEY"}
    )

    assert server.posts[0].headers["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in f"{error} {error!r} {error.args} {caplog.text}"
    assert "sk-very-secret" not in json.dumps(server.posts[0].json)


async def test_a_named_variable_must_be_set():
    error, server = await ask(GOOD, options={"api_key_env": "OWN_KEY"})

    assert isinstance(error, UsageError)
    assert "OWN_KEY" in str(error)
    assert server.posts == []


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("http://10.0.0.1/v1", False),
        ("https://10.0.0.1/v1", True),
        ("http://localhost:8/v1", True),
        ("http://[::1]/", True),
    ],
)
def test_a_key_goes_only_where_it_stays_secret(url, goes, monkeypatch):
    monkeypatch.setenv("OWN_KEY", "k")
    named = OpenAIProvider(url, "m", api_key_env="OWN_KEY")
    (server,) = named._pool.servers

    if goes:
        assert named._authorization(server) == {"authorization": "Bearer k"}
    else:
        with pytest.raises(UsageError, match="unencrypted"):
            named._authorization(server)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert OpenAIProvider(url, "m")._authorization(server) == {}


async def test_no_proxy_of_the_environment_is_used(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    response, _ = await ask(GOOD)

    assert response.json == VERDICT


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "127.0.0.1:8080"},
        {"base_url": "ftp://a/"},
        {"base_url": []},
        {"base_url": "http://u:p@a/v1"},
        {"base_url": "http://a/v1?x=1"},
        {"base_url": "http://a:99999/"},
        {"model": " "},
        {"max_tokens": 0},
        {"concurrency": 0},
        {"timeout_seconds": -1},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(changes):
    values = {"base_url": "http://a/v1", "model": "m", **changes}

    with pytest.raises(UsageError) as caught:
        OpenAIProvider(**values)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize("field", [{"score_only": True}, {"option_bias": {"pass": 1.0}}])
async def test_scores_are_refused(field):
    error, _ = await ask(GOOD, **field)

    assert isinstance(error, UsageError)


# --- several servers --------------------------------------------------------------------------------------------------


async def test_work_is_shared_out():
    with ScriptedServer([GOOD]) as a, ScriptedServer([GOOD]) as b:
        provider = OpenAIProvider([a.url, b.url], "m")
        answers = await provider.complete_many([request(run=k) for k in range(8)])

    assert [answer.json for answer in answers] == [VERDICT] * 8
    assert (len(a.posts), len(b.posts)) == (4, 4)


async def test_a_server_that_is_down_costs_one_try_and_rests():
    with ScriptedServer([Act(hang_up=True)]) as down, ScriptedServer([GOOD]) as up:
        provider = OpenAIProvider([down.url, up.url], "m", retry=RetryOptions(1, 0, 0))
        answers = [await provider.complete_json(request()) for _ in range(4)]

    assert [answer.json for answer in answers] == [VERDICT] * 4
    assert len(down.posts) == 1
    assert len(up.posts) == 4


async def test_a_server_that_is_busy_leaves_the_work_to_the_others():
    with ScriptedServer([fault(429, retry_after="30")]) as busy, ScriptedServer([GOOD]) as up:
        provider = OpenAIProvider([busy.url, up.url], "m", retry=RetryOptions(1, 0, 0))
        answers = [await provider.complete_json(request()) for _ in range(3)]

    assert [answer.json for answer in answers] == [VERDICT] * 3
    assert len(busy.posts) == 1


async def test_when_all_are_down_it_is_offline_and_says_so():
    with ScriptedServer([fault(500)]) as a, ScriptedServer([fault(500)]) as b:
        provider = OpenAIProvider([a.url, b.url], "m", retry=RetryOptions(1, 0, 0))
        assert provider.is_online()
        with pytest.raises(RemoteError, match="500"):
            await provider.complete_json(request())

    assert not provider.is_online()


async def test_many_answers_hold_their_errors_in_place():
    with ScriptedServer([GOOD, completion("No."), GOOD]) as server:
        provider = OpenAIProvider(server.url, "m", concurrency=1)
        answers = await provider.complete_many([request(run=k) for k in range(3)])

    assert [type(answer).__name__ for answer in answers] == [
        "CompletionResponse",
        "InvalidAnswerError",
        "CompletionResponse",
    ]


async def test_check_says_what_is_wrong_with_each():
    with ScriptedServer([GOOD]) as up, ScriptedServer([GOOD], health=fault(503)) as ill:
        gone = "http://127.0.0.1:9/v1"
        found = await OpenAIProvider([up.url, ill.url, gone], "m").check()

    assert found[up.url] is None
    assert "503" in found[ill.url]
    assert "no whole reply" in found[gone]


async def test_a_panel_fails_over_from_a_server_that_is_down():
    with (
        ScriptedServer([fault(401, "no")]) as down,
        ScriptedServer([GOOD]) as up,
        ScriptedServer([GOOD]) as spare,
    ):
        result = await judge_panel(
            [f"openai:one@{down.url}", f"openai:two@{up.url}"],
            "The sky is blue, and the grass is green.",
            "It names two colours.",
            budget_seconds=30,
            substitutes=[f"openai:two@{up.url}", f"openai:three@{spare.url}"],
        )

    assert [(run.via, run.model, run.substituted_for) for run in result.runs] == [
        ("substitute", "three", "one"),
        ("real", "two", None),
    ]
    assert result.zone is Zone.AUTO_PASS
    assert (len(up.posts), len(spare.posts)) == (1, 1)


# --- llama-cpp-python's own server ------------------------------------------------------------------------------------


def short_schema():
    """A verdict whose texts are short, so that random weights come to an end."""
    schema = json.loads(json.dumps(dict(VERDICT_SCHEMA)))
    for name in ("observed", "reasoning"):
        schema["properties"][name]["maxLength"] = 8
    return schema


async def test_a_real_server_answers_in_the_form_it_knows(llama_server):
    """It knows only `json_object` with a schema, and its grammar does not hold the confidence."""
    provider = OpenAIProvider(llama_server, "tiny", retry=RetryOptions(1, 0, 0))

    result = await judge_claim(provider, "The sky is blue.", "It is blue.", schema=short_schema(), runs=2)

    assert provider._pool.servers[0].step == 1
    assert len(result.runs) == 2
    for run in result.runs:
        assert (run.provider, run.model) == ("openai", "tiny")
        assert run.usage is not None or run.error is not None
        assert run.verdict is None or run.verdict.claim == "It is blue."
    assert result.zone in set(Zone)
    assert await provider.check() == {llama_server: None}


async def test_a_real_server_says_that_a_prompt_is_too_long(llama_server):
    provider = OpenAIProvider(llama_server, "tiny", retry=RetryOptions(1, 0, 0))

    with pytest.raises((ContextOverflowError, RemoteError)) as caught:
        await provider.complete_json(request(user="word " * 5000))

    assert isinstance(caught.value, ContextOverflowError), caught.value


def test_no_key_is_read_when_the_provider_is_made(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")

    provider = OpenAIProvider("http://127.0.0.1:9/v1", "m")

    assert "sk-very-secret" not in repr(vars(provider)) + provider.settings_key
    assert os.environ["OPENAI_API_KEY"]
