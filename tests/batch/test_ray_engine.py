"""The Ray engine: an actor's work without a cluster, and whole batches on a real one, in which an actor is killed."""

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from judge_local import VERDICT_SCHEMA, MockProvider, mock_verdict
from judge_local.batch.formats import Source
from judge_local.batch.judging import Judging
from judge_local.batch.parcels import STARTS
from judge_local.batch.ray_engine import RayEngine, RayJudge, remote_work
from judge_local.batch.results_file import open_results
from judge_local.batch.rows import Row, Subjects, read_rows
from judge_local.batch.runner import run_batch
from judge_local.errors import (
    ClusterError,
    EngineCrashedError,
    ModelFileError,
    ModelMissingError,
    UsageError,
)
from judge_local.results import Result

JOB = Path(__file__).with_name("ray_job.py")
MAKE = partial(MockProvider, [mock_verdict("pass", 0.9)])
ROWS = [Row(number=n, line=n, id=f"row-{n}", claim="A text is named.", subject="A text.") for n in (1, 2)]


def missing():
    raise ModelMissingError("tiny", "it is not on this disk", "Run `judge-local pull tiny`.")


def work_of(make=MAKE, **changes):
    return replace(
        remote_work(MAKE, Judging(schema=VERDICT_SCHEMA, machine={}), MAKE()), make=make, **changes
    )


def first_time(_number):
    return 1


# --- an actor's work --------------------------------------------------------------------------------------------------


def test_what_an_actor_has_to_know_travels():
    """The canonical schema is a read-only mapping, which does not; and the header it makes must be the same."""
    judging = Judging(schema=VERDICT_SCHEMA, machine={"threads": 2})
    work = remote_work(MAKE, judging, MAKE(), cache="here")

    arrived = pickle.loads(pickle.dumps(work))

    assert arrived.judging.header(MAKE()) == judging.header(MAKE())
    assert arrived.cache == str(Path.cwd() / "here")
    assert pickle.loads(pickle.dumps(RayJudge)) is RayJudge


def test_an_actor_judges_parcels_with_one_judge():
    made = []

    def make():
        made.append(MAKE())
        return made[-1]

    judge = RayJudge(work_of(make), first_time)
    results = [*judge.outcomes(0, ROWS), *judge.outcomes(1, ROWS)]

    assert [result.id for result in results] == ["row-1", "row-2"] * 2
    assert [result.decision.votes.passes for result in results] == [3] * 4
    assert len(made) == 1


def test_an_actor_reads_and_writes_tables():
    """What is empty has been answered before, and is answered with nothing."""
    pyarrow = pytest.importorskip("pyarrow")
    judge = RayJudge(work_of(), first_time)

    table = judge(pyarrow.table({"number": [4, 5], "parcel": [pickle.dumps(ROWS), b""]}))

    assert table["number"].to_pylist() == [4, 5]
    judged, nothing = table["outcomes"].to_pylist()
    assert [type(one) for one in pickle.loads(judged)] == [Result, Result]
    assert nothing == b""


def test_a_parcel_that_ends_its_actor_again_and_again_is_given_up():
    counts = iter(range(1, STARTS + 2))
    judge = RayJudge(work_of(), lambda _number: next(counts))

    outcomes = [judge.outcomes(0, ROWS) for _ in range(STARTS + 1)]

    assert all(isinstance(one, Result) for parcel in outcomes[:-1] for one in parcel)
    assert all(isinstance(one, EngineCrashedError) for one in outcomes[-1])


@pytest.mark.parametrize(
    ("work", "kind", "said"),
    [
        (work_of(missing), ModelMissingError, "tiny: it is not on this disk. Run `judge-local pull tiny`."),
        (work_of(model_sha256="a" * 64), ModelFileError, "Put the same file on all machines."),
        (work_of(model="mock:other"), ModelFileError, "that of mock:other here was"),
        (work_of(version="0.0.0"), ClusterError, "the batch was started by 0.0.0"),
    ],
    ids=["no model", "another file", "another model", "another version"],
)
def test_a_machine_that_is_set_up_otherwise_ends_the_batch_by_name(work, kind, said):
    outcomes = RayJudge(work, first_time).outcomes(0, ROWS)

    assert len(outcomes) == len(ROWS)
    arrived = pickle.loads(pickle.dumps(outcomes[0]))
    assert isinstance(arrived, kind)
    assert str(arrived).startswith(f"{os.uname().nodename}: ")
    assert said in str(arrived)


