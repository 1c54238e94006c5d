"""Runs and groups: what is asked together, how far each answer is, and how a token is added to it.

A group is one submission: requests whose prompts begin alike. A run is one of its requests on the way to an answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.binding import Grammar, Model
from judge_local.engine.drafts import Lookup
from judge_local.engine.gate import Gate
from judge_local.engine.protocol import Generate, Generated
from judge_local.engine.sampling import Filters, Floats, Sampler
from judge_local.engine.slot import Forget, SlotReader
from judge_local.engine.spelling import Speller
from judge_local.engine.thinking import Thinking
from judge_local.errors import ContextOverflowError, EngineError, JudgeLocalError, TruncatedOutputError
from judge_local.grammar.recogniser import Matcher

GRAMMARS_KEPT: Final = 64
"""Grammars that stay read; a pinned claim makes one of its own."""

Outcome = Generated | JudgeLocalError


@dataclass(slots=True, eq=False)
class Run:
    """One request on its way to an answer."""

    request: Generate
    prompt: list[int]
    limit: int
    """Tokens the answer may have."""
    asked_at: float
    """`time.monotonic()` of the submission."""
    sequence: int = -1
    position: int = 0
    """Tokens evaluated so far."""
    pending: list[int] = field(default_factory=list)
    """Tokens still to be evaluated."""
    gate: Gate | None = None
    sampler: Sampler | None = None
    reader: SlotReader | None = None
    """Reads the probabilities of a slot's options, where they were asked for."""
    thinking: Thinking | None = None
    """What goes before the answer, where the model is let think."""
    room_to_think: int = 0
    """Cells to set aside for that."""
    pieces: list[bytes] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """The answer so far; `pieces` are their bytes."""
    forced: int = 0
    """Tokens of the answer that the grammar left no choice about."""
    started_at: float = 0.0

    @property
    def id(self) -> str:
        """The request's."""
        return self.request.id

    @property
    def scoring(self) -> bool:
        """Whether what is evaluated now is no part of the answer: probabilities are read."""
        return self.reader is not None and self.reader.reading

    @property
    def reserve(self) -> int:
        """Cells to set aside for what is still to be written, and for all that is thought."""
        return max(0, min(self.limit, self.request.typical_tokens) - len(self.pieces)) + self.room_to_think


@dataclass(slots=True, eq=False)
class Group:
    """The runs of one submission that have not ended."""

    runs: deque[Run]
    """Those that have no sequence yet."""
    shared: list[int]
    """The tokens that all their prompts begin with; each has at least one of its own after them."""
    evaluated: int = 0
    """How many of `shared` are in the reader's sequence."""
    borrowed: int = 0
    """How many of these were copied from another sequence."""
    beginning: list[int] = field(default_factory=list)
    """What every prompt with this `system` begins with, where the prompts of this group go beyond it."""
    lookup: Lookup = field(init=False)
    """Knows the prompt, and the answers as far as they are written."""

    def __post_init__(self) -> None:
        self.lookup = Lookup(self.shared)

    @property
    def fresh(self) -> int:
        """Cells that the shared tokens take beyond what was there."""
        return len(self.shared) - self.borrowed


def open_group(
    requests: Sequence[Generate], asked_at: float, assembler: PromptAssembler, n_ctx: int
) -> tuple[Group | None, dict[str, JudgeLocalError]]:
    """Tokenise a submission. Those that do not fit are errors by id; the group is None when none is left."""
    runs: list[Run] = []
    errors: dict[str, JudgeLocalError] = {}
    thinking = 0 if assembler.thinking is None else assembler.thinking.room
    for request in requests:
        try:
            prompt = assembler.tokens(request.system, request.user)
            think = 0 if request.score_only else thinking
            room = n_ctx - len(prompt) - think
            needed = min(request.max_tokens, request.typical_tokens)
            if room < needed:
                raise ContextOverflowError(
                    "prompt",
                    f"{len(prompt)} tokens and room for an answer of {think + needed} do not fit the context of {n_ctx} tokens",
                    "Shorten the subject, split it, or use a model with a longer context.",
                )
            limit = min(request.max_tokens, room)
            runs.append(Run(request, prompt, limit=limit, asked_at=asked_at, room_to_think=think))
        except JudgeLocalError as error:
            errors[request.id] = error
    if not runs:
        return None, errors
    shared = common_prefix([run.prompt for run in runs])
    # Each prompt keeps one token of its own: logits are read after it.
    shared = min(shared, min(len(run.prompt) for run in runs) - 1)
    return Group(deque(runs), runs[0].prompt[:shared]), errors


