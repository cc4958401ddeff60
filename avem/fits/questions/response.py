"""Subjects' own coefficients on the scale of the response, through the inverse links.

Only an intercept has a value there: the mean, shape or probability at effects of the subject where
all other columns of the design are 0, that is, where covariates are 0 (or, as in `scale(x)`, at
their means) and factors at their reference levels. A slope has none, unless the link is the
identity, where both scales are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from avem.components.lines import Line
from avem.components.param_info import Params
from avem.fits.predict.at import Place, distribution, generators_at, moves_at, places
from avem.models.hmm import HMMModel

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

AT_ZERO = "at covariates 0 or their reference"
_SLOPE = "a slope has no value on this scale"
_INTERCEPT = "Intercept"


class Response(NamedTuple):
    """What becomes of rows of the table of parameters on the scale of the response."""

    values: Callable[[Params, np.ndarray, np.ndarray], np.ndarray]
    """(subjects, rows) of parameters, effects (subjects, d) and the values on the link's scale."""
    scales: np.ndarray
    """(rows,) "log", "logit" or "": where intervals are made."""
    note: np.ndarray
    """(rows,) what the value is of, or why there is none."""


class _Cell(NamedTuple):
    """One of the numbers that stand in for coefficients, in one state."""

    key: tuple[str, int, str]
    """What its row of the table says: parameter, state, and the outcome or the state moved to."""
    scale: str
    alone: bool
    """Its formula has no other terms."""


def hmm_response(fit: HMMFit, rows: pd.DataFrame) -> Response:
    """The response scale of rows of `fit.table()`."""
    cells = [*_outcome_cells(fit), *_move_cells(fit)]
    place = {cell.key: number for number, cell in enumerate(cells)}
    lines = rows.astype(object).where(rows.notna(), None).to_dict("records")
    found = [place.get(_key(line), -1) for line in lines]
    slope = np.array([line["term"] not in (None, _INTERCEPT) for line in lines], bool)
    # Where the link is the identity there is no cell, and the value stays what it is.
    number, has_cell = np.array(found, int), np.array(found, int) >= 0
    scales = np.array([cells[i].scale if i >= 0 else "" for i in found], dtype=object)
    note = np.array(["" if i < 0 or cells[i].alone else AT_ZERO for i in found], dtype=object)
    note[has_cell & slope] = _SLOPE

    def values(params: Params, effects: np.ndarray, linked: np.ndarray) -> np.ndarray:
        if not cells:
            return linked
        parts = [_of_outcomes(fit, params, effects), _of_moves(fit, params, effects)]
        natural = np.concatenate(parts, axis=1)[:, np.maximum(number, 0)]
        return np.where(has_cell, np.where(slope, np.nan, natural), linked)

    return Response(values, scales, note)


def _key(line: dict[str, Any]) -> tuple[str, int, str]:
    to = line["to_state"]
    return line["parameter"], line["state"], str(line["outcome"] if to is None else to)


# --- outcomes -------------------------------------------------------------------------------------


class _Linked(NamedTuple):
    """A linear predictor of an outcome whose link is not the identity."""

    place: Place
    line: Line
    number: int
    """Of its value among those that the family's `natural` gives."""
    scale: str


def _linked(model: HMMModel) -> Iterator[_Linked]:
    for place in places(model):
        alone = place.piece.family.alone(place.number)
        if alone is None:  # what its parameters are, only the user knows
            continue
        by_level = alone.family.by_level
        own = [line for line in place.piece.lines if line.outcome == place.name]
        pairs = zip(own, alone.family.parameters, strict=False)
        for i, (line, parameter) in enumerate(pairs):
            scale = "logit" if by_level else parameter.link.name
            if scale not in ("identity", "angle"):
                known = scale if scale in ("log", "logit") else ""
                yield _Linked(place, line, i + by_level, known)  # the first level has no line


def _outcome_cells(fit: HMMFit) -> Iterator[_Cell]:
    """One per linear predictor and state."""
    for place, line, _, scale in _linked(fit.model):
        name, only = place.piece.prefix + line.param_name, line.terms == (_INTERCEPT,)
        for k in range(fit.model.n_states):
            yield _Cell((name, k, line.label), scale, only)


def _of_outcomes(fit: HMMFit, params: Params, effects: np.ndarray) -> np.ndarray:
    """(subjects, cells) in the order of `_outcome_cells`."""
    model = fit.model.in_user_units()
    theta, k, n = model.params_in(params), model.n_states, len(effects)
    state = np.tile(np.arange(k), n)
    a, repeated = _origin(fit, n * k), np.repeat(effects, k, axis=0)
    natural: dict[str, list[np.ndarray]] = {}
    found = [np.zeros((n, 0))]
    for place, _, number, _ in _linked(model):
        if place.name not in natural:
            etas = place.piece.etas(theta[place.piece.coef_key], a, state, repeated)
            family, own = distribution(place, theta, etas, state)
            natural[place.name] = list(family.natural(own).values())
        found.append(np.asarray(natural[place.name][number]).reshape(n, k))
    return np.concatenate(found, axis=1)


def _origin(fit: HMMFit, n: int) -> np.ndarray:
    """(n, design columns) 0, the constant 1."""
    a = np.zeros((n, len(fit.model.averages)))
    a[:, fit.model.scaling.constant] = 1.0
    return a


# --- moves ----------------------------------------------------------------------------------------


def _move_cells(fit: HMMFit) -> list[_Cell]:
    """One per pair of states, where moves have a formula."""
    lines, k = fit.model.transition.lines, fit.model.n_states
    if not lines or fit.model.n_clusters > 1:
        return []
    (name,) = fit.model.transition.param_info()
    only = lines[0].terms == (_INTERCEPT,)
    scale = "log" if fit.model.continuous else "logit"
    return [_Cell((name, i, str(j)), scale, only) for i in range(k) for j in range(k)]


def _of_moves(fit: HMMFit, params: Params, effects: np.ndarray) -> np.ndarray:
    """(subjects, cells) in the order of `_move_cells`."""
    n = len(effects)
    if not _move_cells(fit):
        return np.zeros((n, 0))
    moves = generators_at if fit.model.continuous else moves_at
    return moves(fit.model, params, _origin(fit, n), effects).reshape(n, -1)
