"""`judge-local batch` with a scripted model: what is written, printed, exited with, and refused beforehand."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge_local.cli import batch as module
from judge_local.cli import main
from judge_local.errors import EngineCrashedError, ModelFileError, ModelMissingError
from judge_local.providers.mock import MockProvider, mock_verdict

ROWS = [
    {"id": "a", "claim": "It leaves at nine.", "subject": "The train leaves at nine.", "label": "pass"},
    {"id": "b", "claim": "It leaves at ten.", "subject": "The train leaves at nine.", "label": "fail"},
    {"id": "c", "claim": "It names a platform.", "subject": "Platform two, as always.", "label": "pass"},
]
PASS, FAIL, UNSURE = mock_verdict("pass", 0.9), mock_verdict("fail", 0.9), mock_verdict("pass", 0.5)


class Closing(MockProvider):
    """A scripted provider that remembers whether it was closed."""

    closed = False
    model_sha256 = "ab" * 32

    async def aclose(self):
        self.closed = True


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of its own with three rows, which is the current one."""
    monkeypatch.chdir(tmp_path)
    write(ROWS)
    return tmp_path


@pytest.fixture
def scripted(monkeypatch):
    """Put a scripted provider in the place of the model."""

    def put(*responses):
        provider = Closing(responses or [PASS])

        def make_provider(options, call, on_event):
            provider.options = options
            return provider

        monkeypatch.setattr(module, "make_provider", make_provider)
        return provider

    return put


def write(rows, name="rows.jsonl"):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def batch(*args, **kwargs):
    words = ["batch", "rows.jsonl", "-o", "r.jsonl", "--runs", "1", "--at-once", "1", *map(str, args)]
    return CliRunner().invoke(main, words, **kwargs)


def results(name="r.jsonl"):
    return [json.loads(line) for line in Path(name).read_text("utf-8").splitlines()][1:]


@pytest.mark.parametrize(
    ("responses", "codes"),
    [
        ([PASS], {"never": 0, "error": 0, "fail": 0, "review": 0}),
        ([PASS, UNSURE, PASS], {"never": 0, "error": 0, "fail": 0, "review": 3}),
        ([PASS, FAIL, UNSURE], {"never": 0, "error": 0, "fail": 1, "review": 1}),
        ([PASS, FAIL, EngineCrashedError("e", "died")], {"never": 0, "error": 4, "fail": 4, "review": 4}),
    ],
    ids=["pass", "review", "fail", "error"],
)
def test_the_exit_code_is_the_gates(place, scripted, responses, codes):
    for level, code in codes.items():
        scripted(*responses)
        done = batch("--fail-on", level, "--fresh")
        assert done.exit_code == code, (level, done.stderr)


def test_the_results_file_holds_every_row_and_what_it_was_made_with(place, scripted):
    provider = scripted(PASS, FAIL, UNSURE)

    done = batch("--fail-on", "never")

    header = json.loads((place / "r.jsonl").read_text("utf-8").splitlines()[0])
    assert header["judgeLocalResults"] == 1
    assert header["model"] == "mock:mock-model"
    assert header["modelSha256"] == "ab" * 32
    assert header["settings"]["runs"] == 1
    assert [(line["id"], line["row"], line["zone"], line["label"]) for line in results()] == [
        ("a", 1, "auto-pass", "pass"),
        ("b", 2, "auto-fail", "fail"),
        ("c", 3, "human-review", "pass"),
    ]
    assert provider.closed
    assert done.stdout.startswith("3 results: r.jsonl\n")


def test_labelled_rows_end_with_a_table(place, scripted):
    scripted(PASS, FAIL, FAIL)

    lines = batch("--fail-on", "never").stdout.splitlines()

    assert [line.split() for line in lines if line.startswith(("pass ", "fail "))] == [
        ["pass", "1", "1", "0", "1", "1", "0"],
        ["fail", "0", "1", "0", "0", "1", "0"],
    ]
    assert "1 of 1 auto-pass agree with their label (100.0%)" in lines
    assert "1 of 2 auto-fail agree with their label (50.0%)" in lines


