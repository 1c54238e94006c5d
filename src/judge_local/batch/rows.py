"""Rows: what a record says is to be judged, or why it cannot be.

* A row that cannot be judged is a `BadRow` with its fault; it stops nothing, and it never passes.
* No two rows have one id. A row without an id, and one that repeats an id, is called `line:<n>` after its line; so ids of
  that form are kept for these. A row that repeats an id is bad.
* Keys that a row does not know go to `meta`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from judge_local.batch.digests import DigestSet
from judge_local.batch.formats import Record, Source
from judge_local.batch.shards import Shard
from judge_local.errors import InputError, JudgeLocalError, UsageError, excerpt
from judge_local.results import Result, subject_sha256
from judge_local.subject import read_subject
from judge_local.zones import ConsensusResult

FIELDS: Final = ("id", "claim", "subject", "subject_file", "reference", "label", "meta")
"""What a row has; `--map` gives these other names in a file."""

_OF_A_LINE: Final = re.compile(r"line:\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claim about one subject, with what else the row carried."""

    number: int
    """The row's place among the rows, from 1; blank lines do not count."""
    line: int
    """The line it begins at, from 1; in Parquet the same as `number`."""
    id: str
    claim: str
    subject: str | None = None
    """The text to judge; None as long as it has not been read from `subject_file`."""
    subject_file: str | None = None
    """A path as the row gives it."""
    reference: str | None = None
    label: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be judged, with as much of it as could be read."""

    number: int
    line: int
    id: str
    error: str
    """What is wrong, with the line's number."""
    claim: str = ""
    subject: str | None = None
    subject_file: str | None = None
    reference: str | None = None
    label: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def result_for(row: Row | BadRow, decision: ConsensusResult, error: str | None) -> Result:
    """The result of `row`, with all that it carried.

    Args:
        row: what was judged, or could not be.
        decision: on its claim.
        error: why it could not be judged; None where it was.
    """
    return Result(
        row=row.number,
        id=row.id,
        claim=row.claim,
        subject=row.subject if row.subject_file is None else None,
        subject_file=row.subject_file,
        subject_sha256=subject_sha256(row.subject or ""),
        reference=row.reference,
        label=row.label,
        meta=row.meta,
        decision=decision,
        error=error,
    )


def read_rows(
    source: Source, names: Mapping[str, str] | None = None, *, shard: Shard | None = None
) -> Generator[Row | BadRow, None, None]:
    """The rows of `source`, in order, each with an id of its own. Files that subjects are in are not read here.

    Args:
        source: where they are.
        names: what the file calls a field, where that is another name: `{"claim": "assertion"}`.
        shard: give only the rows of this shard; a row that repeats an id is in the shard of that id.

    Raises:
        InputError: the file cannot be read, or has no column for what every row needs.
        UsageError: `names` gives a name to what is no field.
    """
    names = names or {}
    for name in names:
        if name not in FIELDS:
            raise UsageError(
                "--map", f"{excerpt(name)} is no field of a row", f"Fields: {', '.join(FIELDS)}."
            )
    seen = DigestSet()
    for number, record in enumerate(source.records(), 1):
        source.count = number
        if number == 1:
            _check_first(source, record, names)
        row = _read(number, record, names)
        wanted = row.id
        if shard is not None and not shard.holds(wanted):
            continue
        own = f"line:{row.line}"
        if wanted != own and (_OF_A_LINE.fullmatch(wanted) or not seen.add(wanted)):
            why = (
                f"its id {excerpt(wanted)} has the form of those that rows without one get"
                if _OF_A_LINE.fullmatch(wanted)
                else f"its id {excerpt(wanted)} stands in a row before"
            )
            row = bad(replace(row, id=own), why) if isinstance(row, Row) else replace(row, id=own)
        yield row


def bad(row: Row, why: str) -> BadRow:
    """`row`, found to be one that cannot be judged."""
    return BadRow(
        number=row.number,
        line=row.line,
        id=row.id,
        error=f"line {row.line}: {why}",
        claim=row.claim,
        subject=row.subject,
        subject_file=row.subject_file,
        reference=row.reference,
        label=row.label,
        meta=row.meta,
    )


