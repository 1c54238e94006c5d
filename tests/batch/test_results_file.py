"""The results file: one line a row whatever happens, one writer, one set of settings."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch.batches import HEADER, half_errored, ids, lines, result
from judge_local.batch.results_file import header_differences, open_results, read_results
from judge_local.errors import ResultsFileError, UsageError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def fill(path, *results, **options):
    with open_results(path, HEADER, **options) as file:
        for one in results:
            file.append(one)
        file.sync()


def test_what_is_written_is_read(path):
    written = [result(1), result(2, match="fail"), result(3, error="line 3: no")]
    fill(path, *written)

    header, results = read_results(path)

    assert header == HEADER
    assert list(results) == written


def test_no_text_leaves_out_the_subject_and_keeps_its_hash(path):
    fill(path, result(1, reference="r"), text=False)

    (line,) = lines(path)
    assert "subject" not in line
    assert "reference" not in line
    assert line["subjectSha256"] == result(1).subject_sha256


def test_a_file_is_continued(path):
    fill(path, result(1), result(2))
    kept = []

    with open_results(path, HEADER, on_kept=kept.append) as file:
        assert (len(file), file.has("r1"), file.has("r3")) == (2, True, False)
        assert file.has_same("r1", "Claim 1.", result(1).subject_sha256)
        assert not file.has_same("r1", "Another.", result(1).subject_sha256)
        with pytest.raises(UsageError, match="'r2' has a result already"):
            file.append(result(2))
        file.append(result(3))

    assert kept == [result(1), result(2)]
    assert ids(path) == ["r1", "r2", "r3"]


def test_a_file_cut_at_any_byte_loses_its_torn_line_and_nothing_else(path):
    fill(path, result(1), result(2))
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]

    near = {end + k for end in (0, *ends) for k in range(-3, 4)}
    lengths = sorted((near | set(range(0, len(whole), 13))) & set(range(len(whole) + 1)))

    for length in lengths:
        path.write_bytes(whole[:length])
        expected = [f"r{k}" for k, end in enumerate(ends[1:], 1) if end <= length]
        if length >= ends[0]:
            assert [one.id for one in read_results(path)[1]] == expected
        with open_results(path, HEADER) as file:
            assert [name for name in ("r1", "r2") if file.has(name)] == expected
            for number in (1, 2):
                if not file.has(f"r{number}"):
                    file.append(result(number))
        assert path.read_bytes() == whole


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=40))
def test_a_file_that_is_something_else_is_left_alone(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("other") / "results.jsonl"
    path.write_bytes(data)

    if b'{"judgeLocalResults": '.startswith(data):
        return
    with pytest.raises(UsageError):
        open_results(path, HEADER)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda line: b"{}\n", "line 2: id is 'None', not a string"),
        (lambda line: b"\0\0\0\n", "line 2: .* is not JSON"),
        (lambda line: line + line, "line 3: 'r1' has a result in a line before"),
        (lambda line: line.replace(b'"zone": "auto-pass"', b'"zone": "auto-fail"'), "line 2: the zone"),
    ],
    ids=["no result", "zeros", "twice", "forged zone"],
)
def test_a_damaged_line_is_named(path, spoil, problem):
    fill(path, result(1), result(2))
    first, line, rest = path.read_bytes().split(b"\n", 2)
    path.write_bytes(first + b"\n" + spoil(line + b"\n") + rest)

    with pytest.raises(UsageError, match=problem):
        open_results(path, HEADER)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"model": "mock:other"}, "model: 'mock:mock-model', not 'mock:other'"),
        ({"model_sha256": None}, f"modelSha256: '{'ab' * 32}', not nothing"),
        ({"prompt_version": "p:2"}, "promptVersion: 'p:1', not 'p:2'"),
        ({"settings": {"runs": 3, "seed": 0}}, "runs: '1', not '3'"),
        ({"settings": {"runs": 1, "seed": 0, "vary": "seed"}}, "vary: nothing, not 'seed'"),
        ({"shard": "1/2"}, "shard: nothing, not '1/2'"),
    ],
)
def test_other_settings_are_refused_by_name(path, change, difference):
    fill(path, result(1))
    before = path.read_bytes()

    with pytest.raises(UsageError) as caught:
        open_results(path, replace(HEADER, **change))

    assert difference in str(caught.value)
    assert path.read_bytes() == before


def test_threads_may_differ_and_more_where_that_is_said(path):
    fill(path, result(1))
    open_results(path, replace(HEADER, settings={"runs": 1, "seed": 0, "threads": 64})).close()

    assert header_differences(HEADER, replace(HEADER, shard="2/3"), free=("shard",)) == []


def test_fresh_keeps_every_old_file(path):
    fill(path, result(1))
    fill(path, result(2), fresh=True)
    fill(path, fresh=True)

    assert ids(path) == []
    assert [ids(path.with_name(f"results.jsonl.old-{k}")) for k in (1, 2)] == [["r1"], ["r2"]]


def test_fresh_replaces_a_file_of_other_settings(path):
    fill(path, result(1))
    open_results(path, replace(HEADER, prompt_version="p:2"), fresh=True).close()

    assert read_results(path)[0].prompt_version == "p:2"


def test_retrying_takes_out_what_was_errored_and_keeps_the_old_file(path):
    fill(path, result(1), result(2, error="no"), result(3, decision=half_errored()), result(4))
    before = path.read_bytes() + b'{"torn'
    path.write_bytes(before)

    with open_results(path, HEADER, retry_errors=True) as file:
        assert not file.has("r2")
        file.append(result(2))

    assert ids(path) == ["r1", "r4", "r2"]
    assert path.with_name("results.jsonl.old-1").read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["results.jsonl", "results.jsonl.old-1"]


def test_retrying_without_errors_changes_nothing(path):
    fill(path, result(1))
    fill(path, retry_errors=True)

    assert ids(path) == ["r1"]
    assert [entry.name for entry in path.parent.iterdir()] == ["results.jsonl"]


def test_a_disk_without_second_names_gets_a_copy(path, monkeypatch):
    fill(path, result(1, error="no"))
    before = path.read_bytes()

    def no_links(*_args):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    fill(path, retry_errors=True)

    assert path.with_name("results.jsonl.old-1").read_bytes() == before
    assert ids(path) == []


@settings(deadline=None, max_examples=30)  # A disk takes its time.
@given(st.permutations(range(1, 7)))
def test_sorting_puts_results_in_the_order_of_rows(tmp_path_factory, order):
    path = tmp_path_factory.mktemp("sorted") / "results.jsonl"
    fill(path, *(result(number) for number in order))

    with open_results(path, HEADER) as file:
        file.sort()
        file.append(result(7))
        file.sort()

    assert ids(path) == [f"r{number}" for number in range(1, 8)]
    assert read_results(path)[0] == HEADER


LOCKED = """
import sys
from batch.batches import HEADER
from judge_local.batch.results_file import open_results
from judge_local.errors import ResultsFileError
try:
    open_results(sys.argv[1], HEADER)
