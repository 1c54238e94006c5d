"""How llama.cpp's threads should wait for each other: milliseconds a token, by OpenMP's settings.

    python scripts/bench_waiting.py [--busy N] [--model smollm2-135m]

Each setting gets a process of its own, because OpenMP reads it once. With `--busy N`, that many other processes spin meanwhile.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Final

from judge_local.models.hardware import usable_cores
from judge_local.models.store import Store

SETTINGS: Final[dict[str, dict[str, str]]] = {
    "OpenMP's default": {},
    "GOMP_SPINCOUNT=2000": {"GOMP_SPINCOUNT": "2000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
}

DECODE: Final = """
import sys, time
from pathlib import Path
from judge_local.engine.binding import AbortFlag, Model, start_backend
from judge_local.engine.context import Context

start_backend()
context = Context(Model(Path(sys.argv[1])), n_ctx=2304, n_sequences=1, n_outputs=1, n_batch=512, n_threads=int(sys.argv[2]), abort=AbortFlag())
for at in range(0, 1536, 512):
    context.decode([100] * 512, range(at, at + 512), [0] * 512, [False] * 511 + [True])
started = time.monotonic()
for at in range(1536, 1536 + 150):
    context.decode([100], [at], [0], [True])
print((time.monotonic() - started) / 150 * 1000)
"""


def main() -> None:
    """Read the command line and print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--model", default=None)
    options = parser.parse_args()
    found = Store().the_only() if options.model is None else Store().find(options.model)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.busy)]
    try:
        for name, setting in SETTINGS.items():
            done = subprocess.run(
                [sys.executable, "-c", DECODE, str(found.path), str(usable_cores())],
                env={**os.environ, **setting},
                capture_output=True,
                text=True,
                check=True,
            )
            print(f"{name:24} {float(done.stdout):8.1f} ms a token", flush=True)
    finally:
        for other in others:
            other.kill()
            other.wait()


if __name__ == "__main__":
    main()
