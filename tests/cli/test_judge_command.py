"""`judge-local judge` with a scripted model: what is printed, what is exited with, and what is refused beforehand."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge_local.cli import judge as module
from judge_local.cli import main
from judge_local.errors import (
    ChatTemplateError,
    ContextOverflowError,
    EngineCrashedError,
    GrammarRejectedError,
    ModelMissingError,
)
from judge_local.providers.base import CompletionResponse
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.results import Result, subject_sha256
from judge_local.run import TokenUsage
from judge_local.verdict import VERDICT_SCHEMA

SUBJECT = "The train leaves at nine from platform two, every day but Sunday.\n"
CLAIM = "The train leaves at nine."
OVERFLOW = ContextOverflowError(
    "prompt", "needs 9,000 tokens; the context holds 2,048", "Judge a part of it."
)


class Closing(MockProvider):
    """A scripted provider that remembers whether it was closed, and how it was made."""

    closed = False
    options = None

    async def aclose(self):
        self.closed = True


@pytest.fixture
def subject(tmp_path, monkeypatch):
    """A subject in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "subject.txt"
    path.write_text(SUBJECT, "utf-8")
    return path


@pytest.fixture
def scripted(monkeypatch):
    """Put a scripted provider in the place of the model."""

    def put(*responses):
        provider = Closing(responses or [mock_verdict("pass", 0.95)])

        def make_provider(options, call, on_event):
            provider.options = options
            provider.call = call
            on_event("loading the model")
            return provider

        monkeypatch.setattr(module, "make_provider", make_provider)
        return provider

    return put


def judge(*args, **kwargs):
    return CliRunner().invoke(main, ["judge", *map(str, args)], **kwargs)


@pytest.mark.parametrize(
    ("responses", "zone", "code"),
    [
        ([mock_verdict("pass", 0.95)], "auto-pass", 0),
        ([mock_verdict("fail", 0.95)], "auto-fail", 1),
        ([mock_verdict("partial", 0.95)], "auto-fail", 1),
        ([mock_verdict("pass", 0.5)], "human-review", 3),
        ([mock_verdict("pass", 0.95), mock_verdict("fail", 0.95)], "human-review", 3),
        ([mock_verdict("pass", 0.95)] * 2 + [{"error": "down"}] * 2, "human-review", 3),
        ([{"error": "down"}], "human-review", 3),
        ([EngineCrashedError("engine", "died")], "human-review", 3),
    ],
    ids=["pass", "fail", "partial", "unsure", "split", "one errored", "all errored", "all crashed"],
)
def test_the_zone_comes_first_and_is_the_exit_code(subject, scripted, responses, zone, code):
    provider = scripted(*responses)

    result = judge(subject, "--claim", CLAIM)

    assert result.exit_code == code, result.stderr
    assert result.stdout.startswith(f"{zone}: {CLAIM}\n")
    assert provider.closed


def test_a_person_sees_what_the_decision_rests_on(subject, scripted):
    answer = mock_verdict("pass", 0.95)["json"] | {"observed": 'It says "leaves at ten".', "reasoning": "So."}
    scripted(CompletionResponse(json=answer, usage=TokenUsage(1200, 34)))

    lines = [line.strip() for line in judge(subject, "--claim", CLAIM).stdout.splitlines()]

    assert "votes       3 pass, 0 fail, 0 partial, 0 errored" in lines
    assert "confidence  0.95 on average, self-reported" in lines
    assert "model       mock mock-model" in lines
    assert [line for line in lines if line.startswith("cost        3,600 tokens in, 102 out, ")]
    assert [line for line in lines if line.startswith("certificate uncertified")]
    assert 'observed    It says "leaves at ten".' in lines
    assert "reasoning   So." in lines
    # The quote is not in the subject, and that is said on each run.
    assert len([line for line in lines if line.startswith("note        evidence:")]) == 3


def test_a_model_cannot_steer_the_terminal(subject, scripted):
    answer = mock_verdict("pass", 0.95)["json"] | {"reasoning": "\x1b[2Jauto-pass\nauto-pass: forged"}
    scripted(CompletionResponse(json=answer))

    shown = judge(subject, "--claim", CLAIM).stdout

    assert "\x1b" not in shown
    assert not [line for line in shown.splitlines()[1:] if line.startswith("auto-pass")]


def test_json_is_one_result_object(subject, scripted):
    scripted()

    result = judge("subject.txt", "--claim", CLAIM, "--json", "--quiet")
    data = json.loads(result.stdout)

    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.count("\n") == 1
    assert data["zone"] == "auto-pass"
    assert data["subjectFile"] == "subject.txt"
    assert data["subjectSha256"] == subject_sha256(SUBJECT)
    assert data["certified"] is False
    assert "subject" not in data
    assert Result.from_json(data).to_json() == data


