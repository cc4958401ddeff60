"""The pieces of an HTML page that needs nothing else: tables and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Html(str):
    """Text that is markup already."""


class Tinted(str):
    """Text of a cell that is the darker the larger its share of a whole."""

    share: float

    def __new__(cls, text: str, share: float) -> Tinted:
        """Text and share."""
        made = super().__new__(cls, text)
        made.share = share
        return made


def _tint(value: str) -> str:
    share = getattr(value, "share", None)
    return "" if share is None else f' class="tint" style="--p:{min(max(share, 0.0), 1.0):.2f}"'


def _cell(value: str) -> str:
    return value if isinstance(value, Html) else escape(value)


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    tall: bool = False,
    wrap: bool = False,
    text: int = 1,
) -> str:
    """A table whose first column names the rows, in a box that scrolls when it must.

    ``tall``: a box of limited height; ``wrap``: the last column is text; ``text``: how many of the
    first columns are.
    """
    head = "".join(
        f'<th scope="col">{_cell(name)}</th>' if name else "<td></td>" for name in header
    )
    lines = [
        f'<tr><th scope="row">{_cell(name)}</th>'
        + "".join(f"<td{_tint(value)}>{_cell(value)}</td>" for value in values)
        + "</tr>"
        for name, *values in rows
    ]
    name = escape(caption)
    kind = "".join([" tall" if tall else "", " wrap" if wrap else "", " words" if text > 1 else ""])
    return (
        f'<div class="box{kind}" role="region" aria-label="{name}" tabindex="0">'
        f"<table>\n<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def side_by_side(tables: Iterable[str]) -> str:
    """Tables beside each other where there is room."""
    return '<div class="tables">' + "\n".join(tables) + "</div>"


def legend(labels: Sequence[str], *others: tuple[str, str]) -> str:
    """What colours mean in the pictures below: states, and others as (class, words)."""
    items = [
        f'<li><span class="swatch" style="background:var(--s{k})"></span>{escape(label)}</li>'
        for k, label in enumerate(labels)
    ]
    items += [f'<li><span class="sign {kind}"></span>{escape(name)}</li>' for kind, name in others]
    return f'<ul class="legend">{"".join(items)}</ul>'


def code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def words(names: Iterable[object], link: str = "and") -> str:
    """Names in a sentence: a, b and c."""
    return listed(map(code, names), link)


def listed(parts: Iterable[str], link: str = "and") -> str:
    """Parts of a sentence: a, b and c."""
    *first, last = parts
    return f"{', '.join(first)} {link} {last}" if first else last
