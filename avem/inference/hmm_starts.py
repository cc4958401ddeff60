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
from itertools import combinations, permutations

import numpy as np

from avem.components.emission import Clusters, Emission, subject_means
from avem.components.regression import regress
from avem.inference.cluster_starts import with_types
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.numerics.rows import any_seen, where

_SAMPLE = 4000
_LLOYD_STEPS = 15
_WINDOWS = (9, 25, 3, 61)
_SMOOTH, _NEIGHBOURS = 1, 5
"""The number of the starts that average rows with their neighbours even where rows take many
values: states that overlap but last show in averages."""
_UNEVEN = {2: 4.0, 3: 0.25}
"""How many times as many rows each slice has as the one before, in the starts of these numbers:
states that are rare, or last, are not where even clusters are."""
_TRUSTING, _OTHERS = 4, 6
"""The first starts take states in the order that moves say; later ones in one of so many."""
_FURTHEST, _SLIP, _MOST_AT_ONCE = 8, 1e-3, 6
"""Rows further apart say no more; how often a row is in the wrong cluster, at least; states whose
orders are all tried."""
_COARSE = 30
"""Fewer different rows than this: look at windows."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The panel's rows on the scale of the fit: what a start is made from."""

    model: HMMModel
    whole: Encoded

    @property
    def data(self) -> Encoded:
        """All rows, or those of some subjects where there are very many."""
        return self.whole.sample

    @property
    def n_subjects(self) -> int:
        return self.data.panel.n_subjects

    @cached_property
    def usable(self) -> np.ndarray:
        """The rows with something observed, by sequence and time."""
        y, panel = self.data.y, self.data.panel
        seen = any_seen(y, range(y.shape[1]))
        return where(seen) if panel.in_order else panel.order[seen[panel.order]]

    @cached_property
    def features(self) -> np.ndarray:
        """(rows, features) in which states lie apart; NaN where missing."""
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts, axis=1)

    @cached_property
    def _parts(self) -> list[np.ndarray]:
        return self.model.features(self.data.y)

    def means_of(self, emission: Emission) -> np.ndarray:
        """(subjects, own features) the subjects' means of an emission's features."""
        return self.subject_means[:, self._own(emission)]

    def all_means_of(self, emission: Emission) -> np.ndarray:
        """The same of all subjects, where the rows are those of some."""
        known = self.whole.start_means
        return self.means_of(emission) if known is None else known[:, self._own(emission)]

    def _own(self, emission: Emission) -> slice:
        number = self.model.emissions.index(emission)
        first = sum(part.shape[1] for part in self._parts[:number])
        return slice(first, first + self._parts[number].shape[1])

    @cached_property
    def coarse(self) -> bool:
        """Rows take few values."""
        sample = np.nan_to_num(self.features[self.usable[:5000]])
        return len(np.unique(sample, axis=0)) < _COARSE

    @cached_property
    def subject_means(self) -> np.ndarray:
        """(subjects, features) mean of what was seen, shrunk a little towards 0, the overall."""
        panel = self.data.panel
        order = slice(None) if panel.in_order else panel.order
        return subject_means(self.features[order], panel.row_subject[order], self.n_subjects)

    @cached_property
    def place(self) -> np.ndarray:
        """(rows,) of each row among all, sequence by sequence."""
        order = self.data.panel.order
        if self.data.panel.in_order:
            return order
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return place

    def features_of(self, rows: np.ndarray, centred: bool, columns: list[int]) -> np.ndarray:
        """(..., features) of some rows, and their products with some design columns."""
        features = self.features[rows]
        if centred:
            features = features - self.subject_means[self.data.panel.row_subject[rows]]
        products = [features * self.data.a[rows][..., [c]] for c in columns]
        return np.concatenate([features, *products], axis=-1)

    def averaged(
        self, rows: np.ndarray, window: int, centred: bool, columns: list[int]
    ) -> np.ndarray:
        """Of some rows, the means with their neighbours in the same sequence, of what was seen."""
        panel = self.data.panel
        near = self.place[rows][:, None] + np.arange(-(window // 2), window // 2 + 1)
        inside = (near >= 0) & (near < panel.n_rows)
        near = panel.order[np.where(inside, near, 0)]
        inside &= panel.row_lane[near] == panel.row_lane[rows][:, None]
        values = self.features_of(near, centred, columns)
        seen = inside[..., None] & ~np.isnan(values)
        return np.where(seen, values, 0.0).sum(1) / np.maximum(seen.sum(1), 1)


def make_start(
    rows: Rows, number: int, rng: np.random.Generator, rare: bool = False
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Theta and subject effects (d, subjects) of start `number`; `rare`: some of rare states."""
    model, data = rows.model, rows.data
    n_states = model.n_states
    # Where chains do not come back, the mean of a subject says how far it got.
    one_way = not _recurrent(model.possible_moves())
    centred = _has_levels(model) and number % 2 == int(one_way)
    sample = rng.choice(rows.usable, min(_SAMPLE, len(rows.usable)), replace=False)
    columns = sorted({c for emission in model.emissions for c in emission.lines[0].x_cols})
    if rows.coarse or (rare and number // 2 == _SMOOTH):
        # Where states differ in how they respond, it shows in the products with the covariates.
        moving = [c for c in columns if c != model.scaling.constant]
        window = _WINDOWS[(number // 2) % len(_WINDOWS)] if rows.coarse else _NEIGHBOURS
        y = rows.averaged(sample, window, centred, moving)
        y /= np.maximum(y.std(0), 1e-12)
        columns = [model.scaling.constant]
    else:
        y = np.nan_to_num(rows.features_of(sample, centred, []))
    x = data.a[sample][:, columns]
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
    if model.keeps_order and not (allowed.sum(1) == 1).any():  # the clusters are what they will be
        moves = _Moves.of(rows, sample, emitting)
        place = np.searchsorted(emitting, label)
        orders = moves.orders(place, len(emitting), few=number < _TRUSTING)
        if orders is not None:
            order = orders[rng.integers(len(orders)) if number else 0]
            label = emitting[order[place]]
            if not allowed[np.arange(len(sample)), label].all():
                label = before
    theta = model.chain_start()
    if model.n_clusters > 1:
        in_time = np.argsort(rows.place[sample], kind="stable")
        theta = with_types(model, theta, data.panel, sample[in_time], label[in_time], rng)
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
        from scipy.optimize import linear_sum_assignment  # which takes long to import

        seen = np.zeros((n, n))
        np.add.at(seen, (label[known], allowed[known].argmax(1)), 1.0)
        return linear_sum_assignment(-seen)[1][label]
    orders = {0: np.arange(n), 1: np.arange(n)[::-1]}
    return orders.get(number, rng.permutation(n))[label]


@dataclass(frozen=True, eq=False)
class _Moves:
    """Rows of a start that follow each other, and how probable moves between states are."""

    first: np.ndarray
    """(pairs,) places among the sampled rows."""
    second: np.ndarray
    steps: np.ndarray
    """(pairs,) how many rows on, at most `_FURTHEST`."""
    chance: np.ndarray
    """(states, states) of moves, next to nothing where they are impossible."""
    never_back: bool
    """No state is reached again once it was left."""

    @classmethod
    def of(cls, rows: Rows, sample: np.ndarray, emitting: np.ndarray) -> _Moves:
        """Between the states that emit outcomes."""
        panel, place = rows.data.panel, rows.place[sample]
        order = np.argsort(place, kind="stable")
        first, second = order[:-1], order[1:]
        together = panel.row_lane[sample[first]] == panel.row_lane[sample[second]]
        first, second = first[together], second[together]
        steps = np.minimum(place[second] - place[first], _FURTHEST)
        possible = rows.model.possible_moves()[np.ix_(emitting, emitting)]
        stay = np.eye(len(emitting), dtype=bool)
        chance = np.where(stay, 1.0, 0.1) * possible + _SLIP
        reach = np.linalg.matrix_power(possible.astype(float), max(1, len(possible))) > 0
        never_back = not (reach & reach.T & ~stay).any()
        chance /= chance.sum(1, keepdims=True)
        return cls(first, second, steps, chance, never_back)

    def orders(self, label: np.ndarray, n: int, few: bool) -> list[np.ndarray] | None:
        """Renumberings of clusters under which rows move as is possible, the best first.

        None where moves do not tell states apart.
        """
        if self.chance.min() > 2 * _SLIP or n < 2 or not len(self.first):
            return None
        counts = np.zeros((_FURTHEST + 1, n, n))
        np.add.at(counts, (self.steps, label[self.first], label[self.second]), 1.0)
        if self.never_back:  # what goes both ways are rows in the wrong cluster
            counts = np.maximum(counts - np.swapaxes(counts, 1, 2), 0.0)
        powers = [np.linalg.matrix_power(self.chance, k) for k in range(_FURTHEST + 1)]
        logs = np.log(np.maximum(np.array(powers), 1e-12))

        def score(order: np.ndarray) -> float:
            return float((counts * logs[:, order[:, None], order]).sum())

        every = _permutations(n, score)
        scores = np.array([score(order) for order in every])
        best = np.argsort(-scores, kind="stable")
        near = scores[best] > scores[best[0]] - 1e-6 * abs(scores[best[0]]) - 1e-9
        kept = best[near] if few else best[: max(_OTHERS, int(near.sum()))]
        return [every[k] for k in kept]


def _permutations(n: int, score) -> list[np.ndarray]:
    """All of them, or where there are too many those that exchanging two at a time leads to."""
    if n <= _MOST_AT_ONCE:
        return [np.array(order) for order in permutations(range(n))]
    order, rising = np.arange(n), True
    while rising:
        rising, now = False, score(order)
        for i, j in combinations(range(n), 2):
            tried = order.copy()
            tried[[i, j]] = tried[[j, i]]
            if score(tried) > now + 1e-9:
                order, now, rising = tried, score(tried), True
    return [order]


def _recurrent(possible: np.ndarray) -> bool:
    """Every state can be reached from every other one."""
    reach = possible | np.eye(len(possible), dtype=bool)
    return bool(np.linalg.matrix_power(reach.astype(float), max(1, len(reach) - 1)).all())


def _has_levels(model: HMMModel) -> bool:
    """Some outcome's level differs between subjects."""
    constant = model.scaling.constant
    return any(constant in emission.lines[0].z_cols for emission in model.emissions)


def _effects_start(rows: Rows, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Variances of the effects, and each subject's effects (d, subjects)."""
    model = rows.model
    d, constant = model.n_effects, model.scaling.constant
    sigma, effects = np.full(d, 0.25), np.zeros((d, rows.whole.layout.n_subjects))
    for emission in model.emissions:
        means = rows.all_means_of(emission)
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
