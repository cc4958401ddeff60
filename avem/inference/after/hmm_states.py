"""A fitted model on data: state probabilities, most probable paths."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from avem.components.lanes import by_subject
from avem.components.param_info import Params
from avem.execution.dataset import Dataset
from avem.inference.e_steps import Impossible
from avem.models.encoded import Encoded
from avem.models.hmm import HMMModel
from avem.numerics.jit import jit
from avem.numerics.precision import in_float64


@jit("kernel", "form")
def _posterior(kernel, theta, f, chunk, form):
    posterior = kernel.posterior(theta, f, chunk, form)
    return posterior.state, posterior.loglik


def _smoothed(chunk, f, kernel, theta, form):
    return _posterior(kernel, theta, f, chunk, form)


@in_float64
def state_probabilities(data: Encoded, theta: Params, effects: np.ndarray):
    """(rows, states) p(U_t = k | D_i, f_i) with every subject at its effect (d, subjects)."""
    shards = Dataset.of(data)
    for form in ("scaled", "log"):
        found = shards.map(_smoothed, (shards.split(effects),), data.kernel, theta, form)
        if all(np.isfinite(loglik).all() for _, loglik in found):
            return data.layout.gather([state for state, _ in found])
    raise Impossible


@jit("kernel", "form")
def _types(kernel, theta, f, chunk, form):
    posterior = kernel.posterior(theta, f, chunk, form)
    return posterior.share, by_subject(posterior.loglik, chunk)


def _types_of(chunk, f, kernel, theta, form):
    return tuple(np.asarray(part) for part in _types(kernel, theta, f, chunk, form))


@in_float64
def memberships(data: Encoded, theta: Params, effects: np.ndarray) -> np.ndarray:
    """(types, subjects) p(type | D_i, f_i) with every subject at its effect (d, subjects)."""
    shards = Dataset.of(data)
    for form in ("scaled", "log"):
        found = shards.map(_types_of, (shards.split(effects),), data.kernel, theta, form)
        if all(np.isfinite(loglik).all() for _, loglik in found):
            return shards.join([share for share, _ in found])
    raise Impossible


class Occupation(NamedTuple):
    """What state probabilities say of all rows together."""

    rows: np.ndarray
    """(states,) expected numbers of rows."""
    unsure: float
    """Mean probability that a row is not in its most probable state."""


@in_float64
def occupation(data: Encoded, theta: Params, effects: np.ndarray) -> Occupation:
    """The sums of `state_probabilities`, which need not be in memory."""
    shards = Dataset.of(data)
    for form in ("scaled", "log"):
        own = (shards.split(effects),)
        possible, rows, unsure, n_rows = shards.sum(_occupied, own, data.kernel, theta, form)
        if possible == len(shards.shards):
            return Occupation(rows, float(unsure / max(n_rows, 1)))
    raise Impossible


def _occupied(chunk, f, kernel, theta, form):
    state, loglik = (np.asarray(part) for part in _posterior(kernel, theta, f, chunk, form))
    valid = np.asarray(chunk.valid)
    state = np.where(valid[:, None], state, 0.0)
    unsure = np.sum(valid) - state.max(axis=1).sum()
    return int(np.isfinite(loglik).all()), state.sum((0, 2)), unsure, np.sum(valid)


@in_float64
def total_loglik(data: Encoded, theta: Params, effects: np.ndarray) -> float:
    """The sum of log p(D_i | f_i), with every subject at its effect (d, subjects)."""
    shards = Dataset.of(data)
    found = shards.map(_smoothed, (shards.split(effects),), data.kernel, theta, "log")
    return float(sum(loglik.sum() for _, loglik in found))


@jit("kernel", "kind")
def _states(kernel, theta, f, chunk, kind):
    return kernel.states_given(theta, f, chunk, kind)


def _states_given(chunk, f, kernel, theta, kind):
    return _states(kernel, theta, f, chunk, kind)


@in_float64
def states_given(
    data: Encoded,
    theta: Params,
    effects: np.ndarray,
    kind: str,
    rows: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """(rows, states) p(U_t = k | f_i and rows ``"before"`` t in its sequence, or all ``"others"``).

    `effects` are (d, subjects), or (nodes, d, subjects) for (rows, nodes, states). `rows` are
    those wanted. What is known of a row's own state counts, its outcomes do not.
    """
    shards, nodes = Dataset.of(data), effects if effects.ndim == 3 else effects[None]
    found = []
    for at in nodes:
        passes = shards.map(_states_given, (shards.split(at),), data.kernel, theta, kind)
        if not all(np.isfinite(loglik).all() for _, loglik in passes):
            raise Impossible
        states = data.layout.gather([state for state, _ in passes])[rows]
        if data.possible is not None:
            states = states * data.possible[rows]
            states /= np.maximum(states.sum(1, keepdims=True), 1e-300)
        found.append(states)
    return np.stack(found, axis=1) if effects.ndim == 3 else found[0]


@jit("block")
def _remembered(block, theta, f, chunk):
    return block.histories(theta, f, chunk)


def _histories(chunk, f, block, theta):
    return _remembered(block, theta, f, chunk)


@in_float64
def custom_histories(
    model: HMMModel,
    data: Encoded,
    theta: Params,
    effects: np.ndarray,
    rows: np.ndarray,
) -> dict[str, Any]:
    """What each custom emission remembers before some rows, (rows, nodes, states, ...) a part.

    By the key of its block; `effects` are (nodes, d, subjects).
    """
    shards, found = Dataset.of(data), {}
    for emission, block in zip(model.emissions, data.kernel.emissions, strict=True):
        if not emission.remembers:
            continue
        nodes = []
        for at in effects:
            of_rows = shards.rows(_histories, (shards.split(at),), block, theta)
            nodes.append(jax.tree.map(lambda of: of[rows], of_rows))
        found[emission.key] = jax.tree.map(lambda *of: np.stack(of, axis=1), *nodes)
    return found


@jit("kernel", "form")
def _tilted(kernel, theta, f, chunk, tilt, form):
    return kernel.tilted(theta, f, chunk, tilt, form).state


def _tilted_states(chunk, f, tilt, kernel, theta):
    return _tilted(kernel, theta, f, chunk, tilt, "log")


@in_float64
def tilted_states(
    data: Encoded, theta: Params, effects: np.ndarray, tilt: np.ndarray
) -> np.ndarray:
    """(rows, states) state probabilities with ``tilt`` (rows, states) added to the log densities.

    Where it is the same number for some rows and one state, the derivative at 0 of how many of
    these rows are in that state is the variance of their number: the log likelihood is then its
    cumulant generating function.
    """
    shards = Dataset.of(data)
    own = (shards.split(effects), shards.place(list(data.layout.scatter(tilt))))
    return shards.rows(_tilted_states, own, data.kernel, theta)


@jit("kernel", "form")
def _entropy(kernel, theta, f, chunk, form):
    posterior = kernel.path_posterior(theta, f, chunk, form)
    return by_subject(posterior.loglik, chunk) - kernel.expected_complete(
        theta, f, posterior, chunk
    )


def _path_entropy(chunk, f, kernel, theta):
    return _entropy(kernel, theta, f, chunk, "log")


@in_float64
def path_entropy(data: Encoded, theta: Params, effects: np.ndarray) -> np.ndarray:
    """(subjects,) entropy of p(U | D_i, f_i), with every subject at its effect (d, subjects)."""
    shards = Dataset.of(data)
    return shards.gather(_path_entropy, (shards.split(effects),), data.kernel, theta)


@jit("kernel")
def _best_path(kernel, theta, f, chunk):
    return kernel.viterbi(theta, f, chunk)


def _viterbi(chunk, f, kernel, theta):
    return _best_path(kernel, theta, f, chunk)


@in_float64
def viterbi(data: Encoded, theta: Params, effects: np.ndarray) -> np.ndarray:
    """(rows,) state of the most probable path, with every subject at its effect (d, subjects)."""
    shards = Dataset.of(data)
    paths = shards.map(_viterbi, (shards.split(effects),), data.kernel, theta)
    if not all(np.isfinite(height).all() for _, height in paths):
        raise Impossible
    return data.layout.gather([path for path, _ in paths])
