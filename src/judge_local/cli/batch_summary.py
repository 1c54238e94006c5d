"""What a batch comes to: counts, what labelled rows say of the judge, and the one place where its exit code is decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from judge_local.cli.batch_progress import human_time
from judge_local.cli.output import Line

if TYPE_CHECKING:
    from judge_local.batch.counts import Counts
    from judge_local.batch.runner import Standing

NOTHING_TO_JUDGE: Final = 5


def batch_exit_code(standing: Standing, fail_on: str) -> int:
    """0 where the gate opens; else the worst of what keeps it shut: 3 (review) < 1 (auto-fail) < 4 (no decision).

    A batch that its time budget ended has rows without a decision, which weigh as errors do: a gate must not open on
    half an answer.

    Args:
        standing: of a batch that has ended.
        fail_on: `never`, `error`, `fail` or `review`; each includes those before it.
    """
    from judge_local.batch.runner import Ended

    counts = standing.counts
    if not counts.results:
        return NOTHING_TO_JUDGE
    level = ("never", "error", "fail", "review").index(fail_on)
    if level >= 1 and (counts.errors or standing.ended is Ended.TIME):
        return 4
    if level >= 2 and counts.zones["auto-fail"]:
        return 1
    return 3 if level >= 3 and counts.zones["human-review"] else 0


def summary_json(standing: Standing, path: str, exit_code: int) -> dict[str, Any]:
    """The summary for a machine.

    Args:
        standing: of a batch that has ended.
        path: of the results file.
        exit_code: that the command ends with.
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
    styles = {"auto-pass": "green", "auto-fail": "red", "human-review": "yellow"}
    for zone, style in styles.items():
        errors = f", {counts.errors:,} of them errored" if zone == "human-review" and counts.errors else ""
        share = counts.zones[zone] / max(counts.results, 1)
        yield Line(f"{counts.zones[zone]:,} ({share:.1%}){errors}", indent=1, label=zone, style=style)
    if standing.judged:
        rate = 60 * standing.verdicts / standing.seconds
        yield Line(f"{human_time(standing.seconds)}, {rate:,.0f} verdicts a minute", indent=1, label="time")
    if counts.labels:
        yield from label_lines(counts)


def label_lines(counts: Counts) -> Iterator[Line]:
    """What became of the labelled rows: a row a label, and what the zones would have settled rightly."""
    from judge_local.batch.counts import ERROR

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
