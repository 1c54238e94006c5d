"""The pytest plugin: what tests that judge look like when they pass, fail, skip, and cannot judge at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from judge_local.consensus import compute_consensus
from judge_local.errors import UsageError
from judge_local.pytest_plugin import assert_verdict
from judge_local.run import JudgeRun, Note
from judge_local.verdict import JudgeVerdict, Match
from judge_local.zones import ConsensusResult, Zone, in_zone, zone_for

pytest_plugins = ["pytester"]

SCRIPTED = """
import pytest
from judge_local import MockProvider, mock_verdict
from judge_local.pytest_plugin import assert_verdict

@pytest.fixture(scope="session")
def judge_provider():
    return MockProvider([{answers}])
"""
PASSES = SCRIPTED.format(answers='mock_verdict("pass", 0.9)')


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run `text` as a test file in a process of its own, with the plugin and every warning an error."""
    source = str(Path(__file__).parents[1] / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((source, os.environ.get("PYTHONPATH", ""))))

    def call(text: str, *arguments: str, ini: str = "") -> pytest.RunResult:
        loops = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
        pytester.makeini(f"[pytest]\nfilterwarnings = error\n{loops}\n{ini}")
        pytester.makepyfile(text)
        options = ("-p", "judge_local.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers", "-rs")
        return pytester.runpytest_subprocess(*options, *arguments, timeout=540)

    return call


def verdict_run(match: str, confidence: float = 0.9, **changes: str) -> JudgeRun:
    fields = {"claim": "It names a price.", "observed": "costs €9", "reasoning": "it says so", **changes}
    verdict = JudgeVerdict(match=Match(match), confidence=confidence, **fields)
    return JudgeRun(verdict=verdict, provider="mock", model="m", duration_ms=1.0)


def errored_run() -> JudgeRun:
    return JudgeRun(
        error="engine: it died", error_kind="EngineCrashedError", provider="mock", model="m", duration_ms=1.0
    )


def decision(*runs: JudgeRun) -> ConsensusResult:
    consensus = compute_consensus(runs)
    return in_zone(consensus, zone_for(consensus), distinct_runs=len(runs), replays=False)


PASS, FAIL, ERROR = verdict_run("pass"), verdict_run("fail"), errored_run()


# --- assert_verdict ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "on_review", "outcome"),
    [
        ((PASS,), "fail", None),
        ((PASS,), "skip", None),
        ((FAIL,), "fail", AssertionError),
        ((FAIL,), "skip", AssertionError),
        ((FAIL,), "pass", AssertionError),
        ((PASS, FAIL), "fail", AssertionError),
        ((PASS, FAIL), "skip", pytest.skip.Exception),
        ((PASS, FAIL), "pass", None),
        ((PASS, ERROR), "pass", None),
        ((ERROR, ERROR), "fail", AssertionError),
        ((ERROR, ERROR), "skip", AssertionError),
        ((ERROR, ERROR), "pass", AssertionError),
        ((), "pass", AssertionError),
    ],
)
def test_what_a_decision_does_to_a_test(runs, on_review, outcome):
    if outcome is None:
        assert assert_verdict(decision(*runs), on_review=on_review) is None
    else:
        with pytest.raises(outcome):
            assert_verdict(decision(*runs), on_review=on_review)


@pytest.mark.parametrize("zone", Zone)
@pytest.mark.parametrize("on_review", ["", "Fail", None, True])
def test_another_way_to_treat_a_review_is_refused_whatever_the_decision(zone, on_review):
    runs = {Zone.AUTO_PASS: (PASS,), Zone.AUTO_FAIL: (FAIL,), Zone.HUMAN_REVIEW: (PASS, FAIL)}[zone]

    with pytest.raises(UsageError, match="on_review"):
        assert_verdict(decision(*runs), on_review=on_review)


def test_the_message_holds_votes_quotes_notes_and_errors():
    noted = JudgeRun(
        verdict=FAIL.verdict,
        provider="mock",
        model="other",
        duration_ms=1.0,
        notes=(Note("evidence", "no quote is in the subject"),),
    )

    with pytest.raises(AssertionError) as caught:
        assert_verdict(decision(PASS, noted, ERROR))

    assert str(caught.value).splitlines() == [
        "human-review: 'It names a price.'",
        "  votes: 1 pass, 1 fail, 0 partial, 1 errored; agreement 0.50, mean confidence 0.9",
        "  run 1 (mock:m): pass, confidence 0.9",
        "    observed: 'costs €9'",
        "    reasoning: 'it says so'",
        "  run 2 (mock:other): fail, confidence 0.9",
        "    observed: 'costs €9'",
        "    reasoning: 'it says so'",
        "    note: evidence: 'no quote is in the subject'",
        "  run 3 (mock:m): errored: 'engine: it died'",
    ]


