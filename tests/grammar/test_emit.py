"""Rules and their text: counts are exact, sizes are true, and what is written reads back."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grammar.derivations import derive
from grammar.written import written
from judge_local.grammar import Matcher
from judge_local.grammar.emit import BLOCK, Chars, Literal, Ref, Repeat, Rules, chars, join, text
from judge_local.grammar.gbnf import read_gbnf
from judge_local.grammar.items import Points, Word


def written_text(body):
    return written(Rules(), body)[0]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_a_literal_reads_back(value):
    assert Word(value) == read_gbnf(written_text(text(value)))["root"]


@pytest.mark.parametrize(
    "member",
    [
        "]",
        "[",
        "^",
        "-",
        "\\",
        '"',
        "\x00",
        "\n",
        "\x7f",
        "\u2028",
        "\ufeff",
        "é",
        "😀",
        "\U000e0001",
        "\U0010ffff",
    ],
)
def test_a_class_of_one_reads_back(member):
    assert Points(((ord(member), ord(member)),)) == read_gbnf(written_text((chars(member),)))["root"]


def test_a_class_reads_back():
    ranges = ((0x2D, 0x2D), (0x5B, 0x5E), (0x80, 0xD7FF), (0xE000, 0x10FFFF))

    assert Points(ranges) == read_gbnf(written_text((Chars(ranges),)))["root"]


def test_only_escapes_that_the_engine_knows_are_written():
    found = written_text(text("".join(map(chr, range(0x100))) + "\u2028\ud7ff\ue000\U0010ffff"))
    escapes = {found[at + 1] for at in range(len(found)) if found[at] == "\\" and found[at - 1] != "\\"}

    assert escapes <= set('xuUtrn\\"[]-')
    assert found.rstrip("\n").isprintable()


def test_neighbouring_literals_become_one():
    assert (Literal("abc"), Ref("r1"), Literal("d")) == join(
        text("a"), text("bc"), (Ref("r1"),), text(""), text("d")
    )


def test_equal_rules_are_one_rule():
    rules = Rules()
    ways = [text("a"), text("b")]

    assert rules.define(ways, "here") == rules.define([*ways, text("a")], "there")


def test_a_rule_that_admits_nothing_cannot_be_written():
    with pytest.raises(AssertionError):
        Rules().define([])


def test_comments_hold_no_line_end():
    rules = Rules()
    body = rules.define([text("a"), text("b")], "/properties/a\nroot ::= \x00\u2028" + "x" * 500)
    lines = written(rules, join(body, text("!"), body))[0].splitlines()

    assert len(lines) == 3
    assert max(map(len, lines)) < 130


@pytest.mark.parametrize("item", [text("ab"), (*text("é"), Chars(((48, 57),)))])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (0, 1), (2, 3), (99, 101), (100, 100), (150, 350), (0, 10_100)]
)
def test_counts_and_sizes(item, low, high):
    rules = Rules()
    body = join(text("<"), rules.times(item, low, high), text(">"))
    gbnf, extent = written(rules, body)
    unit = "ab" if len(item) == 1 else "é5"
    start = Matcher.from_gbnf(gbnf)
    for count in {0, low - 1, low, (low + high) // 2, high, high + 1} - {-1}:
        after = start.advance(f"<{unit * count}>".encode())

        assert (low <= count <= high) == (after is not None and after.complete), count

    assert 2 + low * len(unit.encode()) == extent.min_bytes
    assert (2 + high * len(unit.encode()), 2 + high * 2) == (extent.max_bytes, extent.max_chars)


def test_repetitions_are_small_and_never_of_a_group():
    rules = Rules()
    gbnf, _ = written(rules, rules.times((*text("a"), chars("b")), 12_345, 54_321))

    assert ")" not in gbnf
    for line in gbnf.splitlines():
        for count in line.split("{")[1:]:
            assert int(count.split("}")[0].split(",")[-1]) <= BLOCK


def test_sizes_are_those_of_the_texts():
    rules = Rules()
    body = rules.define([text("é"), text("abc"), join((Repeat(chars("a-z", "é-\u0800"), 1, 2),), text("!"))])
    gbnf, extent = written(rules, body)
    sizes = {len(derive(gbnf, Random(seed)).encode()) for seed in range(300)}

    assert (extent.min_bytes, extent.max_bytes, extent.max_chars) == (2, 7, 3)
    assert {extent.min_bytes, extent.max_bytes} <= sizes