class Subjects:
    """Reads the files that subjects are in; one that several rows in a row name is read once.

    Args:
        folder: where paths start from.
        allow_outside: also read files that lie outside `folder`.
    """

    def __init__(self, folder: Path, *, allow_outside: bool = False) -> None:
        self._folder, self._allow_outside = folder.resolve(), allow_outside
        self._last: tuple[str, str] | None = None

    def with_text(self, row: Row) -> Row | BadRow:
        """`row` with the text of its subject, or why it cannot be read."""
        if row.subject is not None or row.subject_file is None:
            return row
        if self._last is None or self._last[0] != row.subject_file:
            try:
                self._last = (row.subject_file, self._read(row.subject_file))
            except JudgeLocalError as error:
                return bad(row, str(error))
        return replace(row, subject=self._last[1])

    def _read(self, name: str) -> str:
        where = "subject_file"
        try:
            path = (self._folder / name).resolve()
            outside, regular, there = not path.is_relative_to(self._folder), path.is_file(), path.exists()
        except (OSError, ValueError, RuntimeError) as error:  # A NUL byte, a loop of links, a name too long.
            raise InputError(where, f"{excerpt(name)} cannot be read: {error}") from None
        if outside and not self._allow_outside:
            raise InputError(
                where, f"{excerpt(name)} lies outside the rows' folder", "Allow it with --allow-outside."
            )
        if there and not regular and not path.is_dir():
            raise InputError(where, f"{excerpt(name)} is no regular file", "Name a text file.")
        return read_subject(path)


class _BadFieldError(Exception):
    """A field that cannot be used."""


def _check_first(source: Source, record: Record, names: Mapping[str, str]) -> None:
    """Refuse a file that as a whole holds no rows, before every single row is found bad."""
    if "judgeLocalResults" in record.fields:
        raise InputError(source.path, "is a results file, not rows", "Name the file that it was made from.")
    columns = source.columns
    if columns is None:
        return
    known = (
        f"Its columns: {excerpt(', '.join(columns))}. Name them with --map, such as --map claim=assertion."
    )
    for name in names.values():
        if name not in columns:
            raise InputError(source.path, f"there is no column {excerpt(name)}", known)
    if names.get("claim", "claim") not in columns:
        raise InputError(source.path, "there is no column 'claim'", known)
    if not {names.get("subject", "subject"), names.get("subject_file", "subject_file")} & set(columns):
        raise InputError(source.path, "there is no column 'subject' or 'subject_file'", known)


def _read(number: int, record: Record, names: Mapping[str, str]) -> Row | BadRow:
    """The row that `record` is; its id is its own, or `line:<n>`."""
    fields = dict(record.fields)
    given = {name: fields.pop(names.get(name, name), None) for name in FIELDS}
    texts: dict[str, Any] = {"id": f"line:{record.line}", "claim": ""}
    faults = [] if record.fault is None else [record.fault]
    readers = {
        "id": _id,
        "claim": _claim,
        "subject": _text,
        "subject_file": _text,
        "reference": _text,
        "label": _text,
    }
    for name, reader in readers.items():
        try:
            value = reader(name, given[name])
        except _BadFieldError as error:
            faults.append(str(error))
        else:
            if value is not None:
                texts[name] = value
    try:
        texts["meta"] = _meta(given["meta"], fields)
    except _BadFieldError as error:
        faults.append(str(error))
    row = Row(number=number, line=record.line, **texts)
    if not faults and row.subject is None and row.subject_file is None:
        faults.append("it has neither a subject nor a subject_file")
    if row.subject is not None and row.subject_file is not None:
        faults.append("it has both a subject and a subject_file")
    if not faults and row.subject is not None and not row.subject.strip():
        faults.append("its subject is empty")
    return bad(row, faults[0]) if faults else row


def _text(name: str, value: Any) -> str | None:
    if value is None or _is_nan(value):
        return None
    if not isinstance(value, str):
        raise _BadFieldError(f"its {name} is {excerpt(value)}, not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _BadFieldError(f"its {name} holds half of a surrogate pair, which is not text") from None
    return value if value.strip() or name in ("claim", "subject") else None


def _is_nan(value: Any) -> bool:
    """How pandas writes a text that is missing."""
    return isinstance(value, float) and math.isnan(value)


def _claim(name: str, value: Any) -> str:
    text = _text(name, value)
    if text is None:
        raise _BadFieldError("it has no claim")
    if not text.strip():
        raise _BadFieldError("its claim is empty")
    return text


def _id(name: str, value: Any) -> str | None:
    # A number is as good a name as any, and what most tables count with.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(name, value)


def _meta(value: Any, others: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row's `meta` and its unknown keys, as what JSON can write."""
    if isinstance(value, Mapping):
        together = {**others, **value}
    elif value is None:
        together = {**others}
    elif isinstance(value, str):
        together = {**others, "meta": value}
    else:
        raise _BadFieldError(f"its meta is {excerpt(value)}, not an object")
    together = {key: item for key, item in together.items() if not _is_nan(item)}
    try:
        written = json.dumps(together, default=_plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _BadFieldError(f"its meta cannot be written as JSON: {error}") from None
    found: dict[str, Any] = together if not together else json.loads(written)
    return {key: item for key, item in found.items() if item is not None}


def _plain(value: Any) -> str:
    """A date, a decimal or the like, as text."""
    if isinstance(value, bytes):
        raise TypeError("bytes are no text")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
