"""Results: the file format, its round trip, and what a file edited by hand cannot do."""

import json
from itertools import combinations_with_replacement

import pytest

from judge_local.cache import JsonCache
from judge_local.consensus import compute_consensus
from judge_local.errors import UsageError
from judge_local.providers.mock import MockProvider, mock_verdict
from judge_local.results import Result, ResultsHeader, no_decision, subject_sha256
from judge_local.run import JudgeRun
from judge_local.sync import judge_claim
from judge_local.verdict import JudgeVerdict, Match
from judge_local.zones import ConsensusResult, Zone, in_zone, zone_for

SUBJECT = "Der Zug fährt um 9."


def run(outcome: str, confidence: float = 0.95) -> JudgeRun:
    facts = {"provider": "mock", "model": "mock-model", "duration_ms": 12.5}
    if outcome == "error":
        return JudgeRun(error="model: it failed.", error_kind="ProviderError", **facts)
    verdict = JudgeVerdict(
        claim="c", observed="o", match=Match(outcome), confidence=confidence, reasoning="r"
    )
    return JudgeRun(verdict=verdict, **facts)


def decided(*outcomes: str, zone: Zone | None = None) -> ConsensusResult:
    consensus = compute_consensus(run(outcome) for outcome in outcomes)
    return in_zone(consensus, zone or zone_for(consensus), distinct_runs=len(outcomes), replays=False)


def result(decision: ConsensusResult, **facts: object) -> Result:
    return Result(
        **{
            "row": 1,
            "id": "line:1",
            "claim": "The train leaves at nine.",
            "subject": SUBJECT,
            "subject_sha256": subject_sha256(SUBJECT),
            "decision": decision,
            **facts,
        }
    )


@pytest.mark.parametrize(
    "written",
    [
        result(decided("pass", "pass", "pass")),
        result(
            decided("fail", "partial"), subject=None, subject_file="a.txt", reference="nine", label="fail"
        ),
        result(decided("pass", "error"), meta={"source": ["x", 1]}, unknown={"later": {"a": None}}),
        result(no_decision(), error="subject: too long. Judge a part of it."),
        result(decided("pass"), certified=True),
    ],
    ids=["pass", "file", "meta", "error", "certified"],
)
def test_a_result_survives_the_round_trip(written):
    line = json.dumps(written.to_json())

    assert written == Result.from_json(json.loads(line))
    assert line == json.dumps(Result.from_json(json.loads(line)).to_json())


@pytest.mark.parametrize("written", ["0", "0.0", "1", "1.0", "0.95", "1e0"])
def test_a_confidence_is_written_as_the_number_it_was(written, tmp_path):
    """An integer stays one, through a cache and a results file, and settles what its float settles."""
    number = json.loads(written)
    asked = mock_verdict("pass", number)
    cache = JsonCache(tmp_path)

    for _ in range(2):  # The second time from the cache.
        decision = judge_claim(MockProvider([asked]), "It costs nine euros.", "c", runs=1, cache=cache)
        text = json.dumps(result(decision).to_json())
        assert f'"confidence": {number!r}, ' in text
        read = Result.from_json(json.loads(text))
        assert json.dumps(read.to_json()) == text
        assert read.decision.zone is (Zone.AUTO_PASS if number >= 0.8 else Zone.HUMAN_REVIEW)
    assert decision.runs[0].cached


def test_the_keys_are_those_of_the_results_file():
    data = result(decided("pass", "pass", "pass")).to_json()

    expected = "row id claim subject subjectSha256 zone verdict votes agreement meanConfidence distinctRuns replays runs certified"
    assert expected.split() == list(data)
    assert data["zone"] == "auto-pass"
    assert data["verdict"] == "pass"
    assert data["votes"] == {"pass": 3, "fail": 0, "partial": 0, "error": 0}
    assert data["agreement"] == 1.0
    assert data["meanConfidence"] == 0.95
    assert data["certified"] is False


def test_without_text_the_hash_still_says_what_was_judged():
    data = result(decided("pass"), reference="nine").to_json(text=False)

    assert not {"subject", "reference"} & set(data)
    assert subject_sha256(SUBJECT) == data["subjectSha256"]


