"""The lines of a results file: read, written and compared, without a thought of who else is at the file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Final

from judge_local.errors import JudgeLocalError, ResultsFileError, UsageError, excerpt
from judge_local.results import Result, ResultsHeader

BUFFER_BYTES: Final = 1 << 20
"""Files are read and copied in pieces of this size."""

FREE_SETTINGS: Final = ("threads",)
"""Settings that results of one file may differ in."""


def header_differences(
    there: ResultsHeader, now: ResultsHeader, *, free: Iterable[str] = FREE_SETTINGS
) -> list[str]:
    """What sets two headers apart, each as `name: one, not the other`; empty where results may share a file.

    Args:
        there: the header that a file has.
        now: the one it would get.
        free: names that may differ, of settings and of the header's own fields (`shard`).
    """
    free = set(free)

    def facts(header: ResultsHeader) -> dict[str, Any]:
        data = header.to_json()
        settings = data.pop("settings")
        return {
            name: value
            for name, value in {**data, **{f"{key}": settings[key] for key in settings}}.items()
            if name not in free
        }

    one, other = facts(there), facts(now)
    return [
        f"{name}: {_shown(one.get(name))}, not {_shown(other.get(name))}"
        for name in {**one, **other}
        if one.get(name) != other.get(name)
    ]


def check_header(path: str | Path, there: ResultsHeader, now: ResultsHeader) -> None:
    """Refuse to put results under a header that says something else.

    Args:
        path: of the results file.
        there: its header.
        now: what the results to come are made with.

    Raises:
        UsageError: the two differ; the message names every difference.
    """
    differences = header_differences(there, now)
    if differences:
        raise UsageError(
            str(path),
            f"was made with other settings ({'; '.join(differences)})",
            "Use the same, name another file, or start over with --fresh; that keeps this file.",
        )


def open_to_read(path: Path) -> BinaryIO:
    """The file at `path`, open to be read.

    Raises:
        UsageError: there is none.
        ResultsFileError: it cannot be read.
    """
    try:
        return path.open("rb", buffering=BUFFER_BYTES)
    except FileNotFoundError:
        raise UsageError("results", f"there is no file {str(path)!r}", "Check the path.") from None
    except OSError as error:
        raise ResultsFileError(str(path), f"cannot be read ({error.strerror or error})") from error


def header_of(path: Path, line: bytes) -> ResultsHeader:
    """The header that the first line of the file at `path` is.

    Raises:
        UsageError: it is none.
    """
    if not line.startswith(b"{") or not line.endswith(b"\n"):
        raise no_results_file(path)
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise no_results_file(path) from None
    try:
        return ResultsHeader.from_json(data)
    except UsageError as error:
        raise UsageError(f"{path} line 1", error.problem, error.remedy) from None


def no_results_file(path: Path) -> UsageError:
    """The fault of a file that is not one of ours."""
    return UsageError(
        str(path), "holds something else than results", "Name another file; this one is left alone."
    )


def result_of(path: Path, number: int, line: bytes) -> Result:
    """The result that line `number` of the file at `path` is.

    Raises:
        UsageError: it is none, or its zone is one that its runs do not allow.
    """
    try:
        return Result.from_json(json.loads(line))
    except (ValueError, RecursionError):
        problem = f"{excerpt(line.decode('utf-8', 'replace').strip())} is not JSON"
    except JudgeLocalError as error:
        problem = error.problem
    raise UsageError(
        f"{path} line {number}", problem, "Repair or remove the line, or start over with --fresh."
    )


def line_of(data: Any) -> bytes:
    """`data` as one line, its end included."""
    # In ASCII, so that no character can end a line before its end.
    return json.dumps(data, allow_nan=False).encode("ascii") + b"\n"


def _shown(value: Any) -> str:
    return "nothing" if value is None else excerpt(value, 80)


def sync_folder(folder: Path) -> None:
    """Let the disk have the folder's entries too: a new file is not safe without its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
