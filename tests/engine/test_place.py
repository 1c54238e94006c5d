"""The place of one property is found in any JSON text, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local.engine.place import Place, keys_of

KEYS = st.sampled_from(["m", "match", "a\\b", 'q"', "é", ""])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('m":,{}[]\\é', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@given(before=VALUES, value=VALUES, after=VALUES, cuts=st.lists(st.integers(0, 200), max_size=5))
@pytest.mark.parametrize("keys", [("match",), ("o", "match"), ("é", "match")])
def test_the_value_is_what_stands_after_its_key(
    keys: tuple[str, ...], before: Any, value: Any, after: Any, cuts: list[int]
) -> None:
    """However the text comes in pieces."""
    inner = f'{{"p":{compact(before)},{compact(keys[-1])}:'
    for key in reversed(keys[:-1]):
        inner = f'{{"x":{compact(before)},{compact(key)}:{inner}'
    rest = f'{compact(value)},"z":{compact(after)}}}' + "}" * (len(keys) - 1)
    head, data = inner.encode(), (inner + rest).encode()
    place = Place(keys)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    start = 0
    for end in ends:
        assert (place.value is None) == (start < len(head))
        if place.value is None:
            assert place.until_value(data[start:end]) == (len(head) - start if end >= len(head) else None)
        place.feed(data[start:end])
        start = end

    assert place.value == rest.encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"a":"\\"match\\":1"}',
        '{"a":{"match":1}}',
        '[{"match":1}]',
        '{"a":["match",1]}',
        '{"match\\n":1}',
        '{"a":"match"}',
    ],
)
def test_nothing_else_is_it(text: str) -> None:
    place = Place(("match",))
    place.feed(text.encode())

    assert place.value is None


def test_keys_of_a_pointer() -> None:
    assert keys_of("/a/b~1c/d~0e/~01") == ("a", "b/c", "d~e", "~1")
