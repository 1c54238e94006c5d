"""The judge's own way to compile a verdict schema: every field, in the order that serves judging, none too long.

* Reasons before the answer: `claim`, `observed` and `reasoning` are written before `match`.
* A string without a `maxLength` gets one that keeps answers short; a `maxLength` of the schema's own stands.
* Numbers have two decimals, every property is written, and no key stands that is not declared.

All of it only narrows the schema, and stands in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from judge_local.grammar.compile import Grammar, compile_with
from judge_local.grammar.parse import read_schema
from judge_local.grammar.settings import Settings

DECODE_ORDER: Final = ("claim", "observed", "reasoning", "match", "confidence")
STRING_CHARS: Final = 400
"""A string without `maxLength` is at most this many characters long."""
REASONING_CHARS: Final = 600
"""The same for `reasoning`."""
DECIMALS: Final = 2

_LIMITS: Final = MappingProxyType({"/reasoning": REASONING_CHARS})


def compile_verdict(
    schema: str | Mapping[str, object],
    *,
    order: Iterable[str] | None = None,
    pin: Mapping[str, str] | None = None,
    checked: Iterable[str] = (),
) -> Grammar:
    """Compile a verdict schema as the judge does.

    Args:
        schema: JSON text, or a mapping.
        order: top-level properties to write first; None is `DECODE_ORDER`, as far as the schema has them.
        pin: top-level string properties and the one value each may have; a pinned string may be of any length.
        checked: refused keywords to leave to the validator, by name.

    Raises:
        SchemaError: as `compile_schema`.
        UsageError: as `compile_schema`.
    """
    document = read_schema(schema)
    declared = document.get("properties") if isinstance(document, dict) else None
    names = declared if isinstance(declared, dict) else {}
    settings = Settings(
        order=tuple(order) if order is not None else tuple(name for name in DECODE_ORDER if name in names),
        optional="emit",
        additional="deny",
        checked=frozenset([checked] if isinstance(checked, str) else checked),
        pin=dict(pin or {}),
        unbounded_string=STRING_CHARS,
        bound_patterns=True,
        string_limits=_LIMITS,
        decimals=DECIMALS,
    )
    return compile_with(schema, settings)
