"""Prove on random weights that the engine leaks nothing and survives its own death: 2,000 requests, then 50 kills.

    python scripts/prove_engine.py [--requests 2000] [--kills 50]

Prints open files and resident memory of the worker and of this process as the requests go by, and what each kill with
SIGKILL at a random instant cost. Exits with 1 when files pile up, when memory grows by more than a tenth after the first
quarter, when a kill costs a run that was not in flight, or when the next run fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from judge_local.engine.client import EngineClient
from judge_local.engine.protocol import Generate, Generated, Settings
from judge_local.errors import EngineCrashedError
from make_tiny_model import write_tiny_model

GRAMMAR: Final = r"""root ::= "{\"a\":\"" ch{1,12} "\",\"b\":" ("true" | "false") "}"
ch ::= [ !#-\[\]-~]
"""
AT_ONCE: Final = 40
GROWTH_ALLOWED: Final = 1.1


@dataclass(frozen=True, slots=True)
class Use:
    """What a process holds."""

    files: int
    kibibytes: int

    @classmethod
    def of(cls, pid: int) -> Use:
        """Read it from /proc."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return cls(len(list(Path(f"/proc/{pid}/fd").iterdir())), int(resident.split()[1]))


def ask(client: EngineClient, number: int) -> Generate:
    """A small request, unlike the one before."""
    return Generate(
        id=client.next_id(),
        system="Judge.",
        user=f"The sky is blue. {'Grass is green. ' * (number % 7)} Number {number}.",
        grammar=GRAMMAR,
        max_tokens=100,
        typical_tokens=30,
        temperature=1.0,
        seed=number,
    )


async def one(client: EngineClient, number: int) -> object:
    """Ask once; the outcome or the exception."""
    try:
        (outcome,), _ = await client.submit([ask(client, number)], [None])
    except EngineCrashedError as error:
        return error
    return outcome


async def leaks(client: EngineClient, count: int) -> bool:
    """Whether anything piles up over `count` requests."""
    await client.facts()
    uses: list[tuple[Use, Use]] = []
    for start in range(0, count, AT_ONCE):
        outcomes = await asyncio.gather(*(one(client, start + k) for k in range(AT_ONCE)))
        if not all(isinstance(outcome, Generated) for outcome in outcomes):
            print(f"a request failed: {next(o for o in outcomes if not isinstance(o, Generated))}")
            return True
        assert client.pid is not None
        uses.append((Use.of(client.pid), Use.of(os.getpid())))
        if start % (AT_ONCE * 10) == 0:
            print(f"{start + AT_ONCE:5} requests  worker {uses[-1][0]}  here {uses[-1][1]}", flush=True)
    leaking = False
    for name, of_one in (("worker", [use for use, _ in uses]), ("here", [use for _, use in uses])):
        first, last = of_one[: len(of_one) // 4], of_one[-len(of_one) // 4 :]
        # Files come and go (the machine's lock is one), so the most of a quarter is compared.
        files = max(use.files for use in first), max(use.files for use in last)
        memory = max(use.kibibytes for use in first), max(use.kibibytes for use in last)
        print(f"{name}: files {files[0]} then {files[1]}, memory {memory[0]} KiB then {memory[1]} KiB")
        leaking |= files[1] > files[0] or memory[1] > GROWTH_ALLOWED * memory[0]
    return leaking


async def kills(client: EngineClient, count: int) -> bool:
    """Whether a kill costs more than what is in flight, or the next run fails."""
    chance = random.Random(0)
    lost = 0
    for number in range(count):
        await client.facts()
        tasks = [asyncio.create_task(one(client, 10_000 + number * AT_ONCE + k)) for k in range(10)]
        await asyncio.sleep(chance.uniform(0, 0.2))
        if client.pid is not None:
            os.kill(client.pid, signal.SIGKILL)
        outcomes = await asyncio.gather(*tasks)
        await asyncio.sleep(0.05)  # Until the kernel has ended it, the next run would be in flight, too.
        crashed = [outcome for outcome in outcomes if isinstance(outcome, EngineCrashedError)]
        lost += len(crashed)
        if len(crashed) + sum(isinstance(outcome, Generated) for outcome in outcomes) != len(outcomes):
            print(f"kill {number}: an outcome is neither an answer nor a crash: {outcomes}")
            return True
        after = await one(client, 99_000 + number)
        if not isinstance(after, Generated):
            print(f"kill {number}: the next run failed: {after}")
            return True
    print(f"{count} kills cost {lost} of {10 * count} runs in flight; every next run worked")
    return False


async def prove(requests: int, deaths: int) -> int:
    """Run both. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_tiny_model(Path(folder) / "tiny.gguf")
        client = EngineClient(Settings(path=str(path)))
        try:
            faulty = await leaks(client, requests) or await kills(client, deaths)
        finally:
            client.close()
    return int(faulty)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    raise SystemExit(asyncio.run(prove(options.requests, options.kills)))


if __name__ == "__main__":
    main()
