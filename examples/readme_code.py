"""Run every Python block of the README, or of the pages that are named, in order, as one script.

    python examples/readme_code.py [PAGE.md ...]

The blocks of `docs/` are run by `make docs`, too, which also shows what they give. Some blocks of
the README fit the animal tracks of `movement.py`; they find them as `tracks`. What the blocks write
goes to a temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from movement import make_tracks

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from cells import code  # noqa: E402


def run(path: Path) -> None:
    """Run the blocks of one page; an error says at which line of the page it happened."""
    names = {"tracks": make_tracks().frame}
    for cell in code(path.read_text(encoding="utf-8")):
        print(f"--- {path.name}, line {cell.line}", flush=True)
        exec(compile("\n" * (cell.line - 1) + cell.text, str(path), "exec"), names)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / "README.md"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in pages:
            run(page)