def test_the_summary_is_there_for_a_machine(place, scripted):
    scripted(PASS, FAIL, UNSURE)

    summary = json.loads(batch("--json").stdout)

    assert summary["ended"] == "done"
    assert (summary["rows"], summary["judged"], summary["judgedBefore"], summary["exitCode"]) == (3, 3, 0, 1)
    assert summary["counts"]["zones"] == {"auto-pass": 1, "auto-fail": 1, "human-review": 1}
    assert summary["counts"]["labels"]["fail"]["verdicts"] == {"pass": 0, "fail": 1, "error": 0}


def test_a_second_call_judges_nothing_twice(place, scripted):
    provider = scripted(PASS)
    batch()
    write([*ROWS, {"id": "d", "claim": "It says so.", "subject": "So it says, indeed."}])

    summary = json.loads(batch("--json").stdout)

    assert len(provider.requests) == 4
    assert (summary["judged"], summary["judgedBefore"]) == (1, 3)
    assert [line["id"] for line in results()] == ["a", "b", "c", "d"]


def test_rows_that_changed_are_warned_of_and_keep_their_results(place, scripted):
    scripted(PASS)
    batch()
    write([ROWS[0], ROWS[1] | {"claim": "It never leaves."}, ROWS[2]])

    done = batch()

    assert done.exit_code == 0
    assert "warning: 1 rows are not any more what was judged, the first on line 2." in done.stderr


def test_other_settings_are_refused_before_a_row_is_judged(place, scripted):
    provider = scripted(PASS)
    batch()

    done = batch("--seed", "7")

    assert done.exit_code == 2
    assert done.stderr.startswith("judge-local: r.jsonl: was made with other settings (seed: '0', not '7').")
    assert len(provider.requests) == 3
    assert provider.closed


def test_fresh_starts_over_and_keeps_the_old_file(place, scripted):
    scripted(PASS)
    batch()

    assert batch("--seed", "7", "--fresh").exit_code == 0
    assert len(results("r.jsonl.old-1")) == len(results()) == 3


def test_errors_are_judged_again_when_that_is_asked(place, scripted):
    scripted(PASS, {"error": "down"}, {"error": "down"}, PASS)
    assert batch().exit_code == 4
    assert "down" in results()[1]["error"]
    scripted(PASS)

    assert batch().exit_code == 4
    assert batch("--retry-errors").exit_code == 0
    assert [line["id"] for line in results()] == ["a", "c", "b"]
    assert batch("--ordered").exit_code == 0
    assert [line["id"] for line in results()] == ["a", "b", "c"]


def test_a_limit_goes_on_with_the_next_call(place, scripted):
    scripted(PASS)

    first = batch("--limit", "2")

    assert len(results()) == 2
    assert (
        "the limit is reached: 2 results are there. Go on: judge-local batch rows.jsonl -o r.jsonl"
        in first.stderr
    )
    batch("--limit", "2")
    assert [line["id"] for line in results()] == ["a", "b", "c"]


def test_one_zone_is_printed_from_the_whole_file(place, scripted):
    scripted(PASS, UNSURE, PASS)
    batch("--limit", "2")

    done = batch("--only-zone", "human-review", "--only-zone", "auto-fail", "--json")

    *lines, summary = map(json.loads, done.stdout.splitlines())
    assert [line["id"] for line in lines] == ["b"]
    assert summary["judgedBefore"] == 2


def test_bad_rows_stop_nothing(place, scripted):
    scripted(PASS)
    (place / "rows.jsonl").write_text('{"id": "a"}\nnot json\n' + json.dumps(ROWS[2]) + "\n", "utf-8")

    done = batch()

    assert done.exit_code == 4
    assert {line["id"]: line.get("error") for line in results()} == {
        "a": "line 1: it has no claim",
        "line:2": "line 2: it is not JSON: Expecting value: line 1 column 1 (char 0)",
        "c": None,
    }


def test_no_text_keeps_subjects_out_of_the_file(place, scripted):
    scripted(PASS)
    batch("--no-text")

    assert "The train" not in (place / "r.jsonl").read_text("utf-8")


