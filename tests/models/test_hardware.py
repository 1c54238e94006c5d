"""What a machine and its cgroups allow, read from a made-up /proc and /sys."""

import json
import math
import os
import sys
from pathlib import Path

import pytest

from judge_local.models import hardware
from judge_local.models.catalog import by_tier
from judge_local.models.hardware import (
    available_memory_bytes,
    fits,
    memory_budget,
    tier_for,
    total_memory_bytes,
    usable_cores,
)

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "models.json").read_text("utf-8"))
GIB = 1 << 30

linux = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A root folder with the files given, on a machine of eight processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)

    def make(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize("vector", VECTORS["tiers"], ids=lambda vector: str(vector["budgetBytes"]))
def test_tiers_are_those_of_the_vectors(vector):
    assert tier_for(vector["budgetBytes"]) == vector["tier"]


def test_a_model_needs_three_and_a_half_times_its_size():
    assert fits(2_000_000_000, 7_000_000_000)
    assert not fits(2_000_000_001, 7_000_000_000)


def test_the_page_says_what_the_rule_says():
    """docs/models.md gives the memory for each tier above the first in whole gigabytes, rounded up."""
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")

    for tier in ("balanced", "quality"):
        size = by_tier(tier).size_bytes
        memory, card = math.ceil(7 * size / 1e9), math.ceil(3.5 * size / 1e9)
        row = next(line for line in page.splitlines() if f"(`{tier}`)" in line)
        assert f"{memory} GB of main memory" in row
        assert f"{card} GB free on a graphics card" in row


def test_the_budget_is_the_larger_of_the_card_and_half_the_memory():
    assert memory_budget(10, 0) == 5
    assert memory_budget(10, 4) == 5
    assert memory_budget(10, 6) == 6


@linux
@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/\n", {"cpu.max": "350000 100000"}, 3),
        ("0::/\n", {"cpu.max": "20000 100000"}, 1),
        ("0::/\n", {"cpu.max": "1600000 100000"}, 8),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/docker/of-the-host\n", {"cpu.max": "200000 100000"}, 2),
        ("0::/../../x\n", {"cpu.max": "200000 100000"}, 2),
        ("3:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "150000", "cpu/a/cpu.cfs_period_us": "50000"}, 3),
        ("3:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("3:memory:/\n0::/\n", {"cpu.max": "nonsense"}, 8),
    ],
)
def test_cores_are_bounded_by_the_quota(machine, cgroup, files, expected):
    root = machine({"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}})

    assert usable_cores(root=root) == expected


@linux
def test_cores_are_bounded_by_the_affinity(machine, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})

    assert usable_cores(root=machine({})) == 1


@linux
@pytest.mark.parametrize(
    ("cgroup", "files", "total", "available"),
    [
        ("0::/\n", {}, None, 6 * GIB),
        ("0::/\n", {"memory.max": "max", "memory.current": "5"}, None, 6 * GIB),
        ("0::/\n", {"memory.max": str(GIB), "memory.current": str(GIB // 4)}, GIB, GIB * 3 // 4),
        (
            "0::/a\n",
            {
                "a/memory.max": str(GIB),
                "a/memory.current": str(GIB // 2),
                "a/memory.stat": f"anon 5\ninactive_file {GIB // 4}\nfile 7",
            },
            GIB,
            GIB * 3 // 4,
        ),
        ("0::/\n", {"memory.max": "1000", "memory.current": "4000"}, 1000, 0),
        (
            "5:memory:/\n",
            {"memory/memory.limit_in_bytes": str(GIB), "memory/memory.usage_in_bytes": "0"},
            GIB,
            GIB,
        ),
    ],
)
def test_memory_is_bounded_by_the_cgroup(machine, monkeypatch, cgroup, files, total, available):
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2 * 1024 * 1024}.__getitem__)
    root = machine(
        {
            "proc/meminfo": f"MemTotal: {8 * GIB // 1024} kB\nMemAvailable:    {6 * GIB // 1024} kB\n",
            "proc/self/cgroup": cgroup,
            **{f"sys/fs/cgroup/{k}": v for k, v in files.items()},
        }
    )

    assert total_memory_bytes(root=root) == (total or 8 * GIB)
    assert available_memory_bytes(root=root) == available


def test_this_machine_has_something_to_offer():
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
    assert 0 < available_memory_bytes() <= total_memory_bytes()


def test_macos_counts_pages_that_can_be_had():
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               100.\n"
        "Pages active:                          999999.\n"
        "Pages inactive:                            20.\n"
        "Pages speculative:                          3.\n"
    )

    assert hardware._vm_stat_available(text) == 123 * 16384
