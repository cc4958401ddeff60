"""Every parameter with its standard error, and tables of estimates in states' colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from avem.fits.report.html import Html, Tinted, table
from avem.fits.report.numbers import chance, interval, number
from avem.fits.sections import Section

_MOVE = re.compile(r"(\d+) -> (\d+)")
_TALL = 20
"""Rows from which a table gets a box of limited height."""


def section_table(section: Section, labels: Sequence[str]) -> str:
    """A table of estimates, states in their colours; `labels` are what they are called."""
    frame, rows = section.frame, []
    for label, values in zip(frame.index, frame.to_numpy(), strict=True):
        name = ": ".join(map(str, label)) if isinstance(label, tuple) else str(label)
        rows.append([head(name, labels), *(_value(value, section.chances) for value in values)])
    return table(section.title, ["", *(head(str(name), labels) for name in frame.columns)], rows)


def _value(value: float, is_chance: bool) -> str:
    return Tinted(chance(value), value) if is_chance and not pd.isna(value) else number(value)


def head(name: str, labels: Sequence[str]) -> str:
    """A name as the head of a row or column: of a state, beside its colour."""
    move = _MOVE.fullmatch(name)
    if move and max(int(move[1]), int(move[2])) < len(labels):
        return f"{labels[int(move[1])]} \u2192 {labels[int(move[2])]}"
    if name not in labels:
        return name
    k = list(labels).index(name)
    swatch = f'<span class="swatch" style="background:var(--s{k})"></span>'
    return Html(f"{swatch}{escape(name)}")


def error_table(found: pd.DataFrame, labels: Sequence[str]) -> str:
    """`fit.standard_errors()` for people; `labels` are what the states are called."""
    rows = [
        [
            _name(row, labels),
            number(row["estimate"]),
            number(row["se"]),
            interval(row["lower"], row["upper"]),
            row["note"],
        ]
        for row in found.to_dict("records")
    ]
    header = ["", "estimate", "standard error", "95% interval"]
    if any(row[-1] for row in rows):
        header.append("note")
    else:
        rows = [row[:-1] for row in rows]
    caption = "Every parameter with its standard error"
    return table(caption, header, rows, tall=len(rows) > _TALL, wrap="note" in header)


def _name(row: dict[str, Any], labels: Sequence[str]) -> str:
    """Which parameter: coef of valence, stress, state 0."""
    parts = [row[name] for name in ("outcome", "term") if not pd.isna(row[name])]
    states = [labels[int(row[name])] for name in ("state", "to_state") if not pd.isna(row[name])]
    parts += [" to ".join(states)] if states else []
    own = (row["term"], f"{row['outcome']}: {row['term']}")  # a variance is with itself
    if not pd.isna(row["other"]) and row["other"] not in own:
        parts.append(f"with {row['other']}")
    return f"{row['parameter']}: {', '.join(map(str, parts))}" if parts else str(row["parameter"])
