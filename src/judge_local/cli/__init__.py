"""The command `judge-local`: the only folder that prints or exits, one file per family of commands.

Results go to standard output and everything else to standard error. Nothing heavy is imported before the command that
needs it is known, so `--help` answers at once.
"""

from __future__ import annotations

import sys

try:
    from judge_local.cli.group import main
except KeyboardInterrupt:  # Ctrl-C while the imports above still run: the policy in `group` is not there yet.
    sys.exit(130)

__all__ = ["main"]
