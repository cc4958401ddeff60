"""Quadrature and Monte Carlo EM against the authors' numbers, dense integrals and each other."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import avem
from tests.inference.test_reference_fits import FOLDER, load, model, start

# Origin: the authors' quadrature EM (9 and 25 nodes per dimension; 20 and 60 for the binary data)
# on the stored data, from the stored start, after the stated number of iterations.
QEM = json.loads((Path(__file__).parents[1] / "reference" / "qem.json").read_text())


@pytest.mark.parametrize("n_nodes", [9, 25])
def test_gaussian_quadrature_em_equals_the_authors(n_nodes):
    frame, _, reference = load("gauss_K2_d2_n40_T40")
    wanted = QEM[f"gauss_K2_d2_n40_T40_qem{n_nodes}"]
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        fit = model(reference).fit(
            frame,
            init=start(reference),
            method="quadrature",
            n_nodes=n_nodes,
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


def test_bernoulli_quadrature_em_equals_the_authors(choices):
    wanted = QEM["bern_K2_n40_T200_qem60"]
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        fit = BERNOULLI.fit(
            choices,
            time="time",
            init=START,
            method="quadrature",
            n_nodes=60,
            plain=True,
            max_iter=wanted["iterations"],
            tol=0.0,
        )
    np.testing.assert_allclose(fit.params["coef"][:, 0, 0], wanted["beta"], atol=1e-3)
    np.testing.assert_allclose(fit.params["effect_covariance"][0, 0], wanted["tau2"], atol=1e-3)
    np.testing.assert_allclose(fit.bound_history, wanted["objective_trace"], atol=2e-3)


def small_panel(seed=0):
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.8, 0.2], [0.3, 0.7]],
        "coef": np.array([[[-1.0]], [[1.0]]]),
        "effect_covariance": [[0.6]],
    }
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2, "bernoulli")
    return hmm, truth, hmm.simulate(truth, 12, 15, seed=seed).frame


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
    fit = hmm.fit(frame, time="time", method="quadrature", n_nodes=40, fixed=truth)
    assert fit.bound_name == "log likelihood"
    np.testing.assert_allclose(fit.bound, log_likelihood(frame, truth), rtol=1e-6)


def test_quadrature_and_monte_carlo_agree_with_many_nodes():
    hmm, _, frame = small_panel()
    exact = hmm.fit(frame, time="time", method="quadrature", n_nodes=30)
    drawn = hmm.fit(frame, time="time", method="monte_carlo", n_draws=3000)
    np.testing.assert_allclose(drawn.bound, exact.bound, atol=0.3)
    np.testing.assert_allclose(drawn.params["coef"], exact.params["coef"], atol=0.15)
    assert exact.bound_history[-1] >= exact.bound_history[0]


def test_without_variance_every_method_is_plain_em():
    hmm, _, frame = small_panel()
    none = {"effect_covariance": [[1e-10]]}
    plain = avem.MixedHMM("y ~ 1", 2, "bernoulli").fit(frame, subject="who", time="time")
    for method in ("avem", "quadrature", "monte_carlo"):
        fit = hmm.fit(frame, time="time", method=method, fixed=none)
        np.testing.assert_allclose(fit.bound, plain.bound, atol=1e-3)
        np.testing.assert_allclose(fit.params["transition"], plain.params["transition"], atol=0.02)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "guess"}, "available: avem, partial, mean_field"),
        ({"n_nodes": 5}, "n_nodes is for method='quadrature'"),
        ({"method": "quadrature", "n_draws": 5}, "n_draws is for the methods monte_carlo"),
        ({"method": "quadrature", "n_nodes": 0}, "n_nodes is 0"),
        ({"method": "quadrature", "n_nodes": 30_000}, "local passes per subject"),
        ({"method": "quadrature", "batch_size": 5}, "batch_size goes with method='avem'"),
    ],
)
def test_bad_methods_are_refused(options, words):
    hmm, _, frame = small_panel()
    with pytest.raises(avem.ModelError, match=words):
        hmm.fit(frame, time="time", **options)
