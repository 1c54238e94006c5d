"""GitHub Actions: annotations as workflow commands, and the table of the step's summary.

* The runner shows ten annotations of a kind for a step and drops the rest in silence; so at most ten are made, and the
  tenth says how many more there would be.
* A summary of more than 1 MiB is refused whole; so it is cut before, with a line that says so.
* A claim is text: it can neither end a workflow command nor become Markdown.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping
from typing import Final

from judge_local.counts import ERROR, Counts
from judge_local.printable import clean, one_line
from judge_local.report.decision import NOT_JUDGED, kind_of, why
from judge_local.report.gate import FailOn, Outcome
from judge_local.results import Result, ResultsHeader
from judge_local.zones import Zone

MOST_ANNOTATIONS: Final = 10
"""Of one kind, for one step."""
MESSAGE_CHARS: Final = 1000
TITLE_CHARS: Final = 120
CELL_CHARS: Final = 300
SUMMARY_BYTES: Final = 1024 * 1024 - 1
"""The longest summary of a step, in bytes of UTF-8."""

_ORDER: Final = (NOT_JUDGED, Zone.AUTO_FAIL.value, Zone.HUMAN_REVIEW.value)
"""What a person should read first."""
_LEVELS: Final[Mapping[str, FailOn]] = {
    NOT_JUDGED: FailOn.ERROR,
    Zone.AUTO_FAIL.value: FailOn.FAIL,
    Zone.HUMAN_REVIEW.value: FailOn.REVIEW,
}
# What can begin or end markup, a mention, a reference, an emoji, a formula or a link.
_MARKDOWN: Final = re.compile(r"[!#$&*:<>@\[\\\]_`|~]|(?<=www)\.", re.IGNORECASE)


def command(name: str, message: str, properties: Mapping[str, str]) -> str:
    r"""One workflow command, escaped by the runner's rules.

    >>> command("error", "50 %\n::debug::x", {"title": "a, b: c"})
    '::error title=a%2C b%3A c::50 %25%0A::debug::x'
    """
    pairs = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{' ' if pairs else ''}{pairs}::{_data(message)}"


def _data(text: str) -> str:
    # What is left of carriage returns after cleaning is shown as an escape, so only the other two are needed.
    return clean(text.replace("\r\n", "\n")).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


class Annotations:
    """The annotations of one results file: errors for what stops the gate at its level, warnings for the rest.

    Args:
        fail_on: what stops the gate.
    """

    def __init__(self, fail_on: FailOn) -> None:
        self._fail_on = fail_on
        self._counts = {"error": 0, "warning": 0}
        # The first rows in the order of the rows, whatever the order of the results: a heap of (-row, line).
        self._first: dict[str, list[tuple[int, str]]] = {"error": [], "warning": []}

    def add(self, result: Result) -> None:
        """Take in `result`."""
        kind = kind_of(result)
        if kind is None:
            return
        level = "error" if self._fail_on.stops_at(_LEVELS[kind]) else "warning"
        self._counts[level] += 1
        kept = self._first[level]
        if len(kept) == MOST_ANNOTATIONS and -result.row < kept[0][0]:
            return
        title = one_line(f"{kind}: {result.id}", TITLE_CHARS)
        message = f"{one_line(result.claim, MESSAGE_CHARS)}\n{why(result, limit=MESSAGE_CHARS)}"
        line = command(level, message, {"file": result.subject_file or "", "title": title})
        heapq.heappush(kept, (-result.row, line))
        if len(kept) > MOST_ANNOTATIONS:
            heapq.heappop(kept)

    def lines(self, outcome: Outcome) -> Iterator[str]:
        """The workflow commands, at most ten of a kind, and one that says what the gate said."""
        for level, kept in self._first.items():
            lines = [line for _, line in sorted(kept, reverse=True)]
            if self._counts[level] > MOST_ANNOTATIONS:
                more = self._counts[level] - (MOST_ANNOTATIONS - 1)
                text = f"{more:,} more rows: see the job's summary or the results file"
                lines[MOST_ANNOTATIONS - 1 :] = [command(level, text, {"title": "judge-local"})]
            yield from lines
        yield command("notice", str(outcome), {"title": "judge-local"})


def markdown(text: str, *, limit: int = CELL_CHARS) -> str:
    """`text` on one line, so that Markdown shows it as it is: no link, no mention, no tag, no cell of a table ends in it.

    >>> markdown("a|<b>")
    'a&#124;&#60;b&#62;'
    """
    return _MARKDOWN.sub(lambda found: f"&#{ord(found[0])};", one_line(text, limit))


class Summary:
    """The summary of one results file as Markdown.

    Args:
        header: what the results were made with.
        counts: of all results.
        outcome: what the gate said.
        room: bytes that are left for it.
    """

    def __init__(
        self, header: ResultsHeader, counts: Counts, outcome: Outcome, *, room: int = SUMMARY_BYTES
    ) -> None:
        self._head = "\n".join(_head(header, counts, outcome)) + "\n"
        self._room = room
        self._rows: dict[str, list[str]] = {kind: [] for kind in _ORDER}
        self._bytes = dict.fromkeys(_ORDER, 0)
        self._all = 0

    def add(self, result: Result) -> None:
        """Take in `result`; rows beyond what could ever fit are only counted."""
        kind = kind_of(result)
        if kind is None:
            return
        self._all += 1
        if self._bytes[kind] > self._room:
            return
        cells = (
            str(result.row),
            markdown(result.id),
            markdown(kind),
            markdown(result.claim),
            markdown(why(result, limit=CELL_CHARS)),
        )
        row = f"| {' | '.join(cells)} |\n"
        self._rows[kind].append(row)
        self._bytes[kind] += len(row.encode())

    def text(self) -> str:
        """The whole summary, no longer than its room; empty where not even its head fits."""
        cut = f"\n{{}} of {self._all:,} rows are shown: a summary may hold no more than 1 MiB.\n"
        left = self._room - len(self._head.encode()) - len(cut.encode()) - 20
        if left < 0:
            return ""
        parts, shown = [self._head], 0
        title = "\n| row | id | kind | claim | why |\n| ---: | --- | --- | --- | --- |\n"
        left -= len(title)
        if self._all and left >= 0:
            parts.append(title)
            for row in (row for kind in _ORDER for row in self._rows[kind]):
                left -= len(row.encode())
                if left < 0:
                    break
                parts.append(row)
                shown += 1
        if shown < self._all:
            parts.append(cut.format(f"{shown:,}"))
        return "".join(parts)


def _head(header: ResultsHeader, counts: Counts, outcome: Outcome) -> Iterator[str]:
    yield f"### judge-local: {'passed' if outcome.passed else 'failed'}"
    yield ""
    yield from (f"* {markdown(reason)}" for reason in outcome.reasons)
    yield ""
    yield "| kind | rows | share |"
    yield "| --- | ---: | ---: |"
    kinds = (
        (Zone.AUTO_PASS.value, counts.passes),
        (Zone.AUTO_FAIL.value, counts.fails),
        (Zone.HUMAN_REVIEW.value, counts.reviews),
        (NOT_JUDGED, counts.errors),
    )
    for kind, rows in kinds:
        yield f"| {kind} | {rows:,} | {100 * rows / max(counts.results, 1):.1f} % |"
    yield f"| all | {counts.results:,} | |"
    if counts.labels:
        yield ""
        yield "| label | verdict pass | verdict fail | not judged | auto-pass | auto-fail | human-review |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
        for label, of in sorted(counts.labels.items()):
            numbers = [of.verdicts[verdict] for verdict in ("pass", "fail", ERROR)]
            numbers += [of.zones[zone.value] for zone in Zone]
            yield f"| {markdown(label)} | {' | '.join(f'{number:,}' for number in numbers)} |"
    yield ""
    known = (
        "of unknown weights" if header.model_sha256 is None else f"weights {markdown(header.model_sha256)}"
    )
    yield f"Model {markdown(header.model)}, {known}"
