"""Completion: ask a provider, hold the answer to its schema, and ask once more where that may help.

Conventions:

* A fault of the set-up is raised; a fault of the model is recorded on the run, never dropped and never coerced.
* The answer is the whole text. Nothing is searched for inside it: an object that the subject brought along must not
  be taken for the model's own.
* A second attempt is made for an answer that breaks the schema and for a provider's error that may pass, and no other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, TypeVar

from judge_local.answer_text import extract_json
from judge_local.errors import (
    EXCERPT_CHARS,
    DeadlineExceededError,
    EngineBusyError,
    GrammarRejectedError,
    InvalidAnswerError,
    InvalidSchemaError,
    JudgeLocalError,
    ModelError,
    ProviderError,
    SchemaError,
    UnsoundGrammarError,
    UsageError,
    excerpt,
)
from judge_local.providers.base import (
    CompletionRequest,
    CompletionResponse,
    InferenceProvider,
    check_provider,
)
from judge_local.run import InferenceRun, cut_raw

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

SETUP_FAULTS: Final = (UsageError, SchemaError, ModelError, EngineBusyError, GrammarRejectedError)
"""Faults that the next run would meet as well: they are raised as long as no run has come back."""

DEADLINE_GRACE: float = 5.0
"""Seconds beyond the deadline that a provider has for handing back what it holds, before its task is cancelled."""

_VALIDATORS_KEPT: Final = 16
_validators: dict[str, Validator] = {}
"""Of the schemas used last. To see that a schema is one takes longer than all else that is done for an answer here."""

Again = Callable[[CompletionRequest, JudgeLocalError], CompletionRequest]
"""From a request and what was wrong with its answer to the request of the next attempt, its `attempt` raised by one."""


def ask_again(request: CompletionRequest, fault: JudgeLocalError) -> CompletionRequest:
    """The same request for the next attempt; an answer that was refused is followed by the reason, in one line."""
    user = f"{request.user}\n\n{fault_line(fault)}" if isinstance(fault, InvalidAnswerError) else request.user
    return replace(request, attempt=request.attempt + 1, user=user)


def fault_line(fault: JudgeLocalError) -> str:
    """What to tell the model about its last answer, in one line."""
    return " ".join(
        f"Your last answer was refused ({fault.where}: {fault.problem}). Answer again, correctly.".split()
    )


def make_validator(schema: Mapping[str, Any]) -> Validator:
    """A validator for `schema` in its own dialect, formats checked. It never fetches anything.

    Raises:
        InvalidSchemaError: `schema` is not a JSON Schema, or names a dialect that nobody knows.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError as JsonSchemaError
    from jsonschema.validators import validator_for
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # ships no types

    if not isinstance(schema, Mapping):
        raise InvalidSchemaError("schema", f"{excerpt(schema)} is not a JSON object")
    plain = dict(
        schema
    )  # The canonical schema is a read-only view, which jsonschema does not take for an object.
    unknown: Any = object()
    kind = validator_for(plain, default=unknown if "$schema" in plain else Draft202012Validator)
    if kind is unknown:
        raise InvalidSchemaError(
            "schema", f"$schema {excerpt(plain['$schema'])} is no dialect of JSON Schema"
        )
    key = repr(plain)
    if key not in _validators:
        try:
            kind.check_schema(plain)
        except JsonSchemaError as error:
            raise InvalidSchemaError(f"schema: {error.json_path}", error.message) from None
        if len(_validators) >= _VALIDATORS_KEPT:
            _validators.pop(next(iter(_validators)), None)
        _validators[key] = kind(plain, registry=REGISTRY, format_checker=kind.FORMAT_CHECKER)
    return _validators[key]


async def complete_validated_json(
    provider: InferenceProvider,
    request: CompletionRequest,
    *,
    attempts: int = 2,
    validator: Validator | None = None,
    again: Again = ask_again,
) -> InferenceRun:
    """Ask `provider` until an answer is valid under `request.schema`, at most `attempts` times.

    Args:
        provider: who answers.
        request: the question.
        attempts: how often to ask, the first time included; at least 1.
        validator: `make_validator(request.schema)`, where it is used more than once.
        again: makes the request of the next attempt.

    Returns:
        The valid answer, or the error of the last attempt.

    Raises:
        UsageError: `attempts` is less than 1, or `provider` is none.
        InvalidSchemaError: the schema is not one.
        JudgeLocalError: a fault of the set-up, such as a model that is missing.
    """
    check_provider(provider)
    _check_attempts(attempts)
    validator = validator or make_validator(request.schema)
    (history,) = await _rounds(_one_by_one, provider, [request], attempts, validator, again)
    return _run_of(history, provider)


