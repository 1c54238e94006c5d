"""Rows to measure with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judge_local.bench.rows import MADE_UP, Row, read_rows
from judge_local.errors import InputError


def test_made_up_rows_are_the_same_each_time_and_no_two_alike() -> None:
    rows = read_rows(None, MADE_UP)

    assert rows == read_rows(None, MADE_UP + 10)
    assert len({row.subject for row in rows}) == len(rows) == MADE_UP
    assert all(100 < len(row.subject.split()) < 300 for row in rows)


def test_a_file_gives_its_first_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"id": n, "subject": f"s{n}", "claim": f"c{n}"}) for n in range(5)]
    path.write_text("\n\n".join(lines), "utf-8")

    assert read_rows(str(path), 2) == [Row("s0", "c0"), Row("s1", "c1")]
    assert len(read_rows(str(path), 99)) == 5


def test_a_file_may_be_any_that_batch_reads(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("It is warm.", "utf-8")
    path = tmp_path / "rows.csv"
    path.write_text(
        "claim,subject,subject_file,reference\nWarm.,,page.md,Warm\nCold.,It is cold.,,\n", "utf-8"
    )

    assert read_rows(str(path), 9) == [Row("It is warm.", "Warm.", "Warm"), Row("It is cold.", "Cold.")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "moo",
        "[]",
        '{"subject": "x"}',
        '{"subject": "x", "claim": " "}',
        '{"subject": 1, "claim": "x"}',
    ],
)
def test_what_is_no_row_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text, "utf-8")

    with pytest.raises(InputError, match=r"rows\.jsonl"):
        read_rows(str(path), 3)


def test_a_copy_begins_unlike_the_row() -> None:
    """What an engine has kept of one is of no use for the other."""
    row = Row("The sky is blue.", "It is.")
    one, two = row.copy("1"), row.copy("2")

    assert len({row.subject[:7], one.subject[:7], two.subject[:7]}) == 3
    assert one.claim == row.claim
