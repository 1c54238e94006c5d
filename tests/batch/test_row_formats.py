"""Records out of files: every format says the same, plain and packed, and a fault is the fault of its own record."""

from __future__ import annotations

import gzip
import io
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest

from judge_local.batch.formats import Record, Source
from judge_local.errors import InputError, UsageError

ROWS = [
    {"id": "a", "claim": "It names a time.", "subject": 'At nine.\nOr ten, "perhaps".'},
    {"id": "b", "claim": "Es nennt den Weg.", "subject": "Über die Brücke, dann links."},
]


def write(path, kind, rows):
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    else:
        import csv

        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)


def fields(source):
    return [dict(record.fields) for record in source.records()]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_every_format_says_the_same(tmp_path, monkeypatch, kind, packed):
    path = tmp_path / f"rows.{kind}"
    write(path, kind, ROWS)
    if packed:
        data = path.read_bytes()
        path = tmp_path / f"rows.{kind}.gz"
        path.write_bytes(gzip.compress(data))

    assert fields(Source(str(path))) == ROWS
    # A file that nothing is read from but its bytes: no name, no position, no size.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert fields(Source("-", kind)) == ROWS


def test_the_line_is_where_the_record_begins(tmp_path):
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.csv"
    lines.write_bytes(b'\xef\xbb\xbf{"claim": 1}\n\n  \n{"claim": 2}')
    table.write_bytes(b'\xef\xbb\xbfclaim\r\n"one\ntwo"\r\n\r\nthree\r\n')

    assert [(r.line, r.fields) for r in Source(str(lines)).records()] == [
        (1, {"claim": 1}),
        (4, {"claim": 2}),
    ]
    assert [(r.line, r.fields) for r in Source(str(table)).records()] == [
        (2, {"claim": "one\ntwo"}),
        (5, {"claim": "three"}),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"claim": "caf\xe9"}', "it is not UTF-8: byte 0xe9 at offset 14"),
        (b"claim", "it is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"claim": "a", "claim": "b"}', "it is not JSON: the key 'claim' stands there twice"),
        (b'{"claim": NaN}', "it is not JSON: NaN is no number in JSON"),
        (b'["claim"]', "it is not a JSON object: '[\"claim\"]'"),
        (b"[" * 100_000, "it is not JSON: it is nested too deeply"),
        (b'{"claim": "x\x00"}', "it is not JSON: Invalid control character at: line 1 column 13 (char 12)"),
    ],
)
def test_a_line_that_is_no_record_is_its_own_fault(tmp_path, line, fault):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id": 1}\n' + line + b'\n{"id": 3}\n')

    assert list(Source(str(path)).records()) == [
        Record(1, {"id": 1}),
        Record(2, {}, fault),
        Record(3, {"id": 3}),
    ]


def test_a_row_of_a_table_that_cannot_be_read_is_its_own_fault(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'id,claim\n1,a\n2,b,c\n3,caf\xe9\n4,"x"y\n5,e\n6\n')

    assert [(record.line, record.fault) for record in Source(str(path)).records()] == [
        (2, None),
        (3, "it has 3 cells, and the header 2"),
        (4, "'claim' is not UTF-8"),
        (5, "it cannot be read as CSV: ',' expected after '\"'"),
        (6, None),
        (7, None),
    ]


def test_a_cell_of_parquet_that_is_no_text_is_its_own_fault(tmp_path):
    path = tmp_path / "rows.parquet"
    broken = pyarrow.Array.from_buffers(
        pyarrow.string(),
        3,
        [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0\3\0\0\0"), pyarrow.py_buffer(b"a\xe9c")],
    )
    pyarrow.parquet.write_table(pyarrow.table({"id": [1, 2, 3], "claim": broken}), path)

    assert [(record.fields, record.fault) for record in Source(str(path)).records()] == [
        ({"id": 1, "claim": "a"}, None),
        ({"id": 2}, "'claim' is not UTF-8"),
        ({"id": 3, "claim": "c"}, None),
    ]


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("rows.jsonl", None, "there is no file"),
        ("rows.jsonl", b"PAR1....", "is parquet, not JSONL"),
        ("rows.jsonl", '{"id": 1}'.encode("utf-16"), "is UTF-16, not JSONL"),
        ("rows.csv", b"a,b,a\n1,2,3\n", "its header names 'a' twice"),
        ("rows.csv", b"caf\xe9\n1\n", "its header is not UTF-8"),
        ("rows.parquet", b'{"id": 1}\n', "is not Parquet"),
        ("rows.jsonl.gz", gzip.compress(b'{"id": 1}\n' * 9000)[:-10], "its gzip data is damaged"),
    ],
)
def test_a_file_that_holds_no_records_at_all_is_refused(tmp_path, name, data, problem):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)

    with pytest.raises(InputError, match=problem):
        list(Source(str(path)).records())


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        Source(str(tmp_path), "jsonl").check()


@pytest.mark.parametrize("name", ["rows", "rows.txt", "rows.gz", "rows.xlsx"])
def test_a_name_that_says_no_format_is_refused(name):
    with pytest.raises(UsageError, match=r"--format jsonl\|csv"):
        Source(name)


def test_what_was_read_is_told_as_a_share(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n' * 20_000, "utf-8")
    source = Source(str(path))
    records = source.records()

    assert source.share_read() is None
    shares = [source.share_read() for _ in records]
    assert 0 < shares[0] < 0.5
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert source.share_read() is None  # The file is closed.
