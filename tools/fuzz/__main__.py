"""Tries avem on what it does not expect: `make fuzz`, or `python -m tools.fuzz --help`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tools.fuzz.run import AREAS, run, table


def main() -> None:
    """Read the options, run the cases, and end with 1 if there are findings."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="of all classes together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), choices=AREAS, help="these classes alone")
    parser.add_argument("--out", type=Path, default=Path("fuzz-output"), help="for the findings")
    chosen = parser.parse_args()
    begun = time.monotonic()
    _keep_compiled_code(chosen.out.absolute() / "compiled")
    only, folder = chosen.only, chosen.out / f"seed-{chosen.seed}"
    tallies, findings = run(chosen.cases, chosen.seed, only, folder, sys.stderr)
    print(table(tallies, findings))
    print(f"{time.monotonic() - begun:.0f} seconds, {len(findings)} findings")
    if findings:
        print(f"Each can be run as it is: PYTHONPATH=. python {folder}/CLASS-NUMBER.py")
        sys.exit(1)


def _keep_compiled_code(folder: Path) -> None:
    """Worker processes come and go: what one has compiled serves the next."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


if __name__ == "__main__":
    main()
