"""The limit: the least time a machine could take for some work, from its own measured speed, with nothing lost between.

    limit = (unique prompt + forced + accepted) tokens * reading + (free - accepted) tokens * writing

A token of a prompt is *unique* where no prompt before it began alike, and nothing that was kept from before does.
*Reading* is the cost of a token in the best batch of a prompt, *writing* that of one in the best number of runs at once.
Every token of a prompt is read once however many runs share it; what a grammar forces, and what was guessed rightly, is
read rather than written. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one batch takes."""

    size: int
    """Tokens: of one prompt, or one in each of so many runs."""
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.size / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What a probe found. Both lists hold at least one timing."""

    reading: tuple[Timing, ...]
    writing: tuple[Timing, ...]

    @classmethod
    def from_probe(cls, found: Mapping[str, Any]) -> Speeds:
        """From what `engine.children.probe` returns."""

        def timings(name: str) -> tuple[Timing, ...]:
            return tuple(Timing(int(one["size"]), float(one["seconds"])) for one in found[name])

        return cls(reading=timings("reading"), writing=timings("writing"))

    @property
    def best_reading(self) -> Timing:
        """The batch in which a token of a prompt is cheapest."""
        return _best(self.reading)

    @property
    def best_writing(self) -> Timing:
        """The number of runs at which a token is cheapest."""
        return _best(self.writing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What was worked on, by kind."""

    prompt: int
    """Of all prompts, each in full."""
    unique: int
    """Of all prompts, every common beginning counted once."""
    read: int
    """That the engine evaluated."""
    written: int
    """Of all answers."""
    forced: int
    """Of these, where the grammar left no choice."""
    drafted: int = 0
    """Guessed ahead."""
    accepted: int = 0
    """Of these, rightly."""
    copied: int | None = None
    """Of prompts, as the engine counted what it did not evaluate; None where it does not count that."""

    @property
    def shared(self) -> int:
        """Of prompts, not evaluated because it had been."""
        return self.prompt - self.read if self.copied is None else self.copied

    @property
    def needed(self) -> int:
        """Of prompts, what had to be evaluated: what was kept from before need not be, and twice is once too often."""
        return min(self.unique, self.read)

    @property
    def free(self) -> int:
        """Of answers, where there was a choice."""
        return self.written - self.forced

    @classmethod
    def from_stats(cls, stats: Mapping[str, float], *, unique: int) -> Tokens:
        """From the worker's totals over the work; what it does not count is 0."""

        def count(name: str) -> int:
            return int(stats.get(f"{name}_tokens", 0))

        return cls(
            prompt=count("prompt"),
            unique=unique,
            read=count("read"),
            written=count("written"),
            forced=count("forced"),
            drafted=count("drafted"),
            accepted=count("accepted"),
            copied=count("shared") if "shared_tokens" in stats else None,
        )


def limit_seconds(tokens: Tokens, speeds: Speeds) -> float:
    """The least time for `tokens` at `speeds`.

    >>> speeds = Speeds(reading=(Timing(100, 1.0),), writing=(Timing(1, 0.1), Timing(4, 0.2)))
    >>> limit_seconds(Tokens(prompt=900, unique=500, read=600, written=60, forced=20), speeds)
    7.2
    """
    read = tokens.needed + tokens.forced + tokens.accepted
    free = max(0, tokens.free - tokens.accepted)
    return read / speeds.best_reading.rate + free / speeds.best_writing.rate


def typical_seconds(speeds: Speeds) -> float:
    """The least time for one typical verdict of three runs: 700 tokens read, 90 written and 60 forced in each run."""
    return limit_seconds(Tokens(prompt=2100, unique=700, read=700, written=450, forced=180), speeds)


def _best(timings: Sequence[Timing]) -> Timing:
    return max(timings, key=lambda timing: timing.rate)
