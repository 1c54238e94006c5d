"""Claims as they come from the command line: `--claim` texts, and files with one claim a line or JSON Lines.

A file is JSON Lines when its name ends in `.jsonl` or its first line is a JSON object; then every line must be one, with
a `claim`. In both kinds blank lines are nothing. A claim of nothing is refused, never skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from judge_local.errors import InputError, UsageError, excerpt
from judge_local.subject import read_text

_OF_A_ROW: Final = ("subject", "subject_file", "subjectFile")
"""Keys of a batch row that a claim cannot have: all claims of one call are about one subject."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim to judge, with what its line carried."""

    row: int
    """From 1, over all claims of the call."""
    id: str
    text: str
    reference: str | None = None
    """The claim's own reference; None takes the call's."""
    label: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def read_claims(texts: Sequence[str], path: str | None) -> tuple[Claim, ...]:
    """The claims of one call: first those given as `texts`, then those in the file at `path`.

    Raises:
        UsageError: there is no claim, or one is empty.
        InputError: the file cannot be read, or a line of it is not a claim.
    """
    claims = [
        Claim(row=row, id=f"claim:{row}", text=_meant(text, f"--claim {row}"))
        for row, text in enumerate(texts, 1)
    ]
    if path is not None:
        content = read_text(path, what="claims")
        claims.extend(_from_file(path, content, first_row=len(claims) + 1))
        if len(claims) == len(texts):
            raise InputError("claims", f"{path!r} holds no claim", "Write one claim a line.")
    if not claims:
        raise UsageError(
            "--claim", "no claim was given", 'Say what to decide: --claim "The text names a date."'
        )
    return tuple(claims)


def strict_json(text: str) -> Any:
    """`text` as JSON, where a repeated key and NaN are faults and not the last one wins.

    Raises:
        ValueError: `text` is not JSON; the message says where.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} stands twice")
        return found

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _from_file(path: str, content: str, first_row: int) -> Iterator[Claim]:
    # `splitlines` would also break at characters that may stand inside a JSON string or a claim.
    lines = [(number, line.strip()) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    if path.endswith(".jsonl") or (lines and _is_object(lines[0][1])):
        yield from _from_json_lines(lines, first_row)
    else:
        for row, (number, line) in enumerate(lines, first_row):
            yield Claim(row=row, id=f"line:{number}", text=line)


def _from_json_lines(lines: Iterable[tuple[int, str]], first_row: int) -> Iterator[Claim]:
    seen: set[str] = set()
    for row, (number, line) in enumerate(lines, first_row):
        where = f"claims line {number}"
        try:
            data = strict_json(line)
        except ValueError as error:
            raise InputError(
                where, f"{excerpt(line)} is not JSON: {error}", 'Write {"claim": "…"}.'
            ) from None
        if not isinstance(data, dict) or not isinstance(data.get("claim"), str):
            raise InputError(where, f"{excerpt(line)} has no text under 'claim'", 'Write {"claim": "…"}.')
        for key in _OF_A_ROW:
            if key in data:
                raise InputError(
                    where, f"it brings its own {key!r}", "All claims here are about the one SUBJECT."
                )
        for key in ("reference", "label"):
            if not isinstance(data.get(key, ""), str):
                raise InputError(where, f"{key} is {excerpt(data[key])}, not a string")
        name = data.get("id")
        # A repeated or missing id must not make two decisions look like one.
        if not isinstance(name, str) or name in seen:
            name = f"line:{number}"
        seen.add(name)
        yield Claim(
            row=row,
            id=name,
            text=_meant(data["claim"], where),
            reference=data.get("reference"),
            label=data.get("label"),
            meta={k: v for k, v in data.items() if k not in {"id", "claim", "reference", "label"}},
        )


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _meant(text: str, where: str) -> str:
    """`text`, which must say something that UTF-8 can write."""
    if not text.strip():
        raise UsageError(where, f"the claim {excerpt(text)} is empty", "Say what to decide.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            where, f"the claim is not UTF-8 at character {error.start}", "Write it in UTF-8."
        ) from None
    return text
