"""The automata of patterns, formats and key names of one schema, each built once.

Two of each: `lower` for what a grammar may write, `upper` for what a schema may admit. The opposite of an atom takes the
other reading, so that a grammar never writes what some validator would find.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from judge_local.grammar import automata
from judge_local.grammar.automata import Automaton
from judge_local.grammar.determinise import of_pattern
from judge_local.grammar.formats import lower_format, upper_format
from judge_local.grammar.nodes import ANYTHING, Atom, Goals, Layer, ObjectFacet
from judge_local.grammar.regex import PatternError, Reading, read_pattern

KEPT: Final = 512


@lru_cache(KEPT)
def of_source(source: str, reading: Reading = "lower") -> Automaton | str:
    """The automaton of a pattern, found anywhere in a text; or why there is none."""
    try:
        return of_pattern(read_pattern(source, reading), reading)
    except PatternError as error:
        return str(error)


def pattern(source: str, reading: Reading = "lower") -> Automaton:
    """The automaton of a pattern, found anywhere in a text.

    Raises:
        PatternError: there is none.
    """
    found = of_source(source, reading)
    if isinstance(found, str):
        raise PatternError(found)
    return found


class Languages:
    """Automata by what they are for."""

    def __init__(self) -> None:
        self._sets: dict[tuple[frozenset[Atom], str], Automaton | PatternError] = {}

    def lower(self, atoms: frozenset[Atom]) -> Automaton:
        """Strings that keep every atom whoever reads it.

        Raises:
            PatternError: it cannot be built.
        """
        return self._all(atoms, "lower")

    def upper(self, atoms: frozenset[Atom]) -> Automaton:
        """Strings that may keep every atom.

        Raises:
            PatternError: it cannot be built.
        """
        return self._all(atoms, "upper")

    def matches(self, source: str, name: str) -> bool:
        """Whether the pattern `source` is found in `name`. Both readings must agree.

        Raises:
            PatternError: they differ, or there is no automaton.
        """
        lower, upper = pattern(source, "lower").matches(name), pattern(source, "upper").matches(name)
        if lower != upper:
            raise PatternError("engines differ on whether it is found in a name")
        return lower

    def value_goals(self, facet: ObjectFacet, name: str) -> Goals:
        """What the value of the key `name` must meet; a pattern that cannot be followed is left out."""
        found = ANYTHING
        for layer in facet.layers:
            found |= self.layer_goals(layer, name)
        return found

    def layer_goals(self, layer: Layer, name: str) -> Goals:
        """What one layer asks of the value of the key `name`."""
        found, spoken = ANYTHING, False
        for declared, goals in layer.properties:
            if declared == name:
                found, spoken = found | goals, True
        for source, goals in layer.patterns:
            try:
                matched = self.matches(source, name)
            except PatternError:
                matched = False
                spoken = True
            if matched:
                found, spoken = found | goals, True
        return found if spoken or layer.rest is None else found | layer.rest

    def _all(self, atoms: frozenset[Atom], reading: Reading) -> Automaton:
        key = (atoms, reading)
        known = self._sets.get(key)
        if known is None:
            try:
                known = self._met(
                    sorted(atoms, key=lambda atom: (atom.kind, atom.text, atom.positive)), reading
                )
            except PatternError as error:
                known = error
            self._sets[key] = known
        if isinstance(known, PatternError):
            raise known
        return known

    def _met(self, atoms: Iterable[Atom], reading: Reading) -> Automaton:
        found = automata.ALL
        for atom in atoms:
            found = automata.meet(found, _of_atom(atom, reading))
        return found


def _of_atom(atom: Atom, reading: Reading) -> Automaton:
    other: Reading = "upper" if reading == "lower" else "lower"
    if atom.kind == "pattern":
        if atom.positive:
            return pattern(atom.text, reading)
        return automata.complement(pattern(atom.text, other))
    if atom.positive:
        return lower_format(atom.text) if reading == "lower" else upper_format(atom.text)
    found = upper_format(atom.text) if reading == "lower" else lower_format(atom.text)
    return automata.complement(found)
