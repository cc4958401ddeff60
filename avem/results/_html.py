"""The pieces of an HTML page that needs nothing else: tables, pictures, words."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING

from avem.results._figures import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 110

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 2px solid #d5d9de; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; background: #f2f4f6; }
pre { padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.box { overflow: auto; margin: 1rem 0; }
.tall { max-height: 26rem; border: 1px solid #d5d9de; }
.tall thead th { position: sticky; top: 0; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .3rem .7rem .3rem 0; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e3e6ea; text-align: right;
  white-space: nowrap; }
thead th:first-child, tbody th { text-align: left; }
tbody th { font-weight: 500; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
figure { margin: 1.2rem 0; }
figure img { max-width: 100%; height: auto; }
figcaption { color: #444; max-width: 46rem; }
.note { border-left: 4px solid #b35900; padding: .1rem .8rem; background: #fff7ee; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; }
  .box { overflow: visible; max-height: none; } figure, tr, .box:not(.tall) { break-inside: avoid; }
  h2 { break-after: avoid; } .swatch { print-color-adjust: exact; } }
</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")


class Html(str):
    """Text that is markup already."""


def _cell(value: str) -> str:
    return value if isinstance(value, Html) else escape(value)


def table(
    caption: str, header: Sequence[str], rows: Iterable[Sequence[str]], tall: bool = False
) -> str:
    """A table whose first column names the rows, in a box that scrolls when it must."""
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
    return (
        f'<div class="box{" tall" if tall else ""}" role="region" aria-label="{name}" tabindex="0">'
        f"<table>\n<caption>{name}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def figure_html(figure: Figure, alt: str, caption: str) -> str:
    """A picture that is part of the page; `alt` tells it to those who do not see it."""
    data = b64encode(png(figure, _DPI)).decode("ascii")
    width = int(figure.get_figwidth() * 88)
    image = f'<img width="{width}" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{image}{words}</figure>"


def number(value: float) -> str:
    return f"{value:.4g}"


def code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def words(names: Iterable[object], link: str = "and") -> str:
    """Names in a sentence: a, b and c."""
    *first, last = map(code, names)
    return f"{', '.join(first)} {link} {last}" if first else last


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
