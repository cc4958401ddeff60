"""Starting values from the data alone.

Each start groups a sample of rows into as many clusters as there are states (regressions, when
there are covariates) and takes the states' parameters from them, by moments. Half of the starts
look at raw values and half at deviations from each subject's own mean: raw values show the states
when subjects are alike, deviations show them when subjects differ by more than states do. Where
outcomes take few values, a single row says little: then rows are averaged with their neighbours in
time, over windows of several lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment

from avem.components.emission import Clusters, Emission
from avem.components.regression import regress
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel

_SAMPLE = 4000
_LLOYD_STEPS = 15
_WINDOWS = (9, 25, 3, 61)
_SMOOTH, _NEIGHBOURS = 1, 5
"""The number of the starts that average rows with their neighbours even where rows take many
values: states that overlap but last show in averages."""
_UNEVEN = {2: 4.0, 3: 0.25}
"""How many times as many rows each slice has as the one before, in the starts of these numbers:
states that are rare, or last, are not where even clusters are."""
_COARSE = 30
"""Fewer different rows than this: look at windows."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The panel's rows on the scale of the fit: what a start is made from."""

    model: HMMModel
    data: Encoded

    @property
    def n_subjects(self) -> int:
        return self.data.panel.n_subjects

    @cached_property
    def usable(self) -> np.ndarray:
        """The rows with something observed."""
        return np.flatnonzero(~np.isnan(self.data.y).all(1))

    @cached_property
    def features(self) -> np.ndarray:
        """(rows, features) in which states lie apart; NaN where missing."""
        return np.concatenate(self._parts, axis=1)

    @cached_property
    def _parts(self) -> list[np.ndarray]:
        emissions = self.model.emissions
        return [emission.features(self.data.y[:, list(emission.y_cols)]) for emission in emissions]

    def means_of(self, emission: Emission) -> np.ndarray:
        """(subjects, own features) the subjects' means of an emission's features."""
        number = self.model.emissions.index(emission)
        first = sum(part.shape[1] for part in self._parts[:number])
        return self.subject_means[:, first : first + self._parts[number].shape[1]]

    @cached_property
    def coarse(self) -> bool:
        """Rows take few values."""
        sample = np.nan_to_num(self.features[self.usable[:5000]])
        return len(np.unique(sample, axis=0)) < _COARSE

    @cached_property
    def subject_means(self) -> np.ndarray:
        """(subjects, features) mean of what was seen, shrunk a little towards 0, the overall."""
        subject = self.data.panel.row_subject
        means = np.zeros((self.n_subjects, self.features.shape[1]))
        for j, column in enumerate(self.features.T):
            seen = ~np.isnan(column)
            total = np.bincount(subject[seen], column[seen], self.n_subjects)
            means[:, j] = total / (1 + np.bincount(subject[seen], minlength=self.n_subjects))
        return means

    def averaged(self, values: np.ndarray, window: int) -> np.ndarray:
        """Each row's mean with its neighbours in the same sequence, over what was seen."""
        panel = self.data.panel
        order = panel.order
        seen = ~np.isnan(values[order])
        zero = np.zeros((1, values.shape[1]))
        total = np.concatenate([zero, np.cumsum(np.where(seen, values[order], 0.0), axis=0)])
        count = np.concatenate([zero, np.cumsum(seen, axis=0)])
        lane = panel.row_lane[order]
        first = np.searchsorted(lane, lane, side="left")
        last = np.searchsorted(lane, lane, side="right")
        here = np.arange(len(order))
        low, high = np.maximum(first, here - window // 2), np.minimum(last, here + window // 2 + 1)
        out = np.empty_like(values)
        out[order] = (total[high] - total[low]) / np.maximum(count[high] - count[low], 1)
        return out


def make_start(
    rows: Rows, number: int, rng: np.random.Generator, rare: bool = False
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Theta and subject effects (d, subjects) of start `number`; `rare`: some of rare states."""
    model, data = rows.model, rows.data
    n_states = model.n_states
    centred = _has_levels(model) and number % 2 == 0
    features = rows.features
    if centred:
        features = features - rows.subject_means[data.panel.row_subject]
    columns = sorted({c for emission in model.emissions for c in emission.lines[0].x_cols})
    if rows.coarse or (rare and number // 2 == _SMOOTH):
        # Where states differ in how they respond, it shows in the products with the covariates.
        moving = [c for c in columns if c != model.scaling.constant]
        products = [features * data.a[:, [c]] for c in moving]
        window = _WINDOWS[(number // 2) % len(_WINDOWS)] if rows.coarse else _NEIGHBOURS
        features = rows.averaged(np.concatenate([features, *products], axis=1), window)
        features /= np.maximum(np.nanstd(features, axis=0), 1e-12)
        columns = [model.scaling.constant]
    sample = rng.choice(rows.usable, min(_SAMPLE, len(rows.usable)), replace=False)
    x = data.a[sample][:, columns]
    y = np.nan_to_num(features[sample])
    uneven = rare and number // 2 in _UNEVEN
    allowed = np.ones((len(sample), n_states), bool)
    if data.possible is not None:
        allowed = data.possible[sample]
    emitting = np.flatnonzero(allowed.any(0))
    label = _first_labels(y, len(emitting), number // 2, uneven, rng)
    if model.keeps_order:
        label = _states_of(label, allowed[:, emitting], number, rng)
    label = emitting[label]
    label = np.where(allowed[np.arange(len(sample)), label], label, allowed.argmax(1))
    for _ in range(1 if uneven else _LLOYD_STEPS):
        coef, before = regress(x, y, label, n_states, rng), label
        distance = ((y[None] - np.einsum("kpm,rm->krp", coef, x)) ** 2).sum(-1)
        distance[~allowed.T] = np.inf
        label = before if uneven else distance.argmin(0)
        if (label == before).all():
            break
    theta = {**model.initial.start(), **model.transition.start(model.scaling.constant)}
    for emission in model.emissions:
        clusters = Clusters(
            sample,
            label,
            centred,
            data.y,
            data.a,
            data.panel.row_subject,
            rows.means_of(emission),
            data.spread,
            model.scaling.constant,
            n_states,
        )
        theta.update(emission.start(clusters, rng))
    sigma, effects = _effects_start(rows, centred)
    theta["effect_covariance"] = np.diag(sigma)
    return theta, effects


def _states_of(
    label: np.ndarray, allowed: np.ndarray, number: int, rng: np.random.Generator
) -> np.ndarray:
    """Clusters renumbered as states that have an order: as known rows say, or in several ways."""
    n = allowed.shape[1]
    known = allowed.sum(1) == 1
    if known.any():
        seen = np.zeros((n, n))
        np.add.at(seen, (label[known], allowed[known].argmax(1)), 1.0)
        return linear_sum_assignment(-seen)[1][label]
    orders = {0: np.arange(n), 1: np.arange(n)[::-1]}
    return orders.get(number, rng.permutation(n))[label]


def _has_levels(model: HMMModel) -> bool:
    """Some outcome's level differs between subjects."""
    constant = model.scaling.constant
    return any(constant in emission.lines[0].z_cols for emission in model.emissions)


def _effects_start(rows: Rows, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Variances of the effects, and each subject's effects (d, subjects)."""
    model = rows.model
    d, constant = model.n_effects, model.scaling.constant
    sigma, effects = np.full(d, 0.25), np.zeros((d, rows.n_subjects))
    for emission in model.emissions:
        means = rows.means_of(emission)
        for place, variance, values in emission.effects_start(means, rows.data.spread, constant):
            sigma[place] = variance
            if centred and values is not None:
                effects[place] = values
    if model.effect_covariance == "isotropic" and d:
        sigma[:] = sigma.mean()
    return sigma, effects


def _first_labels(
    y: np.ndarray, n_states: int, kind: int, uneven: bool, rng: np.random.Generator
) -> np.ndarray:
    """First clusters: slices along the main direction of variation, then random seeds.

    Even slices; few rows in the lowest and many in the highest; the other way round.
    """
    if kind == 0 or uneven:
        direction = np.linalg.svd(y - y.mean(0), full_matrices=False)[2][0]
        direction *= np.sign(direction[np.abs(direction).argmax()])
        rank = (y @ direction).argsort(kind="stable").argsort(kind="stable")
        if kind == 0:
            return rank * n_states // len(y)
        size = _UNEVEN[kind] ** np.arange(n_states)
        ends = np.cumsum(size)[:-1] / size.sum() * len(y)
        return np.searchsorted(ends, rank, side="right")
    centres = y[rng.integers(len(y), size=1)]
    for _ in range(n_states - 1):  # seeds far from each other are more likely
        far = ((y[:, None] - centres[None]) ** 2).sum(-1).min(1)
        chance = far / far.sum() if far.sum() > 0 else None
        centres = np.vstack([centres, y[rng.choice(len(y), p=chance)]])
    return ((y[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
