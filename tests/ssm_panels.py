"""Small state-space models, and their likelihood by NumPy alone."""

from __future__ import annotations

import numpy as np

import avem

ONE = {
    "initial_mean": [0.5],
    "initial_covariance": [[1.5]],
    "transition_mean": [[0.6]],
    "loading_mean": [[1.2], [0.8]],
    "coef": [[3.0], [0.0]],
    "noise": [0.4, 0.6],
    "transition_covariance": [[0.03]],
}
"""One state, two outcomes, one effect."""
TWO = {
    "initial_mean": [0.0, 0.0],
    "initial_covariance": [[1.2, 0.2], [0.2, 0.9]],
    "transition_mean": [[0.7, 0.1], [-0.2, 0.4]],
    "loading_mean": [[1.0, 0.0], [0.7, 1.1], [-0.5, 0.6]],
    "coef": [[1.0], [-2.0], [0.0]],
    "noise": [0.3, 0.4, 0.5],
    "transition_covariance": (0.01 * np.eye(4)).tolist(),
    "loading_covariance": (0.03 * np.eye(5)).tolist(),
}
"""Two states, three outcomes, nine effects."""


def one(random="transition"):
    """The model of `ONE`."""
    return avem.MixedSSM(["y", "z"], 1, subject="id", random=random)


def two(**options):
    """The model of `TWO`."""
    return avem.MixedSSM(["a", "b", "c"], 2, subject="id", **options)


def without_effects(params):
    """The parameters of the model whose subjects are alike."""
    kinds = ("transition_covariance", "loading_covariance", "coef_covariance")
    return {name: value for name, value in params.items() if name not in kinds}


def dense_loglik(y, params, transition=None):
    """log p of one sequence (times, outcomes), NaN missing, from its joint normal distribution."""
    p = {name: np.asarray(value, float) for name, value in params.items()}
    g = p["transition_mean"] if transition is None else np.asarray(transition, float)
    n_times, q = len(y), len(g)
    mean, cov = [p["initial_mean"]], [[np.zeros((q, q))] * n_times for _ in range(n_times)]
    cov[0][0] = p["initial_covariance"]
    for t in range(1, n_times):
        mean.append(g @ mean[-1])
        cov[t][t] = g @ cov[t - 1][t - 1] @ g.T + np.eye(q)
        for s in range(t):
            cov[t][s] = g @ cov[t - 1][s]
            cov[s][t] = cov[t][s].T
    h = np.kron(np.eye(n_times), p["loading_mean"])
    level = h @ np.concatenate(mean) + np.tile(p["coef"][:, 0], n_times)
    spread = h @ np.block(cov) @ h.T + np.diag(np.tile(p["noise"], n_times))
    seen = ~np.isnan(y.ravel())
    left, spread = (y.ravel() - level)[seen], spread[np.ix_(seen, seen)]
    logdet = np.linalg.slogdet(2 * np.pi * spread)[1]
    return -0.5 * (left @ np.linalg.solve(spread, left) + logdet)


def sequences(frame, outcomes, subject="id"):
    """(times, outcomes) of each subject, in order of first appearance."""
    return [rows[list(outcomes)].to_numpy(float) for _, rows in frame.groupby(subject, sort=False)]


def scalar_loglik(y, params, transitions):
    """log p of one sequence (times, outcomes) at each of many values of the one transition.

    A textbook Kalman filter, one observed cell after the other. Sequences of one length
    (..., times, outcomes) go together; their value is (..., transitions).
    """
    p = {name: np.asarray(value, float) for name, value in params.items()}
    shape = (*np.shape(y)[:-2], len(transitions))
    mean = np.full(shape, p["initial_mean"][0])
    cov = np.full(shape, p["initial_covariance"][0, 0])
    total = np.zeros(shape)
    for t in range(np.shape(y)[-2]):
        if t:
            mean, cov = transitions * mean, transitions**2 * cov + 1.0
        for j, h in enumerate(p["loading_mean"][:, 0]):
            cell = y[..., t, j, None]
            seen = ~np.isnan(cell)
            left, spread = cell - p["coef"][j, 0] - h * mean, h**2 * cov + p["noise"][j]
            total -= np.where(seen, 0.5 * (np.log(2 * np.pi * spread) + left**2 / spread), 0.0)
            gain = cov * h / spread
            mean = np.where(seen, mean + gain * left, mean)
            cov = np.where(seen, cov * (1.0 - gain * h), cov)
    return total


def grid_posterior(y, params, n_points=401):
    """log p(D_i), and mean and sd of the one effect of `ONE`, by a dense grid.

    Of one sequence, or of several of one length together.
    """
    sd = float(np.sqrt(params["transition_covariance"][0][0]))
    f = np.linspace(-8 * sd, 8 * sd, n_points)
    prior = -0.5 * (f / sd) ** 2 + np.log((f[1] - f[0]) / np.sqrt(2 * np.pi) / sd)
    joint = prior + scalar_loglik(y, params, np.asarray(params["transition_mean"])[0, 0] + f)
    top = joint.max(-1, keepdims=True)
    chance = np.exp(joint - top)
    loglik = top[..., 0] + np.log(chance.sum(-1))
    chance /= chance.sum(-1, keepdims=True)
    mean = (chance * f).sum(-1)
    return loglik, mean, np.sqrt((chance * (f - mean[..., None]) ** 2).sum(-1))
