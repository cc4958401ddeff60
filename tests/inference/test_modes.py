"""Re-anchoring: subjects in a wrong mode are moved out of it."""

from dataclasses import replace

import numpy as np
import pytest

import avem
from avem.inference.e_steps import state_at
from avem.inference.fit_hmm import make_em
from avem.inference.mode_search import search_modes
from avem.models.relabelling import label_shifts
from avem.numerics.precision import in_float64
from tests.panels import anchors_at

K, N, T = 3, 60, 60
MU = np.array([-1.5, 0.0, 1.5])
TRUTH = {
    "initial": np.full(K, 1 / K),
    "transition": np.full((K, K), 0.04) + 0.88 * np.eye(K),
    "coef": np.repeat(MU[:, None, None], 2, axis=1),
    "variance": np.ones(K),
    "effect_covariance": np.eye(2),
}
MODEL = avem.MixedHMM(
    "y1 + y2 ~ 1 + (1 | subject)", K, avem.Gaussian("spherical"), effect_covariance="isotropic"
)


@pytest.fixture(scope="module")
def fitted():
    truth = MODEL.simulate(TRUTH, N, T, seed=5)
    return truth, MODEL.fit(truth.frame, time="time", refine=None)


@in_float64
def test_displaced_subjects_are_brought_back(fitted):
    _, fit = fitted
    data = fit._own_data
    em = make_em(fit.model, data)
    right = fit.model.effects_in(fit.effects_mean)
    wrong = right.copy()
    shift = label_shifts(em.kernel.n_states, fit.theta, em.m_step.matches)[0]
    wrong[:, :10] += shift[:, None]
    start = state_at(em.data, fit.theta, wrong)
    found = search_modes(em.e, start, np.random.default_rng(0))
    assert found.moved >= 9
    assert found.rise > 10
    anchors = data.layout.join(anchors_at(em, found.state))
    assert (np.abs(anchors - right).max(0) < 0.2).sum() >= N - 1
    # At the solution there is nothing left to gain.
    again = search_modes(em.e, state_at(em.data, fit.theta, right), np.random.default_rng(1))
    assert again.rise < 0.5


@in_float64
def test_the_search_is_repeated_where_its_answer_may_be_another(fitted):
    _, fit = fitted
    em, rng = make_em(fit.model, fit._own_data), np.random.default_rng(0)
    right = fit.model.effects_in(fit.effects_mean)
    wrong = right.copy()
    wrong[:, :10] += label_shifts(em.kernel.n_states, fit.theta, em.m_step.matches)[0][:, None]
    moved = em.method.search(em, state_at(em.data, fit.theta, wrong), rng)
    assert moved.moved >= 9
    assert moved.state.searched is None  # those that moved make others of the parameters
    found = em.method.search(em, state_at(em.data, fit.theta, right), rng)
    while found.moved:
        found = em.method.search(em, found.state, rng)
    step = em.step(found.state)
    before = rng.bit_generator.state
    assert em.method.search(em, step.state, rng).state is step.state
    assert rng.bit_generator.state == before
    coef = {key: value + 0.1 for key, value in step.state.theta.items() if key.endswith("coef")}
    elsewhere = replace(step.state, theta={**step.state.theta, **coef})
    em.method.search(em, elsewhere, rng)
    assert rng.bit_generator.state != before


def test_shifts_are_the_distances_between_states(fitted):
    _, fit = fitted
    em = make_em(fit.model, fit._own_data)
    shifts = label_shifts(em.kernel.n_states, fit.theta, em.m_step.matches)
    in_units = shifts * fit.model.scaling.scale
    sizes = np.sort(np.unique(np.round(in_units[:, 0], 0)))
    # Equally spaced states: one step up or down, two steps up or down, each kept once.
    assert len(shifts) == 4
    np.testing.assert_allclose(sizes, [-3, -2, 1, 2], atol=1.0)


@pytest.mark.slow
def test_default_fit_beats_the_papers_iteration(fitted):
    truth, fit = fitted
    start = {**TRUTH, "coef": 0.5 * TRUTH["coef"], "variance": np.full(K, 1.2)}
    paper = MODEL.fit(truth.frame, time="time", plain=True, init=start, tol=1e-9)

    def error(some):
        return ((some.effects_mean - truth.effects) ** 2).mean()

    assert fit.bound > paper.bound + 1
    assert error(fit) < error(paper)
