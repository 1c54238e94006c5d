"""What the runs of an ensemble come to, against values computed by an independent implementation."""

import json
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.consensus import (
    Consensus,
    Votes,
    compute_consensus,
    exact,
    exact_mean_confidence,
    runs_from_json,
)
from judge_local.errors import UsageError
from judge_local.run import JudgeRun
from judge_local.verdict import JudgeVerdict, Match

VECTORS = json.loads((Path(__file__).parent / "data" / "decision-core.json").read_text())["consensus"]
KINDS = ("pass", "partial", "fail", "error")


def run(kind, confidence=0.9):
    """One run that said `kind`."""
    if kind == "error":
        return JudgeRun(error="it broke", provider="mock", model="m", duration_ms=0)
    verdict = JudgeVerdict(claim="c", observed="o", match=Match(kind), confidence=confidence, reasoning="r")
    return JudgeRun(verdict=verdict, provider="mock", model="m", duration_ms=0)


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_agrees_with_the_vectors(vector):
    consensus = compute_consensus(run(entry["match"], entry.get("confidence")) for entry in vector["runs"])

    expected = vector["expect"]
    assert consensus.votes.to_json() == expected["votes"]
    assert consensus.verdict == expected["verdict"]
    assert consensus.agreement == pytest.approx(expected["agreement"], abs=1e-12)
    assert consensus.mean_confidence == pytest.approx(expected["meanConfidence"], abs=1e-12)


@pytest.mark.parametrize(
    "kinds", [kinds for size in range(6) for kinds in combinations_with_replacement(KINDS, size)]
)
def test_every_set_of_up_to_five_runs(kinds):
    """The rules in words: partial weighs as fail, a tie is no pass, errors stay out of every ratio."""
    consensus = compute_consensus([run(kind) for kind in kinds])

    passes, against = kinds.count("pass"), kinds.count("fail") + kinds.count("partial")
    graded = passes + against
    assert [consensus.votes.to_json()[kind] for kind in KINDS] == [kinds.count(kind) for kind in KINDS]
    assert (consensus.verdict is Match.PASS) == (passes > against)
    assert consensus.agreement == (max(passes, against) / graded if graded else 0)
    assert consensus.mean_confidence == (0.9 if graded else 0)
    assert len(consensus.runs) == len(kinds)


@pytest.mark.parametrize(("confidence", "runs"), [(0.95, 3), (0.7, 3), (0.1, 3), (0.8, 7), (0.9, 6)])
def test_equal_confidences_have_themselves_as_mean(confidence, runs):
    """Float sums miss this: three times 0.95 gives 0.9499999999999998."""
    consensus = compute_consensus([run("pass", confidence)] * runs)

    assert consensus.mean_confidence == confidence


HUNDREDTHS = st.integers(0, 100).map(lambda number: number / 100)


@given(st.lists(HUNDREDTHS, min_size=1, max_size=9))
def test_the_mean_is_that_of_the_decimals_as_written(confidences):
    mean = exact_mean_confidence(run("pass", confidence) for confidence in confidences)

    assert mean == Fraction(sum(round(100 * c) for c in confidences), 100 * len(confidences))


@given(st.lists(st.sampled_from(KINDS), max_size=8))
def test_the_order_of_runs_does_not_matter(kinds):
    forward, backward = (compute_consensus(map(run, order)) for order in (kinds, kinds[::-1]))

    assert forward.votes == backward.votes
    assert (forward.verdict, forward.agreement) == (backward.verdict, backward.agreement)


def test_exact_reads_whole_numbers_and_subclasses_of_float():
    class Odd(float):
        def __repr__(self):
            return f"Odd({float(self)})"

    assert exact(1) == 1
    assert exact(Odd(0.25)) == Fraction(1, 4)
    assert exact(5e-324) > 0


def test_votes_count_what_weighs_against_and_what_was_graded():
    votes = Votes(passes=1, fails=2, partials=3, errors=4)

    assert (votes.against, votes.graded) == (5, 6)


def test_a_consensus_comes_back_from_its_file_format():
    consensus = compute_consensus([run("pass"), run("error"), run("partial", 0.5)])

    data = json.loads(json.dumps(consensus.to_json()))

    assert set(data) == {"runs", "votes", "verdict", "agreement", "meanConfidence"}
    assert Consensus.from_json(data) == consensus


def test_what_a_file_claims_is_computed_again():
    """A file that says `pass` over failing runs does not make them pass."""
    data = {**compute_consensus([run("fail")]).to_json(), "verdict": "pass", "agreement": 1}

    assert Consensus.from_json(data).verdict is Match.FAIL


@pytest.mark.parametrize("data", [None, {}, [None], ["run"]])
def test_what_is_no_list_of_runs_is_refused(data):
    with pytest.raises(UsageError):
        runs_from_json(data)
