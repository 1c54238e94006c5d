"""The narrow door to llama.cpp: the few calls the engine makes, on the low-level API, typed and checked.

Conventions:

* Text goes in and comes out as bytes; nothing here decodes UTF-8.
* A NULL from llama.cpp becomes an exception at once: the next call on it would end the process.
* A token is accepted by a grammar only after it was asked for: accepting a forbidden one ends the process too.
* Nothing else in the project imports `llama_cpp`, but for `context`, which is the other half of this door, and three that
  do one thing each beside it: `devices`, `quantise` and `stock`. All run in child processes, never in the caller's.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import llama_cpp as _package
import numpy as np
from llama_cpp import llama_cpp as _llama
from llama_cpp._ggml import libggml

from judge_local.engine.devices import devices
from judge_local.engine.planning import Shape
from judge_local.errors import EngineError, GrammarRejectedError, ModelFileError

REFUSED: Final = -1e30
"""A grammar sets the logit of a forbidden token to -inf; anything below this is refused."""

_CONTROL: Final = _llama.LLAMA_TOKEN_ATTR_CONTROL
_UNWRITABLE: Final = _CONTROL | _llama.LLAMA_TOKEN_ATTR_UNKNOWN | _llama.LLAMA_TOKEN_ATTR_UNUSED
_SENTENCEPIECE: Final = 1  # enum llama_vocab_type: LLAMA_VOCAB_TYPE_SPM

_CANDIDATE: Final = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""The memory layout of `llama_token_data`."""


# The callbacks must outlive the process's last llama.cpp call, so they are kept here.
_stderr: Final = os.dup(2)
_last_words: Final = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(
    lambda text: os.write(_stderr, b"\n" + (text or b"").strip() + b"\n") and None
)
_quiet: Final = _llama.llama_log_callback(lambda _level, _text, _data: None)


def start_backend(*, verbose: bool = False) -> None:
    """Initialise llama.cpp once in this process. Its log is dropped unless `verbose`."""
    if not verbose:
        _llama.llama_log_set(_quiet, ctypes.c_void_p(0))
    # Why llama.cpp gives up must reach whoever reads our stderr, even while `captured_stderr` holds it.
    libggml.ggml_set_abort_callback(_last_words)
    _llama.llama_backend_init()


def build_info() -> dict[str, Any]:
    """What this build of llama.cpp is and can do.

    Returns:
        `version`; `system`, kernels and features; `gpu_offload`, whether it can use a graphics card; `devices`, those it
        finds, as `planning.Device`; `mmap`; `max_sequences`.
    """
    return {
        "version": _package.__version__,
        "system": _llama.llama_print_system_info().decode("utf-8", "replace").strip(),
        "gpu_offload": bool(_llama.llama_supports_gpu_offload()),
        "mmap": bool(_llama.llama_supports_mmap()),
        "devices": [asdict(device) for device in devices()],
        "max_sequences": int(_llama.llama_max_parallel_sequences()),
    }


class AbortFlag:
    """A byte that stops `llama_decode` from another thread.

    llama.cpp asks its abort callback at every node of the compute graph, some 750 times a token for a model of 30
    layers. A Python callback there would take the interpreter's lock each time and cost several per cent. libc's
    `strlen` has the shape of that callback, a pointer in and a number out: it is 0, which llama.cpp reads as "go on",
    while the byte is 0, and 1 once it is not. No Python runs until the decode is over.
    """

    def __init__(self) -> None:
        self._byte = ctypes.create_string_buffer(2)
        strlen = ctypes.CDLL(None).strlen
        address = ctypes.cast(strlen, ctypes.c_void_p).value
        self.callback = _llama.ggml_abort_callback(address)
        self.data = ctypes.cast(self._byte, ctypes.c_void_p)

    def raise_(self) -> None:
        """Stop the decode in progress, and every later one until `lower`."""
        self._byte[0] = b"\x01"

    def lower(self) -> None:
        """Let decoding go on."""
        self._byte[0] = b"\x00"


