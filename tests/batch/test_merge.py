"""Merging: what shards hold becomes the file of one run, or nothing, and what is wrong is named."""

import fcntl
import itertools
import json
import os
import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge_local.batch import merge
from judge_local.batch.merge import Double, merge_results
from judge_local.batch.results_file import read_results
from judge_local.batch.shards import Shard
from judge_local.errors import InputError, ResultsFileError, UsageError
from judge_local.results import Result, ResultsHeader, no_decision, subject_sha256

HEADER = {
    "judgeLocalResults": 1,
    "model": "mock:mock-model",
    "schemaSha256": "a" * 64,
    "promptVersion": "1",
    "settings": {"runs": 3, "temperature": 0.0, "threads": 2},
}


def line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def result(row: int, row_id: str | None = None, subject: str = "Text.") -> bytes:
    made = Result(
        row=row,
        id=row_id or f"row-{row}",
        claim=f"Claim {row}.",
        subject=subject,
        subject_sha256=subject_sha256(subject),
        decision=no_decision(),
        error="line 1: it is a test",
    )
    return line(made.to_json())


def write(path, rows, *, torn=b"", **changes):
    """A results file with these rows; `changes` are put into its header, and those it does not know into its settings."""
    facts = {key: value for key, value in changes.items() if key in {*HEADER, "modelSha256", "shard"}}
    header = {**HEADER, **facts}
    header["settings"] = {**HEADER["settings"], **{k: v for k, v in changes.items() if k not in facts}}
    path.write_bytes(line(header) + b"".join(result(row) for row in rows) + torn)
    return path


def shards_of(folder, rows, total, shuffle=None):
    """The files of all shards of `rows`, each in the order that `shuffle` leaves it in."""
    files = []
    for index in range(1, total + 1):
        shard = Shard(index=index, total=total)
        own = [row for row in rows if shard.holds(f"row-{row}")]
        if shuffle is not None:
            shuffle(own)
        files.append(write(folder / f"{index}.jsonl", own, shard=str(shard), threads=index))
    return files


def rows_in(path):
    return [found.row for found in read_results(path)[1]]


@pytest.fixture
def output(tmp_path):
    return tmp_path / "all.jsonl"


@pytest.mark.parametrize("total", [1, 2, 3, 7])
def test_shards_become_the_file_of_one_run(tmp_path, output, total):
    rows = range(1, 101)
    whole = write(tmp_path / "whole.jsonl", rows, threads=1)

    merged = merge_results(shards_of(tmp_path, rows, total, random.Random(total).shuffle), output)

    assert merged.to_json() == {
        "results": 100,
        "written": True,
        "complete": True,
        "missing": 0,
        "missingRows": [],
        "doubles": 0,
        "doubleRows": [],
        "missingShards": [],
        "torn": [],
    }
    if total == 1:
        assert output.read_bytes() == whole.read_bytes()
    else:  # The number of threads differs from shard to shard, so that no header can name it.
        expected = whole.read_bytes().replace(b', "threads": 1', b"")
        assert output.read_bytes() == expected


@settings(max_examples=30, deadline=None)
@given(rows=st.permutations(range(1, 31)), cuts=st.sets(st.integers(1, 29)), piece=st.integers(1, 2000))
def test_any_order_over_any_files_with_any_memory(tmp_path_factory, rows, cuts, piece):
    """However small the pieces that are sorted, and with three files at a time."""
    folder = tmp_path_factory.mktemp("shards")
    edges = [0, *sorted(cuts), 30]
    files = [write(folder / f"{start}.jsonl", rows[start:end]) for start, end in itertools.pairwise(edges)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "PIECE_BYTES", piece)
        patch.setattr(merge, "STREAMS", 3)
        merged = merge_results(files, folder / "all.jsonl")

    assert merged.written
    assert (folder / "all.jsonl").read_bytes() == write(folder / "whole.jsonl", range(1, 31)).read_bytes()
    assert [name.name for name in folder.iterdir() if name.name.startswith(".")] == []


def test_memory_does_not_grow_with_the_rows(tmp_path, output, monkeypatch):
    """Eight times the rows, out of order, in the same memory: the pieces bound it."""
    monkeypatch.setattr(merge, "PIECE_BYTES", 20_000)

    def peak(count):
        rows = list(range(1, count + 1))
        random.Random(0).shuffle(rows)
        files = [write(tmp_path / "a.jsonl", rows[::2]), write(tmp_path / "b.jsonl", rows[1::2])]
        tracemalloc.start()
        merge_results(files, output, force=True)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    peak(10)  # What is imported and cached at first use.
    small, large = peak(1000), peak(8000)
    # Each piece keeps a file open, and an open file has a buffer; a million rows of one kilobyte are in 32 pieces.
    assert large < 2 * small + 2_500_000


