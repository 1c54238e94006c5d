"""Models that think before they answer: how their templates open and close that, and one run's thinking under a budget.

A judge's answer is held to a grammar, which a thinking model does not expect at the point where it would think. So either
its think block is closed at once, as its template renders it with thinking off, or it may think for so many tokens first:
freely drawn, never parsed, then ended for it if it has not ended by itself, and only then the grammar starts.

What templates do, and what is made of it (`Style.read`):

* a switch, `enable_thinking` or `thinking` (Qwen3, SmolLM3, GLM-4.5, Granite, DeepSeek-V3.1): what it renders is taken;
* a prompt that ends in an open block (DeepSeek-R1's distillations, QwQ, Qwen3-Thinking): the block is closed, and empty;
* no switch, but a mark in the template's source (it strips thoughts from earlier turns): an empty block is put there;
* gpt-oss's channels: the prompt goes on to the final channel.

Pure but for the vocabulary it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from judge_local.engine.sampling import Floats, Sampler

MARKS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""What opens and closes a think block, by the template's dialect."""

_CHANNELS: Final = ("<|channel|>", "analysis", "final")
_ANALYSIS: Final = "<|channel|>analysis<|message|>"
_ANALYSIS_END: Final = "<|end|>"
_FINAL: Final = "<|channel|>final<|message|>"
_ASSISTANT: Final = "<|start|>assistant"

OFF: Final[dict[str, Any]] = {"enable_thinking": False, "thinking": False}
ON: Final[dict[str, Any]] = {"enable_thinking": True, "thinking": True}
"""What templates are told, by the names they have for it."""


def thinks(source: str) -> bool:
    """Whether a template's text names a think block, or channels.

    >>> thinks("{{ '<think>' }}"), thinks("{{ messages }}")
    (True, False)
    """
    return all(mark in source for mark in _CHANNELS) or any(mark in source for pair in MARKS for mark in pair)


@dataclass(frozen=True, slots=True)
class Style:
    """How one model's thinking is opened and closed in its prompt."""

    closed: str
    """How the prompt ends when there is to be no thinking."""
    opened: str
    """How it ends when thinking is to come."""
    end: str
    """What the model writes when it has thought enough."""
    after: str
    """What stands between that and the answer."""
    before_end: str
    """What is put before `end` where the model has to be stopped."""

    @classmethod
    def read(cls, source: str, off: str, on: str, *, switch: bool) -> Style | None:
        """Read it from a template; None for a model that does not think.

        Args:
            source: the template's text.
            off: how the prompt ends, after the user's message, with thinking off.
            on: the same with thinking on.
            switch: whether the two prompts differ anywhere.
        """
        if all(mark in source for mark in _CHANNELS):
            return cls(
                closed=off + _FINAL,
                opened=off + _ANALYSIS,
                end=_ANALYSIS_END,
                after=_ASSISTANT + _FINAL,
                before_end="",
            )
        for open_, close in MARKS:
            if close not in source and open_ not in off + on:
                continue
            closed = _closed(off, open_, close, switch=switch)
            after = closed[closed.rindex(close) + len(close) :] if close in closed else "\n\n"
            opened = on if _is_open(on, open_, close) else f"{_without_block(on, open_, close)}{open_}\n"
            return cls(closed=closed, opened=opened, end=close, after=after, before_end="\n")
        return None


def _closed(tail: str, open_: str, close: str, *, switch: bool) -> str:
    if _is_open(tail, open_, close):
        return f"{tail[: tail.rindex(open_)]}{open_}\n\n{close}\n\n"
    # With a switch, the template knows what a prompt without thinking looks like.
    return tail if switch or close in tail else f"{tail}{open_}\n\n{close}\n\n"


def _is_open(tail: str, open_: str, close: str) -> bool:
    return open_ in tail and tail.rfind(close) < tail.rindex(open_)


def _without_block(tail: str, open_: str, close: str) -> str:
    """`tail` without an empty think block at its end."""
    return tail[: tail.rindex(open_)] if open_ in tail and close in tail else tail


class Budget:
    """How runs think with one model.

    Args:
        style: of its template.
        most: tokens a run may think; the closing text is not counted.
        spell: tokens of scaffolding: marks in it become control tokens.
    """

    def __init__(self, style: Style, most: int, spell: Callable[[str], list[int]]) -> None:
        self.most, self._spell = most, spell
        self.close = spell(style.before_end + style.end + style.after)
        """What ends the thinking of a run that has not ended it."""
        self.end = style.end.encode()
        ends = spell(style.end)
        self.end_token = ends[0] if len(ends) == 1 else None
        self.after = style.after.encode()

    @property
    def room(self) -> int:
        """Tokens to set aside for each run."""
        return self.most + len(self.close)

    def rest(self, beyond: bytes) -> list[int]:
        """Tokens of what is still to stand before the answer, where `beyond` was written after the end mark."""
        left = self.after[len(beyond) :] if self.after.startswith(beyond) else b""
        return self._spell(left.decode()) if left else []


class Thinking:
    """The thinking of one run, from its prompt to the end of its block."""

    def __init__(self, budget: Budget, piece: Callable[[int], bytes], eog: frozenset[int]) -> None:
        self._budget, self._piece, self._eog = budget, piece, eog
        self._text = b""
        self.count = 0
        """Tokens thought so far."""
        self.over = False

    @property
    def end_token(self) -> int | None:
        """The one token of the mark that ends a block, where it is one."""
        return self._budget.end_token

    def draw(self, logits: Floats, sampler: Sampler) -> list[int]:
        """The next tokens to evaluate; the block is closed by them once `over` is set.

        Args:
            logits: shape [n_vocab]; -inf is never chosen: all control tokens but those that end something.
            sampler: the run's.
        """
        budget = self._budget
        token = sampler.choose(logits, _EVERYTHING)
        if token in self._eog and token != budget.end_token:
            # It would answer nothing at all: its turn is not over.
            self.over = True
            return list(budget.close)
        self.count += 1
        # As long as the mark may have begun in it, and no longer.
        self._text = self._text[-len(budget.end) - 1 :] + self._piece(token)
        if token == budget.end_token:
            self.over = True
            return [token, *budget.rest(b"")]
        if budget.end in self._text:
            self.over = True
            return [token, *budget.rest(self._text.partition(budget.end)[2])]
        if self.count >= budget.most:
            self.over = True
            return [token, *budget.close]
        return [token]


class _Everything:
    """A gate that lets everything through."""

    def allows(self, token: int) -> bool:
        """Always."""
        return token >= 0

    def not_refused(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """All of them."""
        return np.ones(len(tokens), dtype=bool)


_EVERYTHING: Final = _Everything()
