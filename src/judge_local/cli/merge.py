"""`judge-local merge`: the results files of shards become one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from judge_local.cli.options import output_options

if TYPE_CHECKING:
    from judge_local.batch.merge import Merged

_FILE = click.Path(path_type=str)


@click.command(
    epilog="Exit code: 0 when the results file was written; 1 when a row is missing or there twice, and nothing was written; "
    "2 when the shards were made with different settings, or are no results files; 4 when a file cannot be read or written."
)
@click.argument("shards", metavar="SHARDS...", type=_FILE, nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=_FILE,
    metavar="RESULTS",
    required=True,
    allow_from_autoenv=False,
    help="The file to write. It appears when it is complete.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    metavar="N",
    allow_from_autoenv=False,
    help="How many rows there were to judge. Default: up to the highest that has a result.",
)
@click.option(
    "--partial",
    is_flag=True,
    allow_from_autoenv=False,
    help="Write what there is although rows are missing; `batch` can go on from it.",
)
@click.option(
    "--force", is_flag=True, allow_from_autoenv=False, help="Replace RESULTS where it is there already."
)
@output_options(json="What was merged, missing and double, as one JSON object.")
@click.pass_context
def merge(
    ctx: click.Context,
    /,
    shards: tuple[str, ...],
    output: str,
    rows: int | None,
    partial: bool,
    force: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Merge the results of shards into one results file.

    SHARDS are results files that `batch --shard i/n` wrote. They must have been made with the same settings; the number
    of threads may differ. RESULTS is what one run over all rows would have written, in the order of rows.
    """
    from pathlib import Path

    from judge_local.batch.merge import merge_results
    from judge_local.cli.output import Progress, emit_json, say, show

    with Progress(quiet=quiet) as progress:
        merged = merge_results(
            [Path(path) for path in shards],
            Path(output),
            rows=rows,
            partial=partial,
            force=force,
            progress=lambda step, done: progress.update(f"{step}: {done:,} results"),
        )
    for fault in faults(merged):
        say(fault)
    if json:
        emit_json(merged.to_json())
    elif merged.written:
        from judge_local.cli.output import Line

        show([Line(f"{merged.results:,} results in {output}")])
    ctx.exit(0 if merged.written else 1)


def faults(merged: Merged) -> Iterator[str]:
    """What keeps `merged` from being complete, a line each."""
    for name in merged.torn:
        yield f"{name}: its last line was not written to its end, and does not count"
    if merged.missing_shards:
        yield f"no file was given for shard {_listed(merged.missing_shards)}"
    if merged.missing:
        spans = [f"{first}" if first == last else f"{first}-{last}" for first, last in merged.missing_rows]
        named = sum(last - first + 1 for first, last in merged.missing_rows)
        more = ", …" if named < merged.missing else ""
        yield f"{_plural(merged.missing, 'row')} without a result: {', '.join(spans)}{more}"
    for double in merged.double_rows:
        yield f"row {double.row} is there {len(double.files)} times: {', '.join(double.files)}"
    if merged.doubles > len(merged.double_rows):
        yield f"and {merged.doubles - len(merged.double_rows):,} more rows are there more than once"
    if not merged.written:
        yield "nothing was written. " + (
            "Take out the rows that are there more than once."
            if merged.doubles
            else "Name the files that are missing or judge the rest first; --partial writes what there is."
        )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(names: tuple[str, ...], most: int = 20) -> str:
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")