def test_what_is_missing_is_named_and_nothing_is_written(tmp_path, output):
    files = [write(tmp_path / "a.jsonl", [1, 5]), write(tmp_path / "b.jsonl", [3, 4, 9])]

    merged = merge_results(files, output)

    assert (merged.results, merged.missing, merged.missing_rows) == (5, 4, ((2, 2), (6, 8)))
    assert not merged.complete
    assert not merged.written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_rows_missing_at_the_end_are_known_only_by_the_number_of_rows(tmp_path, output):
    files = [write(tmp_path / "a.jsonl", [1, 2])]

    assert merge_results(files, output, rows=4).missing_rows == ((3, 4),)
    assert merge_results(files, output, rows=2).complete
    with pytest.raises(UsageError, match="--rows: 1 is below row 2"):
        merge_results(files, output, rows=1, force=True)


def test_a_part_is_written_when_that_is_wanted(tmp_path, output):
    files = [write(tmp_path / "a.jsonl", [4, 1])]

    merged = merge_results(files, output, partial=True)

    assert (merged.written, merged.complete, merged.missing_rows) == (True, False, ((2, 3),))
    assert rows_in(output) == [1, 4]


@pytest.mark.parametrize("partial", [False, True])
def test_doubles_are_named_with_their_files_and_nothing_is_written(tmp_path, output, partial):
    a, b = write(tmp_path / "a.jsonl", [1, 2, 3, 3]), write(tmp_path / "b.jsonl", [2, 2, 4])

    merged = merge_results([a, b], output, partial=partial)

    assert merged.doubles == 2
    assert merged.double_rows == (
        Double(row=2, files=(str(a), str(b), str(b))),
        Double(row=3, files=(str(a), str(a))),
    )
    assert not merged.written
    assert not output.exists()


def test_of_many_faults_the_first_are_named_and_all_are_counted(tmp_path, output):
    twice = [row for row in range(1, 201, 2) for _ in range(3)]

    merged = merge_results([write(tmp_path / "a.jsonl", twice)], output)

    assert (merged.results, merged.doubles, merged.missing) == (100, 100, 99)
    assert len(merged.double_rows) == len(merged.missing_rows) == merge.NAMED


def test_a_shard_that_was_not_given_is_named(tmp_path, output):
    files = shards_of(tmp_path, range(1, 30), 4)

    merged = merge_results([files[0], files[2]], output)

    assert merged.missing_shards == ("2/4", "4/4")
    assert not merged.written
    assert merge_results([files[0], files[2]], output, partial=True).written


def test_a_shard_without_rows_is_still_a_shard(tmp_path, output):
    """More shards than rows: most are empty, and the job is complete all the same."""
    merged = merge_results(shards_of(tmp_path, [1, 2], 9), output)

    assert (merged.complete, merged.results) == (True, 2)


def test_a_torn_last_line_is_a_missing_row(tmp_path, output):
    torn = write(tmp_path / "a.jsonl", [1], torn=result(2)[:-1])

    merged = merge_results([torn, write(tmp_path / "b.jsonl", [3])], output)

    assert (merged.torn, merged.missing_rows) == ((str(torn),), ((2, 2),))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"runs": 5}, "runs: '5', not '3'"),
        ({"model": "mock:other"}, "model: 'mock:other', not 'mock:mock-model'"),
        ({"modelSha256": "b" * 64}, f"modelSha256: '{'b' * 64}', not nothing"),
        ({"promptVersion": "2"}, "promptVersion: '2', not '1'"),
        ({"cache": "x"}, "cache: 'x', not nothing"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, output, changes, named):
    files = [write(tmp_path / "a.jsonl", [1]), write(tmp_path / "b.jsonl", [2], **changes)]

    with pytest.raises(UsageError) as refused:
        merge_results(files, output)

    assert str(refused.value) == (
        f"{files[1]}: was not made as {files[0]} was ({named}). Merge only files that were made with the same settings."
    )
    assert not output.exists()


def test_shards_of_two_jobs_are_refused(tmp_path, output):
    files = [
        write(tmp_path / "a.jsonl", [], shard="1/3"),
        write(tmp_path / "b.jsonl", [], shard="2/4"),
    ]

    with pytest.raises(UsageError, match=r"b.jsonl: is shard 2/4, and .*a.jsonl is shard 1/3"):
        merge_results(files, output)


def test_a_row_of_another_shard_is_refused(tmp_path, output):
    """So two rows in different shards cannot have one id."""
    stranger = next(row for row in range(1, 99) if not Shard(index=1, total=2).holds(f"row-{row}"))

    with pytest.raises(InputError, match=f"line 2: the id 'row-{stranger}' is none of shard 1/2"):
        merge_results([write(tmp_path / "a.jsonl", [stranger], shard="1/2")], output)


