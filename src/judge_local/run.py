"""One run: a verdict or an error, with what it took. Its JSON form is a file format that caches in the field hold.

Adding an optional key is fine; renaming or removing one breaks every cache and carries ``BREAKING CHANGE``.
Keys are absent rather than null; keys this version does not know survive a round trip.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from judge_local.errors import UsageError, excerpt
from judge_local.verdict import JudgeVerdict

RAW_BYTES: Final = 4096
"""An errored run keeps at most this many bytes of what the model wrote."""


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


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know about a run that does not change its verdict."""

    kind: str
    """`evidence`, `tripwire`, `checked`, `template`, …"""
    detail: str

    def to_json(self) -> dict[str, str]:
        """The file format."""
        return {"kind": self.kind, "detail": self.detail}


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
            UsageError: a key is missing.
        """
        try:
            return cls(
                index=data["index"],
                options=tuple(data["options"]),
                paraphrase=data["paraphrase"],
                seed=data["seed"],
            )
        except (KeyError, TypeError) as error:
            raise UsageError("variation", f"{excerpt(dict(data))} lacks {error}") from None


_KNOWN: Final = frozenset(
    "verdict error provider model cached usage durationMs probabilities variation fingerprint notes optionBias via slot "
    "substitutedFor errorKind raw".split()
)


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
        for key, kind in (("provider", str), ("model", str), ("cached", bool), ("durationMs", (int, float))):
            if not isinstance(data.get(key), kind):  # type: ignore[arg-type] # a tuple of types is a classinfo
                raise UsageError("run", f"{key} is {excerpt(data.get(key))}")
        for key, kind in (
            *((key, Mapping) for key in ("verdict", "usage", "probabilities", "variation", "optionBias")),
            *((key, str) for key in ("error", "fingerprint", "via", "slot", "substitutedFor", "errorKind", "raw")),
            ("notes", list),
        ):
            if key in data and not isinstance(data[key], kind):
                raise UsageError("run", f"{key} is {excerpt(data[key])}")
        try:
            notes = tuple(Note(note["kind"], note["detail"]) for note in data.get("notes", ()))
        except (KeyError, TypeError):
            raise UsageError("run", f"notes are {excerpt(data['notes'])}") from None
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
            unknown={key: value for key, value in data.items() if key not in _KNOWN},
        )
