"""What a batch comes to, for a person and for a machine: counts, and what labelled rows say of the judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from judge_local.cli.batch_progress import human_time
from judge_local.cli.output import Line

if TYPE_CHECKING:
    from judge_local.batch.runner import Standing
    from judge_local.counts import Counts
    from judge_local.report.gate import Outcome


def summary_json(standing: Standing, path: str, exit_code: int, outcome: Outcome | None) -> dict[str, Any]:
    """The summary for a machine.

    Args:
        standing: of a batch that has ended.
        path: of the results file.
        exit_code: that the command ends with.
        outcome: what the gate came to; None where the batch was interrupted.
    """
    facts = {
        "results": path,
        "ended": None if standing.ended is None else standing.ended.value,
        "rows": standing.rows,
        "judged": standing.judged,
        "judgedBefore": standing.found,
        "changedSince": standing.changed,
        "seconds": round(standing.seconds, 3),
        "verdicts": standing.verdicts,
        "counts": standing.counts.to_json(),
        "gate": None if outcome is None else outcome.to_json(),
        "exitCode": exit_code,
    }
    return {key: value for key, value in facts.items() if value is not None}


def summary_lines(standing: Standing, path: str) -> Iterator[Line]:
    """The summary for a person."""
    counts = standing.counts
    before = (
        f", {counts.results - standing.judged:,} of them before" if standing.judged < counts.results else ""
    )
    yield Line(f"{counts.results:,} results{before}: {path}", style="bold")
    yield from zone_lines(counts)
    if standing.judged:
        rate = 60 * standing.verdicts / standing.seconds
        yield Line(f"{human_time(standing.seconds)}, {rate:,.0f} verdicts a minute", indent=1, label="time")
    if counts.labels:
        yield from label_lines(counts)


def zone_lines(counts: Counts) -> Iterator[Line]:
    """How many results are in each zone."""
    styles = {"auto-pass": "green", "auto-fail": "red", "human-review": "yellow"}
    for zone, style in styles.items():
        errors = f", {counts.errors:,} of them errored" if zone == "human-review" and counts.errors else ""
        share = counts.zones[zone] / max(counts.results, 1)
        yield Line(f"{counts.zones[zone]:,} ({share:.1%}){errors}", indent=1, label=zone, style=style)


def label_lines(counts: Counts) -> Iterator[Line]:
    """What became of the labelled rows: a row a label, and what the zones would have settled rightly."""
    from judge_local.counts import ERROR

    columns = ("pass", "fail", ERROR, "auto-pass", "auto-fail", "human-review")
    names = sorted(counts.labels, key=lambda label: (_RANK.get(label, len(_RANK)), label))
    width = max(len("label"), *map(len, names))
    yield Line(f"{'label':<{width}}  {'  '.join(f'{column:>{_WIDE}}' for column in columns)}", style="bold")
    for name in names:
        of = counts.labels[name]
        cells = [of.verdicts[column] + of.zones[column] for column in columns]
        yield Line(f"{name:<{width}}  {'  '.join(f'{cell:>{_WIDE},}' for cell in cells)}")
    if not set(names) <= _RANK.keys():
        return
    labelled = sum(of.zones.total() for of in counts.labels.values())
    for zone, right in (("auto-pass", ("pass",)), ("auto-fail", ("fail", "partial"))):
        settled = sum(of.zones[zone] for of in counts.labels.values())
        agreeing = sum(counts.labels[name].zones[zone] for name in right if name in counts.labels)
        if settled:
            yield Line(
                f"{agreeing:,} of {settled:,} {zone} agree with their label ({agreeing / settled:.1%})"
            )
    review = sum(of.zones["human-review"] for of in counts.labels.values())
    yield Line(f"{review:,} of {labelled:,} labelled rows go to a person ({review / labelled:.1%})")


_RANK: Final = {"pass": 0, "partial": 1, "fail": 2}
_WIDE: Final = 12
