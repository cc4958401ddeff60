"""Every parameter with its standard error, and tables of estimates in states' colours."""

from __future__ import annotations

from typing import Any

import pandas as pd

from avem.fits.report.html import Html, number, table
from avem.fits.sections import Section

_TALL = 20
"""Rows from which a table gets a box of limited height."""


def section_table(section: Section) -> str:
    """A table of estimates, states in their colours."""
    frame, rows = section.frame, []
    for label, values in zip(frame.index, frame.to_numpy(), strict=True):
        name = ": ".join(map(str, label)) if isinstance(label, tuple) else str(label)
        rows.append([head(name), *("" if pd.isna(value) else number(value) for value in values)])
    return table(section.title, ["", *(head(str(name)) for name in frame.columns)], rows)


def head(name: str) -> str:
    """A name as the head of a row or column: of a state, beside its colour."""
    kind, _, number_of = name.partition(" ")
    is_state = kind == "state" and number_of.isdecimal()
    if not is_state:
        return name
    swatch = f'<span class="swatch" style="background:var(--s{int(number_of)})"></span>'
    return Html(f"{swatch}{name}")


def error_table(found: pd.DataFrame) -> str:
    """`fit.standard_errors()` for people."""
    rows = []
    for row in found.to_dict("records"):
        interval = (
            "" if pd.isna(row["lower"]) else f"{number(row['lower'])} to {number(row['upper'])}"
        )
        error = "" if pd.isna(row["se"]) else number(row["se"])
        rows.append([_name(row), number(row["estimate"]), error, interval, row["note"]])
    header = ["", "estimate", "standard error", "95% interval"]
    if any(row[-1] for row in rows):
        header.append("note")
    else:
        rows = [row[:-1] for row in rows]
    caption = "Every parameter with its standard error"
    return table(caption, header, rows, tall=len(rows) > _TALL, wrap="note" in header)


def _name(row: dict[str, Any]) -> str:
    """Which parameter: coef of valence, stress, state 0."""
    parts = [row[name] for name in ("outcome", "term") if not pd.isna(row[name])]
    state, to = row["state"], row["to_state"]
    if not pd.isna(state) and not pd.isna(to):
        parts.append(f"state {state} to {to}")
    elif not pd.isna(state):
        parts.append(f"state {state}")
    elif not pd.isna(to):
        parts.append(f"state {to}")
    own = (row["term"], f"{row['outcome']}: {row['term']}")  # a variance is with itself
    if not pd.isna(row["other"]) and row["other"] not in own:
        parts.append(f"with {row['other']}")
    return f"{row['parameter']}: {', '.join(map(str, parts))}" if parts else str(row["parameter"])
