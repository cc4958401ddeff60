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
from typing import NamedTuple

import numpy as np

from avem.components.structure import Piece
from avem.families import Custom, Gaussian
from avem.families.univariate import Univariate
from avem.models.hmm import Encoded, HMMModel

_SAMPLE = 4000
_LLOYD_STEPS = 15
_STICKINESS = 0.9
_WINDOWS = (9, 25, 3, 61)
_COARSE = 30
"""Fewer different rows than this: look at windows."""
_SLOPE_LIMIT = 3.0


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
        return np.concatenate(list(self._parts.values()), axis=1)

    @cached_property
    def _parts(self) -> dict[Piece, np.ndarray]:
        return {piece: self._features(piece, at) for piece, at in self.model.each_piece()}

    def places(self, piece: Piece) -> list[int]:
        """Where a piece's features stand among all of them."""
        first = 0
        for other, part in self._parts.items():
            if other is piece:
                return list(range(first, first + part.shape[1]))
            first += part.shape[1]
        raise AssertionError(piece)

    def _features(self, piece: Piece, at: tuple[int, ...]) -> np.ndarray:
        y = self.data.y[:, list(at)]
        if isinstance(piece.family, Gaussian):
            return y
        seen = ~np.isnan(y[:, 0])
        if isinstance(piece.family, Univariate):
            found = piece.family.features(tuple(column[seen] for column in y.T))
        else:
            found = y[seen, :1]
        out = np.full((len(y), found.shape[1]), np.nan)
        out[seen] = (found - found.mean(0)) / np.maximum(found.std(0), 1e-12)
        return out

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


class _Clusters(NamedTuple):
    """Rows and the cluster of each; `centred`: as deviations from their subjects' means."""

    rows: np.ndarray
    label: np.ndarray
    centred: bool


