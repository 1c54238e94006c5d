"""Facets of numbers under small caps, each held to every numeral of at most so many digits."""

from decimal import Decimal
from itertools import product
from string import digits

import pytest

from judge_local.grammar.emit import Rules
from judge_local.grammar.finish import finish, productive
from judge_local.grammar.numbers import INTEGER_DIGITS, Bound, NumberFacet, number
from judge_local.grammar.numerals import listed, numerals
from judge_local.grammar.recogniser import Matcher
from judge_local.grammar.settings import Settings

CAPS = [(1, 2), (2, 1)]
VALUES = [Decimal(text) for text in ("-9.5", "-1", "-0.25", "0", "0.05", "1", "1.5", "9.99", "10")]
BOUNDS = [None, *(Bound(value, exclusive) for value in VALUES for exclusive in (False, True))]
PAIRS = list(product(BOUNDS, BOUNDS))


def spelled(whole, decimals):
    """Every numeral of one spelling with at most so many digits before and after the point."""
    fractions = [""] + [
        "." + "".join(each) for size in range(1, decimals + 1) for each in product(digits, repeat=size)
    ]
    wholes = [str(value) for value in range(10**whole)]
    found = [sign + one + rest for sign in ("", "-") for one in wholes for rest in fractions]
    return [text for text in found if not (text.startswith("-") and Decimal(text) == 0)]


SPELLED = {caps: [(text, Decimal(text)) for text in spelled(*caps)] for caps in CAPS}


def inside(value, low, high):
    """Whether a value keeps two bounds, worked out without the facet."""
    if low is not None and (value <= low.value if low.exclusive else value < low.value):
        return False
    return high is None or (value < high.value if high.exclusive else value <= high.value)


def language(facet):
    """All numerals that the rules of a facet admit, by trying one character after another."""
    rules = Rules()
    root = rules.define([number(rules, facet)])
    (only,) = root if isinstance(root, tuple) else (root,)
    finished = finish(rules, only, productive(rules))
    found, pending = set(), [("", Matcher.from_gbnf(finished.gbnf))]
    while pending:
        text, matcher = pending.pop()
        if matcher.complete:
            found.add(text)
        for character in "-." + digits:
            after = matcher.advance(character.encode())
            if after is not None:
                pending.append((text + character, after))
    return found


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize("integer", [False, True])
def test_the_rules_admit_exactly_the_numerals_between_the_bounds(caps, integer):
    for low, high in PAIRS[::3]:
        facet = NumberFacet(
            low=low, high=high, integer=integer, digits=caps[0], decimals=0 if integer else caps[1]
        )
        wanted = {
            text
            for text, value in SPELLED[caps]
            if inside(value, low, high) and not (integer and "." in text)
        }

        assert facet.satisfiable() == bool(wanted), facet
        assert not wanted or language(facet) == wanted, facet


@pytest.mark.parametrize("caps", CAPS)
@pytest.mark.parametrize(
    "more",
    [
        {"multiples": frozenset([Decimal(3)])},
        {"multiples": frozenset([Decimal(2), Decimal("1.5")])},
        {"multiples": frozenset([Decimal("0.25")])},
        {"others": frozenset([Decimal(2)])},
        {"multiples": frozenset([Decimal("0.5")]), "others": frozenset([Decimal(1)])},
        {"excluded": frozenset([Decimal(1), Decimal("-0.25"), Decimal("9.5")])},
        {"excluded": frozenset([Decimal(0), Decimal(10)])},
        {"fraction": True},
        {"integer": True, "excluded": frozenset([Decimal(1), Decimal(-9)])},
        {"integer": True, "multiples": frozenset([Decimal(7)])},
        {"multiples": frozenset([Decimal("0.1")])},
        {"multiples": frozenset([Decimal("0.1")]), "excluded": frozenset([Decimal("0.5")])},
        {"multiples": frozenset([Decimal("0.1"), Decimal(3)])},
        {"integer": True, "multiples": frozenset([Decimal("0.1")])},
    ],
    ids=str,
)
def test_the_automaton_admits_exactly_the_numerals_that_are_asked_for(caps, more):
    listed = any(Decimal(float(each)) != each for each in more.get("multiples", ()))
    for low, high in PAIRS[::11]:
        decimals = 0 if more.get("integer") else caps[1]
        facet = NumberFacet(low=low, high=high, digits=caps[0], decimals=decimals, **more)
        wanted = {
            text
            for text, value in SPELLED[caps]
            if inside(value, low, high)
            and value not in facet.excluded
            and not (facet.integer and "." in text)
            and not (facet.fraction and value == value.to_integral_value())
            and not any(value % each for each in facet.multiples)
            and all(value % each for each in facet.others)
            and (not listed or all((float(value) / float(each)).is_integer() for each in facet.multiples))
        }
        found = set(numerals(facet).texts(5000))
        if listed:
            # A listed value has one spelling, and as many digits before the point as it needs.
            assert {Decimal(text) for text in found if len(text.lstrip("-").split(".")[0]) <= caps[0]} == {
                Decimal(text) for text in wanted
            }, facet
        else:
            assert found == wanted, facet


@pytest.mark.parametrize(
    "more", [{}, {"integer": True}, {"fraction": True}, {"excluded": frozenset([Decimal(1)])}]
)
def test_what_a_facet_holds(more):
    values = [*VALUES, Decimal(2), Decimal("0.5"), Decimal(-1) / 8]
    for (low, high), value in product(PAIRS, values):
        facet = NumberFacet(low=low, high=high, **more)
        whole = value == int(value)
        wanted = inside(value, low, high) and not (facet.integer and not whole)
        wanted = wanted and not (facet.fraction and whole) and value not in facet.excluded

        assert facet.holds(value) == wanted, (facet, value)


