"""Merging: the results files of several shards become the one file that a run over all rows would have written.

* Results are copied byte for byte, in the order of rows. What each decision says is checked by whoever reads the merged
  file, as it is for any results file; here a line must be a JSON object with a row, an id, and a place in its shard.
* The headers must agree in everything but the shard and the threads. A difference is named, and nothing is written.
* A row that is missing or there twice is named. Neither is ever passed over.
* Flat in memory: shards are read as streams. One that is not in the order of rows is sorted in pieces on the disk first.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from judge_local.answer_text import strict_json
from judge_local.batch.results_lines import (
    FREE_SETTINGS,
    header_differences,
    header_of,
    line_of,
    open_to_read,
    sync_folder,
)
from judge_local.batch.shards import Shard, parse_shard
from judge_local.errors import InputError, ResultsFileError, UsageError, excerpt
from judge_local.results import ResultsHeader

PIECE_BYTES: Final = 32 * 2**20
"""How much of a shard that is out of order is sorted in memory at once."""
STREAMS: Final = 128
"""How many files are read side by side; more are merged in several steps."""
NAMED: Final = 20
"""How many missing or double rows are named; the rest are counted."""

_SAY_AFTER: Final = 10_000
"""Results between two words about how far it is."""

# A line as every results file is written; any other spelling of the same JSON is parsed instead.
_ROW: Final = re.compile(rb'\{"row": ?([1-9][0-9]{0,17})[,}]')
_OWN_ID: Final = re.compile(r"line:\d+")
_FREE: Final = (*FREE_SETTINGS, "shard")
"""What may differ between the headers of shards."""

_TAKEN: Final = "Name another file, or replace it with --force."

Entry = tuple[int, int, bytes]
"""A result on its way: its row, the place of its file among the shards, its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Double:
    """A row that is there more than once."""

    row: int
    files: tuple[str, ...]
    """The file of each, so one may be named twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What merging came to."""

    results: int
    """How many different rows there are."""
    written: bool
    """Whether the results file was written."""
    missing: int = 0
    """How many rows are not there."""
    missing_rows: tuple[tuple[int, int], ...] = ()
    """The first of them, as spans from a row to a row."""
    doubles: int = 0
    """How many rows are there more than once."""
    double_rows: tuple[Double, ...] = ()
    """The first of them."""
    missing_shards: tuple[str, ...] = ()
    """Shards, as `i/n`, of which no file was given."""
    torn: tuple[str, ...] = ()
    """Files whose last line was not written to its end, and does not count."""

    @property
    def complete(self) -> bool:
        """Whether every row is there, once."""
        return not (self.missing or self.doubles or self.missing_shards)

    def to_json(self) -> dict[str, Any]:
        """All of it, for machines."""
        return {
            "results": self.results,
            "written": self.written,
            "complete": self.complete,
            "missing": self.missing,
            "missingRows": [list(span) for span in self.missing_rows],
            "doubles": self.doubles,
            "doubleRows": [{"row": double.row, "files": list(double.files)} for double in self.double_rows],
            "missingShards": list(self.missing_shards),
            "torn": list(self.torn),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One shard's file as it was when it was first read; what is appended later does not count."""

    path: Path
    place: int
    header: ResultsHeader
    start: int
    """Where the results begin, in bytes."""
    end: int
    """Where the last whole line ends, in bytes."""
    in_order: bool
    torn: bool


def merge_results(
    shards: Sequence[Path],
    output: Path,
    *,
    rows: int | None = None,
    partial: bool = False,
    force: bool = False,
    progress: Callable[[str, int], None] = lambda _step, _done: None,
) -> Merged:
    """Write what all `shards` hold to `output`, in the order of rows: whole or not at all.

    Args:
        shards: results files of one job.
        output: the file to write; it appears when it is complete.
        rows: how many rows there were to judge; None takes the highest row that is there.
        partial: write what there is although rows are missing.
        force: replace `output` where it is there already.
        progress: told what is going on, and how many results it has been through.

    Returns:
        What came of it. Nothing was written when a row is there twice, or is missing and `partial` is False.

    Raises:
        UsageError: the files were made with different settings, or `output` is there or cannot be written.
        InputError: a line of a file is no result of its shard.
        ResultsFileError: a file cannot be read, is being written, or there is no room.
    """
    if not shards:
        raise UsageError("SHARDS", "no results file was named", "Name those of all shards.")
    _refuse_output(shards, output, force=force)
    sources = [_examine(path, place, progress) for place, path in enumerate(shards)]
    header = common_header([(str(source.path), source.header) for source in sources])
    missing_shards = _missing_shards(sources)
    try:
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
            streams = [stream for source in sources for stream in _streams(source, Path(folder), progress)]
            whole = Path(folder) / "whole"
            with whole.open("wb") as file:
                file.write(line_of(header.to_json()))
                found = _write(_together(streams, Path(folder)), file, sources, rows, progress)
                file.flush()
                os.fsync(file.fileno())
            found = replace(
                found,
                missing_shards=missing_shards,
                torn=tuple(str(source.path) for source in sources if source.torn),
            )
            if found.doubles or not (partial or found.complete):
                return found
            _put_in_place(whole, output, force=force)
            return replace(found, written=True)
    except OSError as error:
        raise ResultsFileError(
            str(output),
            f"cannot be written ({error.strerror or error})",
            "Nothing was written, and the shards are as they were. Make room, or name another file.",
        ) from error


def common_header(headers: Iterable[tuple[str, ResultsHeader]]) -> ResultsHeader:
    """The header of the merged file: what all agree in.

    Args:
        headers: each with the name of its file; at least one.

    Raises:
        UsageError: two differ in more than shard and threads; the message names all that differs.
    """
    (first_name, first), *others = headers
    settings = dict(first.settings)
    for name, header in others:
        different = header_differences(header, first, free=_FREE)
        if different:
            raise UsageError(
                name,
                f"was not made as {first_name} was ({'; '.join(different)})",
                "Merge only files that were made with the same settings.",
            )
        for key in FREE_SETTINGS:
            if settings.get(key) != header.settings.get(key):
                settings.pop(key, None)
    return replace(first, settings=settings, shard=None)


def _refuse_output(shards: Sequence[Path], output: Path, *, force: bool) -> None:
    if not output.parent.is_dir():
        raise UsageError(str(output), f"there is no folder {str(output.parent)!r}", "Make it first.")
    if any(path.exists() and output.exists() and path.samefile(output) for path in shards):
        raise UsageError(str(output), "is one of the shards", "Name another file with -o.")
    if output.is_dir():
        raise UsageError(str(output), "is a folder", "Name a file in it.")
    if output.exists() and not force:
        raise UsageError(str(output), "is there already", _TAKEN)


# --- reading a shard --------------------------------------------------------------------------------------------------


def _examine(path: Path, place: int, progress: Callable[[str, int], None]) -> _Source:
    """Read a shard's file through, once: is every line a result of this shard, and are they in the order of rows?"""
    try:
        return _read_through(path, place, progress)
    except OSError as error:
        raise ResultsFileError(str(path), f"cannot be read ({error.strerror or error})") from error


def _read_through(path: Path, place: int, progress: Callable[[str, int], None]) -> _Source:
    with open_to_read(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultsFileError(
                str(path), "a batch is still writing to it", "Merge when all shards are done."
            ) from None
        except OSError:
            pass  # A disk that cannot lock, where no batch can be writing: it would have refused.
        first = file.readline()
        header = header_of(path, first)
        shard = None if header.shard is None else parse_shard(header.shard)
        end, last_row, in_order, torn = len(first), 0, True, False
        for number, line in enumerate(file, 2):
            if not line.endswith(b"\n"):
                torn = True  # Whoever wrote it was stopped in the middle.
                break
            row = _checked(line, f"{path} line {number}", shard)
            in_order = in_order and row > last_row
            last_row = row
            end += len(line)
            if number % _SAY_AFTER == 0:
                progress(f"reading {path.name}", number)
    return _Source(
        path=path, place=place, header=header, start=len(first), end=end, in_order=in_order, torn=torn
    )


def _checked(line: bytes, where: str, shard: Shard | None) -> int:
    """The row of a result's line, which is one of `shard`."""
    try:
        data = strict_json(line)
    except (ValueError, RecursionError) as error:
        raise InputError(where, f"is not JSON: {error}", "Take the file as batch has written it.") from None
    row, name = (data.get("row"), data.get("id")) if isinstance(data, dict) else (None, None)
    if type(row) is not int or row < 1 or not isinstance(name, str):
        raise InputError(where, f"{excerpt(line.decode(errors='replace'))} is no result with a row and an id")
    # A row without an id of its own, and one that repeats an id, is named after its line.
    if shard is not None and not shard.holds(name) and not _OWN_ID.fullmatch(name):
        raise InputError(where, f"the id {excerpt(name)} is none of shard {shard}, which the header names")
    return row


def _row_of(line: bytes) -> int:
    plain = _ROW.match(line)
    return int(plain[1]) if plain else int(strict_json(line)["row"])


def _lines(source: _Source) -> Iterator[Entry]:
    with source.path.open("rb") as file:
        file.seek(source.start)
        at = source.start
        while at < source.end:
            line = file.readline()
            at += len(line)
            yield _row_of(line), source.place, line


# --- the order of rows ------------------------------------------------------------------------------------------------


def _streams(source: _Source, folder: Path, progress: Callable[[str, int], None]) -> list[Iterator[Entry]]:
    """The results of a shard as streams, each in the order of rows; none is open before it is read."""
    if source.in_order:
        return [_lines(source)]
    pieces: list[Iterator[Entry]] = []
    piece: list[Entry] = []
    size = 0
    for done, entry in enumerate(_lines(source), 1):
        piece.append(entry)
        size += len(entry[2])
        if size >= PIECE_BYTES:
            pieces.append(_put_aside(sorted(piece), folder))
            piece, size = [], 0
            progress(f"sorting {source.path.name}", done)
    pieces.append(_put_aside(sorted(piece), folder))
    return pieces


def _together(streams: list[Iterator[Entry]], folder: Path) -> Iterator[Entry]:
    """One stream in the order of rows, with no more than `STREAMS` files open at a time."""
    while len(streams) > STREAMS:
        streams = [*streams[STREAMS:], _put_aside(heapq.merge(*streams[:STREAMS]), folder)]
    return heapq.merge(*streams)


def _put_aside(entries: Iterable[Entry], folder: Path) -> Iterator[Entry]:
    descriptor, name = tempfile.mkstemp(dir=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(b"%d %d %s" % entry for entry in entries)
    return _read_aside(Path(name))


def _read_aside(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for line in file:
            row, place, result = line.split(b" ", 2)
            yield int(row), int(place), result
    path.unlink()


# --- writing ----------------------------------------------------------------------------------------------------------


def _write(
    entries: Iterator[Entry],
    file: BinaryIO,
    sources: Sequence[_Source],
    rows: int | None,
    progress: Callable[[str, int], None],
) -> Merged:
    """Write each row once, and note which are not there and which are there again."""
    last = results = missing = doubles = 0
    spans: list[tuple[int, int]] = []
    named: dict[int, list[str]] = {}
    previous, again = "", False
    for row, place, line in entries:
        name = str(sources[place].path)
        if row == last:
            doubles += not again
            again = True
            if row in named or len(named) < NAMED:
                named.setdefault(row, [previous]).append(name)
            continue
        if row > last + 1:
            missing += row - last - 1
            spans += [(last + 1, row - 1)] if len(spans) < NAMED else []
        file.write(line)
        last, previous, again = row, name, False
        results += 1
        if results % _SAY_AFTER == 0:
            progress("writing", results)
    if rows is not None and last > rows:
        raise UsageError(
            "--rows", f"{rows} is below row {last}, which is there", "Give the number of all rows."
        )
    if rows is not None and last < rows:
        missing += rows - last
        spans += [(last + 1, rows)] if len(spans) < NAMED else []
    return Merged(
        results=results,
        written=False,
        missing=missing,
        missing_rows=tuple(spans),
        doubles=doubles,
        double_rows=tuple(Double(row=row, files=tuple(files)) for row, files in named.items()),
    )


def _missing_shards(sources: Sequence[_Source]) -> tuple[str, ...]:
    """The shards of which no file is there.

    Raises:
        UsageError: the files are not shards of one and the same number.
    """
    shards = {str(source.path): source.header.shard for source in sources}
    parsed = {name: parse_shard(text) for name, text in shards.items() if text is not None}
    if not parsed:
        return ()
    (first_name, first), *others = parsed.items()
    for name, shard in others:
        if shard.total != first.total:
            raise UsageError(
                name,
                f"is shard {shard}, and {first_name} is shard {first}",
                "Merge shards of one job: the number of shards decides which rows are in each.",
            )
    if len(parsed) < len(shards):
        return ()  # A file without a shard may hold any rows; the rows themselves say what is missing.
    there = {shard.index for shard in parsed.values()}
    return tuple(f"{index}/{first.total}" for index in range(1, first.total + 1) if index not in there)


def _put_in_place(whole: Path, output: Path, *, force: bool) -> None:
    """Give the file its name, in one step."""
    if force:
        whole.replace(output)
    else:
        try:
            os.link(whole, output)  # Unlike a rename, it replaces nothing that came in between.
        except FileExistsError:
            raise UsageError(str(output), "is there already", _TAKEN) from None
        except OSError:  # A disk without second names.
            whole.replace(output)
    sync_folder(output.parent)
