"""A fit as tables: tidy for computing, and laid out for reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from avem.components.base import Row
from avem.fits.sections import Section
from avem.inference.stop import Stop

if TYPE_CHECKING:
    from avem.fits.fit import Fit
    from avem.fits.hmm_fit import HMMFit


class Summary:
    """Text that shows itself in a terminal and in a notebook.

    Parameters
    ----------
    text : str
        What to show.

    Examples
    --------
    >>> avem.Summary("two states")
    two states
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


# --- tidy ---------------------------------------------------------------------------------------

_TEXTS = ("outcome", "term", "other")
_COLUMNS = ("parameter", "state", "to_state", *_TEXTS, "estimate")


def tidy(found: Iterable[tuple[str, Row]]) -> pd.DataFrame:
    """The table of parameters from their names and rows."""
    rows = [{"parameter": name, **row.where, "estimate": row.estimate} for name, row in found]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    for column in _TEXTS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    return frame.astype({"state": "Int64", "to_state": "Int64", "estimate": float})


# --- for reading --------------------------------------------------------------------------------


def head(fit: HMMFit) -> list[str]:
    """The first lines of the summary: the model."""
    model = fit.model
    n_states = model.n_states
    kind = "Mixed hidden" if model.n_effects else "Hidden"
    families = dict.fromkeys(piece.family.describe() for piece in model.emissions)
    return [
        f"{kind} Markov model: {model.spec.text}",
        *_chain_words(fit),
        f"{n_states} state{'s' if n_states > 1 else ''}, {', '.join(families)}"
        + (f", effects {model.effect_covariance}" if model.n_effects > 1 else ""),
    ]


def compose(
    head: Sequence[str], fit: Fit, starts: Sequence[str], sections: Sequence[Section]
) -> Summary:
    """A summary: the model in words, the data, how it ended, its starts, tables, notes."""
    info = fit.info
    missing = f", {info.n_missing:,} missing" if info.n_missing else ""
    lines = [
        *head,
        f"{len(fit.subjects):,} subjects, {info.n_sequences:,} sequences, {info.n_rows:,} rows, "
        f"{info.n_observed:,} observed values{missing}",
        f"{fit.bound_name} {fit.bound:.3f} after {fit.n_iter} iterations, {info.seconds:.2f} s. "
        f"{fit.stop}",
    ]
    lines += starts
    for section in sections:
        lines += ["", section.title, _text(section.frame, section.chances)]
    if info.notes or fit.stop is not Stop.CONVERGED:
        lines += ["", "Notes"] + [f"- {note}" for note in fit.notes]
    return Summary("\n".join(lines))


def _chain_words(fit: HMMFit) -> list[str]:
    spec, said = fit.model.spec, [fit.model.transition.describe()]
    if "initial_coef" in fit.params and spec.initial is not None:
        said.append(f"first state {spec.initial.text}")
    if fit.model.stationary:
        said.append("stationary start")
    return [", ".join(filter(None, said))] if any(said) else []


def _text(frame: pd.DataFrame, chances: bool) -> str:
    if chances:
        return frame.to_string(float_format=lambda p: "<0.001" if 0 < p < 0.001 else f"{p:.3f}")
    return frame.to_string(float_format=lambda x: f"{x:.4g}", na_rep="")
