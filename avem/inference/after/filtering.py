"""What is known of states and effects as rows come: given each row and those before it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jax import Array

from avem.components.param_info import Params
from avem.data import Panel
from avem.data.layout import Chunk
from avem.effects.cover import Beliefs, Cover
from avem.execution.dataset import Dataset
from avem.inference.e_steps import Impossible
from avem.models.encoded import Encoded
from avem.models.hmm_kernel import HMMKernel
from avem.numerics.jit import jit
from avem.numerics.precision import in_float64

_NEVER = -1e300
"""The log of no probability at all, as far as sums are concerned."""


class FilteredRows(NamedTuple):
    """Given each row and those before it, in all sequences of its subject up to its own."""

    states: np.ndarray
    """(rows, states) probabilities, the effects integrated out."""
    enough: np.ndarray
    """(rows,) bool: whether there were nodes enough where the effect's distribution is."""


@jit("kernel")
def _filtered(kernel, theta, f, chunk):
    return kernel.filtered(theta, f, chunk)


def _filter(chunk, f, kernel, theta):
    return _filtered(kernel, theta, f, chunk)


@in_float64
def filter_rows(data: Encoded, theta: Params, cover: Cover) -> FilteredRows:
    """Node by node; sums over nodes are kept relative to the largest so far."""
    panel, shards = data.panel, Dataset.of(data)
    top = np.full(panel.n_rows, -np.inf)
    mass, squares = np.zeros((2, panel.n_rows))
    states = np.zeros((panel.n_rows, data.kernel.n_states))
    for node in range(cover.n_nodes):
        effects, log_weight = cover.at(node)
        found = shards.map(_filter, (shards.split(effects),), data.kernel, theta)
        chance = data.layout.gather([part for part, _ in found])
        more = data.layout.gather([part for _, part in found])
        height = _since(more, panel) + log_weight[panel.row_subject]
        possible = height > 0.5 * _NEVER
        new = np.maximum(top, np.where(possible, height, -np.inf))
        anchor = np.where(np.isfinite(new), new, 0.0)
        before, own = np.exp(top - anchor), np.where(possible, np.exp(height - anchor), 0.0)
        mass, squares = before * mass + own, before**2 * squares + own**2
        own_states = np.where(possible[:, None], chance, 0.0)
        states = before[:, None] * states + own[:, None] * own_states
        top = new
    if not (mass > 0).all():
        raise Impossible
    return FilteredRows(states / mass[:, None], mass**2 / squares >= cover.least)


def _since(values: np.ndarray, panel: Panel) -> np.ndarray:
    """(rows,) sums of values over all rows of the subject up to each; `_NEVER` counts for -inf."""
    ordered = pd.Series(np.where(np.isfinite(values), values, _NEVER)[panel.order])
    out = np.empty(panel.n_rows)
    out[panel.order] = ordered.groupby(panel.row_subject[panel.order]).cumsum()
    return out


# --- one row at a time --------------------------------------------------------------------------


@jit("kernel")
def _next_row(kernel, theta, f, chunk, now):
    return kernel.next_row(theta, f, chunk, now)


@in_float64
def next_row(
    kernel: HMMKernel,
    theta: Params,
    effects: np.ndarray,
    y: np.ndarray,
    a: np.ndarray,
    seen: np.ndarray,
    now: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Chances (..., states, nodes) before a row is seen, and its log densities (states, nodes).

    The row is y (outcome columns,), a (design columns,) and seen (groups,); effects are (d, nodes),
    each on a lane of its own.
    """
    found = _next_row(kernel, theta, effects, _one_step(y, a, seen, effects.shape[1]), now)
    return np.asarray(found[0]), np.asarray(found[1])


def _one_step(y: np.ndarray, a: np.ndarray, seen: np.ndarray, n: int) -> Chunk:
    def on_lanes(row: np.ndarray) -> Array | Any:
        return np.broadcast_to(row[None, :, None], (1, len(row), n))

    valid, owner = np.ones((1, n), bool), np.arange(n, dtype=np.int32)
    return Chunk(on_lanes(y), on_lanes(a), on_lanes(seen), valid, owner, valid[0])


# --- where effects may be -----------------------------------------------------------------------


def population(sigma: np.ndarray, n: int) -> Beliefs:
    """What is known of subjects of whom nothing is known."""
    d = len(sigma)
    return Beliefs(np.zeros((d, n)), np.repeat(sigma[:, :, None], n, axis=2))


def updated(prior: Beliefs, found: Beliefs, sigma: np.ndarray) -> Beliefs:
    """About what is known after rows that alone, from the population, would lead to `found`.

    The prior itself where rows would have to take away knowledge.
    """
    inverse = [np.linalg.inv(np.moveaxis(beliefs.cov, -1, 0)) for beliefs in (prior, found)]
    precision = inverse[0] + inverse[1] - np.linalg.inv(sigma)
    good = np.linalg.eigvalsh(precision).min(axis=1, initial=np.inf) > 0
    precision = np.where(good[:, None, None], precision, inverse[0])
    pulls = [
        np.einsum("nde,en->nd", of, own.mean)
        for of, own in zip(inverse, (prior, found), strict=True)
    ]
    pull = pulls[0] + np.where(good[:, None], pulls[1], 0.0)
    mean = np.linalg.solve(precision, pull[:, :, None])[:, :, 0]
    return Beliefs(mean.T, np.moveaxis(np.linalg.inv(precision), 0, -1))
