"""The set of digests is a set: it agrees with Python's own, through every growth."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from judge_local.batch.digests import DigestSet


@given(st.lists(st.text(max_size=4)))
def test_it_agrees_with_a_set(texts: list[str]) -> None:
    ours, theirs = DigestSet(), set()
    for text in texts:
        assert ours.add(text) == (text not in theirs)
        theirs.add(text)
        assert text in ours

    assert len(ours) == len(theirs)
    assert "not among them" not in ours


def test_it_grows_and_keeps_what_it_had() -> None:
    ours = DigestSet()
    for number in range(5000):
        assert ours.add(f"row-{number}")

    assert len(ours) == 5000
    assert all(f"row-{number}" in ours for number in range(5000))
    assert not any(f"row-{number}" in ours for number in range(5000, 6000))
    assert not any(ours.add(f"row-{number}") for number in range(0, 5000, 7))


def test_halves_of_surrogate_pairs_are_texts_too() -> None:
    ours = DigestSet()

    assert ours.add("\ud800")
    assert "\ud800" in ours
    assert "\udc00" not in ours
