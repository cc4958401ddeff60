"""Estimates as a table for a paper: in LaTeX, HTML or Markdown, without further packages."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import NamedTuple

import numpy as np

from avem.errors import ModelError
from avem.fits.estimates import Cell, Estimates, Told

MINUS = "\u2212"
_MOST_DIGITS = 8
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    **{c: "\\" + c for c in "&%$#_{}"},
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    MINUS: "$-$",
    "\u2192": r"$\to$",
}


class PaperTable(NamedTuple):
    """Text in cells, rows under headings."""

    caption: str
    header: list[str]
    groups: list[tuple[str, list[list[str]]]]
    note: str


def paper_table(told: Told, caption: str, digits: int, ratios: bool) -> PaperTable:
    """The table of all sections; a heading for each, and for each state and outcome in it."""
    if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= _MOST_DIGITS:
        raise ModelError(
            f"digits is {digits!r}; a whole number from 0 to {_MOST_DIGITS} is wanted."
        )
    kinds = ratio_kinds(told) if ratios else []
    interval = f"{100 * told.level:g}% CI"
    header = ["", "Estimate"]
    if told.level:
        header += ["SE", "z", "p", interval]
    for kind in kinds:
        header += [kind[0].upper() + kind[1:], *([interval] if told.level else [])]
    groups: dict[str, list[list[str]]] = {}
    for part in told.parts:
        for cell in part.cells:
            heading, label = heading_of(part, cell)
            row = [label, *_numbers(cell, digits, bool(told.level))]
            for kind in kinds:
                row += _ratio(part, cell, kind, digits, bool(told.level))
            groups.setdefault(heading, []).append(row)
    said = [told.why] if told.why else []
    if told.level:
        said.append("SE: standard error; CI: confidence interval.")
    return PaperTable(caption, header, list(groups.items()), " ".join(said))


def ratio_kinds(told: Told) -> list[str]:
    """The kinds of ratios that the sections have."""
    kinds = (part.section.ratio for part in told.parts if any(cell.ratio for cell in part.cells))
    return list(dict.fromkeys(kinds))


def heading_of(part: Estimates, cell: Cell) -> tuple[str, str]:
    """Where a cell belongs, and what it is called there."""
    section, where = part.section, cell.where
    title = section.title.removesuffix(" (from row to column)")
    title = title.removesuffix(" (to row from column)")
    if section.axes[:2] == ("from", "to"):
        return title, f"{where[0]} \u2192 {where[1]}"
    parts = [text.replace("->", "\u2192") for text in where if text]
    if section.axes[:1] == ("",):  # a standard deviation or a correlation of something
        what, of = parts
        other = what.removeprefix("corr. ")
        return title, f"{what} of {of}" if other == what else f"correlation of {other} and {of}"
    parts = [text for text in parts if not title.startswith(f"{text}: ")] or parts
    if not section.tested or len(parts) == 1:
        return title, ", ".join(parts)
    return f"{title}: {', '.join(parts[:-1])}", parts[-1]


# --- numbers ------------------------------------------------------------------------------------


def fixed(x: float, digits: int) -> str:
    """A number with so many decimals and one kind of minus; never a negative zero."""
    text = f"{x:.{digits}f}"
    return text.replace("-", MINUS) if float(text) else f"{0:.{digits}f}"


def p_value(p: float) -> str:
    """A p-value as papers have it: "< .001", ".034"."""
    if np.isnan(p):
        return ""
    return "< .001" if p < 0.0005 else f"{p:.3f}".removeprefix("0")


def _decimals(cell: Cell, digits: int) -> int:
    """More decimals where a standard error, or else the estimate, would be no more than zeros.

    What is 0 with all the decimals that a table may have is 0 with few.
    """
    size = cell.se if cell.se > 0 else abs(cell.estimate)
    if not 0 < size < 0.5 * 10.0**-digits:
        return digits
    needed = int(np.ceil(-np.log10(size))) + 1
    return needed if needed <= _MOST_DIGITS else digits


def _numbers(cell: Cell, digits: int, errors: bool) -> list[str]:
    own = _decimals(cell, digits)
    found = [fixed(cell.estimate, own)]
    if not errors:
        return found
    found.append("" if np.isnan(cell.se) else fixed(cell.se, own))
    found.append("" if np.isnan(cell.z) else fixed(cell.z, 2))
    return [*found, p_value(cell.p), _interval(cell.lower, cell.upper, own)]


def _interval(lower: float, upper: float, digits: int) -> str:
    return "" if np.isnan(lower) else f"[{fixed(lower, digits)}, {fixed(upper, digits)}]"


def _ratio(part: Estimates, cell: Cell, kind: str, digits: int, errors: bool) -> list[str]:
    if not cell.ratio or part.section.ratio != kind:
        return ["", *([""] if errors else [])]
    with np.errstate(over="ignore"):
        value, lower, upper = np.exp([cell.estimate, cell.lower, cell.upper])
    return [fixed(value, digits), *([_interval(lower, upper, digits)] if errors else [])]


# --- kinds of text ------------------------------------------------------------------------------


def to_markdown(table: PaperTable) -> str:
    """The table in Markdown; headings are rows of their own."""
    head = _pipe(table.header, _plain)
    rule = "|" + "|".join([" :--- ", *[" ---: "] * (len(table.header) - 1)]) + "|"
    lines = [f"{_plain(table.caption)}", "", head, rule]
    for heading, rows in table.groups:
        lines.append(_pipe([f"**{_plain(heading)}**", *[""] * (len(table.header) - 1)], str))
        lines += [_pipe(row, _plain) for row in rows]
    return "\n".join([*lines, *(["", _plain(table.note)] if table.note else [])]) + "\n"


def _pipe(cells: list[str], written: Callable[[str], str]) -> str:
    return "| " + " | ".join(written(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text without a meaning in Markdown: no emphasis, formulas, tags, links or further cells."""
    return re.sub(r"([\\`*_|$]|<(?=[A-Za-z/!?])|\](?=[(\[]))", r"\\\1", text)


