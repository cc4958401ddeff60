"""Every method as the user calls it: against the authors' numbers, dense integrals, each other."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import avem
from avem.inference.methods.names import METHODS
from tests.chosen import chosen
from tests.inference.test_reference_fits import FOLDER, load, model, start

# Origin: the authors' quadrature EM (9 and 25 nodes per dimension; 20 and 60 for the binary data)
# on the stored data, from the stored start, after the stated number of iterations.
QEM = json.loads((Path(__file__).parents[1] / "reference" / "qem.json").read_text())


@pytest.mark.parametrize("n_nodes", [9, pytest.param(25, marks=pytest.mark.slow)])
def test_gaussian_quadrature_em_equals_the_authors(n_nodes):
    frame, _, reference = load("gauss_K2_d2_n40_T40")
    wanted = QEM[f"gauss_K2_d2_n40_T40_qem{n_nodes}"]
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        fit = model(reference).fit(
            frame,
            init=start(reference),
            method=avem.Quadrature(n_nodes),
            plain=True,
            max_iter=wanted["iterations"],
            tol=0.0,
        )
    np.testing.assert_allclose(fit.params["coef"][:, :, 0], wanted["mu"], atol=1e-6)
    np.testing.assert_allclose(fit.params["variance"], wanted["sigma2"], atol=1e-6)
    np.testing.assert_allclose(fit.params["effect_covariance"][0, 0], wanted["tau2"], atol=1e-6)
    np.testing.assert_allclose(fit.params["transition"], wanted["Gamma"], atol=1e-6)
    np.testing.assert_allclose(fit.bound_history, wanted["objective_trace"], rtol=1e-9)


@pytest.fixture(scope="module")
def choices():
    with np.load(FOLDER / "bern_K2_n40_T200.npz") as arrays:
        y = arrays["y"].reshape(40, 200)
    frame = pd.DataFrame({"subject": np.repeat(range(40), 200), "time": np.tile(range(200), 40)})
    return frame.assign(y1=y.ravel().astype(float))


BERNOULLI = avem.MixedHMM("y1 ~ 1 + (1 | subject)", 2, "bernoulli")
START = {
    "coef": np.array([[[-0.4]], [[0.4]]]),
    "transition": [[0.85, 0.15], [0.15, 0.85]],
    "initial": [0.5, 0.5],
    "effect_covariance": [[0.7]],
}


@pytest.mark.slow
def test_bernoulli_quadrature_em_equals_the_authors(choices):
    wanted = QEM["bern_K2_n40_T200_qem60"]
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        fit = BERNOULLI.fit(
            choices,
            time="time",
            init=START,
            method=avem.Quadrature(60),
            plain=True,
            max_iter=wanted["iterations"],
            tol=0.0,
        )
    np.testing.assert_allclose(fit.params["coef"][:, 0, 0], wanted["beta"], atol=1e-3)
    np.testing.assert_allclose(fit.params["effect_covariance"][0, 0], wanted["tau2"], atol=1e-3)
    np.testing.assert_allclose(fit.bound_history, wanted["objective_trace"], atol=2e-3)


def small_panel(seed=3):
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.8, 0.2], [0.3, 0.7]],
        "coef": np.array([[[-1.0]], [[1.0]]]),
        "effect_covariance": [[0.6]],
    }
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "bernoulli")
    return hmm, truth, hmm.simulate(truth, 16, 30, seed=seed).frame


def log_likelihood(frame, truth, n=4001):
    """The marginal log likelihood by a dense grid over the effect and a plain forward pass."""
    grid = np.linspace(-7, 7, n)
    sd = np.sqrt(truth["effect_covariance"][0][0])
    total = 0.0
    for _, own in frame.groupby("who"):
        p = 1 / (1 + np.exp(-(np.array(truth["coef"])[:, 0] + grid)))
        alpha, height = np.array(truth["initial"])[:, None] * np.ones(n), np.zeros(n)
        for t, y in enumerate(own["y"]):
            alpha = alpha if t == 0 else np.array(truth["transition"]).T @ alpha
            alpha = alpha * (p if y == 1 else 1 - p)
            height += np.log(alpha.sum(0))
            alpha = alpha / alpha.sum(0)
        density = np.exp(height - height.max()) * norm.pdf(grid, scale=sd)
        total += height.max() + np.log(np.trapezoid(density, grid))
    return total


def test_the_log_likelihood_equals_a_dense_integral():
    hmm, truth, frame = small_panel()
    fit = hmm.fit(frame, time="time", method=avem.Quadrature(40), fixed=truth)
    assert fit.bound_name == "log likelihood"
    np.testing.assert_allclose(fit.bound, log_likelihood(frame, truth), rtol=1e-6)


@pytest.mark.slow
def test_integrals_agree_with_many_nodes():
    hmm, _, frame = small_panel()
    exact = hmm.fit(frame, time="time", method=avem.Quadrature(200))
    drawn = hmm.fit(frame, time="time", method=avem.MonteCarlo(3000))
    adaptive = hmm.fit(frame, time="time", method="adaptive")
    np.testing.assert_allclose(drawn.bound, exact.bound, atol=0.3)
    # The likelihood is flat here: what draws miss of it, 0.1, is 0.4 of a coefficient.
    np.testing.assert_allclose(drawn.params["coef"], exact.params["coef"], atol=0.5)
    np.testing.assert_allclose(adaptive.bound, exact.bound, atol=1e-3)
    np.testing.assert_allclose(adaptive.params["coef"], exact.params["coef"], atol=5e-3)
    assert exact.bound_history[-1] >= exact.bound_history[0]
    # Effects, too: their posterior, not the anchored one.
    np.testing.assert_allclose(adaptive.effects_mean, exact.effects_mean, atol=0.01)
    np.testing.assert_allclose(adaptive.effects_cov, exact.effects_cov, atol=0.01)


@pytest.mark.slow
def test_fresh_draws_end_where_the_noise_hides_the_rest():
    hmm, _, frame = small_panel()
    exact = hmm.fit(frame, time="time", method="adaptive")
    options = {"method": avem.MonteCarlo(300, fresh_draws=True), "seed": 1}
    fit = hmm.fit(frame, time="time", **options)
    assert fit.stop is avem.Stop.CONVERGED
    assert np.std(np.diff(fit.bound_history)) > 1e-4  # the draws do change
    np.testing.assert_allclose(fit.bound, exact.bound, atol=2.0)
    again = hmm.fit(frame, time="time", **options)
    np.testing.assert_array_equal(fit.bound_history, again.bound_history)


@pytest.fixture(scope="module")
def plain_em():
    _, _, frame = small_panel()
    return avem.MixedHMM("y ~ 1", 2, "bernoulli").fit(frame, subject="who", time="time", n_starts=2)


@pytest.mark.parametrize("method", chosen(METHODS, ("avem", "quadrature", "adaptive")))
def test_without_variance_every_method_is_plain_em(method, plain_em):
    hmm, _, frame = small_panel()
    plain, none = plain_em, {"effect_covariance": [[1e-10]]}
    fit = hmm.fit(frame, time="time", method=method, refine=None, fixed=none, n_starts=2)
    np.testing.assert_allclose(fit.bound, plain.bound, atol=1e-3)
    np.testing.assert_allclose(fit.params["transition"], plain.params["transition"], atol=0.02)


# --- refinement ---------------------------------------------------------------------------------


def overlapping(n_times=100, tau2=0.25, seed=1):
    """States that are hard to tell apart: the anchored variance collapses."""
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": np.array([[[-1.5]], [[1.5]]]),
        "effect_covariance": [[tau2]],
    }
    return BERNOULLI.simulate(truth, 40, n_times, seed=seed).frame.rename(columns={"y": "y1"})


@pytest.fixture(scope="module")
def collapse():
    frame = overlapping()
    return {refine: BERNOULLI.fit(frame, time="time", refine=refine) for refine in (None, "auto")}


def test_a_collapsed_variance_is_refined_by_itself(collapse):
    anchored, refined = collapse[None], collapse["auto"]
    assert anchored.params["effect_covariance"][0, 0] < 0.02
    assert 0.1 < refined.params["effect_covariance"][0, 0] < 0.7
    assert refined.info.refined
    assert not anchored.info.refined
    assert refined.bound_name == "log likelihood"
    assert refined.info.lost[0] > 0.5
    assert any("refined to maximum likelihood" in note for note in refined.info.notes)
    assert any("likely too small: use refine='adaptive'" in note for note in anchored.info.notes)


def test_the_log_likelihood_of_a_fit(collapse):
    anchored, refined = collapse[None], collapse["auto"]
    assert refined.loglik() == pytest.approx(refined.bound, abs=1e-3)
    assert refined.loglik() > anchored.loglik() + 0.1
    assert anchored.loglik() > anchored.bound - 1e-6
    assert refined.loglik().error < 0.01
    found = refined.loglik()
    assert found.by_subject.sum() == pytest.approx(float(found))
    truth = {name: value.tolist() for name, value in refined.params.items()}
    frame = refined.panel.table.rename(columns={"subject": "who", "y1": "y"})
    np.testing.assert_allclose(float(found), log_likelihood(frame, truth), rtol=1e-6)
    # As new data, the same rows have the same likelihood.
    assert refined.loglik(refined.panel) == pytest.approx(float(found), abs=0.02)


def test_separated_states_are_left_as_they_are():
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[-3.0]], [[3.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[0.5]],
    }
    frame = hmm.simulate(truth, 15, 30, seed=0).frame
    fit = hmm.fit(frame, time="time")
    assert not fit.info.refined
    assert fit.info.lost[0] < 0.1
    refined = hmm.fit(frame, time="time", refine="adaptive")
    np.testing.assert_allclose(
        refined.params["effect_covariance"], fit.params["effect_covariance"], rtol=0.02
    )


def test_the_papers_iteration_is_never_refined_unasked(choices):
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        fit = BERNOULLI.fit(choices, time="time", init=START, plain=True, max_iter=3)
    assert not fit.info.refined
    assert fit.info.lost == ()


# Origin: marginal log likelihood on a dense grid at the best known fits of the stored data.
BEST_KNOWN = {"gauss_K3_d2_n100_T80": -25239.15, "gauss_K2_d2_n40_T40": -5161.91}


@pytest.mark.parametrize(
    "name",
    ["gauss_K2_d2_n40_T40", pytest.param("gauss_K3_d2_n100_T80", marks=pytest.mark.slow)],
)
def test_refinement_climbs_above_the_best_known_fits(name):
    frame, _, reference = load(name)
    fit = model(reference).fit(frame, refine="adaptive")
    assert fit.stop is avem.Stop.CONVERGED
    assert fit.bound >= BEST_KNOWN[name]
    assert fit.bound < BEST_KNOWN[name] + 2  # not by an error of the integral
    assert fit.loglik().error < 0.1


@pytest.mark.slow
def test_refinement_climbs_above_the_best_known_bernoulli_fit(choices):
    fit = BERNOULLI.fit(choices, time="time", refine="adaptive")
    frame = choices.rename(columns={"subject": "who", "y1": "y"})
    truth = {name: value.tolist() for name, value in fit.params.items()}
    by_grid = log_likelihood(frame, truth)
    assert by_grid >= -4512.995
    np.testing.assert_allclose(fit.bound, by_grid, rtol=1e-6)


# --- partial anchoring --------------------------------------------------------------------------


def localized(seed, t0=10):
    """The paper's Appendix C: one effect on all steps, another on the first ones alone."""
    hmm = avem.MixedHMM(
        f"y ~ 1 + (1 + I(time < {t0}) | who)",
        2,
        avem.Gaussian("spherical"),
        effect_covariance="diagonal",
    )
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[-1.5]], [[1.5]]],
        "variance": [1.0, 1.0],
        "effect_covariance": np.diag([1.0, 1.5]),
    }
    return hmm, hmm.simulate(truth, 40, 40, seed=seed)


