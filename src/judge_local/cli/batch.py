"""`judge-local batch`: many rows into one results file, which is the checkpoint: whatever ends it, the same call goes on.

* Everything that can be refused is refused before a row is judged; from then on a fault is the fault of its row.
* Ctrl-C once: what is in flight is finished. Twice: it is given up. Nothing that was written is lost either way.
* The summary is on standard output; the results are in their file.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from judge_local.cli.batch_call import BatchOptions
from judge_local.cli.interrupts import INTERRUPTED, ending_at_once
from judge_local.cli.options import (
    machine_options,
    model_options,
    output_options,
    repeat_options,
    report_options,
    run_options,
    scale_options,
    schema_options,
    template_options,
    threshold_options,
    vary_options,
)
from judge_local.cli.parameters import FILE, Duration, FieldName

if TYPE_CHECKING:
    from judge_local.batch.results_file import ResultsFile
    from judge_local.batch.runner import Standing, Stop
    from judge_local.cli.batch_call import BatchCall
    from judge_local.cli.batch_progress import BatchProgress
    from judge_local.cli.reports import ReportOptions
    from judge_local.providers.base import InferenceProvider
    from judge_local.results import ResultsHeader

_WORDS: Final = "judge_local.batch.words"
"""The key in a click context's `meta` under which the words of the call are kept."""
_ONCE: Final = frozenset({"--fresh", "--retry-errors"})
"""Options that a call which only goes on must not repeat."""


def make_provider(
    options: BatchOptions, call: BatchCall, on_event: Callable[[str], None]
) -> InferenceProvider:
    """The judge of this call, already loading where it is this machine that judges.

    The one seam of this command: tests put a scripted provider here.

    Raises:
        ModelError: the model named is not known, not here, or no model is named and there is not exactly one.
    """
    from judge_local.cli.batch_engines import local_provider

    provider = local_provider(options, call.chat_template, on_event=on_event)
    if options.engine == "local":
        provider.start()
    return provider


