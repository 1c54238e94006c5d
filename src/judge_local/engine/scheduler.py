"""The scheduler: all runs of all submissions decode together, and each next subject is read beside them.

Sequences of the context: 0 keeps the prompt beginning that the submissions to come share with those that were; 1 is the
reader, which evaluates what a submission's prompts have in common once; the others are slots, one a run.

Each `step` evaluates one batch: what every live run has pending (its last token and what the grammar forced after it),
and, in the room that is left, the next piece of the reader's prompt. Tokens that are read ride along with those that are
written: on a CPU, a token in a larger batch costs a fraction of one alone. So a subject is read in small pieces while
others are judged, and in large ones when there is nothing else to do; `engine.pace` says in which, and measures how many
runs at once are worth while when many wait. When it has been read and slots are free, its runs
start as copies of the reader's sequence, and the reader goes on to the next submission.

Submissions are opened in the order they came, and thousands that wait cost nothing but their text.

With `deterministic`, one submission at a time has the context to itself, and a fresh one: what an answer is then depends
on nothing that came before or stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from judge_local.engine.admission import Admission
from judge_local.engine.advance import TOTALS, Advance, Taken
from judge_local.engine.assembly import PromptAssembler
from judge_local.engine.batch import Batch
from judge_local.engine.binding import AbortFlag, Model
from judge_local.engine.cells import KEPT, READER, Cells, free_slots, own_cells, padded
from judge_local.engine.context import Context, Decoded
from judge_local.engine.interrupt import Interrupter
from judge_local.engine.pace import (
    SLOTS_UNMEASURED,
    WORTH_MEASURING,
    Pace,
    best_slots,
    piece_beside,
)
from judge_local.engine.protocol import BATCH_TOKENS, Generate, Generated, Settings
from judge_local.engine.runs import Group, Outcome, Run, Writer, common_prefix, open_group
from judge_local.engine.shelf import Shelf
from judge_local.errors import EngineError, JudgeLocalError

Deliver = Callable[[str, Outcome], None]


class Scheduler:
    """Owns the context of one model; lives in the worker's main thread.

    Args:
        model: the model.
        assembler: makes prompts for it.
        settings: slots, threads, limits.
        interrupter: knows which requests are over.
        abort: stops a decode.
        deliver: called once for each request that was submitted, in the order in which they end.
        shelf: what earlier processes have left, and what is left for those to come.
    """

    def __init__(
        self,
        model: Model,
        assembler: PromptAssembler,
        settings: Settings,
        interrupter: Interrupter,
        abort: AbortFlag,
        deliver: Deliver,
        shelf: Shelf,
    ) -> None:
        self._model, self._assembler, self._settings = model, assembler, settings
        self._interrupter = interrupter
        self._deliver = deliver
        self._pace = Pace(model, settings, abort)
        self.n_ctx = min(settings.n_ctx or model.n_ctx_train, model.n_ctx_train)
        self._writer = Writer(model, assembler)
        self._cells = Cells(model, settings, abort, shelf)
        self._waiting = Admission(
            lambda requests, asked_at: open_group(requests, asked_at, assembler, self.n_ctx),
            self._end_if_over,
            self._end,
        )
        self._reading: Group | None = None
        self._opened: Group | None = None
        """The next to be read, when the context has no room for it yet."""
        self._live: list[Run] = []
        self._group_of: dict[Run, Group] = {}
        self._slots = settings.slots or min(SLOTS_UNMEASURED, self._cells.most_slots)
        """Runs decoded at once."""
        self._slots_settled = settings.slots is not None or settings.deterministic or model.recurrent
        self._free = free_slots(self._cells.most_slots)
        self._crowded = False
        """There was no room for what is live: nothing is started until something has ended."""
        self.totals: dict[str, float] = dict.fromkeys(TOTALS, 0.0)
        self._advance = Advance(
            self._writer, self._pace, self.totals, guesses=not (settings.deterministic or model.recurrent)
        )

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._waiting or self._opened or self._reading or self._live)

    def tell(self, say: Callable[[str], None]) -> None:
        """Give `say` lines for a person."""
        self._cells.say = say

    def submit(self, requests: Sequence[Generate]) -> None:
        """Take in a submission, behind those that wait."""
        self._waiting.add(requests)

    def step(self) -> None:
        """Do one batch of work. A fault of the engine ends every run it was about, and the context with it."""
        started = time.monotonic()
        before = self.totals["decode_seconds"] + self.totals["draw_seconds"]
        try:
            self.drop_over()
            self._advance_reader()
            if self._live or self._reading:
                self._evaluate()
        except EngineError as error:
            self._fail(error)
        inside = self.totals["decode_seconds"] + self.totals["draw_seconds"] - before
        self.totals["other_seconds"] += time.monotonic() - started - inside

    def refuse(self, error: JudgeLocalError) -> None:
        """End everything that waits or runs with `error`."""
        self._fail(error)
        for request in self._waiting:
            self._end(request.id, error)
        self._waiting.clear()

    def close(self) -> None:
        """Free the context and the grammars."""
        self._cells.discard()
        self._writer.close()

    # What is read next, and where it starts from.

    def _advance_reader(self) -> None:
        """Start the runs whose prompt has been read, and begin to read the next submission's."""
        if self._crowded and self._live:
            return
        self._crowded = False
        self._settle_slots()
        while True:
            self._start_runs()
            if self._reading is not None:
                return
            if self._opened is None:
                self._opened = self._waiting.open_next()
            if self._opened is None or not self._begin(self._opened):
                return
            self._reading, self._opened = self._opened, None

    def _settle_slots(self) -> None:
        """The first time that there is enough to do, find out how many slots there should be."""
        if self._slots_settled or not self._waiting.holds_more_than(WORTH_MEASURING):
            return
        self._slots_settled = True
        self._interrupter.watch(())
        try:
            seconds = self._pace.measure()
        except EngineError as error:
            # Nobody's request is at fault, and none must end for it.
            self._cells.say(f"not measured how many runs to decode at once: {error.problem}")
            return
        self._slots = min(best_slots(seconds), self._cells.most_slots)

    def _begin(self, group: Group) -> bool:
        """Give `group` the reader's sequence. False when it has to wait for room."""
        alone = not self._live
        if self._settings.deterministic:
            if not alone:
                return False
            self._cells.discard()
            self._free = free_slots(self._cells.most_slots)
        beginning = self._assembler.beginning(group.runs[0].request.system)
        if alone:
            # The one moment at which a context can be exchanged for a larger one.
            cells = self._cells.wanted(group, slots=self._slots, more_wait=bool(self._waiting))
            if self._cells.context is None or self._cells.count < cells:
                self._cells.make(cells)
            if common_prefix([self._cells.kept, group.shared]) < len(beginning) <= len(group.shared):
                self._cells.fetch(beginning)
        source, shared = self._best_source(group.shared)
        needed = len(group.shared) - shared + max(own_cells(run, group) for run in group.runs)
        if self._cells.context is None or self._used_cells() + needed > self._cells.count:
            if not alone:
                return False
            self._cells.drop_kept()
            shared = 0
        context = self._cells.context
        assert context is not None  # Just made, if it was not there.
        if shared:
            context.copy(source, READER)
            if not context.forget(READER, shared):
                # A recurrent state cannot be cut back to a part of what it has read.
                context.forget(READER)
                shared = 0
        group.evaluated = group.borrowed = shared
        group.beginning = beginning if len(beginning) <= len(group.shared) else []
        self.totals["shared_tokens"] -= group.fresh
        return True

    def _best_source(self, tokens: list[int]) -> tuple[int, int]:
        """The sequence that holds most of the beginning of `tokens`, and how much."""
        found = (KEPT, common_prefix([self._cells.kept, tokens]))
        seen: set[int] = set()
        for run in self._live:
            group = self._group_of[run]
            if id(group) in seen:
                continue
            seen.add(id(group))
            shared = common_prefix([group.shared, tokens])
            if shared > found[1]:
                found = (run.sequence, shared)
        return found

    def _start_runs(self) -> None:
        """Start runs of the group that has been read, as far as there are slots."""
        group, context = self._reading, self._cells.context
        if group is None or context is None or group.evaluated < len(group.shared):
            return
        while group.runs and len(self._live) < self._slots:
            run = group.runs[0]
            if self._live and self._used_cells() + own_cells(run, group) > context.n_ctx:
                return
            group.runs.popleft()
            self.totals["shared_tokens"] += len(group.shared)
            sequence = self._free.pop()
            context.copy(READER, sequence)
            self._live.append(run)
            self._group_of[run] = group
            try:
                self._writer.start(run, sequence, len(group.shared))
                group.lookup.watch(run.tokens)
            except JudgeLocalError as error:
                run.sequence = sequence
                self._leave(run, error)
        if not group.runs:
            self._keep_beginning(group)
            context.forget(READER)
            self._reading = None

    def _keep_beginning(self, group: Group) -> None:
        """Keep in sequence 0 what the submission to come shares with `group`; all of it when none is known."""
        if self._settings.deterministic:
            return
        self._cells.shelve(group.beginning)
        keep = len(group.shared)
        if self._opened is None:
            self._opened = self._waiting.open_next()
        if self._opened is not None:
            keep = common_prefix([group.shared, self._opened.shared])
            if common_prefix([self._cells.kept, self._opened.shared]) >= keep:
                return
        self._cells.keep(group.shared[:keep])

    # One batch.

    def _evaluate(self) -> None:
        context, reading = self._cells.context, self._reading
        assert context is not None  # There is one as long as anything runs or is read.
        batch = Batch(self._cells.batch_limit(self._live, self._group_of, reading))
        taken: list[Taken] = []
        # Who is about to write first: a prompt's end can wait for a batch, and holds up nobody then.
        for run in sorted(self._live, key=lambda run: len(run.pending)):
            count = batch.add(run.pending, run.position, run.sequence, ends_in_logits=True)
            if count:
                taken.append(Taken(run, count, [len(batch) - 1]))
        read = 0
        if reading is None or reading.evaluated == len(reading.shared):
            self._advance.add_guesses(batch, taken, self._group_of)
        else:  # A prompt that is read fills the batch by itself.
            left = reading.shared[reading.evaluated :]
            most = piece_beside(len(batch), len(left)) if taken else BATCH_TOKENS
            read = batch.add(left, reading.evaluated, READER, most=most)
        if not len(batch):
            return
        self._interrupter.watch(
            [run.id for run in self._live] + [run.id for run in (reading.runs if reading else ())]
        )
        started = time.monotonic()
        code = context.decode(batch.tokens, batch.positions, batch.owners, batch.wanted)
        decoded = time.monotonic()
        self.totals["decode_seconds"] += decoded - started
        self.totals["steps"] += 1
        if code is Decoded.NO_ROOM:
            self._make_room(context)
            return
        if code is Decoded.ABORTED:
            self._step_back(context)
            return
        if reading is not None:
            reading.evaluated += read
            self.totals["read_tokens"] += read
        for one in taken:
            run = one.run
            self.totals["read_tokens"] += max(0, min(one.count, len(run.prompt) - run.position))
            run.position += one.count
            del run.pending[: one.count]
            if not run.pending:
                outcome = self._advance.draw(context, one)
                if outcome is not None:
                    self._leave(run, outcome)
        self.totals["draw_seconds"] += time.monotonic() - decoded

    def _step_back(self, context: Context) -> None:
        """After an abort some micro-batches may have been finished: go back to where each sequence stood."""
        lost = [run for run in self._live if not context.forget(run.sequence, run.position)]
        reading = self._reading
        if reading is not None and not context.forget(READER, reading.evaluated):
            context.forget(READER)
            reading.evaluated = reading.borrowed = 0
        for run in lost:
            # A recurrent state cannot go back: the run starts again.
            if not self._end_if_over(run.id, run):
                self._put_back(run)

    def _make_room(self, context: Context) -> None:
        """No cells are left for the next batch: give up what is needed least."""
        self._crowded = bool(self._live)
        if self._cells.kept:
            self._cells.drop_kept()
        elif self._reading is not None and self._live:
            context.forget(READER)
            self._reading.evaluated = self._reading.borrowed = 0
            self._give_back(self._reading)
        elif len(self._live) > 1:
            self._put_back(self._live[-1])
        else:
            # A single run, or a single prompt, in a context that is too small for it.
            most = max((padded(len(run.prompt) + run.limit) for run in self._all_runs()), default=0)
            if context.n_ctx >= most:
                raise EngineError(
                    "context",
                    f"llama.cpp has no room for one run in {context.n_ctx} cells",
                    "Use a shorter subject.",
                )
            for run in list(self._live):
                self._put_back(run)
            if self._reading is not None:
                self._give_back(self._reading)
            self._cells.make(min(2 * context.n_ctx, most))

    def _put_back(self, run: Run) -> None:
        """`run` loses its slot and starts again later, as the next of its group to do so."""
        group = self._group_of[run]
        self._release(run)
        group.runs.appendleft(run)
        if self._reading is not group:
            self._give_back(group)

    def _give_back(self, group: Group) -> None:
        """`group` is opened again later, before all others."""
        if self._reading is group:
            self._reading = None
        requests = [run.request for run in group.runs]
        asked_at = group.runs[0].asked_at
        if self._opened is not None and self._opened is not group:
            opened = self._opened
            self._waiting.put_back([run.request for run in opened.runs], opened.runs[0].asked_at)
            self._opened = None
        group.runs.clear()
        self._waiting.put_back(requests, asked_at)

    # Ends.

    def drop_over(self) -> None:
        """End what is cancelled or late. Done with every step; to be called while there is no turn to step."""
        for run in list(self._live):
            self._end_if_over(run.id, run)
        for group in (self._reading, self._opened):
            if group is not None:
                for run in [run for run in group.runs if self._end_if_over(run.id)]:
                    group.runs.remove(run)
        if self._reading is not None and not self._reading.runs:
            if self._cells.context is not None:
                self._cells.context.forget(READER)
            self._reading = None
        if self._opened is not None and not self._opened.runs:
            self._opened = None
        self._waiting.sweep()

    def _end_if_over(self, request: str, run: Run | None = None) -> bool:
        if not self._interrupter.is_over(request):
            return False
        written = (
            f"{len(run.pieces)} tokens of the answer were written"
            if run is not None and run.pieces
            else "no token was written"
        )
        error: JudgeLocalError
        if self._interrupter.is_cancelled(request):
            error = EngineError("request", f"cancelled; {written}")
        else:
            error = self._interrupter.lateness(written)
        if run is not None:
            self._leave(run, error)
        else:
            self._end(request, error)
        return True

    def _leave(self, run: Run, outcome: Outcome) -> None:
        """A live run ends."""
        self._release(run)
        self._crowded = False
        if isinstance(outcome, Generated):
            self.totals["prompt_tokens"] += outcome.prompt_tokens
            self.totals["written_tokens"] += outcome.output_tokens
            self.totals["forced_tokens"] += outcome.forced_tokens
        self._end(run.id, outcome)

    def _release(self, run: Run) -> None:
        self._writer.stop(run)
        if self._cells.context is not None:
            self._cells.context.forget(run.sequence)
        self._free.append(run.sequence)
        self._live.remove(run)
        del self._group_of[run]

    def _end(self, request: str, outcome: Outcome) -> None:
        self.totals["requests"] += 1
        self._interrupter.settle(request)
        self._deliver(request, outcome)

    def _fail(self, error: JudgeLocalError) -> None:
        """End all that is live or opened; the context may be in any state."""
        for run in list(self._live):
            self._leave(run, error)
        for group in (self._reading, self._opened):
            for run in group.runs if group is not None else ():
                self._end(run.id, error)
        self._reading = self._opened = None
        self._cells.discard()

    # Cells.

    def _all_runs(self) -> Iterable[Run]:
        yield from self._live
        for group in (self._reading, self._opened):
            if group is not None:
                yield from group.runs

    def _used_cells(self) -> int:
        groups = {id(group): group for group in self._group_of.values()}
        if self._reading is not None:
            groups[id(self._reading)] = self._reading
        return self._cells.used(groups.values(), self._live, self._group_of)
