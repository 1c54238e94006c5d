"""Failures: what kind of fault an exception tells of, and whether asking again may help.

What an exception is counts first, then the status code it carries, and its text only where neither says anything. In
a text a number is a status code only where it stands like one: "request 4290 failed" and "page 503 is missing" are no
HTTP errors.
"""

from __future__ import annotations

import errno
import re
import ssl
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

from judge_local.errors import BudgetExpiredError, JudgeLocalError


class ErrorCategory(StrEnum):
    """What kind of fault it is."""

    RATE_LIMIT = "rate_limit"
    """Too many requests for now; waiting helps."""
    QUOTA_EXCEEDED = "quota_exceeded"
    """Nothing is left that was paid for; waiting does not help."""
    AUTH_ERROR = "auth_error"
    NETWORK = "network"
    """The way there or the server failed, time ran out included; asking again may help."""
    UNKNOWN = "unknown"


_RETRYABLE: Final = frozenset({ErrorCategory.RATE_LIMIT, ErrorCategory.NETWORK})
_RETRYABLE_4XX: Final = frozenset({408, 409, 425, 429})

_QUOTA: Final = re.compile(
    r"quota|billing|credit balance|insufficient (?:funds|credits?|balance)", re.IGNORECASE
)
_RATE: Final = re.compile(r"rate[ _-]?limit|too many requests|throttl|slow down", re.IGNORECASE)
_LIMIT: Final = re.compile(r"limit reached|payment required", re.IGNORECASE)
_AUTH: Final = re.compile(
    r"unauthori[sz]ed|forbidden|(?:invalid|incorrect|missing|expired|no) (?:x-)?api[ _-]?key|"
    r"authentication (?:failed|error|required)|authentication_error|permission_error",
    re.IGNORECASE,
)
_NETWORK: Final = re.compile(
    r"tim(?:ed|e)[ -]?out|overloaded|"
    r"\bE(?:CONN(?:REFUSED|RESET|ABORTED)|TIMEDOUT|NOTFOUND|PIPE|AI_AGAIN|HOSTUNREACH|NETUNREACH|NETDOWN)\b|"
    r"socket hang up|network (?:error|is unreachable)|no route to host|broken pipe|"
    r"connect(?:ion)? (?:error|reset|refused|aborted|closed)|all connection attempts failed|"
    r"(?:server |peer |remote end )(?:disconnected|closed)|"
    r"temporary failure|temporarily unavailable|name resolution|"
    r"service unavailable|bad gateway|gateway time-?out|internal server error|server error",
    re.IGNORECASE,
)
_PHRASES: Final = "|".join(re.escape(s.phrase) for s in HTTPStatus if s >= 400)
_STATUS_IN_TEXT: Final = re.compile(
    # Alone, or first in the line before a mark; after a word that announces one; or before its own phrase.
    r"\A\W*(?P<alone>[45]\d\d)\W*(?:\Z|[:\-\u2013,(])|"
    r"\b(?:https?(?:/[\d.]+)?|status(?:[ _]code)?|error code)\W{0,3}(?P<named>[45]\d\d)\b|"
    rf"\b(?P<phrased>[45]\d\d) (?:{_PHRASES})\b",
    re.IGNORECASE,
)

_NETWORK_ERRNOS: Final = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ENETRESET}
)
_NETWORK_CLASSES: Final = frozenset(
    # HTTP clients' own classes, by name: knowing them must not need importing them.
    {"NetworkError", "TimeoutException", "RemoteProtocolError", "APIConnectionError", "RemoteDisconnected"}
    | {
        "ServerDisconnectedError",
        "ClientConnectionError",
        "IncompleteRead",
        "IncompleteReadError",
        "gaierror",
    }
)


