"""LocalProvider: a GGUF model on this machine, held to the schema by a grammar while it writes.

What it adds to the engine: the schema compiled to GBNF under the judge's own profile, its descriptions restated in the
system prompt (a grammar hides them from the model, and they are what steers it), answers parsed strictly and handed back
in schema order, and the fingerprint of everything that could change an answer.

A model that is split over several files is named by its first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from judge_local.answer_text import extract_json
from judge_local.errors import InvalidAnswerError, JudgeLocalError, UsageError, excerpt
from judge_local.prompt import PROMPT_VERSION, restate_schema
from judge_local.providers.base import CompletionRequest, CompletionResponse
from judge_local.providers.slots import PLACES, slot_of
from judge_local.run import Note, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from judge_local.engine.counting import TokenCounter
    from judge_local.engine.protocol import Facts, Generate, Generated
    from judge_local.grammar import Grammar
    from judge_local.models.store import Store

TYPICAL_CHARS_PER_TOKEN: Final = 24
"""Room set aside per run at first, in characters of the grammar's longest text: that counts each character of a string as
an escape of six, and prose takes about four characters a token. A longer answer gets more."""

MOST_TYPICAL_TOKENS: Final = 768
"""And never more than this: a schema may allow a list of a thousand texts, which no judge writes."""

SCORE_TOKENS: Final = 64
"""Room set aside to read scores alone: the beginning of an answer, and an option's."""

_GRAMMARS_KEPT: Final = 64

_NOT_READ: Final = "this recurrent model cannot step back: `before` was not read, and `slot` only where no two options share a token"


