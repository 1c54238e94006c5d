"""Zones: which consensus may settle itself, and which one a person must read.

Only a unanimous, error-free and confident ensemble settles itself; in doubt the answer is a person. Thresholds are a
second gate behind the votes and can never open the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from judge_local.consensus import Consensus, compute_consensus, exact, exact_mean_confidence
from judge_local.errors import UsageError, excerpt
from judge_local.run import runs_from_json


class Zone(StrEnum):
    """Where a consensus goes."""

    AUTO_PASS = "auto-pass"
    AUTO_FAIL = "auto-fail"
    HUMAN_REVIEW = "human-review"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneThresholds:
    """The least mean confidence at which a unanimous ensemble settles itself, for each side.

    Raises:
        UsageError: a threshold is not a number within 0..1.
    """

    auto_pass: float = 0.8
    auto_fail: float = 0.8

    def __post_init__(self) -> None:
        for name, value in (("auto_pass", self.auto_pass), ("auto_fail", self.auto_fail)):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not 0 <= value <= 1:
                raise UsageError(name, f"{excerpt(value)} is not a number within 0..1", "The default is 0.8.")


DEFAULT_ZONES: Final = ZoneThresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusResult(Consensus):
    """A consensus with the zone it goes to."""

    zone: Zone
    distinct_runs: int
    """How many different questions the runs answered. Fewer than `runs` means that some are replays of others."""
    replays: bool
    """Whether some runs only repeat others: their agreement is worth nothing."""

    def to_json(self) -> dict[str, Any]:
        """The file format, runs included."""
        return {
            # `super()` without arguments does not work in a slotted dataclass.
            **Consensus.to_json(self),
            "zone": self.zone.value,
            "distinctRuns": self.distinct_runs,
            "replays": self.replays,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ConsensusResult:
        """Read the file format. Votes and ratios are computed from the runs again; the zone is taken as it stands.

        Raises:
            UsageError: a key is missing or has the wrong type.
        """
        distinct, replays = data.get("distinctRuns"), data.get("replays")
        if isinstance(distinct, bool) or not isinstance(distinct, int) or not isinstance(replays, bool):
            raise UsageError("result", f"distinctRuns {excerpt(distinct)}, replays {excerpt(replays)}")
        try:
            zone = Zone(data["zone"])
        except (KeyError, ValueError):
            raise UsageError("result", f"zone is {excerpt(data.get('zone'))}") from None
        consensus = compute_consensus(runs_from_json(data.get("runs")))
        return in_zone(consensus, zone, distinct_runs=distinct, replays=replays)


def in_zone(consensus: Consensus, zone: Zone, *, distinct_runs: int, replays: bool) -> ConsensusResult:
    """`consensus` with the zone it goes to."""
    return ConsensusResult(
        runs=consensus.runs,
        votes=consensus.votes,
        verdict=consensus.verdict,
        agreement=consensus.agreement,
        mean_confidence=consensus.mean_confidence,
        zone=zone,
        distinct_runs=distinct_runs,
        replays=replays,
    )


def zone_for(consensus: Consensus, thresholds: ZoneThresholds = DEFAULT_ZONES) -> Zone:
    """Route `consensus`. Everything that does not clearly settle itself goes to a person.

    The comparison is exact: the mean of the decimals that were written against the decimal of the threshold.
    """
    votes = consensus.votes
    if votes.errors or not votes.graded:
        return Zone.HUMAN_REVIEW
    # A consensus that was put together without its runs has only its mean.
    sure = exact_mean_confidence(consensus.runs) if consensus.runs else exact(consensus.mean_confidence)
    if not votes.against and sure >= exact(thresholds.auto_pass):
        return Zone.AUTO_PASS
    if not votes.passes and sure >= exact(thresholds.auto_fail):
        return Zone.AUTO_FAIL
    return Zone.HUMAN_REVIEW