class _Remembering(click.Command):
    """A command that keeps the words it was called with, so that it can say how to go on."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        words = list(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[_WORDS] = words
        return context


@click.command(
    cls=_Remembering,
    epilog="ROWS has one row a line, with claim, subject or subject_file (a path relative to ROWS) and, if wanted, id, "
    "reference, label and meta. A row that cannot be judged becomes a result with its error. Exit code: 0 passed the "
    "gate; 1 an auto-fail or a breached rate; 2 usage or configuration; 3 review needed, with --fail-on review; 4 a row without a "
    "decision, or the model, the engine or the disk failed; 5 there are no rows; 130 interrupted.",
)
@click.argument("rows", metavar="ROWS|-", type=FILE)
@click.option(
    "-o",
    "--output",
    metavar="RESULTS",
    type=click.Path(dir_okay=False, path_type=str),
    allow_from_autoenv=False,
    help="The results file. One that is there is continued: rows with a result are not judged again.",
)
@click.option(
    "--format",
    type=click.Choice(["jsonl", "csv", "tsv", "parquet"]),
    help="Of ROWS, plain or gzip. Default: by its name; JSON Lines on standard input.",
)
@click.option(
    "--map",
    multiple=True,
    type=FieldName(),
    allow_from_autoenv=False,
    help="What ROWS calls a field, such as claim=assertion. May be repeated.",
)
@click.option(
    "--allow-outside", is_flag=True, help="Also read subject files that lie outside the folder of ROWS."
)
@model_options
@run_options
@schema_options
@vary_options
@threshold_options
@repeat_options
@machine_options
@template_options
@scale_options
@click.option(
    "--fresh",
    is_flag=True,
    allow_from_autoenv=False,
    help="Start over. The results file as it was is kept as RESULTS.old-N.",
)
@click.option(
    "--retry-errors",
    is_flag=True,
    allow_from_autoenv=False,
    help="Judge rows with an error or an errored run again. The file as it was is kept as RESULTS.old-N.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Judge at most N rows in this call; the next call goes on.",
)
@click.option(
    "--time-budget",
    type=Duration(),
    metavar="TIME",
    help="Such as 90s, 30m or 1h30m: begin no row that would not be done by then; the next call goes on.",
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Rows in work at a time. Default: what keeps the engine busy.",
)
@click.option("--ordered", is_flag=True, help="At the end, put the results in the order of the rows.")
@click.option(
    "--only-zone",
    multiple=True,
    type=click.Choice(["auto-pass", "auto-fail", "human-review"]),
    allow_from_autoenv=False,
    help="At the end, print the results of this zone, one JSON object a line; RESULTS holds all. May be repeated.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    allow_from_autoenv=False,
    help="Write nothing: read all rows, count tokens, judge a few to tell the time, and report.",
)
@report_options
@click.option("--no-wait", is_flag=True, help="Fail at once when another process is judging.")
@click.option("--no-text", is_flag=True, help="Leave subject and reference out of the results.")
@output_options(json="The summary as one JSON object.")
@click.pass_context
def batch(ctx: click.Context, /, **values: Any) -> None:
    """Judge many rows into a results file that can be continued.

    ROWS is JSON Lines, CSV, TSV or Parquet. Every row has exactly one line in RESULTS. Interrupted, killed, or out of
    disk: the same command goes on where it stopped, and judges nothing twice.
    """
    from judge_local.batch.results_file import open_results
    from judge_local.batch.runner import Ended, Standing
    from judge_local.cli.batch_call import read_batch_call
    from judge_local.cli.batch_progress import BatchProgress
    from judge_local.cli.reports import take_report_options
    from judge_local.completion import make_validator

    reports = take_report_options(
        values, (values[name] for name in ("rows", "output", "schema", "chat_template"))
    )
    options = BatchOptions(**values)
    call = read_batch_call(options)
    standing = Standing()
    with BatchProgress(quiet=options.quiet) as progress:
        # What takes long and cannot be cancelled (imports, the hashing of a large file) is done outside the event loop.
        with ending_at_once():
            provider = make_provider(options, call, progress.event)
            make_validator(call.judging.schema)
        if options.dry_run:
            from judge_local.cli.batch_dry_run import report_dry_run

            ctx.exit(report_dry_run(options, call, provider, progress))
        try:
            shard = None if call.shard is None else str(call.shard)
            header = call.judging.header(provider, shard=shard)
            results = open_results(
                call.output,
                header,
                fresh=options.fresh,
                retry_errors=options.retry_errors,
                text=not options.no_text,
                on_kept=standing.counts.add,
            )
        except BaseException:
            asyncio.run(close(provider))
            raise
        with results:
            asyncio.run(_judge(options, call, provider, results, standing, progress))
            if options.ordered and standing.ended is not Ended.INTERRUPTED:
                results.sort()
    ctx.exit(_finish(ctx, options, call, standing, header, reports))


async def _judge(
    options: BatchOptions,
    call: BatchCall,
    provider: InferenceProvider,
    results: ResultsFile,
    standing: Standing,
    progress: BatchProgress,
) -> None:
    """Judge the rows. Ends the provider."""
    from judge_local.batch.rows import read_rows
    from judge_local.batch.runner import Stop, run_batch
    from judge_local.cli.batch_engines import engine_of

    shown = None
    try:
        async with engine_of(options, call, provider, progress.event) as (judge_row, at_once):
            standing.restart()
            shown = asyncio.create_task(progress.follow(standing, call.source, options.limit))
            stop = Stop()
            with _asking(stop, progress):
                await run_batch(
                    read_rows(call.source, call.names, shard=call.shard),
                    judge_row,
                    results,
                    subjects=call.subjects,
                    at_once=options.at_once or at_once,
                    limit=options.limit,
                    seconds=options.time_budget,
                    standing=standing,
                    stop=stop,
                )
    finally:
        if shown is not None:
            shown.cancel()
        progress.end()
        await close(provider)


async def close(provider: InferenceProvider) -> None:
    """End the provider, where it has an end."""
    ending = getattr(provider, "aclose", None)
    if ending is not None:
        await ending()


@contextlib.contextmanager
def _asking(stop: Stop, progress: BatchProgress) -> Iterator[None]:
    """While inside, Ctrl-C and SIGTERM ask `stop`: once to finish what is in flight, twice to give it up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread receives signals.
        return
    loop = asyncio.get_running_loop()

    def ask() -> None:
        if stop.asked == 0:
            progress.event("finishing what is in flight; Ctrl-C again gives it up")
        stop.ask()

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # As a shell has it for what runs behind `&`.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    numbers = [number for number in before if not (ignored and number == signal.SIGINT)]
    for number in numbers:
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def _finish(
    ctx: click.Context,
    options: BatchOptions,
    call: BatchCall,
    standing: Standing,
    header: ResultsHeader,
    reports: ReportOptions,
) -> int:
    """Say what it came to, write the reports, and return the exit code."""
    from judge_local.batch.runner import Ended
    from judge_local.cli.batch_summary import summary_json, summary_lines
    from judge_local.cli.output import emit_json, say, show
    from judge_local.cli.reports import report_results

    outcome = None

    if standing.changed:
        say(
            f"warning: {standing.changed:,} rows are not any more what was judged, the first on line "
            f"{standing.first_changed}. Their results stand; --fresh judges everything anew."
        )
    if standing.ended is Ended.INTERRUPTED:
        code = INTERRUPTED  # No reports: they would look like those of a batch that ended.
        say(f"interrupted: {standing.counts.results:,} results are safe. Go on: {_how_to_go_on(ctx)}")
    else:
        if standing.ended in (Ended.TIME, Ended.LIMIT):
            why = "the time budget is used up" if standing.ended is Ended.TIME else "the limit is reached"
            say(f"{why}: {standing.counts.results:,} results are there. Go on: {_how_to_go_on(ctx)}")
        if options.only_zone:
            _print_zone(call.output, options.only_zone)
        outcome = report_results(
            reports,
            call.output,
            header,
            standing.counts,
            folder=call.source.folder,
            unfinished=standing.ended is Ended.TIME,
            nothing_read=call.source.count == 0,
            stdout_is_taken=options.json or bool(options.only_zone),
            quiet=options.quiet,
        )
        code = outcome.code
    if options.json:
        emit_json(summary_json(standing, call.output, code, outcome))
    elif not options.only_zone and code != INTERRUPTED:
        show(summary_lines(standing, call.output))
    return code


def _print_zone(path: str, zones: tuple[str, ...]) -> None:
    from judge_local.batch.results_file import read_results
    from judge_local.cli.output import emit_json

    _, results = read_results(path)
    for result in results:
        if result.decision.zone.value in zones:
            emit_json(result.to_json())


def _how_to_go_on(ctx: click.Context) -> str:
    words = [word for word in ctx.meta[_WORDS] if word not in _ONCE]
    return f"judge-local batch {shlex.join(words)}"