def test_what_a_model_wrote_steers_no_terminal():
    sly = verdict_run("fail", observed="\x1b[2Jgone\nE   1 passed", reasoning="\u202eabc")

    with pytest.raises(AssertionError) as caught:
        assert_verdict(decision(sly))

    text = str(caught.value)
    assert len(text.splitlines()) == 5
    assert all(character.isprintable() or character == "\n" for character in text)


# --- in a project -----------------------------------------------------------------------------------------------------


def test_tests_pass_fail_and_skip(run):
    text = SCRIPTED.format(answers='mock_verdict("pass", 0.9), mock_verdict("fail", 0.9)') + (
        """
def test_pass(judge):
    assert_verdict(judge("It costs 9 euros.", claim="It names a price.", runs=1))

def test_fail(judge):
    assert_verdict(judge("It costs 9 euros.", claim="It names a price.", runs=1))

@pytest.mark.parametrize("on_review", ["fail", "skip", "pass"])
def test_review(judge, on_review):
    decision = judge("It costs 9 euros.", claim="It names a price.", runs=2)
    assert_verdict(decision, on_review=on_review)
"""
    )

    result = run(text)

    result.assert_outcomes(passed=2, failed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "E *AssertionError: auto-fail: 'The assertion under test'",
            "E *votes: 0 pass, 1 fail, 0 partial, 0 errored; agreement 1.00, mean confidence 0.9",
            "E *observed: 'Observed content'",
            "SKIPPED*human-review: 'The assertion under test' (votes: 1 pass, 1 fail, *",
        ]
    )
    assert "pytest_plugin.py" not in result.stdout.str().split("short test summary")[0]


def test_a_test_file_without_judgements_is_left_alone(run):
    """No fixture of ours is made and nothing of ours is imported that takes time."""
    heavy = ["llama_cpp", "huggingface_hub", "jsonschema", "numpy", "jinja2", "rich", "httpx2"]
    ours = ["judge_local.sync", "judge_local.ensemble", "judge_local.completion", "judge_local.cache"]
    text = f"""
import sys

def test_it():
    assert [name for name in {[*heavy, *ours]} if name in sys.modules] == []
"""

    run(text).assert_outcomes(passed=1)


def test_the_first_sentence_of_a_project_is_enough(run):
    """`--fixtures` and `--markers` say what there is, and `--help` what can be set."""
    assert "judge_provider" in run("", "--fixtures").stdout.str()
    assert "@pytest.mark.judge(" in run("", "--markers").stdout.str()
    shown = run("", "--help").stdout.str()
    for name in ("--judge-model", "--judge-runs", "judge_auto_pass", "judge_cache", "judge_no_model"):
        assert name in shown


def test_naming_the_plugin_twice_is_naming_it_once(run):
    result = run(PASSES + "def test_it(judge): pass", "-p", "judge_local.pytest_plugin")

    result.assert_outcomes(passed=1)


def test_the_entry_point_is_named_like_its_module(root):
    """Otherwise `-p judge_local.pytest_plugin` would register the installed module a second time, which pytest refuses."""
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]

    assert project["entry-points"]["pytest11"] == {"judge_local.pytest_plugin": "judge_local.pytest_plugin"}


def test_results_are_properties_of_the_test(run, pytester):
    text = PASSES + (
        """
def test_two(judge):
    judge("It costs 9 euros.", claim="It names a price.")
    judge("It costs 9 euros.", claim="It names a \\x1b thing.", runs=1)
"""
    )

    run(text, "--junit-xml=out.xml").assert_outcomes(passed=1)

    (case,) = ElementTree.parse(pytester.path / "out.xml").iter("testcase")
    properties = [(one.get("name"), one.get("value")) for one in case.iter("property")]
    assert properties[:5] == [
        ("judge_claim", "It names a price."),
        ("judge_zone", "auto-pass"),
        ("judge_agreement", "1.0"),
        ("judge_confidence", "0.9"),
        ("judge_model", "mock:mock-model"),
    ]
    assert [name for name, _ in properties] == [name for name, _ in properties[:5]] * 2


