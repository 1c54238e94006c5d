"""The design: how the runs of one ensemble differ, fixed and declared beforehand, so that they are more than one answer repeated.

Pure. Run k differs from run 0 by the order of the options, then the wording, then the seed. A provider never sees a
design, only texts and a seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from judge_local.cache import sha256
from judge_local.errors import UsageError, excerpt
from judge_local.prompt import PARAPHRASES, PROMPT_VERSION, option_orders, variation_text
from judge_local.providers.base import InferenceProvider, check_provider
from judge_local.run import Variation
from judge_local.verdict import match_options

VARY: Final = ("options", "seed", "none")
"""The designs: options in another order and other words (and another seed), another seed alone, nothing."""


@dataclass(frozen=True, slots=True)
class Design:
    """How the runs of one ensemble differ."""

    vary: str
    """One of `VARY`."""
    temperature: float
    seed: int
    """Of run 0."""
    orders: tuple[tuple[str, ...], ...]
    """In which the options are offered, one after the other."""

    @classmethod
    def of(
        cls,
        provider: InferenceProvider,
        runs: int,
        temperature: float,
        vary: str | None,
        seed: int,
        schema: Mapping[str, Any],
    ) -> Design:
        """The design that a call asks for; `vary=None` takes the provider's own.

        Raises:
            UsageError: an argument cannot be meant.
        """
        check_provider(provider)
        if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
            raise UsageError(
                "runs", f"{excerpt(runs)} is not a whole number of at least 1", "The default is 3."
            )
        number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        if not number or not math.isfinite(temperature) or temperature < 0:
            raise UsageError(
                "temperature", f"{excerpt(temperature)} is not a number of at least 0", "The default is 0."
            )
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise UsageError("seed", f"{excerpt(seed)} is not a whole number", "The default is 0.")
        return cls(_vary(provider, vary), temperature, seed, option_orders(match_options(schema)))

    def variation(self, index: int) -> Variation | None:
        """What variation `index` is; None where nothing varies."""
        if self.vary == "none":
            return None
        if self.vary == "seed":
            return Variation(index=index, options=(), paraphrase=0, seed=self.seed + index)
        wording, turn = divmod(index, len(self.orders))
        return Variation(
            index=index, options=self.orders[turn], paraphrase=wording % PARAPHRASES, seed=self.seed + index
        )

    def user(self, user: str, index: int) -> str:
        """`user`, and after it what variation `index` says."""
        variation = self.variation(index)
        if variation is None or not variation.options:
            return user
        return f"{user}\n\n{variation_text(variation.options, variation.paraphrase)}"

    def fingerprint(self, of_answer: str | None) -> str | None:
        """`of_answer`, which knows model, grammar and prompt, together with this design; None where there is none."""
        return None if of_answer is None else sha256(f"{of_answer}|{self.vary}|{PROMPT_VERSION}")

    def differs(self, provider: InferenceProvider) -> bool:
        """Whether two runs of this design can differ at all."""
        return self.vary == "options" or self.temperature > 0 or not getattr(provider, "replays", False)


def declared_properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """What stands under `properties` of `schema` itself; behind a `$ref` nothing is looked for."""
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _vary(provider: InferenceProvider, vary: str | None) -> str:
    chosen = getattr(provider, "default_vary", "none") if vary is None else vary
    if chosen not in VARY:
        raise UsageError("vary", f"{excerpt(chosen)} is no design", f"Use one of {', '.join(VARY)}.")
    return str(chosen)
