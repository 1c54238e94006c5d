"""The text of an answer read as JSON, as strictly as it must be.

The answer is the whole text: an object inside prose may be one that the subject brought along, so nothing is searched.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from judge_local.errors import InvalidAnswerError, excerpt


def strict_json(text: str | bytes) -> Any:
    """`text` as JSON, refusing what `json.loads` lets through: NaN, infinities, and a key given twice.

    Raises:
        ValueError: it is not JSON, or one of these.
        RecursionError: it is nested too deeply to read.
    """
    return json.loads(text, object_pairs_hook=_unrepeated, parse_constant=_no_constant)


_FENCED: Final = re.compile(r"```[A-Za-z0-9]*[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


def extract_json(text: str) -> Any:
    """The JSON value that `text` is. One Markdown code fence around it is taken off; nothing else is.

    Raises:
        InvalidAnswerError: `text` is not JSON, repeats a key, or holds NaN or an infinity.
    """
    stripped = text.strip()
    fenced = _FENCED.fullmatch(stripped)
    try:
        return strict_json(fenced[1] if fenced else stripped)
    except (ValueError, RecursionError) as error:
        fault = InvalidAnswerError("answer", f"{excerpt(text)} is not JSON ({error})")
        fault.raw = text
        raise fault from None


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f"the key {excerpt(name)} stands there twice")
        names.add(name)
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")
