"""Offline LLM-as-judge on local GGUF models: a claim and its material go in, a decision one can defend comes out.

The public names, and nothing else. Each is loaded when it is first used: importing this package loads no native code,
reads no environment and prints nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judge_local.cache import JsonCache, build_cache_key, sha256
    from judge_local.completion import complete_validated_json
    from judge_local.consensus import Consensus, Votes, compute_consensus
    from judge_local.ensemble import judge, judge_claim, reset_temperature_warning, run_ensemble
    from judge_local.errors import BudgetExpiredError, JudgeLocalError
    from judge_local.failures import categorize_error
    from judge_local.grammar import compile_schema
    from judge_local.panel import PanelResult, judge_panel, run_panel
    from judge_local.providers.base import CompletionRequest, CompletionResponse, InferenceProvider
    from judge_local.providers.local import LocalProvider
    from judge_local.providers.mock import MockProvider, mock_verdict
    from judge_local.providers.openai import OpenAIProvider
    from judge_local.providers.outlines import OutlinesProvider
    from judge_local.resilience import RetryOptions, with_retry, with_timeout
    from judge_local.run import InferenceRun, JudgeRun, TokenUsage
    from judge_local.scoring import Scores, score_claim, score_claims
    from judge_local.verdict import VERDICT_SCHEMA, JudgeVerdict, Match
    from judge_local.zones import DEFAULT_ZONES, ConsensusResult, Zone, ZoneThresholds, zone_for

    __version__: str

_HOMES = {
    "BudgetExpiredError": "errors",
    "CompletionRequest": "providers.base",
    "CompletionResponse": "providers.base",
    "Consensus": "consensus",
    "ConsensusResult": "zones",
    "DEFAULT_ZONES": "zones",
    "InferenceProvider": "providers.base",
    "InferenceRun": "run",
    "JsonCache": "cache",
    "JudgeLocalError": "errors",
    "JudgeRun": "run",
    "JudgeVerdict": "verdict",
    "LocalProvider": "providers.local",
    "Match": "verdict",
    "MockProvider": "providers.mock",
    "OpenAIProvider": "providers.openai",
    "OutlinesProvider": "providers.outlines",
    "PanelResult": "panel",
    "RetryOptions": "resilience",
    "Scores": "scoring",
    "TokenUsage": "run",
    "VERDICT_SCHEMA": "verdict",
    "Votes": "consensus",
    "Zone": "zones",
    "ZoneThresholds": "zones",
    "build_cache_key": "cache",
    "categorize_error": "failures",
    "compile_schema": "grammar",
    "complete_validated_json": "completion",
    "compute_consensus": "consensus",
    "judge": "ensemble",
    "judge_claim": "ensemble",
    "judge_panel": "panel",
    "mock_verdict": "providers.mock",
    "reset_temperature_warning": "ensemble",
    "run_ensemble": "ensemble",
    "run_panel": "panel",
    "score_claim": "scoring",
    "score_claims": "scoring",
    "sha256": "cache",
    "with_retry": "resilience",
    "with_timeout": "resilience",
    "zone_for": "zones",
}

__all__ = [
    "DEFAULT_ZONES",
    "VERDICT_SCHEMA",
    "BudgetExpiredError",
    "CompletionRequest",
    "CompletionResponse",
    "Consensus",
    "ConsensusResult",
    "InferenceProvider",
    "InferenceRun",
    "JsonCache",
    "JudgeLocalError",
    "JudgeRun",
    "JudgeVerdict",
    "LocalProvider",
    "Match",
    "MockProvider",
    "OpenAIProvider",
    "OutlinesProvider",
    "PanelResult",
    "RetryOptions",
    "Scores",
    "TokenUsage",
    "Votes",
    "Zone",
    "ZoneThresholds",
    "__version__",
    "build_cache_key",
    "categorize_error",
    "compile_schema",
    "complete_validated_json",
    "compute_consensus",
    "judge",
    "judge_claim",
    "judge_panel",
    "mock_verdict",
    "reset_temperature_warning",
    "run_ensemble",
    "run_panel",
    "score_claim",
    "score_claims",
    "sha256",
    "with_retry",
    "with_timeout",
    "zone_for",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("judge-local")
    elif name in _HOMES:
        from importlib import import_module

        value = getattr(import_module(f"judge_local.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'judge_local' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
