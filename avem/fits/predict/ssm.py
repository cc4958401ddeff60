"""Tables of a fitted state-space model's states, and of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from avem.components.param_info import check_level
from avem.data.ahead import look_ahead
from avem.errors import ModelError
from avem.fits.common import posterior_for
from avem.fits.words import check_word
from avem.inference.after.ssm_states import StateMoments, moments, noise_of
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
    names = [f"state_{k}" for k in range(fit.model.n_latent)]
    return encoded.panel.frame_like(
        _with_intervals(names, found.state, _variances(found.state_cov), level)
    )


def predictions(fit: SSMFit, data: Any = None, level: float = 0.95, effects: str = "fitted") -> Any:
    """The table of `SSMFit.predictions`."""
    check_level(level)
    encoded = fit._encode(data)
    found = _moments(fit, encoded, "predicted", effects)
    unknown = fit.model.designs.parts[0].unknown(encoded.panel)
    mean = np.where(unknown[:, None], np.nan, found.level)
    variance = _variances(found.outcome_cov(noise_of(fit.model, fit.theta)))
    return encoded.panel.frame_like(
        _with_intervals(list(fit.model.outcomes), mean, variance + 0 * mean, level)
    )


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
    outcomes = model.outcomes
    parts, names = model.designs.parts[:2], set(outcomes)
    now = [name for part in parts for name in part.reads_now(names)]
    if now:
        raise ModelError(f"A formula reads {now[0]}, which is not known at the steps ahead.")
    if horizon != 1 and any(part.lags(names) for part in parts):
        raise ModelError(
            f"{model.spec.text!r} has lag() of an outcome among its covariates, which is not known "
            "beyond the first step ahead. Predict with horizon=1."
        )
    read = dict.fromkeys(name for part in parts for name in part.covariates)
    covariates = [name for name in read if name not in names]
    ahead = look_ahead(encoded.panel, horizon, outcomes, covariates, future)
    found = _moments(fit, model.encode(ahead.panel), "predicted", effects, like=encoded)
    if of == "states":
        names = [f"state_{k}" for k in range(model.n_latent)]
        mean, variance = found.state, _variances(found.state_cov)
    else:
        names = list(outcomes)
        mean, variance = found.level, _variances(found.outcome_cov(noise_of(model, fit.theta)))
        unknown = parts[0].unknown(ahead.panel)  # a lag that looks back to nothing
        mean = np.where(unknown[:, None], np.nan, mean)
    centre, sd = mean[ahead.rows].ravel(), np.sqrt(variance[ahead.rows]).ravel()
    sd = sd + 0 * centre
    half = ndtri(0.5 + level / 2) * sd
    table = ahead.keys.loc[ahead.keys.index.repeat(len(names))].reset_index(drop=True)
    table[of[:-1]] = np.tile(np.array(names, dtype=object), len(ahead.rows))
    table = table.assign(mean=centre, sd=sd, lower=centre - half, upper=centre + half)
    return encoded.panel.source.table(table)


def smoothed(fit: SSMFit) -> StateMoments:
    """States and outcomes' levels of the rows of the fit, at the means of the effects."""
    return _moments(fit, fit._own_data, "smoothed", "fitted")


# --- inside -------------------------------------------------------------------------------------


def _moments(
    fit: SSMFit, encoded: Encoded, kind: str, effects: str, like: Encoded | None = None
) -> StateMoments:
    """With the effects of `like`, the same subjects' data as far as they go."""
    check_word("effects", effects, EFFECTS)
    source, cov = encoded if like is None else like, None
    if effects == "fitted":
        mean = fit._effects_for(source)
    else:
        mean, cov = posterior_for(fit, source)
    return moments(fit.model, encoded, fit.theta, mean, kind, cov)


def _variances(cov: np.ndarray) -> np.ndarray:
    # Rounding may leave a variance of a state that is known exactly just below 0.
    return np.maximum(np.diagonal(cov, axis1=1, axis2=2), 0.0)


def _with_intervals(
    names: list[str], mean: np.ndarray, variance: np.ndarray, level: float
) -> dict[str, np.ndarray]:
    sd, z = np.sqrt(variance), ndtri(0.5 + level / 2)
    out = {}
    for j, name in enumerate(names):
        out[name], out[f"{name}_sd"] = mean[:, j], sd[:, j]
        out[f"{name}_lower"] = mean[:, j] - z * sd[:, j]
        out[f"{name}_upper"] = mean[:, j] + z * sd[:, j]
    return out
