"""A batch takes what there is room for and asks for logits only where a run has caught up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.batch import Batch
from judge_local.engine.protocol import BATCH_TOKENS


def test_two_sequences_in_one_batch() -> None:
    batch = Batch()

    assert batch.add([7, 8], 5, 2, ends_in_logits=True) == 2
    assert batch.add([9, 9, 9], 0, 1, most=2) == 2
    assert batch.tokens == [7, 8, 9, 9]
    assert batch.positions == [5, 6, 0, 1]
    assert batch.owners == [2, 2, 1, 1]
    assert batch.wanted == [False, True, False, False]


@given(st.lists(st.integers(0, 300), max_size=8))
def test_no_batch_is_larger_than_one_call_takes(sizes: list[int]) -> None:
    """What is taken is the beginning of what was offered, and a cut part asks for no logits."""
    batch = Batch()
    taken = [batch.add([1] * size, 0, 0, ends_in_logits=True) for size in sizes]

    assert len(batch) == sum(taken) == min(sum(sizes), BATCH_TOKENS)
    assert sum(batch.wanted) == sum(
        size > 0 and count == size for size, count in zip(sizes, taken, strict=True)
    )
