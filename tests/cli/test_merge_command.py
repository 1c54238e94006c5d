"""`judge-local merge` as a person and a script see it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge_local.batch.merge import Double, Merged
from judge_local.cli import main
from judge_local.cli.merge import faults
from judge_local.results import Result, no_decision, subject_sha256

HEADER = {
    "judgeLocalResults": 1,
    "model": "mock:mock-model",
    "schemaSha256": "a" * 64,
    "promptVersion": "1",
    "settings": {"runs": 3},
}


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def shard(name, *rows, **header):
    results = [
        Result(row=row, id=f"{row}", claim="c", subject_sha256=subject_sha256(""), decision=no_decision())
        for row in rows
    ]
    lines = [{**HEADER, **header}, *(result.to_json() for result in results)]
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(*words):
    return CliRunner().invoke(main, ["merge", *words])


def test_shards_are_merged():
    shard("a", 3, 1)
    shard("b", 2)

    done = run("a", "b", "-o", "all")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "3 results in all\n", "")
    assert [json.loads(line).get("row") for line in Path("all").read_text().splitlines()] == [None, 1, 2, 3]


def test_a_machine_reads_the_same():
    shard("a", 1)

    done = run("a", "-o", "all", "--json")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["results"] == 1
    assert json.loads(done.stdout)["written"] is True


def test_missing_rows_are_1_and_nothing_is_written(tmp_path):
    shard("a", 1, 5)

    done = run("a", "-o", "all", "--rows", "7", "--json")

    assert done.exit_code == 1
    assert json.loads(done.stdout)["missingRows"] == [[2, 4], [6, 7]]
    assert done.stderr == (
        "judge-local: 5 rows without a result: 2-4, 6-7\n"
        "judge-local: nothing was written. "
        "Name the files that are missing or judge the rest first; --partial writes what there is.\n"
    )
    assert not (tmp_path / "all").exists()


def test_a_part_is_0_and_says_what_is_missing():
    shard("a", 1, 3)

    done = run("a", "-o", "all", "--partial")

    assert (done.exit_code, done.stdout) == (0, "2 results in all\n")
    assert done.stderr == "judge-local: 1 row without a result: 2\n"


def test_doubles_are_1():
    shard("a", 1)
    shard("b", 1)

    done = run("a", "b", "-o", "all")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "judge-local: row 1 is there 2 times: a, b\n"
        "judge-local: nothing was written. Take out the rows that are there more than once.\n"
    )


def test_other_settings_are_2():
    shard("a", 1)
    shard("b", 2, settings={"runs": 1})

    done = run("a", "b", "-o", "all")

    assert done.exit_code == 2
    assert done.stderr.startswith("judge-local: b: was not made as a was (runs: ")


def test_every_fault_is_a_line():
    merged = Merged(
        results=30,
        written=False,
        missing=9,
        missing_rows=((2, 2), (4, 7)),
        doubles=3,
        double_rows=(Double(row=9, files=("a", "b", "b")),),
        missing_shards=("2/9", "5/9"),
        torn=("a",),
    )

    assert list(faults(merged)) == [
        "a: its last line was not written to its end, and does not count",
        "no file was given for shard 2/9, 5/9",
        "9 rows without a result: 2, 4-7, …",
        "row 9 is there 3 times: a, b, b",
        "and 2 more rows are there more than once",
        "nothing was written. Take out the rows that are there more than once.",
    ]
