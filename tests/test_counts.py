"""Counts: every kind of row, and label columns that hold no labels."""

import pytest

from judge_local.counts import MOST_LABELS, OTHER_LABELS, Counts
from made_results import KINDS, decided, result, run


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_of_one_kind(kind):
    counts = Counts.of([result(1, kind)])
    found = {
        "auto-pass": counts.passes,
        "auto-fail": counts.fails,
        "human-review": counts.reviews,
        "error": counts.errors,
    }

    assert found == {name: int(name == kind) for name in KINDS}
    assert counts.results == 1


def test_a_row_whose_runs_all_errored_was_not_judged():
    """Whoever wrote the file may not have said so on the row."""
    counts = Counts.of([result(1, "auto-pass", decision=decided(run("error"), run("error")))])

    assert (counts.errors, counts.reviews) == (1, 0)


def test_one_errored_run_is_a_review():
    counts = Counts.of([result(1, "auto-pass", decision=decided(run("pass"), run("error")))])

    assert (counts.errors, counts.reviews) == (0, 1)


def test_labels():
    rows = [result(1, "auto-pass", label="pass"), result(2, "error", label="pass"), result(3, "auto-fail")]

    assert Counts.of(rows).to_json() == {
        "results": 3,
        "errors": 1,
        "zones": {"auto-pass": 1, "auto-fail": 1, "human-review": 1},
        "labels": {
            "pass": {
                "verdicts": {"pass": 1, "fail": 0, "error": 1},
                "zones": {"auto-pass": 1, "auto-fail": 0, "human-review": 1},
            }
        },
    }


def test_a_column_of_other_things_takes_no_memory():
    counts = Counts.of(result(row, "auto-pass", label=f"label {row}") for row in range(1, 201))

    assert len(counts.labels) == MOST_LABELS + 1
    assert counts.labels[OTHER_LABELS].zones.total() == 200 - MOST_LABELS


def test_time_leaves_out_the_cache():
    from dataclasses import replace

    cached = decided(run("pass"), replace(run("pass"), cached=True))

    assert Counts.of([result(1, "auto-pass", decision=cached)]).milliseconds == 250
