"""Headers: what is read, what is stepped over, and every way a file can be cut, forged or foreign."""

import struct

import gguf as reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge_local.errors import ModelFileError
from judge_local.models import gguf as ours
from judge_local.models.gguf import read_header
from models.fakes import gguf


def written(folder, data, name="m.gguf"):
    path = folder / name
    path.write_bytes(data)
    return path


def test_scalars_and_strings_are_kept_and_arrays_are_counted(tmp_path):
    keys = {
        "general.name": "Small",
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.ggml.tokens": ["a", "bb", ""],
        "tokenizer.ggml.token_type": [1, 2, 3],
        "tokenizer.ggml.add_bos_token": True,
        "llama.rope.freq_base": 0.5,
    }

    header = read_header(written(tmp_path, gguf(1000, metadata=keys)))

    assert header.metadata == {
        "general.architecture": "llama",
        "llama.context_length": 2048,
        "general.name": "Small",
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.ggml.add_bos_token": True,
        "llama.rope.freq_base": 0.5,
    }
    assert header.array_lengths == {"tokenizer.ggml.tokens": 3, "tokenizer.ggml.token_type": 3}
    assert (header.architecture, header.name, header.chat_template, header.context_length) == (
        "llama",
        "Small",
        "{{ messages }}",
        2048,
    )


def test_the_expected_size_is_the_size_of_a_whole_file(tmp_path):
    data = gguf(12_345)

    header = read_header(written(tmp_path, data))

    assert header.expected_bytes == len(data)
    assert header.tensors == 1


def test_the_tiny_model_reads_as_the_reference_reader_reads_it(tiny_model):
    """The reader of llama.cpp's own project is the authority."""
    reader = reference.GGUFReader(tiny_model)
    theirs = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.") and field.types[0] is not reference.GGUFValueType.ARRAY
    }

    header = read_header(tiny_model)

    assert dict(header.metadata) == pytest.approx(theirs)
    assert header.tensors == len(reader.tensors)
    assert header.expected_bytes == max(int(t.data_offset) + t.n_bytes for t in reader.tensors)


def test_block_sizes_are_those_of_the_reference():
    theirs = {int(kind): sizes for kind, sizes in reference.GGML_QUANT_SIZES.items()}

    assert {kind: theirs[kind] for kind in ours.BLOCKS} == dict(ours.BLOCKS)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.999])
def test_a_cut_file_is_refused_with_both_sizes(tmp_path, share):
    data = gguf(4000)
    path = written(tmp_path, data[: int(len(data) * share)])

    with pytest.raises(ModelFileError, match="cut short") as caught:
        read_header(path)

    assert str(path.stat().st_size) in str(caught.value)


def test_a_file_cut_in_its_last_tensor_says_how_long_it_should_be(tmp_path):
    data = gguf(4000)

    with pytest.raises(ModelFileError, match=f"{len(data) - 1} bytes of {len(data)}"):
        read_header(written(tmp_path, data[:-1]))


@pytest.mark.parametrize(
    ("data", "say"),
    [
        (b"", "is an empty file"),
        (b"GG", "not a GGUF file"),
        (b"<!DOCTYPE html><html><body>Sign in to the hotel network</body></html>", "is a web page"),
        (b"PK\x03\x04" + b"\0" * 100, "not a GGUF file: it begins with b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0) + b"\0" * 100, "has GGUF version 9"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + b"\0" * 100, "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1) + b"\0" * 100, "damaged or cut short"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62) + b"\0" * 100,
            "damaged or cut short",
        ),
    ],
    ids=[
        "empty",
        "two bytes",
        "web page",
        "zip",
        "version 9",
        "big endian",
        "2**60 tensors",
        "2**62 key bytes",
    ],
)
def test_what_is_no_header_is_refused(tmp_path, data, say):
    with pytest.raises(ModelFileError, match=say):
        read_header(written(tmp_path, data))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="cannot be read"):
        read_header(tmp_path / "none.gguf")


def test_a_chat_template_that_is_not_utf_8_is_refused(tmp_path):
    path = written(tmp_path, gguf(1000, metadata={"tokenizer.chat_template": b"\xff\xfe"}))

    with pytest.raises(ModelFileError, match="is not UTF-8"):
        read_header(path)


def test_an_author_that_is_not_utf_8_does_not_matter(tmp_path):
    path = written(tmp_path, gguf(1000, metadata={"general.author": b"Ren\xe9"}))

    assert read_header(path).metadata["general.author"] == "Ren\ufffd"


@pytest.mark.parametrize(
    ("metadata", "say"),
    [
        ({}, None),
        ({"general.type": "model"}, None),
        ({"general.type": "mmproj"}, "general.type is 'mmproj'"),
        ({"general.type": "imatrix"}, "general.type is 'imatrix'"),
        ({"general.type": "adapter"}, "general.type is 'adapter'"),
        ({"general.architecture": "clip"}, "it is an image projector (architecture clip)"),
    ],
)
def test_a_header_says_whether_it_is_a_model(tmp_path, metadata, say):
    header = read_header(written(tmp_path, gguf(1000, metadata=metadata)))

    assert header.not_weights == (say if say is None or say.startswith("it") else f"its {say}")


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_header_is_read_or_refused(tmp_path_factory, data):
    """No byte changed anywhere in a header makes the reader crash, hang, or ask for more memory than the file has."""
    whole = bytearray(gguf(64, metadata={"tokenizer.ggml.tokens": ["a", "b"], "x": [1, 2]}))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(bytes(whole))

    try:
        expected = read_header(path).expected_bytes
    except ModelFileError:
        expected = 0

    assert expected <= len(whole)


@pytest.mark.live
def test_the_real_header_is_read(live_model):
    header = read_header(live_model)

    assert (header.architecture, header.context_length, header.array_lengths["tokenizer.ggml.tokens"]) == (
        "llama",
        8192,
        49152,
    )
    assert header.expected_bytes == live_model.stat().st_size == 98_362_432
    assert "<|im_start|>" in header.chat_template
