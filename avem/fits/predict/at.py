"""What a fit says at given covariates and effects: predictors, means, chances of moving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import softmax

from avem.components.param_info import Params
from avem.components.structure import Line, Piece
from avem.families import Binomial, Custom, Gaussian
from avem.families.base import Family
from avem.models.hmm import HMMData, HMMModel
from avem.models.hmm_params import params_in

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


_SEPARATE = 1e12
"""Condition number from which a chain counts as falling apart."""


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
        levels = levels_of(piece)
        if isinstance(piece.family, Custom) or (levels is not None and len(levels) > 2):
            columns.append(np.full(len(state), np.nan))
            continue
        columns += list(means_at(piece, theta, data.A, state, effects).T)
    means = np.stack(columns, axis=1)
    for j, place in enumerate(places(fit.model)):
        if isinstance(place.piece.family, Binomial) and place.extras:  # its mean is a share then
            means[:, j] *= data.Y[:, place.extras[0]]
    return means


class Mean(NamedTuple):
    """One number that says where an outcome lies."""

    outcome: str
    label: str
    """The outcome, or "outcome[level]" for the probability of a level."""
    scale: str
    """ "log", "logit" or "": where it is free."""


def describe_means(piece: Piece) -> list[Mean]:
    """What the columns of `means_at` are; no piece of a custom family."""
    family, levels = piece.family, levels_of(piece)
    name = piece.outcomes[0]
    if isinstance(family, Gaussian):
        return [Mean(outcome, outcome, "") for outcome in piece.outcomes]
    if levels is not None:
        if tuple(levels) == (0, 1):
            return [Mean(name, name, "logit")]
        shown = levels if len(levels) > 2 else levels[1:]
        return [Mean(name, f"{name}[{level}]", "logit") for level in shown]
    assert isinstance(family, Family)
    link = family.parameters[0].link.name
    if isinstance(family, Binomial) and not family.extras:
        link = "log"  # a mean number of successes, not a share
    return [Mean(name, name, link if link in ("log", "logit") else "")]


def means_at(
    piece: Piece, theta: Params, a: np.ndarray, state: np.ndarray, effects: np.ndarray
) -> np.ndarray:
    """(rows, numbers) means, or probabilities of levels; theta is in the user's units.

    Of successes out of trials, the mean is the share.
    """
    etas = piece.etas(theta[piece.key + "coef"], a, state, effects)
    family, levels = piece.family, levels_of(piece)
    if isinstance(family, Gaussian):
        return np.stack(etas, axis=1)
    assert isinstance(family, Family)
    if levels is not None and len(levels) > 2:
        return np.stack(list(family.natural(etas).values()), axis=1)
    return family.mean(etas)[:, None]


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
