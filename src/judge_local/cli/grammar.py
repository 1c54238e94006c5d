"""`judge-local grammar`: the GBNF of a JSON Schema, what it enforces, and whether a text is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from judge_local.cli.parameters import FILE

if TYPE_CHECKING:
    from judge_local.cli.output import Line
    from judge_local.grammar import Grammar

_WINDOW: Final = 20
"""Characters shown before the place where a text departs."""
_COUNTABLE: Final = 10**12
"""An answer that may get longer than so many bytes has no length that anyone would read."""


@click.command(
    epilog="Exit code: 0; 1 when the text of --check is not accepted; 2 when the schema is refused."
)
@click.argument("schema", metavar="[SCHEMA|-]", type=FILE, required=False)
@click.option(
    "--explain", is_flag=True, help="Show what becomes of every keyword, and how long an answer can get."
)
@click.option(
    "--check",
    type=FILE,
    metavar="FILE|-",
    help="Say whether the text in FILE is accepted, or where it departs.",
)
@click.option(
    "--verdict",
    is_flag=True,
    help="Compile as `judge` does: all keys written, lengths bounded. Without SCHEMA, the canonical verdict.",
)
@click.option(
    "--optional",
    type=click.Choice(["allow", "emit"]),
    help="Whether a property that is not required may be left out (allow, the default) or is always written.",
)
@click.option(
    "--additional",
    type=click.Choice(["allow", "deny"]),
    help="Whether keys that are not declared may be written where the schema allows them. Default: allow.",
)
@click.option(
    "--any-order",
    is_flag=True,
    help="Let declared keys stand in any order, in objects with at most six of them.",
)
@click.option(
    "--unique",
    type=click.Choice(["refuse", "one"]),
    help="What becomes of items that must differ where no grammar can hold to that: the schema is refused (the "
    "default), or at most one item is written.",
)
@click.option(
    "--checked",
    multiple=True,
    metavar="KEYWORD",
    allow_from_autoenv=False,
    help="Leave KEYWORD to the validator. May be repeated.",
)
@click.option("--json", is_flag=True, help="Grammar, report and sizes as one JSON object.")
@click.pass_context
def grammar(
    ctx: click.Context,
    /,
    schema: str | None,
    explain: bool,
    check: str | None,
    verdict: bool,
    optional: Literal["allow", "emit"] | None,
    additional: Literal["allow", "deny"] | None,
    any_order: bool,
    unique: Literal["refuse", "one"] | None,
    checked: tuple[str, ...],
    json: bool,
) -> None:
    """Print the grammar of a JSON Schema, and what it enforces.

    The grammar admits nothing that the schema forbids. A keyword that it cannot hold to is refused, with its place and
    the reason. SCHEMA is a file, or - for standard input.
    """
    from judge_local.cli.output import Line, emit, emit_json, say, show
    from judge_local.errors import UsageError
    from judge_local.subject import STDIN, read_text

    if schema is None and not verdict:
        raise UsageError("SCHEMA", "no schema was named", "Name a file, or - for standard input.")
    if schema == STDIN == check:
        raise UsageError("SCHEMA and --check", "standard input is read once", "Put one of them into a file.")
    if verdict and (optional or additional or any_order or unique):
        raise UsageError(
            "--verdict",
            "it settles --optional, --additional, --any-order and --unique itself",
            "Leave them out.",
        )
    text = None if schema is None else read_text(schema, what="schema")
    if verdict:
        compiled = _verdict(text, checked)
    else:
        from judge_local.grammar import compile_schema

        assert text is not None
        compiled = compile_schema(
            text,
            optional=optional or "allow",
            additional=additional or "allow",
            checked=checked,
            property_order="any" if any_order else "schema",
            unique=unique or "refuse",
        )
    outcome, candidate = None, ""
    if check is not None:
        # An editor ends every file with a line end; it is not part of what was meant.
        candidate = read_text(check, what="check").removesuffix("\n").removesuffix("\r")
        outcome = departure(compiled, candidate)
    accepted = outcome is None
    if json:
        checking = {} if check is None else {"accepted": accepted}
        emit_json(
            {**_facts(compiled), **checking, **({} if outcome is None else {"departure": outcome.to_json()})},
            indent=2,
        )
    else:
        for warning in compiled.report.warnings:
            say(f"warning: {warning}")
        if explain:
            show(explanation(compiled))
        if check is not None:
            style = "green" if accepted else "red"
            show([Line("accepted" if outcome is None else f"not accepted: {outcome}", style=style)])
            if not accepted and _accepted_compactly(compiled, candidate):
                say("the same JSON without spaces is accepted: the grammar writes it compactly")
        if not explain and check is None:
            emit(compiled.gbnf.rstrip("\n"))
    ctx.exit(0 if accepted else 1)


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a text leaves a grammar."""

    offset: int
    """Characters before it."""
    line: int
    """From 1."""
    column: int
    """Characters, from 1."""
    before: str
    """What stands just before it."""
    found: str
    """The character that may not stand there; empty at the end of the text."""
    expected: str

    def __str__(self) -> str:
        found = repr(self.found) if self.found else "the end of the text"
        after = f" after {self.before!r}" if self.before else ""
        return f"line {self.line}, column {self.column}{after}: found {found}; expected {self.expected}"

    def to_json(self) -> dict[str, Any]:
        """The departure as a JSON object."""
        return {
            "offset": self.offset,
            "line": self.line,
            "column": self.column,
            "found": self.found,
            "expected": self.expected,
        }


