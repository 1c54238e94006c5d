"""OpenAIProvider: any server that speaks the OpenAI chat API (llama-server, vLLM, Ollama, LM Studio).

Conventions:

* The schema is asked for in the strictest form that the server takes: `json_schema`, then `json_object` with the
  schema, then plain text. A form that was refused is not tried again at that server.
* Whatever the server promises, the answer is the whole text and is validated above this line.
* There is no default address. A key comes from the environment alone, is read when it is sent, goes only over TLS or to
  this machine, and stands in no message.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import ssl
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from judge_local.errors import (
    DeadlineExceededError,
    InvalidAnswerError,
    JudgeLocalError,
    RemoteError,
    RemoteRefusedError,
    UsageError,
    excerpt,
)
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.chat_api import (
    FORMS,
    error_text,
    fault_of_reply,
    form_refused,
    payload,
    read_answer,
)
from judge_local.providers.servers import HEALTH_SECONDS, Pool, Reply, Server, exchange, tls_context
from judge_local.resilience import RetryOptions, check_seconds, with_retry, with_timeout

DEFAULT_KEY_VARIABLE: Final = "OPENAI_API_KEY"
DEFAULT_RETRY: Final = RetryOptions(max_attempts=3, base_delay_seconds=0.5, max_delay_seconds=30.0)


class OpenAIProvider:
    """Answers from one model behind one or more servers with the OpenAI chat API.

    Args:
        base_url: where the API is, `http://127.0.0.1:8080/v1` for one; or several that serve the same model, among
            which the work is shared. One that fails rests and is checked before it is used again.
        model: the model's name, as the servers know it.
        api_key_env: the environment variable that holds the key. The default one may be unset; one that is named must be
            set. A key goes over TLS or to this machine only.
        timeout_seconds: how long one exchange may take.
        max_tokens: upper limit of an answer, where the request sets none.
        retry: for servers that are busy or down, besides trying the other servers. A Retry-After is waited for.
        concurrency: requests in flight at one server.

    Raises:
        UsageError: a URL, a number or the model's name cannot be meant.
    """

    provider = "openai"

    def __init__(
        self,
        base_url: str | Sequence[str],
        model: str,
        *,
        api_key_env: str = DEFAULT_KEY_VARIABLE,
        timeout_seconds: float = 600.0,
        max_tokens: int = 2048,
        retry: RetryOptions = DEFAULT_RETRY,
        concurrency: int = 4,
    ) -> None:
        if not model.strip():
            raise UsageError("model", f"{excerpt(model)} names no model", "Ask the server: GET /v1/models.")
        for name, value in (("max_tokens", max_tokens), ("concurrency", concurrency)):
            if value < 1:
                raise UsageError(name, f"{value} is not at least 1")
        self.model: Final = model
        self._pool = Pool([base_url] if isinstance(base_url, str) else base_url)
        self._key_variable = api_key_env
        self._timeout_seconds = check_seconds("timeout_seconds", timeout_seconds)
        self._max_tokens = max_tokens
        self._retry = retry
        self._concurrency = concurrency
        self._tls: ssl.SSLContext | None = None

    @property
    def base_urls(self) -> tuple[str, ...]:
        """The servers, in the order they were named."""
        return tuple(server.url for server in self._pool.servers)

    @property
    def settings_key(self) -> str:
        """What besides the model's name could change an answer, for cache keys: a name may mean other weights elsewhere."""
        return json.dumps({"baseUrls": sorted(self.base_urls), "maxTokens": self._max_tokens})

    def is_online(self) -> bool:
        """Whether some server is not resting after a failure. Asks nobody; see `check`."""
        return self._pool.any_up()

    async def check(self) -> dict[str, str | None]:
        """Ask every server whether it is there: base URL to None, or to what is wrong."""
        servers = self._pool.servers
        faults = await asyncio.gather(*(self._health(server) for server in servers))
        return {
            server.url: None if fault is None else str(fault)
            for server, fault in zip(servers, faults, strict=True)
        }

    async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
        """Answer one request.

        Raises:
            RemoteError: no server answered, after the retries.
            RemoteRefusedError: the server refuses the request: key, quota, model, or the request itself.
            ContextOverflowError: the prompt is longer than the server takes.
            TruncatedOutputError: the token budget ended before the answer did.
            InvalidAnswerError: the answer is not JSON.
            DeadlineExceededError: the request's deadline passed.
            UsageError: the key's variable is not set, or the request asks for scores.
        """
        if request.score_only or request.option_bias:
            name = "score_only" if request.score_only else "option_bias"
            raise UsageError(name, "a server gives whole answers and no scores", f"Leave {name} out.")
        left = math.inf if request.deadline is None else max(0.0, request.deadline - time.monotonic())
        # A wait that the deadline would end is not begun: the error says more than the deadline would.
        longest = min(self._retry.max_delay_seconds, left)
        options = RetryOptions(
            self._retry.max_attempts, min(self._retry.base_delay_seconds, longest), longest
        )

        def too_late(message: str) -> DeadlineExceededError:
            return DeadlineExceededError(self._name, message, "Allow more time.")

        answer = await with_timeout(
            lambda: with_retry(lambda: self._ask_some(request), options),
            left,
            "the deadline passed without an answer",
            too_late,
        )
        if isinstance(answer, InvalidAnswerError):
            raise answer
        return answer

    async def complete_many(
        self, requests: Sequence[CompletionRequest]
    ) -> list[CompletionResponse | JudgeLocalError]:
        """Answers in the order of `requests`, several at a time and shared out over the servers."""
        room = asyncio.Semaphore(self._concurrency * len(self._pool.servers))

        async def one(request: CompletionRequest) -> CompletionResponse | JudgeLocalError:
            async with room:
                try:
                    return await self.complete_json(request)
                except JudgeLocalError as error:
                    return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(request)) for request in requests]
        return [task.result() for task in tasks]

    async def aclose(self) -> None:
        """Nothing is held open; there so that every provider can be closed alike."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _name(self) -> str:
        return f"{self.provider} {self.model}"

    async def _ask_some(self, request: CompletionRequest) -> CompletionResponse | InvalidAnswerError:
        """One attempt: the servers in turn, until one answers or refuses.

        An answer that is wrong is returned: whoever asked may ask differently, and a retry here would not.
        """
        last: RemoteError | None = None
        for server in self._pool.in_order():
            several = len(self._pool.servers) > 1
            if several and server.failures and (fault := await self._health(server)) is not None:
                last = fault
                continue
            try:
                return await self._ask(server, request)
            except InvalidAnswerError as fault:
                return fault
            except RemoteRefusedError:
                raise  # The others would refuse it too.
            except RemoteError as error:
                if error.status_code == 429:
                    self._pool.busy(server, error.retry_after_seconds)
                else:
                    self._pool.failed(server)
                last = error
        assert last is not None  # There is at least one server.
        raise last

    async def _ask(self, server: Server, request: CompletionRequest) -> CompletionResponse:
        """One answer of one server, in the strictest form it takes."""

        def too_late(message: str) -> RemoteError:
            return RemoteError(server.url, message, "Allow more time, or ask a faster server.")

        self._pool.began(server)
        try:
            answer = await with_timeout(
                lambda: self._in_some_form(server, request),
                self._timeout_seconds,
                f"no answer within {self._timeout_seconds:g} s",
                too_late,
            )
        finally:
            self._pool.ended(server)
        self._pool.worked(server)
        return answer

    async def _in_some_form(self, server: Server, request: CompletionRequest) -> CompletionResponse:
        headers = {**self._authorization(server), "content-type": "application/json"}
        for step in range(server.step, len(FORMS)):
            body = json.dumps(payload(request, self.model, FORMS[step], self._max_tokens)).encode()
            reply = await exchange(
                f"{server.url}/chat/completions", content=body, headers=headers, tls=self._tls_for(server)
            )
            if reply.status < 300:
                server.step = max(server.step, step)
                return read_answer(reply, request, server.url)
            fault = self._fault(reply, server)
            if not (form_refused(reply) and step + 1 < len(FORMS)):
                raise fault
        raise AssertionError  # The last form returns or raises.

    def _fault(self, reply: Reply, server: Server) -> JudgeLocalError:
        """What a reply without an answer says, without the key should the server repeat it."""
        text = error_text(reply)
        key = os.environ.get(self._key_variable)
        return fault_of_reply(reply, text.replace(key, "…") if key else text, server.url)

    async def _health(self, server: Server) -> RemoteError | None:
        """None when `server` answers at all; otherwise it rests, and the fault is returned."""

        def too_late(message: str) -> RemoteError:
            return RemoteError(server.url, message, "Is the server running?")

        try:
            reply = await with_timeout(
                lambda: exchange(
                    f"{server.url}/models", headers=self._authorization(server), tls=self._tls_for(server)
                ),
                HEALTH_SECONDS,
                f"no answer to a health check within {HEALTH_SECONDS:g} s",
                too_late,
            )
        except RemoteError as error:
            self._pool.failed(server)
            return error
        # A server without that page, or one that wants a key, is there all the same.
        if reply.status >= 500:
            self._pool.failed(server)
            return RemoteError(server.url, f"its health check says {reply.status}", status_code=reply.status)
        self._pool.worked(server)
        return None

    def _authorization(self, server: Server) -> dict[str, str]:
        key, named = os.environ.get(self._key_variable), self._key_variable != DEFAULT_KEY_VARIABLE
        if not key:
            if named:
                raise UsageError(
                    "api_key_env", f"{self._key_variable} is not set", "Export the key under that name."
                )
            return {}
        if not server.may_read_keys:
            if named:
                raise UsageError(
                    "api_key_env", f"{server.url} would get the key unencrypted", "Use https, or no key."
                )
            return {}
        return {"authorization": f"Bearer {key}"}

    def _tls_for(self, server: Server) -> ssl.SSLContext | None:
        if not server.url.startswith("https:"):
            return None
        if self._tls is None:
            self._tls = tls_context()
        return self._tls