def test_without_ray_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(UsageError, match=r"pip install 'judge-local\[ray\]'"):
        RayEngine(work_of())


# --- a real cluster ---------------------------------------------------------------------------------------------------


class RealJob:
    """A batch on a Ray of its own, in a process of its own."""

    def __init__(self, words, results, log):
        self.results, self.log = results, log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, words)], stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()  # So that it ends its Ray.
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def lines(self):
        """Whole lines of the results file, without its header."""
        return self.results.read_text().count("\n") - 1 if self.results.exists() else 0

    def wait_for(self, what, seconds=150):
        until = time.monotonic() + seconds
        while not (found := what()) and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def actors(self):
        """Process ids of the actors below this job; another's Ray is none of ours."""
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        table = [line.split(None, 2) for line in listed.stdout.splitlines() if len(line.split(None, 2)) == 3]
        ours = {str(self.process.pid)}
        while more := {pid for pid, parent, _ in table if parent in ours} - ours:
            ours |= more
        return [int(pid) for pid, _, name in table if pid in ours and "MapBatches(RayJudge)" in name]

    def end(self, seconds=200):
        """What it printed last; skips where Ray cannot start here."""
        out, _ = self.process.communicate(timeout=seconds)
        said = self.log.read_text()
        if "no cluster at 'local'" in said:
            pytest.skip(f"Ray does not start on this machine: {said.splitlines()[-1]}")
        assert self.process.returncode == 0, said
        return json.loads(out.splitlines()[-1])


def write_rows(path, count):
    rows = [
        {"id": f"row-{n}", "subject": f"Train {n // 5} leaves at nine.", "claim": f"Claim {n}."}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ids_in(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()[1:]]


def judge_here(rows, results, limit):
    """Judge the first rows with the same judge in this process, without Ray."""
    judging = Judging(schema=VERDICT_SCHEMA, machine={}, runs=1)
    with open_results(results, judging.header(MAKE())) as file:
        run = run_batch(
            read_rows(Source(str(rows))),
            judging.judge_row(MAKE()),
            file,
            subjects=Subjects(rows.parent),
            limit=limit,
        )
        asyncio.run(run)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_actor_that_is_killed_costs_nothing_and_doubles_nothing(tmp_path):
    """Two actors go on with a file that was begun without Ray; one of them is killed when some rows are done."""
    pytest.importorskip("ray", reason="ray is not installed")
    rows, results = write_rows(tmp_path / "rows.jsonl", 40), tmp_path / "results.jsonl"
    judge_here(rows, results, limit=5)

    with RealJob([JOB, rows, results, 400], results, tmp_path / "log.txt") as job:
        begun = job.wait_for(lambda: job.lines() > 5)
        if begun:
            os.kill(job.wait_for(job.actors)[0], signal.SIGKILL)
            assert job.lines() < 40
        done = job.end()

    assert begun
    assert done == {"judged": 35, "found": 5, "errors": 0}
    assert sorted(ids_in(results)) == sorted(f"row-{n}" for n in range(40))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_actors_with_a_real_model_decide_what_this_machine_decides(tmp_path, live_model):
    """The command itself: two actors take turns on this machine, one is killed, and no decision differs."""
    pytest.importorskip("ray", reason="ray is not installed")
    rows = write_rows(tmp_path / "rows.jsonl", 6)
    results, alone = tmp_path / "results.jsonl", tmp_path / "alone.jsonl"
    settings = ["--model", live_model, "--runs", "1", "--deterministic", "--fail-on", "never"]
    command = ["-m", "judge_local", "batch", rows, "--json", *settings]
    on_ray = ["-o", results, "--engine", "ray", "--ray-actors", "2", "--ordered"]

    with RealJob([*command, *on_ray], results, tmp_path / "log.txt") as job:
        begun = job.wait_for(lambda: job.lines() >= 1, seconds=600)
        if begun and job.lines() < 6:
            os.kill(job.wait_for(job.actors)[0], signal.SIGKILL)
        done = job.end(seconds=600)

    subprocess.run(
        [sys.executable, *map(str, command), "-o", alone, "--ordered"], check=True, capture_output=True
    )
    assert begun
    assert done["judged"] == 6
    assert decisions_in(results) == decisions_in(alone)


def decisions_in(path):
    """The header and each result, without what no two runs have in common."""
    header, *results = (json.loads(line) for line in path.read_text().splitlines())
    kept = ("row", "id", "claim", "subjectSha256", "zone", "votes")
    return header, [
        ([result[key] for key in kept], [run["verdict"] for run in result["runs"]]) for result in results
    ]
