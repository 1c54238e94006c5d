"""Shards: which rows are this process's share, decided by the id of a row and nothing else.

* The same id is in the same shard on every machine, in every version and in any order of rows: a hash, not a count. So a
  double id meets its twin in one shard, and a row that is added later moves no other row.
* Shards count from 1, as people write them: `1/3`, `2/3`, `3/3`.
* The environment is read for `auto` and never by itself: a parallel job that did not ask for it would skip rows in silence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from judge_local.errors import UsageError, excerpt

_WHERE: Final = "--shard"
_BY_HAND: Final = "Give i/n, such as 1/3."
_SAYS_WHICH: Final = ("SLURM_ARRAY_TASK_ID", "CI_NODE_INDEX", "JOB_COMPLETION_INDEX")
"""Variables of SLURM arrays, parallel GitLab jobs and indexed Kubernetes jobs."""
_WRITTEN: Final = re.compile(r"(?P<index>[0-9]{1,9}|auto)/(?P<total>[0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of `total` shares of the rows.

    Raises:
        UsageError: there is no such share.
    """

    index: int
    """From 1 to `total`."""
    total: int

    def __post_init__(self) -> None:
        if self.total < 1:
            raise UsageError(_WHERE, f"{self.total} shards are none", "Give i/n, such as 1/3.")
        if not 1 <= self.index <= self.total:
            raise UsageError(
                _WHERE, f"{self} is none of {self.total} shards", f"They count from 1 to {self.total}."
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.total}"

    def holds(self, row_id: str) -> bool:
        """Whether the row of that id is in this shard.

        >>> [shard for shard in (1, 2, 3) if Shard(index=shard, total=3).holds("row-1")]
        [3]
        """
        digest = hashlib.sha256(row_id.encode("utf-8", "surrogatepass")).digest()
        # 64 bits, so that the shards differ in their share by less than one part in 10^9, however many there are.
        return int.from_bytes(digest[:8], "big") % self.total == self.index - 1


def read_shard(text: str, environment: Mapping[str, str]) -> Shard:
    """The shard that `text` names.

    Args:
        text: `i/n`; `auto` for what a SLURM array or a parallel GitLab job says; `auto/n` where only the index is known
            to the machine, as in an indexed job of Kubernetes.
        environment: variables by name; looked at for `auto` only.

    Raises:
        UsageError: `text` is none of these, or the environment does not say which shard this is.
    """
    if text == "auto":
        return _from_environment(environment)
    written = _WRITTEN.fullmatch(text)
    if written is None:
        raise UsageError(
            _WHERE,
            f"{excerpt(text)} is no shard",
            "Give i/n, such as 1/3; auto in a SLURM array or a parallel GitLab job; or auto/n.",
        )
    total = int(written["total"])
    if written["index"] == "auto":
        return _from_environment(environment, total)
    return Shard(index=int(written["index"]), total=total)


def parse_shard(text: str) -> Shard:
    """The shard that `i/n` names, as a results file keeps it: nothing is looked up.

    Raises:
        UsageError: `text` is no `i/n`.
    """
    written = _WRITTEN.fullmatch(text)
    if written is None or written["index"] == "auto":
        raise UsageError("shard", f"{excerpt(text)} is no i/n", "A shard is written as 1/3.")
    return Shard(index=int(written["index"]), total=int(written["total"]))


def _from_environment(environment: Mapping[str, str], total: int | None = None) -> Shard:
    """The shard that the environment says this is; `total` is what a person said there are."""
    asked = "auto" if total is None else f"auto/{total}"
    found = [name for name in _SAYS_WHICH if name in environment]
    if not found:
        raise UsageError(
            _WHERE, f"{asked} finds none of {', '.join(_SAYS_WHICH)} in the environment", _BY_HAND
        )
    if len(found) > 1:
        raise UsageError(_WHERE, f"{asked} finds both {' and '.join(found)} in the environment", _BY_HAND)
    if found == ["JOB_COMPLETION_INDEX"]:
        if total is None:
            raise UsageError(
                _WHERE,
                "auto finds JOB_COMPLETION_INDEX, and Kubernetes does not tell a pod how many there are",
                "Give the job's completions as auto/n, such as auto/100.",
            )
        return Shard(index=_number(environment, "JOB_COMPLETION_INDEX") + 1, total=total)
    if found == ["SLURM_ARRAY_TASK_ID"]:
        shard = _of_slurm(environment)
    else:
        shard = Shard(
            index=_number(environment, "CI_NODE_INDEX"), total=_number(environment, "CI_NODE_TOTAL")
        )
    if total not in (None, shard.total):
        raise UsageError(
            _WHERE,
            f"{asked} finds the shard {shard} in the environment",
            f"Give auto, or start {total} of them.",
        )
    return shard


def _of_slurm(environment: Mapping[str, str]) -> Shard:
    """The place of this task in its array, which may begin anywhere: `--array=0-9` and `--array=1-10` are the same."""
    task, count = _number(environment, "SLURM_ARRAY_TASK_ID"), _number(environment, "SLURM_ARRAY_TASK_COUNT")
    least, most = (_number(environment, f"SLURM_ARRAY_TASK_{end}") for end in ("MIN", "MAX"))
    step = max(
        1, _number(environment, "SLURM_ARRAY_TASK_STEP") if "SLURM_ARRAY_TASK_STEP" in environment else 1
    )
    # A list of ids has gaps, and a task cannot tell its place among them.
    if most - least != step * (count - 1) or (task - least) % step:
        raise UsageError(
            _WHERE,
            f"auto finds {count} SLURM tasks from {least} to {most}, a list with gaps",
            f"Use an array without gaps, such as --array=1-{max(count, 1)}.",
        )
    return Shard(index=(task - least) // step + 1, total=count)


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name)
    if text is None:
        raise UsageError(_WHERE, f"auto finds no {name} in the environment", _BY_HAND)
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(_WHERE, f"auto finds {name}={excerpt(text)}, which is no number", _BY_HAND)
    return int(text)