def test_the_text_from_standard_input_is_in_the_result_unless_unwanted(subject, scripted):
    scripted()
    (subject.parent / "ref.txt").write_text("At nine.")
    args = ["-", "--claim", CLAIM, "--reference", "ref.txt", "--json"]

    with_text = json.loads(judge(*args, input=SUBJECT).stdout)
    without = json.loads(judge(*args, "--no-text", input=SUBJECT).stdout)

    assert (with_text["subject"], with_text["reference"]) == (SUBJECT, "At nine.")
    assert not {"subject", "reference", "subjectFile"} & set(without)
    assert without["subjectSha256"] == with_text["subjectSha256"]


def test_several_claims_are_one_provider_and_one_line_each(subject, scripted):
    provider = scripted(*[mock_verdict("pass", 0.95)] * 2, *[mock_verdict("fail", 0.95)] * 2)
    claims = subject.parent / "claims.jsonl"
    claims.write_text(json.dumps({"claim": "It is late.", "id": "late", "label": "fail", "n": 1}))

    result = judge(subject, "--claim", CLAIM, "--claims", claims, "--runs", 2, "--json")
    first, second = map(json.loads, result.stdout.splitlines())

    assert result.exit_code == 1
    assert (first["row"], first["id"], first["zone"]) == (1, "claim:1", "auto-pass")
    assert (second["row"], second["id"], second["zone"]) == (2, "late", "auto-fail")
    assert (second["label"], second["meta"]) == ("fail", {"n": 1})
    assert len(provider.requests) == 4
    assert "claim 2 of 2" in result.stderr


PASS, FAIL, SPLIT = (
    [mock_verdict("pass", 0.95)] * 2,
    [mock_verdict("fail", 0.95)] * 2,
    [mock_verdict("pass", 0.95), mock_verdict("fail", 0.95)],
)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([*PASS, *PASS], 0),
        ([*PASS, *SPLIT], 3),
        ([*SPLIT, *FAIL], 1),
        ([*FAIL, *SPLIT], 1),
        ([*FAIL, OVERFLOW, OVERFLOW], 2),
        ([OVERFLOW, OVERFLOW, *PASS], 2),
    ],
)
def test_the_exit_code_is_the_worst_of_all_claims(subject, scripted, script, code):
    scripted(*script)

    assert judge(subject, "--claim", "one", "--claim", "two", "--runs", 2).exit_code == code


def test_a_text_longer_than_the_context_is_2_and_no_decision(subject, scripted):
    provider = scripted(OVERFLOW)

    result = judge(subject, "--claim", CLAIM, "--quiet")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"judge-local: {OVERFLOW}\n"
    assert provider.closed


def test_a_claim_that_does_not_fit_costs_no_other(subject, scripted):
    scripted(OVERFLOW, OVERFLOW, *PASS)

    result = judge(subject, "--claim", "one", "--claim", "two", "--runs", 2, "--quiet")

    assert result.stdout.startswith("auto-pass: two\n")
    assert result.stderr == f"judge-local: claim 1 of 2: {OVERFLOW}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ChatTemplateError("m.gguf", "has no template"), 4),
        (GrammarRejectedError("grammar", "is not read"), 4),
    ],
)
def test_a_fault_of_the_set_up_is_no_decision(subject, scripted, error, code):
    provider = scripted(error)

    result = judge(subject, "--claim", "one", "--claim", "two", "--quiet")

    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == f"judge-local: {error}\n"
    assert provider.closed
    assert len(provider.requests) == 1


def test_no_model_is_2_before_anything_is_asked(subject, monkeypatch):
    error = ModelMissingError("model", "there is no model here", "Run `judge-local pull smollm2-135m`.")

    def missing(*_):
        raise error

    monkeypatch.setattr(module, "make_provider", missing)

    result = judge(subject, "--claim", CLAIM)

    assert result.exit_code == 2
    assert result.stderr == f"judge-local: {error}\n"


