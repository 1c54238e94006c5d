"""How a batch is going, on standard error: a bar on a terminal, a line every half minute otherwise, nothing when quiet."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final

from judge_local.cli.output import clean, say, stderr_is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from judge_local.batch.formats import Source
    from judge_local.batch.runner import Standing

PLAIN_SECONDS: Final = 30.0
BAR_SECONDS: Final = 0.5


class BatchProgress:
    """Shows what a `Standing` says, again and again.

    Args:
        quiet: show nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = stderr_is_terminal()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._said_at = time.monotonic()

    def __enter__(self) -> BatchProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def event(self, text: str) -> None:
        """Something a person should know, from any thread: loading, waiting for another process, started again."""
        if self._quiet:
            return
        bar = self._bar
        if bar is None:
            say(text)
        else:
            bar.console.print(f"judge-local: {clean(text)}", markup=False, highlight=False, style="dim")

    async def follow(self, standing: Standing, source: Source, limit: int | None) -> None:
        """Show how the batch stands until cancelled."""
        while True:
            self.show(standing, rows_expected(standing, source, limit))
            await asyncio.sleep(BAR_SECONDS)

    def show(self, standing: Standing, expected: int | None) -> None:
        """Show how it stands now: at once on a terminal, when it is time otherwise."""
        if self._quiet:
            return
        if self._terminal:
            self._show_bar(standing, expected)
        elif time.monotonic() - self._said_at >= PLAIN_SECONDS:
            self._said_at = time.monotonic()
            say(standing_line(standing, expected))

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _show_bar(self, standing: Standing, expected: int | None) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                BarColumn(bar_width=24),
                TextColumn("{task.description}", markup=False),
                console=Console(stderr=True),
                transient=True,
                refresh_per_second=4,
            )
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        assert self._task is not None  # Made with the bar.
        self._bar.update(
            self._task,
            completed=standing.found + standing.judged,
            total=expected,
            description=standing_line(standing, expected),
        )


def rows_expected(standing: Standing, source: Source, limit: int | None) -> int | None:
    """How many rows will have a result at the end, as far as that can be told from the part of the file that was read."""
    if standing.rows is not None:
        rows = standing.rows
    else:
        share = source.share_read()
        if not share or not standing.read:
            return None
        rows = max(standing.read, round(standing.read / share))
    return rows if limit is None else min(rows, standing.found + limit)


def standing_line(standing: Standing, expected: int | None) -> str:
    """How it stands, on one line.

    Args:
        standing: the batch.
        expected: how many rows will have a result at the end; None where nobody knows.
    """
    done = standing.found + standing.judged
    exact = standing.rows is not None
    rows = (
        f"{done:,} rows" if expected is None else f"{done:,} of {'' if exact else 'about '}{expected:,} rows"
    )
    zones = standing.counts.zones
    parts = [
        rows,
        f"{zones['auto-pass']:,} pass, {zones['auto-fail']:,} fail, {zones['human-review']:,} review",
    ]
    if standing.counts.errors:
        parts[-1] += f" ({standing.counts.errors:,} errored)"
    if standing.judged:
        parts.append(f"{60 * standing.verdicts / standing.seconds:,.0f} verdicts a minute")
        if expected is not None and expected > done:
            seconds = (expected - done) * standing.seconds / standing.judged
            parts.append(f"{human_time(seconds)} left")
    return " · ".join(parts)


def human_time(seconds: float) -> str:
    """A length of time for a person.

    >>> human_time(5.4), human_time(600), human_time(7500), human_time(200_000)
    ('5 s', '10 min', '2 h 5 min', '2 d 7 h')
    """
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