def make_start(
    rows: Rows, number: int, rng: np.random.Generator
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Theta and subject effects (d, subjects) of start `number`."""
    model, data = rows.model, rows.data
    n_states = model.n_states
    centred = _has_levels(model) and number % 2 == 0
    features = rows.features
    if centred:
        features = features - rows.subject_means[data.panel.row_subject]
    columns = sorted({c for piece in model.structure.pieces for c in piece.lines[0].x_cols})
    if rows.coarse:
        # Where states differ in how they respond, it shows in the products with the covariates.
        moving = [c for c in columns if c != model.scaling.constant]
        products = [features * data.a[:, [c]] for c in moving]
        window = _WINDOWS[(number // 2) % len(_WINDOWS)]
        features = rows.averaged(np.concatenate([features, *products], axis=1), window)
        features /= np.maximum(np.nanstd(features, axis=0), 1e-12)
        columns = [model.scaling.constant]
    sample = rng.choice(rows.usable, min(_SAMPLE, len(rows.usable)), replace=False)
    x = data.a[sample][:, columns]
    y = np.nan_to_num(features[sample])
    label = _first_labels(y, n_states, number // 2, rng)
    for _ in range(_LLOYD_STEPS):
        coef, before = _regress(x, y, label, n_states, rng), label
        distance = ((y[None] - np.einsum("kpm,rm->krp", coef, x)) ** 2).sum(-1)
        label = distance.argmin(0)
        if (label == before).all():
            break
    theta = _chain_start(model)
    clusters = _Clusters(sample, label, centred)
    for piece, at in model.each_piece():
        theta.update(_piece_start(rows, piece, at, clusters, rng))
    sigma, effects = _effects_start(rows, centred)
    theta["effect_covariance"] = np.diag(sigma)
    return theta, effects


def _has_levels(model: HMMModel) -> bool:
    """Some outcome's level differs between subjects."""
    constant = model.scaling.constant
    return any(constant in piece.lines[0].z_cols for piece in model.structure.pieces)


def _chain_start(model: HMMModel) -> dict[str, np.ndarray]:
    k, structure = model.n_states, model.structure
    leave = (1 - _STICKINESS) / max(k - 1, 1)
    stay = _STICKINESS if k > 1 else 1.0
    theta: dict[str, np.ndarray] = {}
    if structure.start:
        theta["start.coef"] = np.zeros((1, sum(len(line.terms) for line in structure.start)))
    elif not model.stationary:
        theta["initial"] = np.full(k, 1 / k)
    if structure.moves:
        coef = np.zeros((k, len(structure.moves), len(structure.moves[0].terms)))
        if model.scaling.constant in structure.moves[0].x_cols:
            at = structure.moves[0].x_cols.index(model.scaling.constant)
            coef[:, :, at] = np.log(leave / stay)
        theta["moves.coef"] = coef.reshape(k, -1)
    else:
        theta["transition"] = np.full((k, k), leave) + np.eye(k) * (stay - leave)
    return theta


def _piece_start(
    rows: Rows,
    piece: Piece,
    at: tuple[int, ...],
    clusters: _Clusters,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    data, n_states = rows.data, rows.model.n_states
    sample, label, _ = clusters
    y = data.y[sample][:, list(at)]
    if isinstance(piece.family, Gaussian):
        return _gaussian_start(rows, piece, at, clusters, rng)
    if isinstance(piece.family, Custom):
        base = np.array([[value for _, value in piece.family.params]] * n_states)
        jitter = 0.5 * rng.standard_normal(base.shape) if n_states > 1 else 0.0
        return {piece.key + "coef": base + jitter}
    seen = ~np.isnan(y[:, 0])
    coef = []
    for k in range(n_states):
        members = seen & (label == k)
        if members.sum() < 3:  # too few: somewhere near the whole
            members = seen & (rng.random(len(seen)) < 0.2) if seen.sum() > 20 else seen
        a = data.a[sample][members]
        coef.append(_family_start(piece, y[members], a, rows.model.scaling.constant))
    return {piece.key + "coef": np.array(coef)}


def _family_start(piece: Piece, y: np.ndarray, a: np.ndarray, constant: int) -> np.ndarray:
    """Coefficients of one state from its rows: moments, and slopes by least squares."""
    family = piece.family
    assert isinstance(family, Univariate)
    columns = tuple(y.T)
    etas = family.start(columns)
    out = []
    for i, (line, eta) in enumerate(zip(piece.lines, etas, strict=True)):
        b = np.zeros(len(line.x_cols))
        x = a[:, list(line.x_cols)]
        moving = [j for j, c in enumerate(line.x_cols) if c != constant]
        if not line.parameter and moving and len(x) > 2 * len(moving) + 2:
            b[moving] = _slopes(family, etas, i, columns[0], x[:, moving])
        if constant in line.x_cols:
            place = line.x_cols.index(constant)
            b[place] = eta - x[:, moving].mean(0) @ b[moving] if moving else eta
        elif len(x):
            b = np.linalg.lstsq(x, np.full(len(x), eta), rcond=1e-8)[0]
        out.append(b)
    return np.concatenate(out)


def _slopes(family: Univariate, etas, i: int, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Slopes of a predictor: those of the outcome's mean, divided by the link's slope."""
    if family.n_location > 1:  # log odds of a level against the first
        share, base = max((y == i + 1).mean(), 0.02), max((y == 0).mean(), 0.02)
        response = (y == i + 1) / share - (y == 0) / base
    else:
        moved = tuple(e + (1e-4 if j == i else 0.0) for j, e in enumerate(etas))
        rate = float(family.mean(moved) - family.mean(tuple(etas))) / 1e-4
        response = y / (rate if abs(rate) > 1e-3 else np.inf)
    centred = x - x.mean(0)
    slope = np.linalg.lstsq(centred, response - response.mean(), rcond=1e-8)[0]
    return np.clip(slope, -_SLOPE_LIMIT, _SLOPE_LIMIT)


def _gaussian_start(
    rows: Rows,
    piece: Piece,
    at: tuple[int, ...],
    clusters: _Clusters,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    sample, label, centred = clusters
    data, n_states = rows.data, rows.model.n_states
    y = data.y[sample][:, list(at)]
    if centred and rows.model.scaling.constant in piece.lines[0].z_cols:
        y = y - rows.subject_means[data.panel.row_subject[sample]][:, rows.places(piece)]
    y = np.nan_to_num(y)
    x = data.a[sample][:, list(piece.lines[0].x_cols)]
    coef = _regress(x, y, label, n_states, rng) if x.shape[1] else np.zeros((n_states, len(at), 0))
    residual = y - np.einsum("rpm,rm->rp", coef[label], x)
    covariance = np.zeros((n_states, len(at), len(at)))
    assert isinstance(piece.family, Gaussian)
    for k in range(n_states):
        members = residual[label == k]
        spread = members.var(0) if len(members) > 1 else residual.var(0)
        if piece.family.covariance == "spherical":
            spread = np.full(len(at), spread.mean())
        covariance[k] = np.diag(np.maximum(spread, 0.05 * data.spread[list(at)]))
    return {piece.key + "coef": coef, piece.key + "covariance": covariance}


def _effects_start(rows: Rows, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Variances of the effects, and each subject's effects (d, subjects)."""
    model = rows.model
    d, constant = model.n_effects, model.scaling.constant
    sigma, effects = np.full(d, 0.25), np.zeros((d, rows.n_subjects))
    for piece, at in model.each_piece():
        if not isinstance(piece.family, Gaussian):
            continue
        places = rows.places(piece)
        for j, line in enumerate(piece.lines):
            means, spread = rows.subject_means[:, places[j]], rows.data.spread[at[j]]
            for of_state in line.effects:
                for column, effect in zip(line.z_cols, of_state, strict=True):
                    sigma[effect] = 0.1 * spread
                    if column == constant:
                        sigma[effect] = max(means.var(), 0.05 * spread)
                        if centred:
                            effects[effect] = means
    if model.effect_covariance == "isotropic" and d:
        sigma[:] = sigma.mean()
    return sigma, effects


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
    pooled = _least_squares(x, y)
    coef = np.repeat(pooled[None], n_states, axis=0)
    for k in range(n_states):
        members = label == k
        if members.sum() > x.shape[1]:
            coef[k] = _least_squares(x[members], y[members])
        else:
            row = rng.integers(len(y))
            miss = y[row] - pooled @ x[row]
            coef[k] = pooled + np.outer(miss, x[row]) / max(x[row] @ x[row], 1e-12)
    return coef


def _least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(outcome, term) by the normal equations: columns have unit size, and a start may be rough."""
    square = x.T @ x
    if square.shape == (1, 1) and square[0, 0] > 0:  # an intercept alone: the mean
        return (x.T @ y / square).T
    return (np.linalg.pinv(square, rcond=1e-10, hermitian=True) @ (x.T @ y)).T