@pytest.mark.slow
def test_partial_anchoring_is_better_at_a_localized_effect():
    partial = avem.Partial("y: I(time < 10)", n_nodes=7)
    errors = {"avem": [], partial: []}
    for seed in range(3):
        hmm, made = localized(seed)
        for method in errors:
            fit = hmm.fit(made.frame, time="time", method=method, refine=None, n_starts=2)
            errors[method].append(np.mean((fit.effects_mean[:, 1] - made.effects[:, 1]) ** 2))
    assert fit.info.unanchored == ("y: I(time < 10)",)
    assert np.mean(errors[partial]) < np.mean(errors["avem"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "guess"}, "available: avem, partial, mean_field"),
        ({"refine": None, "n_nodes": 5}, "n_nodes is for the methods quadrature"),
        ({"method": "partial", "n_draws": 8, "refine": None}, "n_draws is for the methods monte"),
        ({"method": "quadrature", "n_nodes": 0}, "n_nodes is 0"),
        ({"method": avem.Quadrature(30_000)}, "local passes per subject"),
        ({"method": "quadrature", "batch_size": 5}, "batch_size goes with method='avem'"),
        ({"refine": "more"}, "refine is 'more'; available: 'adaptive'"),
        ({"method": "adaptive", "refine": "adaptive"}, "maximises it already"),
        ({"unanchored": ["y: Intercept"]}, "unanchored is for method='partial'"),
        ({"method": avem.Partial(["z"])}, "the effects are y: Intercept"),
        ({"fresh_draws": True}, "fresh_draws is for method='monte_carlo'"),
        ({"method": "adaptive", "n_draws": 100}, "powers of 2"),
    ],
)
def test_bad_methods_are_refused(options, words):
    """Options that fit() once had, which move into the method, are refused as they were."""
    hmm, _, frame = small_panel()
    with pytest.raises(avem.ModelError, match=words):
        hmm.fit(frame, time="time", **options)


