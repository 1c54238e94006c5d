"""A dry run: every row read as a batch would read it, nothing written, and what it would take.

* Tokens are counted on the very prompts that would be sent, by the model's own vocabulary.
* Time is told from a probe: a few rows are judged and their results thrown away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from judge_local.batch.digests import DigestSet
from judge_local.batch.judging import Judging
from judge_local.batch.lookahead import LookAhead
from judge_local.batch.rows import BadRow, Row, Subjects
from judge_local.batch.runner import JudgeRow
from judge_local.ensemble import judge_claim
from judge_local.errors import EngineError, JudgeLocalError
from judge_local.providers.base import CompletionRequest, CompletionResponse, InferenceProvider

if TYPE_CHECKING:
    from judge_local.engine.counting import TokenCounter
    from judge_local.engine.protocol import Generate

FAULTS_NAMED: Final = 5
PROBE_ROWS: Final = 6
PROBE_SECONDS: Final = 20.0
"""No row of the probe is begun later."""


class CountsTokens(Protocol):
    """A provider whose prompts can be counted without asking it."""

    def counter(self) -> TokenCounter:
        """What counts."""
        ...

    def asked(self, request: CompletionRequest) -> Generate:
        """The texts as the model reads them."""
        ...

    def context_tokens(self) -> int | None:
        """The most tokens of one prompt with its answer."""
        ...


@dataclass(slots=True, kw_only=True)
class DryRun:
    """What a batch would find, and take."""

    rows: int = 0
    bad: int = 0
    found: int = 0
    """Rows that have a result already."""
    faults: list[str] = field(default_factory=list)
    """Of the first bad rows."""
    subjects: int = 0
    """Different ones among the rows to judge."""
    context_tokens: int | None = None
    counted: int = 0
    """Rows whose prompt was counted; 0 where nobody can count for this judge."""
    prompt_tokens: int = 0
    """Of one run of every row together."""
    longest_tokens: int = 0
    longest_line: int = 0
    too_long: int = 0
    """Rows whose prompt and answer do not fit the context, so that they would be errors."""
    too_long_lines: list[int] = field(default_factory=list)
    """The first of them."""
    probe_rows: int = 0
    probe_seconds: float = 0.0

    @property
    def to_judge(self) -> int:
        """Rows that would be judged."""
        return self.rows - self.found - self.bad

    @property
    def seconds(self) -> float | None:
        """How long it would probably take; None where nothing was judged to tell it from."""
        if not self.probe_rows:
            return None
        return self.to_judge * self.probe_seconds / self.probe_rows

    def to_json(self) -> dict[str, Any]:
        """The report for a machine."""
        seconds = self.seconds
        facts: dict[str, Any] = {
            "rows": self.rows,
            "bad": self.bad,
            "judgedBefore": self.found,
            "toJudge": self.to_judge,
            "subjects": self.subjects,
            "faults": self.faults,
            "contextTokens": self.context_tokens,
            "promptTokens": self.prompt_tokens if self.counted else None,
            "longestPromptTokens": self.longest_tokens if self.counted else None,
            "longestPromptLine": self.longest_line if self.counted else None,
            "tooLong": self.too_long if self.counted else None,
            "tooLongLines": self.too_long_lines if self.counted else None,
            "probeRows": self.probe_rows,
            "probeSeconds": round(self.probe_seconds, 3),
            "estimatedSeconds": None if seconds is None else round(seconds, 1),
        }
        return {key: value for key, value in facts.items() if value is not None}


async def dry_run(
    rows: Iterable[Row | BadRow],
    judging: Judging,
    provider: InferenceProvider,
    *,
    subjects: Subjects,
    kept: DigestSet,
    judge_row: JudgeRow | None,
) -> DryRun:
    """Read all rows, count their tokens where the provider can, and judge a few of them.

    Args:
        rows: what there is to judge.
        judging: how.
        provider: by whom.
        subjects: reads the subjects that lie in files.
        kept: ids of the rows that have a result.
        judge_row: judges the rows of the probe; None is no probe.

    Raises:
        InputError: the rows cannot be read to their end.
        ModelError: the model cannot be used.
    """
    report = DryRun()
    counting = await asyncio.to_thread(_Counting.of, provider)
    report.context_tokens = None if counting is None else counting.context
    seen = DigestSet()
    probe: list[Row] = []
    ahead = LookAhead(rows)
    try:
        while (row := await ahead.next()) is not None:
            report.rows += 1
            if row.id in kept:
                report.found += 1
                continue
            whole = await asyncio.to_thread(subjects.with_text, row) if isinstance(row, Row) else row
            if isinstance(whole, BadRow):
                report.bad += 1
                if len(report.faults) < FAULTS_NAMED:
                    report.faults.append(whole.error)
                continue
            seen.add(whole.subject or "")
            fits = True
            if counting is not None:
                fits = await _count(whole, judging, counting, report)
            if fits and len(probe) < PROBE_ROWS:
                probe.append(whole)
    finally:
        ahead.stop()
        if counting is not None:
            counting.counter.close()
    if ahead.error is not None:
        raise ahead.error
    report.subjects = len(seen)
    if judge_row is not None and probe:
        await _probe(probe, judge_row, report)
    return report


async def _count(row: Row, judging: Judging, counting: _Counting, report: DryRun) -> bool:
    """Count one row; whether it fits the context."""
    counting.tokens = counting.room = 0
    try:
        decision = await judge_claim(
            counting,
            row.subject or "",
            row.claim,
            reference=row.reference,
            runs=1,
            schema=judging.schema,
            vary=judging.vary,
            checked=judging.checked,
        )
    except JudgeLocalError as error:
        report.bad += 1
        if len(report.faults) < FAULTS_NAMED:
            report.faults.append(f"line {row.line}: {error}")
        return False
    if not counting.tokens:
        raise EngineError("dry run", f"line {row.line} cannot be counted: {decision.runs[0].error}")
    report.counted += 1
    report.prompt_tokens += counting.tokens
    if counting.tokens > report.longest_tokens:
        report.longest_tokens, report.longest_line = counting.tokens, row.line
    if report.context_tokens is None or counting.tokens + counting.room <= report.context_tokens:
        return True
    report.too_long += 1
    if len(report.too_long_lines) < FAULTS_NAMED:
        report.too_long_lines.append(row.line)
    return False


async def _probe(rows: Sequence[Row], judge_row: JudgeRow, report: DryRun) -> None:
    """Judge `rows` together, as a batch would, for some seconds."""
    waiting = iter(rows)
    until = time.monotonic() + PROBE_SECONDS
    started = time.monotonic()

    async def work() -> None:
        for row in waiting:
            if time.monotonic() >= until:
                return
            await judge_row(row)
            report.probe_rows += 1

    await asyncio.gather(*(work() for _ in range(min(4, len(rows)))))
    report.probe_seconds = time.monotonic() - started


class _Counting:
    """Stands in for a provider: counts what it is asked, and answers nothing."""

    def __init__(self, provider: InferenceProvider, of: CountsTokens) -> None:
        self.provider, self.model = provider.provider, provider.model
        self.default_vary = getattr(provider, "default_vary", "none")
        self._of = of
        self.counter = of.counter()
        self.context = of.context_tokens()
        self.tokens = self.room = 0
        """Of the last prompt, and of the answer to it."""

    @classmethod
    def of(cls, provider: InferenceProvider) -> _Counting | None:
        """One for `provider`; None where its prompts cannot be counted."""
        whole: Any = provider
        return cls(provider, whole) if hasattr(provider, "counter") else None

    async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
        """Count, and fail.

        Raises:
            JudgeLocalError: always.
        """
        asked = self._of.asked(request)
        self.tokens = await asyncio.to_thread(self.counter.count, asked.system, asked.user)
        self.room = min(asked.max_tokens, asked.typical_tokens)
        raise JudgeLocalError("dry run", "nothing is asked")
