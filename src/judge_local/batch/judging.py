"""How a batch judges a row, and what its results file says it was made with: the two must agree, so they stand together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from judge_local.batch.rows import Row, result_for
from judge_local.batch.runner import JudgeRow
from judge_local.cache import JsonCache, sha256
from judge_local.ensemble import judge_claim
from judge_local.prompt import PROMPT_VERSION
from judge_local.providers.base import InferenceProvider
from judge_local.results import Result, ResultsHeader
from judge_local.zones import DEFAULT_ZONES, ConsensusResult, ZoneThresholds

SLOTS: Final = 16
"""Runs that engines decode at once, or fewer: more rows in work cost nothing, for the engine begins no more than it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Everything about how rows are judged that is the same for all of them."""

    runs: int = 3
    temperature: float = 0.0
    vary: str | None = None
    """None is the provider's own design."""
    seed: int = 0
    schema: Mapping[str, Any]
    checked: tuple[str, ...] = ()
    zones: ZoneThresholds = DEFAULT_ZONES
    machine: Mapping[str, Any]
    """Settings of the machine that may change an answer, by name in camelCase; `threads` is one."""

    @property
    def at_once(self) -> int:
        """How many rows in work keep the engine busy, with a few more whose subjects are read meanwhile.

        No more than that: each is held in memory.
        """
        return max(4, 4 * SLOTS // self.runs)

    def header(self, provider: InferenceProvider, *, shard: str | None = None) -> ResultsHeader:
        """What the results file says of them."""
        vary = getattr(provider, "default_vary", "none") if self.vary is None else self.vary
        schema = json.dumps(
            dict(self.schema), default=dict, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        return ResultsHeader(
            model=f"{provider.provider}:{provider.model}",
            model_sha256=getattr(provider, "model_sha256", None),
            schema_sha256=sha256(schema),
            prompt_version=PROMPT_VERSION,
            settings={
                "runs": self.runs,
                "temperature": float(self.temperature),
                "vary": vary,
                "seed": self.seed,
                "checked": list(self.checked),
                "autoPass": self.zones.auto_pass,
                "autoFail": self.zones.auto_fail,
                **self.machine,
            },
            shard=shard,
        )

    def judge_row(self, provider: InferenceProvider, *, cache: JsonCache | None = None) -> JudgeRow:
        """What judges one row with `provider`.

        Args:
            provider: who answers.
            cache: where whole ensembles are kept, and taken from.
        """

        async def judged(row: Row) -> Result:
            subject = row.subject or ""
            decision = await judge_claim(
                provider,
                subject,
                row.claim,
                reference=row.reference,
                runs=self.runs,
                temperature=self.temperature,
                schema=self.schema,
                vary=self.vary,
                zones=self.zones,
                cache=cache,
                seed=self.seed,
                checked=self.checked,
            )
            return judged_result(row, decision)

        return judged


def judged_result(row: Row, decision: ConsensusResult) -> Result:
    """The result of `row`. Where no run gave a verdict, the row could not be judged, and says why."""
    error = None if decision.votes.graded else next((run.error for run in decision.runs), "it has no runs")
    return result_for(row, decision, error)