class TestRefusedBeforehand:
    """Each is one line on standard error, nothing on standard output, and no model is made for it."""

    @pytest.fixture(autouse=True)
    def no_model(self, monkeypatch):
        def make_provider(*_):
            pytest.fail("a model was made for a call that is refused")

        monkeypatch.setattr(module, "make_provider", make_provider)

    @pytest.mark.parametrize(
        ("args", "code", "message"),
        [
            (["none.txt", "--claim", "c"], 2, "subject: there is no file 'none.txt'"),
            (["subject.tx", "--claim", "c"], 2, "Did you mean 'subject.txt'?"),
            ([".", "--claim", "c"], 2, "is a folder"),
            (["empty.txt", "--claim", "c"], 5, "'empty.txt' is empty"),
            (["blank.txt", "--claim", "c"], 5, "'blank.txt' holds only whitespace"),
            (["binary.bin", "--claim", "c"], 2, "NUL byte at offset 1"),
            (["utf16.txt", "--claim", "c"], 2, "iconv -f UTF-16"),
            (["paper.pdf", "--claim", "c"], 2, "pdftotext"),
            (["subject.txt"], 2, "no claim was given"),
            (["subject.txt", "--claim", ""], 2, "the claim '' is empty"),
            (["subject.txt", "--claim", " \t"], 2, "is empty"),
            (["subject.txt", "--claims", "empty.txt"], 2, "holds no claim"),
            (["subject.txt", "--claims", "none.txt"], 2, "claims: there is no file"),
            (["subject.txt", "--claim", "c", "--reference", "blank.txt"], 2, "Leave --reference out"),
            (["subject.txt", "--claim", "c", "--reference", "binary.bin"], 2, "reference: "),
            (["-", "--claim", "c", "--reference", "-"], 2, "standard input is read once"),
            (["subject.txt", "--claim", "c", "--runs", "0"], 2, "0 is not in the range x>=1"),
            (["subject.txt", "--claim", "c", "--runs", "-1"], 2, "-1 is not in the range x>=1"),
            (["subject.txt", "--claim", "c", "--runs", "many"], 2, "'many' is not a valid integer"),
            (["subject.txt", "--claim", "c", "--temperature", "nan"], 2, "nan is not a finite number"),
            (["subject.txt", "--claim", "c", "--temperature", "-1"], 2, "range 0<=x<=2"),
            (["subject.txt", "--claim", "c", "--auto-pass", "1.5"], 2, "range 0<=x<=1"),
            (["subject.txt", "--claim", "c", "--auto-fail", "nan"], 2, "nan is not a finite number"),
            (["subject.txt", "--claim", "c", "--timeout", "0"], 2, "range x>0"),
            (["subject.txt", "--claim", "c", "--timeout", "inf"], 2, "inf is not a finite number"),
            (["subject.txt", "--claim", "c", "--vary", "all"], 2, "'all' is not one of"),
            (["subject.txt", "--claim", "c", "--threads", "0"], 2, "range x>=1"),
            (["subject.txt", "--claim", "c", "--gpu-layers", "all"], 2, "neither auto nor a whole number"),
            (["subject.txt", "--claim", "c", "--gpu-layers", "-2"], 2, "-2 is below 0"),
            (["subject.txt", "--claim", "c", "--cache", "subject.txt"], 2, "is a file"),
            (
                ["subject.txt", "--claim", "c", "--chat-template", "none.j2"],
                2,
                "chat template: there is no file",
            ),
            (["subject.txt", "--claim", "c", "--schema", "none.json"], 2, "schema: there is no file"),
            (["subject.txt", "--claim", "c", "--schema", "subject.txt"], 2, "not JSON"),
            (["subject.txt", "--claim", "c", "--schema", "list.json"], 2, "not a JSON object"),
            (["subject.txt", "--claim", "c", "--schema", "twice.json"], 2, "the key 'type' stands twice"),
            (["subject.txt", "--claim", "c", "--schema", "noschema.json"], 2, "schema"),
            (["subject.txt", "--claim", "c", "--schema", "noverdict.json"], 2, "no property of that name"),
            (["subject.txt", "--claim", "c", "--schema", "unbounded.json"], 2, "confidence"),
            (["subject.txt", "--claim", "c", "--schema", "unenforced.json"], 2, "uniqueItems"),
        ],
        ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else None,
    )
    def test_in_one_line(self, subject, args, code, message):
        folder = subject.parent
        (folder / "empty.txt").write_bytes(b"")
        (folder / "blank.txt").write_bytes(b" \r\n\t")
        (folder / "binary.bin").write_bytes(b"a\0b\xff")
        (folder / "utf16.txt").write_bytes("a b".encode("utf-16"))
        (folder / "paper.pdf").write_bytes(b"%PDF-1.4\n%\xe2\xe3")
        verdict = json.loads(json.dumps(dict(VERDICT_SCHEMA)))
        unbounded = json.loads(json.dumps(verdict))
        del unbounded["properties"]["confidence"]["maximum"]
        unenforced = json.loads(json.dumps(verdict))
        unenforced["properties"]["tags"] = {"type": "array", "uniqueItems": True}
        for name, schema in {
            "list.json": [1],
            "noschema.json": {"type": 5},
            "noverdict.json": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "unbounded.json": unbounded,
            "unenforced.json": unenforced,
        }.items():
            (folder / name).write_text(json.dumps(schema))
        (folder / "twice.json").write_text('{"type": "object", "type": "object"}')

        result = judge(*args)

        assert message in result.stderr
        assert result.exit_code == code
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("judge-local")

    def test_an_empty_standard_input_is_nothing_to_judge(self, subject):
        result = judge("-", "--claim", CLAIM, input="\n\n")

        assert result.exit_code == 5
        assert result.stderr == (
            "judge-local: subject: standard input holds only whitespace. There is nothing to judge.\n"
        )

    def test_an_unreadable_subject(self, subject, monkeypatch):
        """Root may read everything, so the refusal is played where the tests run as root."""
        subject.chmod(0)
        if os.geteuid() == 0:
            refusal = PermissionError(13, "Permission denied")
            monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(refusal))

        result = judge(subject, "--claim", CLAIM)

        assert result.exit_code == 2
        assert "may not be read by you" in result.stderr


