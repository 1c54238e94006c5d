"""Shards: each id in exactly one, the same one everywhere, and an environment that is read only when asked."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.batch.shards import Shard, parse_shard, read_shard
from judge_local.errors import UsageError

SLURM = {
    "SLURM_ARRAY_TASK_ID": "4",
    "SLURM_ARRAY_TASK_MIN": "3",
    "SLURM_ARRAY_TASK_MAX": "6",
    "SLURM_ARRAY_TASK_COUNT": "4",
}
GITLAB = {"CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "5"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "0"}


@given(row_id=st.text(), total=st.integers(1, 50))
def test_every_id_is_in_exactly_one_shard(row_id, total):
    shards = [Shard(index=index, total=total) for index in range(1, total + 1)]

    assert [shard.holds(row_id) for shard in shards].count(True) == 1


def test_the_hash_is_the_same_in_every_version():
    """Shards of one job may run on machines with different versions; these places were written down once."""
    ids = ["", "row-1", "line:7", "ä", "日本", "a" * 1000]

    places = [next(i for i in range(1, 8) if Shard(index=i, total=7).holds(row_id)) for row_id in ids]

    assert places == [2, 6, 4, 6, 3, 1]


def test_shards_are_about_the_same_size():
    """10,000 ids over ten shards: 1,000 each, and more than six standard deviations (180) off would be no hash."""
    shards = [Shard(index=index, total=10) for index in range(1, 11)]

    sizes = Counter(shard.index for row in range(10_000) for shard in shards if shard.holds(f"row-{row}"))

    assert all(abs(size - 1000) < 180 for size in sizes.values())


@pytest.mark.parametrize(
    ("text", "environment", "shard"),
    [
        ("1/1", {}, "1/1"),
        ("2/3", {}, "2/3"),
        ("2/3", SLURM | GITLAB, "2/3"),
        ("auto", SLURM, "2/4"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_ID": "3"}, "1/4"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_STEP": "1"}, "2/4"),
        (
            "auto",
            SLURM | {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MAX": "9", "SLURM_ARRAY_TASK_STEP": "2"},
            "3/4",
        ),
        ("auto", GITLAB, "2/5"),
        ("auto/5", GITLAB, "2/5"),
        ("auto/4", SLURM, "2/4"),
        ("auto/100", KUBERNETES, "1/100"),
        ("auto/100", {"JOB_COMPLETION_INDEX": "99"}, "100/100"),
    ],
)
def test_a_shard_is_read(text, environment, shard):
    assert str(read_shard(text, environment)) == shard
    assert str(parse_shard(shard)) == shard


@pytest.mark.parametrize(
    ("text", "environment", "said"),
    [
        ("0/3", {}, "0/3 is none of 3 shards. They count from 1 to 3."),
        ("4/3", {}, "4/3 is none of 3 shards"),
        ("1/0", {}, "0 shards are none"),
        ("3", SLURM, "'3' is no shard"),
        ("1/2/3", {}, "'1/2/3' is no shard"),
        ("-1/3", {}, "'-1/3' is no shard"),
        ("\u0661/\u0663", {}, "is no shard"),
        ("auto", {}, "auto finds none of SLURM_ARRAY_TASK_ID, CI_NODE_INDEX, JOB_COMPLETION_INDEX"),
        ("auto/3", {}, "auto/3 finds none of"),
        ("auto", KUBERNETES, "Give the job's completions as auto/n"),
        ("auto/3", KUBERNETES | {"JOB_COMPLETION_INDEX": "3"}, "4/3 is none of 3 shards"),
        ("auto", SLURM | GITLAB, "finds both SLURM_ARRAY_TASK_ID and CI_NODE_INDEX"),
        ("auto", {"CI_NODE_INDEX": "2"}, "finds no CI_NODE_TOTAL"),
        ("auto", GITLAB | {"CI_NODE_INDEX": "two"}, "CI_NODE_INDEX='two', which is no number"),
        ("auto", SLURM | {"SLURM_ARRAY_TASK_MAX": "9"}, "4 SLURM tasks from 3 to 9, a list with gaps"),
        ("auto", {"SLURM_ARRAY_TASK_ID": "4"}, "finds no SLURM_ARRAY_TASK_COUNT"),
        ("auto/6", GITLAB, "auto/6 finds the shard 2/5"),
    ],
)
def test_what_names_no_shard_is_refused(text, environment, said):
    with pytest.raises(UsageError) as refused:
        read_shard(text, environment)

    assert str(refused.value).startswith("--shard: ")
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["auto", "auto/3", "1", ""])
def test_a_file_names_its_shard_in_numbers(text):
    with pytest.raises(UsageError, match="is no i/n"):
        parse_shard(text)
