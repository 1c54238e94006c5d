"""The gate: every batch of up to four rows under every level, and rates met exactly."""

import itertools
from fractions import Fraction

import pytest

from judge_local.counts import Counts
from judge_local.errors import UsageError
from judge_local.report.gate import FailOn, Gate, decide
from made_results import KINDS, result

BATCHES = [kinds for n in range(1, 5) for kinds in itertools.combinations_with_replacement(KINDS, n)]


def counted(kinds) -> Counts:
    return Counts.of(result(row, kind) for row, kind in enumerate(kinds, 1))


def expected_code(kinds, level: str) -> int:
    """In words: an error is 4 from `error` on, a fail 1 from `fail` on, a review 3 at `review`; 4 > 1 > 3."""
    if "error" in kinds and level in ("error", "fail", "review"):
        return 4
    if "auto-fail" in kinds and level in ("fail", "review"):
        return 1
    if "human-review" in kinds and level == "review":
        return 3
    return 0


@pytest.mark.parametrize("level", ["never", "error", "fail", "review"])
def test_every_small_batch(level):
    for kinds in BATCHES:
        outcome = decide(Gate(fail_on=FailOn(level)), counted(kinds))

        assert (kinds, outcome.code) == (kinds, expected_code(kinds, level))
        assert outcome.reasons
        assert all(reason and "\n" not in reason for reason in outcome.reasons)


RATES = [0.0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0]


@pytest.mark.parametrize("rate", RATES)
def test_every_small_batch_against_a_rate(rate):
    """A rate is of all rows, is met exactly, and counts whatever the level."""
    exact = Fraction(str(rate))
    for kinds in BATCHES:
        passed = Fraction(kinds.count("auto-pass"), len(kinds))
        left = Fraction(kinds.count("human-review") + kinds.count("error"), len(kinds))
        least = decide(Gate(fail_on=FailOn.NEVER, min_pass_rate=rate), counted(kinds))
        most = decide(Gate(fail_on=FailOn.NEVER, max_review_rate=rate), counted(kinds))

        assert (kinds, least.code) == (kinds, 1 if passed < exact else 0)
        assert (kinds, most.code) == (kinds, 1 if left > exact else 0)


def test_seven_of_ten_is_a_pass_rate_of_0_7():
    """0.7 is the decimal that was written: the float below it would let 6.9999 of 10 pass, the one above stop 7."""
    counts = counted(["auto-pass"] * 7 + ["auto-fail"] * 3)

    assert decide(Gate(fail_on=FailOn.NEVER, min_pass_rate=0.7), counts).passed


def test_a_breached_rate_outranks_reviews_but_not_errors():
    gate = Gate(fail_on=FailOn.REVIEW, min_pass_rate=0.9)

    assert decide(gate, counted(["auto-pass", "human-review"])).code == 1
    assert decide(gate, counted(["auto-pass", "error"])).code == 4


@pytest.mark.parametrize("level", FailOn)
def test_no_rows_are_no_pass(level):
    assert decide(Gate(fail_on=level), Counts()).code == 5


def test_a_shard_may_hold_no_rows():
    assert decide(Gate(min_pass_rate=1.0), Counts(), may_be_empty=True).passed


@pytest.mark.parametrize(("level", "code"), [("never", 0), ("error", 4), ("fail", 4), ("review", 4)])
def test_half_an_answer_opens_no_gate(level, code):
    outcome = decide(Gate(fail_on=FailOn(level)), counted(["auto-pass"]), unfinished=True)

    assert code == outcome.code


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan"), float("inf"), True, "0.5"])
@pytest.mark.parametrize("name", ["min_pass_rate", "max_review_rate"])
def test_a_rate_is_a_share(name, rate):
    with pytest.raises(UsageError, match="not a number within"):
        Gate(**{name: rate})


def test_the_reasons_name_everything_that_stopped_it():
    gate = Gate(fail_on=FailOn.REVIEW, min_pass_rate=0.5, max_review_rate=0.25)
    outcome = decide(gate, counted(KINDS))

    assert str(outcome) == (
        "gate failed: 1 of 4 rows could not be judged (--fail-on review); 1 of 4 rows auto-fail (--fail-on review); "
        "1 of 4 rows auto-pass, below --min-pass-rate 0.5; 2 of 4 rows left to a person, above --max-review-rate 0.25; "
        "1 of 4 rows human-review (--fail-on review)"
    )


def test_a_pass_says_what_was_counted():
    outcome = decide(Gate(), counted(["auto-pass", "auto-pass", "human-review"]))

    assert str(outcome) == "gate passed: 2 auto-pass, 1 human-review (--fail-on fail)"


@pytest.mark.parametrize("level", FailOn)
def test_levels_hold_each_other(level):
    order = list(FailOn)

    assert {one for one in FailOn if level.stops_at(one)} == set(order[1 : order.index(level) + 1])
