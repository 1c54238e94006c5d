"""From a schema to a grammar, step by step.

JSON text → ordered value → meta-schema check → nodes → rules → GBNF text → our own reader of GBNF. The language of the
grammar is a subset of the schema's, always; where it is a proper one, `Grammar.report` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from judge_local.errors import (
    InvalidSchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    UsageError,
    excerpt,
)
from judge_local.grammar.dialect import Evaluator, check_meta_schema, dialect_of
from judge_local.grammar.document import Document
from judge_local.grammar.emit import Ref
from judge_local.grammar.finish import finish, productive
from judge_local.grammar.keywords import ENFORCED, REFUSED
from judge_local.grammar.nodes import Goals
from judge_local.grammar.parse import Json, is_text, read_schema
from judge_local.grammar.places import Places
from judge_local.grammar.reader import Reader
from judge_local.grammar.recogniser import Matcher
from judge_local.grammar.report import Report
from judge_local.grammar.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """A schema's grammar: every text it admits is one JSON text, valid under the schema."""

    gbnf: str
    """The grammar in GBNF; its start rule is `root`."""
    report: Report
    min_bytes: int
    """The shortest text, in UTF-8 bytes."""
    max_bytes: int | None
    """The longest text, in UTF-8 bytes; None when there is no longest one."""
    max_chars: int | None
    """The longest text, in characters of the JSON text; None when there is no longest one."""

    @cached_property
    def _fresh(self) -> Matcher:
        # Our own reader reads the text back, so that nothing is followed but what the text says.
        return Matcher.from_gbnf(self.gbnf)

    def start(self) -> Matcher:
        """A matcher that has read nothing."""
        return self._fresh

    def accepts(self, text: str) -> bool:
        """Whether `text`, whole, belongs to the language."""
        matcher = self.start().advance(_bytes(text))
        return matcher is not None and matcher.complete

    def forced(self, prefix: str = "") -> str:
        """The characters that must follow `prefix`; empty where there is a choice, or the text may end.

        Raises:
            UsageError: no text of the language begins with `prefix`.
        """
        matcher = self.start().advance(_bytes(prefix))
        if matcher is None:
            raise UsageError("prefix", self.expected(prefix))
        return matcher.forced().decode()

    def expected(self, prefix: str = "") -> str:
        """What may follow `prefix`, in words; or where `prefix` leaves the language, and what was expected there."""
        matcher = self.start()
        for index, character in enumerate(prefix):
            after = matcher.advance(_bytes(character))
            if after is None:
                read = excerpt(prefix[:index][-40:])
                return f"after {read}, {excerpt(character)} is refused; expected {matcher.expected()}"
            matcher = after
        return matcher.expected()


def compile_schema(
    schema: str | Mapping[str, object],
    *,
    order: Iterable[str] | None = None,
    optional: Literal["allow", "emit"] = "allow",
    additional: Literal["allow", "deny"] = "allow",
    checked: Iterable[str] = (),
    pin: Mapping[str, str] | None = None,
    max_string: int = 4096,
    max_items: int = 256,
    max_depth: int = 10,
    decimals: int = 6,
    separators: tuple[str, str] = (",", ":"),
    unknown: Literal["annotate", "refuse"] = "annotate",
    formats: Literal["annotate", "strict"] = "annotate",
    property_order: Literal["schema", "any"] = "schema",
    unique: Literal["refuse", "one"] = "refuse",
) -> Grammar:
    """Compile a JSON Schema to a grammar whose language is a subset of the schema's.

    Args:
        schema: JSON text, or a mapping. Floats in a mapping count as their `repr`.
        order: top-level properties to write first, in this order; the others follow in the schema's order.
        optional: `"emit"` writes every property, required or not.
        additional: `"deny"` lets no key stand that is not declared.
        checked: refused keywords to leave to the validator, by name.
        pin: top-level string properties and the one value each may have.
        max_string: no string is longer than this many code points.
        max_items: no array is longer than this.
        max_depth: values without a schema of their own nest no deeper than this.
        decimals: digits after the point of a number, at most; more only where its bounds leave no room otherwise.
        separators: what stands after a value and after a key: `","` or `", "`, `":"` or `": "`.
        unknown: `"refuse"` refuses keywords of no vocabulary.
        formats: `"strict"` refuses a `format` that is not enforced.
        property_order: `"any"` lets the keys of an object that are known by name stand in any order, where there are
            at most six; more stand in the schema's order.
        unique: `"one"` writes at most one item where items must differ and no grammar can hold to that; otherwise
            such a schema is refused.

    Raises:
        InvalidSchemaError: not JSON, or not a JSON Schema.
        UnsupportedSchemaError: keywords that no grammar of ours enforces; all of them are listed.
        UnsatisfiableSchemaError: nothing satisfies the schema.
        UsageError: an option that cannot be meant.
    """
    caps = {"max_string": max_string, "max_items": max_items, "max_depth": max_depth, "decimals": decimals}
    for name, cap in caps.items():
        if cap < 0:
            raise UsageError(name, f"{cap} is below 0")
    settings = Settings(
        order=tuple(order or ()),
        optional=optional,
        additional=additional,
        checked=frozenset([checked] if isinstance(checked, str) else checked),
        pin=dict(pin or {}),
        max_string=max_string,
        unbounded_string=max_string,
        max_items=max_items,
        max_depth=max_depth,
        decimals=decimals,
        separators=separators,
        unknown=unknown,
        formats=formats,
        property_order=property_order,
        unique=unique,
    )
    return compile_with(schema, settings)


