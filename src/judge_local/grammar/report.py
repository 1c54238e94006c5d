"""What became of each keyword of a schema, and by whom it is enforced.

Every keyword of the schema has a row. What the grammar gives up on purpose (a fixed key order, no exponents) has a row
of its own, with the reason, so that nothing is narrowed in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from judge_local.errors import SchemaFault


class Kind(StrEnum):
    """What became of a keyword."""

    ENFORCED = "enforced"
    """The grammar admits nothing that breaks it."""
    CHECKED = "checked"
    """Left to the validator by the caller: the grammar may admit what breaks it."""
    ANNOTATION = "annotation"
    """Asserts nothing."""
    NARROWED = "narrowed"
    """The grammar admits less than the schema does."""
    PRUNED = "pruned"
    """An optional part that no value satisfies was left out."""


_ENFORCED_BY = {
    Kind.ENFORCED: "grammar",
    Kind.NARROWED: "grammar",
    Kind.PRUNED: "grammar",
    Kind.CHECKED: "validator",
    Kind.ANNOTATION: "nobody",
}


class RowText(NamedTuple):
    """One row as text, for tables."""

    pointer: str
    keyword: str
    place: str
    enforced_by: str
    detail: str


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one keyword at one place."""

    kind: Kind
    pointer: str
    """JSON pointer to the schema that holds the keyword; `""` is the root."""
    keyword: str
    place: str
    """JSON pointer to where in an instance it applies; `""` is the whole instance."""
    detail: str = ""

    @property
    def enforced_by(self) -> str:
        """`grammar`, `validator` or `nobody`."""
        return _ENFORCED_BY[self.kind]

    def to_json(self) -> dict[str, str]:
        """The row as a JSON object; the detail is left out when there is none."""
        fields = {"pointer": self.pointer, "keyword": self.keyword, "place": self.place}
        return fields | ({"detail": self.detail} if self.detail else {})


@dataclass(frozen=True, slots=True)
class Report:
    """What a grammar enforces of its schema."""

    dialect: str
    """The draft the schema was read as: `draft-04` … `2020-12`."""
    entries: tuple[Row, ...] = ()
    """All rows, in the schema's order."""
    warnings: tuple[str, ...] = ()
    """Sentences for a person: keywords that look like slips, an unknown `$schema`."""

    @property
    def enforced(self) -> tuple[Row, ...]:
        """Keywords that the grammar holds to."""
        return self._of(Kind.ENFORCED)

    @property
    def annotations(self) -> tuple[Row, ...]:
        """Keywords that assert nothing, those of no vocabulary among them."""
        return self._of(Kind.ANNOTATION)

    @property
    def narrowed(self) -> tuple[Row, ...]:
        """Where the grammar admits less than the schema, and why."""
        return self._of(Kind.NARROWED)

    @property
    def checked(self) -> tuple[Row, ...]:
        """Keywords that only the validator holds to."""
        return self._of(Kind.CHECKED)

    @property
    def pruned(self) -> tuple[Row, ...]:
        """Optional parts that no value satisfies."""
        return self._of(Kind.PRUNED)

    def rows(self) -> Iterator[RowText]:
        """Every row as (pointer, keyword, place, enforced by, detail), in the schema's order."""
        for row in self.entries:
            detail = f"{row.kind}: {row.detail}" if row.kind in (Kind.NARROWED, Kind.PRUNED) else row.detail
            yield RowText(row.pointer, row.keyword, row.place, row.enforced_by, detail)

    def to_json(self) -> dict[str, object]:
        """The report as a JSON object: the dialect, one list for each kind, and the warnings."""
        kinds = {
            name: [row.to_json() for row in self._of(kind)]
            for name, kind in (
                ("enforced", Kind.ENFORCED),
                ("checked", Kind.CHECKED),
                ("narrowed", Kind.NARROWED),
                ("pruned", Kind.PRUNED),
                ("annotations", Kind.ANNOTATION),
            )
        }
        return {"dialect": self.dialect, **kinds, "warnings": list(self.warnings)}

    def _of(self, kind: Kind) -> tuple[Row, ...]:
        return tuple(row for row in self.entries if row.kind is kind)


class Findings:
    """What is noted while a schema is read: rows, warnings, and the faults that will refuse it."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.warnings: list[str] = []
        self.faults: list[SchemaFault] = []
        self.done: set[tuple[str, str]] = set()
        """What was noted already and is not to be noted twice."""

    def note(self, kind: Kind, pointer: str, keyword: str, place: str, detail: str = "") -> None:
        """Add a row."""
        self.rows.append(Row(kind, pointer, keyword, place, detail))

    def note_once(self, kind: Kind, pointer: str, keyword: str, place: str, detail: str) -> None:
        """Add a row unless one like it stands for the same keyword of the schema."""
        key = (pointer, f"{kind} {keyword} {detail}")
        if key not in self.done:
            self.done.add(key)
            self.note(kind, pointer, keyword, place, detail)

    def add_fault(self, fault: SchemaFault) -> None:
        """Add a fault, once."""
        if fault not in self.faults:
            self.faults.append(fault)

    def report(self, dialect: str) -> Report:
        """All that was noted, as a report."""
        return Report(dialect, tuple(self.rows), tuple(self.warnings))
