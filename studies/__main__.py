"""`python -m studies NAME [--reps 100] [--jobs 2] [--out DIR]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from studies import catalogue
from studies.runner import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument("name", choices=catalogue.NAMES)
    parser.add_argument("--reps", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="default: docs/studies/NAME")
    asked = parser.parse_args()
    out = asked.out or Path("docs/studies") / asked.name
    for name, table in run(catalogue.find(asked.name), asked.reps, asked.jobs, out).items():
        print(f"\n{name}\n{table.to_string(index=False)}")


if __name__ == "__main__":
    main()
