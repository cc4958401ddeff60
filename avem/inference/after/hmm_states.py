"""A fitted model on data: state probabilities, most probable paths."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from avem.components.lanes import by_subject
from avem.components.param_info import Params
from avem.errors import AvemError
from avem.inference.em import IMPOSSIBLE
from avem.inference.fit_hmm import make_em
from avem.kernels import forward_backward as hmm
from avem.models.hmm import Encoded, HMMModel
from avem.numerics.precision import in_float64


@partial(jax.jit, static_argnames=("kernel", "form"))
def _state_probabilities(kernel, theta, f, chunk, form):
    posterior = kernel.posterior(theta, f, chunk, form)
    return posterior.state, posterior.loglik


@partial(jax.jit, static_argnames=("kernel",))
def _viterbi(kernel, theta, f, chunk):
    return kernel.viterbi(theta, f, chunk)


@in_float64
def state_probabilities(model: HMMModel, data: Encoded, theta: Params, effects: np.ndarray):
    """(rows, states) p(U_t = k | D_i, f_i) with every subject at its effect (d, subjects)."""
    em = make_em(model, data)
    for form in ("scaled", "log"):
        passes = em.each_chunk(
            lambda chunk, f, form=form: _state_probabilities(data.kernel, theta, f, chunk, form),
            list(data.layout.split(effects)),
        )
        if all(np.isfinite(loglik).all() for _, loglik in passes):
            break
    else:
        raise AvemError(IMPOSSIBLE)
    return data.layout.gather([np.asarray(state) for state, _ in passes])


@partial(jax.jit, static_argnames=("kernel", "kind"))
def _states_given(kernel, theta, f, chunk, kind):
    return kernel.states_given(theta, f, chunk, kind)


@in_float64
def states_given(
    model: HMMModel,
    data: Encoded,
    theta: Params,
    effects: np.ndarray,
    kind: str,
    rows: np.ndarray | slice = slice(None),
) -> np.ndarray:
    """(rows, states) p(U_t = k | f_i and rows ``"before"`` t in its sequence, or all ``"others"``).

    `effects` are (d, subjects), or (nodes, d, subjects) for (rows, nodes, states). `rows` are
    those wanted.
    """
    em, nodes = make_em(model, data), effects if effects.ndim == 3 else effects[None]
    found = []
    for at in nodes:
        passes = em.each_chunk(
            lambda chunk, f: _states_given(data.kernel, theta, f, chunk, kind),
            list(data.layout.split(at)),
        )
        if not all(np.isfinite(loglik).all() for _, loglik in passes):
            raise AvemError(IMPOSSIBLE)
        found.append(data.layout.gather([np.asarray(state) for state, _ in passes])[rows])
    return np.stack(found, axis=1) if effects.ndim == 3 else found[0]


@partial(jax.jit, static_argnames=("block",))
def _histories(block, theta, f, chunk):
    return block.histories(theta, f, chunk)


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
    em, found = make_em(model, data), {}
    remembering = [e.key for e in model.emissions if e.remembers]
    for key, block in zip((e.key for e in model.emissions), data.kernel.emissions, strict=True):
        if key not in remembering:
            continue
        nodes = []
        for at in effects:
            passes = em.each_chunk(
                lambda chunk, f, block=block: _histories(block, theta, f, chunk),
                list(data.layout.split(at)),
            )
            nodes.append(jax.tree.map(lambda *of: data.layout.gather(of)[rows], *passes))
        found[key] = jax.tree.map(lambda *of: np.stack(of, axis=1), *nodes)
    return found


@partial(jax.jit, static_argnames=("kernel", "form"))
def _rows_in_states(kernel, theta, f, chunk, tilt, form):
    initial, transition, table = kernel.tables(theta, f, chunk)
    steps = kernel.transition.steps(chunk)
    tilted = table + tilt[:, None]
    posterior = hmm.smooth(initial, transition, tilted, chunk.valid, form, steps)
    return by_subject(posterior.state.sum(0), chunk)


@in_float64
def rows_in_states(
    model: HMMModel, data: Encoded, theta: Params, effects: np.ndarray, tilt: np.ndarray
) -> np.ndarray:
    """(states, subjects) expected numbers of rows in each state, every subject at its effect.

    ``tilt`` (states,) is added to the log density of every row. The numbers' derivatives in it, at
    0, are their covariances: the log likelihood is then their cumulant generating function.
    """
    found = make_em(model, data).each_chunk(
        lambda chunk, f: _rows_in_states(data.kernel, theta, f, chunk, tilt, "log"),
        list(data.layout.split(effects)),
    )
    return data.layout.join([np.asarray(part) for part in found])


@partial(jax.jit, static_argnames=("kernel", "form"))
def _path_entropy(kernel, theta, f, chunk, form):
    posterior = kernel.path_posterior(theta, f, chunk, form)
    return by_subject(posterior.loglik, chunk) - kernel.expected_complete(
        theta, f, posterior, chunk
    )


@in_float64
def path_entropy(model: HMMModel, data: Encoded, theta: Params, effects: np.ndarray) -> np.ndarray:
    """(subjects,) entropy of p(U | D_i, f_i), with every subject at its effect (d, subjects)."""
    found = make_em(model, data).each_chunk(
        lambda chunk, f: _path_entropy(data.kernel, theta, f, chunk, "log"),
        list(data.layout.split(effects)),
    )
    return data.layout.join([np.asarray(part) for part in found])


@in_float64
def viterbi(model: HMMModel, data: Encoded, theta: Params, effects: np.ndarray) -> np.ndarray:
    """(rows,) state of the most probable path, with every subject at its effect (d, subjects)."""
    em = make_em(model, data)
    paths = em.each_chunk(
        lambda chunk, f: _viterbi(data.kernel, theta, f, chunk), list(data.layout.split(effects))
    )
    if not all(np.isfinite(height).all() for _, height in paths):
        raise AvemError(IMPOSSIBLE)
    return data.layout.gather([np.asarray(path) for path, _ in paths])
