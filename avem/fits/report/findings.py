"""What was found, first of all: a card per state, the strongest effects, how subjects differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtr

from avem.fits.common import effect_sd
from avem.fits.fit import Fit
from avem.fits.report.html import Html, table
from avem.fits.report.numbers import interval, number, p_value
from avem.fits.uncertainty import with_intervals
from avem.fits.words import count

_MOST = 8
"""Effects of covariates that are told; and outcomes on a card."""


NO_INTERVAL = "no interval"


class Fact(NamedTuple):
    """One line of a card."""

    name: str
    value: str
    ends: str = ""
    """Its interval."""


class Influence(NamedTuple):
    """What a covariate does to something."""

    covariate: str
    on: str
    """What it acts on, in words."""
    measure: str
    """ "odds" or "mean" where the effect multiplies it, else empty."""
    row: dict[str, Any]
    """Of the table of estimates."""


class Said(NamedTuple):
    """An influence in cells of a table."""

    effect: str
    ends: str
    p: float


# --- cards ----------------------------------------------------------------------------------------


def card(k: int, label: str, lead: str, facts: Sequence[Fact]) -> str:
    """One state: its name, the number that matters most, and more of them."""
    shown = facts[: _MOST + 1]
    lines = "".join(
        f"<div><dt>{escape(fact.name)}</dt><dd>{escape(fact.value)}"
        + (f' <span class="ends">{escape(fact.ends)}</span>' if fact.ends else "")
        + "</dd></div>"
        for fact in shown
    )
    more = len(facts) - len(shown)
    rest = f'<p class="more">and {more} more, in the tables below</p>' if more else ""
    return (
        f'<article class="card" style="--own:var(--s{k})"><h3>{escape(label)}</h3>'
        f'<p class="lead">{escape(lead)}</p><dl>{lines}</dl>{rest}</article>'
    )


def cards(each: Iterable[str], note: str) -> str:
    """All of them, and what their numbers are."""
    return f'<div class="cards">{"".join(each)}</div>\n<p class="caption">{escape(note)}</p>'


def interval_words(level: float | None) -> str:
    """What stands in parentheses, or why nothing does."""
    if level is not None:
        return f"In smaller print: {level:.0%} intervals."
    return "Intervals need standard errors, which are left out here: see All estimates."


def ends(row: Any, level: float | None, say: Callable[[float], str] = number) -> str:
    """The interval of a row of a table: nothing where none was asked for, else a word for none."""
    if level is None:
        return ""
    return interval(float(row["lower"]), float(row["upper"]), say) or NO_INTERVAL


def explained(html: str) -> str:
    """What was found, and where to look for intervals that are not there."""
    if NO_INTERVAL not in html:
        return html
    why = '<a href="#errors">All estimates</a> says why some intervals are missing.'
    return f'{html}<p class="caption">{why}</p>'


# --- covariates -----------------------------------------------------------------------------------


def estimates_table(fit: Fit, level: float | None) -> pd.DataFrame:
    """Every parameter, with standard errors where they are to be had; constants are left out."""
    found: Any = fit._table() if level is None else fit._standard_errors()
    if level is None:
        found = found.assign(se=np.nan, lower=np.nan, upper=np.nan)
    return found[~fit.model.constant_rows()]


def acts(row: dict[str, Any], terms: Sequence[str]) -> bool:
    """Whether a row of the table is what a covariate does; `terms` are those of its formula.

    Without an intercept, the terms of a category are levels, not differences from one.
    """
    term = row["term"]
    if pd.isna(term) or term == "Intercept":
        return False
    return "Intercept" in terms or "[" not in str(term)


def influence_table(fit: Fit, found: Sequence[Influence], level: float | None) -> str:
    """The strongest effects: those that are most standard errors from none."""
    if not found:
        return ""
    said = [(one, _said(fit, one, level)) for one in found]
    if level is not None:
        said.sort(key=lambda pair: -_distance(pair[0].row))
    shown = said[:_MOST]
    rows = []
    for one, words in shown:
        cells = [one.covariate, one.on, words.effect]
        rows.append(cells if level is None else [*cells, words.ends, p_value(words.p)])
    of = f"{len(shown)} of {len(said)}" if len(shown) < len(said) else ""
    strongest = "The strongest effects of covariates" if of and level is not None else ""
    caption = (strongest or "What covariates do") + (f" ({of})" if of else "")
    header = ["covariate", "acts on", "one unit more"]
    header += [] if level is None else [f"{level:.0%} interval", "p"]
    notes = []
    if any(one.measure for one, _ in shown):
        notes.append("What stands after \u00d7 is a ratio: above 1 it raises, below 1 it lowers.")
    if any("[" in one.covariate for one, _ in shown):
        notes.append(
            "For a category, one unit more means this category instead of the reference category."
        )
    if level is not None and len(said) > 1:
        notes.append(f"The p-values are not corrected for there being {len(said)} of them.")
    html = table(caption, header, rows, text=2)
    return html + (f'<p class="caption">{" ".join(notes)}</p>' if notes else "")


def _distance(row: dict[str, Any]) -> float:
    """From no effect, in standard errors; what has none comes last."""
    z = abs(row["estimate"]) / row["se"] if row["se"] > 0 else -1.0
    return float(z)


def _said(fit: Fit, one: Influence, level: float | None) -> Said:
    estimate = float(one.row["estimate"])
    p = two_sided(fit, _distance(one.row)) if one.row["se"] > 0 else np.nan
    if not one.measure:
        sign = "+" if estimate > 0 else ""
        return Said(sign + number(estimate), ends(one.row, level), p)
    return Said(f"{one.measure} \u00d7 {_ratio(estimate)}", ends(one.row, level, _ratio), p)


def _ratio(log: float) -> str:
    with np.errstate(over="ignore"):
        return number(np.exp(log))


def two_sided(fit: Fit, z: float) -> float:
    """The p-value of a number so many standard errors from 0.

    As intervals have it: with effects, by Student's distribution of the subjects less one.
    """
    if fit.model.n_effects:
        return float(2 * stdtr(max(len(fit.subjects) - 1, 1), -z))
    return float(2 * ndtr(-z))


# --- subjects -------------------------------------------------------------------------------------


def spread(fit: Fit, level: float | None) -> pd.DataFrame:
    """Per effect: the standard deviation between subjects, with an interval."""
    model = fit.model
    table = pd.DataFrame({"effect": list(model.effect_names)})
    found = with_intervals(
        fit, table, lambda params: effect_sd(model, model.params_in(params)), "log", level
    )
    return found if level is not None else found.assign(lower=np.nan, upper=np.nan)


def spread_table(fit: Fit, level: float | None) -> str:
    """How much subjects differ."""
    if not fit.model.n_effects:
        return ""
    found, names = spread(fit, level), fit._parts().effect_words()
    rows = [
        [name, number(row["estimate"]), *([] if level is None else [ends(row, level)])]
        for name, row in zip(names, found.to_dict("records"), strict=True)
    ]
    header = ["what differs", "sd between subjects"]
    header += [] if level is None else [f"{level:.0%} interval"]
    note = (
        "About two thirds of the subjects lie within one sd of the average subject, and 95% within "
        "two."
    )
    caption = f"How much {count(len(fit.subjects), 'subject')} differ"
    return table(caption, header, rows) + Html(f'<p class="caption">{note}</p>')
