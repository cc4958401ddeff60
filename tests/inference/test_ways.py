"""Other ways to the same place: anchors, batches, settling."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.inference.catch_up import best_anchors
from avem.inference.e_steps import state_at
from avem.numerics.precision import in_float64
from tests.panels import anchors_at, chunk_of, passes_at, prepare_model

TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.1, 0.9]],
    "coef": np.array([[[-1.5]], [[1.5]]]),
    "effect_covariance": [[0.8]],
}
MODEL = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "bernoulli")
N = 40


@pytest.fixture(scope="module")
def frame():
    made = MODEL.simulate(TRUTH, N, 150, seed=3).frame
    return made.rename(columns={"time": "t"}).assign(session=0)


@in_float64
def test_the_optimal_anchor_raises_the_bound_at_the_same_q(frame):
    model, _, em = prepare_model(MODEL, frame, anchor="optimal")
    theta = model.params_in({k: np.array(v) for k, v in TRUTH.items()})
    state = state_at(em.data, theta, np.zeros((1, N)))
    p = passes_at(em.e, state)[0]
    best = best_anchors(chunk_of(em), p.mean, p, em.e.setting(state))
    assert np.abs(best - p.mean).max() > 1e-3  # it is another place

    def height(anchors):
        from avem.inference.methods.anchored import bound_at

        return np.asarray(
            bound_at(em.kernel, theta, anchors, p.mean, p.covariance, chunk_of(em), "scaled")
        )

    gain = height(best) - height(p.mean)
    assert gain.min() >= 0
    assert gain.max() > 1e-6
    # Lemma 2's anchor is a maximum: there is nothing more to gain nearby.
    for step in (-0.02, 0.02):
        assert (height(best + step) < height(best) + 1e-3).all()


@pytest.mark.slow
def test_anchors_give_nearly_the_same_fit(frame):
    fits = {
        anchor: MODEL.fit(frame, time="t", method=avem.AVEM(anchor=anchor), n_starts=2, refine=None)
        for anchor in ("mean", "optimal")
    }
    for name in ("coef", "transition", "effect_covariance"):
        np.testing.assert_allclose(
            fits["optimal"].params[name], fits["mean"].params[name], atol=0.1
        )
    assert fits["optimal"].bound > fits["mean"].bound - 0.5


def test_fixed_anchors_stay_where_they_are(frame):
    """With no anchor moving, the bound climbs; new parameters may cost a trifle on the way."""
    free = MODEL.fit(frame, time="t", n_starts=2, refine=None)
    fit = MODEL.fit(frame, time="t", method=avem.AVEM(anchor="fixed"), init=free)
    assert fit.stop is avem.Stop.CONVERGED
    assert np.diff(fit.bound_history).min() > -0.01
    np.testing.assert_allclose(fit.effects_mean, free.effects_mean, atol=0.2)
    assert np.abs(fit.effects_mean).max() > 1.0


def test_batches_lead_to_the_same_solution(frame):
    alike = {"time": "t", "n_starts": 1, "refine": None}
    full = MODEL.fit(frame, **alike)
    batches = MODEL.fit(frame, **alike, method=avem.AVEM(batch_size=20), tol=1e-6)
    np.testing.assert_allclose(batches.bound, full.bound, atol=0.05)
    np.testing.assert_allclose(batches.params["coef"], full.params["coef"], atol=0.02)


@pytest.mark.slow
def test_batches_of_gaussian_outcomes_with_recentring():
    """Contributions made before the effects' means moved must be moved with them."""
    hmm = avem.MixedHMM("y ~ x + (1 + x | who)", 2)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": np.array([[[1.0, 0.5]], [[5.0, -0.5]]]),
        "variance": [[1.0], [1.0]],
        "effect_covariance": np.diag([1.0, 0.3]),
    }
    rows = hmm.simulate(
        truth,
        data=np_frame(50, 30),
        time="t",
        seed=2,
    ).frame
    full = hmm.fit(rows, time="t", n_starts=1)
    batches = hmm.fit(rows, time="t", n_starts=1, method=avem.AVEM(batch_size=10), tol=1e-6)
    np.testing.assert_allclose(batches.params["coef"], full.params["coef"], atol=1e-3)
    np.testing.assert_allclose(batches.bound, full.bound, atol=0.01)


def np_frame(n, n_times):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat(range(n), n_times)})
    return frame.assign(t=np.tile(range(n_times), n), x=rng.standard_normal(n * n_times))


@in_float64
def test_settled_anchors_are_modes(frame):
    """At the end no subject's next q-update moves it, and none is lower than it was."""
    from avem.effects.prior import EffectDensity, log_joint

    model, _, em = prepare_model(MODEL, frame, plain=False)
    theta = model.params_in({k: np.array(v) for k, v in TRUTH.items()})
    start = state_at(em.data, theta, np.zeros((1, N)))
    before, state = passes_at(em.e, start), em.e.e_step(start, 1e-4).state
    for _ in range(4):
        state = em.e.e_step(state, 1e-7).state
    after = passes_at(em.e, state)
    real = np.asarray(chunk_of(em).real)
    move = (np.asarray(after[0].mean) - anchors_at(em, state)[0])[:, real]
    assert np.sqrt((move**2).mean()) < 1e-4

    def height(p, anchors):
        return log_joint(p.loglik, EffectDensity.of(theta["effect_covariance"]), anchors)

    rise = height(after[0], anchors_at(em, state)[0]) - height(before[0], anchors_at(em, start)[0])
    assert rise[real].min() >= -1e-6
    assert rise.max() > 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anchor": "median"}, "available: mean, optimal, fixed"),
        ({"q_update": "exact"}, "available: laplace, quadrature"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"method": avem.AVEM(batch_size=10), "plain": True}, "the mean anchor, and without plain"),
    ],
)
def test_bad_ways_are_refused(frame, options, words):
    with pytest.raises(avem.ModelError, match=words):
        MODEL.fit(frame, time="t", **options)
