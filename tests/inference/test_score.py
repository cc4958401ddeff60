"""Slopes and curvature of the marginal likelihood, three ways; free parameters and back."""

from dataclasses import replace

import numpy as np
import pytest

from avem.inference.after.curvature import curvature, subject_slopes, total_slope
from avem.inference.e_steps import state_at
from avem.inference.methods.adaptive.centres import find_centres
from avem.inference.methods.adaptive.method import AdaptiveNodes
from avem.numerics.precision import in_float64
from tests.chosen import chosen
from tests.inference.test_identities import EACH, MODELS, N, prepared

N_FREE = {
    # first state, moves, means, variances, Sigma
    "gaussian": 1 + 2 + 4 + 4 + 3,
    "bernoulli": 1 + 2 + 4 + 3,
    "transitions": 1 + 2 + 2 + 2 + 1 + 3,
}


@in_float64
def setting(name):
    _, model, encoded, em, params = prepared(name)
    d, theta = model.n_effects, model.params_in(params)
    if name == "bernoulli":
        theta["effect_covariance"] = np.array([[0.8, 0.1], [0.1, 0.4]])
    adaptive = replace(em.e, method=AdaptiveNodes.make(d, 12 if d < 3 else 20))
    state = state_at(em.data, theta, np.zeros((d, N)))
    state = find_centres(adaptive, state, np.random.default_rng(0))
    free = model.find_free(theta, (), encoded.spread)
    return model, adaptive, state, free


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_slopes_three_ways(name):
    """From the M-step's sums, subject by subject, and by differences of the log likelihood."""
    model, em, state, free = setting(name)
    vector = free.vector(state.theta)

    def loglik(at):
        moved = replace(state, theta=free.theta(at, state.theta))
        return em.e_step(moved).bound

    by_sums = free.pull(state.theta, total_slope(em, state.theta, em.e_step(state)))
    by_subject = subject_slopes(em, state, free)
    assert by_subject.shape == (N, free.size)
    np.testing.assert_allclose(by_subject.sum(0), by_sums, atol=1e-6)
    for j, unit in enumerate(1e-4 * np.eye(free.size)):
        difference = (loglik(vector + unit) - loglik(vector - unit)) / 2e-4
        assert by_sums[j] == pytest.approx(difference, abs=1e-4)
    assert np.abs(by_sums).max() > 0.1  # the truth is not the maximum: there is a slope to find
    assert free.size == model.count_free(()) == N_FREE[name]


@in_float64
def test_curvature_is_that_of_the_log_likelihood():
    _, em, state, free = setting("bernoulli")
    vector, found = free.vector(state.theta), curvature(em, state, free)
    step, units = 1e-3, np.eye(free.size)

    def loglik(move):
        moved = replace(state, theta=free.theta(vector + step * move, state.theta))
        return em.e_step(moved).bound

    for i, j in ((0, 0), (2, 2), (3, 4), (free.size - 1, 1)):
        a, b = units[i], units[j]
        corners = loglik(a + b) - loglik(a - b) - loglik(b - a) + loglik(-a - b)
        assert -corners / (4 * step**2) == pytest.approx(
            found.information[i, j], rel=1e-3, abs=1e-2
        )


@pytest.mark.parametrize("name", chosen(MODELS, ("bernoulli", "transitions")))
def test_there_and_back(name):
    _, _, state, free = setting(name)
    again = free.theta(free.vector(state.theta), state.theta)
    for key, value in state.theta.items():
        np.testing.assert_allclose(again[key], value, atol=1e-12)


def test_held_and_boundary_parameters_are_not_free():
    _, model, encoded, _, params = prepared("gaussian")

    def size(fixed=(), **changed):
        theta = model.params_in({**params, **changed})
        return model.find_free(theta, fixed, encoded.spread).size

    assert size() == N_FREE["gaussian"]
    assert size(fixed=("transition",)) == N_FREE["gaussian"] - 2
    assert size(fixed=("coef", "variance")) == N_FREE["gaussian"] - 8
    assert size(fixed=("effect_covariance",)) == N_FREE["gaussian"] - 3
    assert size(initial=np.array([1.0, 0.0])) == N_FREE["gaussian"] - 1
    # An effect without variance takes its correlation with it.
    assert size(effect_covariance=np.diag([0.8, 1e-9])) == N_FREE["gaussian"] - 2
