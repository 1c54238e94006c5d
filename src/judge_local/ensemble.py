"""The ensemble: the same question several times, each time differently put, and what comes of it.

Conventions:

* Run k differs from run 0 by a fixed, declared design: the order of the options, then the wording, then the seed.
  What differs stands at the end of the prompt. A provider never sees a design, only texts and a seed.
* Everything that can be wrong with the call is found before the first run.
* Runs that cannot differ are replays: they are counted as what they are, and warned of once.
* An ensemble with an errored run is not cached, so that it gets another chance.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from judge_local.cache import JsonCache, build_cache_key, sha256
from judge_local.completion import complete_many_validated, fault_line, make_validator
from judge_local.consensus import compute_consensus
from judge_local.design import Design, declared_properties
from judge_local.errors import InvalidAnswerError, JudgeLocalError, UsageError, excerpt
from judge_local.grammar.profile import DECODE_ORDER
from judge_local.prompt import (
    PROMPT_VERSION,
    build_prompt,
    evidence_notes,
    tripwires,
)
from judge_local.providers.base import CompletionRequest, InferenceProvider
from judge_local.run import JudgeRun, Note, runs_from_cache
from judge_local.verdict import VERDICT_FIELDS, VERDICT_SCHEMA, match_options
from judge_local.zones import DEFAULT_ZONES, ConsensusResult, Zone, ZoneThresholds, in_zone, zone_for

_warned: set[str] = set()


def reset_temperature_warning() -> None:
    """Let the warnings that this module gives once per process be given again. For tests."""
    _warned.clear()


async def run_ensemble(
    *,
    provider: InferenceProvider,
    system: str,
    user: str,
    runs: int = 3,
    temperature: float = 0.0,
    schema: Mapping[str, Any] = VERDICT_SCHEMA,
    vary: str | None = None,
    cache: JsonCache | None = None,
    cache_key: str | None = None,
    label: str = "judge-local",
    seed: int = 0,
    order: Sequence[str] | None = None,
    pinned: Mapping[str, str] | None = None,
    deadline: float | None = None,
    checked: Sequence[str] = (),
    option_bias: Mapping[str, float] | None = None,
) -> list[JudgeRun]:
    """Ask one question `runs` times.

    Args:
        provider: who answers.
        system: the task.
        user: the material and the claim. What differs from run to run is added at its end.
        runs: how many runs, at least 1. A run is asked again once when its answer breaks the schema or its provider
            fails; after that it is errored, and kept.
        temperature: 0 is greedy; above 0 samples, and warns once per process.
        schema: of the verdict; see `check_verdict_schema` for what it must hold to.
        vary: `options`, `seed` or `none`; None takes the provider's own `default_vary`, or else `none`.
        cache: where whole ensembles are kept; used only together with `cache_key`.
        cache_key: names everything that the answer depends on; see `build_cache_key`.
        label: stands before the text of warnings.
        seed: of run 0; the further ones count up from it.
        order: in which the answer's top-level keys are written; None is `DECODE_ORDER` for the five fields, with
            others of the schema before `match`.
        pinned: top-level string properties whose value is fixed, for providers that can.
        deadline: a `time.monotonic()` instant; a run that has not been asked by then is errored.
        checked: keywords of the schema that no grammar enforces, left to the validator.
        option_bias: by option of `match`, what is added to the logarithm of its probability before one is drawn, for
            providers that can; recorded on every run. Recorded probabilities are those without it.

    Returns:
        `runs` runs, in order. From the cache, each has `cached` set.

    Raises:
        UsageError: an argument cannot be meant.
        SchemaError: the schema is no schema, or none of verdicts.
        JudgeLocalError: another fault of the set-up, such as a model that is missing.
    """
    design = Design.of(provider, runs, temperature, vary, seed, schema)
    validator = make_validator(schema)
    keys = _decode_order(schema, order)
    bias = _bias(option_bias, schema)
    for name, value in (pinned or {}).items():
        if not validator.evolve(schema=declared_properties(schema).get(name, {})).is_valid(value):
            raise UsageError(
                name, f"{excerpt(value)} is not allowed by the schema", "Shorten it, or change the schema."
            )
    if temperature > 0:
        _warn_once(
            "temperature",
            f"{label}: temperature {temperature} adds chance to the verdict. For diversity, more runs at temperature 0 "
            "are worth more.",
        )
    if runs > 1 and not design.differs(provider):
        _warn_once(
            "replays",
            f"{label}: with vary={design.vary!r} at temperature 0, the {runs} runs repeat each other and are worth one "
            'vote. Use vary="options".',
        )
    if cache is not None and cache_key is not None:
        kept = runs_from_cache(cache.get(cache_key), runs)
        if kept is not None and _keeps_pins(kept, provider, pinned or {}):
            return kept
    requests = [
        CompletionRequest(
            system=system,
            user=design.user(user, k),
            schema=schema,
            temperature=temperature,
            run=k,
            seed=seed + k,
            order=keys,
            pinned=pinned,
            checked=tuple(checked),
            option_bias=bias,
            deadline=deadline,
        )
        for k in range(runs)
    ]

    def again(request: CompletionRequest, fault: JudgeLocalError) -> CompletionRequest:
        attempt = request.attempt + 1
        index = request.run + attempt * runs  # No other run of this ensemble has it.
        text = design.user(user, index)
        if isinstance(fault, InvalidAnswerError):
            text = f"{text}\n\n{fault_line(fault)}"
        return replace(request, user=text, attempt=attempt, seed=seed + index)

    answers = await complete_many_validated(provider, requests, validator=validator, again=again)
    judged = [
        replace(
            JudgeRun.of(answer, design.variation(k + (answer.attempts - 1) * runs)),
            fingerprint=design.fingerprint(answer.fingerprint),
            option_bias=bias,
        )
        for k, answer in enumerate(answers)
    ]
    if cache is not None and cache_key is not None and all(run.error is None for run in judged):
        cache.set(cache_key, [run.to_json() for run in judged])
    return judged


async def judge(
    *,
    provider: InferenceProvider,
    system: str,
    user: str,
    runs: int = 3,
    temperature: float = 0.0,
    schema: Mapping[str, Any] = VERDICT_SCHEMA,
    vary: str | None = None,
    zones: ZoneThresholds = DEFAULT_ZONES,
    cache: JsonCache | None = None,
    cache_key: str | None = None,
    label: str = "judge-local",
    seed: int = 0,
    order: Sequence[str] | None = None,
    pinned: Mapping[str, str] | None = None,
    deadline: float | None = None,
    checked: Sequence[str] = (),
    option_bias: Mapping[str, float] | None = None,
) -> ConsensusResult:
    """`run_ensemble`, `compute_consensus` and `zone_for` in one call.

    Takes what `run_ensemble` takes, and `zones`: the least mean confidence at which a unanimous ensemble settles
    itself.

    Raises:
        UsageError: an argument cannot be meant.
        SchemaError: the schema is no schema, or none of verdicts.
        JudgeLocalError: another fault of the set-up.
    """
    answered = await run_ensemble(
        provider=provider,
        system=system,
        user=user,
        runs=runs,
        temperature=temperature,
        schema=schema,
        vary=vary,
        cache=cache,
        cache_key=cache_key,
        label=label,
        seed=seed,
        order=order,
        pinned=pinned,
        deadline=deadline,
        checked=checked,
        option_bias=option_bias,
    )
    return _result(answered, provider, temperature, zones)


async def judge_claim(
    provider: InferenceProvider,
    subject: str,
    claim: str,
    *,
    reference: str | None = None,
    runs: int = 3,
    temperature: float = 0.0,
    schema: Mapping[str, Any] = VERDICT_SCHEMA,
    vary: str | None = None,
    zones: ZoneThresholds = DEFAULT_ZONES,
    cache: JsonCache | None = None,
    label: str = "judge-local",
    seed: int = 0,
    order: Sequence[str] | None = None,
    deadline: float | None = None,
    checked: Sequence[str] = (),
    option_bias: Mapping[str, float] | None = None,
) -> ConsensusResult:
    """Judge whether `subject` satisfies `claim`: the prompt is built here, and so is the cache key.

    A tripwire in the subject sends the decision to a person whatever the runs say; it and quotes that are not in the
    subject are noted on the runs.

    Args:
        provider: who answers.
        subject: the material; untrusted text, and all that may be looked at besides the reference.
        claim: what must hold for the subject to pass.
        reference: what is known to be right, where there is something to compare with.
        runs: how many runs, at least 1.
        temperature: 0 is greedy.
        schema: of the verdict.
        vary: the design of the runs; see `run_ensemble`.
        zones: the least mean confidence at which a unanimous ensemble settles itself.
        cache: where whole ensembles are kept.
        label: stands before the text of warnings.
        seed: of run 0.
        order: in which the answer's keys are written; see `run_ensemble`.
        deadline: a `time.monotonic()` instant.
        checked: keywords left to the validator.
        option_bias: see `run_ensemble`.

    Raises:
        EmptySubjectError: there is nothing to judge.
        UsageError: an argument cannot be meant.
        SchemaError: the schema is no schema, or none of verdicts.
        JudgeLocalError: another fault of the set-up.
    """
    prompt = build_prompt(subject, claim, reference=reference)
    key = None
    if cache is not None:
        design = Design.of(provider, runs, temperature, vary, seed, schema)
        parts = [
            provider.provider,
            provider.model,
            str(getattr(provider, "settings_key", "")),
            PROMPT_VERSION,
            sha256(json.dumps(dict(schema), ensure_ascii=False, default=dict)),
            sha256(subject),
            sha256(claim),
            "" if reference is None else sha256(reference),
            *map(repr, (runs, float(temperature), design.vary, seed)),
            json.dumps(
                [_decode_order(schema, order), list(checked), _bias(option_bias, schema)], sort_keys=True
            ),
        ]
        key = build_cache_key(parts)
    answered = await run_ensemble(
        provider=provider,
        system=prompt.system,
        user=prompt.user,
        runs=runs,
        temperature=temperature,
        schema=schema,
        vary=vary,
        cache=cache,
        cache_key=key,
        label=label,
        seed=seed,
        order=order,
        # Behind a `$ref` there is no property of that name to pin.
        pinned={"claim": claim} if "claim" in declared_properties(schema) else None,
        deadline=deadline,
        checked=checked,
        option_bias=option_bias,
    )
    tripped = tripwires(subject)
    noted = [_noted(run, tripped, subject) for run in answered]
    result = _result(noted, provider, temperature, zones)
    return replace(result, zone=Zone.HUMAN_REVIEW) if tripped else result


def _keeps_pins(kept: Sequence[JudgeRun], provider: InferenceProvider, pinned: Mapping[str, str]) -> bool:
    """Whether kept answers are about what is asked now, where the provider would have held new ones to it."""
    if not getattr(provider, "grammar_bound", False):
        return True
    verdicts = [run.verdict.to_json() for run in kept if run.verdict is not None]
    return all(verdict.get(name) == value for verdict in verdicts for name, value in pinned.items())


def _bias(bias: Mapping[str, float] | None, schema: Mapping[str, Any]) -> dict[str, float] | None:
    """The bias of each option that has one; None where none has."""
    options = match_options(schema)
    for option, value in (bias or {}).items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if option not in options or not number:
            known = f"It takes a number for each of {', '.join(options)}."
            raise UsageError("option_bias", f"{excerpt(option)}={excerpt(value)} is no bias", known)
    return {option: float(value) for option, value in (bias or {}).items() if value} or None


def _decode_order(schema: Mapping[str, Any], order: Sequence[str] | None) -> tuple[str, ...]:
    declared = tuple(declared_properties(schema))
    if order is None:
        if not set(DECODE_ORDER) <= set(declared):
            return declared  # They are declared behind a `$ref` or an `allOf`; the schema's own order stands.
        extra = tuple(name for name in declared if name not in VERDICT_FIELDS)
        return (*DECODE_ORDER[:2], *extra, *DECODE_ORDER[2:])
    names = tuple(order)
    if isinstance(order, str) or len(set(names)) != len(names) or not set(names) <= set(declared):
        raise UsageError(
            "order",
            f"{excerpt(list(names))} is no order of the schema's keys",
            f"Its keys are {', '.join(declared)}.",
        )
    return names


def _noted(run: JudgeRun, tripped: tuple[Note, ...], subject: str) -> JudgeRun:
    evidence = () if run.verdict is None else evidence_notes(run.verdict.observed, subject)
    return replace(run, notes=(*run.notes, *tripped, *evidence))


def _result(
    runs: Sequence[JudgeRun], provider: InferenceProvider, temperature: float, zones: ZoneThresholds
) -> ConsensusResult:
    consensus = compute_consensus(runs)
    distinct = len(runs)
    if getattr(provider, "replays", False) and temperature == 0:
        # Greedy decoding takes no notice of the seed: only what the model reads can make a difference.
        distinct = len({(v.options, v.paraphrase) if (v := run.variation) else None for run in runs})
    return in_zone(
        consensus, zone_for(consensus, zones), distinct_runs=distinct, replays=distinct < len(runs)
    )


def _warn_once(kind: str, text: str) -> None:
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(text, UserWarning, stacklevel=3)
