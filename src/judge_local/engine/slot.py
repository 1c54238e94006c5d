"""The slot of one run: when to read the probabilities of its options, on which tokens, and which option a bias chooses.

All is read on the run's own sequence: tokens are evaluated after the place in question, and the sequence is cut back to it
when their logits are there. So what is read changes nothing about the answer, and costs these few tokens.

* `before`: the prompt is followed by the beginning of an answer whose first property is the slot.
* `slot`: read at the first draw at which some token could tell two options apart, given all that the run has written.

A recurrent model cannot be cut back: of `before` nothing is read, and `slot` only where no option shares a token with
another one's beginning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final, Protocol

import numpy as np

from judge_local.engine.options import Floats, Rests, Walk, common_beginning, decides, spell_lead
from judge_local.engine.place import Place, keys_of
from judge_local.engine.protocol import Slot
from judge_local.engine.spelling import Speller
from judge_local.errors import EngineError
from judge_local.grammar.recogniser import Matcher

BEFORE: Final = "before"
SLOT: Final = "slot"

Forget = Callable[[int], bool]
"""Cuts the run's sequence back to so many tokens; False when the model cannot."""


class Track(Protocol):
    """What is read and written of a run: its tokens on the way through the model."""

    position: int
    pending: list[int]
    prompt: list[int]

    @property
    def pieces(self) -> Sequence[bytes]:
        """What has been written, by token."""
        ...


class _Phase(Enum):
    ASIDE = auto()
    """Reading `before`."""
    WATCHING = auto()
    """The answer is written; its slot is to come."""
    AT_SLOT = auto()
    """Reading `slot`."""
    OVER = auto()


