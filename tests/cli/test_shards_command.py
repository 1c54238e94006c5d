"""`batch --shard` and `merge` together: the shards of a job make the file that one run makes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from judge_local import MockProvider, mock_verdict
from judge_local.cli import main

ROWS = [
    *({"id": f"row-{n}", "subject": f"Text {n % 4}.", "claim": f"Claim {n}."} for n in range(30)),
    {"id": "row-3", "subject": "Text.", "claim": "This id is there already."},
    {"subject": "Text.", "claim": "This row has no id."},
    {"id": "row-41", "claim": "This row has no subject."},
    {"id": "row-42", "subject": "Text.", "claim": "A label.", "label": "pass", "meta": {"kept": True}},
    "this line is not JSON",
]


@pytest.fixture(autouse=True)
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in ROWS]
    Path("rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(
        "judge_local.cli.batch.make_provider", lambda *_: MockProvider([mock_verdict("pass", 0.9)])
    )


def batch(*words, output, code=0):
    done = CliRunner().invoke(
        main, ["batch", "rows.jsonl", "-o", output, "--quiet", "--fail-on", "never", *words]
    )
    assert done.exit_code == code, done.stderr
    return done


def lines_of(name):
    """The lines of a results file, without what no two runs have in common."""

    def without_durations(value):
        if isinstance(value, dict):
            return {key: without_durations(below) for key, below in value.items() if key != "durationMs"}
        return [without_durations(below) for below in value] if isinstance(value, list) else value

    return [without_durations(json.loads(line)) for line in Path(name).read_text().splitlines()]


@pytest.mark.parametrize("total", [1, 3, 50])
def test_the_shards_of_a_job_make_the_file_of_one_run(total):
    """With 50 shards, most have no row at all."""
    batch("--ordered", output="whole.jsonl")
    names = [f"{index}.jsonl" for index in range(1, total + 1)]
    for index, name in enumerate(names, 1):
        batch("--shard", f"{index}/{total}", "--threads", str(index), output=name)

    merged = CliRunner().invoke(main, ["merge", *names, "-o", "all.jsonl", "--rows", str(len(ROWS))])

    assert (merged.exit_code, merged.stdout) == (0, f"{len(ROWS)} results in all.jsonl\n"), merged.stderr
    header, *results = lines_of("all.jsonl")
    header["settings"].pop("threads", None)
    assert [header, *results] == lines_of("whole.jsonl")


def test_a_merged_part_goes_on_as_a_batch():
    """What the shards that are done have is not judged again."""
    batch("--shard", "1/3", output="1.jsonl")
    batch("--shard", "3/3", output="3.jsonl")
    part = CliRunner().invoke(main, ["merge", "1.jsonl", "3.jsonl", "-o", "all.jsonl", "--partial"])
    assert part.exit_code == 0
    there = len(lines_of("all.jsonl")) - 1

    summary = json.loads(batch("--json", "--ordered", output="all.jsonl").stdout)

    batch("--ordered", output="whole.jsonl")
    assert lines_of("all.jsonl") == lines_of("whole.jsonl")
    assert 0 < there < len(ROWS)
    assert (summary["judged"], summary["judgedBefore"]) == (len(ROWS) - there, there)


def test_a_file_of_one_shard_is_not_continued_as_another():
    batch("--shard", "1/3", output="1.jsonl")

    refused = batch("--shard", "2/3", output="1.jsonl", code=2)

    assert "was made with other settings (shard: '1/3', not '2/3')" in refused.stderr


def test_the_environment_says_which_shard_only_when_asked(monkeypatch):
    monkeypatch.setenv("CI_NODE_INDEX", "2")
    monkeypatch.setenv("CI_NODE_TOTAL", "3")

    batch(output="whole.jsonl")
    batch("--shard", "auto", "--ordered", output="auto.jsonl")
    batch("--shard", "2/3", "--ordered", output="2.jsonl")

    assert len(lines_of("whole.jsonl")) == len(ROWS) + 1
    assert lines_of("auto.jsonl") == lines_of("2.jsonl")
    assert lines_of("auto.jsonl")[0]["shard"] == "2/3"


def test_a_shard_without_rows_passes_and_a_file_without_rows_does_not():
    Path("rows.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    for index in (1, 2):
        batch("--shard", f"{index}/2", output=f"{index}.jsonl")
    assert sorted(len(lines_of(f"{index}.jsonl")) for index in (1, 2)) == [1, 2]

    Path("rows.jsonl").write_text("")
    batch("--shard", "1/2", output="none.jsonl", code=5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ray-actors", "2"], "--ray-actors: it is about Ray, and Ray is not asked for. Add --engine ray."),
        (["--ray-address", "auto"], "--ray-address: it is about Ray"),
        (["--engine", "ray", "--no-wait"], "--no-wait: actors on one machine wait for each other."),
    ],
)
def test_what_the_engine_does_not_know_is_refused(tmp_path, words, said):
    refused = batch(*words, output="x.jsonl", code=2)

    assert refused.stderr.startswith(f"judge-local: {said}")
    assert not (tmp_path / "x.jsonl").exists()


def test_what_is_no_shard_is_refused_before_anything_is_made(tmp_path):
    refused = batch("--shard", "4/3", output="x.jsonl", code=2)

    assert refused.stderr == "judge-local: --shard: 4/3 is none of 3 shards. They count from 1 to 3.\n"
    assert not (tmp_path / "x.jsonl").exists()
