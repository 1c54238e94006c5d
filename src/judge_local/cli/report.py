"""`judge-local report`: the reports and the gate of a results file that is already there; nothing is judged."""

from __future__ import annotations

from typing import Any

import click

from judge_local.cli.group import verbose_option
from judge_local.cli.options import report_options


@click.command(
    epilog="Exit code: 0 passed the gate; 1 an auto-fail or a breached rate; 2 usage, or a file that holds no results; "
    "3 review needed, with --fail-on review; 4 a row without a decision, or the file cannot be read; 5 there are no "
    "results."
)
@click.argument("results", metavar="RESULTS", type=click.Path(dir_okay=False, path_type=str))
@report_options
@click.option(
    "--rows-folder",
    type=click.Path(file_okay=False, path_type=str),
    metavar="DIR",
    default=".",
    show_default=True,
    help="The folder of the rows, which their subject files are relative to.",
)
@click.option("--json", is_flag=True, help="The counts and what the gate came to as one JSON object.")
@verbose_option
@click.pass_context
def report(ctx: click.Context, /, *, results: str, rows_folder: str, json: bool, **values: Any) -> None:
    """Report on a results file, and gate on it.

    RESULTS is what batch wrote, or merge. It is only read; nothing is judged.
    """
    from pathlib import Path

    from judge_local.batch.results_file import read_results
    from judge_local.cli.batch_summary import label_lines, zone_lines
    from judge_local.cli.output import Line, emit_json, show
    from judge_local.cli.reports import report_results, take_report_options
    from judge_local.counts import Counts

    options = take_report_options(values, [results])
    header, rows = read_results(results)
    counts = Counts.of(rows)
    outcome = report_results(options, results, header, counts, folder=Path(rows_folder), stdout_is_taken=json)
    if json:
        emit_json(
            {
                "results": results,
                "counts": counts.to_json(),
                "gate": outcome.to_json(),
                "exitCode": outcome.code,
            }
        )
    else:
        show(
            [
                Line(f"{counts.results:,} results: {results}", style="bold"),
                *zone_lines(counts),
                *(label_lines(counts) if counts.labels else ()),
            ]
        )
    ctx.exit(outcome.code)
