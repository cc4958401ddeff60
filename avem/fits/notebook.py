"""Results as small pieces of HTML for notebooks: escaped, and in the colours of the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import pandas as pd


def paragraphs(lines: Iterable[str]) -> str:
    """Lines of text, one below the other."""
    return f"<p>{'<br>'.join(escape(line) for line in lines)}</p>"


def preformatted(text: str) -> str:
    """Text with its line breaks and columns."""
    return f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'


def titled(title: str, frame: pd.DataFrame, **options: Any) -> str:
    """A table under its title."""
    return f"<p><strong>{escape(title)}</strong></p>\n{frame_html(frame, **options)}"


def frame_html(frame: pd.DataFrame, **options: Any) -> str:
    """A table; numbers as pandas shows them unless `options` say otherwise."""
    return frame.to_html(escape=True, border=0, na_rep="", **options)


def facts(title: str, known: Mapping[str, str]) -> str:
    """A few facts, one below the other, under a title."""
    style = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {style}>{escape(name)}</th><td {style}>{escape(text)}</td></tr>"
        for name, text in known.items()
    )
    return f"<p><strong>{escape(title)}</strong></p>\n<table>{rows}</table>"


def model_facts(spec: Any, size_name: str) -> dict[str, str]:
    """What tells a model from others, by the names that users give it."""
    return {"formula": spec.text, size_name: str(getattr(spec, size_name)), **spec.options}


def listed(title: str, items: Iterable[str]) -> str:
    """A list under its title."""
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<p><strong>{escape(title)}</strong></p>\n<ul>{entries}</ul>" if entries else ""
