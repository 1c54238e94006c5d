"""One measurement: judging and those it is held against, pair by pair, and how near judging comes to its limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from judge_local.bench.limit import Speeds, Timing, Tokens, limit_seconds
from judge_local.bench.rows import Row
from judge_local.bench.sides import Score, ours, requests_of, score_answers, server
from judge_local.engine import children
from judge_local.engine.protocol import Facts
from judge_local.models.hardware import available_memory_bytes, usable_cores
from judge_local.providers.local import LocalProvider

STOCK: Final = "stock"

OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured."""

    model: Path
    rows: Sequence[Row]
    runs: int = 3
    pairs: int = 1
    """How often all of it is done."""
    against: tuple[str, ...] = ()
    """`STOCK`, or the URLs of OpenAI-compatible servers."""
    max_tokens: int = 400
    n_threads: int | None = None
    n_gpu_layers: int | Literal["auto"] = "auto"
    wait: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One of the pairs."""

    score: Score
    tokens: Tokens
    phases: Mapping[str, float]
    """Seconds by what they went to; `outside` is what the worker does not count."""
    limit: float
    """Seconds; see `limit`."""
    others: Mapping[str, Score] = field(default_factory=dict)
    """By name."""

    @property
    def efficiency(self) -> float:
        """The limit's share of the time that was taken."""
        return self.limit / self.score.seconds

    def ratio(self, other: str) -> float | None:
        """Our verdicts a minute over the other's; None when it gave no valid answer."""
        rate = self.others[other].rate
        return self.score.rate / rate if rate else None

    def to_json(self) -> dict[str, Any]:
        """The pair as a JSON object."""
        tokens = self.tokens
        names = ("prompt", "unique", "read", "shared", "written", "free", "forced", "drafted", "accepted")
        return {
            "judgeLocal": self.score.to_json(),
            "tokens": {name: getattr(tokens, name) for name in names},
            "seconds": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            "limitSeconds": round(self.limit, 3),
            "efficiency": round(self.efficiency, 4),
            "against": [
                {
                    "name": name,
                    **score.to_json(),
                    "ratio": None if (r := self.ratio(name)) is None else round(r, 3),
                }
                for name, score in self.others.items()
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of it."""

    engine: str
    speeds: Speeds
    layout: Mapping[str, int]
    pairs: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""

        def timings(ones: Sequence[Timing]) -> list[dict[str, float]]:
            return [{"size": one.size, "tokensPerSecond": round(one.rate, 1)} for one in ones]

        return {
            "engine": self.engine,
            "machine": {
                "reading": timings(self.speeds.reading),
                "writing": timings(self.speeds.writing),
                "bestReading": self.speeds.best_reading.size,
                "bestWriting": self.speeds.best_writing.size,
                "layout": dict(self.layout),
            },
            "pairs": [pair.to_json() for pair in self.pairs],
        }


async def compare(plan: Plan, *, on_progress: OnProgress, on_event: OnProgress) -> Report:
    """Measure.

    Args:
        plan: what.
        on_progress: is told what goes on now.
        on_event: gets lines for a person.

    Raises:
        JudgeLocalError: the model cannot be used, or a side failed.
    """
    threads = plan.n_threads or usable_cores()
    found: dict[str, Any] | None = None
    pairs: list[Pair] = []
    async with LocalProvider(
        plan.model, n_threads=threads, n_gpu_layers=plan.n_gpu_layers, wait=plan.wait, on_event=on_event
    ) as provider:
        on_progress("loading")
        facts = await provider.facts()
        # The first answer warms the file cache and the threads.
        await ours(
            provider, [Row("It is warm.", "It is warm.")], 1, max_tokens=40, on_progress=lambda *_: None
        )
        for number in range(1, plan.pairs + 1):

            def told(name: str, number: int = number) -> Callable[[int, int], None]:
                return _in_quarters(f"pair {number} of {plan.pairs}: {name}", on_progress)

            rows = [row.copy(f"{number}") for row in plan.rows]
            before = await provider.stats()
            score = await ours(
                provider, rows, plan.runs, max_tokens=plan.max_tokens, on_progress=told("judge-local")
            )
            after = await provider.stats()
            stats = {name: value - before.get(name, 0) for name, value in after.items()}
            if found is None:
                # Once, with the context as full as these rows made it.
                found = children.probe(
                    str(plan.model),
                    n_threads=threads,
                    memory_bytes=available_memory_bytes(),
                    n_gpu_layers=facts.n_gpu_layers,
                    prompts=[(system, user) for system, user, _ in requests_of(rows, plan.runs)],
                    runs=plan.runs,
                    tail=max(1, round(score.tokens / 2)),
                    wait=plan.wait,
                    say=on_event,
                    on_progress=told("the machine's own speed"),
                )
            tokens = Tokens.from_stats(stats, unique=found["unique_tokens"])
            others = {}
            for other in plan.against:
                for name, measure in _others(other, plan, facts, number):
                    others[name] = await measure(told(name))
            pairs.append(
                Pair(
                    score=score,
                    tokens=tokens,
                    phases=_phases(stats, score.seconds),
                    limit=limit_seconds(tokens, Speeds.from_probe(found)),
                    others=others,
                )
            )
    assert found is not None  # There is at least one pair.
    return Report(
        engine=facts.engine, speeds=Speeds.from_probe(found), layout=found["layout"], pairs=tuple(pairs)
    )


def _in_quarters(what: str, on_progress: OnProgress) -> Callable[[int, int], None]:
    """Tells of the start and of every quarter that is done: where nobody sees a moving line, each is a line."""
    last = -1

    def tell(done: int, total: int) -> None:
        nonlocal last
        if done * 4 // total != last:
            last = done * 4 // total
            on_progress(f"{what}: {done} of {total}")

    return tell


def _phases(stats: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Where the time went, by the worker's own count, and what is left of `seconds`."""
    phases = {
        name.removesuffix("_seconds"): value for name, value in stats.items() if name.endswith("_seconds")
    }
    return {**phases, "outside": max(0.0, seconds - sum(phases.values()))}


Measure = Callable[[Callable[[int, int], None]], Any]


def _others(other: str, plan: Plan, facts: Facts, number: int) -> list[tuple[str, Measure]]:
    """By name, how a side is measured; a server in its two ways of being asked."""

    async def stock(on_progress: Callable[[int, int], None]) -> Score:
        requests = requests_of([row.copy(f"{number} stock") for row in plan.rows], plan.runs)
        seconds, answers = children.stock(
            str(plan.model),
            requests,
            n_ctx=facts.n_ctx,
            n_threads=plan.n_threads or usable_cores(),
            max_tokens=plan.max_tokens,
            n_gpu_layers=facts.n_gpu_layers,
            wait=plan.wait,
            on_progress=on_progress,
        )
        return score_answers(seconds, requests, answers)

    def at_server(*, together: bool) -> Measure:
        async def measure(on_progress: Callable[[int, int], None]) -> Score:
            rows = [row.copy(f"{number} server {int(together)}") for row in plan.rows]
            return await server(
                other,
                rows,
                plan.runs,
                together=together,
                max_tokens=plan.max_tokens,
                on_progress=on_progress,
            )

        return measure

    if other == STOCK:
        return [(STOCK, stock)]
    ways = [(f"{other}, one request a run", at_server(together=False))]
    if plan.runs > 1:
        ways.insert(0, (f"{other}, n={plan.runs}", at_server(together=True)))
    return ways
