"""Slopes and curvature of the marginal log likelihood in the parameters.

By Fisher's identity the slope is that of the expected complete log likelihood, which the adaptive
tier's E-step has in its sums; the curvature is a central difference of slopes, with the nodes where
they are. Nothing differentiates through the message passing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components.free import Free
from avem.components.lanes import Theta
from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.execution.dataset import add_up
from avem.inference.catch_up import seen
from avem.inference.e_steps import ESteps, Expectation, State
from avem.inference.on_shard import Setting, Subjects
from avem.models.kernel import Kernel

_STEP = 1e-3
"""Of the difference, in log odds, log scales and standardised coefficients."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The log likelihood near the estimates, in the free parameters."""

    free: Free
    information: np.ndarray
    """(free, free) minus the second derivative."""
    slopes: np.ndarray
    """(subjects, free) each subject's slope."""


def curvature(e: ESteps, state: State, free: Free) -> Curvature:
    """Observed information and subjects' slopes; `e` is by the adaptive tier."""
    vector = free.vector(state.theta)

    def slope(at: np.ndarray) -> np.ndarray:
        theta = free.theta(at, state.theta)
        moved = State(theta, state.subjects, form=state.form)
        return free.pull(theta, total_slope(e, theta, e.e_step(moved)))

    second = np.zeros((free.size, free.size))
    for j in range(free.size):
        unit = _STEP * (np.arange(free.size) == j)
        second[j] = (slope(vector + unit) - slope(vector - unit)) / (2 * _STEP)
    return Curvature(free, -0.5 * (second + second.T), subject_slopes(e, state, free))


def total_slope(e: ESteps, theta: Params, found: Expectation) -> Params:
    """The slope in every entry of theta, from the sums of an E-step."""
    total = add_up([part.totals for part in found.parts])
    slope = e.kernel.slopes(theta, total.model)
    for number, key in enumerate(e.kernel.newton_keys):
        terms = add_up([part.terms[number] for part in found.parts])
        slope[key] = terms.gradient.reshape(theta[key].shape)
    if e.kernel.n_effects:
        precision = np.linalg.inv(theta["effect_covariance"])
        square = precision @ total.effect_second @ precision
        slope["effect_covariance"] = 0.5 * (square - e.data.n_subjects * precision)
    return slope


def subject_slopes(e: ESteps, state: State, free: Free) -> np.ndarray:
    """(subjects, free) slope of every subject's log likelihood, in the panel's order."""
    vector = free.vector(state.theta)
    tangents: list[Params] = []
    for j in range(free.size):
        unit = 1e-6 * (np.arange(free.size) == j)
        up, down = (free.theta(vector + sign * unit, state.theta) for sign in (1, -1))
        tangents.append({key: (up[key] - down[key]) / 2e-6 for key in up})
    stacked = {key: np.stack([t[key] for t in tangents]) for key in state.theta}
    there = e.e_step(state).state
    return e.data.gather(_of_subjects, (there.subjects,), e.setting(there), stacked).T


def _of_subjects(
    chunk: Chunk, subjects: Subjects | None, setting: Setting, tangents: Params
) -> Array:
    """On a shard: (direction, subject)."""
    nodes: Any = seen(chunk, subjects, setting).kept
    at = (setting.theta, tangents, nodes.at, nodes.share, chunk, setting.form)
    return _slopes(setting.kernel, *at)


@partial(jax.jit, static_argnames=("kernel", "form"))
def _slopes(
    kernel: Kernel, theta: Theta, tangents: Theta, at: Array, share: Array, chunk: Chunk, form
) -> Array:
    """(direction, subject) derivatives along each of the tangents."""

    def at_node(total: Array, node: tuple[Array, Array]) -> tuple[Array, None]:
        f, weight = node
        posterior = kernel.path_posterior(theta, f, chunk, form)

        def height(moved: Theta) -> Array:
            return kernel.expected_complete(moved, f, posterior, chunk) + _log_prior(moved, f)

        along = lax.map(lambda way: jax.jvp(height, (theta,), (way,))[1], tangents)
        return total + weight * along, None

    n_ways = jax.tree.leaves(tangents)[0].shape[0]
    nothing = jnp.zeros((n_ways, chunk.real.shape[0]))
    return lax.scan(at_node, nothing, (at, share))[0]


def _log_prior(theta: Theta, f: Array) -> Array:
    if not len(f):
        return jnp.zeros(f.shape[1])
    sigma = theta["effect_covariance"]
    return -0.5 * ((f * jnp.linalg.solve(sigma, f)).sum(0) + jnp.linalg.slogdet(sigma)[1])
