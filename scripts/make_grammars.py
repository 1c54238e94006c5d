"""Writes the compiled grammars in `grammars/`: the golden files that a test recompiles.

python scripts/make_grammars.py            # run it when the compiler or a schema changes, and read the difference
"""

from __future__ import annotations

from pathlib import Path

from judge_local.grammar import compile_verdict
from judge_local.verdict import VERDICT_SCHEMA

GRAMMARS = Path(__file__).resolve().parent.parent / "grammars"


def compiled() -> dict[str, str]:
    """The text of each file in `grammars/`, by file name."""
    return {"verdict.gbnf": compile_verdict(VERDICT_SCHEMA).gbnf}


def main() -> None:
    """Write every file and say which."""
    GRAMMARS.mkdir(exist_ok=True)
    for name, text in compiled().items():
        (GRAMMARS / name).write_text(text, encoding="utf-8")
        print(f"grammars/{name}: {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