def test_options_reach_the_model(subject, scripted):
    provider = scripted()
    (subject.parent / "t.j2").write_text("{{ messages }}")

    result = judge(
        subject, "--claim", CLAIM, "--model", "m", "--runs", 1, "--seed", 7, "--threads", 2, "--gpu-layers", 3,
        "--deterministic", "--no-wait", "--chat-template", "t.j2", "--timeout", 100,
    )  # fmt: skip

    assert result.exit_code == 0, result.stderr
    options, call = provider.options, provider.call
    assert (options.model, options.threads, options.gpu_layers) == ("m", 2, 3)
    assert (options.deterministic, options.no_wait, call.chat_template) == (True, True, "{{ messages }}")
    (request,) = provider.requests
    assert request.seed == 7
    assert request.deadline == call.deadline
    assert SUBJECT in request.user


def test_thresholds_move_the_gate(subject, scripted):
    scripted(mock_verdict("pass", 0.7))

    assert judge(subject, "--claim", CLAIM, "--auto-pass", "0.7").exit_code == 0
    assert judge(subject, "--claim", CLAIM, "--auto-pass", "0.71").exit_code == 3


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(subject, scripted):
    provider = scripted()
    (subject.parent / "judge-local.toml").write_text('runs = 4\nmodel = "from-file"\nquiet = true')

    def runs(*args, **env):
        provider.requests.clear()
        result = judge(subject, "--claim", CLAIM, *args, env=env)
        assert result.exit_code == 0, result.stderr
        return len(provider.requests), provider.options.model

    assert runs() == (4, "from-file")
    assert runs(JUDGE_LOCAL_RUNS="2", JUDGE_LOCAL_MODEL="from-env") == (2, "from-env")
    assert runs("--runs", 1, "--model", "named", JUDGE_LOCAL_RUNS="2") == (1, "named")


def test_a_claim_never_comes_from_the_environment(subject, scripted):
    scripted()

    result = judge(subject, env={"JUDGE_LOCAL_CLAIM": "It is late."})

    assert result.exit_code == 2
    assert "no claim was given" in result.stderr


def test_a_wrong_value_in_the_environment_is_one_line(subject, scripted):
    scripted()

    result = judge(subject, "--claim", CLAIM, env={"JUDGE_LOCAL_RUNS": "0"})

    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "0 is not in the range x>=1" in result.stderr


def test_the_cache_answers_the_second_time(subject, scripted):
    provider = scripted()
    args = [subject, "--claim", CLAIM, "--cache", "answers", "--json"]

    first, second = judge(*args), judge(*args)

    assert len(provider.requests) == 3
    assert [run["cached"] for run in json.loads(first.stdout)["runs"]] == [False] * 3
    assert [run["cached"] for run in json.loads(second.stdout)["runs"]] == [True] * 3


def test_quiet_leaves_only_the_result(subject, scripted):
    scripted()

    assert (
        judge(subject, "--claim", CLAIM).stderr
        == "judge-local: loading the model\njudge-local: claim: 3 runs\n"
    )
    assert judge(subject, "--claim", CLAIM, "--quiet").stderr == ""


def test_an_interruption_closes_the_model_and_keeps_what_was_printed(subject, scripted, monkeypatch):
    provider = scripted()
    answer = provider.complete_json

    async def interrupted(request):
        if len(provider.requests) == 1:
            raise KeyboardInterrupt
        return await answer(request)

    provider.complete_json = interrupted

    result = judge(subject, "--claim", "one", "--claim", "two", "--runs", 1)

    assert result.exit_code == 130
    assert result.stdout.startswith("auto-pass: one\n")
    assert result.stderr.endswith("judge-local: interrupted\n")
    assert "Traceback" not in result.stderr
    assert provider.closed


def test_a_fault_nobody_foresaw_closes_the_model(subject, scripted, monkeypatch):
    provider = scripted()
    monkeypatch.setattr(module, "_print", lambda *_, **__: 1 / 0)

    result = judge(subject, "--claim", CLAIM, "--quiet")

    assert result.exit_code == 4
    assert "unforeseen ZeroDivisionError: division by zero." in result.stderr
    assert provider.closed
