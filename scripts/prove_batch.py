"""Prove that a batch loses nothing, doubles nothing, stays small, and says clearly when the disk is full.

    python scripts/prove_batch.py kill [--rows 300] [--kills 200] [--model mock|REFERENCE]
    python scripts/prove_batch.py million [--rows 1000000]
    python scripts/prove_batch.py full
    python scripts/prove_batch.py flat [--rows 1000] [--model REFERENCE]

Each drives the real command in processes of its own, `mock` with a scripted judge in the place of the model, and exits
with 1 when what it proves does not hold:

* `kill` ends the command with SIGKILL at random instants until it has been killed so often, goes on each time, and lets
  it end. One kill in five also tears the last line, as a lost power may. Every id has one result, none was asked about
  after its line was on the disk.
* `million` bounds the memory of the process and the processor's time for a row.
* `full` (Linux, as root) fills a small tmpfs.
* `flat` compares throughput and memory of a run's quarters.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MOCK: Final = "mock"
MOCK_SECONDS: Final = 0.2
"""How long a scripted judge takes for a row in `kill`: about two rows a life."""
MEMORY_ALLOWED: Final = 300_000_000
SECONDS_A_ROW_ALLOWED: Final = 0.001
GROWTH_ALLOWED: Final = 1.1
SLOWING_ALLOWED: Final = 0.8
SUBJECTS: Final = (
    "The train leaves at nine from platform two, every day but Sunday.",
    "The shop opens at eight. It is closed on public holidays.",
    "Both samples were kept at four degrees until they were measured.",
)


def write_rows(path: Path, count: int) -> None:
    """`count` rows, each with its number in its claim, three subjects in turn."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {
                "id": f"row-{number}",
                "claim": f"It names a time of day, asked as number {number}.",
                "subject": f"{SUBJECTS[number % 3]} Sheet {number // 3}.",
                "label": "pass" if number % 3 < 2 else "fail",
            }
            file.write(json.dumps(row) + "\n")


def child(model: str, asked: str, seconds: float, words: list[str]) -> None:
    """The command itself, its judge noting down what it is asked. Runs in a process of its own."""
    import asyncio

    from judge_local.cli import batch, main
    from judge_local.providers.base import CompletionRequest
    from judge_local.providers.local import LocalProvider
    from judge_local.providers.mock import MockProvider, mock_verdict

    log = os.open(asked, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if asked else -1

    def note(request: CompletionRequest) -> None:
        if log >= 0:
            number = request.user.rsplit("asked as number ", 1)[1].split(".", 1)[0]
            os.write(log, f"row-{number}\n".encode())

    class Scripted(MockProvider):
        async def complete_json(self, request: CompletionRequest) -> Any:
            note(request)
            if seconds:
                await asyncio.sleep(seconds)
            return await super().complete_json(request)

    class Noting(LocalProvider):
        async def complete_many(self, requests: Any) -> Any:
            note(requests[0])
            return await super().complete_many(requests)

    def make_provider(options: Any, call: Any, on_event: Callable[[str], None]) -> Any:
        if model == MOCK:
            return Scripted([mock_verdict("pass", 0.9), mock_verdict("fail", 0.9)], remember=False)
        return Noting(model, on_event=on_event)

    batch.make_provider = make_provider
    main(["batch", *words])


def command(model: str, *words: str, asked: Path | None = None, seconds: float = 0.0) -> list[str]:
    """How to run `child`."""
    return [sys.executable, __file__, "child", model, str(asked or ""), str(seconds), *words]


@dataclass(frozen=True, slots=True)
class Disk:
    """What a results file holds."""

    ids: list[str]
    torn: bool

    @classmethod
    def of(cls, path: Path) -> Disk:
        """Read it without the program's help."""
        data = path.read_bytes() if path.exists() else b""
        lines = data.split(b"\n")
        return cls([json.loads(line)["id"] for line in lines[1:-1]], bool(lines[-1]))


def tear(path: Path, chance: random.Random) -> bool:
    """Cut the last line somewhere in its middle."""
    data = path.read_bytes() if path.exists() else b""
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    if start < 1 or len(data) - start < 3:
        return False
    os.truncate(path, start + chance.randrange(1, len(data) - start - 1))
    return True


def lines_of(path: Path) -> list[str]:
    """The lines of a text file that may not be there."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def one_life(words: list[str], asked: Path, known: int, chance: random.Random, work_seconds: float) -> bool:
    """Start the command and kill it at a random instant. False where it ended by itself before."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if chance.random() < 0.2:  # While it starts: opening, cutting off, locking.
            time.sleep(chance.uniform(0, 1.0))
        else:
            while process.poll() is None and len(lines_of(asked)) <= known:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, work_seconds))
        alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
        return alive
    finally:
        process.kill()
        process.wait()


