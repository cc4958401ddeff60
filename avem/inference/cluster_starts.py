"""Where types of subjects begin: grouped by how each subject moves between the first states."""

from __future__ import annotations

import numpy as np

from avem.components.clusters import SHARES
from avem.components.param_info import Params
from avem.data import Panel
from avem.models.hmm import HMMModel

_PRIOR_MOVES = 5.0
"""So many moves of the usual chain are added to those seen, for subjects and for types."""
_NOISE = 0.5
"""Standard deviation of what is added to coefficients, on the scale of the link."""
_LLOYD_STEPS = 15


def with_types(
    model: HMMModel,
    theta: Params,
    panel: Panel,
    rows: np.ndarray,
    label: np.ndarray,
    rng: np.random.Generator,
) -> Params:
    """Theta in which the types of subjects differ; ``label`` are the first states of some rows.

    The rows come sequence by sequence, in the order of time.
    """
    n, k = model.n_clusters, model.n_states
    counts = np.zeros((panel.n_subjects, k, k))
    together = panel.row_lane[rows[:-1]] == panel.row_lane[rows[1:]]
    who = panel.row_subject[rows[:-1][together]]
    np.add.at(counts, (who, label[:-1][together], label[1:][together]), 1.0)
    usual = _PRIOR_MOVES * np.where(np.eye(k, dtype=bool), 0.9, 0.1 / max(k - 1, 1))
    # As much of what all do as subjects have rows makes those with few rows alike.
    mean = usual + counts.mean(0)
    shrunk = counts + mean / mean.sum(1, keepdims=True) * _PRIOR_MOVES
    features = (shrunk / shrunk.sum(2, keepdims=True)).reshape(panel.n_subjects, -1)
    of_subject = _groups(features, n, rng)
    size = np.bincount(of_subject, minlength=n) + panel.n_subjects / n
    return _begun(model, theta, counts, usual, of_subject, rng) | {SHARES: size / size.sum()}


def _begun(
    model: HMMModel,
    theta: Params,
    counts: np.ndarray,
    usual: np.ndarray,
    of_subject: np.ndarray,
    rng: np.random.Generator,
) -> Params:
    """Chances from counts, coefficients from chance."""
    possible, parts = model.possible_moves(), []
    for c in model.stack.types:
        own = {key: np.array(model.stack.own(theta, c)[key], float) for key in model.stack.keys}
        for key, value in own.items():
            if key == "transition":
                seen = (counts[of_subject == c].sum(0) + usual) * possible
                own[key] = seen / seen.sum(1, keepdims=True)
            elif key == "initial":
                own[key] = rng.dirichlet(np.full(len(value), 20.0))
            else:
                own[key] = value + _NOISE * rng.normal(size=value.shape)
        parts.append(own)
    return {**theta, **model.stack.joined(parts)}


def _groups(features: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """(subjects,) by k-means, from seeds far from each other."""
    centres = features[rng.integers(len(features), size=1)]
    while len(centres) < n:
        far = ((features[:, None] - centres[None]) ** 2).sum(-1).min(1)
        chance = far / far.sum() if far.sum() > 0 else None
        centres = np.vstack([centres, features[rng.choice(len(features), p=chance)]])
    label = np.zeros(len(features), int)
    for _ in range(_LLOYD_STEPS):
        label = ((features[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
        for c in range(n):
            if (label == c).any():
                centres[c] = features[label == c].mean(0)
    return label
