"""The scheduler: the runs of one submission share one prefill and decode together, each held to its grammar.

One submission at a time, in the order they came:

1. Tokenise every prompt; what they have in common is evaluated once, in sequence 0, and copied to each run.
   What sequence 0 still holds from the submission before is not evaluated again.
2. Decode all live runs in one batch a step: each step takes what a run has pending (the rest of its prompt; then one
   sampled token and what the grammar forces after it), asks the grammar about the token drawn, and stops a run when its
   text is finished.
3. Runs that are cancelled or late leave; a run for which no cells are left waits for the next wave.

The seam for batching across submissions is `_step`: it asks nothing of the live runs but what they have pending.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.binding import AbortFlag, Context, Decoded, Grammar, Model
from judge_local.engine.gate import Gate
from judge_local.engine.interrupt import Interrupter
from judge_local.engine.protocol import BATCH_TOKENS, Generate, Generated, Settings
from judge_local.engine.sampling import Sampler
from judge_local.engine.spelling import Speller
from judge_local.errors import (
    ContextOverflowError,
    DeadlineExceededError,
    EngineError,
    JudgeLocalError,
    TruncatedOutputError,
)
from judge_local.grammar.recogniser import Matcher

CELL_STEP: Final = 256
"""Contexts grow in steps of this many cells: llama.cpp pads to it anyway."""

GRAMMARS_KEPT: Final = 64
"""Grammars that stay read; a pinned claim makes one of its own."""

Outcome = Generated | JudgeLocalError
Deliver = Callable[[str, Outcome], None]


@dataclass(slots=True)
class _Run:
    """One request on its way to an answer."""

    request: Generate
    prompt: list[int]
    limit: int
    """Tokens the answer may have."""
    pending: list[int] = field(default_factory=list)
    """Tokens still to be evaluated."""
    sequence: int = -1
    position: int = 0
    """Tokens evaluated so far."""
    gate: Gate | None = None
    sampler: Sampler | None = None
    pieces: list[bytes] = field(default_factory=list)
    forced: int = 0
    """Tokens of the answer that the grammar left no choice about."""

    @property
    def id(self) -> str:
        return self.request.id


@dataclass(slots=True)
class _Clock:
    """Seconds spent on a submission, by phase."""

    wait: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    sample: float = 0.0


class Scheduler:
    """Owns the context of one model; lives in the worker's main thread."""

    def __init__(
        self,
        model: Model,
        assembler: PromptAssembler,
        settings: Settings,
        interrupter: Interrupter,
        abort: AbortFlag,
    ) -> None:
        self._model, self._assembler, self._settings = model, assembler, settings
        self._interrupter, self._abort = interrupter, abort
        self.n_ctx = min(settings.n_ctx or model.n_ctx_train, model.n_ctx_train)
        self._context: Context | None = None
        self._prefix: list[int] = []
        """The tokens that sequence 0 holds."""
        self._speller = Speller(model, assembler.plain)
        self._grammars: dict[str, tuple[Grammar, Matcher]] = {}
        self.totals: dict[str, float] = {
            "requests": 0,
            "prompt_tokens": 0,
            "shared_tokens": 0,
            "output_tokens": 0,
        }

    def run(self, requests: Sequence[Generate], deliver: Deliver, *, waited: float = 0.0) -> None:
        """Answer `requests`; `deliver` is called once for each, in the order in which they end."""
        clock = _Clock(wait=waited)
        if self._settings.deterministic:
            self._discard_context()

        def end(run_id: str, outcome: Outcome) -> None:
            self._interrupter.settle(run_id)
            self._count(outcome)
            deliver(run_id, outcome)

        waiting: deque[_Run] = deque()
        for request in requests:
            try:
                waiting.append(self._admit(request))
            except JudgeLocalError as error:
                end(request.id, error)
        try:
            self._work(waiting, end, clock)
        except EngineError as error:
            # What is left of the submission fails with it; the context may be in any state.
            self._discard_context()
            for run in waiting:
                end(run.id, error)

    def close(self) -> None:
        """Free the context and the grammars."""
        self._discard_context()
        for grammar, _ in self._grammars.values():
            grammar.close()
        self._grammars.clear()

    def _admit(self, request: Generate) -> _Run:
        prompt = self._assembler.tokens(request.system, request.user)
        room = self.n_ctx - len(prompt)
        needed = min(request.max_tokens, request.typical_tokens)
        if room < needed:
            raise ContextOverflowError(
                "prompt",
                f"{len(prompt)} tokens and room for an answer of {needed} do not fit the context of {self.n_ctx} tokens",
                "Shorten the subject, split it, or use a model with a longer context.",
            )
        return _Run(request, prompt, limit=min(request.max_tokens, room))

    def _work(self, waiting: deque[_Run], end: Deliver, clock: _Clock) -> None:
        """Empty `waiting`, wave by wave. A run is taken off it only when it has ended."""
        room = 0
        while waiting:
            self._drop_over(waiting, end)
            if not waiting:
                return
            shared = _shareable([run.prompt for run in waiting])
            context = self._ready_context(waiting, shared, room)
            if not self._prefill(context, waiting, shared, end, clock):
                continue
            if self._wave(context, waiting, shared, end, clock):
                room = 0
            elif context.n_ctx >= self._most_cells(waiting[0]):
                raise EngineError(
                    "context",
                    f"llama.cpp has no room for one run in {context.n_ctx} cells",
                    "Use a shorter subject.",
                )
            else:
                room = min(2 * context.n_ctx, self._most_cells(waiting[0]))

    def _most_cells(self, run: _Run) -> int:
        return _padded(len(run.prompt) + run.limit)

    def _ready_context(self, waiting: Sequence[_Run], shared: int, room: int) -> Context:
        """A context that holds the next wave, or the first run of it at least."""
        wave = list(waiting)[: self._settings.slots]
        typical = [len(run.prompt) - shared + min(run.limit, run.request.typical_tokens) for run in wave]
        cells = max(_padded(shared + sum(typical)), room)
        if self._context is None or self._context.n_ctx < cells:
            self._discard_context()
            self._context = Context(
                self._model,
                n_ctx=cells,
                n_sequences=self._settings.slots + 1,
                n_batch=BATCH_TOKENS,
                n_threads=self._settings.n_threads,
                abort=self._abort,
            )
        return self._context

    def _prefill(
        self, context: Context, waiting: deque[_Run], shared: int, end: Deliver, clock: _Clock
    ) -> bool:
        """Bring sequence 0 to the first `shared` tokens of the prompts. False when every run ended meanwhile."""
        tokens = waiting[0].prompt[:shared]
        kept = _common_prefix([self._prefix, tokens])
        if kept < len(self._prefix) and not context.forget(0, kept):
            # A recurrent state cannot be cut back.
            context.clear()
            kept = 0
        self._prefix = self._prefix[:kept]
        started = time.monotonic()
        while len(self._prefix) < shared:
            self._interrupter.watch(run.id for run in waiting)
            at = len(self._prefix)
            piece = tokens[at : at + BATCH_TOKENS]
            count = len(piece)
            code = context.decode(piece, range(at, at + count), [0] * count, [False] * count)
            if code is Decoded.DONE:
                self._prefix += piece
                continue
            if code is Decoded.NO_ROOM:
                raise EngineError("context", f"{shared} shared tokens do not fit {context.n_ctx} cells")
            if not context.forget(0, at):
                context.clear()
                self._prefix = []
            self._drop_over(waiting, end)
            if not waiting or waiting[0].prompt[:shared] != tokens:
                break
        clock.prefill += time.monotonic() - started
        return bool(waiting) and self._prefix == waiting[0].prompt[:shared]

    def _wave(self, context: Context, waiting: deque[_Run], shared: int, end: Deliver, clock: _Clock) -> bool:
        """Decode as many runs as there are slots to their ends. False when not even one of them had room."""
        live = [
            self._start(context, run, sequence, shared) for sequence, run in enumerate(self._next(waiting), 1)
        ]

        def leave(run: _Run, outcome: Outcome | None) -> None:
            """Free what the run holds; without an outcome it stays in `waiting` and starts again later."""
            live.remove(run)
            context.forget(run.sequence)
            if run.gate is not None:
                run.gate.close()
            run.gate = None
            if outcome is not None:
                waiting.remove(run)
                end(run.id, outcome)

        try:
            while live:
                for run in [run for run in live if self._is_over(run)]:
                    leave(run, self._over_error(run))
                if not live:
                    break
                self._interrupter.watch(run.id for run in live)
                code = self._step(context, live, shared, leave, clock)
                if code is Decoded.NO_ROOM:
                    leave(live[-1], None)
                    if not live:
                        return False
                elif code is Decoded.ABORTED:
                    # Some micro-batches may have been finished: go back to where every run stood.
                    for run in list(live):
                        if not context.forget(run.sequence, run.position):
                            leave(run, self._over_error(run) if self._is_over(run) else None)
        finally:
            for run in list(live):
                leave(run, None)
        return True

    def _next(self, waiting: deque[_Run]) -> list[_Run]:
        return list(waiting)[: self._settings.slots]

    def _start(self, context: Context, run: _Run, sequence: int, shared: int) -> _Run:
        context.forget(sequence)
        context.copy(0, sequence)
        run.sequence, run.position = sequence, shared
        run.pending = run.prompt[shared:]
        run.pieces = []
        run.forced = 0
        run.gate = self._gate(run.request.grammar)
        # The prompt and what every answer begins with are read in one go.
        self._take(run, run.gate, None)
        run.sampler = Sampler(temperature=run.request.temperature, seed=run.request.seed)
        return run

    def _step(
        self,
        context: Context,
        live: list[_Run],
        shared: int,
        leave: Callable[[_Run, Outcome | None], None],
        clock: _Clock,
    ) -> Decoded:
        """Evaluate what the live runs have pending, and draw the next token of each that has caught up."""
        tokens: list[int] = []
        positions: list[int] = []
        owners: list[int] = []
        wanted: list[bool] = []
        taken: list[tuple[_Run, int, int]] = []
        for run in live:
            part = run.pending[: BATCH_TOKENS - len(tokens)]
            if not part:
                break
            tokens += part
            positions += range(run.position, run.position + len(part))
            owners += [run.sequence] * len(part)
            wanted += [False] * (len(part) - 1) + [len(part) == len(run.pending)]
            taken.append((run, len(part), len(tokens) - 1))
        reading = any(count > 1 for _, count, _ in taken)
        started = time.monotonic()
        code = context.decode(tokens, positions, owners, wanted)
        now = time.monotonic()
        if reading:
            clock.prefill += now - started
        else:
            clock.decode += now - started
        if code is not Decoded.DONE:
            return code
        for run, count, row in taken:
            run.position += count
            del run.pending[:count]
            if not run.pending:
                outcome = self._continue(context, run, row, shared, clock)
                if outcome is not None:
                    leave(run, outcome)
        clock.sample += time.monotonic() - now
        return code

    def _continue(self, context: Context, run: _Run, row: int, shared: int, clock: _Clock) -> Outcome | None:
        """Draw the run's next token. Its outcome when that ends it."""
        assert run.gate is not None  # Set by `_start`, for as long as the run is live.
        assert run.sampler is not None
        logits = context.logits(row)
        logits[self._model.unwritable] = float("-inf")
        token = run.sampler.choose(logits, run.gate)
        if token not in self._model.eog:
            self._take(run, run.gate, token)
            if not run.gate.finished:
                if len(run.pieces) < run.limit:
                    return None
                error = TruncatedOutputError(
                    "answer",
                    f"not complete after {run.limit} tokens",
                    "Raise max_tokens, shorten the subject, or use a model with a longer context.",
                )
                error.raw = b"".join(run.pieces).decode("utf-8", "replace")
                return error
        return Generated(
            id=run.id,
            text=b"".join(run.pieces).decode("utf-8"),
            prompt_tokens=len(run.prompt),
            shared_tokens=shared,
            output_tokens=len(run.pieces),
            forced_tokens=run.forced,
            stats={
                "wait": clock.wait,
                "prefill": clock.prefill,
                "decode": clock.decode,
                "sample": clock.sample,
            },
        )

    def _take(self, run: _Run, gate: Gate, token: int | None) -> None:
        """Write `token`, if there is one, and all that the grammar forces after it."""
        if token is not None:
            run.pieces.append(gate.accept(token))
            run.pending.append(token)
        forced = gate.forced()
        for forced_token in self._speller.spell(forced, last=gate.finishes(forced)):
            if len(run.pieces) >= run.limit or not gate.allows(forced_token):
                return
            run.pieces.append(gate.accept(forced_token))
            run.pending.append(forced_token)
            run.forced += 1

    def _gate(self, gbnf: str) -> Gate:
        """A gate at the start of `gbnf`, which is read once and copied."""
        if gbnf not in self._grammars:
            if len(self._grammars) >= GRAMMARS_KEPT:
                self._grammars.pop(next(iter(self._grammars)))[0].close()
            self._grammars[gbnf] = (self._model.grammar(gbnf), Matcher.from_gbnf(gbnf))
        grammar, matcher = self._grammars[gbnf]
        return Gate(grammar.clone(), matcher, self._model)

    def _is_over(self, run: _Run) -> bool:
        return self._interrupter.is_over(run.id)

    def _over_error(self, run: _Run) -> JudgeLocalError:
        done = (
            f"{len(run.pieces)} tokens of the answer were written" if run.pieces else "no token was written"
        )
        if self._interrupter.is_cancelled(run.id):
            return EngineError("request", f"cancelled; {done}")
        return DeadlineExceededError(
            "request", f"its time ran out; {done}", "Give it more time or use a faster model."
        )

    def _drop_over(self, waiting: deque[_Run], end: Deliver) -> None:
        for run in [run for run in waiting if self._is_over(run)]:
            waiting.remove(run)
            end(run.id, self._over_error(run))

    def _discard_context(self) -> None:
        self._prefix = []
        if self._context is not None:
            self._context.close()
            self._context = None

    def _count(self, outcome: Outcome) -> None:
        self.totals["requests"] += 1
        if isinstance(outcome, Generated):
            self.totals["prompt_tokens"] += outcome.prompt_tokens
            self.totals["shared_tokens"] += outcome.shared_tokens
            self.totals["output_tokens"] += outcome.output_tokens


def _common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all of `prompts` share.

    >>> _common_prefix([[1, 2, 3], [1, 2, 4, 5]])
    2
    """
    shortest = min(len(prompt) for prompt in prompts)
    first = prompts[0]
    for place in range(shortest):
        if any(prompt[place] != first[place] for prompt in prompts[1:]):
            return place
    return shortest


def _shareable(prompts: Sequence[Sequence[int]]) -> int:
    """The same, but each prompt keeps one token of its own at least: logits are read after it.

    >>> _shareable([[1, 2, 3]])
    2
    """
    return min(_common_prefix(prompts), min(len(prompt) for prompt in prompts) - 1)


def _padded(cells: int) -> int:
    """`cells` rounded up, with one step to spare.

    >>> _padded(1)
    512
    """
    return (cells // CELL_STEP + 2) * CELL_STEP
