"""`judge-local panel`: claims about one subject, each decided by several judges at once within a time budget.

* Everything that can be refused is refused before a model is loaded.
* Each judge's run is printed as it lands, then the decision. With `--json` each is one line: a line with a `run` in it
  is a judge's, one with a `zone` is a decision.
* The exit code is the worst of all claims, as `judge` has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from judge_local.cli.options import (
    chance_options,
    machine_options,
    material_options,
    output_options,
    schema_options,
    text_options,
    threshold_options,
)
from judge_local.cli.parameters import FILE, Number

if TYPE_CHECKING:
    from judge_local.cli.call import Call
    from judge_local.cli.claims import Claim
    from judge_local.cli.output import Line, Progress
    from judge_local.panel.judges import Judge
    from judge_local.run import JudgeRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelOptions:
    """The options of one call, as click read them."""

    subject: str
    """A path, or `-`."""
    claim: tuple[str, ...]
    claims: str | None
    reference: str | None
    judge: tuple[str, ...]
    substitute: tuple[str, ...]
    budget: float
    """Seconds for each claim, loading included."""
    call_timeout: float | None
    """Seconds for one judge; None is the budget."""
    api_key_env: str | None
    temperature: float
    seed: int
    schema: str | None
    checked: tuple[str, ...]
    auto_pass: float
    auto_fail: float
    threads: int | None
    gpu_layers: int | Literal["auto"]
    no_wait: bool
    no_text: bool
    json: bool
    quiet: bool


def open_judges(
    options: PanelOptions, on_event: Callable[[str], None]
) -> tuple[tuple[Judge, ...], tuple[Judge, ...]]:
    """The judges and the substitutes of this call. The one seam of this command: tests put scripted ones here.

    Raises:
        ModelError, UsageError: a judge is not known, not here, or named in a form that is not understood.
    """
    from judge_local.panel.judges import open_judge

    opened = {
        reference: open_judge(
            reference,
            api_key_env=options.api_key_env,
            n_threads=options.threads,
            n_gpu_layers=options.gpu_layers,
            wait=not options.no_wait,
            on_event=on_event,
        )
        for reference in dict.fromkeys((*options.judge, *options.substitute))
    }
    return (
        tuple(opened[reference] for reference in options.judge),
        tuple(opened[reference] for reference in options.substitute),
    )


@click.command(
    epilog="A judge is a model on this disk, or openai:MODEL@URL for a server that speaks the OpenAI API, with further "
    "URLs after commas. Exit code: 0 auto-pass; 1 auto-fail; 3 human review, seats without an answer included; 2 usage "
    "or configuration; 5 the subject is empty. With several claims, the worst: 0 < 3 < 1 < 2 < 4."
)
@click.argument("subject", metavar="SUBJECT|-", type=FILE)
@material_options
@click.option(
    "--judge",
    multiple=True,
    required=True,
    metavar="M",
    allow_from_autoenv=False,
    help="Who has a seat. To be repeated.",
)
@click.option(
    "--substitute",
    multiple=True,
    metavar="M",
    allow_from_autoenv=False,
    help="Who may replace a judge that fails. May be repeated.",
)
@click.option(
    "--budget",
    type=Number(0, min_open=True),
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="For each claim, loading included. Seats without an answer by then go to a person.",
)
@click.option(
    "--call-timeout",
    type=Number(0, min_open=True),
    metavar="SECONDS",
    help="For one judge, waiting for its turn included. Default: the budget.",
)
@click.option(
    "--api-key-env", metavar="NAME", help="The variable that holds the servers' key. Default: OPENAI_API_KEY."
)
@chance_options(seed="Of every run.")
@schema_options
@threshold_options
@machine_options
@text_options
@output_options(json="One line for each run as it lands, then one for the decision.")
@click.pass_context
def panel(ctx: click.Context, /, **values: Any) -> None:
    """Decide whether claims hold, by several judges at once.

    SUBJECT is a text file, or - for standard input. Each judge gives one run within the budget. One that fails is
    replaced once by a substitute; a seat that stays empty is an errored run, so the decision goes to a person.
    """
    import asyncio

    from judge_local.cli.output import Progress
    from judge_local.completion import make_validator

    options = PanelOptions(**values)
    call = _read(options)
    with Progress(quiet=options.quiet) as progress:
        make_validator(
            call.schema
        )  # Imports what takes long outside the event loop, where Ctrl-C is heard at once.
        judges, substitutes = open_judges(options, progress.update)
        code = asyncio.run(_decide(options, call, judges, substitutes, progress))
    ctx.exit(code)


def _read(options: PanelOptions) -> Call:
    """Read and check everything the call names, as `judge` does."""
    from judge_local.cli.call import Options, read_call

    return read_call(
        Options(
            subject=options.subject,
            claim=options.claim,
            claims=options.claims,
            reference=options.reference,
            model=None,
            runs=1,
            temperature=options.temperature,
            seed=options.seed,
            schema=options.schema,
            checked=options.checked,
            vary=None,
            auto_pass=options.auto_pass,
            auto_fail=options.auto_fail,
            timeout=None,
            deterministic=False,
            threads=options.threads,
            gpu_layers=options.gpu_layers,
            chat_template=None,
            cache=None,
            no_wait=options.no_wait,
            no_text=options.no_text,
            json=options.json,
            quiet=options.quiet,
        )
    )


async def _decide(
    options: PanelOptions,
    call: Call,
    judges: tuple[Judge, ...],
    substitutes: tuple[Judge, ...],
    progress: Progress,
) -> int:
    """Decide every claim of `call`, and return the exit code. Ends the judges' workers."""
    import asyncio

    from judge_local.cli.judge import BADNESS

    worst = 0
    try:
        for claim in call.claims:
            name = f"claim {claim.row} of {len(call.claims)}" if len(call.claims) > 1 else "claim"
            progress.update(f"{name}: {len(judges)} judge{'s' if len(judges) > 1 else ''}")
            code = await _decide_one(options, call, claim, judges, substitutes, progress)
            worst = max(worst, code, key=BADNESS.index)
    except asyncio.CancelledError:
        # Nobody waits any more for what the engine still had to say, and asyncio would print it.
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        raise
    finally:
        everyone = {*judges, *substitutes}
        await asyncio.gather(*(asyncio.to_thread(judge.close) for judge in everyone))
    return worst


