"""Slopes and curvature of the marginal log likelihood in the parameters.

By Fisher's identity the slope is that of the expected complete log likelihood, which the adaptive
tier's E-step has in its sums; the curvature is a difference of slopes, with the nodes where they
are. Nothing differentiates through the message passing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components.free import Free
from avem.components.lanes import Theta
from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.inference.catch_up import whole
from avem.inference.e_steps import ESteps, Expectation, State
from avem.inference.methods.adaptive.parts import pieces_of
from avem.inference.on_shard import Setting, Subjects, totals_of
from avem.models.kernel import Kernel
from avem.numerics.jit import jit

_STEP = 1e-4
"""Of the difference, in log odds, log scales and standardised coefficients. Slopes are exact to ten
digits, so that one difference per parameter tells the curvature to four."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The log likelihood near the estimates, in the free parameters."""

    e: ESteps
    """By the adaptive tier."""
    state: State
    free: Free
    information: np.ndarray
    """(free, free) minus the second derivative."""
    following: np.ndarray
    """(free, d, subjects) how the means of the effects' posteriors follow the parameters."""
    weights: np.ndarray | None = None
    """(subjects,) how much each counts in the information; None: all alike."""
    survey: bool = False
    """The weights are those of a survey: the inverse of the information is no covariance."""

    @cached_property
    def slopes(self) -> np.ndarray:
        """(subjects, free) each subject's slope."""
        return subject_slopes(self.e, self.state, self.free)

    @property
    def meat(self) -> np.ndarray:
        """(free, free) the variance of the total slope, from how those of subjects differ."""
        counting = 1.0 if self.weights is None else self.weights[:, None]
        # A subject of a survey has one slope, which counts more; frequencies are so many slopes.
        power = counting**2 if self.survey else counting
        return (self.slopes * power).T @ self.slopes


def curvature(
    e: ESteps,
    state: State,
    free: Free,
    prior_slope: Callable[[Params], Params] = lambda theta: {},
) -> Curvature:
    """Observed information: one E-step per parameter; `e` is by the adaptive tier.

    ``prior_slope`` gives what priors of parameters add to the slope.
    """
    vector = free.vector(state.theta)

    def at(there: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        theta = free.theta(there, state.theta)
        found = e.e_step(State(theta, state.subjects, form=state.form))
        (mean,) = e.of_subjects(found.state, "mean")
        slope = total_slope(e, theta, found)
        for key, more in prior_slope(theta).items():
            slope[key] = slope[key] + more
        return free.pull(theta, slope), mean

    slope, mean = at(vector)
    second, following = np.zeros((free.size, free.size)), np.zeros((free.size, *mean.shape))
    for j in range(free.size):
        there, moved = at(vector + _STEP * (np.arange(free.size) == j))
        second[j], following[j] = (there - slope) / _STEP, (moved - mean) / _STEP
    return Curvature(e, state, free, -0.5 * (second + second.T), following)


def total_slope(e: ESteps, theta: Params, found: Expectation) -> Params:
    """The slope in every entry of theta, from the sums of an E-step."""
    total = totals_of(e.kernel, found.sums)
    slope = e.kernel.slopes(theta, total.model)
    for key, terms in zip(e.kernel.newton_keys, found.sums.terms, strict=True):
        slope[key] = terms.gradient.reshape(theta[key].shape)
    if e.kernel.n_effects:
        precision = np.linalg.inv(theta["effect_covariance"])
        square = precision @ total.effect_second @ precision
        slope["effect_covariance"] = 0.5 * (square - e.data.weight * precision)
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
) -> np.ndarray:
    """On a shard: (direction, subject)."""
    found = np.zeros((len(jax.tree.leaves(tangents)[0]), len(np.asarray(chunk.real))))
    for who, own, nodes in pieces_of(whole(chunk, subjects, setting), chunk):
        at = (setting.theta, tangents, nodes.at, nodes.share, own, setting.form)
        found[:, who] = np.asarray(_slopes(setting.kernel, *at))[:, : len(who)]
    return found


@jit("kernel", "form")
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
