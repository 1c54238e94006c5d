"""The chat API as data: what a request looks like, and what a reply says; nothing here sends anything."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from judge_local.answer_text import extract_json
from judge_local.errors import (
    ContextOverflowError,
    InvalidAnswerError,
    JudgeLocalError,
    RemoteError,
    RemoteRefusedError,
    TruncatedOutputError,
    excerpt,
)
from judge_local.failures import ErrorCategory, categorize_error
from judge_local.prompt import restate_schema
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.servers import Reply
from judge_local.providers.strict_schema import arrange, response_schema, without_made_up_nulls
from judge_local.run import TokenUsage

FORMS: Final = ("json_schema", "json_object", "text")
"""How structured output is asked for, strictest first."""

_OVERFLOW: Final = re.compile(
    r"context[ _](?:length|window|size)|exceed_context|maximum context|too many tokens", re.IGNORECASE
)
_FORM_REFUSED: Final = re.compile(r"response_format|json_schema|json_object|grammar|schema", re.IGNORECASE)
_NAMED_REASONS: Final = (ErrorCategory.AUTH_ERROR, ErrorCategory.QUOTA_EXCEEDED)


def payload(request: CompletionRequest, model: str, form: str, max_tokens: int) -> dict[str, Any]:
    """The body of a chat completion that asks for `request` in `form`, one of `FORMS`."""
    fixed = request.pinned or {}
    words = restate_schema(request.schema, pinned=())
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": f"{request.system}\n\n{words}"},
            {"role": "user", "content": request.user},
        ],
        "temperature": request.temperature,
        "seed": request.seed,
        "max_tokens": max_tokens if request.max_tokens is None else request.max_tokens,
        "stream": False,
    }
    if form == "json_schema":
        schema, strict = response_schema(request.schema, order=request.order, pinned=fixed)
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": strict, "schema": schema},
        }
    elif form == "json_object":
        schema = arrange(request.schema, order=request.order, pinned=fixed)
        body["response_format"] = {"type": "json_object", "schema": schema}
    return body


def read_answer(reply: Reply, request: CompletionRequest, where: str) -> CompletionResponse:
    """The answer in a reply that the server calls a success.

    Raises:
        RemoteError: it is not a chat completion.
        TruncatedOutputError: the token budget ended before the answer did.
        InvalidAnswerError: the answer is not JSON.
    """
    try:
        data = json.loads(reply.body)
        choice = data["choices"][0]
        text, ended = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        said = error_text(reply)
        if _is_page(reply):
            raise RemoteRefusedError(
                where, f"it sent a web page ({excerpt(said)})", "Does the base URL end in /v1?", reply.status
            ) from None
        raise RemoteError(where, f"it sent {excerpt(said)}, which is no chat completion") from None
    if ended == "length":
        truncated = TruncatedOutputError(
            where, "the answer did not end within its tokens", "Raise max_tokens."
        )
        truncated.raw = text if isinstance(text, str) else None
        raise truncated
    if not isinstance(text, str) or not text.strip():
        raise InvalidAnswerError("answer", f"there is no text in it (finish reason {excerpt(ended)})")
    answer = without_made_up_nulls(extract_json(text), request.schema)
    return CompletionResponse(
        json=_in_schema_order(answer, request.schema), text=text, usage=_usage(data.get("usage"))
    )


def form_refused(reply: Reply) -> bool:
    """Whether a reply may mean that this form of structured output is not taken here."""
    text = error_text(reply)
    if _OVERFLOW.search(text):
        return False
    if reply.status in (400, 415, 422):
        return categorize_error(text) not in _NAMED_REASONS
    return reply.status >= 500 and _FORM_REFUSED.search(text) is not None


def fault_of_reply(reply: Reply, text: str, where: str) -> JudgeLocalError:
    """The error that a reply of 300 and above means; `text` is what it says."""
    status, said = reply.status, excerpt(text)
    if 400 <= status < 500 and _OVERFLOW.search(text):
        return ContextOverflowError(where, f"the prompt is too long for it ({said})", "Shorten the subject.")
    category = categorize_error(f"{status}: {text}")
    if status >= 500 or status in (408, 409, 425):
        return RemoteError(where, f"HTTP {status}, {said}", "", status, retry_after_seconds(reply.headers))
    if status == 429 and category is not ErrorCategory.QUOTA_EXCEEDED:
        return RemoteError(
            where, f"HTTP {status}, {said}", "Try later.", status, retry_after_seconds(reply.headers)
        )
    remedy = {
        401: "Set the key in the environment.",
        403: "Set the key in the environment.",
        404: "Does the base URL end in /v1, and does the server have the model?",
    }.get(status, "")
    if status < 400:
        remedy = "Name the address that it leads to: no redirect is followed."
    return RemoteRefusedError(where, f"HTTP {status}, {said}", remedy, status)


def retry_after_seconds(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """What Retry-After asks for, in seconds; None where it is not there or cannot be read.

    Args:
        headers: names in lower case.
        now: seconds since the epoch; None is the clock's.

    >>> retry_after_seconds({"retry-after": "1.5"})
    1.5
    >>> retry_after_seconds({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, now=10.0)
    20.0
    """
    asked = headers.get("retry-after", "").strip()
    if not asked:
        return None
    try:
        seconds = float(asked)
    except ValueError:  # It is a date, then, or nothing that can be read.
        try:
            until = email.utils.parsedate_to_datetime(asked).timestamp()
        except (ValueError, OverflowError):
            return None
        return max(0.0, until - (time.time() if now is None else now))
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def error_text(reply: Reply) -> str:
    """What a reply says is wrong: the message in its JSON, or the beginning of its text."""
    text = reply.body[:4000].decode("utf-8", "replace")
    try:
        data = json.loads(reply.body)
    except ValueError:
        return " ".join(text.split())
    fault = data.get("error", data.get("detail", data)) if isinstance(data, dict) else data
    if isinstance(fault, dict):
        words = [str(fault[key]) for key in ("message", "type", "code") if fault.get(key)]
        return " ".join(words) or json.dumps(fault)
    return fault if isinstance(fault, str) else json.dumps(fault)


def _is_page(reply: Reply) -> bool:
    return "html" in reply.headers.get("content-type", "") or reply.body.lstrip()[:1] == b"<"


def _usage(data: Any) -> TokenUsage | None:
    facts = data if isinstance(data, dict) else {}
    read, written = facts.get("prompt_tokens"), facts.get("completion_tokens")
    if not isinstance(read, int) or not isinstance(written, int):
        return None
    return TokenUsage(input_tokens=read, output_tokens=written)


def _in_schema_order(answer: Any, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties", {})
    if not isinstance(answer, dict) or not isinstance(properties, Mapping):
        return answer
    known = [key for key in properties if key in answer]
    return {key: answer[key] for key in (*known, *(key for key in answer if key not in properties))}