except ResultsFileError as error:
    print(error)
"""


def second_process(path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LOCKED, str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_second_process_is_refused_also_after_the_file_was_replaced(path):
    fill(path, result(2), result(1))

    with open_results(path, HEADER) as file:
        assert "another process is writing to it" in second_process(path)
        file.sort()
        assert "another process is writing to it" in second_process(path)
    assert second_process(path) == ""


def test_a_file_that_was_replaced_meanwhile_is_not_written_under_its_old_name(path, monkeypatch):
    """Opened before another process replaced it, locked after that one ended."""
    fill(path, result(1, error="no"))
    flock, calls = fcntl.flock, 0

    def late(descriptor, how):
        nonlocal calls
        calls += 1
        if calls == 1:
            fill(path, result(2), retry_errors=True)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    fill(path, result(3))

    assert ids(path) == ["r2", "r3"]
    assert ids(path.with_name("results.jsonl.old-1")) == ["r1"]


def test_what_a_killed_process_left_half_written_goes(path):
    fill(path, result(1))
    (path.parent / ".results.jsonl.4711.tmp").write_text("half", "utf-8")
    (path.parent / ".results.jsonl.old.tmp.txt").write_text("not ours", "utf-8")

    fill(path)

    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        ".results.jsonl.old.tmp.txt",
        "results.jsonl",
    ]


def test_a_full_disk_leaves_whole_lines(path, monkeypatch):
    size = 3000
    write = os.write

    def until_full(descriptor, data):
        left = size - os.fstat(descriptor).st_size
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, bytes(data)[:left])

    monkeypatch.setattr(os, "write", until_full)
    written = 0

    def fill_up(file):
        nonlocal written
        for written in range(100):  # How far it came is what counts.
            file.append(result(written + 1))

    with open_results(path, HEADER) as file:
        with pytest.raises(ResultsFileError, match="the disk is full") as caught:
            fill_up(file)
        assert caught.value.exit_code == 4

    assert 0 < written < 99
    assert path.read_bytes().endswith(b"\n")
    assert ids(path) == [f"r{number}" for number in range(1, written + 1)]


@pytest.mark.parametrize("name", [".", "nowhere/results.jsonl"])
def test_a_place_that_cannot_be_written_is_named(tmp_path, name):
    with pytest.raises(ResultsFileError, match="cannot be opened"):
        open_results(tmp_path / name, HEADER)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "results.jsonl")

    with pytest.raises(ResultsFileError, match="it is no regular file"):
        open_results(tmp_path / "results.jsonl", HEADER)


def test_a_link_stays_a_link(path, tmp_path):
    (tmp_path / "link.jsonl").symlink_to(path)
    fill(tmp_path / "link.jsonl", result(2), result(1))
    with open_results(tmp_path / "link.jsonl", HEADER) as file:
        file.sort()

    assert (tmp_path / "link.jsonl").is_symlink()
    assert ids(path) == ["r1", "r2"]


def test_reading_what_is_not_there_is_refused(path):
    with pytest.raises(UsageError, match="there is no file"):
        read_results(path)


def test_lines_are_ascii_so_that_no_character_ends_one(path):
    fill(path, result(1, claim="a\u2028b\ud800 ü"))

    assert path.read_bytes().isascii()
    assert json.loads(path.read_bytes().splitlines()[1])["claim"] == "a\u2028b\ud800 ü"