def prove_kill(rows: int, kills: int, model: str, seed: int) -> bool:
    """Whether it holds."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source, results, asked = place / "rows.jsonl", place / "results.jsonl", place / "asked.txt"
        write_rows(source, rows)
        options = ["--at-once", "2", "--runs", "1", "--quiet", "--fail-on", "never"]
        seconds = MOCK_SECONDS if model == MOCK else 0.0
        words = command(model, str(source), "-o", str(results), *options, asked=asked, seconds=seconds)
        # Long enough for a row or two of the tiny model, which is loaded first.
        work_seconds = 0.5 if model == MOCK else 4.5
        killed = early = torn = asks = 0
        while killed < kills:
            before = set(Disk.of(results).ids)
            alive = one_life(words, asked, asks, chance, work_seconds)
            said = lines_of(asked)
            again = before & set(said[asks:])
            if again:
                print(f"judged again though its line was on the disk: {sorted(again)[:3]}")
                return False
            asks = len(said)
            killed += alive
            early += not alive
            if early > kills:
                print(
                    f"the batch ended before it could be killed: {killed} of {kills} kills; give it more rows"
                )
                return False
            disk = Disk.of(results)
            if len(set(disk.ids)) != len(disk.ids) or not before <= set(disk.ids):
                print(f"after kill {killed}: an id stands twice, or one is gone")
                return False
            if chance.random() < 0.2:
                torn += tear(results, chance)
            if killed % 20 == 0 and alive:
                print(f"{killed:4} kills  {len(disk.ids):4} of {rows} results  {asks} asked", flush=True)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        disk = Disk.of(results)
        whole = sorted(disk.ids) == sorted(f"row-{number}" for number in range(rows)) and not disk.torn
        print(
            f"{killed} kills, {torn} torn lines: {len(disk.ids)} results of {rows} rows, each id once: {whole}; "
            f"{asks} asked before the last start, exit code {done.returncode}"
        )
        return whole and done.returncode == 0


def peak_memory(process: subprocess.Popen[str]) -> int:
    """The most bytes that `process` takes until it ends; it is not reaped. Linux only: elsewhere 0.

    Not `ru_maxrss`: that counts what the parent held when it started the process.
    """
    most = 0
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        except OSError:
            break
        most = max([most, *(1024 * int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)])
        time.sleep(0.02)
    return most


def prove_million(rows: int) -> bool:
    """Whether it holds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source, results = place / "rows.jsonl", place / "results.jsonl"
        write_rows(source, rows)
        words = command(
            MOCK, str(source), "-o", str(results), "--runs", "1", "--no-text", "--json", "--quiet"
        )
        holds = True
        for what in ("judged", "found to be done"):
            started = time.monotonic()
            with (place / "summary.json").open("w+", encoding="utf-8") as out:
                process = subprocess.Popen([*words, "--fail-on", "never"], stdout=out, text=True)
                memory = peak_memory(process)
                # Of this process alone, whatever else has been started before it.
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                out.seek(0)
                printed = out.read()
            took, work = time.monotonic() - started, usage.ru_utime + usage.ru_stime
            summary = json.loads(printed.splitlines()[-1])
            print(
                f"{rows:,} rows {what}: {took:.0f} s; a row {1000 * took / rows:.3f} ms, of which "
                f"{1000 * work / rows:.3f} ms on the processor, the scripted judge included; at most "
                f"{memory / 1e6:.0f} MB; {summary['counts']['results']:,} results",
                flush=True,
            )
            holds &= summary["counts"]["results"] == rows and memory < MEMORY_ALLOWED
            # Of the processor, so that what else the machine does is not counted.
            holds &= work / rows < SECONDS_A_ROW_ALLOWED
        return holds


