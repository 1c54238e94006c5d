"""The keys of an object that no schema names, in classes whose values must meet the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from judge_local.grammar import automata
from judge_local.grammar.automata import Automaton
from judge_local.grammar.languages import pattern
from judge_local.grammar.nodes import ANYTHING, NEVER, Goals, ObjectFacet, Witness
from judge_local.grammar.regex import PatternError

if TYPE_CHECKING:
    from judge_local.grammar.places import Places

MAX_CLASSES: Final = 64


@dataclass(frozen=True, slots=True)
class KeyClass:
    """Keys that match the same patterns."""

    names: Automaton
    goals: Goals
    pays: frozenset[int]
    """The witnesses that a key of this class can be."""


def declared_keys(facet: ObjectFacet) -> list[str]:
    """The names that some layer declares, in the order of the layers."""
    return list({name: None for layer in facet.layers for name, _ in layer.properties})


def key_classes(places: Places, facet: ObjectFacet, known: list[str], allowed: Automaton) -> list[KeyClass]:
    """The classes of keys other than `known`, those that may have no value left out.

    Raises:
        PatternError: the keys cannot be told apart.
    """
    sources = list(
        dict.fromkeys(
            [source for layer in facet.layers for source, _ in layer.patterns]
            + [source for one in facet.some for source, _ in one.layer.patterns]
            + [one.pattern for one in facet.some if one.pattern is not None]
        )
    )
    if not sources and _goals(facet, frozenset()) >= NEVER:
        return []
    free = automata.meet(allowed, automata.other_than(known)) if known else allowed
    parts: list[tuple[Automaton, frozenset[str]]] = [(free, frozenset())]
    for source in sources:
        there, away = pattern(source), automata.complement(pattern(source, "upper"))
        split = []
        for names, matched in parts:
            if _goals(facet, matched, certain=True) >= NEVER:
                continue
            for half, found in ((there, matched | {source}), (away, matched)):
                both = automata.meet(names, half)
                if not both.empty:
                    split.append((both, found))
        parts = split
        if len(parts) > MAX_CLASSES:
            raise PatternError(f"its patterns part the keys into more than {MAX_CLASSES} classes")
    classes: list[KeyClass] = []
    for names, matched in parts:
        goals = _goals(facet, matched)
        if names.empty or goals >= NEVER:
            continue
        classes += _by_witness(places, facet, names, matched, goals)
    return classes


def _goals(facet: ObjectFacet, matched: frozenset[str], *, certain: bool = False) -> Goals:
    """What the value of an undeclared key that matches exactly `matched` must meet; `certain`: at least those."""
    found = ANYTHING
    for layer in facet.layers:
        spoken = False
        for source, goals in layer.patterns:
            if source in matched:
                found, spoken = found | goals, True
        if not spoken and layer.rest is not None and not certain:
            found |= layer.rest
    return found


def _by_witness(
    places: Places, facet: ObjectFacet, names: Automaton, matched: frozenset[str], goals: Goals
) -> list[KeyClass]:
    parts: list[tuple[Automaton, frozenset[int]]] = [(names, frozenset())]
    for at, witness in enumerate(facet.some):
        if not _may_pay(witness, matched):
            continue
        spoken = [name for name, _ in witness.layer.properties]
        if not witness.names and not spoken:
            parts = [(part, pays | {at}) for part, pays in parts]
            continue
        able = places.key_automaton(witness.names) if witness.names else automata.ALL
        able = automata.meet(able, automata.other_than(spoken))
        split = []
        for part, pays in parts:
            both = automata.meet(part, able)
            if not both.empty:
                split.append((both, pays | {at}))
            # What is left can be a witness too; it is written as one of these only.
            split.append((part, pays))
        parts = split
    return [KeyClass(part, goals, pays) for part, pays in parts]


def _may_pay(witness: Witness, matched: frozenset[str]) -> bool:
    if witness.pattern is not None and witness.pattern not in matched:
        return False
    return not any(source in matched for source, _ in witness.layer.patterns)
