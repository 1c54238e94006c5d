"""Counts: how many results there are of each kind, kept while they are written, so that nobody reads the file again."""

from __future__ import annotations

from collections import Counter
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
    """Rows that could not be judged."""
    zones: Counter[str] = field(default_factory=Counter)
    """Errors are among those for human review."""
    labels: dict[str, LabelCounts] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """Count one more."""
        self.results += 1
        self.errors += result.error is not None
        zone = result.decision.zone.value
        self.zones[zone] += 1
        if result.label is None:
            return
        label = result.label
        if label not in self.labels:
            label = label if len(self.labels) < MOST_LABELS else OTHER_LABELS
            self.labels.setdefault(label, LabelCounts())
        of_label = self.labels[label]
        of_label.verdicts[ERROR if result.error is not None else result.decision.verdict.value] += 1
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