def test_a_table_packed_with_other_names_from_standard_input(place, scripted):
    scripted(PASS)
    table = "key,assertion,text\nx,It is.,Said so.\n"
    words = ["batch", "-", "--format", "csv", "-o", "r.jsonl", "--runs", "1"]
    for name in ("id=key", "claim=assertion", "subject=text"):
        words += ["--map", name]

    done = CliRunner().invoke(main, words, input=gzip.compress(table.encode()))

    assert done.exit_code == 0, done.stderr
    assert [(line["id"], line["claim"], line["subject"]) for line in results()] == [
        ("x", "It is.", "Said so.")
    ]


def test_subject_files_are_relative_to_the_rows(place, scripted):
    scripted(PASS)
    (place / "data").mkdir()
    (place / "data" / "s.txt").write_text("At nine, it says.", "utf-8")
    write([{"id": 1, "claim": "c", "subject_file": "s.txt"}], "data/rows.jsonl")
    words = ["batch", "data/rows.jsonl", "-o", "r.jsonl", "--runs", "1"]

    assert CliRunner().invoke(main, words).exit_code == 0
    assert results()[0]["subjectFile"] == "s.txt"
    assert "subject" not in results()[0]


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["rows.jsonl"], 2, "-o: no results file is named"),
        (["rows.jsonl", "-o", "-"], 2, "-o: no results file is named"),
        (["nope.jsonl", "-o", "r"], 2, "there is no file 'nope.jsonl'"),
        (["rows.txt", "-o", "r"], 2, "its name does not say what it holds"),
        (["-", "-o", "r", "--schema", "-"], 2, "standard input is read once"),
        (["rows.jsonl", "-o", "r", "--fresh", "--retry-errors"], 2, "--fresh starts over"),
        (["rows.jsonl", "-o", "r", "--map", "claim"], 2, "'claim' is not FIELD=COLUMN"),
        (["rows.jsonl", "-o", "r", "--map", "x=y"], 2, "'x' is no field of a row"),
        (["rows.jsonl", "-o", "r", "--time-budget", "soon"], 2, "'soon' is no length of time"),
        (["rows.jsonl", "-o", "rows.jsonl"], 2, "is not the header of a results file"),
        (["rows.jsonl", "-o", "no/r"], 4, "cannot be opened"),
    ],
)
def test_what_cannot_be_meant_is_refused(place, scripted, words, code, problem):
    provider = scripted(PASS)

    done = CliRunner().invoke(main, ["batch", *words])

    assert done.exit_code == code, done.stderr
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1
    assert provider.requests == []


def test_no_rows_is_nothing_to_judge(place, scripted):
    scripted(PASS)
    write([])

    assert batch().exit_code == 5


@pytest.mark.parametrize(("fault", "code"), [(ModelMissingError, 2), (ModelFileError, 4)])
def test_a_model_that_cannot_be_used_ends_the_call_before_the_first_row(
    place, monkeypatch, scripted, fault, code
):
    provider = scripted(PASS)

    async def facts():
        raise fault("model", "is not there")

    provider.facts = facts
    done = batch()

    assert done.exit_code == code
    assert results() == []
    assert provider.closed


def test_answers_are_kept_and_taken_from_a_cache(place, scripted):
    provider = scripted(PASS)
    batch("--cache", "kept")

    batch("--cache", "kept", "--fresh")

    assert len(provider.requests) == 3
    assert all(line["runs"][0]["cached"] for line in results())


def test_a_dry_run_writes_nothing_and_tells_what_is_there(place, scripted):
    scripted(PASS)
    batch("--limit", "1")
    before = (place / "r.jsonl").read_bytes()
    write([*ROWS, {"id": "d"}])

    report = json.loads(batch("--dry-run", "--json").stdout)

    assert (report["rows"], report["judgedBefore"], report["bad"], report["toJudge"]) == (4, 1, 1, 2)
    assert report["faults"] == ["line 4: it has no claim"]
    assert report["subjects"] == 2
    assert report["probeRows"] == 2
    assert report["estimatedSeconds"] >= 0
    assert (place / "r.jsonl").read_bytes() == before
    assert [entry.name for entry in place.iterdir()].count("r.jsonl.old-1") == 0


