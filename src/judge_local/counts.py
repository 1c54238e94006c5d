"""Counts: how many results there are of each kind, kept while they stream by, so that nobody holds or reads them twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from judge_local.results import Result
from judge_local.zones import Zone

MOST_LABELS: Final = 50
"""Labels counted one by one; a column that holds something else than labels has more, and they are counted together."""

OTHER_LABELS: Final = "(other labels)"
ERROR: Final = "error"
"""Stands for the verdict of a row that has none."""


@dataclass(slots=True)
class LabelCounts:
    """What became of the rows with one label."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """By verdict, or `ERROR`."""
    zones: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Counts:
    """How many results there are, and of what kind."""

    results: int = 0
    errors: int = 0
    """Rows without any verdict."""
    zones: Counter[str] = field(default_factory=Counter)
    """Errors are among those for human review."""
    labels: dict[str, LabelCounts] = field(default_factory=dict)
    milliseconds: float = 0.0
    """What all runs took together, those from the cache left out."""

    @classmethod
    def of(cls, results: Iterable[Result]) -> Counts:
        """Count `results`, which may be a stream of any length."""
        counts = cls()
        for result in results:
            counts.add(result)
        return counts

    @property
    def passes(self) -> int:
        """Rows that passed by themselves."""
        return self.zones[Zone.AUTO_PASS.value]

    @property
    def fails(self) -> int:
        """Rows that failed by themselves."""
        return self.zones[Zone.AUTO_FAIL.value]

    @property
    def reviews(self) -> int:
        """Rows that were judged and that a person must read: human review without the errors."""
        return self.zones[Zone.HUMAN_REVIEW.value] - self.errors

    def add(self, result: Result) -> None:
        """Count one more."""
        self.results += 1
        failed = result.fault is not None
        self.errors += failed
        zone = result.decision.zone.value
        self.zones[zone] += 1
        self.milliseconds += sum(run.duration_ms for run in result.decision.runs if not run.cached)
        if result.label is None:
            return
        label = result.label
        if label not in self.labels:
            label = label if len(self.labels) < MOST_LABELS else OTHER_LABELS
            self.labels.setdefault(label, LabelCounts())
        of_label = self.labels[label]
        of_label.verdicts[ERROR if failed else result.decision.verdict.value] += 1
        of_label.zones[zone] += 1

    def to_json(self) -> dict[str, Any]:
        """The counts for a machine; every zone is there, labels only where rows had them."""
        counts: dict[str, Any] = {
            "results": self.results,
            "errors": self.errors,
            "zones": {zone.value: self.zones[zone.value] for zone in Zone},
        }
        if self.labels:
            counts["labels"] = {
                label: {
                    "verdicts": {verdict: of.verdicts[verdict] for verdict in ("pass", "fail", ERROR)},
                    "zones": {zone.value: of.zones[zone.value] for zone in Zone},
                }
                for label, of in sorted(self.labels.items())
            }
        return counts
