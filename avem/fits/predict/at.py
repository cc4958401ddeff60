"""What a fit says at given covariates and effects: predictors, means, chances of moving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import softmax

from avem.components.emission import Emission
from avem.components.lines import Line
from avem.components.param_info import Params
from avem.families.base import Etas
from avem.families.univariate import Mean, Univariate
from avem.models.hmm import HMMData, HMMModel
from avem.models.hmm_params import params_in

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


_SEPARATE = 1e12
"""Condition number from which a chain counts as falling apart."""


class Place(NamedTuple):
    """Where one outcome stands in a model."""

    name: str
    piece: Emission
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


# --- emissions ----------------------------------------------------------------------------------


def user_theta(fit: HMMFit) -> Params:
    """The parameters as the kernels lay them out, but in the user's units."""
    return params_in(fit.model.in_user_units(), fit.params)


def average_predictors(fit: HMMFit, piece: Emission) -> tuple[np.ndarray, ...]:
    """(states,) of each line of a piece, at effects 0 and the covariates' averages."""
    model, states = fit.model, np.arange(fit.model.n_states)
    a = np.tile(model.averages, (len(states), 1))
    none = np.zeros((len(states), model.n_effects))
    return piece.etas(user_theta(fit)[piece.key + "coef"], a, states, none)


def distribution(
    place: Place, theta: Params, etas: Etas, state: np.ndarray
) -> tuple[Univariate, Etas]:
    """The family of one outcome alone with its predictors, from those of its piece.

    ``state`` is that of each part, in a shape that broadcasts to the predictors'.
    """
    alone = place.piece.family.alone(place.number)
    assert alone is not None  # who needs this has asked before
    return alone.family, alone.predictors(etas, theta.get(place.piece.key + "covariance"), state)


def row_means(fit: HMMFit, data: HMMData, state: np.ndarray, subject: np.ndarray) -> np.ndarray:
    """(rows, outcomes) expected values in each row's state at its subject's effects.

    For two levels, the probability of the second; NaN for more levels, and for custom families.
    """
    theta, effects = user_theta(fit), fit.effects_mean[subject]
    columns, etas = [], {}
    for place in places(fit.model):
        piece, levels = place.piece, place.piece.family.levels
        if piece.family.alone(place.number) is None or len(levels or ()) > 2:
            columns.append(np.full(len(state), np.nan))
            continue
        if piece.key not in etas:
            etas = {piece.key: piece.etas(theta[piece.key + "coef"], data.A, state, effects)}
        family, eta = distribution(place, theta, etas[piece.key], state)
        columns.append(family.expected(eta, tuple(data.Y[:, list(place.extras)].T)))
    return np.stack(columns, axis=1)


def describe_means(piece: Emission) -> list[Mean]:
    """What the columns of `means_at` are; none for a family that has no means."""
    alone = [piece.family.alone(number) for number in range(len(piece.outcomes))]
    pairs = zip(piece.outcomes, alone, strict=True)
    return [mean for name, own in pairs if own is not None for mean in own.family.means(name)]


def means_at(
    piece: Emission, theta: Params, a: np.ndarray, state: np.ndarray, effects: np.ndarray
) -> np.ndarray:
    """(rows, numbers) means, or probabilities of levels; theta is in the user's units.

    Of successes out of trials, the mean is the share.
    """
    etas = piece.etas(theta[piece.key + "coef"], a, state, effects)
    noise = theta.get(piece.key + "covariance")
    alone = [piece.family.alone(number) for number in range(len(piece.outcomes))]
    found = [
        own.family.mean_values(own.predictors(etas, noise, state))
        for own in alone
        if own is not None
    ]
    return np.concatenate(found, axis=1)


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
    return moves_at(fit.model, fit.params, fit.model.averages[None])[0]


def moves_at(
    model: HMMModel, params: Params, a: np.ndarray, effects: np.ndarray | None = None
) -> np.ndarray:
    """(rows, from, to) transition probabilities at design columns (rows, columns) and effects.

    ``effects`` (rows, d) are 0 by default.
    """
    if "transition" in params:
        return np.broadcast_to(params["transition"], (len(a), *params["transition"].shape))
    lines, k = model.structure.moves, model.n_states
    eta = np.einsum("kmx,rx->rkm", params["transition_coef"], a[:, list(lines[0].x_cols)])
    if effects is not None and lines[0].z_cols:
        z = a[:, list(lines[0].z_cols)]
        for on, line in enumerate(lines, 1):
            for state, own in enumerate(line.effects):
                eta[:, state, (state + on) % k] += (effects[:, list(own)] * z).sum(1)
    return softmax(eta, axis=-1)


def stationary_shares(moves: np.ndarray) -> np.ndarray:
    """(..., states) the shares of time that moves (..., from, to) lead to in the long run."""
    k = moves.shape[-1]
    # pi (I - P + 1) = 1, with 1 the matrix of ones
    system = np.eye(k) - np.swapaxes(moves, -1, -2) + 1.0
    if (np.linalg.cond(system) < _SEPARATE).all():
        return np.linalg.solve(system, np.ones((*moves.shape[:-1], 1)))[..., 0]
    return _long_run(np.full(k, 1 / k), moves)  # some states are never left: it depends on where


def average_start(fit: HMMFit) -> np.ndarray:
    """(states,) probabilities of the first state, at the covariates' averages."""
    if "initial" in fit.params:
        return fit.params["initial"]
    if fit.model.stationary:
        return stationary_shares(average_moves(fit))
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
    lazy = (moves + np.eye(moves.shape[-1])) / 2
    share = start @ np.linalg.matrix_power(lazy, 1 << 20)
    return share / share.sum(axis=-1, keepdims=True)