def departure(compiled: Grammar, text: str) -> Departure | None:
    """Where `text` leaves the grammar, or None when it is accepted."""
    matcher = compiled.start()
    for offset, character in enumerate(text):
        after = matcher.advance(character.encode())
        if after is None:
            return _at(text, offset, character, matcher.expected())
        matcher = after
    return None if matcher.complete else _at(text, len(text), "", matcher.expected())


def _at(text: str, offset: int, found: str, expected: str) -> Departure:
    start = text.rfind("\n", 0, offset) + 1
    return Departure(
        offset=offset,
        line=text.count("\n", 0, offset) + 1,
        column=offset - start + 1,
        before=text[max(start, offset - _WINDOW) : offset],
        found=found,
        expected=expected,
    )


def _verdict(text: str | None, checked: tuple[str, ...]) -> Grammar:
    from judge_local.cli.call import verdict_schema
    from judge_local.grammar.profile import compile_verdict
    from judge_local.verdict import VERDICT_SCHEMA

    schema: Mapping[str, Any] = VERDICT_SCHEMA if text is None else verdict_schema(text, checked=checked)
    return compile_verdict(schema, checked=checked)


def _accepted_compactly(compiled: Grammar, text: str) -> bool:
    """Whether only the spaces of a JSON text keep it out of the grammar."""
    from json import dumps

    from judge_local.cli.claims import strict_json

    try:
        return compiled.accepts(dumps(strict_json(text), ensure_ascii=False, separators=(",", ":")))
    except ValueError:
        return False


def _facts(compiled: Grammar) -> dict[str, Any]:
    return {
        "gbnf": compiled.gbnf,
        "report": compiled.report.to_json(),
        "rules": _rules(compiled),
        "minBytes": compiled.min_bytes,
        "maxBytes": compiled.max_bytes,
        "maxChars": compiled.max_chars,
    }


def _rules(compiled: Grammar) -> int:
    return sum("::=" in line for line in compiled.gbnf.splitlines())


def explanation(compiled: Grammar) -> Iterator[Line]:
    """The lines of `--explain`: the report as a table, then the sizes."""
    from judge_local.cli.output import Line

    rows = [("schema", "keyword", "value", "enforced by", "detail")]
    rows += [
        (r.pointer or "(root)", r.keyword, r.place or "(root)", r.enforced_by, r.detail)
        for r in compiled.report.rows()
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for number, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield Line("  ".join([*cells, row[4]]).rstrip(), style="bold" if number == 0 else "")
    report = compiled.report
    if compiled.max_bytes is None or compiled.max_chars is None:
        longest = "no limit"
    elif compiled.max_bytes > _COUNTABLE:
        longest = "more than a terabyte"
    else:
        longest = f"{compiled.max_chars:,} characters, {compiled.max_bytes:,} bytes"
    yield Line("")
    yield Line(report.dialect, label="read as")
    yield Line(f"{_rules(compiled):,} rules, {len(compiled.gbnf.encode()):,} bytes", label="grammar")
    yield Line(f"{compiled.min_bytes:,} bytes at least, {longest} at most", label="answer")
    yield Line(
        f"{len(report.enforced)} enforced, {len(report.narrowed)} narrowed, {len(report.checked)} left to the validator, "
        f"{len(report.annotations)} annotations",
        label="keywords",
    )
