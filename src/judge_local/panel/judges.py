"""Judges on a panel: different models on the slots, one run from each, and one decision over all of them.

Conventions:

* Every seat gives one run, labelled with its `slot` and `via`; `substitutedFor` names the judge that did not answer. A
  seat without an answer is an errored run, so the decision goes to a person.
* A judge that is down costs its own seat. A call that no judge could answer (an empty subject, a schema of no verdict)
  is refused before any is asked.
* Models on this machine answer one after the other, because two that compute at once slow each other down. They stay
  loaded side by side where memory allows; where it does not, each worker is ended before the next begins.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from judge_local.completion import make_validator
from judge_local.consensus import compute_consensus
from judge_local.ensemble import judge_claim
from judge_local.errors import BudgetExpiredError, ProviderError, SchemaError, UsageError, excerpt
from judge_local.panel.runner import FallbackCause, PanelResult, Via, check_budget, run_panel
from judge_local.prompt import build_prompt, tripwires
from judge_local.providers.base import InferenceProvider, check_provider
from judge_local.resilience import RetryOptions, check_seconds
from judge_local.run import JudgeRun
from judge_local.verdict import VERDICT_SCHEMA, check_verdict_schema
from judge_local.zones import DEFAULT_ZONES, ConsensusResult, Zone, ZoneThresholds, in_zone, zone_for

ASKED_ONCE: Final = RetryOptions(max_attempts=1, base_delay_seconds=0.0, max_delay_seconds=0.0)
"""A judge asks its model a second time by itself where that may help, so a seat does not ask the judge again."""

CLOSE_SECONDS: Final = 2.0
"""How long the end of a panel waits for workers to end, where its budget has that much left."""

_REMOTE: Final = re.compile(r"openai:(?P<model>.+?)@(?P<urls>https?://.+)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judge:
    """Somebody who can sit on a panel."""

    name: str
    """What it was called when it was asked for: the name of its slot."""
    provider: InferenceProvider
    weights_bytes: int = 0
    """Size of its model file; 0 for a model that this panel does not load."""

    @property
    def key(self) -> Hashable:
        """Equal for two judges that are the same model in the same set-up."""
        settings = str(getattr(self.provider, "settings_key", ""))
        return self.provider.provider, self.provider.model, settings

    @property
    def is_local(self) -> bool:
        """Whether it computes on this machine's one engine."""
        from judge_local.providers.local import LocalProvider

        return isinstance(self.provider, LocalProvider)

    def close(self) -> None:
        """End its worker, where it has one. It may be asked again; that starts a new one."""
        if self.is_local:
            self.provider.close()  # type: ignore[attr-defined] # a LocalProvider


def open_judge(
    reference: str,
    *,
    api_key_env: str | None = None,
    n_threads: int | None = None,
    n_gpu_layers: int | Literal["auto"] = "auto",
    wait: bool = True,
    on_event: Callable[[str], None] | None = None,
) -> Judge:
    """The judge that `reference` means. Nothing is loaded or connected yet.

    Args:
        reference: a model on this disk, or `openai:MODEL@URL` for a server, with further URLs of the same model after
            commas.
        api_key_env: the environment variable that holds the servers' key; None is OPENAI_API_KEY.
        n_threads: see `LocalProvider`; so are the other three.
        n_gpu_layers: layers on the GPU.
        wait: wait when another process is judging.
        on_event: gets lines for a person.

    Raises:
        UsageError: it names a server in a form that is not understood.
        ModelError: no such model is on this disk.
    """
    if reference.startswith("openai:"):
        from judge_local.providers.openai import DEFAULT_KEY_VARIABLE, OpenAIProvider

        named = _REMOTE.fullmatch(reference)
        if named is None:
            raise UsageError(
                "judge",
                f"{excerpt(reference)} names no server",
                "Write openai:MODEL@http://127.0.0.1:8080/v1.",
            )
        urls = named["urls"].split(",")
        key = DEFAULT_KEY_VARIABLE if api_key_env is None else api_key_env
        return Judge(name=reference, provider=OpenAIProvider(urls, named["model"], api_key_env=key))
    from judge_local.models.store import Store
    from judge_local.providers.local import LocalProvider

    store = Store()
    found = store.find(reference)
    provider = LocalProvider(
        reference, n_threads=n_threads, n_gpu_layers=n_gpu_layers, wait=wait, on_event=on_event, store=store
    )
    return Judge(name=reference, provider=provider, weights_bytes=found.size_bytes)


