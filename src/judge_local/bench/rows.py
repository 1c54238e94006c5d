"""Rows to measure with: from a file that `batch` would judge, or made up here, so that a measurement needs only a model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

from judge_local.batch import rows as batch
from judge_local.batch.formats import Source
from judge_local.errors import InputError

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
    reference: str | None = None

    def copy(self, number: str) -> Row:
        """The row with a subject that nobody has read before: what a side kept of an earlier pair is of no use to it."""
        return replace(self, subject=f"Copy {number}.\n\n{self.subject}")


def read_rows(path: str | None, count: int) -> list[Row]:
    """The first `count` rows.

    Args:
        path: a file of rows as `batch` reads them, or `-`; None makes rows up.
        count: at least 1.

    Raises:
        InputError: the file cannot be read, or one of the rows cannot be judged.
        UsageError: the file's name does not say what is in it.
    """
    if path is None:
        return [_made_up(number) for number in range(min(count, MADE_UP))]
    source = Source(path)
    source.check()
    subjects = batch.Subjects(source.folder)
    rows: list[Row] = []
    with closing(batch.read_rows(source)) as read:
        for found in read:
            row = subjects.with_text(found) if isinstance(found, batch.Row) else found
            if isinstance(row, batch.BadRow):
                raise InputError(
                    path, row.error, "Every row that is measured with must be one that can be judged."
                )
            rows.append(Row(row.subject or "", row.claim, row.reference))
            if len(rows) == count:
                break
    if not rows:
        raise InputError(path, "holds no row", 'A row is {"subject": "…", "claim": "…"} on one line.')
    return rows


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
