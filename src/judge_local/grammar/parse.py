"""JSON text or a Python mapping, read into one ordered value whose numbers are exact.

* A number is a `Decimal` made of the digits in the text, never a float: `0.1` is one tenth. A float in a mapping counts
  as its `repr`.
* Objects keep the order of their keys, and a repeated key is refused.
* What JSON cannot say is refused: NaN, infinities, lone surrogates, keys that are not strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from judge_local.errors import InvalidSchemaError, excerpt

Json: TypeAlias = "bool | str | Decimal | list[Json] | dict[str, Json] | None"

MAX_NESTING: Final = 64
"""A schema nested deeper than this is refused, so that no reader of it runs out of stack."""
MAX_EXPONENT: Final = 308
"""A number whose first digit stands further than this many places from the point is refused."""


def read_schema(source: str | Mapping[str, object] | bool) -> Json:
    """Read a schema from JSON text or from a mapping.

    Raises:
        InvalidSchemaError: not JSON, a repeated key, or a value that JSON does not have.
    """
    if isinstance(source, str):
        value: object = _loads(source)
    elif isinstance(source, Mapping | bool):
        value = source
    else:
        raise InvalidSchemaError("schema", f"{excerpt(source)} is neither JSON text nor a mapping")
    return _checked(value, "", 0)


def to_plain(value: Json) -> object:
    """`value` as validators want it: whole numbers are `int`, the others stay exact `Decimal`s."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else value
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def number_text(value: Decimal) -> str:
    """The canonical spelling: no exponent, no trailing zeros, no `-0`.

    >>> number_text(Decimal("1.50")), number_text(Decimal("1E+3")), number_text(Decimal("-0.0"))
    ('1.5', '1000', '0')
    """
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "0") else text


def canonical(value: Json, separators: tuple[str, str] = (",", ":")) -> str:
    r"""`value` as the one JSON text that a grammar admits for it: raw characters, short escapes, keys in order.

    >>> canonical({"b": [Decimal("1.0"), "é\n"]})
    '{"b":[1,"é\\n"]}'
    """
    comma, colon = separators
    if isinstance(value, Decimal):
        return number_text(value)
    if isinstance(value, list):
        return "[" + comma.join(canonical(item, separators) for item in value) + "]"
    if isinstance(value, dict):
        pairs = (string_text(key) + colon + canonical(item, separators) for key, item in value.items())
        return "{" + comma.join(pairs) + "}"
    return string_text(value) if isinstance(value, str) else json.dumps(value)


def string_text(value: str) -> str:
    r"""`value` as a JSON string: raw characters, `\" \\ \n \t \r \b \f`, other C0 controls as `\u00xx`."""
    return json.dumps(value, ensure_ascii=False)


def is_text(value: str) -> bool:
    """Whether `value` can be written in UTF-8: it holds no lone surrogate."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def escape_pointer(token: str) -> str:
    """`token` as one step of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def _loads(text: str) -> object:
    try:
        return json.loads(
            text,
            parse_float=Decimal,
            parse_int=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_ordered,
        )
    except json.JSONDecodeError as error:
        where = f"schema, line {error.lineno}, column {error.colno}"
        raise InvalidSchemaError(where, f"not JSON: {error.msg}") from None
    except RecursionError:
        raise _too_deep() from None


def _refuse_constant(name: str) -> None:
    raise InvalidSchemaError("schema", f"{name} is not JSON", "Write a number.")


def _ordered(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidSchemaError(
                "schema", f"the key {excerpt(key)} stands twice in one object", "Keep one."
            )
        found[key] = value
    return found


def _too_deep() -> InvalidSchemaError:
    return InvalidSchemaError("schema", f"nested deeper than {MAX_NESTING} levels", "Flatten it.")


def _checked(value: object, pointer: str, depth: int) -> Json:
    if depth > MAX_NESTING:
        raise _too_deep()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, pointer)
    if isinstance(value, int | float | Decimal):
        return _number(value, pointer)
    if isinstance(value, Mapping):
        found: dict[str, Json] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidSchemaError(pointer or "schema", f"the key {excerpt(key)} is not a string")
            name = _text(key, pointer)
            found[name] = _checked(item, f"{pointer}/{escape_pointer(name)}", depth + 1)
        return found
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_checked(item, f"{pointer}/{index}", depth + 1) for index, item in enumerate(value)]
    raise InvalidSchemaError(pointer or "schema", f"{excerpt(value)} is not a JSON value")


def _text(value: str, pointer: str) -> str:
    if not is_text(value):
        raise InvalidSchemaError(
            pointer or "schema",
            f"{excerpt(ascii(value))} holds a lone surrogate",
            "Write the character itself.",
        )
    # An enumeration member that is a string is read as its value.
    return str.__str__(value)


def _number(value: float | Decimal, pointer: str) -> Decimal:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidSchemaError(pointer or "schema", f"{value} is not JSON", "Write a number.")
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        raise InvalidSchemaError(pointer or "schema", f"{value} is not JSON", "Write a number.")
    if (exact and abs(exact.adjusted()) > MAX_EXPONENT) or abs(
        int(exact.as_tuple().exponent)
    ) > 2 * MAX_EXPONENT:
        raise InvalidSchemaError(
            pointer or "schema",
            f"the number {excerpt(str(exact))} is out of range",
            f"Its first digit may stand at most {MAX_EXPONENT} places from the point.",
        )
    return exact