class Writer:
    """Adds tokens to runs: held to their grammars, forced text spelled without sampling."""

    def __init__(self, model: Model, assembler: PromptAssembler) -> None:
        self._model, self._assembler = model, assembler
        self._speller = Speller(model, assembler.plain)
        self._grammars: dict[str, tuple[Grammar, Matcher]] = {}

    def start(self, run: Run, sequence: int, shared: int) -> None:
        """Put `run` on `sequence`, which holds the first `shared` tokens of its prompt.

        Raises:
            GrammarRejectedError: llama.cpp cannot read its grammar.
        """
        run.sequence, run.position, run.started_at = sequence, shared, time.monotonic()
        run.pending, run.pieces, run.tokens, run.forced = run.prompt[shared:], [], [], 0
        run.gate = self._gate(run.request.grammar)
        asked = run.request
        filters = Filters(top_k=asked.top_k, top_p=asked.top_p, min_p=asked.min_p)
        run.sampler = Sampler(temperature=asked.temperature, seed=asked.seed, filters=filters)
        budget = self._assembler.thinking
        run.thinking = None
        if budget is not None and not asked.score_only:
            run.thinking = Thinking(budget, self._model.piece, self._model.eog)
        elif not asked.score_only:
            # The prompt and what every answer begins with are evaluated in one go.
            self._take(run, run.gate, None)
        run.reader = self._reader(run)
        if run.reader is not None:
            run.reader.begin(run, aside=() if budget is None else budget.close)

    def stop(self, run: Run) -> None:
        """Free what `run` holds here."""
        if run.gate is not None:
            run.gate.close()
            run.gate = None

    def draw(self, run: Run, logits: Floats, forget: Forget) -> Outcome | None:
        """Draw the next token of `run` from `logits`, which are overwritten. Its outcome when that ends it.

        Args:
            run: nothing of it is pending.
            logits: after all of it that has been evaluated.
            forget: cuts its sequence back.
        """
        assert run.gate is not None  # Set by `start`, for as long as the run is live.
        assert run.sampler is not None
        if run.thinking is not None and not run.thinking.over and not self._reads_aside(run):
            self._think(run, run.thinking, run.sampler, run.gate, logits)
            return None
        logits[self._model.unwritable] = -np.inf
        chosen = b""
        if run.reader is not None:
            known = run.reader.read(run, logits, run.gate.matcher, forget)
            if known is None:
                return self._done(run) if run.reader.done else None
            logits, chosen = known, run.reader.biased(run.sampler.pick)
        if chosen:
            self._write(run, run.gate, chosen)
        else:
            token = run.sampler.choose(logits, run.gate)
            if token in self._model.eog:
                return self._done(run)
            self._take(run, run.gate, token)
        if run.gate.finished:
            return self._done(run)
        return None if len(run.pieces) < run.limit else _truncated(run)

    @staticmethod
    def _reads_aside(run: Run) -> bool:
        return run.reader is not None and run.reader.aside

    def _think(self, run: Run, thinking: Thinking, sampler: Sampler, gate: Gate, logits: Floats) -> None:
        mark = thinking.end_token
        kept = None if mark is None else logits[mark]
        logits[self._model.unwritable] = -np.inf
        if kept is not None:
            # The one control token that a thought may end with.
            logits[mark] = kept
        run.pending = thinking.draw(logits, sampler)
        if thinking.over:
            # The grammar starts fresh, whatever was thought.
            self._take(run, gate, None)

    def close(self) -> None:
        """Free the grammars."""
        for grammar, _ in self._grammars.values():
            grammar.close()
        self._grammars.clear()

    def _done(self, run: Run) -> Generated:
        now = time.monotonic()
        scores = run.reader
        thought = 0 if run.thinking is None else run.thinking.count
        return Generated(
            id=run.id,
            text=b"".join(run.pieces).decode("utf-8"),
            prompt_tokens=len(run.prompt),
            output_tokens=len(run.pieces) + thought,
            forced_tokens=run.forced,
            stats={
                "queued": run.started_at - run.asked_at,
                "running": now - run.started_at,
                "scored": 0 if scores is None else scores.scored,
                "thought": thought,
                "fell_back": 0 if run.sampler is None else run.sampler.fell_back,
            },
            probabilities={} if scores is None else scores.probabilities,
        )

    def _take(self, run: Run, gate: Gate, token: int | None) -> None:
        """Write `token`, if there is one, and all that the grammar forces after it."""
        if token is not None:
            run.pieces.append(gate.accept(token))
            run.tokens.append(token)
            run.pending.append(token)
        self._append(run, gate, self._spell(gate, gate.forced()))

    def _write(self, run: Run, gate: Gate, text: bytes) -> None:
        """Write `text`, which the grammar lets through and which something else has chosen, and all that is forced then.

        Raises:
            EngineError: the grammar refuses one of its tokens.
        """
        forced = text + gate.forced_after(text)
        tokens = self._spell(gate, forced)
        if sum(len(self._model.piece(token)) for token in tokens) < len(text):
            # Its own end must not be left to the model, which could make something else of it.
            tokens = self._speller.spell(text, last=True)
        before = len(run.pieces)
        self._append(run, gate, tokens)
        written = sum(map(len, run.pieces[before:]))
        if written < len(text) and len(run.pieces) < run.limit:
            raise EngineError("slot", f"the grammar refuses {text!r}, which it had let through")

    def _spell(self, gate: Gate, forced: bytes) -> list[int]:
        return self._speller.spell(forced, last=gate.finishes(forced)) if forced else []

    def _append(self, run: Run, gate: Gate, tokens: Sequence[int]) -> None:
        for forced_token in tokens:
            if len(run.pieces) >= run.limit or not gate.allows(forced_token):
                return
            run.pieces.append(gate.accept(forced_token))
            run.tokens.append(forced_token)
            run.pending.append(forced_token)
            run.forced += 1

    def _reader(self, run: Run) -> SlotReader | None:
        slot = run.request.slot
        if slot is None:
            return None
        return SlotReader(
            slot,
            self._speller,
            lambda gbnf: self._grammar(gbnf)[1],
            goes_back=not self._model.recurrent,
            stays=run.request.score_only,
        )

    def _gate(self, gbnf: str) -> Gate:
        """A gate at the start of `gbnf`."""
        grammar, matcher = self._grammar(gbnf)
        return Gate(grammar.clone(), matcher, self._model)

    def _grammar(self, gbnf: str) -> tuple[Grammar, Matcher]:
        """Both readings of `gbnf`, which is read once and copied."""
        if gbnf not in self._grammars:
            if len(self._grammars) >= GRAMMARS_KEPT:
                self._grammars.pop(next(iter(self._grammars)))[0].close()
            self._grammars[gbnf] = (self._model.grammar(gbnf), Matcher.from_gbnf(gbnf))
        return self._grammars[gbnf]


def _truncated(run: Run) -> TruncatedOutputError:
    error = TruncatedOutputError(
        "answer",
        f"not complete after {run.limit} tokens",
        "Raise max_tokens, shorten the subject, or use a model with a longer context.",
    )
    error.raw = b"".join(run.pieces).decode("utf-8", "replace")
    return error


def common_prefix(prompts: Sequence[list[int]]) -> int:
    """How many leading tokens all of `prompts` share.

    >>> common_prefix([[1, 2, 3], [1, 2, 4, 5]])
    2
    """
    # In order, what the first and the last begin with is what all begin with.
    low, high = min(prompts), max(prompts)
    for place, (one, other) in enumerate(zip(low, high, strict=False)):
        if one != other:
            return place
    return min(len(low), len(high))
