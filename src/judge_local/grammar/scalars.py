"""Strings and numbers of a place as rules, within the caps.

* A string that only has lengths is counted in blocks. A pattern is followed by its automaton; where that also has to count
  and would become too large, repetitions are bounded instead, and the report says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from judge_local.grammar import automata
from judge_local.grammar.automata import Automaton
from judge_local.grammar.emit import Body
from judge_local.grammar.formats import compact_format
from judge_local.grammar.nodes import Atom, StringFacet
from judge_local.grammar.numbers import INTEGER_DIGITS, NumberFacet, number
from judge_local.grammar.numerals import MAX_LISTED, exact, numerals
from judge_local.grammar.regex import PatternError
from judge_local.grammar.strings import quoted

if TYPE_CHECKING:
    from judge_local.grammar.places import Places

MAX_COUNTED: Final = 2500
"""States of an automaton that counts characters."""


def write_string(places: Places, facet: StringFacet, place: str) -> list[Body]:
    """The bodies that admit the strings of `facet`; none after a fault."""
    if places.blocked(facet.blocked):
        return []
    settings = places.settings
    if facet.low > settings.max_string:
        reason = f"no string of ours is longer than {settings.max_string} characters"
        places.refuse(facet.where, "minLength", reason, "Raise `max_string`.")
        return []
    limit = settings.max_string
    if facet.high is None:
        limit = max(facet.low, min(limit, settings.string_limits.get(place, settings.unbounded_string)))
    high = limit if facet.high is None else min(facet.high, limit)
    places.narrowed(facet.where, "type", place, "each character has one spelling, and U+007F is left out")
    if not facet.atoms and not facet.excluded:
        if facet.high is None or facet.high > limit:
            places.narrowed(facet.where, "maxLength", place, f"at most {limit} characters")
        return [places.strings.sized(facet.low, high)]
    try:
        found = _automaton(places, facet, facet.atoms)
    except PatternError as error:
        _refuse_string(places, facet, str(error))
        return []
    if found.empty:
        places.nothing(facet.where, "no string keeps its pattern, its format and its lengths")
        return []
    if facet.high is None:
        if found.longest() is None:
            atom = min(facet.atoms, key=lambda each: each.where, default=None)
            keyword = atom.kind if atom else "not"
            places.narrowed(facet.where, keyword, place, f"at most {limit} repetitions of one character")
        if not places.settings.bound_patterns and facet.low == 0:
            return [quoted(places.strings.following(found, limit))]
    return _counted(places, facet, found, high, place)


def _automaton(places: Places, facet: StringFacet, atoms: frozenset[Atom]) -> Automaton:
    found = places.reader.languages.lower(atoms)
    if facet.excluded:
        found = automata.meet(found, automata.other_than(facet.excluded))
    return found


def _refuse_string(places: Places, facet: StringFacet, reason: str) -> None:
    atom = min(facet.atoms, key=lambda each: each.where, default=None)
    where, keyword = (atom.where, atom.kind) if atom else (facet.where, "not")
    places.refuse(where, keyword, f"with what stands beside it, {reason}")


def _counted(places: Places, facet: StringFacet, found: Automaton, high: int, place: str) -> list[Body]:
    """Strings of an automaton, of `facet.low` to `high` characters."""
    longest = found.longest()
    if facet.low <= found.shortest() and longest is not None and longest <= high:
        return [quoted(places.strings.following(found, 1))]
    if len(found.moves) * (high + 1) <= MAX_COUNTED:
        return _exactly(places, facet, found, high)
    formats = [atom for atom in facet.atoms if atom.kind == "format" and atom.positive]
    compact = compact_format(formats[0].text) if len(facet.atoms) == len(formats) == 1 else None
    for one in (found, compact):
        loops = None if one is None else one.loops()
        if one is None or loops is None or loops[1] == 0 or one.shortest() < facet.low:
            continue
        steps, rounds = loops
        if high - steps >= rounds:
            each = (high - steps) // rounds
            places.narrowed(facet.where, "maxLength", place, f"at most {each} repetitions of one character")
            return [quoted(places.strings.following(one, each))]
    room = max(MAX_COUNTED // len(found.moves), facet.low)
    if room < high:
        places.narrowed(facet.where, "maxLength", place, f"at most {room} characters")
    return _exactly(places, facet, found, min(high, room))


def _exactly(places: Places, facet: StringFacet, found: Automaton, high: int) -> list[Body]:
    try:
        counted = automata.bounded(found, facet.low, high)
    except PatternError as error:
        _refuse_string(places, facet, str(error))
        return []
    if counted.empty:
        places.nothing(facet.where, "no string keeps its pattern, its format and its lengths")
        return []
    return [quoted(places.strings.following(counted, 1))]


def write_number(places: Places, facet: NumberFacet, where: str, place: str) -> list[Body]:
    """The bodies that admit the numbers of `facet`; none after a fault."""
    if places.blocked(facet.blocked):
        return []
    fitted = replace(facet, digits=INTEGER_DIGITS, decimals=places.settings.decimals).fitted()
    fraction = f"; after it: at most {fitted.decimals}" if fitted.decimals else "; no fraction"
    spelling = f"no exponent; digits before the point: at most {fitted.digits}{fraction}"
    if fitted.plain:
        if not fitted.satisfiable():
            places.nothing(where, "no number lies between its bounds")
            return []
        places.narrowed(where, "type", place, spelling)
        return [number(places.rules, fitted)]
    try:
        found = numerals(fitted)
    except PatternError as error:
        keyword = "multipleOf" if fitted.multiples or fitted.others else "not"
        places.refuse(where, keyword, str(error))
        return []
    if found.empty:
        places.nothing(where, "no number within its bounds is such a multiple")
        return []
    places.narrowed(where, "type", place, spelling)
    if not all(exact(each) for each in fitted.multiples):
        few = f"at most {MAX_LISTED + 1} values, those nearest to zero that floats take for multiples"
        places.narrowed(where, "multipleOf", place, few)
    return [places.strings.following(found, 1)]