def compile_with(schema: str | Mapping[str, object], settings: Settings) -> Grammar:
    """Compile under `settings`; see `compile_schema`."""
    document = read_schema(schema)
    _check_settings(settings, document)
    dialect, unknown_uri = dialect_of(document)
    check_meta_schema(document, dialect)

    reader = Reader(Document(document, dialect), Evaluator(document, dialect), settings)
    if unknown_uri is not None:
        reader.findings.warnings.append(
            f"/$schema: {excerpt(unknown_uri)} is no known draft; read as {dialect}"
        )
    try:
        goals = reader.goals("", "")
        places, root = _written(reader, goals, settings)
    except RecursionError:
        raise InvalidSchemaError(
            "schema", "its references lead too deep to be followed", "Flatten it."
        ) from None
    rows, faults = reader.findings.rows, reader.findings.faults
    rank = reader.document.in_order([fault.pointer for fault in faults])
    if faults:
        raise UnsupportedSchemaError(tuple(sorted(faults, key=lambda fault: rank[fault.pointer])))
    live = productive(places.rules)
    if root.name not in live:
        where, reason = places.reason(root.name, live)
        raise UnsatisfiableSchemaError(where or "/", f"nothing satisfies the schema: {reason}")
    places.note_dead(live)
    rank = reader.document.in_order([row.pointer for row in rows])
    rows.sort(key=lambda row: rank[row.pointer])
    finished = finish(places.rules, root, live)
    return Grammar(
        gbnf=finished.gbnf,
        report=reader.findings.report(dialect),
        min_bytes=finished.extent.min_bytes,
        max_bytes=finished.extent.max_bytes,
        max_chars=finished.extent.max_chars,
    )


def _written(reader: Reader, goals: Goals, settings: Settings) -> tuple[Places, Ref]:
    if settings.optional == "emit":
        # What an optional property cannot be forced into is known only once everything was written freely.
        free = Places(reader, replace(settings, optional="allow"))
        free.write(goals)
        places = Places(reader, settings, free.skippable(productive(free.rules)))
    else:
        places = Places(reader, settings)
    return places, places.write(goals)


def _check_settings(settings: Settings, document: Json) -> None:
    for name, given, known in (
        ("optional", settings.optional, ("allow", "emit")),
        ("additional", settings.additional, ("allow", "deny")),
        ("unknown", settings.unknown, ("annotate", "refuse")),
        ("formats", settings.formats, ("annotate", "strict")),
        ("property_order", settings.property_order, ("schema", "any")),
        ("unique", settings.unique, ("refuse", "one")),
        ("separators[0]", settings.separators[0], (",", ", ")),
        ("separators[1]", settings.separators[1], (":", ": ")),
    ):
        if given not in known:
            raise UsageError(name, f"{excerpt(given)} is not known", f"Use {' or '.join(map(repr, known))}.")
    for keyword in sorted(settings.checked - ENFORCED - REFUSED.keys()):
        raise UsageError("checked", f"{excerpt(keyword)} is no keyword that a validator checks", "Remove it.")
    declared = document.get("properties") if isinstance(document, dict) else None
    names = list(declared) if isinstance(declared, dict) else []
    for option, name in [("order", name) for name in settings.order] + [
        ("pin", name) for name in settings.pin
    ]:
        if name not in names:
            listing = ", ".join(names) or "none"
            raise UsageError(option, f"{excerpt(name)} is not a top-level property", f"There are: {listing}.")
    if settings.order and settings.property_order == "any":
        raise UsageError(
            "order", "it asks for one order, and `property_order` for any", "Leave one of them out."
        )
    if len(set(settings.order)) < len(settings.order):
        raise UsageError("order", f"{excerpt(settings.order)} names a property twice")
    for name, text in settings.pin.items():
        if not isinstance(text, str) or not is_text(text):
            raise UsageError(f"pin {name!r}", f"{excerpt(text)} is not a text", "Only strings can be pinned.")


def _bytes(text: str) -> bytes:
    # A lone surrogate has no UTF-8; written this way the matcher refuses it.
    return text.encode("utf-8", "surrogatepass")
