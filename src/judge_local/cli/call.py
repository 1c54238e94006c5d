"""What one call of `judge` is about: every file it names, read and checked before a model is loaded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from judge_local.cli.claims import Claim, read_claims, strict_json
from judge_local.errors import InputError, InvalidSchemaError, UsageError, excerpt
from judge_local.subject import STDIN, read_subject, read_text
from judge_local.verdict import VERDICT_SCHEMA, check_verdict_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one call, as click read them."""

    subject: str
    """A path, or `-`."""
    claim: tuple[str, ...]
    claims: str | None
    reference: str | None
    model: str | None
    runs: int
    temperature: float
    seed: int
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    thinking: int = 0
    """Tokens."""
    option_bias: tuple[tuple[str, float], ...] = ()
    score_only: bool = False
    schema: str | None
    checked: tuple[str, ...]
    vary: str | None
    auto_pass: float
    auto_fail: float
    timeout: float | None
    """Seconds for the whole call, loading included."""
    deterministic: bool
    threads: int | None
    gpu_layers: int | Literal["auto"]
    chat_template: str | None
    cache: str | None
    no_wait: bool
    no_text: bool
    json: bool
    quiet: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one call judges: everything read, checked, and ready before a model is loaded."""

    subject: str
    subject_file: str | None
    claims: tuple[Claim, ...]
    reference: str | None
    schema: Mapping[str, Any]
    chat_template: str | None
    deadline: float | None
    """A `time.monotonic()` instant."""


def read_call(options: Options) -> Call:
    """Read and check everything a call names.

    Raises:
        JudgeLocalError: something cannot be read, or cannot be meant.
    """
    named = {"SUBJECT": options.subject, "--claims": options.claims, "--reference": options.reference}
    named |= {"--schema": options.schema, "--chat-template": options.chat_template}
    from_stdin = [name for name, path in named.items() if path == STDIN]
    if len(from_stdin) > 1:
        raise UsageError(
            " and ".join(from_stdin), "standard input is read once", "Put one of them into a file."
        )
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    claims = read_claims(options.claim, options.claims)
    subject = read_subject(options.subject)
    reference = None if options.reference is None else read_text(options.reference, what="reference")
    if reference is not None and not reference.strip():
        raise InputError("reference", f"{options.reference!r} is empty", "Leave --reference out.")
    schema: Mapping[str, Any] = VERDICT_SCHEMA
    if options.schema is not None:
        schema = verdict_schema(read_text(options.schema, what="schema"), checked=options.checked)
    template = None
    if options.chat_template is not None:
        template = read_text(options.chat_template, what="chat template")
    return Call(
        subject=subject,
        subject_file=None if options.subject == STDIN else options.subject,
        claims=claims,
        reference=reference,
        schema=schema,
        chat_template=template,
        deadline=deadline,
    )


def verdict_schema(text: str, *, checked: tuple[str, ...] = ()) -> Mapping[str, Any]:
    """A verdict schema of one's own, compiled once to see that it can be, so that no model is loaded for nothing.

    Raises:
        SchemaError: it is not JSON, not a schema, cannot be enforced, or cannot yield a verdict.
    """
    from judge_local.grammar.profile import compile_verdict

    try:
        schema = strict_json(text)
    except ValueError as error:
        raise InvalidSchemaError(
            "schema", f"is not JSON: {error}", "A verdict schema is a JSON object."
        ) from None
    if not isinstance(schema, dict):
        raise InvalidSchemaError(
            "schema", f"{excerpt(text)} is not a JSON object", "A verdict schema is one."
        )
    compile_verdict(schema, checked=checked)
    check_verdict_schema(schema)
    return schema
