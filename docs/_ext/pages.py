"""The site's own Sphinx extension: pages whose code runs, formulas without a network, the command.

- `read` hands a page to myst-nb as a notebook, so that every ```python block is run in the build.
- A block that fails is reported with its page and line, and fails the build.
- Formulas become MathML, which browsers show by themselves.
- The page `cli` gets the reference of the command, from the command itself.
- A line is printed for every page whose code has run: how many there are, and how long it took.
"""

from __future__ import annotations

import re
import time
from multiprocessing import Value
from pathlib import Path
from typing import Any

import nbformat
from cells import code, split
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging
from sphinx.util.parallel import make_chunks

_SET_UP = """\
import warnings
import pandas
get_ipython().run_line_magic("matplotlib", "inline")
get_ipython().run_line_magic("config", "InlineBackend.figure_formats = ['svg']")
pandas.set_option("display.max_rows", 12)
warnings.filterwarnings("error", category=DeprecationWarning, module="__main__")
"""
_CELL = re.compile(r"Cell In\[(\d+)\], line (\d+)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WORK = re.compile(r"\b(?:fit|select|check|bootstrap|standard_errors)\(")
_log = logging.getLogger(__name__)
_done, _in_all, _began = Value("i", 0), Value("i", 0), dict[str, float]()
"""Pages whose code has run, and is to run, counted by all processes; when this one began each."""


def read(page: str) -> Any:
    """The page as a notebook; a first cell, which is not shown, sets up pictures and tables."""
    cells, lines = [], []
    for cell in split(page):
        make = nbformat.v4.new_code_cell if cell.is_code else nbformat.v4.new_markdown_cell
        if cell.is_code and not any(c["cell_type"] == "code" for c in cells):
            hidden = {"tags": ["remove-cell"]}
            cells.append(nbformat.v4.new_code_cell(_SET_UP, metadata=hidden))
            lines.append(cell.line - 1)
        cells.append(make(cell.text))
        lines.append(cell.line - 1)
    kernel = {"name": "avem-docs", "display_name": "avem docs", "language": "python"}
    return nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": kernel, "source_map": lines}
    )


def spread(app: Any, env: Any, names: list[str]) -> None:
    """Deal pages out for equal work in all processes, to which Sphinx gives stretches of them."""
    work = {name: _work(Path(env.doc2path(name))) for name in names}
    _in_all.value = sum(amount > 0 for amount in work.values())
    sizes = [len(stretch) for stretch in make_chunks(names, max(app.parallel, 1))]
    hands: list[list[str]] = [[] for _ in sizes]
    # The last ones, if they do not come out even, get pages without code.
    busy = len(sizes) // max(app.parallel, 1) * max(app.parallel, 1)
    for name in sorted(names, key=lambda name: (-work[name], name)):
        room = [i for i, size in enumerate(sizes) if len(hands[i]) < size]
        early = [i for i in room if i < busy] if work[name] else room[::-1]
        hand = min(early or room, key=lambda i: sum(work[other] for other in hands[i]))
        hands[hand].append(name)
    names[:] = [name for hand in hands for name in hand]


def _work(page: Path) -> int:
    """About how long the code of a page takes: what it calls that fits or draws."""
    if page.suffix != ".md":
        return 0
    cells = code(page.read_text(encoding="utf-8"))
    return len(cells) + 3 * sum(len(_WORK.findall(cell.text)) for cell in cells)


def begin(app: Any, name: str, source: list[str]) -> None:
    """Note when the page was begun."""
    _began[name] = time.monotonic()


def tell(app: Any, doctree: Any) -> None:
    """Print that the code of a page has run."""
    name = app.env.docname
    run = app.env.nb_metadata.get(name, {}).get("exec_data")
    if run is None:
        return
    with _done.get_lock():
        _done.value += 1
        number = _done.value
    seconds = time.monotonic() - _began[name]
    how = "" if run["succeeded"] else ", and failed"
    print(f"[{number} of {_in_all.value}] {name}: ran for {seconds:.0f} s{how}", flush=True)


def report_failures(app: Any, env: Any) -> None:
    """Warn of every page whose code failed, at the line where it did."""
    for name, about in sorted(env.nb_metadata.items()):
        run = about.get("exec_data")
        if run is None or run["succeeded"]:
            continue
        text = _COLOURS.sub("", run["traceback"] or "").rpartition("-" * 75)[2].strip()
        blocks, found = code(Path(env.doc2path(name)).read_text(encoding="utf-8")), None
        for number, line in _CELL.findall(text):
            found = blocks[int(number) - 2].line + int(line) - 1  # the first cell is the set-up
            break
        says = text.splitlines()[-1] if text else run["error"]
        _log.warning(
            "the code of this page failed: %s\n%s", says, text, location=(name, found), type="code"
        )


def write_inline(self: Any, node: nodes.math) -> None:
    """A formula within a line."""
    self.body.append(_mathml(node))
    raise nodes.SkipNode


def write_block(self: Any, node: nodes.math_block) -> None:
    """A formula of its own."""
    self.body.append(f'<div class="formula">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: Any, as_block: bool = False) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _log.warning("a formula cannot be shown: %s", error, location=node, type="math")
        return ""


def write_commands(app: Any, name: str, source: list[str]) -> None:
    """Add what typer says of the command to the page about it."""
    if name != "cli":
        return
    import typer
    from typer.cli import get_docs_for_click

    from avem.cli import app as avem

    command = typer.main.get_command(avem)
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="avem")
    source[0] += "\n" + text[text.index("\n## ") :]  # the commands, without the list of them


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("env-before-read-docs", spread)
    app.connect("env-updated", report_failures)
    app.connect("source-read", begin)
    app.connect("doctree-read", tell)
    app.connect("source-read", write_commands)
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