def test_votes_edited_by_hand_are_counted_again():
    data = result(decided("pass", "fail")).to_json()
    data["votes"] = {"pass": 2, "fail": 0, "partial": 0, "error": 0}

    assert Result.from_json(data).to_json()["votes"] == {"pass": 1, "fail": 1, "partial": 0, "error": 0}


PANELS = [p for n in range(4) for p in combinations_with_replacement(("pass", "partial", "fail", "error"), n)]


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("zone", Zone)
def test_no_file_can_claim_a_zone_that_its_runs_do_not_allow(panel, zone):
    """Review is always allowed; a settled zone only to the unanimous."""
    allowed = {
        Zone.AUTO_PASS: panel != () and set(panel) == {"pass"},
        Zone.AUTO_FAIL: panel != () and set(panel) <= {"fail", "partial"},
        Zone.HUMAN_REVIEW: True,
    }[zone]
    data = {**result(no_decision()).to_json(), "runs": [run(o).to_json() for o in panel], "zone": zone.value}

    if allowed:
        assert zone is Result.from_json(data).decision.zone
    else:
        with pytest.raises(UsageError, match="contradicts the votes"):
            Result.from_json(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("row", 0),
        ("row", True),
        ("row", "1"),
        ("id", None),
        ("claim", 1),
        ("subject", ["a"]),
        ("subjectSha256", None),
        ("certified", "no"),
        ("certified", None),
        ("meta", []),
        ("error", 3),
        ("zone", "auto"),
        ("runs", {}),
        ("runs", [{}]),
        ("distinctRuns", None),
    ],
)
def test_a_wrong_shape_is_refused_in_one_line(key, value):
    data = {**result(decided("pass")).to_json(), key: value}

    with pytest.raises(UsageError) as caught:
        Result.from_json(data)
    assert "\n" not in str(caught.value)


def test_what_is_no_object_is_refused():
    with pytest.raises(UsageError, match="not an object"):
        Result.from_json([1])


@pytest.mark.parametrize(("outcome", "zone"), [("pass", "auto-pass"), ("fail", "auto-fail")])
def test_no_file_can_settle_a_row_with_an_error(outcome, zone):
    data = {**result(decided(outcome)).to_json(), "error": "line 1: claim is missing"}

    assert data["zone"] == zone
    with pytest.raises(UsageError, match="contradicts the error"):
        Result.from_json(data)


@pytest.mark.parametrize(
    ("panel", "error", "fault"),
    [
        (["pass"], None, None),
        (["pass", "error"], None, None),
        (["error", "error"], None, "model: it failed."),
        ([], None, "it has no runs"),
        ([], "line 1: claim is missing", "line 1: claim is missing"),
        (["error"], "it was cut off", "it was cut off"),
    ],
)
def test_a_row_without_any_verdict_has_a_fault(panel, error, fault):
    assert result(decided(*panel), error=error).fault == fault


# --- the header -------------------------------------------------------------------------------------------------------

HEADER = {
    "judgeLocalResults": 1,
    "model": "mock:mock-model",
    "modelSha256": "0" * 64,
    "schemaSha256": "1" * 64,
    "promptVersion": "judge-local:prompt:2",
    "settings": {"runs": 3},
    "shard": "1/4",
    "later": [1],
}


def test_header_round_trip() -> None:
    assert ResultsHeader.from_json(HEADER).to_json() == HEADER


def test_header_leaves_out_what_nobody_knows() -> None:
    facts = {key: value for key, value in HEADER.items() if key not in ("modelSha256", "shard")}

    assert facts == ResultsHeader.from_json(facts).to_json()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, None) for key in ("model", "schemaSha256", "promptVersion", "settings")),
        *((key, 7) for key in ("model", "modelSha256", "schemaSha256", "promptVersion", "settings", "shard")),
        *(("judgeLocalResults", value) for value in (0, 2, True, "1", None)),
    ],
)
def test_header_that_is_none(key: str, value: object) -> None:
    with pytest.raises(UsageError):
        ResultsHeader.from_json({**HEADER, key: value})


@pytest.mark.parametrize("data", [None, [], "x", {"row": 1}])
def test_other_first_lines(data: object) -> None:
    with pytest.raises(UsageError, match="is not the header"):
        ResultsHeader.from_json(data)
