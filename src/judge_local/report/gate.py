"""The gate: which exit code the counts of a batch come to, and why.

* Levels hold each other: `never` < `error` < `fail` < `review`, and each also stops at what those before it stop at.
* A rate that is asked for is a gate of its own, whatever the level. Rates are exact fractions of all rows: a row that
  could not be judged did not pass, and a person has to look at it.
* No rows are no pass: they are nothing to judge.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from judge_local.consensus import exact
from judge_local.counts import Counts
from judge_local.errors import UsageError, excerpt

NOTHING_TO_JUDGE: Final = 5
"""The exit code where there are no rows."""

_CODES: Final = (0, 3, 1, 4)
"""From best to worst. A row without a decision outranks any decision, as it does in `judge`."""


class FailOn(StrEnum):
    """What stops the gate; each level also stops at what those before it stop at."""

    NEVER = "never"
    ERROR = "error"
    FAIL = "fail"
    REVIEW = "review"

    def stops_at(self, level: FailOn) -> bool:
        """Whether a gate of this level stops at a row of `level`."""
        order = tuple(FailOn)
        return order.index(level) <= order.index(self) and level is not FailOn.NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What a batch must come to.

    Raises:
        UsageError: a rate is not a number within 0..1.
    """

    fail_on: FailOn = FailOn.FAIL
    min_pass_rate: float | None = None
    """The least share of all rows that must be auto-pass, 0..1."""
    max_review_rate: float | None = None
    """The largest share of all rows that may be left to a person, errors included, 0..1."""

    def __post_init__(self) -> None:
        rates = {"--min-pass-rate": self.min_pass_rate, "--max-review-rate": self.max_review_rate}
        for name, rate in rates.items():
            number = isinstance(rate, int | float) and not isinstance(rate, bool)
            if rate is not None and (not number or not 0 <= rate <= 1):
                raise UsageError(name, f"{excerpt(rate)} is not a number within 0..1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a gate said."""

    code: int
    """0 passed; 1 an auto-fail or a breached rate; 3 review needed; 4 a row could not be judged; 5 nothing to judge."""
    reasons: tuple[str, ...]
    """Why, each on one line, the weightiest first."""

    @property
    def passed(self) -> bool:
        """Whether the gate is open."""
        return self.code == 0

    def to_json(self) -> dict[str, Any]:
        """The outcome for a machine."""
        return {"passed": self.passed, "reasons": list(self.reasons)}

    def __str__(self) -> str:
        return f"gate {'passed' if self.passed else 'failed'}: {'; '.join(self.reasons)}"


def decide(gate: Gate, counts: Counts, *, unfinished: bool = False, may_be_empty: bool = False) -> Outcome:
    """What `gate` says of `counts`.

    Args:
        gate: what is asked for.
        counts: of all results.
        unfinished: whether time ran out before every row had a result. Rows without a decision weigh as errors do.
        may_be_empty: whether no rows at all are fine, as for one shard of a few rows.
    """
    total = counts.results
    if not total:
        if may_be_empty:
            return Outcome(code=0, reasons=("this shard holds no rows",))
        return Outcome(code=NOTHING_TO_JUDGE, reasons=("there are no rows, so nothing was judged",))
    found: list[tuple[int, str]] = []
    level = f"--fail-on {gate.fail_on.value}"
    if counts.errors and gate.fail_on.stops_at(FailOn.ERROR):
        found.append((4, f"{_rows(counts.errors, total)} could not be judged ({level})"))
    if unfinished and gate.fail_on.stops_at(FailOn.ERROR):
        found.append((4, f"time ran out before all rows were judged ({level})"))
    if counts.fails and gate.fail_on.stops_at(FailOn.FAIL):
        found.append((1, f"{_rows(counts.fails, total)} auto-fail ({level})"))
    if gate.min_pass_rate is not None and counts.passes < exact(gate.min_pass_rate) * total:
        share = f"{_rows(counts.passes, total)} auto-pass, below --min-pass-rate {gate.min_pass_rate}"
        found.append((1, share))
    left = counts.reviews + counts.errors
    if gate.max_review_rate is not None and left > exact(gate.max_review_rate) * total:
        share = f"{_rows(left, total)} left to a person, above --max-review-rate {gate.max_review_rate}"
        found.append((1, share))
    if counts.reviews and gate.fail_on.stops_at(FailOn.REVIEW):
        found.append((3, f"{_rows(counts.reviews, total)} human-review ({level})"))
    if not found:
        return Outcome(code=0, reasons=(f"{_summary(counts)} ({level})",))
    return Outcome(
        code=max((code for code, _ in found), key=_CODES.index), reasons=tuple(reason for _, reason in found)
    )


def _rows(count: int, total: int) -> str:
    return f"{count:,} of {total:,} row{'' if total == 1 else 's'}"


def _summary(counts: Counts) -> str:
    facts = (
        (counts.passes, "auto-pass"),
        (counts.fails, "auto-fail"),
        (counts.reviews, "human-review"),
        (counts.errors, "not judged"),
    )
    return ", ".join(f"{count:,} {name}" for count, name in facts if count)