def test_a_dry_run_needs_no_results_file(place, scripted):
    scripted(PASS)

    done = CliRunner().invoke(main, ["batch", "rows.jsonl", "--dry-run"])

    assert done.exit_code == 0
    assert done.stdout.startswith(
        "3 rows, 3 to judge\n  different subjects: 2\n  about 0 s, as 3 rows took 0 s\n"
    )


SLOW = """
import asyncio, pathlib, sys
from judge_local.cli import batch, main
from judge_local.providers.mock import MockProvider, mock_verdict

class Slow(MockProvider):
    async def complete_json(self, request):
        print("asked", flush=True)
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
        return await super().complete_json(request)

batch.make_provider = lambda *_: Slow([mock_verdict("pass", 0.9)])
main(["batch", "rows.jsonl", "-o", "r.jsonl", "--runs", "1", "--at-once", "1", *sys.argv[1:]])
"""


def slow(place, *words):
    """The command in a process of its own, in the middle of its first row, which is done when there is a file `go`."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        cwd=place,
        env={**os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "asked\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_interrupted_once_it_finishes_what_is_in_flight(place, number):
    process = slow(place, "--retry-errors")
    process.send_signal(number)
    first = process.stderr.readline()
    (place / "go").touch()
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130, err
    assert [line["id"] for line in results()] == ["a"]
    assert [first.rstrip(), *err.splitlines()] == [
        "judge-local: finishing what is in flight; Ctrl-C again gives it up",
        "judge-local: interrupted: 1 results are safe. Go on: "
        "judge-local batch rows.jsonl -o r.jsonl --runs 1 --at-once 1",
    ]


def test_interrupted_twice_it_stops_at_once(place):
    process = slow(place)
    process.send_signal(signal.SIGINT)
    assert "finishing" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "interrupted: 0 results are safe" in err
    assert "Traceback" not in err
    assert results() == []


def test_a_second_process_on_the_file_is_refused(place, scripted):
    process = slow(place)
    try:
        scripted(PASS)
        done = batch()
    finally:
        process.kill()
        process.communicate()

    assert done.exit_code == 4
    assert done.stderr == (
        "judge-local: r.jsonl: another process is writing to it. Wait for it to end, or name another file.\n"
    )


def test_rows_from_a_slow_pipe_are_judged_as_they_come(place, scripted):
    (place / "go").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.replace('"rows.jsonl"', '"-"')],
        cwd=place,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(json.dumps(ROWS[0]) + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "asked\n"
    process.stdin.write(json.dumps(ROWS[1]) + "\n")
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    process.stderr.close()
    assert [line["id"] for line in results()] == ["a", "b"]


def test_without_a_terminal_progress_is_a_line_now_and_then(place, scripted, monkeypatch):
    monkeypatch.setattr("judge_local.cli.batch_progress.PLAIN_SECONDS", 0.0)
    scripted(PASS)

    done = batch()
    quiet = batch("--quiet")

    assert re.search(r"^judge-local: 0 (of 3 )?rows · 0 pass, 0 fail, 0 review$", done.stderr, re.MULTILINE)
    assert quiet.stderr == ""


@pytest.mark.live
def test_a_real_model_judges_rows(place, live_model):
    """Also that tokens are counted as the engine counts them."""
    report = CliRunner().invoke(main, ["batch", "rows.jsonl", "--dry-run", "--runs", "1", "--json"])
    done = CliRunner().invoke(
        main, ["batch", "rows.jsonl", "-o", "r.jsonl", "--runs", "1", "--fail-on", "never"]
    )

    assert done.exit_code == 0, done.stderr
    assert len(results()) == 3
    counted = json.loads(report.stdout)
    used = [line["runs"][0]["usage"]["inputTokens"] for line in results() if "usage" in line["runs"][0]]
    assert counted["tooLong"] == 0
    assert counted["promptTokens"] == sum(used)
    assert counted["longestPromptTokens"] == max(used)
