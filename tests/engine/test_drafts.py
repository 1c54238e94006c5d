"""Drafts: what is guessed stands in the prompt, and places are taken only where they are cheap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.drafts import KEY, MOST, Lookup, room_for_guesses

TOKENS = st.lists(st.integers(0, 4), max_size=30)


@given(prompt=TOKENS, written=TOKENS, most=st.integers(-1, 12))
def test_a_guess_is_what_follows_the_longest_match(prompt: list[int], written: list[int], most: int) -> None:
    guess = Lookup(prompt).guess(written, most)

    def agreement(at: int) -> int:
        same = 0
        while same < min(at, len(written), 16) and prompt[at - 1 - same] == written[-1 - same]:
            same += 1
        return same

    best = max((agreement(at) for at in range(KEY, len(prompt))), default=0)
    if best < KEY or most < 1:
        assert guess == []
    else:
        last = max(at for at in range(KEY, len(prompt)) if agreement(at) == best)
        assert guess == prompt[last : last + min(most, MOST)]


@given(
    busy=st.integers(1, 40),
    seconds=st.dictionaries(st.sampled_from([1, 2, 4, 8, 16, 32]), st.floats(1e-3, 1.0)),
    hits=st.floats(0, 1),
)
def test_room_ends_at_a_measured_size(busy: int, seconds: dict[int, float], hits: float) -> None:
    room = room_for_guesses(busy, seconds, hits)

    assert room == 0 or busy + room in seconds
    assert room >= 0


def test_more_hits_are_worth_more_places() -> None:
    seconds = {1: 0.010, 4: 0.025, 8: 0.050, 16: 0.120}
    rooms = [room_for_guesses(1, seconds, hits / 10) for hits in range(11)]

    assert rooms == sorted(rooms)
    assert (rooms[0], rooms[5], rooms[10]) == (0, 3, 15)
