"""Number ranges as rules over decimal digits.

* Bounds are exact decimals; the rules admit exactly the numerals inside them, digit by digit.
* A numeral has no exponent, no leading zeros and no minus before zero; a fraction has at least one digit, and may end
  in zeros.
* A range too wide for its caps is narrowed to `digits` before and `decimals` after the point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Final

from judge_local.errors import SchemaFault
from judge_local.grammar.emit import Block, Body, Chars, Literal, Repeat, Rules, chars, join, text
from judge_local.grammar.finish import sealed

MAX_BOUND_DIGITS: Final = 30
"""A bound with more digits than this before the point, or after it, does not widen the caps."""
FLOAT_DIGITS: Final = 15
"""Two numerals of at most this many digits are two different floats."""
INTEGER_DIGITS: Final = 15
"""Digits before the point where no bound asks for more."""

_DIGIT: Final = chars("0-9")
_NONZERO: Final = chars("1-9")
_ZERO: Final = Literal("0")


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range."""

    value: Decimal
    exclusive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFacet:
    """The numbers a place admits."""

    low: Bound | None = None
    high: Bound | None = None
    integer: bool = False
    """Whole numbers only, written without a fraction."""
    digits: int = INTEGER_DIGITS
    """At most this many digits before the point."""
    decimals: int = 6
    """At most this many digits after the point."""
    fraction: bool = False
    """Whole numbers are left out."""
    multiples: frozenset[Decimal] = frozenset()
    """Multiples of each of these only."""
    others: frozenset[Decimal] = frozenset()
    """Multiples of none of these."""
    excluded: frozenset[Decimal] = frozenset()
    """These are left out."""
    blocked: tuple[SchemaFault, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether bounds say all there is to say."""
        return not (self.fraction or self.multiples or self.others or self.excluded)

    def holds(self, value: Decimal) -> bool:
        """Whether `value` keeps the bounds, and is whole or not as asked."""
        whole = value == value.to_integral_value()
        low, high = self.low, self.high
        return not (
            (low is not None and (value < low.value or (value == low.value and low.exclusive)))
            or (high is not None and (value > high.value or (value == high.value and high.exclusive)))
            or (self.integer and not whole)
            or (self.fraction and whole)
            or value in self.excluded
        )

    def hopeless(self) -> bool:
        """Whether no number at all can keep the bounds."""
        low, high = self.low, self.high
        if self.integer and self.fraction:
            return True
        if low is None or high is None:
            return False
        if low.value == high.value:
            return not (self.holds(low.value))
        if low.value > high.value:
            return True
        if not self.integer:
            return False
        first, last = (
            int(low.value.to_integral_value(ROUND_CEILING)),
            int(high.value.to_integral_value(ROUND_FLOOR)),
        )
        first += low.exclusive and first == low.value
        last -= high.exclusive and last == high.value
        return first > last

    def met(self, other: NumberFacet) -> NumberFacet:
        """What both admit."""
        found = self
        if other.low is not None:
            found = found.above(other.low)
        if other.high is not None:
            found = found.below(other.high)
        return replace(
            found,
            integer=self.integer or other.integer,
            fraction=self.fraction or other.fraction,
            multiples=self.multiples | other.multiples,
            others=self.others | other.others,
            excluded=self.excluded | other.excluded,
            blocked=tuple(dict.fromkeys(self.blocked + other.blocked)),
        )

    def above(self, bound: Bound) -> NumberFacet:
        """The facet, less what lies below `bound`."""
        return replace(self, low=bound if self.low is None else max(self.low, bound, key=_low_key))

    def below(self, bound: Bound) -> NumberFacet:
        """The facet, less what lies above `bound`."""
        return replace(self, high=bound if self.high is None else min(self.high, bound, key=_high_key))

    @lru_cache(256)  # noqa: B019 # facets are values
    def fitted(self) -> NumberFacet:
        """The facet with caps that leave room for its bounds, so that caps alone never empty it."""
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        whole = [len(_split(bound.value)[0]) for bound in bounds]
        asked = [size for size in whole if size <= MAX_BOUND_DIGITS]
        digits = max(asked) if len(asked) == 2 else max([self.digits, *asked])
        # Read as floats, a numeral with more digits than these may fall onto the bound that it must not reach.
        finest = min(
            (
                max(0, FLOAT_DIGITS - size)
                for size, bound in zip(whole, bounds, strict=True)
                if bound.exclusive
            ),
            default=MAX_BOUND_DIGITS,
        )
        decimals = 0 if self.integer else min(self.decimals, finest)
        fitted = replace(self, digits=digits, decimals=decimals)
        if whole and not fitted.satisfiable():
            # One digit more than the nearer bound has, because the range may begin just beyond it.
            fitted = replace(fitted, digits=max(digits, min(whole) + 1))
        if not self.integer and not fitted.satisfiable():
            places = max((len(_split(bound.value)[1]) for bound in bounds), default=0)
            for finer in range(decimals + 1, min(places + 1, finest) + 1):
                if replace(fitted, decimals=finer).satisfiable():
                    return replace(fitted, decimals=finer)
        return fitted

    @lru_cache(256)  # noqa: B019 # facets are values
    def satisfiable(self) -> bool:
        """Whether any numeral within the caps lies in the range."""
        return bool(_alternatives(Rules(), self))


def number(rules: Rules, facet: NumberFacet) -> Body:
    """The body that admits the numerals of `facet`, which must be satisfiable."""
    return rules.embed(_block(facet))


@lru_cache(256)
def _block(facet: NumberFacet) -> Block:
    rules = Rules()
    return sealed(rules, rules.define(_alternatives(rules, facet)))


def _low_key(bound: Bound) -> tuple[Decimal, bool]:
    return (bound.value, bound.exclusive)


def _high_key(bound: Bound) -> tuple[Decimal, bool]:
    return (bound.value, not bound.exclusive)


def _alternatives(rules: Rules, facet: NumberFacet) -> list[Body]:
    zero = Bound(Decimal(0))
    low, high = facet.low, facet.high
    found: list[Body] = []
    if high is None or high.value > 0 or (high.value == 0 and not high.exclusive):
        from_zero = low if low is not None and low.value >= 0 else zero
        found += _Magnitudes(rules, facet, from_zero, high).alternatives()
    if low is None or low.value < 0:
        nearest = (
            _mirrored(high) if high is not None and high.value < 0 else Bound(Decimal(0), exclusive=True)
        )
        farthest = None if low is None else _mirrored(low)
        found += [
            join(text("-"), body) for body in _Magnitudes(rules, facet, nearest, farthest).alternatives()
        ]
    return found


def _mirrored(bound: Bound) -> Bound:
    # Not `-value`, which rounds to the precision of the day.
    return Bound(bound.value.copy_negate(), bound.exclusive)


def _split(value: Decimal) -> tuple[str, str]:
    """The digits before the point, without leading zeros, and after it, without trailing ones."""
    whole, _, fraction = format(value.copy_abs(), "f").partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


class _Magnitudes:
    """Numerals without a sign between two bounds that are not negative.

    While the digits read so far are those of a bound, the numeral is *tight* to it and the next digit is limited by
    the bound's; once it differs, it is free of that bound for good.
    """

    def __init__(self, rules: Rules, facet: NumberFacet, low: Bound, high: Bound | None) -> None:
        self._rules = rules
        self._digits, self._decimals = facet.digits, facet.decimals
        self._low_whole, self._low_fraction = _split(low.value)
        self._low_exclusive = low.exclusive
        self._bounded = high is not None
        self._high_whole, self._high_fraction = _split(high.value) if high is not None else ("", "")
        self._high_exclusive = high is not None and high.exclusive
        self._known: dict[tuple[str, int, bool, bool], list[Body]] = {}

    def alternatives(self) -> list[Body]:
        """One body for each way to begin; none when the range is empty."""
        shortest = len(self._low_whole)
        longest = min(self._digits, len(self._high_whole)) if self._bounded else self._digits
        found: list[Body] = []
        free: list[int] = []
        for size in range(shortest, longest + 1):
            low = size == shortest
            high = self._bounded and size == len(self._high_whole)
            if low or high or size == 1:
                found += self._whole(0, size, low, high)
            else:
                free.append(size)
        if free:
            tail = Repeat(_DIGIT, free[0] - 1, free[-1] - 1)
            found += [join((_NONZERO, tail), end) for end in self._point(tight_low=False, tight_high=False)]
        return found

    def _whole(self, read: int, size: int, low: bool, high: bool) -> list[Body]:
        """Bodies for the digits before the point from the `read`-th on, and all that follows them."""
        if read == size:
            return self._point(low, high)
        if not low and not high:
            rest = (Repeat(_DIGIT, size - read, size - read),)
            return [join(rest, end) for end in self._point(tight_low=False, tight_high=False)]
        first = int(self._low_whole[read]) if low else 0
        last = int(self._high_whole[read]) if high else 9
        if read == 0 and size > 1:
            first = max(first, 1)
        return self._digit(
            first,
            last,
            lambda digit: self._whole(
                read + 1,
                size,
                low and digit == int(self._low_whole[read]),
                high and digit == int(self._high_whole[read]),
            ),
        )

    def _point(self, tight_low: bool, tight_high: bool) -> list[Body]:
        """The end of the numeral, or a point and a fraction."""
        found: list[Body] = []
        if self._may_end(0, tight_low, tight_high):
            found.append(())
        if self._decimals:
            found += [join(text("."), body) for body in self._fraction(0, tight_low, tight_high) if body]
        return found

    def _may_end(self, read: int, low: bool, high: bool) -> bool:
        if low and (read < len(self._low_fraction) or self._low_exclusive):
            return False
        return not (high and read >= len(self._high_fraction) and self._high_exclusive)

    def _fraction(self, read: int, low: bool, high: bool) -> list[Body]:
        """Bodies for the digits after the point from the `read`-th on; the empty one where the numeral may end."""
        # At or past the last digit of an inclusive lower bound nothing can fall below it any more.
        low = low and (read < len(self._low_fraction) or self._low_exclusive)
        left = self._decimals - read
        least = 1 if read == 0 else 0
        if not low and not high:
            return [(Repeat(_DIGIT, least, left),)] if left else [()]
        if high and read >= len(self._high_fraction) and not low:
            if self._high_exclusive:
                return []
            return [(Repeat(_ZERO, least, left),)] if left else [()]
        key = ("fraction", read, low, high)
        if key not in self._known:
            found: list[Body] = [()] if read and self._may_end(read, low, high) else []
            if left:
                first = int(self._low_fraction[read]) if low and read < len(self._low_fraction) else 0
                last = (
                    (int(self._high_fraction[read]) if read < len(self._high_fraction) else 0) if high else 9
                )
                found += self._digit(
                    first,
                    last,
                    lambda digit: self._fraction(read + 1, low and digit == first, high and digit == last),
                )
            self._known[key] = found
        return self._known[key]

    def _digit(self, first: int, last: int, then: Callable[[int], list[Body]]) -> list[Body]:
        """One digit within `first`..`last` and what follows it; neighbours that go on alike share a body."""
        runs: list[tuple[int, int, Body]] = []
        for digit in range(first, last + 1):
            ways = then(digit)
            if not ways:
                continue
            rest = self._rules.define(ways)
            if runs and runs[-1][1] == digit - 1 and runs[-1][2] == rest:
                runs[-1] = (runs[-1][0], digit, rest)
            else:
                runs.append((digit, digit, rest))
        return [join((_digits(start, end),), rest) for start, end, rest in runs]


def _digits(first: int, last: int) -> Chars | Literal:
    return Literal(str(first)) if first == last else Chars(((ord(str(first)), ord(str(last))),))
