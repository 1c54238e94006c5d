"""Write a random-weight GGUF model of half a megabyte, for tests that need an engine and no understanding.

    python scripts/make_tiny_model.py tiny.gguf

Random weights are the best fuzzer a grammar can have: whatever comes out is JSON only because the grammar made it so.

* The same arguments write the same bytes.
* The vocabulary holds all 256 bytes, so any text can be written and read back, and a few merges, so that text has more
  than one tokenisation. `pass` and `partial` begin with the same token.
* It has what makes real models dangerous to untrusted text: control tokens, and the user-defined `<tool_call>`, which
  llama.cpp parses even where control tokens are off.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import gguf
import numpy as np
import numpy.typing as npt

Vocabulary = Literal["bytes", "sentencepiece"]
Token = tuple[str, int, float]
"""Text, token type, SentencePiece score."""

CONTEXT_LENGTH: Final = 8192
"""Tokens."""
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

WIDTH: Final = 64
HEADS: Final = 4
LAYERS: Final = 2
INNER: Final = 128

# "Ġ" is how GPT-2 vocabularies write a space.
MERGES: Final = (
    "t h", "th e", "Ġ the", "i n", "a n", "e r", "p a", "s s", "a i", "ai m", "l aim", '" ,', '{ "', '" :', "0 .",
)  # fmt: skip
PIECES: Final = ("▁", "▁t", "▁th", "▁the", "th", "the", "in", "an", "er", "pa", "ss", '",', '{"', '":', "0.")
MARKERS: Final[tuple[Token, ...]] = (
    ("<|endoftext|>", gguf.TokenType.CONTROL, 0.0),
    ("<|im_start|>", gguf.TokenType.CONTROL, 0.0),
    ("<|im_end|>", gguf.TokenType.CONTROL, 0.0),
    ("<tool_call>", gguf.TokenType.USER_DEFINED, 0.0),
)


def byte_characters() -> list[str]:
    """The printable stand-in that GPT-2 vocabularies use for each of the 256 bytes, in byte order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def byte_vocabulary() -> list[Token]:
    """All bytes, the merges, the markers."""
    texts = [*byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]
    return [*((text, int(gguf.TokenType.NORMAL), 0.0) for text in texts), *MARKERS]


def sentencepiece_vocabulary() -> list[Token]:
    """Unknown, begin and end, all bytes as fallback, printable ASCII, the pieces, the markers."""
    words = [*PIECES, *(chr(code) for code in range(0x21, 0x7F))]
    return [
        ("<unk>", int(gguf.TokenType.UNKNOWN), 0.0),
        ("<s>", int(gguf.TokenType.CONTROL), 0.0),
        ("</s>", int(gguf.TokenType.CONTROL), 0.0),
        *((f"<0x{byte:02X}>", int(gguf.TokenType.BYTE), 0.0) for byte in range(256)),
        # Longer pieces score higher, so that the tokenizer prefers them.
        *((text, int(gguf.TokenType.NORMAL), float(len(text) - 100)) for text in words),
        *MARKERS,
    ]


def write_tiny_model(
    path: str | Path,
    *,
    seed: int = 0,
    chat_template: str | None = CHAT_TEMPLATE,
    vocabulary: Vocabulary = "bytes",
    context_length: int = CONTEXT_LENGTH,
) -> Path:
    """Write the model to `path`, whole or not at all, and return the path.

    Args:
        path: where the file goes; its folder must exist.
        seed: of the weights. Two seeds give two models that disagree.
        chat_template: Jinja source, or None for a model without one.
        vocabulary: `bytes` is GPT-2's kind and adds nothing to a prompt; `sentencepiece` is Llama 2's kind, puts a space
            before a text and `<s>` before a prompt.
        context_length: what the file says it was trained for, in tokens.
    """
    path = Path(path)
    tokens = byte_vocabulary() if vocabulary == "bytes" else sentencepiece_vocabulary()
    texts = [text for text, _, _ in tokens]
    partial = path.with_name(f".{path.name}.{os.getpid()}")

    out = gguf.GGUFWriter(partial, "llama")
    out.add_name(f"tiny random {vocabulary} {seed}")
    out.add_context_length(context_length)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_vocab_size(len(tokens))
    out.add_token_list(texts)
    out.add_token_types([kind for _, kind, _ in tokens])
    out.add_eos_token_id(texts.index("<|im_end|>"))
    if vocabulary == "bytes":
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("gpt-2")
        out.add_token_merges(list(MERGES))
        out.add_bos_token_id(texts.index("<|endoftext|>"))
        out.add_add_bos_token(False)
    else:
        out.add_tokenizer_model("llama")
        out.add_token_scores([score for _, _, score in tokens])
        out.add_unk_token_id(texts.index("<unk>"))
        out.add_bos_token_id(texts.index("<s>"))
        out.add_add_bos_token(True)
        out.add_add_space_prefix(True)
    if chat_template is not None:
        out.add_chat_template(chat_template)
    for name, values in random_weights(len(tokens), seed).items():
        out.add_tensor(name, values)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return partial.replace(path)


def random_weights(rows: int, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Tensors by GGUF name, for a vocabulary of `rows` tokens."""
    random = np.random.default_rng(seed)

    def noise(*shape: int) -> npt.NDArray[np.float32]:
        return (random.standard_normal(shape) * 0.1).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    weights = {
        "token_embd.weight": noise(rows, WIDTH),
        "output_norm.weight": ones,
        "output.weight": noise(rows, WIDTH),
    }
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        weights[f"{block}attn_norm.weight"] = ones
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights[f"{block}{part}.weight"] = noise(WIDTH, WIDTH)
        weights[f"{block}ffn_norm.weight"] = ones
        weights[f"{block}ffn_gate.weight"] = noise(INNER, WIDTH)
        weights[f"{block}ffn_up.weight"] = noise(INNER, WIDTH)
        weights[f"{block}ffn_down.weight"] = noise(WIDTH, INNER)
    return weights


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one model, as asked on the command line."""
    parser = argparse.ArgumentParser(description="Write a random-weight GGUF model for tests.")
    parser.add_argument("path", type=Path, help="the .gguf file to write")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default 0)")
    parser.add_argument("--no-template", action="store_true", help="leave the chat template out")
    parser.add_argument(
        "--sentencepiece", action="store_true", help="a Llama 2 vocabulary in place of GPT-2's"
    )
    asked = parser.parse_args(arguments)
    path = write_tiny_model(
        asked.path,
        seed=asked.seed,
        chat_template=None if asked.no_template else CHAT_TEMPLATE,
        vocabulary="sentencepiece" if asked.sentencepiece else "bytes",
    )
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
