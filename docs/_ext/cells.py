"""What runs on a page: the blocks fenced with ```python, in order, as one script.

Pages are plain Markdown, so that they read well wherever Markdown is shown. A block fenced with
```py is shown and not run. This module needs nothing but the standard library: the site
(`pages.py`), the tests and `examples/readme_code.py` all split pages with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"^(`{3,}|~{3,})(.*)$")


class Cell(NamedTuple):
    """A stretch of a page: text, or code to run; `line` is that of its first line, from 1."""

    is_code: bool
    text: str
    line: int


def split(page: str) -> list[Cell]:
    """The page cut into text and code, in order."""
    cells: list[Cell] = []
    lines: list[str] = []
    start, closing, is_code = 1, None, False
    for number, line in enumerate(page.splitlines(), start=1):
        fence = _FENCE.match(line)
        if closing is None and fence and fence[2].strip() == "python":
            _add(cells, False, lines, start)
            lines, start, closing, is_code = [], number + 1, fence[1], True
        elif is_code and line.rstrip() == closing:
            _add(cells, True, lines, start)
            lines, start, closing, is_code = [], number + 1, None, False
        else:
            if fence and closing is None:
                closing = fence[1]
            elif fence and fence[1] == closing and not fence[2].strip():
                closing = None
            lines.append(line)
    if is_code:
        raise ValueError(f"line {start - 1}: a block of code does not end")
    _add(cells, False, lines, start)
    return cells


def code(page: str) -> list[Cell]:
    """The blocks that run."""
    return [cell for cell in split(page) if cell.is_code]


def _add(cells: list[Cell], is_code: bool, lines: list[str], start: int) -> None:
    if any(line.strip() for line in lines):
        cells.append(Cell(is_code, "\n".join(lines), start))