class Model:
    """Weights and vocabulary of one file. Not thread-safe; one per worker.

    Args:
        path: the file; of a split model, the first.
        n_gpu_layers: layers on the graphics card; the rest, and all with 0, stays in main memory.
        vocab_only: read the header and no weights.

    Raises:
        ModelFileError: llama.cpp cannot load the file.
    """

    def __init__(self, path: Path, *, n_gpu_layers: int = 0, vocab_only: bool = False) -> None:
        params = _llama.llama_model_default_params()
        params.n_gpu_layers = n_gpu_layers
        params.vocab_only = vocab_only
        with captured_stderr() as said:
            self.handle = _llama.llama_model_load_from_file(os.fsencode(path), params)
            """llama.cpp's own, for the context; None once it is closed."""
        if not self.handle:
            raise ModelFileError(
                str(path),
                f"llama.cpp cannot load it{because(said())}",
                "Pull it again or choose another file.",
            )
        self._vocab = _llama.llama_model_get_vocab(self.handle)
        self.n_vocab = int(_llama.llama_vocab_n_tokens(self._vocab))
        self.n_ctx_train = int(_llama.llama_model_n_ctx_train(self.handle))
        # In bytes; of a split model the parts are about of one size.
        self._size = path.stat().st_size * (self._header("split.count") or 1)
        self.recurrent = bool(
            _llama.llama_model_is_recurrent(self.handle) or _llama.llama_model_is_hybrid(self.handle)
        )
        self.has_decoder = bool(_llama.llama_model_has_decoder(self.handle))
        self.sentencepiece = _llama.llama_vocab_type(self._vocab) == _SENTENCEPIECE
        self.add_bos = bool(_llama.llama_vocab_get_add_bos(self._vocab))
        self.bos = int(_llama.llama_vocab_bos(self._vocab))
        self.eos = int(_llama.llama_vocab_eos(self._vocab))
        attributes = [_llama.llama_vocab_get_attr(self._vocab, token) for token in range(self.n_vocab)]
        self.eog = frozenset(t for t in range(self.n_vocab) if _llama.llama_vocab_is_eog(self._vocab, t))
        self.control = frozenset(t for t, attr in enumerate(attributes) if attr & _CONTROL) | self.eog
        self.user_defined = tuple(
            t for t, attr in enumerate(attributes) if attr & _llama.LLAMA_TOKEN_ATTR_USER_DEFINED
        )
        self.unwritable = np.array(
            [t for t, attr in enumerate(attributes) if attr & _UNWRITABLE and t not in self.eog],
            dtype=np.int64,
        )
        """Tokens an answer may never hold: a grammar sees only their text and would let them through."""
        self._pieces: dict[int, bytes] = {}

    @property
    def description(self) -> str:
        """Architecture, size and quantisation in llama.cpp's words."""
        return self._text(lambda room, size: _llama.llama_model_desc(self.handle, room, size))

    @property
    def shape(self) -> Shape:
        """What the model needs memory for, from its header."""
        architecture = self._header_text("general.architecture")

        def number(key: str, default: int) -> int:
            return self._header(f"{architecture}.{key}") or default

        heads = number("attention.head_count", 1)
        width = number("attention.key_length", number("embedding_length", 0) // heads)
        layers = number("block_count", 1)
        # Key and value in each layer, two bytes a number. Where layers differ, the header holds a list: counted in full.
        cell_bytes = 4 * layers * number("attention.head_count_kv", heads) * width
        return Shape(layers=layers, weights_bytes=self._size, cell_bytes=cell_bytes)

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, or None."""
        found = _llama.llama_model_chat_template(self.handle, None)
        return found.decode("utf-8") if found else None

    def token_text(self, token: int) -> str:
        """The token's text in the vocabulary, as templates write it; `""` for no token."""
        return "" if token < 0 else self.piece(token, special=True).decode("utf-8", "replace")

    def tokenize(self, data: bytes, *, special: bool) -> list[int]:
        """Tokens of `data`, no BOS or EOS added. `special` lets the text of control tokens become those tokens."""
        room = (ctypes.c_int32 * (len(data) + 8))()
        count = _llama.llama_tokenize(self._vocab, data, len(data), room, len(room), False, special)
        if count < 0:
            room = (ctypes.c_int32 * -count)()
            count = _llama.llama_tokenize(self._vocab, data, len(data), room, len(room), False, special)
        if count < 0:
            raise EngineError("tokenizer", f"{len(data)} bytes gave no tokens")
        return list(room[:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for; a control token is empty unless `special`."""
        known = self._pieces.get(token) if not special else None
        if known is not None:
            return known
        size = 64
        while True:
            room = ctypes.create_string_buffer(size)
            count = _llama.llama_token_to_piece(self._vocab, token, room, size, 0, special)
            if count >= 0:
                break
            size = -count
        piece = room.raw[:count]
        if not special:
            self._pieces[token] = piece
        return piece

    def grammar(self, gbnf: str) -> Grammar:
        """A sampler that holds an answer to `gbnf`, at its start.

        Raises:
            GrammarRejectedError: llama.cpp cannot read it.
        """
        with captured_stderr() as said:
            sampler = _llama.llama_sampler_init_grammar(self._vocab, gbnf.encode(), b"root")
        if not sampler:
            raise GrammarRejectedError(
                "grammar",
                f"llama.cpp cannot read it{because(said())}",
                "Report it with the schema: it is a bug.",
            )
        return Grammar(sampler)

    def close(self) -> None:
        """Free the weights."""
        if self.handle:
            _llama.llama_model_free(self.handle)
            self.handle = None

    def _header_text(self, key: str) -> str:
        return self._text(
            lambda room, size: _llama.llama_model_meta_val_str(self.handle, key.encode(), room, size)
        )

    def _header(self, key: str) -> int | None:
        text = self._header_text(key)
        return int(text) if text.isdecimal() else None

    def _text(self, fill: Callable[[Any, int], int]) -> str:
        room = ctypes.create_string_buffer(256)
        fill(room, len(room))
        return room.value.decode("utf-8", "replace")


class Grammar:
    """llama.cpp's own grammar sampler, asked about one token before it is told of it."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._one = np.zeros(1, dtype=_CANDIDATE)
        self._array, self._reference = _token_array(self._one)

    def clone(self) -> Grammar:
        """An independent copy at the same place."""
        return Grammar(_llama.llama_sampler_clone(self._sampler))

    def allows(self, token: int) -> bool:
        """Whether `token` may come next. An end-of-generation token may once the text is complete."""
        self._one["id"], self._one["logit"] = token, 0.0
        _llama.llama_sampler_apply(self._sampler, self._reference)
        return bool(self._one["logit"][0] > REFUSED)

    def allowed(self, tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Which of `tokens` (int, shape [n]) may come next: bool, shape [n]. Costs much more than `allows` for large n."""
        candidates = np.zeros(len(tokens), dtype=_CANDIDATE)
        candidates["id"] = tokens
        _, reference = _token_array(candidates)
        _llama.llama_sampler_apply(self._sampler, reference)
        return np.asarray(candidates["logit"] > REFUSED)

    def accept(self, token: int) -> None:
        """Go past `token`, which must have been allowed."""
        _llama.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        """Free the sampler."""
        if self._sampler:
            _llama.llama_sampler_free(self._sampler)
            self._sampler = None


def _token_array(candidates: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    array = _llama.llama_token_data_array(
        data=candidates.ctypes.data_as(ctypes.POINTER(_llama.llama_token_data)),
        size=len(candidates),
        selected=-1,
        sorted=False,
    )
    return array, ctypes.byref(array)


def because(said: str) -> str:
    """The last line that llama.cpp `said`, in brackets; empty where it said nothing."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f" ({lines[-1][:200]})" if lines else ""


@contextmanager
def captured_stderr() -> Iterator[Callable[[], str]]:
    """Hold file descriptor 2 in a file meanwhile: some of llama.cpp's reasons go there, past its log callback.

    What is yielded gives the text once the block has ended.
    """
    sys.stderr.flush()
    text = ""
    with tempfile.TemporaryFile() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield lambda: text
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            text = held.read().decode("utf-8", "replace")
