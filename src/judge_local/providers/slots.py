"""The slot of a request: which options a property has, and how an answer would begin that has it first.

Pure: a request and grammars in, the engine's `Slot` out. Only options that are strings are scored: what ends a number is
not known before the next character, so their probabilities would not be those of the options alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from judge_local.errors import UsageError, excerpt
from judge_local.providers.base import CompletionRequest

if TYPE_CHECKING:
    from judge_local.engine.protocol import Slot
    from judge_local.grammar import Grammar

BEFORE: Final = "before"
SLOT: Final = "slot"
PLACES: Final = (BEFORE, SLOT)
"""Where probabilities are read: before anything is written, and where the answer writes the property."""


def slot_of(
    request: CompletionRequest, *, places: tuple[str, ...], slot_first: Callable[[str], Grammar]
) -> Slot | None:
    """What to ask the engine about `request.slot`; None where there is nothing to ask.

    Args:
        request: one question.
        places: where probabilities are wanted.
        slot_first: compiles the schema so that an answer begins with the property named.

    Raises:
        UsageError: scores or a bias are asked for that cannot be had of this schema.
    """
    from judge_local.engine.protocol import Slot

    bias = {option: float(value) for option, value in (request.option_bias or {}).items() if value}
    options = options_at(request.schema, request.slot)
    _check_bias(bias, options, request.slot)
    if len(options) < 2:
        if request.score_only:
            raise UsageError(
                "score_only",
                f"{request.slot} is no property with two options that are strings",
                "Name such a property.",
            )
        return None
    lead = grammar = ""
    if BEFORE in places or request.score_only:
        lead, grammar = _beginning(request, options, slot_first)
        if request.score_only and not lead:
            raise UsageError(
                "score_only",
                f"no answer under this schema can begin with {request.slot}",
                "Change the schema.",
            )
    here = SLOT in places and not request.score_only
    if not (lead or here or bias):
        return None
    return Slot(pointer=request.slot, options=options, here=here, grammar=grammar, lead=lead, bias=bias)


def options_at(schema: Mapping[str, Any], pointer: str) -> tuple[str, ...]:
    """The options of the enum property at `pointer` (keys of nested objects); empty unless all of them are strings.

    >>> options_at({"properties": {"match": {"enum": ["pass", "fail"]}}}, "/match")
    ('pass', 'fail')
    """
    node: Any = schema
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        properties = _followed(node, schema).get("properties")
        node = properties.get(key) if isinstance(properties, Mapping) else None
    options = _followed(node, schema).get("enum")
    if not pointer.startswith("/") or not isinstance(options, list | tuple):
        return ()
    return tuple(dict.fromkeys(options)) if all(isinstance(option, str) for option in options) else ()


def _followed(node: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """`node`, or what its local `$ref` leads to; empty where that is no object."""
    seen: set[str] = set()
    while isinstance(node, Mapping) and isinstance(ref := node.get("$ref"), str) and ref not in seen:
        seen.add(ref)
        found: Any = schema if ref == "#" or ref.startswith("#/") else None
        for part in ref.split("/")[1:]:
            found = (
                found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
            )
        node = found
    return node if isinstance(node, Mapping) else {}


def _beginning(
    request: CompletionRequest, options: tuple[str, ...], slot_first: Callable[[str], Grammar]
) -> tuple[str, str]:
    """How an answer begins up to the value of the slot, and the grammar of such answers; both empty where none can."""
    keys = [part.replace("~1", "/").replace("~0", "~") for part in request.slot.split("/")[1:]]
    declared = request.schema.get("properties")
    if not isinstance(declared, Mapping) or keys[0] not in declared:
        return "", ""
    grammar = slot_first(keys[0])
    lead = "".join(f"{{{json.dumps(key, ensure_ascii=False)}:" for key in keys)
    start = grammar.start().advance(lead.encode())
    fits = start is not None and all(
        start.advance(json.dumps(option, ensure_ascii=False).encode()) is not None for option in options
    )
    return (lead, grammar.gbnf) if fits else ("", "")


def _check_bias(bias: Mapping[str, float], options: tuple[str, ...], pointer: str) -> None:
    for option, value in bias.items():
        if option not in options:
            known = (
                f"Its options are {', '.join(options)}." if options else "It has no options that are strings."
            )
            raise UsageError("option_bias", f"{excerpt(option)} is no option of {pointer}", known)
        if not math.isfinite(value):
            raise UsageError(
                "option_bias", f"{value} for {excerpt(option)} is not a number", "Use a finite one."
            )
