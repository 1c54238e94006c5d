"""`judge-local batch --dry-run`: what a batch would find and take, told before it is begun."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from judge_local.cli.batch_progress import human_time
from judge_local.cli.output import Line
from judge_local.report.gate import NOTHING_TO_JUDGE

if TYPE_CHECKING:
    from judge_local.batch.digests import DigestSet
    from judge_local.batch.dry_run import DryRun
    from judge_local.cli.batch_call import BatchCall, BatchOptions
    from judge_local.cli.batch_progress import BatchProgress
    from judge_local.providers.base import InferenceProvider


def report_dry_run(
    options: BatchOptions, call: BatchCall, provider: InferenceProvider, progress: BatchProgress
) -> int:
    """Make the dry run, print what it found, and return the exit code. Ends the provider."""
    from judge_local.cli.output import emit_json, show

    report = asyncio.run(_run(call, provider, progress))
    if options.json:
        emit_json(report.to_json())
    else:
        show(_lines(report, runs=options.runs))
    return 0 if report.rows else NOTHING_TO_JUDGE


async def _run(call: BatchCall, provider: InferenceProvider, progress: BatchProgress) -> DryRun:
    from judge_local.batch.dry_run import dry_run
    from judge_local.batch.rows import read_rows
    from judge_local.cli.batch import close

    try:
        kept = _kept(call, provider)
        progress.event("reading the rows")
        return await dry_run(
            read_rows(call.source, call.names),
            call.judging,
            provider,
            subjects=call.subjects,
            kept=kept,
            judge_row=call.judging.judge_row(provider),
        )
    finally:
        await close(provider)


def _kept(call: BatchCall, provider: InferenceProvider) -> DigestSet:
    """Ids of the rows that have a result in the file that is named.

    Raises:
        UsageError: that file was made with other settings, or is none of ours.
    """
    from judge_local.batch.digests import DigestSet
    from judge_local.batch.results_file import check_header, read_results

    kept = DigestSet()
    if call.output and Path(call.output).is_file() and Path(call.output).stat().st_size:
        header, results = read_results(call.output)
        check_header(call.output, header, call.judging.header(provider))
        for result in results:
            kept.add(result.id)
    return kept


def _lines(report: DryRun, *, runs: int) -> Iterator[Line]:
    yield Line(f"{report.rows:,} rows, {report.to_judge:,} to judge", style="bold")
    if report.found:
        yield Line(f"{report.found:,} with a result already", indent=1)
    if report.bad:
        yield Line(f"{report.bad:,} that cannot be judged and would be errors", indent=1, style="yellow")
        for fault in report.faults:
            yield Line(fault, indent=2)
        if report.bad > len(report.faults):
            yield Line(f"and {report.bad - len(report.faults):,} more", indent=2)
    if report.to_judge:
        yield Line(f"different subjects: {report.subjects:,}", indent=1)
    if report.counted:
        mean = report.prompt_tokens / report.counted
        yield Line(
            f"{report.prompt_tokens * runs:,} prompt tokens in {runs} runs a row: {mean:,.0f} on average, at most "
            f"{report.longest_tokens:,} (line {report.longest_line})",
            indent=1,
        )
        if report.context_tokens is not None:
            yield Line(_fit(report), indent=1, style="yellow" if report.too_long else "")
    if report.seconds is not None:
        yield Line(
            f"about {human_time(report.seconds)}, as {report.probe_rows} rows took {human_time(report.probe_seconds)}",
            indent=1,
        )


def _fit(report: DryRun) -> str:
    if not report.too_long:
        return f"all fit the context of {report.context_tokens:,} tokens"
    lines = ", ".join(map(str, report.too_long_lines))
    more = ", …" if report.too_long > len(report.too_long_lines) else ""
    return (
        f"{report.too_long:,} too long for the context of {report.context_tokens:,} tokens, which would be errors: "
        f"line{'s' if report.too_long > 1 else ''} {lines}{more}"
    )
