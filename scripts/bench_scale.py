"""Measure what batches on many machines cost: reading a share of the rows, merging, and judging on Ray.

    python scripts/bench_scale.py read [--rows 200000]
    python scripts/bench_scale.py merge [--rows 200000] [--shards 8]
    python scripts/bench_scale.py judge [--rows 60] [--runs 3] [--model REFERENCE]

Each prints one line a figure.

* `read`: microseconds for a row that is in another shard, and for one that is in this one.
* `merge`: microseconds a result and memory, with shards in the order of rows and with shards that are not.
* `judge`: rows a minute of one process, of one actor on Ray and of two on this machine, and how long the start takes.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from judge_local.batch.formats import Source
from judge_local.batch.rows import read_rows
from judge_local.batch.shards import Shard
from judge_local.consensus import compute_consensus
from judge_local.results import Result, ResultsHeader, subject_sha256
from judge_local.run import JudgeRun
from judge_local.verdict import JudgeVerdict, Match
from judge_local.zones import in_zone, zone_for

SUBJECT = "The train leaves at nine from platform two, every day but Sunday. " * 12
"""Some 800 characters: a short message, or a paragraph."""


def write_rows(path: Path, count: int) -> None:
    """`count` rows, four about each subject."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            subject = f"Sheet {number // 4}. {SUBJECT}"
            row = {"id": f"row-{number}", "claim": f"A time is named, {number}.", "subject": subject}
            file.write(json.dumps(row) + "\n")


def results(rows: Sequence[int]) -> Iterator[str]:
    """A results file's lines for `rows`, each with three runs of usual length."""
    header = ResultsHeader(
        model="mock:mock", model_sha256=None, schema_sha256="0" * 64, prompt_version="1", settings={}
    )
    yield json.dumps(header.to_json()) + "\n"
    verdict = JudgeVerdict(
        claim="A time is named, 1000.",
        observed="o" * 150,
        match=Match.PASS,
        confidence=0.9,
        reasoning="r" * 250,
    )
    runs = [JudgeRun(verdict=verdict, provider="mock", model="mock", duration_ms=812.25) for _ in range(3)]
    consensus = compute_consensus(runs)
    decision = in_zone(consensus, zone_for(consensus), distinct_runs=3, replays=False)
    for row in rows:
        result = Result(
            row=row,
            id=f"row-{row}",
            claim=f"A time is named, {row}.",
            subject=SUBJECT,
            subject_sha256=subject_sha256(SUBJECT),
            decision=decision,
        )
        yield json.dumps(result.to_json()) + "\n"


def measure_read(folder: Path, count: int) -> None:
    """Time for a row of another shard and of this one."""
    path = folder / "rows.jsonl"
    write_rows(path, count)
    print(f"rows: {count:,}, {path.stat().st_size / count:,.0f} bytes each")
    for shard in (Shard(index=1, total=1), Shard(index=1, total=1000)):
        started = time.perf_counter()
        own = sum(1 for _ in read_rows(Source(str(path)), shard=shard))
        seconds = time.perf_counter() - started
        print(f"shard {shard}: {own:,} rows kept, {1e6 * seconds / count:.1f} µs a row read")


def measure_merge(folder: Path, count: int, shards: int) -> None:
    """Time and memory of the merge command."""
    rows = list(range(1, count + 1))
    for name in ("in order", "in no order"):
        if name == "in no order":
            random.Random(0).shuffle(rows)
        files = [folder / f"{index}.jsonl" for index in range(shards)]
        for index, path in enumerate(files):
            with path.open("w", encoding="utf-8") as file:
                file.writelines(results(rows[index::shards]))
        size = sum(path.stat().st_size for path in files)
        output = folder / "all.jsonl"
        command = [sys.executable, "-m", "judge_local", "merge", *map(str, files), "-o", str(output)]
        started = time.perf_counter()
        subprocess.run([*command, "--force", "--quiet"], check=True)
        seconds = time.perf_counter() - started
        # Kilobytes on Linux, bytes on macOS; the largest of all children so far.
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / (
            1024 if sys.platform == "linux" else 2**20
        )
        print(
            f"merge of {shards} shards {name}: {count:,} results of {size / count:,.0f} bytes, "
            f"{1e6 * seconds / count:.1f} µs each, {memory:.0f} MiB at most"
        )


def measure_judge(folder: Path, count: int, runs: int, model: str | None) -> None:
    """Rows a minute with and without Ray."""
    rows = folder / "rows.jsonl"
    write_rows(rows, count)
    ways = {
        "this process": [],
        "Ray, one actor": ["--engine", "ray", "--ray-actors", "1"],
        "Ray, two actors on this machine": ["--engine", "ray", "--ray-actors", "2"],
    }
    for name, words in ways.items():
        command = [sys.executable, "-m", "judge_local", "batch", str(rows), "--fresh", "--json", "--quiet"]
        command += ["-o", str(folder / "results.jsonl"), "--runs", str(runs), "--fail-on", "never", *words]
        command += [] if model is None else ["--model", model]
        started = time.perf_counter()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        wall = time.perf_counter() - started
        facts = json.loads(done.stdout.splitlines()[-1])
        print(
            f"{name}: {60 * facts['judged'] / facts['seconds']:.1f} rows a minute of {runs} runs, "
            f"{wall - facts['seconds']:.1f} s to start and end",
            flush=True,
        )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="what", required=True)
    for name, rows in (("read", 200_000), ("merge", 200_000), ("judge", 60)):
        command = commands.add_parser(name)
        command.add_argument("--rows", type=int, default=rows)
        if name == "merge":
            command.add_argument("--shards", type=int, default=8)
        if name == "judge":
            command.add_argument("--runs", type=int, default=3)
            command.add_argument("--model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "read":
            measure_read(Path(folder), options.rows)
        elif options.what == "merge":
            measure_merge(Path(folder), options.rows, options.shards)
        else:
            measure_judge(Path(folder), options.rows, options.runs, options.model)


if __name__ == "__main__":
    main()
