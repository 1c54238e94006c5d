"""Patterns as automata: the same verdict as `re` where engines agree, and nothing where they do not."""

import re
from random import Random

import pytest

from judge_local.grammar import automata
from judge_local.grammar.determinise import of_pattern
from judge_local.grammar.languages import pattern
from judge_local.grammar.regex import PatternError, read_pattern

ALIKE = [
    *("", "^$", "a|b", "^a+$", "^(ab)*$", "f.*o", "a{2,4}?b", "^.{2}$", "(a|ab)(c|bcd)(d*)$", "^(a?){3}$"),
    *(
        r"^\w{1,5}$",
        r"\bfoo\b",
        r"\Bx",
        r"^[^\s]+$",
        "a$|^b",
        "(^[^5]*$)|7",
        r"^([a-z]{2,3}|x$)",
        "a{,",
        "x{a}",
    ),
    *(
        r"^(?:[A-Za-z0-9]+[-]?)+[A-Za-z0-9]$",
        r"[a\-z]",
        r"[]a]x"[1:],
        r"^\d+(\.\d+)?$",
        "(?:a|b)+?c",
        r"\.\*\+",
    ),
]
LETTERS = "abcdfox57- .\n_"


@pytest.mark.parametrize("source", ALIKE)
def test_texts_are_found_as_re_finds_them(source):
    random, compiled = Random(source), re.compile(source, re.ASCII)
    lower, upper = pattern(source), pattern(source, "upper")
    for _ in range(1500):
        text = "".join(random.choice(LETTERS) for _ in range(random.randint(0, 7)))
        found = compiled.search(text) is not None
        # `$` is also taken to stand before a last line end; the narrow reading never takes it so.
        narrow = found and not ("$" in source and text.endswith("\n"))

        assert lower.matches(text) <= found
        assert narrow <= lower.matches(text) or text.endswith("\n"), text
        assert found <= upper.matches(text)


@pytest.mark.parametrize(
    ("source", "inside", "outside", "disputed"),
    [
        (r"^\d$", "07", "ax ", "٣"),
        (r"^\D$", "a é", "07", "٣"),
        (r"^\w$", "aZ_9", "- !", "é"),
        (r"^\W$", "- !", "aZ_", "é"),
        (r"^\s$", " \t\u00a0\u2003", "a0", "\x1c\ufeff"),
        (r"^\S$", "a0é", " \t", "\x1c\ufeff"),
        (r"^[^\d]$", "a é", "07", "٣"),
        (r"^.$", "a\x00é😀", "", "\r\u2028"),
        (r"^[\w-]$", "a-", "+", "é"),
        (r"^\u00e9\x41\u{1F600}\ud83d\ude00$", [], ["A"], []),
        (r"^\cJ$", "\n", "J", ""),
        (r"^\p{Lu}$", "AÉ", "aé1", ""),
        (r"^\P{L}$", "1-", "aé", ""),
        (r"^[\t\n\v\f\r\0\b]$", "\t\n\v\f\r\x00\b", "tnb", ""),
        (r"^\/\-\]\}$", [], ["/"], []),
        ("^(?<year>\\d{4})$", ["2024"], ["24"], []),
    ],
)
def test_classes_have_two_readings(source, inside, outside, disputed):
    """What is admitted is what everyone takes; what is excluded is what anyone takes."""
    lower, upper = pattern(source), pattern(source, "upper")
    for text in inside:
        assert lower.matches(text)
        assert upper.matches(text)
    for text in outside:
        assert not lower.matches(text)
        assert not upper.matches(text)
    for text in disputed:
        assert not lower.matches(text)
        assert upper.matches(text)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("(?=a)", "looking ahead"),
        ("(?<!a)b", "looking ahead or behind"),
        (r"(a)\1", "reference to a group"),
        (r"\k<a>", "reference to a group"),
        ("[]", "different ways"),
        ("[^]", "different ways"),
        ("a{,3}", "{,n}"),
        (r"\Z", "different ways"),
        ("(?i)a", "no kind"),
        ("(?P<a>b)", "no kind"),
        ("a++", "repeats a repetition"),
        ("*a", "repeats nothing"),
        ("(a", "not closed"),
        ("[a", "not closed"),
        ("a)", "closes nothing"),
        ("[b-a]", "ends before it begins"),
        ("a{3,2}", "ends before it begins"),
        ("a{20001}", "above"),
        ("^*", "is repeated"),
        ("a\\", "ends in a backslash"),
        (r"\ud800", "surrogate"),
        (r"\p{Nonsense}", "no general category"),
        ("(" * 101 + ")" * 101, "nested deeper"),
        ("a.{20}$", "states"),
        ("^((a{0,100}){0,100}){0,100}$", "too large"),
    ],
)
def test_what_cannot_be_followed_is_refused(source, says):
    with pytest.raises(PatternError, match=re.escape(says)):
        of_pattern(read_pattern(source))


def test_operations_on_automata():
    """Intersection, union, complement and lengths are those of sets of texts."""
    random = Random(4)
    first, second = pattern("^[ab]*$"), pattern("b.*a")
    cases = {
        automata.meet(first, second): lambda one, two, _: one and two,
        automata.union(first, second): lambda one, two, _: one or two,
        automata.complement(first): lambda one, _two, _: not one,
        automata.bounded(second, 2, 4): lambda _one, two, size: two and 2 <= size <= 4,
        automata.other_than(["ab", "", "aba"]): None,
    }
    for _ in range(2000):
        text = "".join(random.choice('abc\n"é') for _ in range(random.randint(0, 6)))
        for automaton, meant in cases.items():
            if meant is None:
                expected = text not in ("ab", "", "aba")
            else:
                expected = meant(first.matches(text), second.matches(text), len(text))

            assert expected == automaton.matches(text), text


def test_the_texts_of_a_finite_automaton():
    assert automata.of_words(["b", "", "ab"]).texts(5) == ["", "ab", "b"]
    assert pattern("^[a-c]{2}$").texts(9) is not None
    assert pattern("^[a-c]{2}$").texts(8) is None
    assert pattern("^a*$").texts(100) is None
    assert automata.NONE.empty
    assert automata.ALL.everything
    assert (pattern("^ab?c*$").longest(), pattern("^ab?c$").longest(), pattern("^ab?c$").shortest()) == (
        None,
        3,
        2,
    )
    assert pattern("^x[ab]*y[c]*$").loops() == (2, 2)
    assert pattern("^(ab)*$").loops() is None
