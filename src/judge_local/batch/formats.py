"""Records as they stand in a file: JSON Lines, CSV, TSV or Parquet, plain or gzip, from a file or standard input.

* Streamed: no more than a few records are in memory, however long the file is.
* A record that cannot be read is a record with its fault; the ones behind it are read all the same. What is wrong with
  the whole file (no header, no such format, damaged gzip) is raised.
* UTF-8 and nothing else, by the rule of `subject`; a byte order mark is dropped.
"""

from __future__ import annotations

import csv
import gzip
import io
import shutil
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

from judge_local.answer_text import strict_json
from judge_local.errors import InputError, UsageError, excerpt
from judge_local.subject import STDIN, TEXT_LIMIT_BYTES

FORMATS: Final = ("jsonl", "csv", "tsv", "parquet")
_SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_GZIP: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_OTHERS: Final = {
    b"PAR1": "parquet",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PK\x03\x04": "a zip archive",
}
_OTHER_REMEDY: Final = "Say what it is with --format, or convert it to UTF-8: iconv -f UTF-16 -t UTF-8"
_ROWS_AT_ONCE: Final = 256
_LINE_LIMIT: Final = 4 * TEXT_LIMIT_BYTES
"""The longest line read, in bytes: subject, claim and reference at their longest, with room for JSON's escapes."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record, or what is wrong with it."""

    line: int
    """The line it begins at, from 1; in Parquet, where there are no lines, its count."""
    fields: Mapping[str, Any]
    fault: str | None = None
    """Why there are no fields, or not all of them; None where nothing is wrong."""


class Source:
    """One file of records, or standard input.

    Args:
        path: a file's path, or `-`.
        kind: one of `FORMATS`; None takes the file's name, and JSON Lines for standard input.

    Raises:
        UsageError: the name does not say the format.
    """

    def __init__(self, path: str, kind: str | None = None) -> None:
        self.path = path
        self.kind = kind or _kind(path)
        self.columns: tuple[str, ...] | None = None
        """The names in the header, once it has been read; None for JSON Lines, which has none."""
        self.count = 0
        """Records read so far, whatever shard they are in."""
        self._size = 0
        self._raw: IO[bytes] | None = None

    @property
    def folder(self) -> Path:
        """Where paths in the records start from."""
        return Path.cwd() if self.path == STDIN else Path(self.path).parent

    def check(self) -> None:
        """See that there is a file at all, before anything that takes long.

        Raises:
            InputError: there is none.
        """
        path = Path(self.path)
        if self.path == STDIN:
            return
        if path.is_dir():
            raise InputError("rows", f"{self.path!r} is a folder", "Name one file in it.")
        if not path.exists():
            raise InputError("rows", f"there is no file {self.path!r}", "Check the path.")

    def share_read(self) -> float | None:
        """How much of the file has been read, 0..1; None where that cannot be known."""
        try:
            return min(1.0, self._raw.tell() / self._size) if self._raw is not None and self._size else None
        except (OSError, ValueError):  # A pipe has no position, and neither has a file that is closed.
            return None

    def records(self) -> Generator[Record, None, None]:
        """Every record, in order.

        Raises:
            InputError: the file cannot be read, or is not what it should be.
        """
        try:
            with self._opened() as file:
                if self.kind == "parquet":
                    yield from self._parquet(file)
                elif self.kind == "jsonl":
                    yield from _json_lines(file)
                else:
                    yield from self._table(file, "," if self.kind == "csv" else "\t")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputError(self._name, f"its gzip data is damaged: {error}", "Pack it again.") from None
        except OSError as error:
            raise InputError(self._name, f"cannot be read: {error.strerror or error}") from error

    @property
    def _name(self) -> str:
        return "standard input" if self.path == STDIN else self.path

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """The file's bytes, unpacked."""
        raw: IO[bytes]
        if self.path == STDIN:
            raw = _standard_input()
        else:
            self.check()
            path = Path(self.path)
            raw = path.open("rb")
            self._size = path.stat().st_size if path.is_file() else 0
        self._raw = raw
        with raw:
            buffered = cast(io.BufferedReader, raw)
            head = buffered.peek(8)
            for magic, what in _OTHERS.items():
                if head.startswith(magic) and self.kind not in what:
                    raise InputError(self._name, f"is {what}, not {self.kind.upper()}", _OTHER_REMEDY)
            packed = head.startswith(_GZIP)
            yield cast(BinaryIO, gzip.GzipFile(fileobj=buffered) if packed else buffered)

    def _table(self, file: BinaryIO, delimiter: str) -> Iterator[Record]:
        csv.field_size_limit(_LINE_LIMIT)
        # A byte that is not UTF-8 becomes half a surrogate pair, so that it is the fault of its own row only.
        text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
        try:
            yield from self._lines_of_table(csv.reader(text, delimiter=delimiter, strict=True))
        finally:
            text.detach()  # The file is closed by whoever opened it.

    def _lines_of_table(self, reader: Any) -> Iterator[Record]:
        header = self._header(reader)
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield Record(line, {}, f"it cannot be read as {self.kind.upper()}: {error}")
                continue
            if cells is None:
                return
            if cells:
                # An empty cell is a value that is not there: this format has no other way to write that.
                fields = {name: cell for name, cell in zip(header, cells, strict=False) if cell}
                yield Record(line, fields, _table_fault(header, cells))

    def _header(self, reader: Iterator[list[str]]) -> list[str]:
        try:
            header = next(reader, [])
        except csv.Error as error:
            raise InputError(self._name, f"its header cannot be read: {error}") from None
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise InputError(self._name, f"its header names {excerpt(twice[0])} twice", "Rename one column.")
        if any(_not_utf8(name) for name in header):
            raise InputError(
                self._name, "its header is not UTF-8", "Convert it: iconv -f WINDOWS-1252 -t UTF-8"
            )
        self.columns = tuple(header)
        return header

    def _parquet(self, file: BinaryIO) -> Iterator[Record]:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise UsageError(
                "rows", "Parquet needs pyarrow", "Install it: pip install 'judge-local[parquet]'"
            ) from None
        with tempfile.TemporaryFile() as unpacked:
            if file is not self._raw or not file.seekable():
                # Its end is read first, so it must lie on a disk.
                shutil.copyfileobj(file, unpacked)
                file = cast(BinaryIO, unpacked)
            try:
                table = pyarrow.parquet.ParquetFile(file, pre_buffer=False)
                self.columns = tuple(table.schema_arrow.names)
                line = 0
                for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE):
                    for fields, fault in _cells(batch):
                        line += 1
                        yield Record(line, fields, fault)
            except pyarrow.ArrowException as error:
                raise InputError(self._name, f"is not Parquet: {excerpt(str(error))}") from None


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise InputError("rows", "standard input is closed", "Name a file, or pipe the rows in.")
    try:
        # A reader of its own: at exit, the interpreter waits for whoever holds that of `sys.stdin`.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:  # Put there by a program that has no file behind it.
        return io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))


