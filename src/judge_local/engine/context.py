"""The context of a model: the cells it attends over, the sequences in them, and the call that evaluates a batch.

A part of the narrow door that `engine.binding` is; the conventions are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as _llama

from judge_local.engine.binding import AbortFlag, Model
from judge_local.engine.stderr import because, captured_stderr
from judge_local.errors import EngineError


class Decoded(IntEnum):
    """What `llama_decode` returned. Any other value is an error of ours or of llama.cpp."""

    DONE = 0
    NO_ROOM = 1
    """No free cells for the batch; nothing was changed."""
    ABORTED = 2
    """The abort flag was up; finished micro-batches stay in memory."""


class Context:
    """The cells a model attends over, and the call that fills them.

    Args:
        model: the model; it must outlive the context.
        n_ctx: cells, shared by all sequences.
        n_sequences: how many sequences, numbered from 0.
        n_outputs: the most tokens of one `decode` after which logits are wanted, at least `n_sequences`.
        n_batch: the most tokens one `decode` takes.
        n_threads: threads of computation.
        abort: stops `decode` when raised.

    Raises:
        EngineError: llama.cpp cannot make it, most often for want of memory.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_ctx: int,
        n_sequences: int,
        n_outputs: int,
        n_batch: int,
        n_threads: int,
        abort: AbortFlag,
    ) -> None:
        params = _llama.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_batch = params.n_ubatch = n_batch
        params.n_seq_max = n_sequences
        # The default would reserve a row for every token of a batch.
        params.n_outputs_max = n_outputs
        params.n_threads = params.n_threads_batch = n_threads
        params.kv_unified = True
        # A sliding window that forgets cannot keep a shared prefix.
        params.swa_full = True
        params.abort_callback, params.abort_callback_data = abort.callback, abort.data
        with captured_stderr() as said:
            self._context = _llama.llama_init_from_model(model.handle, params)
        if not self._context:
            raise EngineError(
                "context",
                f"llama.cpp could not make room for {n_ctx} tokens{because(said())}",
                "Use a smaller model, fewer runs or a shorter subject.",
            )
        # llama.cpp looks at both for as long as there is a context.
        self._model, self._abort = model, abort
        self._memory = _llama.llama_get_memory(self._context)
        self.n_ctx = int(_llama.llama_n_ctx(self._context))
        self._tokens = np.zeros(n_batch, dtype=np.int32)
        self._positions = np.zeros(n_batch, dtype=np.int32)
        self._owners = np.zeros(n_batch, dtype=np.int32)
        self._wanted = np.zeros(n_batch, dtype=np.int8)
        self._one_owner = np.ones(n_batch, dtype=np.int32)
        step = self._owners.itemsize
        self._owner_rows = (ctypes.POINTER(ctypes.c_int32) * n_batch)(
            *(
                ctypes.cast(self._owners.ctypes.data + i * step, ctypes.POINTER(ctypes.c_int32))
                for i in range(n_batch)
            )
        )

    def decode(
        self, tokens: Sequence[int], positions: Sequence[int], owners: Sequence[int], wanted: Sequence[bool]
    ) -> Decoded:
        """Evaluate one batch (all arguments of one length, at most `n_batch`).

        Args:
            tokens: token ids.
            positions: the place of each in its sequence, from 0.
            owners: the sequence each belongs to.
            wanted: whether logits are wanted after it.

        Raises:
            EngineError: llama.cpp refused the batch or failed.
        """
        n = len(tokens)
        self._tokens[:n], self._positions[:n] = tokens, positions
        self._owners[:n], self._wanted[:n] = owners, wanted
        batch = _llama.llama_batch(
            n_tokens=n,
            token=self._tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            embd=None,
            pos=self._positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            n_seq_id=self._one_owner.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            seq_id=ctypes.cast(self._owner_rows, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=self._wanted.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )
        code = _llama.llama_decode(self._context, batch)
        try:
            return Decoded(code)
        except ValueError:
            raise EngineError("decode", f"llama.cpp returned {code} for a batch of {n} tokens") from None

    def logits(self, row: int) -> np.ndarray[Any, Any]:
        """Logits after token `row` of the last batch: float32, shape [n_vocab], a view that the next decode overwrites.

        Raises:
            EngineError: none were asked for there.
        """
        pointer = _llama.llama_get_logits_ith(self._context, row)
        if not pointer:
            raise EngineError("logits", f"none for row {row} of the last batch")
        return np.ctypeslib.as_array(pointer, shape=(self._model.n_vocab,))

    def copy(self, source: int, target: int) -> None:
        """Let `target` attend over all that `source` holds; no cell is computed again."""
        _llama.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def state(self, sequence: int) -> bytes:
        """What `sequence` holds, with the positions of its tokens, to be put into another sequence or context."""
        size = _llama.llama_state_seq_get_size(self._context, sequence)
        room = (ctypes.c_uint8 * size)()
        return bytes(room[: _llama.llama_state_seq_get_data(self._context, room, size, sequence)])

    def restore(self, sequence: int, state: bytes) -> bool:
        """Put `state` into `sequence`, in cells of its own, in place of all it held. False when there is no room for it."""
        room = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        return bool(_llama.llama_state_seq_set_data(self._context, room, len(state), sequence))

    def forget(self, sequence: int, start: int = 0) -> bool:
        """Drop a sequence from position `start` on. False when the model cannot drop a part (recurrent ones)."""
        return bool(_llama.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def close(self) -> None:
        """Free the cells."""
        if self._context:
            _llama.llama_free(self._context)
            self._context = None
