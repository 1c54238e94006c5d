"""A run and its file format, which caches in the field hold."""

import json

import pytest

from judge_local.errors import UsageError
from judge_local.run import InferenceRun, JudgeRun, Note, TokenUsage, Variation
from judge_local.verdict import JudgeVerdict, Match

VERDICT = {"claim": "c", "observed": "o", "match": "pass", "confidence": 0.9, "reasoning": "r"}
LEAST = {"verdict": VERDICT, "provider": "mock", "model": "m", "cached": False, "durationMs": 1.5}
FULL = {
    **LEAST,
    "usage": {"inputTokens": 100, "outputTokens": 20},
    "probabilities": {"before": {"pass": 0.75}, "slot": {"pass": 0.5, "fail": 0.5}},
    "variation": {"index": 1, "options": ["fail", "pass"], "paraphrase": 0, "seed": 1},
    "fingerprint": "f" * 64,
    "notes": [{"kind": "evidence", "detail": "not there"}],
    "optionBias": {"pass": -0.5},
    "via": "real",
    "slot": "first",
    "substitutedFor": "second",
}
ERRORED = {
    "error": "it broke",
    "provider": "mock",
    "model": "m",
    "cached": True,
    "durationMs": 0,
    "errorKind": "ProviderError",
    "raw": "{",
}


@pytest.mark.parametrize("data", [LEAST, FULL, ERRORED])
def test_the_file_format_comes_back_as_it_was(data):
    run = JudgeRun.from_json(json.loads(json.dumps(data)))

    assert run.to_json() == data


def test_what_is_not_there_is_absent_and_never_null():
    run = JudgeRun(verdict=JudgeVerdict.from_json(VERDICT), provider="mock", model="m", duration_ms=1.5)

    assert run.to_json() == LEAST


def test_keys_of_a_later_version_survive():
    data = {**LEAST, "somethingNew": {"deep": [1, None]}}

    assert JudgeRun.from_json(data).to_json() == data


def test_fields_are_read_into_values():
    run = JudgeRun.from_json(FULL)

    assert run.verdict is not None
    assert run.verdict.match is Match.PASS
    assert run.usage == TokenUsage(100, 20)
    assert run.variation == Variation(index=1, options=("fail", "pass"), paraphrase=0, seed=1)
    assert run.notes == (Note("evidence", "not there"),)


@pytest.mark.parametrize(
    "change",
    [
        {"provider": None},
        {"provider": 1},
        {"model": ["m"]},
        {"cached": "no"},
        {"cached": 0},
        {"durationMs": "1"},
        {"durationMs": None},
        {"verdict": "pass"},
        {"verdict": {}},
        {"verdict": {**VERDICT, "confidence": 2}},
        {"error": "beside a verdict"},
        {"usage": {"inputTokens": 1}},
        {"usage": {"inputTokens": 1.5, "outputTokens": 1}},
        {"usage": []},
        {"probabilities": {"slot": 0.5}},
        {"probabilities": [1]},
        {"variation": {"index": 0}},
        {"variation": {"index": "0", "options": [], "paraphrase": 0, "seed": 0}},
        {"variation": {"index": 0, "options": "pass", "paraphrase": 0, "seed": 0}},
        {"variation": {"index": 0, "options": [1], "paraphrase": 0, "seed": 0}},
        {"notes": [{"kind": "evidence"}]},
        {"notes": ["text"]},
        {"notes": {}},
        {"notes": [{"kind": 1, "detail": "x"}]},
        {"optionBias": 1},
        {"fingerprint": 1},
    ],
)
def test_an_entry_of_another_shape_is_refused(change):
    with pytest.raises(UsageError):
        JudgeRun.from_json({**LEAST, **change})


@pytest.mark.parametrize("data", [None, [], "run", 1])
def test_a_run_is_an_object(data):
    with pytest.raises(UsageError, match="not an object"):
        JudgeRun.from_json(data)


def test_a_run_is_either_a_verdict_or_an_error():
    with pytest.raises(UsageError, match="exactly one"):
        JudgeRun(provider="mock", model="m", duration_ms=0)
    with pytest.raises(UsageError, match="exactly one"):
        JudgeRun(
            verdict=JudgeVerdict.from_json(VERDICT), error="e", provider="mock", model="m", duration_ms=0
        )


def test_an_inference_run_has_no_result_beside_an_error():
    with pytest.raises(UsageError, match="result and an error"):
        InferenceRun(result=1, error="e", provider="mock", model="m", duration_ms=0, attempts=1)
