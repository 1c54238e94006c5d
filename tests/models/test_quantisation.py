"""Weight types: what is slow, what would be lost, and about how large a file becomes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from judge_local.errors import UsageError
from judge_local.models.gguf import GgufHeader
from judge_local.models.quantisation import TARGETS, loss, size_as, slow_type, target, types_in

F32, F16, Q4_0, Q4_1, Q8_0, Q6_K = 0, 1, 2, 3, 8, 14


def header(matrices: Mapping[int, int], size: int = 0) -> GgufHeader:
    return GgufHeader(
        version=3, tensors=1, metadata={}, array_lengths={}, expected_bytes=size, matrices=matrices
    )


def test_types_come_by_how_much_is_in_them() -> None:
    assert types_in(header({Q6_K: 5, Q4_1: 100, 999: 1})) == ("Q4_1", "Q6_K", "type 999")


@pytest.mark.parametrize(
    ("matrices", "slow"),
    [({Q4_1: 60, Q8_0: 40}, "Q4_1"), ({Q4_1: 40, Q8_0: 60}, None), ({Q4_0: 100}, None), ({}, None)],
)
def test_slow_is_what_most_weights_are_in(matrices: Mapping[int, int], slow: str | None) -> None:
    assert slow_type(header(matrices)) == slow


@pytest.mark.parametrize(
    ("kind", "to", "loses"),
    [
        (Q4_1, "Q8_0", False),
        (Q8_0, "Q8_0", False),
        (Q6_K, "Q8_0", False),
        (F16, "Q8_0", True),
        (F32, "F16", True),
        (Q8_0, "F16", False),
        (Q8_0, "Q4_0", True),
        (Q4_0, "Q4_0", True),
        (Q4_1, "Q6_K", True),
    ],
)
def test_fewer_bits_lose_something(kind: int, to: str, loses: bool) -> None:
    assert (loss(header({kind: 100}), TARGETS[to]) is not None) == loses


def test_one_precise_matrix_is_enough_to_lose_something() -> None:
    assert "F16" in str(loss(header({Q4_1: 1000, F16: 1}), TARGETS["Q8_0"]))


def test_the_size_is_what_stays_and_the_weights_anew() -> None:
    """32 weights of Q4_1 are 20 bytes, of Q8_0 34."""
    assert size_as(header({Q4_1: 3200}, size=2000 + 500), TARGETS["Q8_0"]) == 3400 + 500


def test_a_type_is_found_in_any_case_or_refused() -> None:
    assert target("q8_0") is TARGETS["Q8_0"]
    with pytest.raises(UsageError, match="Q9_9"):
        target("Q9_9")
