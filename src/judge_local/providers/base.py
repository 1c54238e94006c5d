"""The provider contract: one request goes to a model, one answer comes back.

Nothing above this line knows which engine answers; nothing below it knows what a verdict is. Cancelling the task that
awaits `complete_json` cancels the work itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from judge_local.errors import UsageError, excerpt
from judge_local.run import Note, TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One question to a model.

    `system` and `user` are untrusted text, whole: no character of either can become a control token. The chat
    template's own scaffolding is the only text that may.
    """

    system: str
    user: str
    schema: Mapping[str, Any]
    temperature: float = 0.0
    """0 is greedy; above 0 samples, reproducibly for a given `seed`."""
    run: int = 0
    attempt: int = 0
    """0 for the first try of a run."""
    seed: int = 0
    order: tuple[str, ...] | None = None
    """Decode order of the top-level keys; None is the schema's. The answer's `json` is in schema order all the same."""
    pinned: Mapping[str, str] | None = None
    """Top-level string properties whose value is fixed, by name."""
    checked: tuple[str, ...] = ()
    """Keywords left to the validator, by name."""
    slot: str = "/match"
    """JSON pointer to the enum property whose options' probabilities are asked for."""
    option_bias: Mapping[str, float] | None = None
    """By option of the slot, what is added to the logarithm of its probability before one is drawn. A provider that
    cannot refuses."""
    score_only: bool = False
    """Write nothing: read `probabilities["before"]` of the slot. A provider that cannot refuses."""
    max_tokens: int | None = None
    """Upper limit of generated tokens; None takes what the grammar's longest text needs."""
    deadline: float | None = None
    """A `time.monotonic()` instant; None waits as long as it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionResponse:
    """One answer. `json` is parsed, not validated: validation is `completion`'s."""

    json: Any
    """None where scores alone were asked for."""
    text: str | None = None
    """The answer as it was written, before parsing."""
    usage: TokenUsage | None = None
    probabilities: Mapping[str, Mapping[str, float]] | None = None
    """`before` and `slot`: option → probability, without a bias."""
    fingerprint: str | None = None
    notes: tuple[Note, ...] = ()
    stats: Mapping[str, float] = field(default_factory=dict)
    """Seconds and counts by name, as the engine reports them."""


@runtime_checkable
class InferenceProvider(Protocol):
    """What the ensemble needs of a provider.

    Optional attributes, read with `getattr`:

    * `complete_many(requests) -> list[CompletionResponse | JudgeLocalError]`: answers in the order of `requests`;
      shares what they have in common.
    * `default_vary`: the variation design used when none is named (`"none"` when absent).
    * `replays: bool`: whether equal requests at temperature 0 give equal answers (`False` when absent).
    * `grammar_bound: bool`: whether every answer is held to the schema while it is written (`False` when absent).
    """

    @property
    def provider(self) -> str:
        """The engine's name (`llama-cpp`, `mock`): feeds cache keys."""
        ...

    @property
    def model(self) -> str:
        """A concrete model, never a selector such as `auto`."""
        ...

    async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
        """Answer `request`.

        Raises:
            JudgeLocalError: no usable answer came; its `retryable` says whether asking again may help.
        """
        ...


def check_provider(provider: Any) -> None:
    """Refuse what cannot be asked, before anything else is done with it.

    Raises:
        UsageError: it is a text, a class, or something else that is no provider.
    """
    if isinstance(provider, type):
        raise UsageError("provider", f"{provider.__name__} is a class", f"Pass {provider.__name__}(…).")
    if isinstance(provider, str):
        raise UsageError(
            "provider",
            f"{excerpt(provider)} is a text",
            "Pass LocalProvider(…) for a model on this disk, or OpenAIProvider(…) for a server.",
        )
    if not all(hasattr(provider, name) for name in ("provider", "model", "complete_json")):
        raise UsageError(
            "provider",
            f"{excerpt(provider)} is no provider",
            "It needs provider, model and complete_json, as LocalProvider has them.",
        )
