"""What a fit says at given covariates and effects: predictors, means, chances of moving."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from avem.components.clusters import SHARES
from avem.components.durations import Stay
from avem.components.emission import Emission
from avem.components.lines import Line
from avem.components.param_info import Params
from avem.errors import ModelError
from avem.families.base import Etas
from avem.families.univariate import Mean, Univariate
from avem.models.encoded import PanelData
from avem.models.hmm import HMMModel
from avem.numerics.markov import in_steps, long_run, mean_stays

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit


class Place(NamedTuple):
    """Where one outcome stands in a model."""

    name: str
    piece: Emission
    number: int
    """Among the outcomes of its piece."""
    column: int
    """Among the columns of `PanelData.Y`."""
    extras: tuple[int, ...]
    """Columns of Y that its family reads beside it."""


def places(model: HMMModel) -> list[Place]:
    """All outcomes, in the order of `model.outcomes`."""
    return [
        Place(name, piece, j, piece.y_cols[j], piece.extras)
        for piece in model.emissions
        for j, name in enumerate(piece.outcomes)
    ]


# --- emissions ----------------------------------------------------------------------------------


def user_theta(fit: HMMFit) -> Params:
    """The parameters as the kernels lay them out, but in the user's units."""
    return fit.model.in_user_units().params_in(fit.params)


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


def row_means(fit: HMMFit, data: PanelData, state: np.ndarray, subject: np.ndarray) -> np.ndarray:
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
    """ " at effect 0, average covariates and the average offset", as far as they have any."""
    lines = list(lines)
    parts = ["effect 0"] if any(line.z_cols for line in lines) else []
    if any(term != "Intercept" for line in lines for term in line.terms):
        parts.append("average covariates")
    if any(line.offset >= 0 for line in lines):
        parts.append("the average offset")
    first = ", ".join(parts[:-1])
    return f" at {' and '.join(filter(None, [first, *parts[-1:]]))}" if parts else ""


# --- states -------------------------------------------------------------------------------------


def need_one_cluster(model: HMMModel, what: str) -> None:
    """Raise where subjects are of several types."""
    if model.n_clusters > 1:
        raise ModelError(
            f"{what} is not available with n_clusters={model.n_clusters}: a subject moves as its "
            "cluster does. fit.clusters() says of which cluster it is, and fit.transitions() how "
            "each moves."
        )


def average_moves(fit: HMMFit) -> np.ndarray:
    """(from, to) transition probabilities, at effects 0 and the covariates' averages."""
    return moves_at(fit.model, fit.params, fit.model.averages[None])[0]


def moves_at(
    model: HMMModel, params: Params, a: np.ndarray, effects: np.ndarray | None = None
) -> np.ndarray:
    """(rows, from, to) transition probabilities at design columns (rows, columns) and effects.

    ``effects`` (rows, d) are 0 by default.
    """
    need_one_cluster(model, "A question about moves of all subjects together")
    if effects is None:
        effects = np.zeros((len(a), model.n_effects))
    theta = model.transition.params_in(params, model.scaling.without())
    return model.transition.matrices(theta, a, effects)


def generators_at(
    model: HMMModel, params: Params, a: np.ndarray, effects: np.ndarray | None = None
) -> np.ndarray:
    """(rows, from, to) rates at design columns (rows, columns) and effects, by default 0."""
    need_one_cluster(model, "A question about rates of all subjects together")
    if effects is None:
        effects = np.zeros((len(a), model.n_effects))
    theta = model.transition.params_in(params, model.scaling.without())
    found = model.transition.generators(theta, a, effects)
    assert found is not None  # who needs this has asked before
    return found


def stays_in_time(model: HMMModel, params: Params, a: np.ndarray) -> np.ndarray:
    """(rows, states) how long a stay lasts on average, in rows or in the unit of time."""
    if model.continuous:
        return mean_stays(generators_at(model, params, a))
    return mean_stays(chain_at(model, params, a) - np.eye(model.n_states))


def chain_at(
    model: HMMModel, params: Params, a: np.ndarray, effects: np.ndarray | None = None
) -> np.ndarray:
    """`moves_at`; where there is more to it, those of a chain in steps with the same long run.

    With durations its stays last as long on average, too; in continuous time a step is as long as
    the shortest mean stay.
    """
    if model.continuous:
        return in_steps(generators_at(model, params, a, effects))
    moves = moves_at(model, params, a, effects)
    if model.duration is None:
        return moves
    leave = 1.0 / stays_at(model, params, a, effects).mean
    return leave[:, :, None] * moves + (1 - leave)[:, :, None] * np.eye(model.n_states)


def stays_at(
    model: HMMModel, params: Params, a: np.ndarray, effects: np.ndarray | None = None
) -> Stay:
    """How long stays last, of a model with durations, as in `moves_at`."""
    assert model.duration is not None
    if effects is None:
        effects = np.zeros((len(a), model.n_effects))
    theta = model.duration.params_in(params, model.scaling.without())
    return model.duration.at(theta, a, effects)


def average_start(fit: HMMFit) -> np.ndarray:
    """(states,) probabilities of the first state, at effects 0 and the covariates' averages."""
    model = fit.model
    at = (user_theta(fit), model.averages[None], np.zeros((1, model.n_effects)))
    return model.initial.chances(*at, lambda: average_moves(fit)[None])[0]


def occupancy(fit: HMMFit) -> np.ndarray:
    """(states,) share of the rows in each state; without data, that of the chain in the end."""
    if fit.panel is None and fit.model.n_clusters > 1:
        own = [occupancy(fit._of_cluster(c)) for c in range(fit.model.n_clusters)]
        return fit.params[SHARES] @ np.stack(own)
    if fit.panel is None:
        chain = chain_at(fit.model, fit.params, fit.model.averages[None])[0]
        return long_run(chain, average_start(fit))
    return fit._state_probabilities(fit._own_data).mean(axis=0)
