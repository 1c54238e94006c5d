"""A panel to play with: scripted targets on a fake clock, and a record of everything that was called."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from judge_local.panel import run_panel
from judge_local.resilience import RetryOptions

ONCE = RetryOptions(1, 0.0, 0.0)


@dataclass(eq=False)
class Target:
    """Somebody to call: `seconds` until `outcome`, which is raised where it is an exception."""

    name: str
    outcome: Any = "answer"
    seconds: float = 1.0
    online: bool = True
    stubborn: bool = False
    """Ignores its cancellation, and goes on for another thousand seconds."""
    on_cancel: Exception | None = None
    """What it turns its cancellation into."""
    key: str | None = None
    timeout: float = 100.0


@dataclass
class Scene:
    """The caller's side of one panel."""

    targets: dict[str, Target]
    spares: list[Target] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    landed: list[tuple[str, str, int, int]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    asked_for_spares: list[frozenset[str]] = field(default_factory=list)
    expired: list[tuple[str, int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """When each result landed."""

    async def call(self, target: Target) -> Any:
        self.calls[target.name] += 1
        try:
            await asyncio.sleep(target.seconds)
        except asyncio.CancelledError:
            self.cancelled[target.name] += 1
            if target.on_cancel is not None:
                raise target.on_cancel from None
            if not target.stubborn:
                raise
            await asyncio.sleep(1000)
        outcome = target.outcome
        if isinstance(outcome, list) and outcome and isinstance(outcome[0], BaseException):
            outcome = outcome[min(self.calls[target.name], len(outcome)) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def find_substitute(self, used: frozenset[str]) -> Target | None:
        self.asked_for_spares.append(used)
        return next((spare for spare in self.spares if (spare.key or spare.name) not in used), None)

    def on_result(self, result: Any, completed: int, total: int) -> None:
        self.landed.append((result.slot, result.via, completed, total))
        self.seconds.append(asyncio.get_running_loop().time())

    async def run(self, slots: Any, budget: float = 10.0, **changes: Any) -> Any:
        """Run the panel; results are (slot, via, result)."""
        options: dict[str, Any] = {
            "retry": ONCE,
            "resolve_slot": self.targets.get,
            "is_online": lambda target: target.online,
            "target_key": lambda target: target.key or target.name,
            "describe_target": lambda target: f"the one called {target.name}",
            "call_timeout_seconds": lambda target: target.timeout,
            "call": self.call,
            "decorate": lambda answer, target, via, slot: (answer, target.name),
            "fallback": lambda slot, cause: ("fallback", cause.value),
            "find_substitute": self.find_substitute,
            "on_target_error": lambda target, error: self.failed.append((target.name, type(error).__name__)),
            "on_result": self.on_result,
            "on_budget_exceeded": lambda error, collected: self.expired.append(
                (type(error).__name__, len(collected))
            ),
            **changes,
        }
        results = await run_panel(slots=slots, budget_seconds=budget, **options)
        return [(result.slot, str(result.via), result.result) for result in results]


def scene(*targets: Target, spares: list[Target] | None = None) -> Scene:
    """A scene in which each slot is named like its target."""
    return Scene({target.name: target for target in targets}, spares or [])