@pytest.mark.parametrize("seed", [406590133, pytest.param(3478692713, marks=pytest.mark.slow)])
def test_no_likelihood_is_found_between_the_nodes(seed):
    """Panels in which a variance near 0 once seemed to have a likelihood that it does not have."""
    chances = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")
    truth = {
        "initial": np.full(2, 0.5),
        "transition": np.array([[0.92, 0.08], [0.08, 0.92]]),
        "coef": np.array([[[-1.5]], [[1.5]]]),
        "effect_covariance": np.array([[0.25]]),
    }
    frame = chances.simulate(truth, 40, 100, seed=seed).frame
    fit = chances.fit(frame, time="time", refine="adaptive", n_starts=1)
    assert fit.bound == pytest.approx(float(fit.loglik()), abs=1e-2)
    # Quadrature with nodes of the prior goes the other way, from a variance that is too large.
    other = chances.fit(frame, time="time", method=avem.Quadrature(20), n_starts=1)
    assert float(fit.loglik()) > other.bound - 1e-2


@pytest.mark.slow
def test_no_likelihood_is_found_between_the_nodes_of_two_effects():
    """A panel in which the log likelihood once seemed to be 46 higher than it is."""
    chances = avem.MixedHMM("y ~ x + (x | subject)", 2, "bernoulli")
    truth = {
        "initial": np.full(2, 0.5),
        "transition": np.array([[0.92, 0.08], [0.08, 0.92]]),
        "coef": np.array([[[-1.5, 0.5]], [[1.5, 0.5]]]),
        "effect_covariance": np.diag([0.1, 0.05]),
    }
    n, n_times, seed = 40, 60, 6
    x = np.random.default_rng(seed).normal(size=n * n_times)
    who, when = np.repeat(np.arange(n), n_times), np.tile(np.arange(n_times), n)
    frame = pd.DataFrame({"subject": who, "time": when, "x": x})
    frame = chances.simulate(truth, data=frame, time="time", seed=seed).frame
    fit = chances.fit(frame, time="time", refine="adaptive")
    assert fit.bound == pytest.approx(float(fit.loglik()), abs=0.05)
    assert fit.stop is avem.Stop.CONVERGED


@pytest.mark.slow
def test_several_modes_count_as_information_lost():
    """Short sequences: near the anchors all is well, but the states may have other names."""
    three = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 3, "gaussian")
    truth = {
        "initial": np.full(3, 1 / 3),
        "transition": np.full((3, 3), 0.03) + 0.91 * np.eye(3),
        "coef": np.tile(np.array([-1.5, 0.0, 1.5])[:, None, None], (1, 2, 1)),
        "variance": np.full((3, 2), 0.3),
        "effect_covariance": 2.0 * np.eye(2),
    }
    frame = three.simulate(truth, 30, 12, seed=1).frame
    fit = three.fit(frame, time="time", n_starts=1)
    assert min(fit.info.lost) > 0.2
    assert fit.info.refined
    anchored = three.fit(frame, time="time", n_starts=1, refine=None)
    assert float(fit.loglik()) > float(anchored.loglik()) + 0.5
    effects = anchored.diagnose().effects
    # Without the modes it would look as if anchoring held.
    near = 1 - effects["information_observed"] / effects["information_complete"]
    assert near.max() < 0.1
    assert (effects["between_modes"] > 0.3).all()
    assert (effects["lost"] > near).all()
