"""The draft a schema is written in, its meta-schema, and the full evaluator of single values.

* Nothing is fetched: a reference that leads out of the document is a fault, never a download.
* A value counts as valid only if it is so both in exact decimals and in floats, because whoever reads the answer
  reads floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, Final

from judge_local.errors import InvalidSchemaError, excerpt
from judge_local.grammar.parse import Json, escape_pointer, to_plain

DEFAULT: Final = "2020-12"
_BY_URI: Final = {
    "json-schema.org/draft-03/schema": "draft-03",
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft/2020-12/schema": "2020-12",
}
_PRECISION: Final = 1400
"""Digits of exact arithmetic: twice the widest number that a schema may hold."""


class CannotEvaluateError(Exception):
    """A value could not be checked; the message is a clause that says why."""


def dialect_of(schema: Json) -> tuple[str, str | None]:
    """The draft named by `$schema`, and the URI when it names none that is known.

    Raises:
        InvalidSchemaError: a draft older than 4.
    """
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(uri, str):
        return DEFAULT, None
    name = _BY_URI.get(re.sub(r"^https?://|#$", "", uri))
    if name == "draft-03":
        raise InvalidSchemaError(
            "/$schema", f"{excerpt(uri)} is older than draft 4", "Rewrite it in a later draft."
        )
    return (name, None) if name else (DEFAULT, uri)


def check_meta_schema(schema: Json, dialect: str) -> None:
    """Hold `schema` to the meta-schema of its draft.

    Raises:
        InvalidSchemaError: it is not a schema; the message names the first fault and counts the others.
    """
    from jsonschema.exceptions import best_match

    cls = _validator_class(dialect)
    try:
        # No format checks here: a `format` is an annotation, in a meta-schema too.
        errors = list(cls(cls.META_SCHEMA).iter_errors(to_plain(schema)))
    except RecursionError:
        raise InvalidSchemaError("schema", "nested too deeply to be checked", "Flatten it.") from None
    if not errors:
        return
    worst = best_match(errors)
    where = "".join(f"/{escape_pointer(str(step))}" for step in worst.absolute_path) or "/"
    others = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    remedy = ""
    if dialect == DEFAULT and not (isinstance(schema, dict) and "$schema" in schema):
        remedy = "It was read as draft 2020-12; an older draft must be named in `$schema`."
    raise InvalidSchemaError(where, f"not a JSON Schema: {excerpt(worst.message)}{others}", remedy)


class Evaluator:
    """Checks single values against parts of one schema document, by every keyword that the validator knows."""

    def __init__(self, document: Json, dialect: str) -> None:
        self._document, self._dialect = document, dialect
        self._validators: dict[bool, Any] = {}

    def valid(self, value: Json, schema: Json) -> bool:
        """Whether `value` satisfies `schema`, which is a part of the document.

        Raises:
            CannotEvaluateError: a reference leads nowhere, or a pattern is not one.
        """
        return all(self._valid(value, schema, floats) for floats in (False, True))

    def _valid(self, value: Json, schema: Json, floats: bool) -> bool:
        convert = _to_floats if floats else to_plain
        if floats not in self._validators:
            from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # ships no types

            document = convert(self._document)
            self._validators[floats] = _validator_class(self._dialect)(document, registry=REGISTRY)
        with _evaluating():
            return bool(self._validators[floats].evolve(schema=convert(schema)).is_valid(convert(value)))


@contextmanager
def _evaluating() -> Iterator[None]:
    from referencing.exceptions import Unresolvable

    try:
        with localcontext() as context:
            context.prec = _PRECISION
            yield
    except Unresolvable as error:
        raise CannotEvaluateError(
            f"the reference {excerpt(str(error.ref))} leads nowhere in this document"
        ) from None
    except re.error as error:
        raise CannotEvaluateError(f"a pattern cannot be read: {error}") from None
    except RecursionError:
        raise CannotEvaluateError("its references never end") from None
    except ArithmeticError:
        raise CannotEvaluateError("its numbers are out of range") from None


def _validator_class(dialect: str) -> Any:
    import jsonschema

    return {
        "draft-04": jsonschema.Draft4Validator,
        "draft-06": jsonschema.Draft6Validator,
        "draft-07": jsonschema.Draft7Validator,
        "2019-09": jsonschema.Draft201909Validator,
        "2020-12": jsonschema.Draft202012Validator,
    }[dialect]


def _to_floats(value: Json) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list):
        return [_to_floats(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_floats(item) for key, item in value.items()}
    return value


@cache
def asserted(dialect: str) -> frozenset[str]:
    """The keywords that a validator of the draft acts on."""
    conditional = {"if"}  # Its branches are read with it.
    legacy = {"draft-04", "draft-06", "draft-07"}
    items = {"additionalItems"} if dialect in legacy | {"2019-09"} else set()
    return frozenset({*_validator_class(dialect).VALIDATORS, *conditional, *items} - {"then", "else"})
