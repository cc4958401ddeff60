"""Run every Python block of the README and of docs/: each file's blocks in order, as one script.

    python examples/readme_code.py [FILE.md ...]

Some blocks fit the animal tracks of `movement.py`; they find them as `tracks`. What the blocks
write goes to a temporary folder.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from movement import make_tracks

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(path: Path) -> None:
    """Run the blocks of one file; an error says at which line of the file it happened."""
    text, names = path.read_text(encoding="utf-8"), {"tracks": make_tracks().frame}
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(1))
        print(f"--- {path.name}, line {line + 1}", flush=True)
        exec(compile("\n" * line + block[1], str(path), "exec"), names)


if __name__ == "__main__":
    files = [Path(name).resolve() for name in sys.argv[1:]]
    files = files or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for file in files:
            run(file)
