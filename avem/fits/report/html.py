"""The pieces of an HTML page that needs nothing else: tables, pictures, words."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from avem.fits.plots.figures import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 120


class Html(str):
    """Text that is markup already."""


def _cell(value: str) -> str:
    return value if isinstance(value, Html) else escape(value)


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    tall: bool = False,
    wrap: bool = False,
) -> str:
    """A table whose first column names the rows, in a box that scrolls when it must.

    ``tall``: a box of limited height; ``wrap``: the last column is text.
    """
    head = "".join(
        f'<th scope="col">{_cell(name)}</th>' if name else "<td></td>" for name in header
    )
    lines = [
        f'<tr><th scope="row">{_cell(name)}</th>'
        + "".join(f"<td>{_cell(value)}</td>" for value in values)
        + "</tr>"
        for name, *values in rows
    ]
    name = escape(caption)
    kind = "".join([" tall" if tall else "", " wrap" if wrap else ""])
    return (
        f'<div class="box{kind}" role="region" aria-label="{name}" tabindex="0">'
        f"<table>\n<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def side_by_side(tables: Iterable[str]) -> str:
    """Tables beside each other where there is room."""
    return '<div class="tables">' + "\n".join(tables) + "</div>"


def figure_html(figure: Figure, alt: str, caption: str) -> str:
    """A picture that is part of the page; `alt` tells it to those who do not see it."""
    data = b64encode(png(figure, _DPI)).decode("ascii")
    size = [round(inches * 88) for inches in figure.get_size_inches()]
    place = f'width="{size[0]}" height="{size[1]}" alt="{escape(alt)}"'
    image = f'<img {place} src="data:image/png;base64,{data}">'
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{image}{words}</figure>"


def number(value: float) -> str:
    return f"{value:.4g}"


def code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def words(names: Iterable[object], link: str = "and") -> str:
    """Names in a sentence: a, b and c."""
    return listed(map(code, names), link)


def listed(parts: Iterable[str], link: str = "and") -> str:
    """Parts of a sentence: a, b and c."""
    *first, last = parts
    return f"{', '.join(first)} {link} {last}" if first else last


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
