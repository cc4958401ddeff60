"""A fit as tables: tidy for computing, and laid out for reading."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.components.emission import Emission
from avem.fits.sections import Section, emission_names
from avem.inference.stop import Stop
from avem.models.hmm import HMMModel
from avem.models.hmm_params import by_spec

if TYPE_CHECKING:
    from avem.fits.fit import Fit
    from avem.fits.hmm_fit import HMMFit


class Summary:
    """Text that shows itself in a terminal and in a notebook."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


# --- tidy ---------------------------------------------------------------------------------------

_TEXTS = ("outcome", "term", "other")
_COLUMNS = ("parameter", "state", "to_state", *_TEXTS, "estimate")


def tidy(found: Iterable[tuple[str, dict[str, Any], float]]) -> pd.DataFrame:
    """The table of parameters from their names, places and values."""
    rows = [{"parameter": name, **where, "estimate": estimate} for name, where, estimate in found]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    for column in _TEXTS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    return frame.astype({"state": "Int64", "to_state": "Int64", "estimate": float})


def parameter_rows(
    model: HMMModel, params: dict[str, np.ndarray]
) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Name, place and value of every single parameter."""
    emissions = {
        pieces[0].prefix + name: pieces
        for pieces in by_spec(model)
        for name in emission_names(pieces)
    }
    for name, value in params.items():
        pieces = emissions.get(name)
        found = _chain_rows(model, name, value) if pieces is None else _rows(pieces, name, value)
        for where, estimate in found:
            yield name, where, estimate


def _chain_rows(model: HMMModel, name: str, value: np.ndarray) -> Iterator[tuple[dict, float]]:
    structure, states = model.structure, range(model.n_states)
    if name == "initial":
        for k in states:
            yield {"state": k}, value[k]
    elif name == "initial_coef":
        for k, (i, term) in product(states, enumerate(structure.start[0].terms)):
            yield {"state": k, "term": term}, value[k, i]
    elif name == "transition":
        for k, m in product(states, states):
            yield {"state": k, "to_state": m}, value[k, m]
    elif name == "transition_coef":
        for k, m, (i, term) in product(states, states, enumerate(structure.moves[0].terms)):
            if k != m:
                yield {"state": k, "to_state": m, "term": term}, value[k, m, i]
    else:
        for i, effect in enumerate(structure.effects):
            outcome = ".".join(filter(None, (effect.outcome, effect.parameter))) or None
            where = {"state": effect.state, "to_state": effect.to_state, "term": effect.term}
            for j, other in enumerate(model.effect_names[: i + 1]):
                yield {**where, "outcome": outcome, "other": other}, value[i, j]


def _rows(pieces: list[Emission], name: str, value: np.ndarray) -> Iterator[tuple[dict, float]]:
    states, own = range(len(value)), name.removeprefix(pieces[0].prefix)
    outcomes = [outcome for piece in pieces for outcome in piece.outcomes]
    if value.ndim == 1:  # of the only outcome, or of all together
        where = {"outcome": outcomes[0]} if pieces[0].family.one_outcome else {}
        for k in states:
            yield {"state": k, **where}, value[k]
    elif own == "covariance":
        for k, (i, y), (j, other) in product(states, enumerate(outcomes), enumerate(outcomes)):
            if j <= i:
                yield {"state": k, "outcome": y, "other": other}, value[k, i, j]
    elif value.ndim == 2:
        for k, (j, y) in product(states, enumerate(outcomes)):
            yield {"state": k, "outcome": y}, value[k, j]
    else:
        wanted = "" if own == "coef" else own.removesuffix("_coef")
        lines = [line for piece in pieces for line in piece.lines if line.parameter == wanted]
        for k, (j, line) in product(states, enumerate(lines)):
            for i, term in enumerate(line.terms):
                yield {"state": k, "outcome": line.label, "term": term}, value[k, j, i]


def constant_rows(fit: HMMFit, table: pd.DataFrame) -> np.ndarray:
    """(rows,) bool: what is what it is by definition, covariances that are not there included."""
    found = np.zeros(len(table), bool)
    found[(table["parameter"] == "effect_covariance").to_numpy()] = _absent(fit.model)
    first = (table["parameter"] == "initial_coef") & (table["state"] == 0)
    alone = table["parameter"].isin(["initial", "transition"]) & (fit.model.n_states == 1)
    return found | (first | alone).fillna(False).to_numpy(bool)


def _absent(model: HMMModel) -> list[bool]:
    """For each row of the effects' covariance, whether it is 0 by the structure."""
    apart, blocks = model.effect_covariance in ("diagonal", "isotropic"), model.structure.effects
    pairs = ((i, j) for i in range(len(blocks)) for j in range(i + 1))
    return [i != j and (apart or blocks[i].block != blocks[j].block) for i, j in pairs]


# --- for reading --------------------------------------------------------------------------------


def head(fit: HMMFit) -> list[str]:
    """The first lines of the summary: the model."""
    model = fit.model
    n_states = model.n_states
    kind = "Mixed hidden" if model.n_effects else "Hidden"
    families = dict.fromkeys(piece.family.describe() for piece in model.structure.pieces)
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
        lines += ["", "Notes"] + [f"- {note}" for note in info.notes]
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
