"""What kind of fault an exception tells of: type first, status second, text last."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from judge_local.errors import (
    BudgetExpiredError,
    CallTimeoutError,
    EngineCrashedError,
    ProviderError,
    RemoteError,
    RemoteRefusedError,
)
from judge_local.failures import ErrorCategory, categorize_error, is_retryable, status_of

CASES = json.loads((Path(__file__).parent / "data/errors.json").read_text("utf-8"))["errors"]


class CarryingError(Exception):
    """Carries whatever attributes it is given."""

    def __init__(self, text="", **carried):
        super().__init__(text)
        self.__dict__.update(carried)


@pytest.mark.parametrize("case", CASES, ids=[case["message"] or "empty" for case in CASES])
@pytest.mark.parametrize("made", [str, Exception, RuntimeError], ids=["text", "Exception", "RuntimeError"])
def test_messages_as_clients_word_them(case, made):
    error = made(case["message"])

    assert (case["category"], case["retryable"]) == (categorize_error(error).value, is_retryable(error))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rate limit reached for model x in organization y", ErrorCategory.RATE_LIMIT),
        ("Error code: 429 - {'error': {'message': 'slow down'}}", ErrorCategory.RATE_LIMIT),
        ("Server error '503 Service Unavailable' for url 'http://a/'", ErrorCategory.NETWORK),
        ("Client error '401 Unauthorized' for url 'http://a/'", ErrorCategory.AUTH_ERROR),
        ("status code 502", ErrorCategory.NETWORK),
        ("400 Bad Request: timeout is too large", ErrorCategory.UNKNOWN),
        ("500 items were missing", ErrorCategory.UNKNOWN),
        ("503", ErrorCategory.NETWORK),
        ("HTTP 429: insufficient_quota", ErrorCategory.QUOTA_EXCEEDED),
    ],
)
def test_a_number_is_a_status_only_where_it_stands_like_one(text, expected):
    assert expected == categorize_error(text)


@pytest.mark.parametrize("name", ["status_code", "status", "code"])
@pytest.mark.parametrize(
    ("status", "category", "retryable"),
    [
        (400, "unknown", False),
        (401, "auth_error", False),
        (402, "quota_exceeded", False),
        (403, "auth_error", False),
        (404, "unknown", False),
        (408, "network", True),
        (409, "network", True),
        (422, "unknown", False),
        (425, "network", True),
        (429, "rate_limit", True),
        (500, "network", True),
        (502, "network", True),
        (503, "network", True),
        (529, "network", True),
    ],
)
def test_status_codes_count_wherever_they_are_carried(name, status, category, retryable):
    for error in (
        CarryingError(**{name: status}),
        CarryingError(response=SimpleNamespace(status_code=status)),
    ):
        assert (category, retryable) == (categorize_error(error).value, is_retryable(error))


@pytest.mark.parametrize("status", [s for s in range(400, 500) if s not in (408, 409, 425, 429)])
def test_a_request_that_is_wrong_is_not_retried_whatever_its_text(status):
    assert not is_retryable(
        CarryingError("timeout: service unavailable, rate limit, ECONNRESET", status=status)
    )


@pytest.mark.parametrize("text", ["You exceeded your current quota", "billing hard limit reached"])
def test_a_429_that_names_the_quota_is_one(text):
    error = CarryingError(text, status_code=429)

    assert (categorize_error(error), is_retryable(error)) == (ErrorCategory.QUOTA_EXCEEDED, False)


@pytest.mark.parametrize("code", ["429", True, 42, 600, 1000, 42.9, None])
def test_a_code_that_is_no_status_is_ignored(code):
    error = CarryingError("nothing known", code=code)

    assert status_of(error) is None
    assert not is_retryable(error)


def test_a_code_that_is_no_status_does_not_hide_one_that_is():
    assert status_of(CarryingError(code=7, response=SimpleNamespace(status_code=503))) == 503


class ReadTimeout(Exception):  # noqa: N818 # As an HTTP client names it.
    """Named as an HTTP client names its own."""


class TimeoutException(Exception):  # noqa: N818
    """Likewise; `ReadError` below inherits from it."""


class ReadError(TimeoutException):
    """Known through its base."""


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (ConnectionRefusedError(), True),
        (BrokenPipeError(), True),
        (socket.gaierror(-3, "x"), True),
        (http.client.RemoteDisconnected(), True),
        (http.client.IncompleteRead(b""), True),
        (OSError(errno.EHOSTUNREACH, "x"), True),
        (ReadError(), True),
        (FileNotFoundError(2, "No such file"), False),
        (PermissionError(13, "Permission denied"), False),
        (TypeError("x"), False),
        (CallTimeoutError("call", "x"), True),
        (BudgetExpiredError("panel", "timed out"), False),
        (ProviderError("p", "x"), True),
        (EngineCrashedError("engine", "timed out"), False),
        (RemoteError("s", "x", "", 503), True),
        (RemoteError("s", "x"), True),
        (RemoteRefusedError("s", "timeout", "", 400), False),
        (RemoteRefusedError("s", "timeout"), False),
        (RemoteRefusedError("s", "quota", "", 429), False),
    ],
    ids=repr,
)
def test_the_type_says_it_first(error, retryable):
    assert retryable == is_retryable(error)


def test_a_certificate_is_not_worth_a_retry_however_it_is_wrapped():
    error = ReadError("connection error")
    error.__cause__ = ssl.SSLCertVerificationError("certificate has expired")

    assert (categorize_error(error), is_retryable(error)) == (ErrorCategory.UNKNOWN, False)
