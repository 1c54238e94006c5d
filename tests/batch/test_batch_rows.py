"""Rows out of records: what is judged, what is refused row by row, and that no two rows share an id."""

from __future__ import annotations

import json
import os

import pytest

from judge_local.batch.formats import Source
from judge_local.batch.rows import BadRow, Row, Subjects, read_rows
from judge_local.errors import InputError, UsageError

WHOLE = {"id": "a", "claim": "It names a time.", "subject": "At nine."}


@pytest.fixture
def rows_of(tmp_path):
    """Read rows that are written as JSON Lines."""

    def read(*rows, names=None):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return list(read_rows(Source(str(path)), names))

    return read


def test_a_row_is_what_it_says_and_the_rest_is_kept(rows_of):
    (row,) = rows_of(WHOLE | {"reference": "9:00", "label": "pass", "meta": {"a": 1}, "group": "g", "n": [2]})

    assert row == Row(
        number=1,
        line=1,
        id="a",
        claim="It names a time.",
        subject="At nine.",
        reference="9:00",
        label="pass",
        meta={"group": "g", "n": [2], "a": 1},
    )


def test_columns_may_have_other_names(rows_of):
    names = {"claim": "assertion", "id": "key"}

    (row,) = rows_of({"key": 7, "assertion": "It is.", "subject": "x y", "id": "its own"}, names=names)

    assert (row.id, row.claim, row.meta) == ("7", "It is.", {"id": "its own"})


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"claim": None}, "it has no claim"),
        ({"claim": "  "}, "its claim is empty"),
        ({"claim": 3}, "its claim is '3', not a text"),
        ({"claim": "\ud800"}, "its claim holds half of a surrogate pair, which is not text"),
        ({"subject": None}, "it has neither a subject nor a subject_file"),
        ({"subject": " \n"}, "its subject is empty"),
        ({"subject": ["x"]}, "its subject is \"['x']\", not a text"),
        ({"subject_file": "a.txt"}, "it has both a subject and a subject_file"),
        ({"id": 1.5}, "its id is '1.5', not a text"),
        ({"id": True}, "its id is 'True', not a text"),
        ({"label": 1}, "its label is '1', not a text"),
        ({"reference": {}}, "its reference is '{}', not a text"),
        ({"meta": [1]}, "its meta is '[1]', not an object"),
    ],
)
def test_what_cannot_be_judged_is_a_bad_row_with_its_line(rows_of, change, fault):
    first, second = rows_of(WHOLE | change, WHOLE | {"id": "b"})

    assert isinstance(first, BadRow)
    assert first.error == f"line 1: {fault}"
    assert first.id == ("line:1" if "id" in change else "a")
    assert isinstance(second, Row)


def test_ids_are_never_shared(rows_of):
    """A missing one is named after its line; a repeated one is a fault, and so is one that looks like a line's name."""
    rows = rows_of(
        WHOLE,
        WHOLE | {"id": None},
        WHOLE,
        WHOLE | {"id": "line:2"},
        WHOLE | {"id": "line:5"},
        WHOLE | {"id": ""},
        {"id": "a"},
    )

    assert [(row.id, type(row)) for row in rows] == [
        ("a", Row),
        ("line:2", Row),
        ("line:3", BadRow),
        ("line:4", BadRow),
        ("line:5", Row),
        ("line:6", Row),
        ("line:7", BadRow),
    ]
    assert rows[2].error == "line 3: its id 'a' stands in a row before"
    assert rows[3].error == "line 4: its id 'line:2' has the form of those that rows without one get"


def test_the_number_counts_rows_and_the_line_says_where(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('claim,subject,label\n"one\ntwo",x y,\n\nthree,z w,pass\n', "utf-8")

    assert [(row.number, row.line, row.id, row.label) for row in read_rows(Source(str(path)))] == [
        (1, 2, "line:2", None),
        (2, 5, "line:5", "pass"),
    ]


@pytest.mark.parametrize(
    ("text", "names", "problem"),
    [
        ("claim,text\na,b\n", {}, "there is no column 'subject' or 'subject_file'"),
        ("assertion,subject\na,b\n", {}, "there is no column 'claim'"),
        ("claim,subject\na,b\n", {"label": "truth"}, "there is no column 'truth'"),
    ],
)
def test_a_table_without_a_needed_column_is_refused_whole(tmp_path, text, names, problem):
    path = tmp_path / "rows.csv"
    path.write_text(text, "utf-8")

    with pytest.raises(InputError, match=problem):
        list(read_rows(Source(str(path)), names))


def test_a_results_file_is_no_rows_file(rows_of):
    with pytest.raises(InputError, match="is a results file"):
        rows_of({"judgeLocalResults": 1, "model": "m"})


def test_a_name_for_no_field_is_refused(rows_of):
    with pytest.raises(UsageError, match="'verdict' is no field of a row"):
        rows_of(WHOLE, names={"verdict": "v"})


def row(file):
    return Row(number=3, line=4, id="a", claim="c", subject_file=file)


@pytest.fixture
def folder(tmp_path):
    """A folder with subjects, and one file beside it."""
    inside = tmp_path / "rows"
    (inside / "deep").mkdir(parents=True)
    (inside / "deep" / "good.txt").write_text("At nine.", "utf-8")
    (inside / "empty.txt").write_text(" \n", "utf-8")
    (inside / "binary.txt").write_bytes(b"a\x00b")
    (inside / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "outside.txt").write_text("Out.", "utf-8")
    (inside / "link.txt").symlink_to(tmp_path / "outside.txt")
    (inside / "loop.txt").symlink_to(inside / "loop.txt")
    os.mkfifo(inside / "pipe.txt")
    return inside


def test_a_subject_is_read_relative_to_the_rows(folder):
    read = Subjects(folder).with_text(row("deep/good.txt"))

    assert read == Row(number=3, line=4, id="a", claim="c", subject_file="deep/good.txt", subject="At nine.")


@pytest.mark.parametrize(
    ("file", "fault"),
    [
        ("nope.txt", "there is no file"),
        ("deep", "is a folder"),
        ("empty.txt", "holds only whitespace"),
        ("binary.txt", "NUL byte"),
        ("latin.txt", "is not UTF-8"),
        ("pipe.txt", "is no regular file"),
        ("loop.txt", "loop.txt"),
        ("a\x00b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("-", "there is no file"),
        ("../outside.txt", "lies outside the rows' folder"),
        ("link.txt", "lies outside the rows' folder"),
        ("/etc/hostname", "lies outside the rows' folder"),
    ],
)
def test_a_subject_that_cannot_be_read_is_a_bad_row(folder, file, fault):
    read = Subjects(folder).with_text(row(file))

    assert isinstance(read, BadRow)
    assert read.error.startswith("line 4: ")
    assert fault in read.error


@pytest.mark.parametrize("file", ["../outside.txt", "link.txt"])
def test_files_outside_are_read_when_that_is_allowed(folder, file):
    assert Subjects(folder, allow_outside=True).with_text(row(file)).subject == "Out."
