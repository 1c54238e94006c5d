"""Which consensus settles itself: every small ensemble, and the vectors of an independent implementation."""

import json
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.consensus import Consensus, Votes, compute_consensus
from judge_local.errors import UsageError
from judge_local.run import JudgeRun
from judge_local.verdict import JudgeVerdict, Match
from judge_local.zones import DEFAULT_ZONES, ConsensusResult, Zone, ZoneThresholds, in_zone, zone_for

VECTORS = json.loads((Path(__file__).parent / "data" / "decision-core.json").read_text())["consensus"]
KINDS = ("pass", "partial", "fail", "error")
PANELS = [kinds for size in range(6) for kinds in combinations_with_replacement(KINDS, size)]


def consensus_of(kinds, confidences):
    """What runs that said `kinds` with `confidences` come to."""
    return compute_consensus(
        JudgeRun(error="it broke", provider="mock", model="m", duration_ms=0)
        if kind == "error"
        else JudgeRun(
            verdict=JudgeVerdict(
                claim="c", observed="o", match=Match(kind), confidence=confidence, reasoning="r"
            ),
            provider="mock",
            model="m",
            duration_ms=0,
        )
        for kind, confidence in zip(kinds, confidences, strict=True)
    )


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_agrees_with_the_vectors(vector):
    runs = vector["runs"]
    consensus = consensus_of([r["match"] for r in runs], [r.get("confidence") for r in runs])

    for case in vector["zones"]:
        given_ = case["thresholds"]
        thresholds = (
            ZoneThresholds(auto_pass=given_["autoPass"], auto_fail=given_["autoFail"])
            if given_
            else DEFAULT_ZONES
        )
        assert zone_for(consensus, thresholds) == case["zone"], case


@pytest.mark.parametrize("kinds", PANELS)
def test_only_the_unanimous_settle_themselves(kinds):
    """With no threshold in the way, unanimity alone decides; a partial is unanimous with a fail."""
    zone = zone_for(consensus_of(kinds, [0.0] * len(kinds)), ZoneThresholds(auto_pass=0, auto_fail=0))

    assert (zone is Zone.AUTO_PASS) == (kinds != () and set(kinds) == {"pass"})
    assert (zone is Zone.AUTO_FAIL) == (kinds != () and set(kinds) <= {"partial", "fail"})


@pytest.mark.parametrize(
    ("auto_pass", "auto_fail", "confidence"), [*product(*[[0, 0.5, 0.8, 1]] * 2, [0.0, 0.5, 0.8, 1.0])]
)
def test_a_threshold_closes_a_zone_and_never_opens_one(auto_pass, auto_fail, confidence):
    thresholds = ZoneThresholds(auto_pass=auto_pass, auto_fail=auto_fail)
    for kinds in PANELS:
        consensus = consensus_of(kinds, [confidence] * len(kinds))
        zone = zone_for(consensus, thresholds)
        unanimous = zone_for(consensus, ZoneThresholds(auto_pass=0, auto_fail=0))

        needed = {Zone.AUTO_PASS: auto_pass, Zone.AUTO_FAIL: auto_fail, Zone.HUMAN_REVIEW: 0}[unanimous]
        assert zone is (unanimous if confidence >= needed else Zone.HUMAN_REVIEW)


@given(st.lists(st.sampled_from(KINDS), max_size=12), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_an_error_never_settles_anything(kinds, confidence, auto_pass, auto_fail):
    kinds = [*kinds, "error"]
    consensus = consensus_of(kinds, [confidence] * len(kinds))

    assert zone_for(consensus, ZoneThresholds(auto_pass=auto_pass, auto_fail=auto_fail)) is Zone.HUMAN_REVIEW


@given(st.lists(st.integers(0, 100), min_size=1, max_size=7), st.integers(0, 100))
def test_the_comparison_is_that_of_decimals(hundredths, threshold):
    """A mean that equals the threshold on paper reaches it, and one that falls short on paper does not."""
    consensus = consensus_of(["pass"] * len(hundredths), [number / 100 for number in hundredths])

    zone = zone_for(consensus, ZoneThresholds(auto_pass=threshold / 100))

    assert (zone is Zone.AUTO_PASS) == (sum(hundredths) >= threshold * len(hundredths))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.floats(0, 1))
def test_the_comparison_is_exact_for_any_confidence(confidences, threshold):
    consensus = consensus_of(["fail"] * len(confidences), confidences)

    zone = zone_for(consensus, ZoneThresholds(auto_fail=threshold))

    total = sum(Fraction(Decimal(repr(c))) for c in confidences)
    assert (zone is Zone.AUTO_FAIL) == (total >= Fraction(Decimal(repr(threshold))) * len(confidences))


def test_a_mean_that_only_rounding_lifts_does_not_reach_the_threshold():
    """The float mean of these is 0.8, the mean of what was written is not."""
    consensus = consensus_of(["pass"] * 10, [0.8] * 9 + [0.7999999999999999])

    assert consensus.mean_confidence == 0.8
    assert zone_for(consensus) is Zone.HUMAN_REVIEW


def test_the_edges_of_the_default():
    assert zone_for(consensus_of(["pass"] * 3, [0.8] * 3)) is Zone.AUTO_PASS
    assert zone_for(consensus_of(["pass"] * 3, [0.79] * 3)) is Zone.HUMAN_REVIEW
    assert zone_for(consensus_of(["fail", "partial"], [0.8] * 2)) is Zone.AUTO_FAIL
    assert zone_for(consensus_of([], [])) is Zone.HUMAN_REVIEW


def test_a_consensus_without_its_runs_is_read_by_its_mean():
    consensus = Consensus(
        runs=(), votes=Votes(passes=3), verdict=Match.PASS, agreement=1, mean_confidence=0.95
    )

    assert zone_for(consensus) is Zone.AUTO_PASS
    assert zone_for(consensus, ZoneThresholds(auto_pass=0.96)) is Zone.HUMAN_REVIEW


@pytest.mark.parametrize("name", ["auto_pass", "auto_fail"])
@pytest.mark.parametrize("value", [float("nan"), -0.01, 1.01, float("inf"), "0.8", None, True])
def test_a_threshold_is_a_number_within_0_and_1(name, value):
    with pytest.raises(UsageError, match=name):
        ZoneThresholds(**{name: value})


def result():
    consensus = consensus_of(["pass", "error"], [0.9, None])
    return in_zone(consensus, Zone.HUMAN_REVIEW, distinct_runs=1, replays=True)


def test_a_result_comes_back_from_its_file_format():
    data = json.loads(json.dumps(result().to_json()))

    assert set(data) == {
        *("runs", "votes", "verdict", "agreement", "meanConfidence"),
        *("zone", "distinctRuns", "replays"),
    }
    assert ConsensusResult.from_json(data) == result()


@pytest.mark.parametrize(
    "change",
    [
        {"zone": "auto"},
        {"zone": None},
        {"distinctRuns": "1"},
        {"distinctRuns": True},
        {"replays": 0},
        {"runs": {}},
    ],
)
def test_a_result_of_another_shape_is_refused(change):
    with pytest.raises(UsageError):
        ConsensusResult.from_json({**result().to_json(), **change})
    with pytest.raises(UsageError):
        ConsensusResult.from_json({key: v for key, v in result().to_json().items() if key not in change})