# --- settings ---------------------------------------------------------------------------------------------------------

SETTINGS = """
import pytest

def test_default(judge):
    print("default", judge.defaults.get("runs"))

@pytest.mark.judge(runs=4, reference="r")
class TestNearest:
    @pytest.mark.judge(runs=6)
    def test_it(self, judge):
        print("nearest", judge.defaults["runs"], judge.defaults["reference"])
"""


@pytest.mark.parametrize(
    ("arguments", "ini", "environment", "default"),
    [
        ((), "", {}, None),
        ((), "judge_runs = 7", {}, 7),
        ((), "judge_runs = 7", {"JUDGE_LOCAL_RUNS": "8"}, 8),
        (("--judge-runs=2",), "judge_runs = 7", {"JUDGE_LOCAL_RUNS": "8"}, 2),
    ],
)
def test_the_nearest_setting_wins(run, monkeypatch, arguments, ini, environment, default):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    result = run(PASSES + SETTINGS, "-s", *arguments, ini=ini)

    result.assert_outcomes(passed=2)
    for line in (f"default {default}", "nearest 6 r"):
        assert line in result.stdout.str()


def test_settings_reach_the_judgement_and_the_call_overrules_them(run):
    text = PASSES + (
        """
@pytest.mark.judge(runs=4, reference="what is right")
def test_it(judge, judge_provider):
    assert len(judge("A whole text.", claim="b").runs) == 4
    assert "what is right" in judge_provider.requests[-1].user
    assert len(judge("A whole text.", claim="b", runs=5, reference=None).runs) == 5
    assert "what is right" not in judge_provider.requests[-1].user
"""
    )

    run(text).assert_outcomes(passed=1)