def to_html(table: PaperTable) -> str:
    """The table in HTML, in the colours of the page it stands on."""
    width = len(table.header)
    right = ' style="text-align:right"'
    lines = ["<table>", f"<caption>{escape(table.caption)}</caption>", "<thead>"]
    cells = "".join(f'<th scope="col"{right}>{escape(name)}</th>' for name in table.header[1:])
    lines += [f'<tr><th scope="col">{escape(table.header[0])}</th>{cells}</tr>', "</thead>"]
    for heading, rows in table.groups:
        title = f'<th colspan="{width}" scope="rowgroup" style="text-align:left">'
        lines += ["<tbody>", f"<tr>{title}{escape(heading)}</th></tr>"]
        for label, *numbers in rows:
            style = "text-align:left;font-weight:normal"
            first = f'<th scope="row" style="{style}">{escape(label)}</th>'
            rest = "".join(f"<td{right}>{escape(text)}</td>" for text in numbers)
            lines.append(f"<tr>{first}{rest}</tr>")
        lines.append("</tbody>")
    if table.note:
        lines.append(f'<tfoot><tr><td colspan="{width}">{escape(table.note)}</td></tr></tfoot>')
    return "\n".join([*lines, "</table>"]) + "\n"


def to_latex(table: PaperTable) -> str:
    r"""The table in LaTeX, with the rules of the package booktabs."""
    width = len(table.header)
    lines = [
        r"\begin{table}",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        r"\toprule",
        _ampersand([_latex_head(name) for name in table.header]),
    ]
    for heading, rows in table.groups:
        title = rf"\multicolumn{{{width}}}{{l}}{{\textit{{{latex_text(heading)}}}}} \\"
        lines += [r"\midrule", title]
        # A row that begins with a bracket would be read as an option of the line break before.
        for label, *numbers in rows:
            lines.append(_ampersand([r"\quad " + latex_text(label), *map(latex_text, numbers)]))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip {latex_text(table.note)}"] if table.note else []
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _latex_head(name: str) -> str:
    return rf"\textit{{{name}}}" if name in ("z", "p") else latex_text(name)


def _ampersand(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"


def latex_text(text: str) -> str:
    """Text as LaTeX prints it."""
    return "".join(_LATEX.get(character, character) for character in text)