async def complete_many_validated(
    provider: InferenceProvider,
    requests: Sequence[CompletionRequest],
    *,
    attempts: int = 2,
    validator: Validator | None = None,
    again: Again = ask_again,
) -> list[InferenceRun]:
    """`complete_validated_json` for many requests under one schema, in their order.

    A provider with `complete_many` gets all first attempts as one batch, and what must be asked again as the next.
    Any other is asked one request at a time, all attempts of the first before the second.

    Raises:
        JudgeLocalError: see `complete_validated_json`. A fault of the set-up that shows after another request has
            come back is recorded on its run instead, so that no answer is lost.
    """
    _check_attempts(attempts)
    if not requests:
        return []
    validator = validator or make_validator(requests[0].schema)
    histories: list[list[_Attempt]] = []
    if hasattr(provider, "complete_many"):
        histories += await _rounds(_as_a_batch, provider, requests, attempts, validator, again)
    else:
        for request in requests:
            histories += await _rounds(
                _one_by_one, provider, [request], attempts, validator, again, record_all=bool(histories)
            )
    return [_run_of(history, provider) for history in histories]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One asking of a request, read."""

    request: CompletionRequest
    response: CompletionResponse | None
    fault: JudgeLocalError | None
    """What is wrong with the response, or why there is none; None when it is the answer."""
    seconds: float


Outcome = CompletionResponse | Exception
Ask = Callable[[InferenceProvider, Sequence[CompletionRequest]], Awaitable[Sequence[Outcome]]]


async def _rounds(
    ask: Ask,
    provider: InferenceProvider,
    requests: Sequence[CompletionRequest],
    attempts: int,
    validator: Validator,
    again: Again,
    *,
    record_all: bool = False,
) -> list[list[_Attempt]]:
    """The attempts of each request. Every round asks whatever still needs an answer."""
    histories: list[list[_Attempt]] = [[] for _ in requests]
    waiting = dict(enumerate(requests))
    while waiting:
        started = time.perf_counter()
        outcomes = await ask(provider, list(waiting.values()))
        seconds = time.perf_counter() - started
        for (index, request), outcome in zip(waiting.items(), outcomes, strict=True):
            histories[index].append(_read(outcome, request, provider, validator, seconds))
        faults = [histories[index][-1].fault for index in waiting]
        if (
            not record_all
            and isinstance(faults[0], SETUP_FAULTS)
            and all(isinstance(f, SETUP_FAULTS) for f in faults)
        ):
            raise faults[0]
        record_all = True
        waiting = {
            index: again(history[-1].request, fault)
            for index, history in enumerate(histories)
            if (fault := history[-1].fault) is not None and fault.retryable and len(history) < attempts
        }
    return histories


async def _one_by_one(provider: InferenceProvider, requests: Sequence[CompletionRequest]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for request in requests:
        try:
            outcomes.append(await _in_time(provider.complete_json(request), request.deadline))
        except Exception as error:  # noqa: BLE001 # Recorded on the run: a provider may raise what it likes.
            outcomes.append(error)
    return outcomes


async def _as_a_batch(
    provider: InferenceProvider, requests: Sequence[CompletionRequest]
) -> Sequence[Outcome]:
    deadlines = [request.deadline for request in requests if request.deadline is not None]
    try:
        outcomes: Sequence[Outcome] = await _in_time(
            provider.complete_many(list(requests)),  # type: ignore[attr-defined] # optional; the caller looked
            max(deadlines, default=None),
        )
    except Exception as error:  # noqa: BLE001 # Recorded on every run of the batch.
        return [error] * len(requests)
    if len(outcomes) != len(requests):
        fault = ProviderError(_name(provider), f"{len(outcomes)} answers came for {len(requests)} requests")
        return [fault] * len(requests)
    return outcomes


T = TypeVar("T")


async def _in_time(answer: Coroutine[Any, Any, T], deadline: float | None) -> T:
    """Await `answer`, which is never begun once `deadline` has passed, and is cancelled some time after it."""
    import asyncio

    if deadline is None:
        return await answer
    if time.monotonic() >= deadline:
        answer.close()
        raise DeadlineExceededError("deadline", "it had passed before the run began", "Allow more time.")
    limit = asyncio.timeout(deadline + DEADLINE_GRACE - time.monotonic())
    try:
        async with limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise  # The provider's own.
        raise DeadlineExceededError("deadline", "it passed without an answer", "Allow more time.") from None


def _read(
    outcome: Outcome,
    request: CompletionRequest,
    provider: InferenceProvider,
    validator: Validator,
    seconds: float,
) -> _Attempt:
    if isinstance(outcome, CompletionResponse):
        bound = bool(getattr(provider, "grammar_bound", False))
        fault = fault_of(outcome, validator, checked=request.checked, bound=bound)
        return _Attempt(request, outcome, fault, seconds)
    if not isinstance(outcome, JudgeLocalError):
        outcome = ProviderError(_name(provider), _short(f"{type(outcome).__name__}: {outcome}"))
    return _Attempt(request, None, outcome, seconds)


def fault_of(
    response: CompletionResponse, validator: Validator, *, checked: Collection[str] = (), bound: bool = False
) -> InvalidAnswerError | UnsoundGrammarError | None:
    """What is wrong with `response`; None when it is valid.

    Args:
        response: one answer.
        validator: of the schema that it must keep.
        checked: keywords that no grammar enforces; formats never are.
        bound: whether a grammar held the answer to the schema. If one did, a failure of any other keyword is ours.
    """
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        if response.text is not None:
            extract_json(response.text)  # Finds what parsing hides: a repeated key, a NaN.
        json.dumps(response.json, allow_nan=False, ensure_ascii=False).encode()
    except InvalidAnswerError as fault:
        return fault
    except (TypeError, ValueError, RecursionError) as error:
        return _refused("answer", f"it is not JSON ({error})", _text_of(response))
    try:
        errors = list(validator.iter_errors(response.json))
    except Unresolvable as error:
        raise InvalidSchemaError("schema", f"$ref leads nowhere ({error})", "Copy it into $defs.") from None
    except RecursionError:
        raise InvalidSchemaError("schema", "it refers to itself without end") from None
    if not errors:
        return None
    excused = {*checked, "format"}
    ours = [error for error in errors if not _excused(error, excused)] if bound else []
    worst = best_match(ours or errors)
    assert worst is not None
    where, problem = f"answer{worst.json_path[1:]}", _short(worst.message)
    if not ours:
        return _refused(where, problem, _text_of(response))
    unsound = UnsoundGrammarError(
        where, f"{problem} ({worst.validator})", "Please report this schema: it is a bug."
    )
    unsound.raw = _text_of(response)
    return unsound


def _excused(error: ValidationError, keywords: Collection[str]) -> bool:
    """Whether `error` may come of nothing but `keywords`: itself, or all that is wrong with one of its branches."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    return error.validator in keywords or any(
        all(_excused(inner, keywords) for inner in branch) for branch in branches.values()
    )


