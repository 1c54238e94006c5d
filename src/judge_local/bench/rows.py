"""Rows to measure with: from a file of JSON Lines, or made up here, so that a measurement needs nothing but a model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from judge_local.errors import InputError, excerpt
from judge_local.subject import read_text

_SENTENCES: Final = (
    "The {kind} in {town} opens at {a} in the morning and closes at {b} in the evening, except on the first Monday of the month.",
    "It was built in 18{c} from local stone and has been repaired three times, the last time after the flood of 19{c}.",
    "Visitors pay {d} coins at the door; children under {e} and members of the society come in free.",
    "A guide waits at the north gate every hour and tells the story of the family who gave the house to the town.",
    "Dogs may come in if they are on a lead, and there is a bowl of water beside the bench under the lime tree.",
    "The reading room holds {d} thousand volumes, most of them about the river, its mills and the people who ran them.",
    "In winter the upper floor is closed, because the heating there was taken out in 20{e} and never put back.",
    "Photographs are allowed without a flash, but the two maps in the long hall may not be photographed at all.",
    "The path from the station takes about {e} minutes on foot and is lit until midnight.",
    "Letters are answered within {b} days; the office is staffed by volunteers and shut in August.",
    "The roof was given new slates last spring, and the scaffolding is to be taken down before the autumn fair.",
    "Tea and cakes are sold in the old stable, which seats {a} people and takes cash only.",
)
_KINDS: Final = ("museum", "library", "mill", "archive")
_TOWNS: Final = ("Arden", "Brackwater", "Colne", "Dunmere", "Eastry")
_CLAIMS: Final = (
    "The text says when the place opens.",
    "Everybody has to pay to come in.",
    "Dogs are forbidden.",
    "Letters are answered within a day.",
    "The text names the year in which it was built.",
)
MADE_UP: Final = 64
"""Rows that can be had without a file."""


@dataclass(frozen=True, slots=True)
class Row:
    """A claim about a subject."""

    subject: str
    claim: str

    def copy(self, number: str) -> Row:
        """The row with a subject that nobody has read before: what a side kept of an earlier pair is of no use to it."""
        return replace(self, subject=f"Copy {number}.\n\n{self.subject}")


def read_rows(path: Path | None, count: int) -> list[Row]:
    """The first `count` rows.

    Args:
        path: JSON Lines with `subject` and `claim`; None makes rows up.
        count: at least 1.

    Raises:
        InputError: the file cannot be read, or a line is no row.
    """
    if path is None:
        return [_made_up(number) for number in range(min(count, MADE_UP))]
    rows: list[Row] = []
    for number, line in enumerate(read_text(str(path), what="rows").splitlines(), start=1):
        if len(rows) == count:
            break
        if line.strip():
            rows.append(_row(line, f"{path}:{number}"))
    if not rows:
        raise InputError(str(path), "holds no row", 'A row is {"subject": "…", "claim": "…"} on one line.')
    return rows


def _row(line: str, where: str) -> Row:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise InputError(where, f"is not JSON: {error}", "Write one object a line.") from error
    subject, claim = (data.get(key) if isinstance(data, dict) else None for key in ("subject", "claim"))
    if not isinstance(subject, str) or not isinstance(claim, str) or not subject.strip() or not claim.strip():
        raise InputError(
            where,
            f"{excerpt(line)} has no subject and claim",
            'Both are texts: {"subject": "…", "claim": "…"}.',
        )
    return Row(subject, claim)


def _made_up(number: int) -> Row:
    """A page of some 200 words, unlike all others, and a claim about it."""
    facts = {
        "kind": _KINDS[number % len(_KINDS)],
        "town": _TOWNS[number % len(_TOWNS)],
        "a": 7 + number % 4,
        "b": 5 + number % 6,
        "c": 10 + number % 83,
        "d": 3 + number % 17,
        "e": 6 + number % 9,
    }
    turned = [_SENTENCES[(number * 5 + place) % len(_SENTENCES)] for place in range(len(_SENTENCES))]
    text = " ".join(sentence.format(**facts) for sentence in turned)
    return Row(f"Leaflet {number + 1}. {text}", _CLAIMS[number % len(_CLAIMS)])