async def judge_panel(
    judges: Sequence[str | InferenceProvider | Judge],
    subject: str,
    claim: str,
    *,
    budget_seconds: float,
    substitutes: Sequence[str | InferenceProvider | Judge] = (),
    reference: str | None = None,
    temperature: float = 0.0,
    schema: Mapping[str, Any] = VERDICT_SCHEMA,
    zones: ZoneThresholds = DEFAULT_ZONES,
    seed: int = 0,
    order: Sequence[str] | None = None,
    checked: Sequence[str] = (),
    call_timeout_seconds: float | None = None,
    retry: RetryOptions = ASKED_ONCE,
    on_run: Callable[[JudgeRun, int, int], object] | None = None,
) -> ConsensusResult:
    """Ask several judges about one claim at once, and decide within `budget_seconds`.

    A judge that fails is replaced once by a substitute that has no part in the panel yet; a seat that stays without an
    answer is an errored run.

    Args:
        judges: at least one; each has a seat. A text is what `open_judge` takes, and its worker is ended afterwards;
            a provider is used as it is and left open. One that stands twice has two seats and answers twice.
        subject: the material; untrusted text.
        claim: what must hold for the subject to pass.
        budget_seconds: for everything, above 0; loading counts.
        substitutes: who may replace a judge, in this order.
        reference: what is known to be right, where there is something to compare with.
        temperature: 0 is greedy.
        schema: of the verdict.
        zones: the least mean confidence at which a unanimous panel settles itself.
        seed: of every run.
        order: in which the answer's keys are written; see `run_ensemble`.
        checked: keywords left to the validator.
        call_timeout_seconds: how long one judge may take; None is the budget. Waiting for its turn counts.
        retry: for a judge that failed; by default it is not asked again.
        on_run: told (run, completed, total) as runs land; its crash changes nothing.

    Returns:
        The decision, with one run for each judge in their order.

    Raises:
        EmptySubjectError: there is nothing to judge.
        UsageError, SchemaError: an argument cannot be meant.
        ModelError: a judge or substitute is not on this disk.
        CancelledError: this task was cancelled; so is the work of every judge.
    """
    build_prompt(subject, claim, reference=reference)
    make_validator(schema)
    check_verdict_schema(schema)
    if not judges or isinstance(judges, str):
        raise UsageError("judges", f"{excerpt(judges)} is no list of judges", "Name at least one.")
    limit = check_budget(budget_seconds)
    if call_timeout_seconds is not None:
        limit = check_seconds("call_timeout_seconds", call_timeout_seconds)
    opened: dict[str, Judge] = {}
    primaries = [_seated(judge, opened) for judge in judges]
    spares = [_seated(judge, opened) for judge in substitutes]
    turns = _Turns.for_judges([*primaries, *spares])

    async def ask(judge: Judge) -> _Answer:
        async with turns.of(judge):
            try:
                result = await judge_claim(
                    judge.provider,
                    subject,
                    claim,
                    reference=reference,
                    runs=1,
                    temperature=temperature,
                    schema=schema,
                    zones=zones,
                    seed=seed,
                    order=order,
                    checked=checked,
                )
            except (UsageError, SchemaError) as fault:
                return _Answer(fault)  # The caller's, not the judge's: `_Bench.decorate` raises it.
        (run,) = result.runs
        if run.error is not None:
            raise _UnansweredError(run)
        return _Answer(run)

    bench = _Bench(primaries, spares, budget_seconds)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + budget_seconds
    try:
        landed = await bench.run(ask, limit, retry, on_run)
    finally:
        await _close(list(opened.values()), min(deadline, loop.time() + CLOSE_SECONDS))
    consensus = compute_consensus(landed)
    distinct = bench.distinct(landed, temperature)
    zone = Zone.HUMAN_REVIEW if tripwires(subject) else zone_for(consensus, zones)
    return in_zone(consensus, zone, distinct_runs=distinct, replays=distinct < len(landed))


@dataclass(frozen=True, slots=True)
class _Answer:
    """A run with a verdict, or what is wrong with the whole call."""

    content: JudgeRun | UsageError | SchemaError


class _UnansweredError(Exception):
    """A judge came back with an errored run."""

    def __init__(self, run: JudgeRun) -> None:
        super().__init__(run.error)
        self.run = run


@dataclass(frozen=True, slots=True, eq=False)
class _Seat:
    """A judge in one place: a primary of one slot, or a substitute. Two seats of one judge are not the same."""

    judge: Judge


