"""The cache: keys that no two lists share, and entries that are whole or not there."""

import errno
import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from judge_local.cache import JsonCache, build_cache_key, sha256
from judge_local.errors import UsageError

VECTORS = json.loads((Path(__file__).parent / "data" / "decision-core.json").read_text())
KEY = "0123abcd"


@pytest.mark.parametrize("vector", VECTORS["cacheKeys"], ids=range(len(VECTORS["cacheKeys"])))
def test_keys_agree_with_the_vectors(vector):
    assert build_cache_key(vector["parts"]) == vector["key"]


@pytest.mark.parametrize("vector", VECTORS["sha256"], ids=range(len(VECTORS["sha256"])))
def test_digests_agree_with_the_vectors(vector):
    assert sha256(vector["text"]) == vector["hex"]


TEXTS = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("|:0123456789é\u0301😀"), max_size=6
)
LISTS = st.lists(TEXTS, max_size=4)


@given(LISTS, LISTS)
@example(["a|b", "c"], ["a", "b|c"])
@example(["", ""], ["0:|0:"])
@example(["e\u0301"], ["é"])
@example(["😀"], ["\U0001f601"])
def test_different_parts_have_different_keys(one, other):
    assert (build_cache_key(one) == build_cache_key(other)) == (one == other)


def read_back(text):
    """The parts that an encoding stands for: only possible when no two lists share one."""
    units = text.encode("utf-16-le")
    parts, position = [], 0
    while position < len(units):
        colon = units.index(b":\0", position)
        while colon % 2:
            colon = units.index(b":\0", colon + 1)
        end = colon + 2 + 2 * int(units[position:colon].decode("utf-16-le"))
        parts.append(units[colon + 2 : end].decode("utf-16-le"))
        position = end + 2
    return parts


@given(LISTS)
@example(["\u3a00:"])
def test_the_encoding_can_be_read_back(parts):
    encoding = "|".join(f"{len(part.encode('utf-16-le')) // 2}:{part}" for part in parts)

    assert build_cache_key(parts) == hashlib.sha256(encoding.encode()).hexdigest()
    assert read_back(encoding) == parts


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_character_is_refused(text):
    with pytest.raises(UsageError, match="surrogate"):
        sha256(text)
    with pytest.raises(UsageError, match="surrogate"):
        build_cache_key(["a", text])


@pytest.mark.parametrize("parts", ["abc", [1], [None], [b"a"]])
def test_parts_are_a_list_of_texts(parts):
    with pytest.raises(UsageError, match="cache key"):
        build_cache_key(parts)


VALUES = [[], {}, 0, False, "", [{"a": [1.5, None, "é😀"]}], "line\nbreak"]


@pytest.mark.parametrize("value", VALUES)
def test_what_is_kept_comes_back(tmp_path, value):
    cache = JsonCache(tmp_path / "not" / "there" / "yet")

    cache.set(KEY, value)

    assert cache.get(KEY) == value
    assert JsonCache(tmp_path / "not" / "there" / "yet").get(KEY) == value


def test_an_entry_is_one_file_indented_by_two_and_nothing_lies_beside_it(tmp_path):
    JsonCache(tmp_path).set(KEY, [{"text": "grün"}])

    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.json"]
    assert (tmp_path / f"{KEY}.json").read_text("utf-8") == '[\n  {\n    "text": "grün"\n  }\n]'


def test_nothing_is_made_before_the_first_write(tmp_path):
    cache = JsonCache(tmp_path / "cache")

    assert cache.get(KEY) is None
    assert not (tmp_path / "cache").exists()


def test_a_disabled_cache_neither_reads_nor_writes(tmp_path):
    JsonCache(tmp_path).set(KEY, 1)
    disabled = JsonCache(tmp_path, enabled=False)

    disabled.set(KEY, 2)

    assert disabled.get(KEY) is None
    assert JsonCache(tmp_path).get(KEY) == 1


