"""All benchmarks, one after the other: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = (
    "iteration.py",
    "bernoulli.py",
    "default.py",
    "methods.py",
    "state_space.py",
    "minibatch.py",
    "cold_start.py",
    "memory.py",
    "wrong_modes.py",
)

if __name__ == "__main__":
    for part in PARTS:
        print(f"\n=== {part} ===", flush=True)
        code = subprocess.run([sys.executable, str(HERE / part)], check=False).returncode
        if code:
            sys.exit(code)
