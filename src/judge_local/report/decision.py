"""A decision as a person reads it: the zone first, then what it rests on, then every run.

Pure: a result goes in, lines come out; whoever shows them knows a terminal, a pipe or a report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from judge_local.printable import clean, one_line
from judge_local.results import Result
from judge_local.run import JudgeRun
from judge_local.verdict import Match
from judge_local.zones import Zone


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a report, before it is known where it is shown."""

    text: str
    indent: int = 0
    """Steps of two characters."""
    label: str = ""
    """What the text is, in front of it."""
    style: str = ""
    """A style of the library rich, such as `bold green`; plain text shows none of it."""


LABEL_WIDTH: Final = 11
NOT_JUDGED: Final = "not judged"
"""What a row without any verdict is called."""


def plain(line: Line) -> str:
    """`line` as plain text: indented, its label in front, on one line whatever it holds."""
    # One fact a line, for grep: a line end inside a text is shown, not printed.
    text = clean(line.text).replace("\n", "\\n")
    return f"{'  ' * line.indent}{f'{line.label:<{LABEL_WIDTH}} ' if line.label else ''}{text}".rstrip()


_ZONE_STYLE: Final = {
    Zone.AUTO_PASS: "bold green",
    Zone.AUTO_FAIL: "bold red",
    Zone.HUMAN_REVIEW: "bold yellow",
}
_MATCH_STYLE: Final = {Match.PASS: "green", Match.FAIL: "red", Match.PARTIAL: "yellow"}


def decision_lines(result: Result, *, seconds: float) -> Iterator[Line]:
    """The lines that show `result`.

    Args:
        result: what was decided.
        seconds: wall time of the decision.
    """
    decision = result.decision
    votes = decision.votes
    yield Line(f"{decision.zone.value}: {result.claim}", style=_ZONE_STYLE[decision.zone])
    if result.error is not None:
        yield Line(result.error, indent=1, label="error", style="yellow")
    yield Line(str(votes), indent=1, label="votes")
    if votes.graded:
        yield Line(f"{decision.agreement:.2f} of the graded runs agree", indent=1, label="agreement")
        # Not rounded to two places: 0.799 must not look like the threshold it missed.
        yield Line(f"{decision.mean_confidence:g} on average, self-reported", indent=1, label="confidence")
    repeats = "; the rest repeat others and add nothing" if decision.replays else ""
    yield Line(f"{decision.distinct_runs} distinct of {len(decision.runs)}{repeats}", indent=1, label="runs")
    for model in dict.fromkeys(f"{run.provider} {run.model}" for run in decision.runs):
        yield Line(model, indent=1, label="model")
    yield Line(f"{_tokens(decision.runs)}{seconds:.1f} s", indent=1, label="cost")
    if not result.certified:
        yield Line(
            "uncertified: nothing proves how often this model and set-up decide wrongly",
            indent=1,
            label="certificate",
            style="dim",
        )
    for number, run in enumerate(decision.runs, 1):
        yield from _run_lines(number, run)


def seconds_of(runs: tuple[JudgeRun, ...]) -> float:
    """What `runs` took, in seconds; nothing for those from the cache."""
    return sum(run.duration_ms for run in runs if not run.cached) / 1000


def kind_of(result: Result) -> str | None:
    """Which of the things that need a person `result` is; None for an auto-pass."""
    if result.fault is not None:
        return NOT_JUDGED
    zone = result.decision.zone
    return None if zone is Zone.AUTO_PASS else zone.value


def why(result: Result, *, limit: int) -> str:
    """The reason for a decision on one line: the fault, or the votes and what the run that weighs most gave as its own.

    Args:
        result: what was decided.
        limit: the longest reason, in characters.
    """
    if result.fault is not None:
        return one_line(result.fault, limit)
    decision = result.decision
    graded = [run.verdict for run in decision.runs if run.verdict is not None]
    # One voice against the claim is why it did not pass.
    speaks = next((verdict for verdict in graded if verdict.match is not Match.PASS), graded[0])
    votes = f"{decision.votes}; mean confidence {decision.mean_confidence:g}"
    return one_line(f"{votes}. {speaks.match.value}: {speaks.reasoning}", limit)


def _run_lines(number: int, run: JudgeRun) -> Iterator[Line]:
    cached = ", from the cache" if run.cached else ""
    label = f"run {number}"
    if run.verdict is None:
        yield Line(f"errored{cached}: {run.error}", indent=1, label=label, style="yellow")
        if run.raw:
            yield Line(run.raw, indent=2, label="raw")
    else:
        verdict = run.verdict
        confidence = f"confidence {verdict.confidence}"
        yield Line(
            f"{verdict.match.value}, {confidence}{cached}",
            indent=1,
            label=label,
            style=_MATCH_STYLE[verdict.match],
        )
        yield Line(verdict.observed, indent=2, label="observed")
        yield Line(verdict.reasoning, indent=2, label="reasoning")
        for name, value in verdict.extra.items():
            yield Line(f"{name}: {value}", indent=2, label="also")
        for place, options in (run.probabilities or {}).items():
            shares = ", ".join(f"{option} {share:.3f}" for option, share in options.items())
            yield Line(f"{shares} ({place})", indent=2, label="measured")
    if run.slot is not None:
        instead = "" if run.substituted_for is None else f": {run.model} for {run.substituted_for}"
        yield Line(f"{run.slot}, {run.via}{instead}", indent=2, label="seat")
    for note in run.notes:
        yield Line(f"{note.kind}: {note.detail}", indent=2, label="note", style="yellow")


def _tokens(runs: tuple[JudgeRun, ...]) -> str:
    usages = [run.usage for run in runs if run.usage is not None and not run.cached]
    if not usages:
        return ""
    read, written = sum(u.input_tokens for u in usages), sum(u.output_tokens for u in usages)
    return f"{read:,} tokens in, {written:,} out, "
