"""`judge-local report`, and the reports and the gate of `batch`: files, streams, exit codes, and what is refused."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import junitparser
import pytest
from click.testing import CliRunner

from judge_local.cli import batch as batch_module
from judge_local.cli import main
from judge_local.counts import Counts
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.report.junit import JUnitReport
from made_results import HEADER, KINDS, result, write_results

LEVELS = ("never", "error", "fail", "review")


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    """A folder of one's own, on no build server."""
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def results(desk):
    return write_results(desk / "r.jsonl", [result(row, kind) for row, kind in enumerate(KINDS, 1)])


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def report(*args):
    return call("report", *args)


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- report -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "code"), [(level, 4 * (level != "never")) for level in LEVELS])
def test_the_exit_code_and_one_line_of_why(results, level, code):
    done = report(results, "--fail-on", level)

    assert done.exit_code == code
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"judge-local: gate {'failed' if code else 'passed'}: ")
    assert done.stdout.splitlines()[0] == f"4 results: {results}"


@pytest.mark.parametrize(
    ("kinds", "args", "code"),
    [
        (["auto-pass"], [], 0),
        (["auto-pass", "auto-fail"], [], 1),
        (["auto-pass", "human-review"], [], 0),
        (["auto-pass", "human-review"], ["--fail-on", "review"], 3),
        (["auto-pass", "human-review"], ["--min-pass-rate", "0.5"], 0),
        (["auto-pass", "human-review"], ["--min-pass-rate", "0.51"], 1),
        (["auto-pass", "human-review"], ["--max-review-rate", "0.5"], 0),
        (["auto-pass", "error"], ["--max-review-rate", "0.4", "--fail-on", "never"], 1),
        ([], [], 5),
    ],
)
def test_the_gate(desk, kinds, args, code):
    path = write_results(desk / "r.jsonl", [result(row, kind) for row, kind in enumerate(kinds, 1)])

    assert report(path, *args).exit_code == code


def test_an_empty_shard_passes(desk):
    assert report(write_results(desk / "r.jsonl", [], replace(HEADER, shard="3/8"))).exit_code == 0


def test_json(results):
    done = report(results, "--json")

    assert json.loads(done.stdout) == {
        "results": str(results),
        "counts": {"results": 4, "errors": 1, "zones": {"auto-pass": 1, "auto-fail": 1, "human-review": 2}},
        "gate": {
            "passed": False,
            "reasons": [
                "1 of 4 rows could not be judged (--fail-on fail)",
                "1 of 4 rows auto-fail (--fail-on fail)",
            ],
        },
        "exitCode": 4,
    }


