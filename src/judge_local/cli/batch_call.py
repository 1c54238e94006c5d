"""What one call of `batch` is about: its options, and every file they name, read and checked before a model is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from judge_local.errors import UsageError
from judge_local.subject import STDIN, read_text
from judge_local.verdict import VERDICT_SCHEMA

if TYPE_CHECKING:
    from judge_local.batch.formats import Source
    from judge_local.batch.judging import Judging
    from judge_local.batch.rows import Subjects
    from judge_local.batch.shards import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """The options of one call, as click read them."""

    rows: str
    """A path, or `-`."""
    output: str | None
    format: str | None
    map: tuple[tuple[str, str], ...]
    """(field, column) pairs."""
    allow_outside: bool
    model: str | None
    runs: int
    temperature: float
    seed: int
    schema: str | None
    checked: tuple[str, ...]
    vary: str | None
    auto_pass: float
    auto_fail: float
    deterministic: bool
    threads: int | None
    gpu_layers: int | Literal["auto"]
    chat_template: str | None
    cache: str | None
    shard: str | None
    """`i/n`, `auto` or `auto/n`."""
    engine: str
    """`local` or `ray`."""
    ray_address: str | None
    ray_actors: int | None
    fresh: bool
    retry_errors: bool
    limit: int | None
    time_budget: float | None
    """Seconds."""
    at_once: int | None
    ordered: bool
    only_zone: tuple[str, ...]
    dry_run: bool
    no_wait: bool
    no_text: bool
    json: bool
    quiet: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCall:
    """What one call judges, and how: everything read, checked, and ready before a model is loaded."""

    source: Source
    names: dict[str, str]
    subjects: Subjects
    judging: Judging
    output: str
    """Empty where a dry run names none."""
    chat_template: str | None
    shard: Shard | None


def read_batch_call(options: BatchOptions) -> BatchCall:
    """Read and check what a call names, but for the rows and the results.

    Raises:
        JudgeLocalError: something cannot be read, or cannot be meant.
    """
    from judge_local.batch.formats import Source
    from judge_local.batch.judging import Judging
    from judge_local.batch.rows import Subjects
    from judge_local.batch.shards import read_shard
    from judge_local.cache import sha256
    from judge_local.cli.call import verdict_schema
    from judge_local.zones import ZoneThresholds

    output = options.output or ""
    if output in ("", STDIN) and not options.dry_run:
        raise UsageError("-o", "no results file is named", "Name one: -o results.jsonl")
    if options.fresh and options.retry_errors:
        raise UsageError(
            "--retry-errors", "--fresh starts over and keeps nothing to retry", "Give one of them."
        )
    _refuse_engine(options)
    named = {"ROWS": options.rows, "--schema": options.schema, "--chat-template": options.chat_template}
    from_stdin = [name for name, path in named.items() if path == STDIN]
    if len(from_stdin) > 1:
        raise UsageError(
            " and ".join(from_stdin), "standard input is read once", "Put one of them into a file."
        )
    source = Source(options.rows, options.format)
    source.check()
    schema = VERDICT_SCHEMA
    if options.schema is not None:
        schema = verdict_schema(read_text(options.schema, what="schema"), checked=options.checked)
    template = None
    if options.chat_template is not None:
        template = read_text(options.chat_template, what="chat template")
    machine = {
        "deterministic": options.deterministic,
        "gpuLayers": options.gpu_layers,
        "threads": options.threads,
        "chatTemplateSha256": None if template is None else sha256(template),
    }
    return BatchCall(
        source=source,
        names=dict(options.map),
        subjects=Subjects(source.folder, allow_outside=options.allow_outside),
        judging=Judging(
            runs=options.runs,
            temperature=options.temperature,
            vary=options.vary,
            seed=options.seed,
            schema=schema,
            checked=options.checked,
            zones=ZoneThresholds(auto_pass=options.auto_pass, auto_fail=options.auto_fail),
            machine={name: value for name, value in machine.items() if value is not None},
        ),
        output=output,
        chat_template=template,
        shard=None if options.shard is None else read_shard(options.shard, os.environ),
    )


def _refuse_engine(options: BatchOptions) -> None:
    """Refuse what has no meaning for the engine that was chosen."""
    if options.engine != "ray":
        for name in ("ray_address", "ray_actors"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')}",
                    "it is about Ray, and Ray is not asked for",
                    "Add --engine ray.",
                )
    elif options.no_wait:
        raise UsageError(
            "--no-wait", "actors on one machine wait for each other", "Leave it out with --engine ray."
        )
