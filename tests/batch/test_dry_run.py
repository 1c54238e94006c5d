"""A dry run on random weights: tokens are counted on real prompts, and what does not fit is named."""

from __future__ import annotations

import pytest

from batch.batches import row
from judge_local.batch.digests import DigestSet
from judge_local.batch.dry_run import dry_run
from judge_local.batch.judging import Judging
from judge_local.batch.rows import BadRow, Subjects
from judge_local.engine.counting import TokenCounter
from judge_local.errors import ModelFileError
from judge_local.prompt import build_prompt
from judge_local.providers.local import LocalProvider
from judge_local.verdict import VERDICT_SCHEMA

JUDGING = Judging(runs=2, schema=VERDICT_SCHEMA, machine={})


async def report_of(tmp_path, tiny_model, rows, **options):
    kept = DigestSet()
    kept.add("r1")
    with LocalProvider(tiny_model, **options) as provider:
        report = await dry_run(
            rows, JUDGING, provider, subjects=Subjects(tmp_path), kept=kept, judge_row=None
        )
        assert provider.worker_pid is None  # No weights are loaded.
    return report


async def test_tokens_are_counted_and_what_does_not_fit_is_named(tmp_path, tiny_model):
    rows = [
        row(1),
        row(2),
        row(3, subject="At nine, or so they say. " * 2000),
        row(4, subject=None, subject_file="nowhere.txt"),
        BadRow(number=5, line=5, id="r5", error="line 5: no claim"),
        row(6),
    ]

    report = await report_of(tmp_path, tiny_model, rows, n_ctx=4096)

    assert (report.rows, report.found, report.bad, report.to_judge) == (6, 1, 2, 3)
    assert (report.subjects, report.counted) == (2, 3)
    assert (report.too_long, report.too_long_lines, report.longest_line) == (1, [3], 3)
    assert report.context_tokens == 4096
    assert report.longest_tokens > 4096
    assert report.faults[0] == "line 5: no claim"  # Bad rows go ahead.
    assert report.faults[1].startswith("line 4: subject: there is no file")
    assert report.seconds is None
    assert report.to_json()["tooLong"] == 1


def test_a_longer_text_has_more_tokens(tiny_model):
    short, long = (
        build_prompt(text, "It names a time.") for text in ("At nine.", "At nine, or so they say.")
    )

    with TokenCounter(tiny_model) as counter:
        one, other = counter.count(short.system, short.user), counter.count(long.system, long.user)
        assert 0 < one < other
        assert counter.count(short.system, short.user) == one


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "no.gguf"
    path.write_bytes(b"GGUF and nothing else")

    with pytest.raises(ModelFileError):
        TokenCounter(path)