def test_what_is_hopeless():
    fine = [*VALUES, Decimal("9.995"), *(Decimal(step) / 40 for step in range(-440, 441))]
    for (low, high), integer in product(PAIRS, (False, True)):
        some = any(inside(value, low, high) for value in fine if not integer or value == int(value))

        assert NumberFacet(low=low, high=high, integer=integer).hopeless() != some, (low, high, integer)
    assert NumberFacet(integer=True, fraction=True).hopeless()


def test_of_two_bounds_the_narrower_one_counts_in_either_order():
    for one, other in product([bound for bound in BOUNDS if bound is not None], repeat=2):
        low, high = NumberFacet(low=one).above(other), NumberFacet(high=one).below(other)
        met = (
            NumberFacet(low=one).met(NumberFacet(low=other)),
            NumberFacet(high=one).met(NumberFacet(high=other)),
        )
        for value in VALUES:
            above = inside(value, one, None) and inside(value, other, None)
            below = inside(value, None, one) and inside(value, None, other)

            assert (low.holds(value), high.holds(value)) == (above, below), (one, other, value)
            assert (met[0].holds(value), met[1].holds(value)) == (above, below), (one, other, value)


@pytest.mark.parametrize(
    ("low", "high", "fitted"),
    [
        (None, None, (15, 6)),
        (Bound(Decimal(0)), Bound(Decimal(1)), (1, 6)),
        (Bound(Decimal(9)), Bound(Decimal(10)), (2, 6)),
        (Bound(Decimal(5)), None, (15, 6)),
        (None, Bound(Decimal(10) ** 29), (30, 6)),
        (None, Bound(Decimal(10) ** 30), (15, 6)),
        (Bound(Decimal(10) ** 40), None, (42, 6)),
        (Bound(Decimal(10) ** 15, exclusive=True), None, (16, 0)),
        (Bound(Decimal(10) ** 13, exclusive=True), None, (15, 1)),
        (Bound(Decimal("0.0000001")), Bound(Decimal("0.0000002")), (2, 7)),
        (Bound(Decimal("0.0000001"), exclusive=True), Bound(Decimal("0.0000002"), exclusive=True), (2, 8)),
        (
            Bound(Decimal(999_999_999_999_999), exclusive=True),
            Bound(Decimal(10) ** 15, exclusive=True),
            (16, 0),
        ),
    ],
)
def test_caps_that_leave_room_for_the_bounds(low, high, fitted):
    """Digits before and after the point; a bound beyond 30 digits widens them only as far as it must."""
    found = NumberFacet(low=low, high=high).fitted()

    assert (found.digits, found.decimals) == fitted


def test_where_floats_cannot_keep_apart_what_lies_between_the_bounds_nothing_is_written():
    low, high = Bound(Decimal(999_999_999_999_999), exclusive=True), Bound(Decimal(10) ** 15, exclusive=True)

    assert not NumberFacet(low=low, high=high).fitted().satisfiable()


def test_the_caps_of_a_facet_are_those_of_the_settings():
    assert (NumberFacet().digits, NumberFacet().decimals) == (INTEGER_DIGITS, Settings().decimals)
    assert NumberFacet().plain
    assert not any(
        NumberFacet(**more).plain
        for more in (
            {"fraction": True},
            {"multiples": frozenset([Decimal(2)])},
            {"others": frozenset([Decimal(2)])},
            {"excluded": frozenset([Decimal(2)])},
        )
    )


TENTHS = [(times, Decimal(times) / 10) for times in range(-5000, 5001)]
ENDS = [None, *map(Decimal, ("-250", "-99.95", "-5", "0", "0.05", "0.25", "5", "99.9", "100", "250"))]


@pytest.mark.parametrize("low", ENDS)
def test_of_what_floats_do_not_hold_exactly_zero_and_the_2000_nearest_multiples_are_listed(low):
    for high in ENDS:
        kept = [
            (abs(times), value)
            for times, value in TENTHS
            if (low is None or value >= low) and (high is None or value <= high)
        ]
        nearest = sorted(value for _, value in sorted(kept)[:2001])
        facet = NumberFacet(
            low=None if low is None else Bound(low), high=None if high is None else Bound(high)
        )
        facet = facet.met(NumberFacet(multiples=frozenset([Decimal("0.1")])))

        assert listed(facet) == [value for value in nearest if (float(value) / 0.1).is_integer()], high


@pytest.mark.parametrize(
    ("low", "high", "body"),
    [
        (1, 8, "[1-8]"),
        (10, 79, '"1" [0-9] | [2-6] [0-9] | "7" [0-9]'),
        (2_345, 6_789, '"2" r1-1 | [3-5] [0-9]{3} | "6" r1-3'),
    ],
)
def test_neighbouring_digits_that_go_on_alike_are_one_class(low, high, body):
    rules = Rules()
    facet = NumberFacet(low=Bound(Decimal(low)), high=Bound(Decimal(high)), integer=True).fitted()
    root = rules.define([number(rules, facet)])

    assert finish(rules, root[0], productive(rules)).gbnf.splitlines()[:2] == [
        "root ::= r1",
        f"r1 ::= {body}",
    ]
