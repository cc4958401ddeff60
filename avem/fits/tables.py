"""A fit as tables: tidy for computing, and laid out for reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.components.base import Row
from avem.components.duration import in_words
from avem.fits.estimates import Cell, Estimates, Told
from avem.fits.notebook import listed, paragraphs, preformatted, titled
from avem.fits.words import count
from avem.inference.stop import Stop
from avem.models.given_priors import told

if TYPE_CHECKING:
    from avem.fits.fit import Fit
    from avem.fits.hmm_fit import HMMFit


class Summary:
    """Text that shows itself in a terminal and in a notebook.

    Parameters
    ----------
    text : str
        What to show.
    html : str, optional
        The same for a notebook; by default the text as it is.

    Examples
    --------
    >>> avem.Summary("two states")
    two states
    """

    def __init__(self, text: str, html: str | None = None) -> None:
        self.text = text
        self.html = html

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return preformatted(self.text) if self.html is None else self.html


# --- tidy ---------------------------------------------------------------------------------------

_TEXTS = ("outcome", "term", "other")
_COLUMNS = ("parameter", "state", "to_state", *_TEXTS, "estimate")
_CLUSTER = "cluster"
"""A column that is there where subjects are of several types."""


def tidy(found: Iterable[tuple[str, Row]]) -> pd.DataFrame:
    """The table of parameters from their names and rows."""
    rows = [{"parameter": name, **row.where, "estimate": row.estimate} for name, row in found]
    of_types = any(_CLUSTER in row for row in rows)
    columns = [_COLUMNS[0], *([_CLUSTER] if of_types else []), *_COLUMNS[1:]]
    frame = pd.DataFrame(rows, columns=columns)
    if of_types:
        frame = frame.astype({_CLUSTER: "Int64"})
    for column in _TEXTS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    return frame.astype({"state": "Int64", "to_state": "Int64", "estimate": float})


# --- for reading --------------------------------------------------------------------------------


def head(fit: HMMFit) -> list[str]:
    """The first lines of the summary: the model."""
    model = fit.model
    n_states = model.n_states
    kind = "Mixed hidden" if model.n_effects else "Hidden"
    process = "Markov" if model.duration is None else "semi-Markov"
    families = dict.fromkeys(piece.family.describe() for piece in model.emissions)
    return [
        f"{kind} {process} model: {model.spec.text}",
        *_chain_words(fit),
        *restriction_words(fit),
        f"{n_states} state{'s' if n_states > 1 else ''}, {', '.join(families)}"
        + (f", {model.n_clusters} clusters of subjects" if model.n_clusters > 1 else "")
        + (f", effects {model.effect_covariance}" if model.n_effects > 1 else ""),
    ]


def _on_gpu(info: Any) -> str:
    """What a fit on a GPU took beside time."""
    if info.device != "gpu":
        return ""
    parts = [" on a GPU"]
    if info.compile_seconds is not None:
        parts.append(f"{info.compile_seconds:.2f} s of them compiling")
    if info.device_memory is not None:
        parts.append(f"at most {info.device_memory / 1e9:.2f} GB of its memory")
    return ", ".join(parts)


def compose(
    head: Sequence[str], fit: Fit, starts: Sequence[str], known: Told, ratios: bool
) -> Summary:
    """A summary: the model in words, the data, how it ended, its starts, tables, notes."""
    info = fit.info
    missing = f", {info.n_missing:,} missing" if info.n_missing else ""
    level = fit.bound_name + (" on the log likelihood" if fit.bound_name == "bound" else "")
    lines = [
        *head,
        f"{count(len(fit.subjects), 'subject')}, {count(info.n_sequences, 'sequence')}, "
        f"{count(info.n_rows, 'row')}, {count(info.n_observed, 'observed value')}{missing}",
        f"{level} {fit.bound:.3f} after {fit.n_iter} iterations, {info.seconds:.2f} s"
        f"{_on_gpu(info)}. {fit.ended}",
        *starts,
        *_on_errors(known),
    ]
    text, html = list(lines), [paragraphs(lines)]
    for part in known.parts:
        title, frame = part.section.title, section_text(part, known.level, ratios)
        as_text = partial(_number, chances=part.section.chances)
        text += ["", title, frame.to_string(float_format=as_text, na_rep="")]
        html.append(titled(title, frame, float_format=as_text))
    if info.notes or fit.stop is not Stop.CONVERGED:
        text += ["", "Notes"] + [f"- {note}" for note in fit.notes]
        html.append(listed("Notes", fit.notes))
    return Summary("\n".join(text), "\n".join(html))


_SOURCES = {
    "observed": "the curvature of the log likelihood",
    "sandwich": "the sandwich, which needs no faith in the model's distributions",
}


def _on_errors(told: Told) -> list[str]:
    if not told.level:
        return [told.why] if told.why else []
    words = f"Standard errors and {100 * told.level:g}% intervals are from {_SOURCES[told.errors]}."
    cells = [cell for part in told.parts for cell in part.cells if not cell.by_definition]
    lacking = any(np.isnan(cell.se) for cell in cells)
    return [words + (" Where one is missing, fit.standard_errors() says why." if lacking else "")]


def section_text(part: Estimates, level: float, ratios: bool) -> pd.DataFrame:
    """A section as it is; with errors as text, coefficients one below the other."""
    section = part.section
    if not level and not (ratios and section.ratio):
        return section.frame
    if not section.tested:
        return _with_brackets(part)
    ratio = section.ratio if ratios and any(cell.ratio for cell in part.cells) else ""
    rows = [_cell_text(cell, level, ratio) for cell in part.cells]
    index = pd.MultiIndex.from_tuples([cell.where for cell in part.cells], names=section.axes)
    return pd.DataFrame(rows, index=index)


def _cell_text(cell: Cell, level: float, ratio: str) -> dict[str, str]:
    found, interval = {"estimate": _number(cell.estimate)}, f"{100 * level:g}% interval"
    if level:
        found |= {
            "se": _number(cell.se),
            "z": "" if np.isnan(cell.z) else f"{cell.z:.2f}",
            "p": "<0.001" if cell.p < 0.001 else _number(cell.p, chances=True),
            interval: _interval(cell.lower, cell.upper),
        }
    if ratio:
        with np.errstate(over="ignore"):
            own = np.exp([cell.estimate, cell.lower, cell.upper])
        value, lower, upper = own if cell.ratio else np.full(3, np.nan)
        found[ratio] = _number(value)
        if level:
            found[f"its {interval}"] = _interval(lower, upper)
    return found


def _with_brackets(part: Estimates) -> pd.DataFrame:
    """A table with an interval behind each number."""
    section, known = part.section, {}
    for cell in part.cells:
        text = _number(cell.estimate, section.chances)
        ends = _interval(cell.lower, cell.upper, section.chances)
        known[cell.where] = f"{text} {ends}" if ends else text
    frame, first = section.frame, section.rows_first

    def at(row: Any, column: Any) -> str:
        rest = tuple(map(str, row)) if isinstance(row, tuple) else (str(row),)
        return known.get((*rest, str(column)) if first else (str(column), *rest), "")

    values = [[at(row, column) for column in frame.columns] for row in frame.index]
    return pd.DataFrame(values, index=frame.index, columns=frame.columns)


def _interval(lower: float, upper: float, chances: bool = False) -> str:
    return "" if np.isnan(lower) else f"[{_number(lower, chances)}, {_number(upper, chances)}]"


def _number(x: float, chances: bool = False) -> str:
    if np.isnan(x):
        return ""
    if chances:
        return "<0.001" if 0 < x < 0.001 else f"{x:.3f}"
    size = abs(x)
    if not 1e-4 <= size < 1e7:
        return f"{x:.4g}"
    return f"{x:.{max(0, 3 - floor(log10(size)))}f}"  # four digits, and no fewer of a whole number


def restriction_words(fit: HMMFit) -> list[str]:
    """Constraints and priors, a line each."""
    spec, said = fit.model.spec, []
    if spec.constraints:
        said.append(f"Constraints: {'; '.join(spec.constraints)}")
    if spec.priors:
        own = "; ".join(f"{name}: {prior.describe()}" for name, prior in told(fit.model))
        said.append(
            f"Maximum a posteriori, not maximum likelihood. Priors: {own}. "
            f"Log prior {fit.log_prior:.3f} (up to a constant)"
        )
    return said


def _chain_words(fit: HMMFit) -> list[str]:
    spec, said = fit.model.spec, [fit.model.transition.describe()]
    if spec.duration is not None:
        said.append(in_words(spec.duration))
    if "initial_coef" in fit.params and spec.initial is not None:
        said.append(f"first state {spec.initial.text}")
    if fit.model.stationary:
        said.append("stationary start")
    if spec.known is not None:
        said.append(f"states known where {spec.known!r} says so")
    return [", ".join(filter(None, said))] if any(said) else []
