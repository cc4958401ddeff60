"""Starting values from the data alone.

Each start groups a sample of rows into as many clusters as there are states (regressions, when
there are covariates) and takes the states' parameters from them. Half of the starts look at raw
values and half at deviations from each subject's own mean: raw values show the states when subjects
are alike, deviations show them when subjects differ by more than states do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from avem.inference.avem import AnchoredEM

_SAMPLE = 4000
_LLOYD_STEPS = 15
_STICKINESS = 0.9


@dataclass(frozen=True, eq=False)
class Rows:
    """The panel's rows on the scale of the fit: what a start is made from."""

    y: np.ndarray
    """(rows, outcomes), NaN where missing."""
    a: np.ndarray
    """(rows, design columns)."""
    spread: np.ndarray
    """(outcomes,) overall variance of each outcome."""
    subject: np.ndarray
    n_subjects: int
    constant: int
    """Which design column is constant, or -1."""

    @cached_property
    def usable(self) -> np.ndarray:
        """The rows with something observed."""
        return np.flatnonzero(~np.isnan(self.y).all(1))

    @cached_property
    def subject_means(self) -> np.ndarray:
        """(subjects, outcomes) mean of what was seen, shrunk a little towards 0, the overall."""
        means = np.zeros((self.n_subjects, self.y.shape[1]))
        for j, y in enumerate(self.y.T):
            seen = ~np.isnan(y)
            total = np.bincount(self.subject[seen], y[seen], self.n_subjects)
            means[:, j] = total / (1 + np.bincount(self.subject[seen], minlength=self.n_subjects))
        return means


def make_start(
    em: AnchoredEM, rows: Rows, number: int, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters and subject effects (d, subjects) of start `number`."""
    emission = em.kernel.emission
    n_states, p = em.kernel.n_states, emission.n_outcomes
    own_level = rows.constant in emission.z_cols
    means = rows.subject_means
    centred = own_level and number % 2 == 0
    sample = rng.choice(rows.usable, min(_SAMPLE, len(rows.usable)), replace=False)
    x = rows.a[sample][:, list(emission.x_cols)]
    y = rows.y[sample] - (means[rows.subject[sample]] if centred else 0.0)
    y = np.nan_to_num(y)
    label = _first_labels(y, n_states, number // 2, rng)
    coef = np.zeros((n_states, p, len(emission.x_cols)))
    for _ in range(_LLOYD_STEPS):
        coef, before = _regress(x, y, label, n_states, rng), label
        distance = ((y[None] - np.einsum("kpm,rm->krp", coef, x)) ** 2).sum(-1)
        label = distance.argmin(0)
        if (label == before).all():
            break
    residual = y - np.einsum("rpm,rm->rp", coef[label], x)
    covariance = np.zeros((n_states, p, p))
    for k in range(n_states):
        members = residual[label == k]
        spread = members.var(0) if len(members) > 1 else residual.var(0)
        if emission.family.covariance == "spherical":
            spread = np.full(p, spread.mean())
        covariance[k] = np.diag(np.maximum(spread, 0.05 * rows.spread))

    effects = np.zeros((p, len(emission.z_cols), rows.n_subjects))
    variance = np.repeat(0.1 * rows.spread[:, None], len(emission.z_cols), axis=1)
    if own_level:
        at = emission.z_cols.index(rows.constant)
        variance[:, at] = np.maximum(means.var(0), 0.05 * rows.spread)
        if centred:
            effects[:, at] = means.T
    sigma = variance.ravel()
    if em.structure == "isotropic" and sigma.size:
        sigma = np.full_like(sigma, sigma.mean())
    leave = (1 - _STICKINESS) / max(n_states - 1, 1)
    stay = _STICKINESS if n_states > 1 else 1.0
    theta = {
        "initial": np.full(n_states, 1 / n_states),
        "transition": np.full((n_states, n_states), leave) + np.eye(n_states) * (stay - leave),
        "coef": coef,
        "covariance": covariance,
        "effect_covariance": np.diag(sigma),
    }
    return theta, effects.reshape(-1, rows.n_subjects)


def _first_labels(y: np.ndarray, n_states: int, kind: int, rng: np.random.Generator) -> np.ndarray:
    """First clusters: slices along the main direction of variation, then random seeds."""
    if kind == 0:
        direction = np.linalg.svd(y - y.mean(0), full_matrices=False)[2][0]
        direction *= np.sign(direction[np.abs(direction).argmax()])
        rank = (y @ direction).argsort(kind="stable").argsort(kind="stable")
        return rank * n_states // len(y)
    centres = y[rng.integers(len(y), size=1)]
    for _ in range(n_states - 1):  # seeds far from each other are more likely
        far = ((y[:, None] - centres[None]) ** 2).sum(-1).min(1)
        chance = far / far.sum() if far.sum() > 0 else None
        centres = np.vstack([centres, y[rng.choice(len(y), p=chance)]])
    return ((y[:, None] - centres[None]) ** 2).sum(-1).argmin(1)


def _regress(x, y, label, n_states, rng) -> np.ndarray:
    """(state, outcome, term) least squares within clusters; an empty cluster takes a random row."""
    pooled = np.linalg.lstsq(x, y, rcond=None)[0].T
    coef = np.repeat(pooled[None], n_states, axis=0)
    for k in range(n_states):
        members = label == k
        if members.sum() > x.shape[1]:
            coef[k] = np.linalg.lstsq(x[members], y[members], rcond=1e-8)[0].T
        else:
            row = rng.integers(len(y))
            miss = y[row] - pooled @ x[row]
            coef[k] = pooled + np.outer(miss, x[row]) / max(x[row] @ x[row], 1e-12)
    return coef
