"""What a fit says at given covariates and effects: predictors, means, chances of moving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import softmax

from avem.families import Binomial, Custom, Gaussian
from avem.models.hmm_model import HMMData, HMMModel
from avem.models.param_info import Params
from avem.models.params import params_in
from avem.models.structure import Line, Piece

if TYPE_CHECKING:
    from avem.results.hmm_fit import HMMFit


class Place(NamedTuple):
    """Where one outcome stands in a model."""

    name: str
    piece: Piece
    number: int
    """Among the outcomes of its piece."""
    column: int
    """Among the columns of `HMMData.Y`."""
    extras: tuple[int, ...]
    """Columns of Y that its family reads beside it."""


def places(model: HMMModel) -> list[Place]:
    """All outcomes, in the order of `model.outcomes`."""
    found = []
    for piece, columns in model.each_piece():
        extras = columns[len(piece.outcomes) :]
        found += [
            Place(name, piece, j, columns[j], extras) for j, name in enumerate(piece.outcomes)
        ]
    return found


def levels_of(piece: Piece) -> tuple[Any, ...] | None:
    """The levels of an outcome whose values are labels."""
    return getattr(piece.family, "levels", None)


# --- emissions ----------------------------------------------------------------------------------


def user_theta(fit: HMMFit) -> Params:
    """The parameters as the kernels lay them out, but in the user's units."""
    return params_in(fit.model.in_user_units(), fit.params)


def average_predictors(fit: HMMFit, piece: Piece) -> tuple[np.ndarray, ...]:
    """(states,) of each line of a piece, at effects 0 and the covariates' averages."""
    model, states = fit.model, np.arange(fit.model.n_states)
    a = np.tile(model.averages, (len(states), 1))
    none = np.zeros((len(states), model.n_effects))
    return piece.etas(user_theta(fit)[piece.key + "coef"], a, states, none)


def row_means(fit: HMMFit, data: HMMData, state: np.ndarray, subject: np.ndarray) -> np.ndarray:
    """(rows, outcomes) expected values in each row's state at its subject's effects.

    For two levels, the probability of the second; NaN for more levels, and for custom families.
    """
    theta, effects = user_theta(fit), fit.effects_mean[subject]
    columns = []
    for piece in fit.model.structure.pieces:
        family, levels = piece.family, levels_of(piece)
        if isinstance(family, Custom) or (levels is not None and len(levels) > 2):
            columns.append(np.full(len(state), np.nan))
            continue
        etas = piece.etas(theta[piece.key + "coef"], data.A, state, effects)
        columns += list(etas) if isinstance(family, Gaussian) else [family.mean(etas)]
    means = np.stack(columns, axis=1)
    for j, place in enumerate(places(fit.model)):
        if isinstance(place.piece.family, Binomial) and place.extras:  # its mean is a share then
            means[:, j] *= data.Y[:, place.extras[0]]
    return means


def at_words(lines: Iterable[Line]) -> str:
    """ " at effect 0 and average covariates", as far as these lines have any."""
    lines = list(lines)
    parts = ["effect 0"] if any(line.z_cols for line in lines) else []
    if any(term != "Intercept" for line in lines for term in line.terms):
        parts.append("average covariates")
    return f" at {' and '.join(parts)}" if parts else ""


# --- states -------------------------------------------------------------------------------------


def average_moves(fit: HMMFit) -> np.ndarray:
    """(from, to) transition probabilities, at effects 0 and the covariates' averages."""
    if "transition" in fit.params:
        return fit.params["transition"]
    at = fit.model.averages[list(fit.model.structure.moves[0].x_cols)]
    return softmax(fit.params["transition_coef"] @ at, axis=-1)


def average_start(fit: HMMFit) -> np.ndarray:
    """(states,) probabilities of the first state, at the covariates' averages."""
    if "initial" in fit.params:
        return fit.params["initial"]
    if fit.model.stationary:
        n = fit.model.n_states
        return _long_run(np.full(n, 1 / n), average_moves(fit))
    at = fit.model.averages[list(fit.model.structure.start[0].x_cols)]
    return softmax(fit.params["initial_coef"] @ at)


def occupancy(fit: HMMFit) -> np.ndarray:
    """(states,) share of the rows in each state; without data, that of the chain in the end."""
    if fit.panel is None:
        return _long_run(average_start(fit), average_moves(fit))
    table = fit.state_probabilities()
    names = [f"state_{k}" for k in range(fit.model.n_states)]
    return np.array([np.asarray(table[name]).mean() for name in names])


def _long_run(start: np.ndarray, moves: np.ndarray) -> np.ndarray:
    # Staying put every second step changes no long-run share, but ends any cycling.
    lazy = (moves + np.eye(len(moves))) / 2
    share = start @ np.linalg.matrix_power(lazy, 1 << 20)
    return share / share.sum()
