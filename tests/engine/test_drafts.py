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


@given(prompt=TOKENS, answers=st.lists(TOKENS, max_size=3), most=st.integers(1, 12))
def test_answers_that_grow_are_looked_into_as_if_they_had_been_there(
    prompt: list[int], answers: list[list[int]], most: int
) -> None:
    grown: list[list[int]] = [[] for _ in answers]
    lookup = Lookup(prompt)
    for answer in grown:
        lookup.watch(answer)
    # In turns, a token each, with a guess after every one of them.
    for place in range(max(map(len, answers), default=0)):
        for number, answer in enumerate(answers):
            grown[number] += answer[place : place + 1]
            guess = lookup.guess(grown[number], most)
            at_once = Lookup(prompt)
            for each in grown:
                at_once.watch(list(each))

            assert guess == at_once.guess(list(grown[number]), most)


def test_the_other_runs_and_its_own_text_are_looked_into() -> None:
    lookup = Lookup([1, 2, 3, 4])
    first, second = [7, 8, 9, 5, 6], [7, 8, 9]
    lookup.watch(first)
    lookup.watch(second)

    assert lookup.guess(second, 8) == [5, 6]
    second += [0, 0, 7, 8, 9]
    assert lookup.guess(second, 8) == [0, 0, 7, 8, 9]


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
