"""Numbers as numerals of one spelling: ranges digit by digit, and automata for multiples and for values left out.

* What a reader of floats would take for a number that the schema forbids is not written: multiples of a number that
  floats do not hold exactly are listed one by one, and each is tried.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Final, NamedTuple

from judge_local.grammar import automata
from judge_local.grammar.automata import Automaton
from judge_local.grammar.numbers import FLOAT_DIGITS, NumberFacet
from judge_local.grammar.parse import number_text
from judge_local.grammar.regex import PatternError

MAX_MODULUS: Final = 2000
MAX_LISTED: Final = 2000
"""Multiples that are listed one by one, beside zero."""
_MAX_NUMERAL_STATES: Final = 8000
_PRECISION: Final = 1400
_POINT: Final = ord(".")


class _Place(NamedTuple):
    """Where a numeral is read: `phase` is start, minus, zero, whole, point or fraction.

    `digits` were read before the point; after it, so many more may follow.
    """

    phase: str
    digits: int
    negative: bool
    nonzero: bool


class _Compare(NamedTuple):
    """How what was read compares with a bound's digits: -1, 0, 1 among numerals of as many digits."""

    digits: int
    order: int
    places: int


def numerals(facet: NumberFacet) -> Automaton:
    """The numerals of `facet`, within its caps on digits.

    Raises:
        PatternError: a divisor is too large.
    """
    with localcontext() as context:
        # Bounds may have hundreds of digits, and none of them may be rounded away.
        context.prec = _PRECISION
        return _numerals(_with_whole_left_out(facet))


def _numerals(facet: NumberFacet) -> Automaton:
    if any(not exact(each) for each in facet.multiples | facet.others):
        return automata.of_words(number_text(value) for value in listed(facet))
    moduli = [(_scaled(each), True) for each in sorted(facet.multiples)]
    moduli += [(_scaled(each), False) for each in sorted(facet.others)]
    for (modulus, _), _ in moduli:
        if modulus > MAX_MODULUS:
            raise PatternError(f"a divisor has more than {MAX_MODULUS} remainders")
    bounds = [bound.value for bound in (facet.low, facet.high) if bound is not None] + sorted(facet.excluded)
    start: _State = (_Place("start", 0, False, False), (), ())
    return automata.explore(
        start,
        _Steps(facet, bounds, [parts for parts, _ in moduli]),
        _Accepts(facet, bounds, moduli),
        _MAX_NUMERAL_STATES,
    )


def exact(value: Decimal) -> bool:
    """Whether floats hold `value` and all its multiples of some 15 digits exactly."""
    return abs(value) < 10**15 and Decimal(float(value)) == value


def listed(facet: NumberFacet) -> list[Decimal]:
    """The `MAX_LISTED` multiples nearest to zero within the bounds, as far as floats agree that they are multiples.

    Raises:
        PatternError: the facet asks for what is no multiple.
    """
    if facet.others:
        raise PatternError("what is no multiple of a number that floats do not hold exactly cannot be said")
    step = max(facet.multiples)
    found: list[Decimal] = []
    for times in _nearest(facet, step):
        value = times * step
        places = -int(value.normalize().as_tuple().exponent)
        if (
            facet.holds(value)
            and places <= facet.decimals
            and all(_divides(each, value) for each in facet.multiples)
        ):
            found.append(value)
    return found