def _run_of(history: Sequence[_Attempt], provider: InferenceProvider) -> InferenceRun:
    last = history[-1]
    usages = [a.response.usage for a in history if a.response is not None and a.response.usage is not None]
    answer = last.response
    return InferenceRun(
        result=answer.json if answer is not None and last.fault is None else None,
        error=None if last.fault is None else str(last.fault),
        provider=provider.provider,
        model=provider.model,
        usage=reduce(add, usages) if usages else None,
        duration_ms=1000 * sum(attempt.seconds for attempt in history),
        attempts=len(history),
        probabilities=answer.probabilities if answer is not None else None,
        fingerprint=answer.fingerprint if answer is not None else None,
        notes=answer.notes if answer is not None else (),
        error_kind=None if last.fault is None else type(last.fault).__name__,
        raw=None if last.fault is None or last.fault.raw is None else cut_raw(last.fault.raw),
    )


def _text_of(response: CompletionResponse) -> str:
    return response.text if response.text is not None else repr(response.json)


def _refused(where: str, problem: str, raw: str) -> InvalidAnswerError:
    fault = InvalidAnswerError(where, problem)
    fault.raw = raw
    return fault


def _short(text: str) -> str:
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "…"


def _name(provider: InferenceProvider) -> str:
    return f"{provider.provider} {provider.model}"


def _check_attempts(attempts: int) -> None:
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < 1:
        raise UsageError("attempts", f"{excerpt(attempts)} is not a whole number of at least 1")
