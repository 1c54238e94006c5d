"""Hardware: what this machine lets us use, and which tier of model that carries.

* A container's limits count as the machine's own: the processors it may run on, its share of them, its memory.
* Free memory of a graphics card is given as a number; asking the card is the engine's business.
* All sizes are bytes.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from judge_local.models.catalog import TIERS, by_tier

_ROOT = Path("/")


def usable_cores(*, root: Path = _ROOT) -> int:
    """Processors this process may keep busy, at least 1: its affinity, or its cgroup's quota where that is less."""
    cores, quota = cores_by_affinity(), cpu_quota(root=root)
    # Part of a processor is not rounded up: a thread more than the quota stalls all the others.
    return max(1, cores if quota >= cores else int(quota))


def cores_by_affinity() -> int:
    """Processors that the affinity mask leaves; all of them where the system has no such mask."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_memory_bytes(*, root: Path = _ROOT) -> int:
    """Memory of the machine, or of its cgroup where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(physical, _memory_limit(root))


def available_memory_bytes(*, root: Path = _ROOT) -> int:
    """Memory that can be had now without swapping, within the cgroup's limit."""
    if sys.platform == "darwin":
        return _available_on_macos()
    available = _meminfo_available(_read(root / "proc/meminfo") or "")
    room = [limit - used for limit, used in _memory_use(root)]
    return max(0, min([available if available is not None else total_memory_bytes(root=root), *room]))


def memory_budget(ram_bytes: int, free_vram_bytes: int = 0) -> int:
    """What a model may take: all free memory of the graphics card, or half of the machine's, whichever is more.

    >>> memory_budget(16_000_000_000), memory_budget(16_000_000_000, 24_000_000_000)
    (8000000000, 24000000000)
    """
    return max(free_vram_bytes, ram_bytes // 2)


def fits(size_bytes: int, budget_bytes: int) -> bool:
    """Whether weights of `size_bytes` run well within the budget: they need 3.5 times their size.

    >>> fits(2_000, 7_000), fits(2_001, 7_000)
    (True, False)
    """
    return 7 * size_bytes <= 2 * budget_bytes


def tier_for(budget_bytes: int) -> str:
    """The most demanding tier whose model fits the budget; never less than `fast`.

    >>> tier_for(0), tier_for(32_000_000_000)
    ('fast', 'quality')
    """
    return next((tier for tier in reversed(TIERS) if fits(by_tier(tier).size_bytes, budget_bytes)), TIERS[0])


def _read(path: Path) -> str | None:
    """The text of a file of /proc or /sys, or None where this kernel has no such file."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _cgroup_folders(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """Folders whose limits bind this process, from its own upward, each with its cgroup version."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            top, version = root / "sys/fs/cgroup", 2
        elif controller in controllers.split(","):
            top, version = root / "sys/fs/cgroup" / controller, 1
        else:
            continue
        # Inside a container the path may be the host's; then only the top exists, and it is ours.
        relative = PurePosixPath(path.lstrip("/"))
        for folder in (relative, *relative.parents):
            if ".." not in folder.parts:
                yield top / folder, version


def cpu_quota(*, root: Path = _ROOT) -> float:
    """Processors' worth of time that the cgroup's quota allows this process; infinite without a limit."""
    quota = math.inf
    for folder, version in _cgroup_folders(root, "cpu"):
        if version == 2:
            words = (_read(folder / "cpu.max") or "max").split()
            limit, period = words[0], words[1] if len(words) > 1 else "100000"
        else:
            limit, period = (
                _read(folder / "cpu.cfs_quota_us") or "-1",
                _read(folder / "cpu.cfs_period_us") or "0",
            )
        if limit.isdigit() and period.isdigit() and int(period) > 0:
            quota = min(quota, int(limit) / int(period))
    return quota


def _memory_use(root: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) of each cgroup that limits this process's memory."""
    for folder, version in _cgroup_folders(root, "memory"):
        names = (
            ("memory.max", "memory.current")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        limit, used = (_read(folder / name) or "" for name in names)
        if limit.isdigit():
            # Page cache counts as used, and is given back under pressure.
            cache = re.search(r"^inactive_file (\d+)$", _read(folder / "memory.stat") or "", re.MULTILINE)
            spare = int(cache[1]) if cache else 0
            yield int(limit), max(0, (int(used) if used.isdigit() else 0) - spare)


def _memory_limit(root: Path) -> int:
    return min((limit for limit, _ in _memory_use(root)), default=sys.maxsize)


def _meminfo_available(text: str) -> int | None:
    """`MemAvailable` of /proc/meminfo in bytes."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _available_on_macos() -> int:
    """Free, inactive and speculative pages, as `vm_stat` counts them; half of the memory where it cannot be asked."""
    try:
        text = subprocess.run(
            ["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return total_memory_bytes() // 2
    return _vm_stat_available(text)


def _vm_stat_available(text: str) -> int:
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)\.", text, re.MULTILINE)
    return int(page[1] if page else 4096) * sum(map(int, pages))
