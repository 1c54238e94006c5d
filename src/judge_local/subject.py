"""Text from outside: a file, or standard input, read whole under one rule.

* UTF-8, and nothing else. A byte order mark is dropped; line endings stay as they are.
* What is not text is refused with the command that turns it into text. Nothing is decoded by guessing.
* Nothing is cut: a text over `TEXT_LIMIT_BYTES` is refused before it is read to its end.
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from judge_local.errors import EmptySubjectError, InputError

TEXT_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""The longest text read, in bytes; far beyond any model's context, so that an endless device ends in a message."""

STDIN: Final = "-"
"""The path that means standard input."""


@dataclass(frozen=True, slots=True)
class Signature:
    """How a file that is not text begins, and what to do about it."""

    magic: bytes
    name: str
    remedy: str
    """A sentence; `{path}` stands for the file."""


# Longest first where one begins another: UTF-32 little endian begins like UTF-16 little endian.
_SIGNATURES: Final = (
    Signature(b"\xff\xfe\x00\x00", "UTF-32 text", "Convert it: iconv -f UTF-32 -t UTF-8 {path}"),
    Signature(b"\x00\x00\xfe\xff", "UTF-32 text", "Convert it: iconv -f UTF-32 -t UTF-8 {path}"),
    Signature(b"\xff\xfe", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 {path}"),
    Signature(b"\xfe\xff", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 {path}"),
    Signature(b"%PDF-", "a PDF", "Convert it: pdftotext {path} -"),
    Signature(b"\x1f\x8b", "gzip data", "Unpack it: gzip -dc {path}"),
    Signature(b"BZh", "bzip2 data", "Unpack it: bzip2 -dc {path}"),
    Signature(b"\xfd7zXZ\x00", "xz data", "Unpack it: xz -dc {path}"),
    Signature(b"\x28\xb5\x2f\xfd", "zstd data", "Unpack it: zstd -dc {path}"),
    Signature(
        b"PK\x03\x04",
        "a zip archive (an office document is one too)",
        "Unpack it with unzip, or convert a document: pandoc -t plain {path}",
    ),
    Signature(b"\xd0\xcf\x11\xe0", "an old office document", "Convert it: soffice --convert-to txt {path}"),
    Signature(b"GGUF", "a GGUF model", "Name a model with --model; the subject is the text to judge."),
    Signature(b"\x89PNG", "a PNG image", "Judge the text in it: tesseract {path} -"),
    Signature(b"\xff\xd8\xff", "a JPEG image", "Judge the text in it: tesseract {path} -"),
    Signature(b"\x7fELF", "a program", "Name a text file."),
)

_BOM: Final = b"\xef\xbb\xbf"


def read_text(path: str | Path, *, what: str = "subject") -> str:
    """The text of the file at `path`, or of standard input where `path` is `-`.

    Args:
        path: a file's path, or `-`.
        what: what the text is for, for messages: `subject`, `claims`, `schema`.

    Raises:
        InputError: there is no such file, it cannot be read, or it is not UTF-8 text.
    """
    name = str(path)
    if name == STDIN:
        if sys.stdin is None:
            raise InputError(what, "standard input is closed", "Name a file, or pipe the text in.")
        return decode(_read_whole(sys.stdin.buffer, what, "standard input"), what=what)
    if not name:
        raise InputError(what, "its path is empty", "Name a file, or `-` for standard input.")
    try:
        with Path(path).open("rb") as file:
            data = _read_whole(file, what, repr(name))
    except FileNotFoundError:
        raise InputError(what, f"there is no file {name!r}", _near_misses(Path(path))) from None
    except IsADirectoryError:
        raise InputError(what, f"{name!r} is a folder", "Name one file in it.") from None
    except PermissionError:
        raise InputError(what, f"{name!r} may not be read by you", f"Look at: ls -l {name}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path.
        reason = getattr(error, "strerror", None) or error
        raise InputError(what, f"{name!r} cannot be read: {reason}") from error
    return decode(data, what=what, path=name)


def read_subject(path: str | Path) -> str:
    """The subject at `path`, by the rule of `read_text`.

    Raises:
        InputError: it cannot be read as text.
        EmptySubjectError: it is empty, or only whitespace.
    """
    text = read_text(path)
    if not text.strip():
        place = "standard input" if str(path) == STDIN else repr(str(path))
        state = "holds only whitespace" if text else "is empty"
        raise EmptySubjectError("subject", f"{place} {state}", "There is nothing to judge.")
    return text


def decode(data: bytes, *, what: str = "subject", path: str = STDIN) -> str:
    r"""`data` as text, without its byte order mark.

    >>> decode(b"\xef\xbb\xbfone\r\ntwo")
    'one\r\ntwo'

    Args:
        data: the bytes as they were read.
        what: what the text is for, for messages.
        path: where `data` came from, for messages; `-` is standard input.

    Raises:
        InputError: `data` is not UTF-8 text; the message names the conversion to run.
    """
    place, file = ("standard input", "FILE") if path == STDIN else (repr(path), path)
    try:
        text = data.removeprefix(_BOM).decode("utf-8")
        offset = data.find(b"\x00")
    except UnicodeDecodeError as error:
        text, offset = None, error.start + (len(_BOM) if data.startswith(_BOM) else 0)
    # A PDF may be clean UTF-8 all the same, and its source is not what anyone wants judged.
    if text is not None and offset < 0 and not data.startswith(b"%PDF-"):
        return text
    for signature in _SIGNATURES:
        if data.startswith(signature.magic):
            raise InputError(
                what, f"{place} is {signature.name}, not UTF-8 text", signature.remedy.format(path=file)
            )
    if b"\x00" in data:
        raise InputError(what, f"{place} holds a NUL byte at offset {data.index(0)}", _nul_remedy(data, file))
    raise InputError(
        what,
        f"{place} is not UTF-8: byte 0x{data[offset]:02x} at offset {offset}",
        f"Convert it from the encoding it has, such as: iconv -f WINDOWS-1252 -t UTF-8 {file}",
    )


def _read_whole(file: BinaryIO, what: str, shown: str) -> bytes:
    data = file.read(TEXT_LIMIT_BYTES + 1)
    if len(data) > TEXT_LIMIT_BYTES:
        raise InputError(
            what,
            f"{shown} is longer than {TEXT_LIMIT_BYTES:,} bytes, more than any model reads at once",
            "Nothing is ever cut: judge a part of it.",
        )
    return data


def _nul_remedy(data: bytes, file: str) -> str:
    """What to do about NUL bytes: in UTF-16 without a mark every second byte of plain letters is one."""
    half = max(len(data) // 2, 1)
    for offset, encoding in ((1, "UTF-16LE"), (0, "UTF-16BE")):
        if data[offset::2].count(0) > 0.4 * half and data[1 - offset :: 2].count(0) < 0.1 * half:
            return f"It looks like {encoding}: iconv -f {encoding} -t UTF-8 {file}"
    return "It is binary: judge a text made from it."


def _near_misses(path: Path) -> str:
    """Names beside `path` that differ little from it; a courtesy, so a folder that cannot be listed has none."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return "Check the path."
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.7)
    return (
        f"Did you mean {' or '.join(repr(str(path.parent / name)) for name in near)}?"
        if near
        else "Check the path."
    )
