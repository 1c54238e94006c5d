"""`judge-local judge`: claims about one subject, decided one after the other by one loaded model.

* Everything that can be refused is refused before a model is loaded.
* A decision is printed as it lands; what comes after it cannot take it back.
* The exit code is the worst of all claims: 0 < 3 (review) < 1 (auto-fail) < 2 < 4. A claim without a decision outranks
  any decision, because a gate must not open on half an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from judge_local.cli.interrupts import ending_at_once
from judge_local.cli.options import (
    machine_options,
    material_options,
    model_options,
    output_options,
    repeat_options,
    run_options,
    sampling_options,
    schema_options,
    template_options,
    text_options,
    threshold_options,
    vary_options,
)
from judge_local.cli.parameters import FILE, Number

if TYPE_CHECKING:
    from judge_local.cli.call import Call, Options
    from judge_local.cli.claims import Claim
    from judge_local.cli.output import Progress
    from judge_local.providers.base import InferenceProvider
    from judge_local.results import Result
    from judge_local.zones import ConsensusResult

BADNESS: Final = (0, 3, 1, 2, 4)
"""Exit codes of single claims, from best to worst."""


def make_provider(options: Options, call: Call, on_event: Callable[[str], None]) -> InferenceProvider:
    """The judge of this call, already loading. The one seam of this command: tests put a scripted provider here.

    Raises:
        ModelError: the model named is not known, not here, or no model is named and there is not exactly one.
    """
    from judge_local.providers.local import LocalProvider

    provider = LocalProvider(
        options.model,
        n_threads=options.threads,
        n_gpu_layers=options.gpu_layers,
        deterministic=options.deterministic,
        wait=not options.no_wait,
        on_event=on_event,
        chat_template=call.chat_template,
        thinking=options.thinking,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
    )
    provider.start()
    return provider


@click.command(
    epilog="Exit code: 0 auto-pass; 1 auto-fail; 3 human review, errored runs included; 2 usage, configuration, or a text "
    "longer than the model's context; 4 the model or the engine failed before a decision; 5 the subject is "
    "empty. With several claims, the worst: 0 < 3 < 1 < 2 < 4."
)
@click.argument("subject", metavar="SUBJECT|-", type=FILE)
@material_options
@model_options
@run_options
@sampling_options
@click.option(
    "--score-only",
    is_flag=True,
    help="Write no answer: one pass for the probability of each option. A person decides.",
)
@schema_options
@vary_options
@threshold_options
@click.option(
    "--timeout",
    type=Number(0, min_open=True),
    metavar="SECONDS",
    help="For the whole call. Runs that are not done by then are errored, so they go to a person.",
)
@repeat_options
@machine_options
@template_options
@text_options
@output_options(json="One result object; with several claims, one a line.")
@click.pass_context
def judge(ctx: click.Context, /, **values: Any) -> None:
    """Decide whether claims hold for a subject.

    SUBJECT is a text file, or - for standard input. All claims are about it; the model is loaded once and reads it
    once. Every decision is uncertified until a certificate says how often this model and set-up are wrong.
    """
    import asyncio

    from judge_local.cli.call import Options, read_call
    from judge_local.cli.output import Progress
    from judge_local.completion import make_validator

    options = Options(**values)
    if options.score_only:
        from judge_local.cli.scores import check_score_only
        from judge_local.cli.scores import score as work

        check_score_only(options)
    else:
        work = decide
    call = read_call(options)
    with Progress(quiet=options.quiet) as progress:
        # What takes long and cannot be cancelled (imports, the hashing of a large file) is done outside the event loop.
        with ending_at_once():
            provider = make_provider(options, call, progress.update)
            # The engine loads the model meanwhile: importing the validator takes most of a second.
            make_validator(call.schema)
        code = asyncio.run(work(options, call, provider, progress))
    ctx.exit(code)


async def decide(options: Options, call: Call, provider: InferenceProvider, progress: Progress) -> int:
    """Judge every claim of `call`, print each decision as it lands, and return the exit code. Ends the provider.

    Raises:
        JudgeLocalError: no decision could be made, for a reason that would hold for the next claim too.
    """
    from judge_local.cli.output import say
    from judge_local.errors import ContextOverflowError

    worst = 0
    try:
        for claim in call.claims:
            name = f"claim {claim.row} of {len(call.claims)}" if len(call.claims) > 1 else "claim"
            progress.update(f"{name}: {options.runs} run{'s' if options.runs > 1 else ''}")
            try:
                code = await _decide_one(options, call, claim, provider, progress)
            except ContextOverflowError as error:  # Another claim, or its reference, may be shorter.
                progress.pause()
                say(f"{name}: {error}" if len(call.claims) > 1 else str(error))
                code = error.exit_code
            worst = max(worst, code, key=BADNESS.index)
    finally:
        close = getattr(provider, "aclose", None)
        if close is not None:
            await close()
    return worst


async def _decide_one(
    options: Options, call: Call, claim: Claim, provider: InferenceProvider, progress: Progress
) -> int:
    from judge_local.cache import JsonCache
    from judge_local.ensemble import judge_claim
    from judge_local.results import Result, subject_sha256
    from judge_local.zones import ZoneThresholds

    started = time.monotonic()
    reference = call.reference if claim.reference is None else claim.reference
    decision = await judge_claim(
        provider,
        call.subject,
        claim.text,
        reference=reference,
        runs=options.runs,
        temperature=options.temperature,
        schema=call.schema,
        checked=options.checked,
        option_bias=dict(options.option_bias) or None,
        vary=options.vary,
        zones=ZoneThresholds(auto_pass=options.auto_pass, auto_fail=options.auto_fail),
        cache=None if options.cache is None else JsonCache(options.cache),
        seed=options.seed,
        deadline=call.deadline,
    )
    _refuse_overflow(decision)
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
    _print(result, options, seconds=time.monotonic() - started)
    return _exit_code(decision)


def _print(result: Result, options: Options, *, seconds: float) -> None:
    from judge_local.cli.output import emit_json, show
    from judge_local.report.decision import decision_lines

    if options.json:
        emit_json(result.to_json(text=not options.no_text))
    else:
        show(decision_lines(result, seconds=seconds))


def _refuse_overflow(decision: ConsensusResult) -> None:
    """A text longer than the context says nothing about the claim, so it is the caller's to mend, not a reviewer's.

    Raises:
        ContextOverflowError: every run errored because of it.
    """
    from judge_local.errors import ContextOverflowError

    first = decision.runs[0].error if decision.runs else None
    if first is not None and all(run.error_kind == ContextOverflowError.__name__ for run in decision.runs):
        where, _, problem = first.partition(": ")
        raise ContextOverflowError(where, problem.rstrip("."))


def _exit_code(decision: ConsensusResult) -> int:
    from judge_local.zones import Zone

    return {Zone.AUTO_PASS: 0, Zone.HUMAN_REVIEW: 3, Zone.AUTO_FAIL: 1}[decision.zone]
