"""`python -m judge_local`: the same as the command `judge-local`."""

from __future__ import annotations

from judge_local.cli import main

if __name__ == "__main__":
    main()
