"""A decision as a person reads it: the zone first, then what it rests on, then every run.

Pure: a result goes in, lines come out. Where they are shown is `output`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from judge_local.cli.output import Line
from judge_local.results import Result
from judge_local.run import JudgeRun
from judge_local.verdict import Match
from judge_local.zones import Zone

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
