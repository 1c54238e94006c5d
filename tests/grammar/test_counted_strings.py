"""Patterns whose texts are counted: exactly where that is small, by bounded repetitions where it is not."""

import json

import pytest

from judge_local.grammar import compile_schema


def of(pattern, **more):
    return compile_schema({"type": "string", "pattern": pattern, **more})


def rows(grammar):
    return [
        (row.keyword, row.detail)
        for row in grammar.report.narrowed
        if row.keyword in ("pattern", "maxLength")
    ]


def lengths(grammar, *parts):
    """Which of the given counts of the last character are accepted after all the characters before it."""
    *before, last, counts = parts
    return [count for count in counts if grammar.accepts(f'"{"".join(before)}{last * count}"')]


def repetitions(count):
    return ("maxLength", f"at most {count} repetitions of one character")


@pytest.mark.parametrize(
    ("pattern", "high", "narrowed"),
    [
        # 2 states of at most 1249 characters are 2500; one character more is beyond.
        ("^a*b*$", 1249, []),
        ("^a*b*$", 1250, [repetitions(624)]),
        # 41 states of at most 60 characters are 2501.
        ("^a{40}b*$", 59, []),
        ("^a{40}b*$", 60, [repetitions(20)]),
        ("^a{100}b*$", 101, [repetitions(1)]),
        ("^(?:ab)*$", 1249, []),
        ("^(?:ab)*$", 1250, []),
        ("^(?:ab)*$", 1251, [("maxLength", "at most 1250 characters")]),
    ],
)
def test_up_to_2500_states_are_counted_and_the_report_tells_what_is_bounded_instead(pattern, high, narrowed):
    assert rows(of(pattern, maxLength=high)) == narrowed


def test_bounded_repetitions_reach_the_maximum():
    assert lengths(of("^a{40}b*$", maxLength=60), "a" * 40, "b", range(25)) == list(range(21))
    assert lengths(of("^a{100}b*$", maxLength=101), "a" * 100, "b", range(4)) == [0, 1]
    tried = (0, 1, 1959, 1960, 1961)
    assert lengths(of("^a{40}b*$", minLength=40, maxLength=2000), "a" * 40, "b", tried) == [0, 1, 1959, 1960]


@pytest.mark.parametrize("low", [0, 1])
def test_a_pattern_that_keeps_the_lengths_by_itself_is_not_counted(low):
    grammar = of("^[a-z]{1,300}$", minLength=low, maxLength=300)

    assert rows(grammar) == []
    assert lengths(grammar, "a", (0, 1, 2, 299, 300, 301)) == [1, 2, 299, 300]


@pytest.mark.parametrize(
    ("low", "high", "accepted"),
    [(0, 5, [1, 2, 3, 4, 5]), (3, 10, [3, 4, 5, 6, 7, 8, 9, 10]), (3, 5, [3, 4, 5]), (10, 99, [10])],
)
def test_a_pattern_that_is_too_short_or_too_long_is_cut(low, high, accepted):
    assert lengths(of("^[a-z]{1,10}$", minLength=low, maxLength=high), "a", range(12)) == accepted


@pytest.mark.parametrize("low", range(4))
def test_without_a_maximum_repetitions_are_bounded_by_the_cap(low):
    grammar = of("^a*$", minLength=low)
    cap = 2500 if low else 4096
    tried = (0, 1, 2, 3, 4, cap, cap + 1)

    assert lengths(grammar, "a", tried) == [count for count in tried if low <= count <= cap]
    assert rows(grammar) == [
        ("pattern", "at most 4096 repetitions of one character"),
        *([("maxLength", "at most 2500 characters")] if low else []),
    ]


def test_a_pattern_that_ends_by_itself_is_not_narrowed():
    assert rows(of("^a{1,3}$")) == []


@pytest.mark.parametrize(
    ("schema", "refused"),
    [
        ({"not": {"format": "uri"}, "minLength": 1, "maxLength": 2083}, ["a:", "a:b", "https://a.example"]),
        ({"format": "uri", "pattern": "^b", "maxLength": 2083}, ["a:", "c:b", "https://a.example", "b"]),
        ({"format": "uri", "not": {"const": "a:b"}, "maxLength": 2083}, ["a:b", "a"]),
    ],
    ids=str,
)
def test_a_short_form_of_a_format_stands_only_for_the_format_alone(schema, refused):
    grammar = compile_schema({"type": "string", **schema})

    assert [text for text in refused if grammar.accepts(json.dumps(text))] == []


def test_the_short_form_of_a_format_reaches_far():
    grammar = compile_schema({"type": "string", "format": "uri", "maxLength": 2083})

    assert [count for count in (1, 100, 200) if grammar.accepts(f'"https://a.example/{"b" * count}"')] == [
        1,
        100,
        200,
    ]