def test_thresholds_and_the_cache_come_from_the_configuration(run, pytester):
    text = PASSES + (
        """
def test_twice(judge, judge_provider):
    first, second = judge("A whole text.", claim="b"), judge("A whole text.", claim="b")
    assert first.zone == "human-review"
    assert all(run.cached for run in second.runs) and len(judge_provider.requests) == 3
"""
    )

    run(text, ini="judge_auto_pass = 0.95\njudge_cache = kept").assert_outcomes(passed=1)

    assert len(list((pytester.path / "kept").glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("mark", "arguments", "ini", "line"),
    [
        ("rnus=3", (), "", "marker judge: 'rnus' is no setting. Known: runs."),
        ("5", (), "", "marker judge: '5' has no name. Write judge(runs=5)."),
        ("", ("--judge-runs=many",), "", "judge runs: 'many' is not a whole number."),
        ("", (), "judge_auto_pass = high", "judge_auto_pass: 'high' is not a number."),
        ("", (), "judge_auto_fail = nan", "judge_auto_fail: *"),
        ("", (), "judge_auto_pass = 80", "judge_auto_pass: '80.0' is not a number within 0..1*"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_one_line(run, mark, arguments, ini, line):
    result = run(PASSES + f"@pytest.mark.judge({mark})\ndef test_it(judge): pass", *arguments, ini=ini)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([line])


def test_a_fault_of_the_call_points_at_the_line_of_the_test(run):
    faults = {
        'judge("A whole text.", claim="b", runs=0)': "E *UsageError: runs: '0' is not a whole number*",
        'judge("  ", claim="b")': "E *EmptySubjectError: subject*",
        'judge("A whole text.", claim="b", timeout=-1)': "E *NumberError: timeout*",
    }
    tests = "".join(f"def test_{number}(judge):\n    {call}\n" for number, call in enumerate(faults))

    result = run(PASSES + tests)

    result.assert_outcomes(failed=3)
    for call, line in faults.items():
        result.stdout.fnmatch_lines([f"> *{call}", line])
    assert "sync.py" not in result.stdout.str()


def test_time_that_has_run_out_is_a_failed_test(run):
    text = PASSES + (
        """
def test_it(judge):
    assert_verdict(judge("A whole text.", claim="b", timeout=0), on_review="pass")
"""
    )

    result = run(text)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["E *AssertionError: human-review: no run answered", "E *errored: *deadline*"]
    )


# --- models -----------------------------------------------------------------------------------------------------------

JUDGES = """
from judge_local.pytest_plugin import assert_verdict

def test_it(judge):
    judge("A whole text.", claim="b")

def test_other():
    pass
"""


@pytest.mark.parametrize(
    ("arguments", "environment", "what", "command"),
    [
        ((), {}, "fail", "judge-local pull smollm2-135m"),
        ((), {}, "skip", "judge-local pull smollm2-135m"),
        (("--judge-model=gemma-4-e4b",), {}, "fail", "judge-local pull gemma-4-e4b"),
        ((), {"JUDGE_LOCAL_MODEL": "gemma-4-e4b"}, "skip", "judge-local pull gemma-4-e4b"),
    ],
)
def test_without_a_model_one_line_says_what_to_pull(run, monkeypatch, arguments, environment, what, command):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    result = run(JUDGES, *arguments, ini=f"judge_no_model = {what}")

    result.assert_outcomes(passed=1, **{"errors": 1} if what == "fail" else {"skipped": 1})
    result.stdout.fnmatch_lines([f"*`{command}`*"])
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


def test_a_word_that_names_no_model_fails_even_where_a_missing_one_skips(run):
    result = run(JUDGES, "--judge-model=smollm3", ini="judge_no_model = skip")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["model: 'smollm3' names no model. Did you mean smollm2-135m?*"])
    assert "During handling" not in result.stdout.str()


def test_only_fail_and_skip_are_known_for_a_missing_model(run):
    result = run(JUDGES, ini="judge_no_model = ignore")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["judge_no_model: 'ignore' is neither fail nor skip."])


def test_several_models_and_none_named_says_which_option_chooses(run, tiny_model, monkeypatch, tmp_path):
    from judge_local.models.importing import import_file
    from judge_local.models.store import Store

    monkeypatch.setenv("JUDGE_LOCAL_MODELS_DIR", str(tmp_path / "models"))
    for name in ("one", "two"):
        import_file(
            Store(), tiny_model, name=name, sha256=None, on_progress=None, on_event=lambda _text: None
        )

    result = run(JUDGES)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*one, two. Choose with --judge-model or judge_model."])


LOADS = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_it(judge, judge_provider, number):
    decision = judge(f"The shop opens at {{number}}.", claim="It names a time.", runs=1)
    assert decision.votes.graded == 1
    with open("pids", "a") as file:
        file.write(f"{{judge_provider.worker_pid}}\\n")
"""


@pytest.mark.timeout(600)
def test_each_process_loads_the_model_once(run, pytester, tiny_model):
    """With the real engine and a random model; the workers end with the session."""
    run(LOADS.format(count=3), f"--judge-model={tiny_model}", "-n", "2").assert_outcomes(passed=3)

    pids = (pytester.path / "pids").read_text().split()
    assert (len(pids), len(set(pids)) <= 2) == (3, True)
    assert [pid for pid in set(pids) if is_alive(int(pid))] == []


@pytest.mark.live
@pytest.mark.timeout(600)
def test_four_processes_judge_with_a_real_model(run, pytester, live_model):
    """They take turns by the machine-wide lock, so nobody fails and nobody waits for ever."""
    run(LOADS.format(count=4), "--judge-model=smollm2-135m", "-n", "4").assert_outcomes(passed=4)

    assert len((pytester.path / "pids").read_text().split()) == 4


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_scripted_judgements_run_side_by_side(run):
    text = PASSES + (
        """
@pytest.mark.parametrize("number", range(12))
def test_it(judge, number):
    assert_verdict(judge("A whole text.", claim="b"))
"""
    )

    run(text, "-n", "2").assert_outcomes(passed=12)


def test_loading_the_plugin_loads_two_small_modules_and_nothing_from_outside(root):
    code = """
import sys, pytest
before = set(sys.modules)
import judge_local.pytest_plugin
loaded = set(sys.modules) - before
print(sorted(name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "['judge_local', 'judge_local.errors', 'judge_local.pytest_plugin']\n"


def test_an_asynchronous_test_judges_too(run):
    text = PASSES + (
        """
async def test_it(judge):
    assert_verdict(judge("A whole text.", claim="b"))
"""
    )

    run(text).assert_outcomes(passed=1)
