"""The shelf: whole values or none, a cap, and nothing lost when it cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from judge_local.engine.shelf import Shelf


def test_what_was_put_is_there(tmp_path: Path) -> None:
    Shelf(tmp_path / "a" / "b", pytest.fail).put("key", b"value")
    other = Shelf(tmp_path / "a" / "b", pytest.fail)

    assert (other.get("key"), other.get("other")) == (b"value", None)
    other.put("key", b"")
    assert other.get("key") == b""


def test_without_a_folder_nothing_is_kept() -> None:
    shelf = Shelf(None, pytest.fail)
    shelf.put("key", b"value")

    assert shelf.get("key") is None


@pytest.mark.parametrize("cut", [0, 1, 31, 32, 36])
def test_a_value_that_is_not_whole_is_none(tmp_path: Path, cut: int) -> None:
    shelf = Shelf(tmp_path, pytest.fail)
    shelf.put("key", b"value")
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:cut])

    assert shelf.get("key") is None


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, pytest.fail)
    shelf.put("key", b"value")
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    for place in range(len(data)):
        data[place] ^= 1
        file.write_bytes(data)
        assert shelf.get("key") is None
        data[place] ^= 1


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, pytest.fail, most_bytes=1000)
    for number in range(4):
        shelf.put(str(number), bytes(200))
        for age, file in enumerate(sorted(tmp_path.iterdir(), key=lambda path: -path.stat().st_mtime_ns)):
            os.utime(file, (1000 - age, 1000 - age))
    shelf.get("0")
    shelf.put("4", bytes(200))

    assert [shelf.get(str(number)) is not None for number in range(5)] == [True, False, True, True, True]


def test_a_value_that_would_take_the_whole_shelf_is_left_out(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, pytest.fail, most_bytes=1000)
    shelf.put("key", bytes(251))

    assert shelf.get("key") is None


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    said: list[str] = []
    shelf = Shelf(tmp_path / "file" / "folder", said.append)
    shelf.put("key", b"value")
    shelf.put("key", b"value")

    assert shelf.get("key") is None
    assert [line.partition(" (")[0] for line in said] == [
        f"nothing can be kept in {tmp_path / 'file' / 'folder'}"
    ]


def test_values_of_another_stamp_are_none(tmp_path: Path) -> None:
    Shelf(tmp_path, pytest.fail, stamp="one build").put("key", b"value")

    assert Shelf(tmp_path, pytest.fail, stamp="another").get("key") is None
    assert Shelf(tmp_path, pytest.fail, stamp="one build").get("key") == b"value"


def test_the_cap_is_for_all_stamps_together_and_for_what_was_left_half_written(tmp_path: Path) -> None:
    (tmp_path / ".0123.tmp").write_bytes(bytes(700))
    os.utime(tmp_path / ".0123.tmp", (1, 1))
    Shelf(tmp_path, pytest.fail, stamp="one build", most_bytes=1000).put("key", bytes(200))
    Shelf(tmp_path, pytest.fail, stamp="another", most_bytes=1000).put("key", bytes(200))

    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".state", ".state"]
