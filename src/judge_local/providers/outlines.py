"""OutlinesProvider: any model that the `outlines` library wraps, held to the schema as far as outlines can.

What outlines does not enforce (a bound of a number, say) the validator still does, so an answer may be asked for again.
The chat template is the wrapped library's business: text in the subject that looks like a chat marker may reach the
model as one. The tripwire sends such subjects to a person, whatever the model says.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from judge_local.answer_text import extract_json
from judge_local.errors import (
    DeadlineExceededError,
    JudgeLocalError,
    ProviderError,
    SchemaError,
    UsageError,
    excerpt,
)
from judge_local.prompt import restate_schema
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.strict_schema import arrange

Parameters = Callable[[CompletionRequest], Mapping[str, Any]]
"""From a request to the keyword arguments that the wrapped library takes for it."""

MAX_TOKENS: Final = 1024
"""Upper limit of an answer where the request sets none."""
_GENERATORS_KEPT: Final = 16


class OutlinesProvider:
    """Answers from a model that outlines wraps: `outlines.from_llamacpp(…)`, `from_transformers(…)`, and so on.

    One request is computed at a time. Cancelling stops a model that computes here at its next token; a library that
    waits for a server goes on waiting in its thread, and the next request waits for it.

    Args:
        model: the outlines model, synchronous or asynchronous.
        name: a concrete name for it; feeds cache keys.
        parameters: what to pass to the wrapped library for a request; None knows llama.cpp, transformers and mlx-lm, and
            passes nothing to others.
        chat: whether the model takes messages with roles; if not, it gets one text.

    Raises:
        UsageError: outlines is not installed, `model` is none of its models, or `name` is empty.
    """

    provider = "outlines"
    default_vary = "options"

    def __init__(
        self, model: Any, name: str, *, parameters: Parameters | None = None, chat: bool = True
    ) -> None:
        self._outlines = _library()
        base = self._outlines.models.base
        if not isinstance(model, base.Model | base.AsyncModel):
            raise UsageError(
                "model", f"{excerpt(model)} is no model of outlines", "Wrap it: outlines.from_llamacpp(…)."
            )
        if not name.strip():
            raise UsageError("name", f"{excerpt(name)} names no model", "Say which weights these are.")
        self.model: Final = name
        self.replays: Final = hasattr(model, "tensor_library_name")
        """Only a model that computes here repeats itself; of a hosted one nothing is known."""
        self._model = model
        self._is_async = isinstance(model, base.AsyncModel)
        self._parameters = parameters or _parameters_for(type(model).__name__)
        self._chat = chat
        self._lock = (
            threading.Lock()
        )  # Protects the model, which computes one answer at a time, and `_generators`.
        self._generators: dict[str, Any] = {}

    async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
        """Answer one request.

        Raises:
            SchemaError: outlines cannot compile the schema.
            ProviderError: the wrapped library failed.
            InvalidAnswerError: what came is not JSON, because its tokens ran out for one.
            DeadlineExceededError: the request's deadline passed.
            UsageError: the request asks for scores.
        """
        if request.score_only or request.option_bias:
            name = "score_only" if request.score_only else "option_bias"
            raise UsageError(name, "outlines gives whole answers and no scores", f"Leave {name} out.")
        stop = threading.Event()
        try:
            async with asyncio.timeout(_seconds_left(request.deadline)):
                if self._is_async:
                    text = await self._awaited(request)
                else:
                    text = await asyncio.to_thread(self._computed, request, stop)
        except TimeoutError:  # Ours: the library's own have become a ProviderError.
            raise DeadlineExceededError(
                self._where, "the deadline passed without an answer", "Allow more time."
            ) from None
        finally:
            stop.set()
        return CompletionResponse(json=extract_json(text), text=text)

    @property
    def _where(self) -> str:
        return f"{self.provider} {self.model}"

    async def _awaited(self, request: CompletionRequest) -> str:
        with self._lock:
            generator = self._generator(request)
        try:
            return str(await generator(self._prompt(request), **self._parameters(request)))
        except Exception as error:
            raise self._fault(error) from error

    def _computed(self, request: CompletionRequest, stop: threading.Event) -> str:
        """The text of the answer; "" once nobody waits for it any more."""
        with self._lock:
            if stop.is_set():
                return ""
            generator = self._generator(request)
            processor = getattr(generator, "logits_processor", None)
            if isinstance(processor, _Stoppable):
                processor.stop = stop
            try:
                return str(generator(self._prompt(request), **self._parameters(request)))
            except Exception as error:
                raise self._fault(error) from error

    def _prompt(self, request: CompletionRequest) -> Any:
        system = f"{request.system}\n\n{restate_schema(request.schema)}"
        if not self._chat:
            return f"{system}\n\n{request.user}\n"
        return self._outlines.inputs.Chat(
            [{"role": "system", "content": system}, {"role": "user", "content": request.user}]
        )

    def _generator(self, request: CompletionRequest) -> Any:
        schema = arrange(request.schema, order=request.order, pinned=request.pinned)
        schema.pop("$schema", None)  # Outlines reads every schema in its own dialect.
        key = json.dumps(schema)
        if key not in self._generators:
            if len(self._generators) >= _GENERATORS_KEPT:
                self._generators.pop(next(iter(self._generators)))
            try:
                kind = self._outlines.types.JsonSchema(key)
                generator = self._outlines.Generator(self._model, kind)
            except Exception as error:
                raise SchemaError(
                    "schema",
                    f"outlines cannot compile it ({excerpt(str(error) or type(error).__name__)})",
                    "Use fewer keywords.",
                ) from error
            end = getattr(getattr(self._model, "tokenizer", None), "eos_token_id", None)
            if isinstance(end, int) and getattr(generator, "logits_processor", None) is not None:
                generator.logits_processor = _Stoppable(generator.logits_processor, end)
            self._generators[key] = generator
        return self._generators[key]

    def _fault(self, error: Exception) -> JudgeLocalError:
        if isinstance(error, JudgeLocalError):
            return error
        return ProviderError(self._where, excerpt(f"{type(error).__name__}: {error}"))


class _Stoppable:
    """A logits processor that lets nothing but the end be written once nobody waits for the answer.

    The one place that every library which computes here comes by at each token; a stream holds tokens back while they
    end inside a character.
    """

    def __init__(self, processor: Any, end: int) -> None:
        self._processor = processor
        self._end = end
        self.stop = threading.Event()

    def __call__(self, ids: Any, logits: Any) -> Any:
        if not self.stop.is_set():
            return self._processor(ids, logits)
        logits[...] = -math.inf
        logits[..., self._end] = 0.0
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)


def _library() -> Any:
    try:
        import outlines
    except ImportError:
        raise UsageError(
            "outlines", "is not installed", "Run: pip install 'judge-local[outlines]'."
        ) from None
    return outlines


def _parameters_for(library: str) -> Parameters:
    """What the wrapped library `library`, an outlines class by name, calls temperature, seed and length."""

    def llama(request: CompletionRequest) -> Mapping[str, Any]:
        return {"temperature": request.temperature, "seed": request.seed, "max_tokens": _limit(request)}

    def transformers(request: CompletionRequest) -> Mapping[str, Any]:
        sampled = {"do_sample": True, "temperature": request.temperature} if request.temperature else {}
        return {"max_new_tokens": _limit(request), **(sampled or {"do_sample": False})}

    def mlx(request: CompletionRequest) -> Mapping[str, Any]:
        return {"max_tokens": _limit(request)}

    known: dict[str, Parameters] = {"LlamaCpp": llama, "Transformers": transformers, "MLXLM": mlx}
    return known.get(library, lambda _request: {})


def _limit(request: CompletionRequest) -> int:
    return MAX_TOKENS if request.max_tokens is None else request.max_tokens


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
