"""The frame of the page: head, contents, styles, scripts, data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from avem.fits.report.pack import script_json
from avem.fits.report.reproduce import own_version
from avem.fits.report.svg import used_colors

_SCRIPTS = (
    "unpack.js",
    "scales.js",
    "chart.js",
    "track.js",
    "timeline.js",
    "drawing.js",
    "effects.js",
    "main.js",
)
_DARK_PAPER, _DARK_INK = (24, 27, 31), (232, 234, 237)
_GREY = 12
"""Largest difference between red, green and blue of a colour that is a grey."""
_CONTRAST = 4.5
"""Of a state's colour on dark paper, at least."""

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="avem $version">
<title>$title: $formula</title>
<style>
$colors
$css</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<h1>$title</h1>
<p class="formula">$kind<code>$formula</code></p>
</header>
<nav aria-label="Contents">
<ol>
$contents
</ol>
</nav>
<main id="main">
$body
</main>
<footer><p>Written by avem $version. This file is $size and needs nothing else: no network, no
other file.</p></footer>
<script type="application/json" id="page-data">$data</script>
<script>$script</script>
</body>
</html>
""")


class PageSection(NamedTuple):
    """One part of the page."""

    key: str
    title: str
    html: str


def fill_page(
    title: str,
    kind: str,
    formula: str,
    sections: Sequence[PageSection],
    data: dict[str, Any],
    colors: list[str],
) -> str:
    """The whole page as text; `kind` of model is told below a title that does not say it."""
    script = "".join(_asset(name) for name in _SCRIPTS)
    # Only this very script may run, whatever else got into the page.
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    body = "\n".join(_section(section) for section in sections)
    values = {
        "policy": policy,
        "version": escape(own_version()),
        "title": escape(title),
        "kind": f"{escape(kind)}: " if kind else "",
        "formula": escape(formula),
        "colors": _color_css(colors, used_colors(body)),
        "css": _asset("report.css"),
        "contents": "\n".join(f'<li><a href="#{s.key}">{s.title}</a></li>' for s in sections),
        "body": body,
        "data": script_json(data),
        "script": script,
    }
    length = len(_PAGE.substitute(values, size="").encode())
    return _PAGE.substitute(values, size=_size(length))


def _section(section: PageSection) -> str:
    key = section.key
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">\n'
        f'<h2 id="{key}-title">{section.title}</h2>\n{section.html}\n</section>'
    )


def _asset(name: str) -> str:
    return (files("avem.fits.report") / "assets" / name).read_text(encoding="utf-8")


def _size(length: int) -> str:
    return f"{length / 1e6:.1f} MB" if length >= 1e6 else f"{length / 1e3:.0f} kB"


# --- colours ------------------------------------------------------------------------------------


def _color_css(states: list[str], figures: list[str]) -> str:
    """The colours of states and of figures, on light paper and on dark."""
    named = {f"--s{k}": color for k, color in enumerate(states)}
    named |= {f"--c{color[1:]}": color for color in figures}
    light = "".join(f"{name}:{color};" for name, color in named.items())
    dark = "".join(f"{name}:{_on_dark(color)};" for name, color in named.items())
    return f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _on_dark(color: str) -> str:
    """The colour, lighter as far as dark paper needs it; greys change places, paper with ink."""
    rgb = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    if max(rgb) - min(rgb) <= _GREY:
        share = sum(rgb) / 3 / 255
        return _hex(
            ink + share * (paper - ink) for ink, paper in zip(_DARK_INK, _DARK_PAPER, strict=True)
        )
    while _luminance(rgb) + 0.05 < _CONTRAST * (_luminance(_DARK_PAPER) + 0.05):
        rgb = [round(c + 0.08 * (255 - c) + 0.5) for c in rgb]
    return _hex(rgb)


def _hex(rgb: Iterable[float]) -> str:
    return "#" + "".join(f"{min(round(c), 255):02x}" for c in rgb)


def _luminance(rgb: Sequence[int]) -> float:
    """Relative, as web standards define it."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