def test_a_row_named_after_its_line_may_be_in_any_shard(tmp_path, output):
    """A row that repeats an id goes where that id goes, and is named after its line."""
    for index in (1, 2):
        header = line({**HEADER, "shard": f"{index}/2"})
        (tmp_path / f"{index}.jsonl").write_bytes(header + result(index, "line:7"))

    assert merge_results([tmp_path / "1.jsonl", tmp_path / "2.jsonl"], output).complete


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        (b"{", "line 2", "is not JSON"),
        (b'{"row": 1, "id": "a", "row": 2}', "line 2", "stands there twice"),
        (b'{"row": 0, "id": "a"}', "line 2", "is no result with a row and an id"),
        (b'{"row": true, "id": "a"}', "line 2", "is no result with a row and an id"),
        (b'{"row": 1}', "line 2", "is no result with a row and an id"),
        (b"[1]", "line 2", "is no result with a row and an id"),
        (b"[" * 100_000, "line 2", "is not JSON"),
        (b'{"row": 1, "id": "\xff"}', "line 2", "is not JSON"),
    ],
)
def test_a_line_that_is_no_result_is_refused(tmp_path, output, text, where, said):
    path = tmp_path / "a.jsonl"
    path.write_bytes(line(HEADER) + text + b"\n")

    with pytest.raises(InputError) as refused:
        merge_results([path], output)

    assert str(refused.value).startswith(f"{path} {where}: ")
    assert said in str(refused.value)


def test_lines_may_be_spelled_otherwise(tmp_path, output):
    """What counts is the JSON, not where `row` stands in it."""
    data = [json.loads(result(row)) for row in (2, 1)]
    lines = [json.dumps(dict(reversed(facts.items())), ensure_ascii=False) for facts in data]
    path = tmp_path / "a.jsonl"
    path.write_bytes(line(HEADER) + "".join(f"{text}\n" for text in lines).encode())

    assert merge_results([path], output).complete
    assert rows_in(output) == [1, 2]


@pytest.mark.parametrize("text", [b"", b"{}\n", b'{"row": 1}\n', b"not a file of ours\n", line(HEADER)[:-1]])
def test_what_is_no_results_file_is_refused(tmp_path, output, text):
    path = tmp_path / "a.jsonl"
    path.write_bytes(text)

    with pytest.raises(UsageError, match=r"a\.jsonl"):
        merge_results([path], output)


def test_files_that_are_not_there(tmp_path, output):
    a = write(tmp_path / "a.jsonl", [1])

    with pytest.raises(UsageError, match="no results file was named"):
        merge_results([], output)
    with pytest.raises(UsageError, match="there is no file"):
        merge_results([tmp_path / "none.jsonl"], output)
    with pytest.raises(UsageError, match="there is no folder"):
        merge_results([a], tmp_path / "none" / "all.jsonl")
    with pytest.raises(UsageError, match="is a folder"):
        merge_results([a], tmp_path)


def test_nothing_is_replaced_unasked(tmp_path, output):
    a = write(tmp_path / "a.jsonl", [1])
    output.write_text("of somebody")

    with pytest.raises(UsageError, match=r"is there already\. Name another file, or replace it with --force"):
        merge_results([a], output)
    assert output.read_text() == "of somebody"
    assert merge_results([a], output, force=True).written
    assert rows_in(output) == [1]


@pytest.mark.parametrize("force", [False, True])
def test_a_shard_is_never_the_output(tmp_path, force):
    a = write(tmp_path / "a.jsonl", [1])

    with pytest.raises(UsageError, match="is one of the shards"):
        merge_results([a], a, force=force)


def test_a_shard_that_is_still_written_is_refused(tmp_path, output):
    a = write(tmp_path / "a.jsonl", [1])
    with a.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        with pytest.raises(ResultsFileError, match="a batch is still writing to it"):
            merge_results([a], output)


def test_a_full_disk_is_one_message_and_leaves_nothing(tmp_path, output, monkeypatch):
    a = write(tmp_path / "a.jsonl", [2, 1])

    def full(_descriptor):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsFileError, match=r"No space left on device.*the shards are as they were"):
        merge_results([a], output)

    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_how_far_it_is_is_told(tmp_path, output, monkeypatch):
    monkeypatch.setattr(merge, "_SAY_AFTER", 2)
    told = []

    merge_results([write(tmp_path / "a.jsonl", [1, 2, 3])], output, progress=lambda *a: told.append(a))

    assert told == [("reading a.jsonl", 2), ("reading a.jsonl", 4), ("writing", 2)]


def test_the_header_is_one_that_batch_goes_on_from(tmp_path, output):
    merge_results(shards_of(tmp_path, range(1, 9), 2), output)

    with output.open() as file:
        header = json.loads(file.readline())
    assert ResultsHeader.from_json(header) == ResultsHeader.from_json(
        {**HEADER, "settings": {"runs": 3, "temperature": 0.0}}
    )
