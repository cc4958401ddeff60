"""Brute force: every path enumerated, every density from scipy. Slow, simple, independent."""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.stats import multivariate_normal


def enumerate_paths(initial, transition, table):
    """All paths of one sequence, and log p(D, U) of each, from a (..., time, state) table.

    `transition` may have an axis of time in front: entry t moves from t-1 to t.
    """
    n_times, n_states = table.shape[-2:]
    paths = np.array(list(product(range(n_states), repeat=n_times)))
    with np.errstate(divide="ignore"):
        log_initial = np.log(initial)
        log_transition = np.broadcast_to(np.log(transition), (n_times, n_states, n_states))
    joint = log_initial[paths[:, 0]] + table[..., 0, paths[:, 0]]
    for t in range(1, n_times):
        joint = joint + log_transition[t, paths[:, t - 1], paths[:, t]] + table[..., t, paths[:, t]]
    return paths, joint


def log_sum(values):
    top = values.max()
    return top + np.log(np.exp(values - top).sum())


def gaussian_table(y, mean, covariance):
    """Log densities (..., time, state) of y (time, outcome), means (..., time, state, outcome)."""
    out = np.zeros(mean.shape[:-1])
    for t in range(len(y)):
        seen = ~np.isnan(y[t])
        if not seen.any():
            continue
        for k in range(mean.shape[-2]):
            part = covariance[k][np.ix_(seen, seen)]
            left = y[t, seen] - mean[..., t, k, :][..., seen]
            density = multivariate_normal.logpdf(left, cov=part)
            out[..., t, k] = np.reshape(density, out.shape[:-2])  # scipy drops axes of length one
    return out


def forward(initial, transition, tables):
    """log p(D | f) for many f at once, from their (f, time, state) tables; a plain forward pass."""
    height, before = np.zeros(len(tables)), np.asarray(initial)[None]
    for t in range(tables.shape[1]):
        joint = np.log(before) + tables[:, t]
        top = joint.max(1)
        mass = np.exp(joint - top[:, None]).sum(1)
        height += top + np.log(mass)
        before = (np.exp(joint - top[:, None]) / mass[:, None]) @ np.asarray(transition)
    return height


def integrate(heights, log_prior, cell):
    """log of the integral of exp(heights) x prior, by a sum over a grid of equal cells."""
    return log_sum(heights + log_prior) + np.log(cell)