class SlotReader:
    """Reads the probabilities of one run.

    Args:
        slot: what is asked for.
        speller: of the model.
        matcher: gives a matcher at the start of a GBNF.
        goes_back: whether a sequence can be cut back.
        stays: there is no answer to go back to: only `before` is wanted.
    """

    def __init__(
        self,
        slot: Slot,
        speller: Speller,
        matcher: Callable[[str], Matcher],
        *,
        goes_back: bool,
        stays: bool = False,
    ) -> None:
        self._slot, self._speller, self._goes_back, self._stays = slot, speller, goes_back, stays
        self._texts = {option: _json(option) for option in slot.options}
        self._place = Place(keys_of(slot.pointer))
        self._fed = 0
        self._phase = _Phase.WATCHING if slot.here or slot.bias else _Phase.OVER
        self._then = self._phase
        """The phase after the reading of `before`."""
        self._walk: Walk | None = None
        self._base = 0
        """Tokens of the sequence before those that are evaluated for the walk."""
        self._prompt_end = 0
        self._answer: list[int] = []
        """What was pending before the prompt was followed by something else."""
        self._logits: Floats | None = None
        self._rests: Rests = {}
        self._chosen_among: dict[str, float] | None = None
        self.probabilities: dict[str, dict[str, float]] = {}
        self.scored = 0
        """Tokens that were evaluated for the sake of the probabilities."""
        self._lead: tuple[list[int], Matcher, Rests] | None = None
        if slot.grammar and (goes_back or stays):
            self._lead = self._read_lead(matcher(slot.grammar))

    def begin(self, run: Track, *, aside: Sequence[int] = ()) -> None:
        """The prompt of `run` is pending, and the beginning of its answer after it.

        Args:
            run: at its start.
            aside: tokens to put between the prompt and the beginning of an answer when `before` is read.

        Raises:
            EngineError: only scores are wanted, and no answer begins with the slot.
        """
        if self._lead is None:
            if self._stays:
                raise EngineError(
                    "slot", f"no answer begins with {self._slot.lead!r} and two options after it"
                )
            return
        tokens, matcher, rests = self._lead
        ahead = len(run.prompt) - run.position
        self._answer, self._prompt_end = run.pending[ahead:], len(run.prompt)
        run.pending = [*run.pending[:ahead], *aside, *tokens]
        self.scored += len(aside) + len(tokens)
        self._then, self._phase = self._phase, _Phase.ASIDE
        self._base = self._prompt_end + len(aside) + len(tokens)
        self._walk = Walk(self._speller.lexicon, matcher, rests)
        self._walk.next()

    @property
    def reading(self) -> bool:
        """Whether tokens are evaluated that the run goes back from."""
        return self._phase in (_Phase.ASIDE, _Phase.AT_SLOT)

    def read(self, run: Track, logits: Floats, matcher: Matcher, forget: Forget) -> Floats | None:
        """Take in the logits after all that was pending.

        Args:
            run: nothing of it is pending.
            logits: shape [n_vocab]; -inf is never chosen.
            matcher: at the end of what is written.
            forget: cuts the sequence back.

        Returns:
            The logits to draw the next token from; None when something else is pending now, or all has been read that
            was wanted and nothing is to be written (`done`).

        Raises:
            EngineError: a bias was asked for, or nothing but scores, and this model cannot be cut back to read them.
        """
        if self._phase in (_Phase.OVER, _Phase.WATCHING) and not self._is_at_slot(run, matcher):
            return logits
        assert self._walk is not None  # Made when the phase began.
        self._walk.see(logits)
        path = self._walk.next()
        if path is not None:
            if self._phase is _Phase.AT_SLOT and self._logits is None:
                self._logits = logits.copy()
            return self._look(run, path, forget)
        if self._phase is _Phase.ASIDE:
            self.probabilities[BEFORE] = self._result()
            self._phase = self._then
            if not self._stays:
                self._go_on(run, forget)
            return None
        found = self._result()
        if self._slot.here:
            self.probabilities[SLOT] = found
        if self._slot.bias:
            self._chosen_among = found
        self._phase = _Phase.OVER
        if self._logits is None:
            return logits
        self._cut(run, self._base, forget)
        kept, self._logits = self._logits, None
        return kept

    @property
    def aside(self) -> bool:
        """Whether what is evaluated now stands beside the answer: `before` is being read."""
        return self._phase is _Phase.ASIDE

    @property
    def done(self) -> bool:
        """Whether scores alone were wanted, and they are there."""
        return self._stays and BEFORE in self.probabilities

    def biased(self, draw: Callable[[Floats], int]) -> bytes:
        """What to write next because of the bias: the rest of the option it chooses. Empty when that is not now.

        Args:
            draw: chooses among options by their logits, shape [n].
        """
        if self._chosen_among is None:
            return b""
        found, self._chosen_among = self._chosen_among, None
        options = list(found)
        with np.errstate(divide="ignore"):
            logits = np.log(np.array([found[option] for option in options]))
        logits += [self._slot.bias.get(option, 0.0) for option in options]
        return self._rests[options[draw(logits)]]

    def _is_at_slot(self, run: Track, matcher: Matcher) -> bool:
        """Whether the next token may decide between options; the walk is made then."""
        if self._phase is _Phase.OVER:
            return False
        for piece in run.pieces[self._fed :]:
            self._place.feed(piece)
        self._fed = len(run.pieces)
        written, ahead = self._place.value, b""
        if written is None:
            forced = matcher.forced()
            reach = self._place.until_value(forced)
            if reach is None:
                return False
            written, ahead = b"", forced[:reach]
        rests = {
            option: ahead + text[len(written) :]
            for option, text in self._texts.items()
            if text.startswith(written) and len(text) > len(written)
        }
        rests = {option: rest for option, rest in rests.items() if matcher.advance(rest) is not None}
        if len(rests) < 2:
            # One is left: it was decided by what stands before, or by the schema.
            self._phase = _Phase.OVER if not ahead or not rests else self._phase
            return False
        if not decides(self._speller.lexicon, matcher, rests):
            return False
        self._phase, self._base, self._rests = _Phase.AT_SLOT, run.position, rests
        self._walk = Walk(self._speller.lexicon, matcher, rests)
        self._walk.next()
        return True

    def _look(self, run: Track, path: Sequence[int], forget: Forget) -> Floats | None:
        """Let the tokens of `path` be evaluated where the walk began. The logits to draw from when that cannot be."""
        if not self._goes_back:
            if self._stays or self._slot.bias:
                raise EngineError(
                    "slot",
                    "two options begin with the same token, and this recurrent model cannot step back to tell them apart",
                    "Use another model.",
                )
            kept, self._logits, self._phase = self._logits, None, _Phase.OVER
            return kept
        self._cut(run, self._base, forget)
        run.pending = list(path)
        self.scored += len(path)
        return None

    def _go_on(self, run: Track, forget: Forget) -> None:
        """Back to the end of the prompt, and on with the answer."""
        end = self._prompt_end
        run.pending = list(self._answer)
        if not run.pending:
            # Its first token is to be drawn: the prompt's last one is evaluated again, for its logits.
            end -= 1
            run.pending = [run.prompt[-1]]
        self._cut(run, end, forget)

    def _cut(self, run: Track, end: int, forget: Forget) -> None:
        if run.position > end:
            if not forget(end):
                raise EngineError(
                    "slot", f"llama.cpp cannot cut a sequence of {run.position} tokens back to {end}"
                )
            run.position = end

    def _result(self) -> dict[str, float]:
        assert self._walk is not None
        found = self._walk.result()
        self._walk = None
        return {option: found.get(option, 0.0) for option in self._slot.options}

    def _read_lead(self, start: Matcher) -> tuple[list[int], Matcher, Rests] | None:
        """Tokens of the beginning of an answer that starts with the slot, and what is open after them."""
        lead = self._slot.lead.encode()
        shared = common_beginning(list(self._texts.values()))
        rests = {option: text[len(shared) :] for option, text in self._texts.items()}
        whole = lead + shared
        tokens = spell_lead(self._speller, whole, rests)
        spelled = sum(len(self._speller.piece(token)) for token in tokens)
        matcher = start.advance(whole[:spelled])
        if matcher is None or len(rests) < 2:
            return None
        rests = {option: whole[spelled:] + rest for option, rest in rests.items()}
        return tokens, matcher, rests


def _json(option: str) -> bytes:
    return json.dumps(option, ensure_ascii=False).encode()
