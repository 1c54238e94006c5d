"""`judge-local bench`: verdicts a minute on this machine, where the time goes, how near the limit, and against whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from judge_local.cli.options import machine_options
from judge_local.cli.parameters import FILE
from judge_local.errors import UsageError

if TYPE_CHECKING:
    from judge_local.bench.compare import Pair, Report
    from judge_local.cli.output import Line


@click.command(
    epilog="""\b
Examples:
  judge-local bench --model smollm2-135m
  judge-local bench --rows rows.jsonl --count 16 --pairs 3 --against stock
  judge-local bench --against http://127.0.0.1:8080
"""
)
@click.option("--model", metavar="M", help="A model on this disk. [default: the only one]")
@click.option(
    "--rows",
    type=FILE,
    metavar="FILE",
    allow_from_autoenv=False,
    help="Rows as `batch` reads them. [default: rows that are made up]",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", default=16, show_default=True, help="How many rows."
)
@click.option(
    "--runs", type=click.IntRange(min=1), metavar="K", default=3, show_default=True, help="Runs of each row."
)
@click.option(
    "--pairs", type=click.IntRange(min=1), metavar="P", default=1, show_default=True, help="How often."
)
@click.option(
    "--against",
    multiple=True,
    metavar="stock|URL",
    allow_from_autoenv=False,
    help="stock: llama-cpp-python's own chat completion. Or an OpenAI-compatible server that you have started with the "
    "same model. May be repeated.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    default=400,
    show_default=True,
    help="Of each answer, on all sides. What is cut off does not count.",
)
@machine_options
@click.option("--no-wait", is_flag=True, help="Fail at once when another process is judging.")
@click.option("--json", is_flag=True, help="All of it as one JSON object.")
@click.option("--quiet", is_flag=True, help="No progress.")
def bench(
    model: str | None,
    rows: str | None,
    count: int,
    runs: int,
    pairs: int,
    against: tuple[str, ...],
    max_tokens: int,
    threads: int | None,
    gpu_layers: int | Literal["auto"],
    no_wait: bool,
    json: bool,
    quiet: bool,
) -> None:
    """Measure how fast this machine judges.

    Judges rows, and says how many verdicts a minute that made, which tokens were read, shared, written and forced, and
    where the time went. The machine's own speed at reading and writing is measured in the same run: from it follows the
    least time that the work could have taken, and the efficiency, its share of the time that it did take.

    With --against, the others get the same rows, limits and number of tokens. An answer that is cut off or invalid does
    not count. Measure on a machine that does nothing else.
    """
    from judge_local.bench.compare import STOCK, Plan, compare
    from judge_local.bench.rows import read_rows
    from judge_local.cli.output import Progress, emit_json, say, show
    from judge_local.models.store import Store
    from judge_local.providers.servers import checked_url

    for other in against:
        if other != STOCK:
            checked_url(other)
    if len(set(against)) < len(against):
        raise UsageError("--against", "names one side twice", "Name each once; --pairs repeats them all.")
    plan_rows = read_rows(rows, count)
    store = Store()
    found = store.the_only() if model is None else store.find(model)
    with Progress(quiet=quiet) as progress:
        report = asyncio.run(
            compare(
                Plan(
                    model=found.path,
                    rows=plan_rows,
                    runs=runs,
                    pairs=pairs,
                    against=against,
                    max_tokens=max_tokens,
                    n_threads=threads,
                    n_gpu_layers=gpu_layers,
                    wait=not no_wait,
                ),
                on_progress=progress.update,
                on_event=(lambda _text: None) if quiet else say,
            )
        )
    if json:
        named = {"model": found.name, "sha256": found.sha256, "rows": len(plan_rows), "runs": runs}
        emit_json({**named, **report.to_json()}, indent=2)
    else:
        show(_lines(report))


def _lines(report: Report) -> Iterator[Line]:
    from judge_local.cli.output import Line

    for number, pair in enumerate(report.pairs, start=1):
        name = f"pair {number}"
        yield Line(f"judge-local: {pair.score}", label=name)
        for other, score in pair.others.items():
            ratio = pair.ratio(other)
            yield Line(f"{other}: {score}", label=name)
            yield Line(
                "no valid answer to compare with" if ratio is None else f"ratio to {other}: {ratio:.2f}",
                label=name,
                style="bold",
            )
        yield from (Line(text, label=label, indent=1) for label, text in _account(pair))
    speeds = report.speeds
    rates = [
        ("reading", "tokens in a batch", speeds.reading),
        ("writing", "runs at once", speeds.writing),
    ]
    for label, unit, timings in rates:
        rated = ", ".join(f"{one.size}: {one.rate:.0f}" for one in timings)
        yield Line(f"tokens a second by {unit}: {rated}", label=label)


def _account(pair: Pair) -> Iterator[tuple[str, str]]:
    tokens = pair.tokens
    drafted = f", drafted {tokens.drafted} (right {tokens.accepted})" if tokens.drafted else ""
    yield (
        "tokens",
        f"prompt {tokens.prompt} (shared {tokens.shared}, read {tokens.read}, unique {tokens.unique}), "
        f"written {tokens.written} (free {tokens.free}, forced {tokens.forced}){drafted}",
    )
    yield "time", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in pair.phases.items())
    yield "limit", f"{pair.limit:.1f} s of {pair.score.seconds:.1f} s: efficiency {pair.efficiency:.0%}"
