"""Tables of a fitted state-space model's states, and of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.param_info import check_level
from avem.errors import ModelError
from avem.families.normal import UnivariateGaussian
from avem.fits.common import posterior_for
from avem.fits.predict.ahead import for_each, rows_ahead
from avem.fits.predict.mixture import Mixture
from avem.fits.predict.posterior import nodes_for
from avem.fits.uncertainty import normal_interval
from avem.fits.words import check_word
from avem.inference.after.ssm_states import StateMoments, gaussian_nodes, moments, noise_of
from avem.models.encoded import Encoded

if TYPE_CHECKING:
    from avem.fits.ssm_fit import SSMFit

EFFECTS = ("fitted", "integrated")


def states(
    fit: SSMFit,
    data: Any = None,
    kind: str = "smoothed",
    level: float = 0.95,
    effects: str = "fitted",
) -> Any:
    """The table of `SSMFit.states`."""
    check_level(level)
    check_word("kind", kind, ("smoothed", "filtered", "predicted"))
    encoded = fit._encode(data)
    found = _moments(fit, encoded, kind, effects)
    names = fit._state_columns()
    columns = _columns(names, found.state, _sd(found.state_cov), level)
    return encoded.panel.frame_like(columns)


def predictions(fit: SSMFit, encoded: Encoded, level: float, effects: str) -> dict[str, np.ndarray]:
    """The columns of `SSMFit.predictions`."""
    found = _moments(fit, encoded, "predicted", effects)
    return _columns(list(fit.model.outcomes), *_of_outcomes(fit, encoded, found), level)


def predict(
    fit: SSMFit,
    horizon: int = 10,
    data: Any = None,
    future: Any = None,
    of: str = "outcomes",
    level: float = 0.95,
    effects: str = "integrated",
) -> Any:
    """The table of `SSMFit.predict`."""
    check_level(level)
    check_word("of", of, ("outcomes", "states"))
    model, encoded = fit.model, fit._encode(data)
    if horizon != 1 and any(part.lags(set(model.outcomes)) for part in model.parts_ahead):
        raise ModelError(
            f"{model.spec.text!r} has lag() of an outcome among its covariates, which is not known "
            "beyond the first step ahead. Predict with horizon=1."
        )
    ahead = rows_ahead(model, encoded.panel, horizon, future)
    later = model.encode(ahead.panel)
    names = fit._state_columns() if of == "states" else list(model.outcomes)
    at, share = _effects(fit, encoded, effects)
    nodes = [at] if share is None else at
    found = (moments(model, later, fit.theta, f, "predicted") for f in nodes)
    each = [_ahead(fit, later, one, of, ahead.rows) for one in found]
    mean, sd = np.stack(each, axis=1)
    if share is None:
        own = normal_interval(mean[0].ravel(), sd[0].ravel(), level)
    else:
        own = _mixed(mean, sd, share[:, later.panel.row_subject[ahead.rows]], level)
    return encoded.panel.source.table(for_each(ahead, names, of[:-1]).assign(**own))


def smoothed(fit: SSMFit) -> StateMoments:
    """States and outcomes' levels of the rows of the fit, at the means of the effects."""
    return _moments(fit, fit._own_data, "smoothed", "fitted")


# --- inside -------------------------------------------------------------------------------------


def _moments(fit: SSMFit, encoded: Encoded, kind: str, effects: str) -> StateMoments:
    at, share = _effects(fit, encoded, effects)
    return moments(fit.model, encoded, fit.theta, at, kind, share)


def _effects(fit: SSMFit, encoded: Encoded, effects: str) -> tuple[np.ndarray, np.ndarray | None]:
    """(d, subjects) the effects; or nodes (nodes, d, subjects) and shares (nodes, subjects)."""
    check_word("effects", effects, EFFECTS)
    if effects == "fitted" or not fit.model.n_effects:
        return fit._effects_for(encoded), None
    if fit.info.at_maximum_likelihood and fit.panel is not None:
        # A Gaussian would reach to drifts that the rows rule out, under which states explode.
        return nodes_for(fit, encoded)
    return gaussian_nodes(*posterior_for(fit, encoded))


def _ahead(
    fit: SSMFit, later: Encoded, found: StateMoments, of: str, rows: np.ndarray
) -> np.ndarray:
    """(2, rows, names) mean and sd of states, or of new measurements."""
    if of == "states":
        return np.stack([found.state[rows], _sd(found.state_cov)[rows]])
    return np.stack([part[rows] for part in _of_outcomes(fit, later, found)])


def _mixed(
    mean: np.ndarray, sd: np.ndarray, share: np.ndarray, level: float
) -> dict[str, np.ndarray]:
    """Of (nodes, rows, names) normal distributions with shares (nodes, rows): columns of a table.

    The ends are quantiles: a drift that is hardly possible can make any standard deviation.
    """
    n = mean.shape[-1]
    mean, sd = (part.reshape(len(part), -1).T for part in (mean, sd))
    known = np.flatnonzero(~np.isnan(mean).any(1))
    eta = (mean[known], np.log(np.maximum(sd[known], 1e-300)))
    mixture = Mixture(UnivariateGaussian(), np.repeat(share, n, axis=1).T[known], eta, ())
    lower, upper = mixture.interval(level)
    found = {"mean": mixture.mean, "sd": mixture.sd, "lower": lower, "upper": upper}
    blank = np.full(len(mean), np.nan)
    return {name: _put(blank, known, values) for name, values in found.items()}


def _put(blank: np.ndarray, known: np.ndarray, values: np.ndarray) -> np.ndarray:
    out = blank.copy()
    out[known] = values
    return out


def _of_outcomes(
    fit: SSMFit, encoded: Encoded, found: StateMoments
) -> tuple[np.ndarray, np.ndarray]:
    """(rows, outcomes) mean and sd of new measurements; NaN where a covariate is missing."""
    unknown = fit.model.designs.parts[0].unknown(encoded.panel)  # or a lag looks back to nothing
    mean = np.where(unknown[:, None], np.nan, found.level)
    return mean, _sd(found.outcome_cov(noise_of(fit.model, fit.theta))) + 0 * mean


def _sd(cov: np.ndarray) -> np.ndarray:
    # Rounding may leave a variance of a state that is known exactly just below 0.
    return np.sqrt(np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0.0))


def _columns(
    names: list[str], mean: np.ndarray, sd: np.ndarray, level: float
) -> dict[str, np.ndarray]:
    """Of each name, from (rows, names), its mean under the name itself, sd, lower and upper."""
    out = {}
    for name, own_mean, own_sd in zip(names, mean.T, sd.T, strict=True):
        found = normal_interval(own_mean, own_sd, level)
        out |= {name if key == "mean" else f"{name}_{key}": v for key, v in found.items()}
    return out