def test_all_reports_at_once(desk, results, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    done = report(results, "--junit", "deep/er/junit.xml", "--sarif", "found.sarif", "--github")
    cases = [case for suite in junitparser.JUnitXml.fromfile("deep/er/junit.xml") for case in suite]

    assert len(cases) == 4
    assert json.loads(Path("found.sarif").read_text("utf-8"))["version"] == "2.1.0"
    assert Path("summary.md").read_text("utf-8").startswith("### judge-local: failed\n")
    assert [line[: line.index(" ")] for line in done.stdout.splitlines()[:4]] == [
        "::error",
        "::error",
        "::warning",
        "::notice",
    ]
    assert left_over(desk) == ["deep", "found.sarif", "r.jsonl", "summary.md"]
    assert left_over(desk / "deep" / "er") == ["junit.xml"]


def test_commands_go_where_they_spoil_no_json(results):
    done = report(results, "--github", "--json")

    assert json.loads(done.stdout)["exitCode"] == 4
    assert done.stderr.count("::error ") == 2


def test_the_summary_is_added_to_what_the_step_wrote(results, monkeypatch, desk):
    (desk / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    report(results, "--github")

    assert (desk / "summary.md").read_text("utf-8").startswith("before\n### judge-local: failed\n")


def test_a_full_summary_is_not_made_longer(results, monkeypatch, desk):
    (desk / "summary.md").write_bytes(b"x" * 1024 * 1024)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")

    assert report(results, "--github").exit_code == 4
    assert (desk / "summary.md").stat().st_size == 1024 * 1024


def test_review_is_a_failure_where_it_stops_the_gate(results):
    report(results, "--junit", "j.xml", "--fail-on", "review")
    (suite,) = junitparser.JUnitXml.fromfile("j.xml")

    assert (suite.failures, suite.skipped, suite.errors) == (2, 0, 1)


@pytest.mark.parametrize("variable", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR", None])
def test_files_are_named_from_the_checkout(desk, monkeypatch, variable):
    """Rows name files from their own folder; a build server knows them from the checkout."""
    if variable is not None:
        (desk / "elsewhere").mkdir()
        monkeypatch.setenv(variable, str(desk))
        monkeypatch.chdir(desk / "elsewhere")
    inside, outside = (
        result(1, "auto-fail", subject_file="docs/a.md"),
        result(2, "auto-fail", subject_file="../../b.md"),
    )
    path = write_results(desk / "r.jsonl", [inside, outside])
    done = report(path, "--github", "--sarif", desk / "s.json", "--rows-folder", desk / "eval")
    found = json.loads((desk / "s.json").read_text("utf-8"))["runs"][0]["results"]

    assert "file=eval/docs/a.md," in done.stdout
    assert [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in found] == [
        "eval/docs/a.md",
        f"file://{desk.parent}/b.md",
    ]


@pytest.mark.parametrize("strict", [False, True])
def test_strict_is_asked_for(results, strict):
    report(results, "--junit", "j.xml", *(["--junit-strict"] if strict else []))

    assert ("[[PROPERTY|zone=auto-fail]]" in Path("j.xml").read_text("utf-8")) is strict


def test_a_file_that_grows_meanwhile_is_reported_as_it_was_counted(results, monkeypatch):
    """A batch may be at work on it."""
    counted = Counts.of

    def count_and_grow(rows):
        counts = counted(rows)
        with results.open("a", encoding="ascii") as file:
            file.write(json.dumps(result(5, "auto-fail").to_json()) + "\n")
        return counts

    monkeypatch.setattr(Counts, "of", count_and_grow)
    report(results, "--junit", "j.xml")
    (suite,) = junitparser.JUnitXml.fromfile("j.xml")

    assert (suite.tests, len(list(suite))) == (4, 4)


def test_a_report_may_be_piped(results):
    command = f"{sys.executable} -m judge_local report {results} --junit /dev/stdout --fail-on never | cat"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("<?xml")
    assert "</testsuites>\n4 results: " in done.stdout


def test_a_reader_who_leaves_is_no_fault(results):
    command = f"{sys.executable} -m judge_local report {results} --junit /dev/stdout --fail-on never"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -c 1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "Traceback" not in done.stderr
    assert "cannot be written" not in done.stderr


# --- what cannot be -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--junit", "r.jsonl"],
            "--junit: 'r.jsonl' is needed for something else in this call. Name another file.",
        ),
        (["--junit", "./x.xml", "--sarif", "x.xml"], "--sarif: 'x.xml' is needed for something else"),
        (["--junit", "-"], "--junit: '-' is no file. Name one"),
        (["--junit", ""], "--junit: '' is no file. Name one"),
        (["--junit-strict"], "--junit-strict: no JUnit file is asked for. Name one: --junit FILE"),
        (["--min-pass-rate", "1.1"], "'--min-pass-rate'"),
        (["--max-review-rate", "nan"], "not a finite number"),
        (["--fail-on", "sometimes"], "'--fail-on'"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(results, desk, args, message):
    before = results.read_bytes()
    done = report("r.jsonl", *args)

    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert results.read_bytes() == before
    assert left_over(desk) == ["r.jsonl"]


def test_what_is_no_results_file_is_refused(desk):
    (desk / "rows.jsonl").write_text('{"claim": "x"}\n')
    done = report("rows.jsonl", "--junit", "j.xml")

    assert (done.exit_code, left_over(desk)) == (2, ["rows.jsonl"])
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--junit", "--sarif"])
def test_a_report_that_cannot_be_written_names_its_option(results, desk, option):
    (desk / "taken").write_text("")
    done = report(results, option, "taken/report")

    assert done.exit_code == 2
    assert done.stderr.startswith(f"judge-local: {option}: 'taken/report' cannot be written: ")
    assert "The results are safe" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("option", ["--junit", "--sarif"])
def test_a_full_disk_is_named(results, option):
    done = report(results, option, "/dev/full")

    assert done.exit_code == 2
    assert f"judge-local: {option}: '/dev/full' cannot be written: No space left on device." in done.stderr


def test_a_report_that_breaks_off_leaves_the_old_one(results, desk, monkeypatch):
    (desk / "j.xml").write_text("old")
    monkeypatch.setattr(JUnitReport, "finish", lambda self: 1 / 0)
    done = report(results, "--junit", "j.xml")

    assert done.exit_code == 4
    assert (desk / "j.xml").read_text() == "old"
    assert left_over(desk) == ["j.xml", "r.jsonl"]


def test_a_link_stays_a_link(results, desk):
    (desk / "link.xml").symlink_to("real.xml")
    report(results, "--junit", "link.xml")

    assert (desk / "link.xml").is_symlink()
    assert (desk / "real.xml").read_text("utf-8").startswith("<?xml")


# --- batch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch):
    """Put a scripted provider in the place of the model."""

    def put(*responses):
        provider = MockProvider(responses)
        monkeypatch.setattr(batch_module, "make_provider", lambda options, call, on_event: provider)
        return provider

    return put


def rows(desk, *claims, **facts) -> Path:
    path = desk / "rows.jsonl"
    lines = [
        json.dumps(
            {"id": claim, "claim": claim, "subject": "The shop opens at nine, every day but Sunday.", **facts}
        )
        for claim in claims
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("answer", "level", "code"),
    [
        (mock_verdict("pass", 0.95), "review", 0),
        (mock_verdict("fail", 0.95), "fail", 1),
        (mock_verdict("fail", 0.95), "error", 0),
        (mock_verdict("pass", 0.5), "fail", 0),
        (mock_verdict("pass", 0.5), "review", 3),
        ({"error": "it died"}, "never", 0),
        ({"error": "it died"}, "error", 4),
        ({"error": "it died"}, "fail", 4),
    ],
)
def test_batch_exits_with_what_its_gate_says(desk, scripted, answer, level, code):
    scripted(answer)
    args = ("batch", rows(desk, "a", "b"), "-o", "r.jsonl", "--runs", 1, "--fail-on", level, "--quiet")
    done = call(*args, "--junit", "j.xml")
    again = report("r.jsonl", "--fail-on", level, "--junit", "again.xml")

    assert (done.exit_code, again.exit_code) == (code, code)
    assert Path("j.xml").read_bytes() == Path("again.xml").read_bytes()
    # A gate that passed is nothing to say where quiet is asked for.
    assert done.stderr == (again.stderr if code else "")


def test_batch_reports_on_all_rows_also_those_of_calls_before(desk, scripted):
    scripted(mock_verdict("pass", 0.95))
    path = rows(desk, "a", "b", "c")
    call("batch", path, "-o", "r.jsonl", "--runs", 1, "--limit", 1)
    call("batch", path, "-o", "r.jsonl", "--runs", 1, "--junit", "j.xml")
    (suite,) = junitparser.JUnitXml.fromfile("j.xml")

    assert suite.tests == 3


def test_batch_json_holds_the_gate(desk, scripted):
    scripted(mock_verdict("pass", 0.95))
    done = call("batch", rows(desk, "a"), "-o", "r.jsonl", "--runs", 1, "--json", "--github", "--quiet")

    assert json.loads(done.stdout)["gate"] == {"passed": True, "reasons": ["1 auto-pass (--fail-on fail)"]}
    assert "::notice title=judge-local::gate passed" in done.stderr


def test_a_bad_row_never_passes(desk, scripted):
    scripted(mock_verdict("pass", 0.95))
    (desk / "rows.jsonl").write_text(
        '{"claim": "a", "subject": "The shop opens at nine, every day but Sunday."}\n{"claim": "b"}\n'
    )
    done = call("batch", "rows.jsonl", "-o", "r.jsonl", "--runs", 1, "--junit", "j.xml")
    (suite,) = junitparser.JUnitXml.fromfile("j.xml")

    assert done.exit_code == 4
    assert (suite.tests, suite.errors) == (2, 1)


@pytest.mark.parametrize("taken", ["rows.jsonl", "r.jsonl"])
def test_batch_refuses_to_write_over_its_files_before_it_judges(desk, scripted, taken):
    provider = scripted(mock_verdict("pass", 0.95))
    path = rows(desk, "a")
    done = call("batch", path, "-o", "r.jsonl", "--junit", taken)

    assert done.exit_code == 2
    assert "is needed for something else in this call" in done.stderr
    assert provider.requests == []
    assert path.read_text().startswith("{")


def test_a_batch_that_is_interrupted_writes_no_report(desk, monkeypatch):
    """It would look like that of a batch that ended."""

    class Interrupting(MockProvider):
        async def complete_json(self, request):
            if len(self.requests) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.01)  # As a model takes time, in which the loop hears of signals.
            return await super().complete_json(request)

    provider = Interrupting([mock_verdict("pass", 0.95)])
    monkeypatch.setattr(batch_module, "make_provider", lambda options, call, on_event: provider)
    path = rows(desk, *(f"claim {number}" for number in range(200)))
    done = call("batch", path, "-o", "r.jsonl", "--runs", 1, "--at-once", 1, "--junit", "j.xml", "--github")

    assert done.exit_code == 130
    assert "::" not in done.stdout
    assert "gate" not in done.stderr
    assert left_over(desk) == ["r.jsonl", "rows.jsonl"]
    assert 0 < len(Path("r.jsonl").read_text().splitlines()) - 1 < 200