async def _decide_one(
    options: PanelOptions,
    call: Call,
    claim: Claim,
    judges: tuple[Judge, ...],
    substitutes: tuple[Judge, ...],
    progress: Progress,
) -> int:
    from judge_local.cli.output import emit_json, show
    from judge_local.panel.judges import judge_panel
    from judge_local.report.decision import decision_lines
    from judge_local.results import Result, subject_sha256
    from judge_local.zones import Zone, ZoneThresholds

    started = time.monotonic()
    reference = call.reference if claim.reference is None else claim.reference
    unprinted: list[Exception] = []

    def landed(run: JudgeRun, completed: int, total: int) -> None:
        if unprinted:
            return
        try:
            progress.pause()
            if options.json:
                line = {"row": claim.row, "completed": completed, "total": total, "run": run.to_json()}
                emit_json(line)
            else:
                show(_run_lines(run, completed, total))
            if completed < total:
                progress.update(f"{total - completed} of {total} judges to come")
        except Exception as error:  # noqa: BLE001 # A panel swallows it; it is raised below.
            unprinted.append(error)

    decision = await judge_panel(
        judges,
        call.subject,
        claim.text,
        budget_seconds=options.budget,
        substitutes=substitutes,
        reference=reference,
        temperature=options.temperature,
        schema=call.schema,
        zones=ZoneThresholds(auto_pass=options.auto_pass, auto_fail=options.auto_fail),
        seed=options.seed,
        checked=options.checked,
        call_timeout_seconds=options.call_timeout,
        on_run=landed,
    )
    if unprinted:
        raise unprinted[0]
    result = Result(
        row=claim.row,
        id=claim.id,
        claim=claim.text,
        subject=call.subject if call.subject_file is None else None,
        subject_file=call.subject_file,
        subject_sha256=subject_sha256(call.subject),
        reference=reference,
        label=claim.label,
        meta=claim.meta,
        decision=decision,
    )
    progress.pause()
    if options.json:
        emit_json(result.to_json(text=not options.no_text))
    else:
        show(decision_lines(result, seconds=time.monotonic() - started))
    return {Zone.AUTO_PASS: 0, Zone.HUMAN_REVIEW: 3, Zone.AUTO_FAIL: 1}[decision.zone]


def _run_lines(run: JudgeRun, completed: int, total: int) -> Iterator[Line]:
    """One line for a run that landed."""
    from judge_local.cli.output import Line

    who = f"{run.slot} ({run.via}{f', by {run.model}' if run.substituted_for is not None else ''})"
    said = (
        f"errored: {run.error}"
        if run.verdict is None
        else f"{run.verdict.match.value}, confidence {run.verdict.confidence}"
    )
    yield Line(f"{completed} of {total}: {who}: {said}")