TORN = [
    b"",
    b"[",
    b'[{"verdict": {"claim": "half a ver',
    b"\xff\xfe",
    b"not json",
    b"[" * 100_000,
    b"9" * 5000,
    b'{"a": 1}\0\0\0\0',
]


@pytest.mark.parametrize("content", TORN, ids=range(len(TORN)))
def test_a_damaged_entry_is_a_miss_and_the_next_write_heals_it(tmp_path, content):
    (tmp_path / f"{KEY}.json").write_bytes(content)
    cache = JsonCache(tmp_path)

    assert cache.get(KEY) is None
    cache.set(KEY, "whole")
    assert cache.get(KEY) == "whole"


@pytest.mark.parametrize(
    "key",
    ["", ".", "..", "../a", "a/b", "/a", "a\\b", ".hidden", "a\0b", "a b", "é", "a" * 201, "a\n", None, 1],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_a_key_that_is_no_safe_file_name_is_refused(tmp_path, key, enabled):
    cache = JsonCache(tmp_path / "cache", enabled=enabled)

    with pytest.raises(UsageError, match="safe file name"):
        cache.get(key)
    with pytest.raises(UsageError, match="safe file name"):
        cache.set(key, 1)
    assert list(tmp_path.iterdir()) == []


def assert_warns_once(cache, label="judge-local"):
    """The first failing write warns, with the label; further ones are silent."""
    with pytest.warns(RuntimeWarning, match=f"^{label}: the cache entry .* cannot be written") as caught:
        cache.set(KEY, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.set(KEY, 1)
        cache.set("other", 1)

    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_folder_that_is_a_file_costs_a_warning(tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = JsonCache(tmp_path / "file" / "cache", label="my-tool")

    assert cache.get(KEY) is None
    assert_warns_once(cache, "my-tool")


def test_a_folder_that_may_not_be_written_costs_a_warning(tmp_path, monkeypatch):
    """Root may write anywhere, so the refusal is the operating system's own error, raised where it would be."""
    cache = JsonCache(tmp_path)
    cache.set(KEY, "old")

    def refused(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "open", refused)
    assert_warns_once(cache)
    monkeypatch.undo()
    assert cache.get(KEY) == "old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_costs_a_warning_and_leaves_the_old_entry(tmp_path, monkeypatch, step):
    cache = JsonCache(tmp_path)
    cache.set(KEY, "old")

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync", full) if step == "fsync" else (Path, "replace", full)))
    assert_warns_once(cache)
    monkeypatch.undo()
    assert cache.get(KEY) == "old"
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.json"]


@pytest.mark.parametrize("value", [float("nan"), ["\ud800"]])
def test_what_json_cannot_write_costs_a_warning(tmp_path, value):
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        JsonCache(tmp_path).set(KEY, value)

    assert list(tmp_path.iterdir()) == []


def test_what_is_not_made_of_json_types_is_the_callers_fault(tmp_path):
    with pytest.raises(TypeError):
        JsonCache(tmp_path).set(KEY, object())


def test_an_entry_that_cannot_be_read_costs_a_warning(tmp_path):
    (tmp_path / f"{KEY}.json").mkdir()
    cache = JsonCache(tmp_path)

    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert cache.get(KEY) is None


WRITER = """
import sys
from judge_local.cache import JsonCache
cache, mine = JsonCache(sys.argv[1]), [sys.argv[2]] * 2000
for _ in range(40):
    cache.set("key", mine)
    assert cache.get("key") in (["a"] * 2000, ["b"] * 2000)
"""


def test_two_processes_that_write_one_key_leave_one_whole_entry(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, str(tmp_path), name]) for name in "ab"
    ]

    codes = [writer.wait(timeout=60) for writer in writers]

    assert codes == [0, 0]
    assert JsonCache(tmp_path).get("key") in (["a"] * 2000, ["b"] * 2000)
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]
