"""`judge --score-only`, and the options that say how tokens and options are drawn."""

import json

import pytest
from click.testing import CliRunner

from judge_local.cli import judge as module
from judge_local.cli import main
from judge_local.errors import ContextOverflowError, EngineCrashedError
from judge_local.providers.base import CompletionResponse
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.run import TokenUsage

SCORED = CompletionResponse(
    json=None,
    probabilities={"before": {"pass": 0.7004, "fail": 0.2, "partial": 0.0996}},
    usage=TokenUsage(1200, 0),
)


class Closing(MockProvider):
    closed = False

    async def aclose(self):
        self.closed = True


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """A scripted provider in the place of the model, and a subject in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "subject.txt").write_text("The train leaves at nine.\n", "utf-8")

    def put(*responses):
        provider = Closing(responses)

        def make_provider(options, call, on_event):
            provider.options = options
            return provider

        monkeypatch.setattr(module, "make_provider", make_provider)
        return provider

    return put


def judge(*args):
    return CliRunner().invoke(main, ["judge", "subject.txt", *args])


def test_a_person_sees_the_numbers_and_decides(scripted):
    provider = scripted(SCORED)
    result = judge("--claim", "It leaves.", "--score-only")
    lines = [line.strip() for line in result.stdout.splitlines()]

    assert result.exit_code == 3, result.stderr
    assert lines[0] == "human-review: It leaves."
    assert "measured    pass 0.700, fail 0.200, partial 0.100 (before)" in lines
    assert [line for line in lines if line.startswith("cost        1,200 tokens in, ")]
    assert [line for line in lines if line.startswith("certificate uncertified")]
    assert provider.closed
    assert len(provider.requests) == 1


def test_several_claims_as_json_lines(scripted):
    scripted(SCORED)
    result = judge("--claim", "a", "--claim", "b", "--score-only", "--json", "--no-text")
    records = [json.loads(line) for line in result.stdout.splitlines()]

    assert result.exit_code == 3
    assert [record["claim"] for record in records] == ["a", "b"]
    for row, record in enumerate(records, 1):
        assert (record["row"], record["zone"], record["certified"]) == (row, "human-review", False)
        assert record["probabilities"] == SCORED.probabilities
        assert record["subjectFile"] == "subject.txt"
        assert "runs" not in record


def test_the_text_of_standard_input_is_kept_unless_it_must_not_be(scripted):
    scripted(SCORED)
    for more, kept in (((), "A train.\n"), (("--no-text",), None)):
        args = ["judge", "-", "--claim", "a", "--score-only", "--json", *more]
        result = CliRunner().invoke(main, args, input="A train.\n")
        assert json.loads(result.stdout).get("subject") == kept


@pytest.mark.parametrize(
    ("fault", "code"),
    [(EngineCrashedError("engine", "died"), 3), (ContextOverflowError("prompt", "too long"), 2)],
)
def test_what_could_not_be_scored(scripted, fault, code):
    scripted(SCORED, fault)
    result = judge("--claim", "a", "--claim", "b", "--score-only")

    assert result.exit_code == code
    assert result.stdout.startswith("human-review: a\n")
    assert ("errored: engine: died" in result.stdout) == (code == 3)
    assert ("claim 2 of 2: prompt: too long" in result.stderr) == (code == 2)


@pytest.mark.parametrize("more", [("--option-bias", "pass=1"), ("--cache", "kept")])
def test_what_has_no_meaning_without_an_answer_is_refused(scripted, more):
    provider = scripted(SCORED)
    result = judge("--claim", "a", "--score-only", *more)

    assert result.exit_code == 2
    assert more[0] in result.stderr
    assert provider.requests == []


@pytest.mark.filterwarnings("ignore:judge-local. temperature:UserWarning")
def test_how_to_draw_reaches_the_model(scripted):
    provider = scripted(mock_verdict("pass", 0.9))
    result = judge(
        *("--claim", "a", "--runs", "1", "--temperature", "1", "--top-k", "5", "--top-p", "0.9"),
        *("--min-p", "0.1", "--thinking", "64", "--option-bias", "pass=-0.5", "--option-bias", "fail=1"),
        "--json",
    )
    options = provider.options

    assert (options.top_k, options.top_p, options.min_p, options.thinking) == (5, 0.9, 0.1, 64)
    assert provider.requests[0].option_bias == {"pass": -0.5, "fail": 1.0}
    assert json.loads(result.stdout)["runs"][0]["optionBias"] == {"pass": -0.5, "fail": 1.0}


@pytest.mark.parametrize("text", ["pass", "=1", "pass=", "pass=x", "pass=nan", "pass=inf"])
def test_a_bias_that_is_none(scripted, text):
    scripted(mock_verdict("pass", 0.9))
    result = judge("--claim", "a", "--option-bias", text)

    assert result.exit_code == 2
    assert "OPTION=NUMBER" in result.stderr


def test_a_bias_of_no_option(scripted):
    scripted(mock_verdict("pass", 0.9))
    result = judge("--claim", "a", "--option-bias", "maybe=1")

    assert result.exit_code == 2
    assert "pass, fail, partial" in result.stderr