def categorize_error(error: BaseException | str) -> ErrorCategory:
    """What kind of fault `error` is.

    >>> categorize_error("429 Too Many Requests").value, categorize_error(ConnectionResetError()).value
    ('rate_limit', 'network')
    """
    text = str(error)
    if isinstance(error, BaseException):
        if _is_certificate_fault(error):
            return ErrorCategory.UNKNOWN
        status = status_of(error)
        if status is not None and status >= 400:
            return _of_status(status, text)
        if _is_network_fault(error):
            return ErrorCategory.NETWORK
    return _of_text(text)


def is_retryable(error: BaseException | str) -> bool:
    """Whether the same call may succeed when it is made again.

    A status code of 4xx other than 408, 409, 425 and 429 is never retryable, whatever the text beside it says. Without
    a status code, our own errors say it themselves.

    >>> is_retryable("503 Service Unavailable"), is_retryable("401 Unauthorized")
    (True, False)
    """
    status = None if isinstance(error, str) else status_of(error)
    if isinstance(error, JudgeLocalError) and (status is None or status < 400):
        return error.retryable and not isinstance(error, BudgetExpiredError)
    if status is None and (isinstance(error, str) or not _is_network_fault(error)):
        status = _status_in(str(error))
    category = categorize_error(error)
    if status is not None and 400 <= status < 500:
        return status in _RETRYABLE_4XX and category is not ErrorCategory.QUOTA_EXCEEDED
    return category in _RETRYABLE


def status_of(error: BaseException) -> int | None:
    """The HTTP status code that `error` carries as `status_code`, `status`, `code` or `response.status_code`, or None.

    Only whole numbers from 100 to 599 count: many a `code` is an exit code or a name.
    """
    response = getattr(error, "response", None)
    carried = (getattr(error, name, None) for name in ("status_code", "status", "code"))
    return next(filter(None, map(_as_status, (*carried, getattr(response, "status_code", None)))), None)


def _as_status(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if whole and 100 <= value <= 599 else None


def _status_in(text: str) -> int | None:
    found = _STATUS_IN_TEXT.search(text)
    return int(next(filter(None, found.groups()))) if found else None


def _of_status(status: int, text: str) -> ErrorCategory:
    if status == 429:
        return ErrorCategory.QUOTA_EXCEEDED if _QUOTA.search(text) else ErrorCategory.RATE_LIMIT
    if status == 402:
        return ErrorCategory.QUOTA_EXCEEDED
    if status in (401, 403):
        return ErrorCategory.QUOTA_EXCEEDED if _QUOTA.search(text) else ErrorCategory.AUTH_ERROR
    if status >= 500 or status in _RETRYABLE_4XX:
        return ErrorCategory.NETWORK
    # What is left says that the request is wrong; its text may name why, but never that the network was.
    said = _of_words(text)
    return said if said in (ErrorCategory.QUOTA_EXCEEDED, ErrorCategory.AUTH_ERROR) else ErrorCategory.UNKNOWN


def _of_text(text: str) -> ErrorCategory:
    status = _status_in(text)
    return _of_words(text) if status is None else _of_status(status, text)


def _of_words(text: str) -> ErrorCategory:
    # In this order: "rate limit reached" is a rate, and a quota is one whatever else the text says.
    for pattern, category in (
        (_QUOTA, ErrorCategory.QUOTA_EXCEEDED),
        (_RATE, ErrorCategory.RATE_LIMIT),
        (_LIMIT, ErrorCategory.QUOTA_EXCEEDED),
        (_AUTH, ErrorCategory.AUTH_ERROR),
        (_NETWORK, ErrorCategory.NETWORK),
    ):
        if pattern.search(text):
            return category
    return ErrorCategory.UNKNOWN


def _is_network_fault(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno in _NETWORK_ERRNOS:
        return True
    return any(cls.__name__ in _NETWORK_CLASSES for cls in type(error).__mro__)


def _is_certificate_fault(error: BaseException) -> bool:
    """Whether a certificate was refused, here or in what led here: clients wrap it as a failed connection."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return False