def _nearest(facet: NumberFacet, step: Decimal) -> range:
    """How often `step` is taken: zero and `MAX_LISTED` more, those within the bounds that are nearest to zero."""
    first, last = -(MAX_LISTED // 2), MAX_LISTED // 2
    low = high = None
    if facet.low is not None:
        times, rest = divmod(facet.low.value, step)
        low = int(times) + (rest > 0)
    if facet.high is not None:
        times, rest = divmod(facet.high.value, step)
        high = int(times) - (rest < 0)
    # What one bound takes away on its side of zero is given to the other side.
    if low is not None:
        last = max(last, low + MAX_LISTED)
    if high is not None:
        first, last = min(first, high - MAX_LISTED), min(last, high)
    return range(first if low is None else max(first, low), last + 1)


def _divides(step: Decimal, value: Decimal) -> bool:
    if value % step:
        return False
    number = int(value) if value == value.to_integral_value() else float(value)
    if step == step.to_integral_value():
        return number % int(step) == 0
    quotient = number / float(step)
    return int(quotient) == quotient


def _scaled(value: Decimal) -> tuple[int, int]:
    """A whole number and a count of decimal places that make `value`."""
    places = max(0, -int(value.normalize().as_tuple().exponent))
    return int(value.scaleb(places)), places


_State = tuple[_Place, tuple[_Compare, ...], tuple[tuple[int, int], ...]]


class _Steps:
    """From a state to the states that follow it."""

    def __init__(self, facet: NumberFacet, bounds: list[Decimal], moduli: list[tuple[int, int]]) -> None:
        self._facet, self._moduli = facet, moduli
        self._digits = [_digits(value) for value in bounds]

    def __call__(self, state: _State) -> Iterable[tuple[int, int, _State]]:
        place, compared, rests = state
        if place.phase == "start":
            yield ord("-"), ord("-"), (_Place("minus", 0, True, False), (), ())
        # In all no more digits than floats keep apart: what is left out as a number must not come back rounded.
        places = min(self._facet.decimals, FLOAT_DIGITS - place.digits)
        if place.phase in ("zero", "whole") and places > 0 and not self._facet.integer:
            yield _POINT, _POINT, (place._replace(phase="point", digits=places), compared, rests)
        for digit in range(10):
            following = self._digit(place, compared, rests, digit)
            if following is not None:
                yield 0x30 + digit, 0x30 + digit, following

    def _digit(
        self, place: _Place, compared: tuple[_Compare, ...], rests: tuple[tuple[int, int], ...], digit: int
    ) -> _State | None:
        phase = place.phase
        nonzero = place.nonzero or digit > 0
        if phase in ("start", "minus"):
            after = _Place("whole" if digit else "zero", 1, place.negative, nonzero)
            compared = tuple(_Compare(0, 0, 0) for _ in self._digits)
            rests = tuple((0, 0) for _ in self._moduli)
        elif phase == "whole":
            if place.digits >= self._facet.digits:
                return None
            after = place._replace(digits=place.digits + 1)
        elif phase in ("point", "fraction"):
            if place.digits == 0:
                return None
            after = _Place("fraction", place.digits - 1, place.negative, nonzero)
        else:
            return None
        fraction = after.phase == "fraction"
        compared = tuple(
            _compare(each, digits, digit, fraction)
            for each, digits in zip(compared, self._digits, strict=True)
        )
        rests = tuple(
            _rest(each, modulus, digit, fraction) for each, modulus in zip(rests, self._moduli, strict=True)
        )
        return after, compared, rests


class _Accepts:
    """Whether a numeral may end in a state."""

    def __init__(
        self, facet: NumberFacet, bounds: list[Decimal], moduli: list[tuple[tuple[int, int], bool]]
    ) -> None:
        self._facet, self._bounds, self._moduli = facet, bounds, moduli
        self._digits = [_digits(value) for value in bounds]

    def __call__(self, state: _State) -> bool:
        place, compared, rests = state
        if place.phase not in ("zero", "whole", "fraction") or (place.negative and not place.nonzero):
            return False
        orders = [
            _signed(place, value, _final(each, digits))
            for each, value, digits in zip(compared, self._bounds, self._digits, strict=True)
        ]
        facet, at = self._facet, 0
        if facet.low is not None:
            if orders[0] < 0 or (orders[0] == 0 and facet.low.exclusive):
                return False
            at = 1
        if facet.high is not None:
            if orders[at] > 0 or (orders[at] == 0 and facet.high.exclusive):
                return False
            at += 1
        if 0 in orders[at:]:
            return False
        for (rest, places), ((modulus, scale), wanted) in zip(rests, self._moduli, strict=True):
            divides = rest >= 0 and rest * 10 ** (scale - places) % modulus == 0
            if divides != wanted:
                return False
        return True


def _digits(value: Decimal) -> tuple[str, str]:
    whole, _, fraction = format(value.copy_abs(), "f").partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


def _compare(state: _Compare, bound: tuple[str, str], digit: int, fraction: bool) -> _Compare:
    whole, places = bound
    if not fraction:
        if state.digits > len(whole):
            return state
        if state.digits == len(whole):
            return _Compare(len(whole) + 1, 1, 0)
        order = state.order or _sign(digit - int(whole[state.digits]))
        return _Compare(state.digits + 1, order, 0)
    order = _settled(state, whole)
    if order:
        return _Compare(-1, order, 0)
    wanted = int(places[state.places]) if state.places < len(places) else 0
    return _Compare(len(whole), _sign(digit - wanted), min(state.places + 1, len(places)))


def _settled(state: _Compare, whole: str) -> int:
    """The order once the digits before the point are over."""
    if state.digits < 0 or state.digits >= len(whole):
        return state.order
    return -1


def _final(state: _Compare, bound: tuple[str, str]) -> int:
    whole, places = bound
    order = _settled(state, whole)
    return order or (-1 if state.places < len(places) else 0)


def _signed(place: _Place, bound: Decimal, order: int) -> int:
    if bound < 0:
        return -order if place.negative else 1
    return -1 if place.negative else order


def _rest(state: tuple[int, int], modulus: tuple[int, int], digit: int, fraction: bool) -> tuple[int, int]:
    rest, places = state
    divisor, scale = modulus
    if rest < 0:
        return state
    if not fraction:
        return (rest * 10 + digit) % divisor, 0
    if places == scale:
        return (-1, 0) if digit else state
    return (rest * 10 + digit) % divisor, places + 1


def _sign(value: int) -> int:
    return (value > 0) - (value < 0)


def _with_whole_left_out(facet: NumberFacet) -> NumberFacet:
    # A whole number is a multiple of one.
    return replace(facet, fraction=False, others=facet.others | {Decimal(1)}) if facet.fraction else facet
