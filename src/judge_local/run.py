"""One run: a verdict or an error, with what it took, and the file format that caches in the field hold.

Adding an optional key is fine; renaming or removing one breaks every cache and carries ``BREAKING CHANGE``.
Keys are absent rather than null; keys this version does not know survive a round trip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from judge_local.errors import UsageError, excerpt
from judge_local.verdict import JudgeVerdict

RAW_BYTES: Final = 4096
"""An errored run keeps at most this many bytes of what the model wrote."""


def cut_raw(text: str) -> str:
    """`text` down to `RAW_BYTES` bytes of UTF-8, cut between two characters."""
    return text.encode("utf-8", "backslashreplace")[:RAW_BYTES].decode("utf-8", "ignore")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What a run cost, in tokens."""

    input_tokens: int
    """Prompt tokens, shared ones included."""
    output_tokens: int

    def to_json(self) -> dict[str, int]:
        """The file format: `inputTokens`, `outputTokens`."""
        return {"inputTokens": self.input_tokens, "outputTokens": self.output_tokens}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TokenUsage:
        """Read the file format.

        Raises:
            UsageError: a count is missing or is not a whole number.
        """
        counts = (data.get("inputTokens"), data.get("outputTokens"))
        if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
            raise UsageError("usage", f"{excerpt(dict(data))} is not a pair of token counts")
        return cls(*counts)  # type: ignore[arg-type] # both were just checked

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know about a run that does not change its verdict."""

    kind: str
    """`evidence`, `tripwire`, `checked`, `template`, …"""
    detail: str

    def to_json(self) -> dict[str, str]:
        """The file format."""
        return {"kind": self.kind, "detail": self.detail}

    @classmethod
    def from_json(cls, data: Any) -> Note:
        """Read the file format.

        Raises:
            UsageError: it is not an object with two strings.
        """
        kind, detail = (data.get("kind"), data.get("detail")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(kind, str) or not isinstance(detail, str):
            raise UsageError("note", f"{excerpt(data)} has no kind and detail")
        return cls(kind, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """The declared difference between this run and run 0."""

    index: int
    """Which variation of the fixed design, from 0."""
    options: tuple[str, ...]
    """The order in which the options were offered; empty when the prompt was not varied."""
    paraphrase: int
    """Which wording of the closing sentence, from 0."""
    seed: int

    def to_json(self) -> dict[str, Any]:
        """The file format."""
        return {
            "index": self.index,
            "options": list(self.options),
            "paraphrase": self.paraphrase,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Variation:
        """Read the file format.

        Raises:
            UsageError: a key is missing or has the wrong type.
        """
        counts, options = [data.get(key) for key in ("index", "paraphrase", "seed")], data.get("options")
        whole = all(isinstance(count, int) and not isinstance(count, bool) for count in counts)
        if not whole or not isinstance(options, list) or not all(isinstance(o, str) for o in options):
            raise UsageError("variation", f"{excerpt(dict(data))} is not a variation")
        return cls(
            index=data["index"], options=tuple(options), paraphrase=data["paraphrase"], seed=data["seed"]
        )


_REQUIRED: Final[dict[str, tuple[type, ...]]] = {
    "provider": (str,),
    "model": (str,),
    "cached": (bool,),
    "durationMs": (int, float),
}
_OPTIONAL: Final[dict[str, tuple[type, ...]]] = {
    "verdict": (Mapping,),
    "error": (str,),
    "usage": (Mapping,),
    "probabilities": (Mapping,),
    "variation": (Mapping,),
    "fingerprint": (str,),
    "notes": (list,),
    "optionBias": (Mapping,),
    "via": (str,),
    "slot": (str,),
    "substitutedFor": (str,),
    "errorKind": (str,),
    "raw": (str,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRun:
    """What came of one request with its retries, before anyone reads it as a verdict.

    Raises:
        UsageError: a `result` stands beside an `error`.
    """

    result: Any = None
    """The validated answer; JSON's null is a result when `error` is None."""
    error: str | None = None
    """Why there is no answer; None where there is one."""
    provider: str
    model: str
    usage: TokenUsage | None = None
    """Tokens of all attempts together."""
    duration_ms: float
    """Wall time with retries, in milliseconds."""
    attempts: int
    """How many attempts were made, the recorded one included; at least 1."""
    probabilities: Mapping[str, Mapping[str, float]] | None = None
    fingerprint: str | None = None
    notes: tuple[Note, ...] = ()
    error_kind: str | None = None
    """The error's class name; None where there is a result."""
    raw: str | None = None
    """What the model last wrote, at most `RAW_BYTES` bytes; errored runs only, where it is known."""

    def __post_init__(self) -> None:
        if self.error is not None and self.result is not None:
            raise UsageError("run", "a result and an error were given together")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRun:
    """One answer by one model: exactly one of `verdict` and `error`.

    Raises:
        UsageError: both, or neither, of `verdict` and `error` were given.
    """

    verdict: JudgeVerdict | None = None
    error: str | None = None
    provider: str
    model: str
    cached: bool = False
    usage: TokenUsage | None = None
    duration_ms: float
    """Wall time of the run with its retries, in milliseconds."""
    probabilities: Mapping[str, Mapping[str, float]] | None = None
    """`before` and `slot`: each maps an option to its probability, 0..1."""
    variation: Variation | None = None
    fingerprint: str | None = None
    notes: tuple[Note, ...] = ()
    option_bias: Mapping[str, float] | None = None
    via: str | None = None
    slot: str | None = None
    substituted_for: str | None = None
    error_kind: str | None = None
    """The error's class name; errored runs only."""
    raw: str | None = None
    """What the model wrote, at most `RAW_BYTES` bytes; errored runs only."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a later version, kept as they were."""

    def __post_init__(self) -> None:
        if (self.verdict is None) == (self.error is None):
            raise UsageError("run", "exactly one of verdict and error must be given")

    @classmethod
    def of(cls, answer: InferenceRun, variation: Variation | None) -> JudgeRun:
        """`answer` read as a verdict, which the guard of the schema has proved it to be."""
        return cls(
            verdict=None if answer.error is not None else JudgeVerdict.from_json(answer.result),
            error=answer.error,
            provider=answer.provider,
            model=answer.model,
            usage=answer.usage,
            duration_ms=answer.duration_ms,
            probabilities=answer.probabilities,
            variation=variation,
            fingerprint=answer.fingerprint,
            notes=answer.notes,
            error_kind=answer.error_kind,
            raw=answer.raw,
        )

    def to_json(self) -> dict[str, Any]:
        """The file format; absent rather than null."""
        optional: dict[str, Any] = {
            "usage": self.usage and self.usage.to_json(),
            "durationMs": self.duration_ms,
            "probabilities": self.probabilities and {k: dict(v) for k, v in self.probabilities.items()},
            "variation": self.variation and self.variation.to_json(),
            "fingerprint": self.fingerprint,
            "notes": [note.to_json() for note in self.notes] or None,
            "optionBias": self.option_bias and dict(self.option_bias),
            "via": self.via,
            "slot": self.slot,
            "substitutedFor": self.substituted_for,
            "errorKind": self.error_kind,
            "raw": self.raw,
        }
        outcome = {"verdict": self.verdict.to_json()} if self.verdict is not None else {"error": self.error}
        return {
            **outcome,
            "provider": self.provider,
            "model": self.model,
            "cached": self.cached,
            **{key: value for key, value in optional.items() if value is not None},
            **self.unknown,
        }

    @classmethod
    def from_json(cls, data: Any) -> JudgeRun:
        """Read one run of the file format.

        Raises:
            UsageError: the shape is wrong.
        """
        if not isinstance(data, Mapping):
            raise UsageError("run", f"{excerpt(data)} is not an object")
        for key, kinds in (_REQUIRED | _OPTIONAL).items():
            if (key in data or key in _REQUIRED) and not isinstance(data.get(key), kinds):
                raise UsageError("run", f"{key} is {excerpt(data.get(key))}")
        notes = tuple(Note.from_json(note) for note in data.get("notes", ()))
        if not 0 <= data["durationMs"] < math.inf:
            raise UsageError("run", f"durationMs is {excerpt(data['durationMs'])}")
        if not all(_is_distribution(table) for table in data.get("probabilities", {}).values()):
            raise UsageError("run", f"probabilities are {excerpt(data['probabilities'])}")
        return cls(
            verdict=JudgeVerdict.from_json(data["verdict"]) if "verdict" in data else None,
            error=data.get("error"),
            provider=data["provider"],
            model=data["model"],
            cached=data["cached"],
            usage=TokenUsage.from_json(data["usage"]) if "usage" in data else None,
            duration_ms=data["durationMs"],
            probabilities=data.get("probabilities"),
            variation=Variation.from_json(data["variation"]) if "variation" in data else None,
            fingerprint=data.get("fingerprint"),
            notes=notes,
            option_bias=data.get("optionBias"),
            via=data.get("via"),
            slot=data.get("slot"),
            substituted_for=data.get("substitutedFor"),
            error_kind=data.get("errorKind"),
            raw=data.get("raw"),
            unknown={
                key: value for key, value in data.items() if key not in _REQUIRED and key not in _OPTIONAL
            },
        )


def _is_distribution(table: Any) -> bool:
    """Whether `table` maps options to probabilities."""
    return isinstance(table, Mapping) and all(
        isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1
        for share in table.values()
    )


def runs_from_json(data: Any) -> tuple[JudgeRun, ...]:
    """Read a list of runs: what a cache file holds.

    Raises:
        UsageError: it is not a list, or an entry is not a run.
    """
    if not isinstance(data, list):
        raise UsageError("runs", f"{excerpt(data)} is not a list")
    return tuple(JudgeRun.from_json(entry) for entry in data)


def runs_from_cache(entry: Any, count: int) -> list[JudgeRun] | None:
    """The runs of a cache entry, each marked as cached; None where it is not `count` runs that all have a verdict."""
    try:
        kept = [replace(run, cached=True) for run in runs_from_json(entry)]
    except UsageError:  # Of the wrong shape: a miss, like an entry that is not there.
        return None
    return kept if len(kept) == count and all(run.error is None for run in kept) else None