class _Bench:
    """The seats of one panel. Their slots are called by number inside, so that each occurrence is told apart."""

    def __init__(self, primaries: Sequence[Judge], spares: Sequence[Judge], budget_seconds: float) -> None:
        self._seats = [_Seat(judge) for judge in primaries]
        self._spares = [_Seat(judge) for judge in spares]
        self._budget_seconds = budget_seconds
        self._failures: dict[_Seat, Exception] = {}
        self._answered: dict[int, Judge] = {}

    async def run(
        self,
        ask: Callable[[Judge], Awaitable[_Answer]],
        limit_seconds: float,
        retry: RetryOptions,
        on_run: Callable[[JudgeRun, int, int], object] | None,
    ) -> list[JudgeRun]:
        """One run for each seat, in their order."""

        def landed(result: PanelResult[JudgeRun], completed: int, total: int) -> None:
            if on_run is not None:
                on_run(result.result, completed, total)

        async def call(seat: _Seat) -> _Answer:
            return await ask(seat.judge)

        results = await run_panel(
            slots=[str(index) for index in range(len(self._seats))],
            budget_seconds=self._budget_seconds,
            retry=retry,
            resolve_slot=lambda slot: self._seats[int(slot)],
            is_online=_is_online,
            target_key=lambda seat: seat.judge.key,
            describe_target=lambda seat: seat.judge.name,
            call_timeout_seconds=lambda _seat: limit_seconds,
            call=call,
            decorate=self._decorate,
            fallback=self._fallback,
            find_substitute=self._substitute,
            on_target_error=self._failures.__setitem__,
            on_result=landed,
        )
        return [result.result for result in sorted(results, key=lambda result: int(result.slot))]

    def distinct(self, runs: Sequence[JudgeRun], temperature: float) -> int:
        """How many different questions and models these runs are; a model that repeats itself counts once."""
        different: set[Hashable] = set()
        for index, run in enumerate(runs):
            judge = self._answered.get(index)
            repeats = judge is not None and temperature == 0 and getattr(judge.provider, "replays", False)
            asked = (v.options, v.paraphrase) if (v := run.variation) else None
            different.add((judge.key, asked) if judge is not None and repeats else index)
        return len(different)

    def _decorate(self, answer: _Answer, seat: _Seat, via: Via, slot: str) -> JudgeRun:
        if not isinstance(answer.content, JudgeRun):
            raise answer.content
        primary = self._seats[int(slot)].judge
        self._answered[int(slot)] = seat.judge
        replaced = primary.provider.model if via is Via.SUBSTITUTE else None
        return replace(answer.content, via=via.value, slot=primary.name, substituted_for=replaced)

    def _fallback(self, slot: str, cause: FallbackCause) -> JudgeRun:
        seat = self._seats[int(slot)]
        failure = self._failures.get(seat)
        if isinstance(failure, _UnansweredError) and cause is not FallbackCause.BUDGET:
            return replace(failure.run, via=Via.FALLBACK.value, slot=seat.judge.name)
        name = seat.judge.name
        if cause is FallbackCause.BUDGET:
            failure = BudgetExpiredError(
                name, f"no answer within the panel's {self._budget_seconds:g} s", "Allow more time."
            )
        elif failure is None:
            failure = ProviderError(name, "it failed a moment ago and rests", "Is its server running?")
        return JudgeRun(
            error=str(failure),
            error_kind=type(failure).__name__,
            provider=seat.judge.provider.provider,
            model=seat.judge.provider.model,
            duration_ms=0.0,
            via=Via.FALLBACK.value,
            slot=seat.judge.name,
        )

    def _substitute(self, used: frozenset[Hashable]) -> _Seat | None:
        return next((seat for seat in self._spares if seat.judge.key not in used), None)


class _Turns:
    """Who may compute when: judges on this machine one after the other, all others at any time."""

    def __init__(self, lock: asyncio.Lock, in_turn: frozenset[Judge]) -> None:
        self._lock = lock  # The machine's one engine, which workers would otherwise wait for in no order.
        self._in_turn = in_turn

    @classmethod
    def for_judges(cls, judges: Sequence[Judge]) -> _Turns:
        """Decide by memory whether those whose size is known must be unloaded when their turn is over."""
        from judge_local.models.hardware import available_memory_bytes, fits

        loaded = frozenset(judge for judge in judges if judge.weights_bytes)
        together = sum(judge.weights_bytes for judge in loaded)
        side_by_side = not loaded or fits(together, available_memory_bytes())
        return cls(asyncio.Lock(), frozenset() if side_by_side else loaded)

    def of(self, judge: Judge) -> AbstractAsyncContextManager[None]:
        """The time in which `judge` computes."""
        return (
            _Turn(self._lock, judge if judge in self._in_turn else None) if judge.is_local else nullcontext()
        )


@dataclass(frozen=True, slots=True)
class _Turn(AbstractAsyncContextManager[None]):
    lock: asyncio.Lock
    unload: Judge | None

    async def __aenter__(self) -> None:
        await self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        try:
            if self.unload is not None:
                await asyncio.to_thread(self.unload.close)
        finally:
            self.lock.release()


def _is_online(seat: _Seat) -> bool:
    is_online = getattr(seat.judge.provider, "is_online", None)
    return True if is_online is None else bool(is_online())


def _seated(judge: str | InferenceProvider | Judge, opened: dict[str, Judge]) -> Judge:
    """`judge` as one; what is opened for it here is put into `opened`, and shared by all who name it."""
    if isinstance(judge, str):
        if judge not in opened:
            opened[judge] = open_judge(judge)
        return opened[judge]
    check_provider(judge.provider if isinstance(judge, Judge) else judge)
    return judge if isinstance(judge, Judge) else Judge(name=judge.model, provider=judge)


async def _close(judges: Sequence[Judge], until: float) -> None:
    """End the workers of `judges` side by side. After `until`, on the loop's clock, nobody waits for it."""
    # Daemons: a worker that does not end must hold neither the loop's end nor the program's.
    threads = [threading.Thread(target=judge.close, daemon=True) for judge in judges if judge.is_local]
    for thread in threads:
        thread.start()
    loop = asyncio.get_running_loop()
    while any(thread.is_alive() for thread in threads) and loop.time() < until:
        await asyncio.sleep(0.005)