def _kind(path: str) -> str:
    if path == STDIN:
        return "jsonl"
    suffixes = Path(path.lower()).suffixes
    last = (suffixes[:-1] if suffixes[-1:] == [".gz"] else suffixes)[-1:]
    kind = _SUFFIXES.get(last[0]) if last else None
    if kind is None:
        raise UsageError(path, "its name does not say what it holds", f"Say it: --format {'|'.join(FORMATS)}")
    return kind


def _json_lines(file: BinaryIO) -> Iterator[Record]:
    number = 0
    while data := file.readline(_LINE_LIMIT):
        number += 1
        if len(data) == _LINE_LIMIT and not data.endswith(b"\n"):
            while (rest := file.readline(_LINE_LIMIT)) and not rest.endswith(b"\n"):
                continue
            yield Record(number, {}, f"it is longer than {_LINE_LIMIT:,} bytes")
            continue
        if number == 1:
            data = data.removeprefix(_BOM)
        if data.strip():
            yield _json_record(number, data)


def _json_record(number: int, data: bytes) -> Record:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Record(number, {}, f"it is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}")
    try:
        fields = strict_json(text)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return Record(number, {}, f"it is not JSON: {why}")
    if not isinstance(fields, dict):
        return Record(number, {}, f"it is not a JSON object: {excerpt(text.strip())}")
    return Record(number, fields)


def _table_fault(header: Sequence[str], cells: Sequence[str]) -> str | None:
    if len(cells) > len(header):
        return f"it has {len(cells)} cells, and the header {len(header)}"
    broken = next((name for name, cell in zip(header, cells, strict=False) if _not_utf8(cell)), None)
    return None if broken is None else f"{excerpt(broken)} is not UTF-8"


def _not_utf8(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _cells(batch: Any) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Each row of a record batch as fields; a cell whose bytes are not text is the fault of its row."""
    try:
        yield from ((row, None) for row in batch.to_pylist())
    except UnicodeDecodeError:
        for index in range(batch.num_rows):
            fields, fault = {}, None
            for name in batch.schema.names:
                try:
                    fields[name] = batch[name][index].as_py()
                except UnicodeDecodeError:
                    fault = f"{excerpt(name)} is not UTF-8"
            yield fields, fault
