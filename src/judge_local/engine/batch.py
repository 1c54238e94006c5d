"""One batch: the tokens of several sequences that llama.cpp evaluates in one call."""

from __future__ import annotations

from collections.abc import Sequence

from judge_local.engine.protocol import BATCH_TOKENS


class Batch:
    """Collects tokens; the four lists have one length, as `Context.decode` wants them.

    Args:
        limit: at most this many, 1 to `BATCH_TOKENS`.
    """

    def __init__(self, limit: int = BATCH_TOKENS) -> None:
        self.limit = limit
        self.tokens: list[int] = []
        self.positions: list[int] = []
        self.owners: list[int] = []
        self.wanted: list[bool] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self,
        tokens: Sequence[int],
        position: int,
        owner: int,
        *,
        most: int = BATCH_TOKENS,
        ends_in_logits: bool = False,
    ) -> int:
        """Add as many of `tokens` as there is room for.

        Args:
            tokens: what comes next in the sequence.
            position: the place of the first, from 0.
            owner: the sequence.
            most: take no more than this many.
            ends_in_logits: logits are wanted after the last of `tokens`, in the batch that holds it.

        Returns:
            How many were taken.
        """
        part = tokens[: min(most, self.limit - len(self.tokens))]
        if not part:
            return 0
        self.tokens += part
        self.positions += range(position, position + len(part))
        self.owners += [owner] * len(part)
        self.wanted += [False] * (len(part) - 1) + [ends_in_logits and len(part) == len(tokens)]
        return len(part)
