"""Consensus: what the runs of an ensemble say when they are read together.

Four conventions, and the rest follows:

* `partial` weighs as a fail for the verdict and stays visible in the votes.
* A tie is not a pass.
* An errored run tells of the judge, not of the claim: it is counted, and kept out of every ratio. `zones` is where it
  costs something.
* Confidence is read as the decimal that was written, so three runs at 0.95 have a mean of exactly 0.95.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from judge_local.run import JudgeRun, runs_from_json
from judge_local.verdict import Match


@dataclass(frozen=True, slots=True, kw_only=True)
class Votes:
    """How many runs said what."""

    passes: int = 0
    fails: int = 0
    partials: int = 0
    errors: int = 0

    @property
    def against(self) -> int:
        """Votes that weigh against the claim: fails and partials."""
        return self.fails + self.partials

    @property
    def graded(self) -> int:
        """Runs that gave a verdict."""
        return self.passes + self.against

    def to_json(self) -> dict[str, int]:
        """The file format: `pass`, `fail`, `partial`, `error`."""
        return {"pass": self.passes, "fail": self.fails, "partial": self.partials, "error": self.errors}

    def __str__(self) -> str:
        return f"{self.passes} pass, {self.fails} fail, {self.partials} partial, {self.errors} errored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """The runs of one ensemble, and what they come to. Made by `compute_consensus`."""

    runs: tuple[JudgeRun, ...]
    votes: Votes
    verdict: Match
    """`PASS` or `FAIL`, never `PARTIAL`."""
    agreement: float
    """The larger side's share of the graded runs, 0..1; 0 when nothing was graded."""
    mean_confidence: float
    """Mean self-reported confidence of the graded runs, 0..1; 0 when nothing was graded."""

    def to_json(self) -> dict[str, Any]:
        """The file format, runs included."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "votes": self.votes.to_json(),
            "verdict": self.verdict.value,
            "agreement": self.agreement,
            "meanConfidence": self.mean_confidence,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Consensus:
        """Read the runs of the file format; everything else is computed from them again.

        Raises:
            UsageError: `runs` is not a list of runs.
        """
        return compute_consensus(runs_from_json(data.get("runs")))


def exact(number: float) -> Fraction:
    """`number` as the decimal a person would write for it, without rounding.

    >>> exact(0.95)
    Fraction(19, 20)
    """
    return Fraction(repr(float(number)))


def exact_mean_confidence(runs: Iterable[JudgeRun]) -> Fraction:
    """Mean confidence of the graded runs, unrounded: what thresholds are compared with. 0 when nothing was graded."""
    confidences = [exact(run.verdict.confidence) for run in runs if run.verdict is not None]
    return sum(confidences, Fraction()) / max(len(confidences), 1)


def compute_consensus(runs: Iterable[JudgeRun]) -> Consensus:
    """Read `runs` together. Total: defined for no runs, and for runs none of which answered.

    Returns:
        `PASS` only where passes outnumber fails and partials together.
    """
    runs = tuple(runs)
    said = [run.verdict.match if run.verdict is not None else None for run in runs]
    votes = Votes(
        passes=said.count(Match.PASS),
        fails=said.count(Match.FAIL),
        partials=said.count(Match.PARTIAL),
        errors=said.count(None),
    )
    return Consensus(
        runs=runs,
        votes=votes,
        verdict=Match.PASS if votes.passes > votes.against else Match.FAIL,
        agreement=max(votes.passes, votes.against) / max(votes.graded, 1),
        mean_confidence=float(exact_mean_confidence(runs)),
    )