def prove_full(size: str) -> bool:
    """Whether it holds. Needs the right to mount."""
    with tempfile.TemporaryDirectory() as folder:
        place, small = Path(folder), Path(folder) / "small"
        source, results = place / "rows.jsonl", small / "results.jsonl"
        small.mkdir()
        write_rows(source, 300)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)], check=True)
        try:
            words = command(MOCK, str(source), "-o", str(results), "--runs", "1", "--quiet")
            words += ["--fail-on", "never"]
            full = subprocess.run(words, capture_output=True, text=True, check=False)
            before = Disk.of(results)
            print(f"exit code {full.returncode}, {len(before.ids)} of 300 results, torn: {before.torn}")
            print(full.stderr, end="")
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            after = Disk.of(results)
        finally:
            subprocess.run(["umount", str(small)], check=True)
        print(f"with room: exit code {done.returncode}, {len(after.ids)} results, {len(set(after.ids))} ids")
        kept = after.ids[: len(before.ids)] == before.ids
        return (
            full.returncode == 4
            and full.stderr.count("\n") == 1
            and 0 < len(before.ids) < 300
            and not before.torn
            and kept
            and done.returncode == 0
            and len(after.ids) == len(set(after.ids)) == 300
        )


def memory_of(pid: int) -> int:
    """Resident memory in KiB; 0 of a process that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    found = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(found[0].split()[1]) if found else 0


def children_of(pid: int) -> Iterator[int]:
    """Processes that `pid` began."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    yield from map(int, listed.read_text(encoding="ascii").split() if listed.exists() else ())


def prove_flat(rows: int, model: str) -> bool:
    """Whether it holds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        source, results = place / "rows.jsonl", place / "results.jsonl"
        write_rows(source, rows)
        words = command(
            model, str(source), "-o", str(results), "--runs", "1", "--quiet", "--fail-on", "never"
        )
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        marks: list[tuple[float, int, int]] = []  # An instant, and the memory of both processes.
        shown = 0
        step = max(1, rows // 10)
        while process.poll() is None:
            time.sleep(0.2)
            there = len(Disk.of(results).ids)
            if there >= (len(marks) + 1) * step or (not marks and there):
                worker = sum(map(memory_of, children_of(process.pid)))
                marks.append((time.monotonic(), memory_of(process.pid), worker))
                if len(marks) > 1:
                    rate = 60 * (there - shown) / (marks[-1][0] - marks[-2][0])
                    print(
                        f"{there:5} rows  {rate:7.1f} rows a minute  here {marks[-1][1] / 1024:.0f} MiB  "
                        f"worker {worker / 1024:.0f} MiB",
                        flush=True,
                    )
                shown = there
        if process.returncode != 0 or len(marks) < 6:
            print(f"exit code {process.returncode}, {len(marks)} marks")
            return False
        middle = len(marks) // 2
        first, last = marks[middle][0] - marks[0][0], marks[-1][0] - marks[-1 - middle][0]
        print(f"first half {first:.1f} s, last half {last:.1f} s; results {len(Disk.of(results).ids)}")
        leaks = any(marks[-1][k] > GROWTH_ALLOWED * marks[2][k] for k in (1, 2))
        return not leaks and last * SLOWING_ALLOWED <= first


def main() -> None:
    """Read the command line."""
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["kill", "million", "full", "flat"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", default="200k", help="of the tmpfs")
    options = parser.parse_args()
    if options.what == "kill":
        holds = prove_kill(options.rows or 300, options.kills, options.model or MOCK, options.seed)
    elif options.what == "million":
        holds = prove_million(options.rows or 1_000_000)
    elif options.what == "full":
        holds = prove_full(options.size)
    else:
        holds = prove_flat(options.rows or 1000, options.model or "smollm2-135m")
    print("holds" if holds else "DOES NOT HOLD")
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
