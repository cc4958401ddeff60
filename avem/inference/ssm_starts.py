"""Starting values of a state-space model from the data alone.

The covariances of outcomes some steps apart are H G^k P H', so that their singular vectors give H
and G but for the states' basis (a subspace method). The basis is then fixed as the model has it:
noise of the states I, H lower triangular with a positive diagonal. In continuous time, rows are
taken as a usual interval apart, and the logarithm of G is the drift.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

from avem.components.param_info import Params
from avem.data import Panel
from avem.models.encoded import Encoded
from avem.models.ssm import SSMModel

_LAGS = 3
_LEAST_NOISE = 0.05
"""Of an outcome's variance, at the start."""
_STABLE = 0.95
"""Largest modulus of an eigenvalue of G at the start."""


def make_ssm_start(model: SSMModel, data: Encoded, number: int, rng: np.random.Generator) -> Params:
    """Theta without effects: by subspace (0), by principal components (1), then at random."""
    q = model.n_latent
    coef, left = _residuals(data, model.x_cols)
    lagged = [_lagged(left, data.panel, lag) for lag in range(2 * _LAGS)]
    spread = np.maximum(np.diagonal(lagged[0]), 1e-12)
    if number == 0:
        loading, dynamics, noise = _subspace(lagged, q)
    else:
        values, vectors = np.linalg.eigh(lagged[0])
        loading = vectors[:, ::-1][:, :q] * np.sqrt(np.maximum(values[::-1][:q], 1e-6))
        persistence = np.full(q, 0.7) if number == 1 else rng.uniform(0.2, 0.95, q)
        if number > 1:
            loading = loading @ _rotation(q, rng)
        dynamics, noise = np.diag(persistence), np.diag(1.0 - persistence**2)
    if model.continuous:
        dynamics, noise = _drift_like(dynamics, noise)
    loading, dynamics = canonical(loading, dynamics, noise)
    if model.continuous:
        states = solve_continuous_lyapunov(dynamics, -np.eye(q))
    else:
        states = solve_discrete_lyapunov(dynamics, np.eye(q))
    explained = np.diagonal(loading @ states @ loading.T)
    return {
        "start_mean": np.zeros(q),
        "start_covariance": states,
        "dynamics": dynamics,
        "drive": np.zeros((q, len(model.drive_cols))),
        "loading": loading,
        "coef": coef,
        "noise_covariance": np.maximum(spread - explained, _LEAST_NOISE * spread)[:, None, None],
        "effect_covariance": np.zeros((0, 0)),
    }


def _residuals(data: Encoded, x_cols: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Least-squares coefficients (p, terms) of each outcome, and what they leave (rows, p)."""
    order = data.panel.order
    x = data.a[order][:, list(x_cols)]
    coef = np.zeros((data.y.shape[1], x.shape[1]))
    for j, y in enumerate(data.y[order].T):
        seen = ~np.isnan(y)
        if x.shape[1]:
            coef[j] = np.linalg.lstsq(x[seen], y[seen], rcond=None)[0]
    left = data.y - data.a[:, list(x_cols)] @ coef.T
    # A few subjects whose states grow without bound would be all that the covariances show.
    return coef, np.clip(left, -8.0 * np.sqrt(data.spread), 8.0 * np.sqrt(data.spread))


def _lagged(left: np.ndarray, panel: Panel, lag: int) -> np.ndarray:
    """(p, p) covariance of the outcomes at t + lag with those at t, over all pairs seen."""
    order = panel.order
    now = left[order]
    same = panel.row_lane[order][lag:] == panel.row_lane[order][: len(order) - lag]
    later, before = now[lag:][same], now[: len(order) - lag][same]
    pairs = (~np.isnan(later)).astype(float).T @ (~np.isnan(before)).astype(float)
    return np.nan_to_num(later).T @ np.nan_to_num(before) / np.maximum(pairs, 1.0)


def _subspace(lagged: list[np.ndarray], q: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loadings, dynamics and noise of the states, in some basis."""
    p = len(lagged[0])
    hankel = np.block([[lagged[i + j + 1] for j in range(_LAGS)] for i in range(_LAGS)])
    left, size, right = np.linalg.svd(hankel)
    root = np.sqrt(np.maximum(size[:q], 1e-12))
    observed, reached = left[:, :q] * root, root[:, None] * right[:q]
    loading = observed[:p]
    dynamics = np.linalg.lstsq(observed[:-p], observed[p:], rcond=None)[0]
    dynamics = stabilised(dynamics, _STABLE)
    # The first block of what is reached is G P H'.
    turned = np.linalg.lstsq(dynamics, reached[:, :p], rcond=1e-3)[0]
    states = np.linalg.lstsq(loading, turned.T, rcond=1e-3)[0]
    states = _floored((states + states.T) / 2, 1e-2)
    return loading, dynamics, _floored(states - dynamics @ states @ dynamics.T, 1e-2)


def _drift_like(dynamics: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A drift that does in a usual interval about what these do in a step, and its noise.

    A state that turns its sign at every step has no drift: its modulus is taken.
    """
    values: Any
    values, vectors = np.linalg.eig(dynamics)
    turns = (values.real < 0) & (np.abs(values.imag) < 1e-9)
    logs: Any = np.log(np.where(turns, np.abs(values), values) + 1e-6)
    logs = np.minimum(logs.real, np.log(_STABLE)) + 1j * logs.imag
    drift = (vectors * logs @ np.linalg.pinv(vectors)).real
    states = solve_discrete_lyapunov(dynamics, noise)
    return drift, _floored(-(drift @ states + states @ drift.T), 1e-2)


def _floored(matrix: np.ndarray, share: float) -> np.ndarray:
    """The matrix with no eigenvalue below a share of the largest."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, share * max(values.max(), 1e-6))) @ vectors.T


def stabilised(dynamics: np.ndarray, limit: float) -> np.ndarray:
    """The matrix scaled back to a spectral radius of at most `limit`."""
    radius = np.abs(np.linalg.eigvals(dynamics)).max()
    return dynamics if radius <= limit else dynamics * (limit / radius)


def _rotation(q: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((q, q)))[0]


def canonical(
    loading: np.ndarray, dynamics: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """H and G in the basis in which the states' noise is I and H is lower triangular."""
    root = np.linalg.cholesky(noise)
    h, g = loading @ root, np.linalg.solve(root, dynamics @ root)
    q = len(g)
    turn, upper = np.linalg.qr(h[:q].T)
    turn = turn * np.where(np.diagonal(upper) < 0, -1.0, 1.0)
    return np.tril(h @ turn), turn.T @ g @ turn