class LocalProvider:
    """Answers from one local model. Its worker process is started with the first request.

    Use it as a context manager (`with` or `async with`), or call `close`.

    Args:
        model: a reference to a model on this disk (an alias, a name, a path to a `.gguf`); None takes the only one there.
        n_ctx: upper limit of one run's prompt and answer in tokens; None is what the model was trained for.
        n_threads: threads of computation; None takes the cores this process may really use.
        n_gpu_layers: layers on the GPU; `"auto"` is as many as its free memory carries. Where so many cannot be had after
            all, fewer are taken, and `on_event` is told.
        deterministic: the same inputs give the same answers, byte for byte, twice in a row and in a new process. Costs
            the sharing of prompts between one submission and the next.
        wait: wait when another process is judging on this machine, rather than fail.
        on_event: gets lines for a person (waiting, restarted), from any thread.
        store: where models are; None is the default folder.
        chat_template: Jinja source to use in place of the file's own.
        thinking: tokens that a model which thinks may think before it answers; 0 closes its think block at once.
        keep: leave in the cache folder (`JUDGE_LOCAL_CACHE_DIR`, else the platform's) what every prompt begins with and
            what this machine was measured to do, so that the next process starts sooner. No subject is kept.
        probabilities: where those of the options at a request's slot are read: `"before"` anything is written, and at
            the `"slot"` itself. Each costs a few tokens a run and changes no answer.
        top_k: above temperature 0, draw from this many of the likeliest tokens; 0 is all.
        top_p: of these, from the likeliest that together have this share of the probability; 1 is all.
        min_p: of these, from those at least this share as likely as the likeliest; 0 is all. The three look at what the
            model says before the grammar does, in this order; a filter that leaves nothing the grammar allows gives way.

    Raises:
        UnknownModelError, ModelMissingError: no such model here.
        ModelFileError: the file is not GGUF, or is truncated.
        UsageError: a number that cannot be meant.
    """

    provider = "llama-cpp"
    default_vary = "options"
    replays = True
    grammar_bound = True

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        n_ctx: int | None = None,
        n_threads: int | None = None,
        n_gpu_layers: int | Literal["auto"] = "auto",
        deterministic: bool = False,
        wait: bool = True,
        on_event: Callable[[str], None] | None = None,
        store: Store | None = None,
        chat_template: str | None = None,
        thinking: int = 0,
        keep: bool = True,
        probabilities: Sequence[str] = PLACES,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> None:
        from judge_local.engine.client import EngineClient
        from judge_local.engine.protocol import Settings
        from judge_local.models.hardware import available_memory_bytes, usable_cores
        from judge_local.models.store import Store, cache_directory

        for name, value in (("n_ctx", n_ctx), ("n_threads", n_threads)):
            if value is not None and value < 1:
                raise UsageError(name, f"{value} is not at least 1")
        if isinstance(probabilities, str) or not set(probabilities) <= set(PLACES):
            raise UsageError(
                "probabilities", f"{excerpt(probabilities)} are not places", f"They are {', '.join(PLACES)}."
            )
        for name, count in (("top_k", top_k), ("thinking", thinking)):
            if count < 0:
                raise UsageError(name, f"{count} is less than 0")
        for name, share in (("top_p", top_p), ("min_p", min_p)):
            if not 0 <= share <= 1:
                raise UsageError(name, f"{share} is not within 0..1")
        self._filters: dict[str, float] = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
        self._places = tuple(place for place in PLACES if place in probabilities)
        store = store or Store()
        found = store.the_only() if model is None else store.find(str(model))
        self._sha256 = found.sha256
        self._name = found.name
        self._settings = Settings(
            path=str(found.path),
            n_gpu_layers=None if n_gpu_layers == "auto" else n_gpu_layers,
            n_threads=n_threads or usable_cores(),
            n_ctx=n_ctx,
            memory_bytes=available_memory_bytes(),
            deterministic=deterministic,
            chat_template=chat_template,
            thinking=thinking,
            weights=found.sha256,
            cache_path=str(cache_directory() / "engine") if keep else None,
            wait=wait,
        )
        self._client = EngineClient(self._settings, say=on_event)
        self._grammars: dict[str, Grammar] = {}

    @property
    def model(self) -> str:
        """Name and the first twelve digits of the weights' sha256: a concrete model, never a selector."""
        return f"{self._name}@{self._sha256[:12]}"

    @property
    def model_sha256(self) -> str:
        """SHA-256 of the weights, 64 hex digits."""
        return self._sha256

    @property
    def settings_key(self) -> str:
        """What besides the model could change an answer, for cache keys."""
        template = self._settings.chat_template
        return json.dumps(
            {
                "sha256": self._sha256,
                "nCtx": self._settings.n_ctx,
                "nGpuLayers": self._settings.n_gpu_layers,
                "template": None if template is None else _digest(template),
                "deterministic": self._settings.deterministic,
                "probabilities": self._places,
                "filters": self._filters,
                "thinking": self._settings.thinking,
            },
            sort_keys=True,
        )

    @property
    def worker_pid(self) -> int | None:
        """Process id of the engine's worker, or None when none runs."""
        return self._client.pid

    def start(self) -> None:
        """Begin loading the model now, without waiting for it, rather than with the first request."""
        self._client.start()

    def counter(self) -> TokenCounter:
        """What counts the tokens of prompts for this model: a small process without weights, to be closed.

        Raises:
            ModelFileError, ChatTemplateError: the model cannot be used.
        """
        from judge_local.engine.counting import TokenCounter

        return TokenCounter(self._settings.path, chat_template=self._settings.chat_template)

    def asked(self, request: CompletionRequest) -> Generate:
        """What the engine is asked for `request`: its texts as the model reads them, and room for the answer.

        Raises:
            SchemaError: a schema that no grammar can hold.
        """
        return self._generate(request, self._grammar(request, pinned=True))

    def context_tokens(self) -> int | None:
        """The most tokens of one prompt with its answer, from the file's header; None where that does not say."""
        from judge_local.models.gguf import read_header

        trained = read_header(Path(self._settings.path)).context_length
        sizes = [size for size in (trained, self._settings.n_ctx) if size is not None]
        return min(sizes, default=None)

    async def facts(self) -> Facts:
        """What the engine says of the loaded model; loads it when it is not.

        Raises:
            ModelFileError, ChatTemplateError: the model cannot be used.
            UsageError: the chat template that was given cannot be.
        """
        return await self._client.facts()

    async def stats(self) -> dict[str, float]:
        """What the worker has done since it started, in tokens and seconds; see `Scheduler.totals`.

        Raises:
            EngineCrashedError: the worker died.
        """
        return await self._client.stats()

    async def complete_json(self, request: CompletionRequest) -> CompletionResponse:
        """Answer one request.

        Raises:
            JudgeLocalError: see `complete_many`.
        """
        (outcome,) = await self.complete_many([request])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def complete_many(
        self, requests: Sequence[CompletionRequest]
    ) -> list[CompletionResponse | JudgeLocalError]:
        """Answers in the order of `requests`: one prefill of what they share, decoded together.

        Raises:
            SchemaError: a schema that no grammar can hold; raised before the first token.
            ModelFileError, ChatTemplateError: the model cannot be used.
            UsageError: the chat template that was given cannot be.
            EngineCrashedError: the worker died while loading.
        """
        for request in requests:
            # Without pins first: a pin hides the schema of what it fixes, which must hold too. Fingerprints need it.
            self._grammar(request, pinned=False)
        grammars = [self._grammar(request, pinned=True) for request in requests]
        asked = [
            self._generate(request, grammar) for request, grammar in zip(requests, grammars, strict=True)
        ]
        outcomes, facts = await self._client.submit(asked, [request.deadline for request in requests])
        return [
            outcome if isinstance(outcome, JudgeLocalError) else self._respond(request, outcome, facts)
            for request, outcome in zip(requests, outcomes, strict=True)
        ]

    def close(self) -> None:
        """End the worker."""
        self._client.close()

    async def aclose(self) -> None:
        """End the worker, without holding the event loop."""
        import asyncio

        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _generate(self, request: CompletionRequest, grammar: Grammar) -> Generate:
        from judge_local.engine.protocol import Generate

        slot = slot_of(request, places=self._places, slot_first=lambda key: self._slot_first(request, key))
        if grammar.max_bytes is None or grammar.max_chars is None:
            raise UsageError(
                "schema", "its answers have no greatest length", "Bound it with maxLength or maxItems."
            )
        # A token is at least one byte, so this many are always enough.
        enough = grammar.max_bytes
        limit = enough if request.max_tokens is None else min(request.max_tokens, enough)
        return Generate(
            id=self._client.next_id(),
            system=f"{request.system}\n\n{restate_schema(request.schema, pinned=tuple(request.pinned or ()))}",
            user=request.user,
            grammar=slot.grammar if slot is not None and request.score_only else grammar.gbnf,
            max_tokens=limit,
            typical_tokens=(
                SCORE_TOKENS
                if request.score_only
                else min(limit, MOST_TYPICAL_TOKENS, max(1, grammar.max_chars // TYPICAL_CHARS_PER_TOKEN))
            ),
            temperature=request.temperature,
            top_k=int(self._filters["top_k"]),
            top_p=self._filters["top_p"],
            min_p=self._filters["min_p"],
            seed=request.seed,
            slot=slot,
            score_only=request.score_only,
        )

    def _slot_first(self, request: CompletionRequest, key: str) -> Grammar:
        """The grammar of answers that begin with `key`; without pins, it is the same for all claims."""
        return self._grammar(replace(request, order=(key,)), pinned=False)

    def _grammar(self, request: CompletionRequest, *, pinned: bool) -> Grammar:
        from judge_local.grammar.profile import compile_verdict

        pin = dict(request.pinned or {}) if pinned else {}
        key = json.dumps([request.schema, request.order, pin, request.checked], default=dict)
        if key not in self._grammars:
            if len(self._grammars) >= _GRAMMARS_KEPT:
                self._grammars.pop(next(iter(self._grammars)))
            self._grammars[key] = compile_verdict(
                request.schema, order=request.order, pin=pin or None, checked=request.checked
            )
        return self._grammars[key]

    def _respond(
        self, request: CompletionRequest, done: Generated, facts: Facts
    ) -> CompletionResponse | JudgeLocalError:
        try:
            answer = None if request.score_only else extract_json(done.text)
        except InvalidAnswerError as fault:
            return fault
        notes = [Note("template", note) for note in facts.notes]
        if facts.recurrent and self._places and not request.score_only:
            notes.append(Note("probabilities", _NOT_READ))
        return CompletionResponse(
            json=_in_schema_order(answer, request.schema),
            text=None if request.score_only else done.text,
            usage=TokenUsage(input_tokens=done.prompt_tokens, output_tokens=done.output_tokens),
            probabilities=done.probabilities or None,
            fingerprint=self._fingerprint(request, facts),
            notes=tuple(notes),
            stats={**done.stats, "forced_tokens": done.forced_tokens},
        )

    def _fingerprint(self, request: CompletionRequest, facts: Facts) -> str:
        """sha256 over all that could change an answer and is not the material itself."""
        parts = {
            "weights": self._sha256,
            "engine": facts.engine,
            "nGpuLayers": facts.n_gpu_layers,
            "template": _digest(facts.template),
            "promptVersion": PROMPT_VERSION,
            "schema": _digest(json.dumps(request.schema, default=dict, sort_keys=True)),
            # Without pins: they hold the claim, which differs from one subject to the next.
            "grammar": _digest(self._grammar(request, pinned=False).gbnf),
            "temperature": request.temperature,
            "deterministic": self._settings.deterministic,
            "probabilities": self._places,
            "filters": self._filters if request.temperature > 0 else None,
            "thinking": self._settings.thinking,
            "optionBias": {option: value for option, value in (request.option_bias or {}).items() if value},
            "scoreOnly": request.score_only,
        }
        return _digest(json.dumps(parts, sort_keys=True))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _in_schema_order(answer: Any, schema: Mapping[str, Any]) -> Any:
    """An object's own keys in the order of the schema's `properties`, whatever order they were decoded in."""
    properties = schema.get("properties", {})
    if not isinstance(answer, dict) or not isinstance(properties, Mapping):
        return answer
    known = [key for key in properties if key in answer]
    return {key: answer[key] for key in (*known, *(key for key in answer if key not in properties))}
