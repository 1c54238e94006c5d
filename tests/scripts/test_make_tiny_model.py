"""The tiny random model: the same bytes each time, the vocabulary it promises, and a file that llama.cpp loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import pytest


def field(path: Path, name: str) -> Any:
    found = gguf.GGUFReader(path).fields.get(name)
    return None if found is None else found.contents()


def test_the_same_seed_writes_the_same_bytes(make_tiny_model: ModuleType, tmp_path: Path) -> None:
    first = make_tiny_model.write_tiny_model(tmp_path / "a.gguf", seed=7).read_bytes()

    assert first == make_tiny_model.write_tiny_model(tmp_path / "b.gguf", seed=7).read_bytes()
    assert first != make_tiny_model.write_tiny_model(tmp_path / "c.gguf", seed=8).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gguf", "b.gguf", "c.gguf"]


def test_it_is_tiny(tiny_model: Path) -> None:
    assert tiny_model.stat().st_size < 1_000_000


def test_all_bytes_are_tokens(tiny_model: Path, make_tiny_model: ModuleType) -> None:
    tokens = field(tiny_model, "tokenizer.ggml.tokens")

    assert set(make_tiny_model.byte_characters()) <= set(tokens)
    assert len(set(make_tiny_model.byte_characters())) == 256
    assert len(tokens) == len(set(tokens))


def test_it_has_what_untrusted_text_could_forge(tiny_model: Path) -> None:
    kinds = dict(
        zip(
            field(tiny_model, "tokenizer.ggml.tokens"),
            field(tiny_model, "tokenizer.ggml.token_type"),
            strict=True,
        )
    )

    assert gguf.TokenType.CONTROL == kinds["<|im_start|>"] == kinds["<|im_end|>"]
    assert kinds["<tool_call>"] == gguf.TokenType.USER_DEFINED
    assert field(tiny_model, "llama.context_length") == 8192


def test_the_template_can_be_changed_and_left_out(make_tiny_model: ModuleType, tmp_path: Path) -> None:
    other = make_tiny_model.write_tiny_model(tmp_path / "a.gguf", chat_template="{{ messages[0].content }}")
    without = make_tiny_model.write_tiny_model(tmp_path / "b.gguf", chat_template=None)

    assert field(other, "tokenizer.chat_template") == "{{ messages[0].content }}"
    assert field(without, "tokenizer.chat_template") is None


ROUND_TRIP = """
import sys
from llama_cpp import Llama

path, text = sys.argv[1], sys.argv[2].encode()
model = Llama(path, vocab_only=True, verbose=False)
tokens = model.tokenize(text, add_bos=False, special=False)
sys.stdout.buffer.write(model.detokenize(tokens, special=True))
"""


@pytest.mark.parametrize(("vocabulary", "before"), [("bytes", ""), ("sentencepiece", " ")])
def test_any_text_round_trips(
    make_tiny_model: ModuleType, tmp_path: Path, vocabulary: str, before: str
) -> None:
    """llama.cpp loads the file and gives back every byte of a text; SentencePiece puts a space before it."""
    path = make_tiny_model.write_tiny_model(tmp_path / "tiny.gguf", vocabulary=vocabulary)
    text = 'the pass {"claim": "é\u200b🙂"} <tool_call>'
    # In a process of its own: what goes wrong in native code must not take the tests with it.
    done = subprocess.run(
        [sys.executable, "-c", ROUND_TRIP, path, text], capture_output=True, timeout=60, check=True
    )

    assert done.stdout.decode() == before + text
