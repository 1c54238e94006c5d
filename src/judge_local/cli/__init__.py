"""The command `judge-local`: the only folder that prints or exits, one file per family of commands.

Results go to standard output and everything else to standard error. Nothing heavy is imported before the command that
needs it is known, so `--help` answers at once.
"""

from __future__ import annotations

from judge_local.cli.interrupts import ending_at_once

with ending_at_once():
    from judge_local.cli.group import main

__all__ = ["main"]
