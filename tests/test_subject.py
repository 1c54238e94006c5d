"""The text rule: what is read, byte for byte, and what is refused with the conversion to run."""

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge_local import subject as module
from judge_local.errors import EmptySubjectError, InputError
from judge_local.subject import decode, read_subject, read_text

WORDS = "The door is open. Ünïcödé too."


def written(folder: Path, data: bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_text_without_nul_comes_back_as_it_was(text):
    """Line endings, control characters and all; only a byte order mark in front is dropped."""
    expected = text.removeprefix("\ufeff")
    refused = expected.startswith("%PDF-")

    assert refused or expected == decode(text.encode())


def test_line_endings_are_kept(tmp_path):
    assert read_text(written(tmp_path, b"one\r\ntwo\rthree\n")) == "one\r\ntwo\rthree\n"


def test_a_byte_order_mark_is_dropped_once(tmp_path):
    assert read_text(written(tmp_path, b"\xef\xbb\xbf\xef\xbb\xbfone")) == "\ufeffone"


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WORDS.encode()), encoding="ascii"))

    assert read_text("-") == WORDS


def test_closed_standard_input_is_refused(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)

    with pytest.raises(InputError, match="standard input is closed"):
        read_text("-")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (WORDS.encode("utf-16"), "iconv -f UTF-16 -t UTF-8"),
        (WORDS.encode("utf-16-le"), "iconv -f UTF-16LE -t UTF-8"),
        (WORDS.encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8"),
        (WORDS.encode("utf-32"), "iconv -f UTF-32 -t UTF-8"),
        (WORDS.encode("latin-1"), "iconv -f WINDOWS-1252 -t UTF-8"),
        (b"%PDF-1.7\nall of it ASCII", "pdftotext"),
        (b"\x1f\x8b\x08\x00\x00\x00", "gzip -dc"),
        (b"BZh91AY&SY\x9c\x00", "bzip2 -dc"),
        (b"\xfd7zXZ\x00\x00", "xz -dc"),
        (b"\x28\xb5\x2f\xfd\x00", "zstd -dc"),
        (b"PK\x03\x04\x14\x00\x00", "unzip"),
        (b"\xd0\xcf\x11\xe0\xa1", "soffice"),
        (b"GGUF\x03\x00\x00\x00", "--model"),
        (b"\x89PNG\r\n\x1a\n\x00", "tesseract"),
        (b"\xff\xd8\xff\xe0", "tesseract"),
        (b"\x7fELF\x02\x01\x01\x00", "a program"),
        (b"one\0two", "NUL byte at offset 3"),
    ],
)
def test_what_is_not_utf8_text_is_refused_with_what_to_run(tmp_path, data, named):
    path = written(tmp_path, data)

    with pytest.raises(InputError) as caught:
        read_text(path)

    message = str(caught.value)
    assert named in message
    assert str(path) in message
    assert "\n" not in message


def test_the_offset_of_a_bad_byte_counts_the_byte_order_mark(tmp_path):
    with pytest.raises(InputError, match="byte 0xff at offset 5"):
        read_text(written(tmp_path, b"\xef\xbb\xbfab\xff"))


@pytest.mark.parametrize("text", ["BZh is a chemical symbol.", "GGUF is a format.", "PK is a name."])
def test_words_that_begin_like_an_archive_are_text(tmp_path, text):
    assert read_text(written(tmp_path, text.encode())) == text


def test_a_missing_file_names_its_near_misses(tmp_path):
    written(tmp_path, b"x", "README.md")

    with pytest.raises(InputError, match=r"no file .*README\.mb.*Did you mean .*README\.md") as caught:
        read_text(tmp_path / "README.mb")

    assert caught.value.exit_code == 2


def test_a_file_missing_from_a_missing_folder_is_still_one_line(tmp_path):
    with pytest.raises(InputError, match="Check the path"):
        read_text(tmp_path / "nowhere" / "a.txt")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        read_text(tmp_path)


def test_an_empty_path_is_refused():
    with pytest.raises(InputError, match="path is empty"):
        read_text("")


def test_a_path_with_a_nul_is_refused():
    with pytest.raises(InputError, match="cannot be read"):
        read_text("a\0b")


def test_an_unreadable_file_is_refused(tmp_path, monkeypatch):
    """Root may read everything, so the refusal is the operating system's in name only here."""
    path = written(tmp_path, b"x")
    path.chmod(0)
    if os.geteuid() == 0:
        monkeypatch.setattr(
            Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
        )

    with pytest.raises(InputError, match="may not be read by you"):
        read_text(path)


def test_an_endless_file_is_refused_before_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TEXT_LIMIT_BYTES", 10)

    with pytest.raises(InputError, match="longer than 10 bytes"):
        read_text("/dev/zero")
    assert read_text(written(tmp_path, b"x" * 10)) == "x" * 10


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf\n", "\u2003\u3000".encode()])
def test_a_subject_of_nothing_is_nothing_to_judge(tmp_path, data):
    with pytest.raises(EmptySubjectError) as caught:
        read_subject(written(tmp_path, data))

    assert caught.value.exit_code == 5


def test_the_message_says_what_the_text_was_for(tmp_path):
    with pytest.raises(InputError, match=r"^claims: "):
        read_text(tmp_path / "none", what="claims")
