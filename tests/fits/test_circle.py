"""Residuals of angles: uniform round the circle under the true model, wherever it is cut."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, norm, vonmises

import avem
from avem.families import VonMises, WrappedCauchy
from avem.families.base import ANGLE, LOGIT
from avem.fits.predict.circle import lowest, passed_round
from avem.fits.predict.mixture import Mixture
from tests.fits.kinds import fit_from

CHAIN = {"initial": [0.5, 0.5], "transition": [[0.85, 0.15], [0.25, 0.75]]}
TRUTH = {"coef": [[[2.9]], [[0.2]]], "effect_covariance": np.zeros((0, 0))} | CHAIN
CONCENTRATION = {"von_mises": [[0.6], [5.0]], "wrapped_cauchy": [[0.3], [0.8]]}


def wrapped_cauchy(y, mean, c):
    return (1 - c**2) / (1 + c**2 - 2 * c * np.cos(y - mean)) / (2 * np.pi)


DENSITY = {"von_mises": lambda y, m, k: vonmises.pdf(y, k, loc=m), "wrapped_cauchy": wrapped_cauchy}


def random_mixture(family, rows, seed=0):
    """Three parts, and what they are in words of SciPy: weights, means, concentrations."""
    rng = np.random.default_rng(seed)
    mean, weight = rng.uniform(-9, 9, (rows, 3)), rng.dirichlet(np.ones(3), rows)
    narrow = rng.uniform(0.1, 0.9, (rows, 3))
    if family.name == "von_mises":
        narrow = 8 * narrow
    link = LOGIT.to_eta if family.name == "wrapped_cauchy" else np.log
    return Mixture(family, weight, (mean, link(narrow)), ()), weight, mean, narrow


@pytest.mark.parametrize("family", [VonMises(), WrappedCauchy()], ids=lambda f: f.name)
def test_the_arc_is_the_integral_of_the_density_from_its_lowest_point(family):
    mixture, weight, mean, narrow = random_mixture(family, 12)
    y = np.random.default_rng(1).uniform(-2 * np.pi, 2 * np.pi, 12)
    cut, found = lowest(mixture), passed_round(mixture, y, np.full(12, 0.5))
    for row in range(12):

        def density(at, row=row):
            return weight[row] @ DENSITY[family.name](at, mean[row], narrow[row])

        every = [density(at) for at in np.linspace(-np.pi, np.pi, 721)]
        assert density(cut[row]) < min(every) + 0.01 * max(every)
        length = np.mod(y[row] - cut[row], 2 * np.pi)
        if min(length, 2 * np.pi - length) > 0.01:
            area = quad(density, cut[row], cut[row] + length, limit=200)[0]
            assert found[row] == pytest.approx(area, abs=1e-7)


def test_at_the_cut_a_random_point_of_its_arc_is_taken():
    n = 4000
    mixture = Mixture(VonMises(), np.ones((n, 1)), (np.zeros((n, 1)), np.full((n, 1), -0.5)), ())
    share = np.random.default_rng(0).random(n)
    arc = 0.01 * vonmises.pdf(np.pi, np.exp(-0.5))
    for y in (-np.pi, np.pi, 3.1416, 3 * np.pi - 0.003 - 2 * np.pi):
        passed = passed_round(mixture, np.full(n, y), share)
        near = np.where(passed > 0.5, passed - 1, passed)
        assert kstest(near, "uniform", (-arc, 2 * arc)).pvalue > 0.01
    assert (np.abs(norm.ppf(passed_round(mixture, np.full(n, -np.pi), None))) < 4).all()
    # What the model thinks impossible stays far out, on either side.
    sharp = Mixture(VonMises(), np.ones((2, 1)), (np.zeros((2, 1)), np.full((2, 1), 6.0)), ())
    far = norm.ppf(passed_round(sharp, np.array([-3.0, 3.0]), np.full(2, 0.5)))
    assert far[0] < -8
    assert far[1] > 8
    assert np.isfinite(far).all()


@pytest.mark.parametrize("family", ["von_mises", "wrapped_cauchy"])
def test_residuals_of_angles_are_normal_under_the_true_model(family):
    hmm = avem.MixedHMM("angle ~ 1", 2, family)
    truth = TRUTH | {"concentration": CONCENTRATION[family]}
    rows = pd.DataFrame({"who": np.repeat(np.arange(30), 100), "t": np.tile(np.arange(100), 30)})
    frame = hmm.simulate(truth, data=rows, subject="who", time="t", seed=2).frame
    frame.loc[frame.index % 60 == 5, "angle"] = np.nan
    fit = fit_from(hmm, truth, frame, np.zeros((30, 0)))
    for kind in ("forecast", "ordinary"):
        found = fit.residuals(kind=kind)["angle"]
        np.testing.assert_array_equal(found.isna(), frame["angle"].isna())
        assert kstest(found.dropna(), "norm").pvalue > 0.05
    # The same angles turned by whole turns, and as 0 to 2 pi, are the same.
    turned = frame.assign(angle=np.mod(frame["angle"], 2 * np.pi))
    np.testing.assert_allclose(fit.residuals(turned)["angle"], fit.residuals()["angle"], atol=1e-6)
    # Straight back, where counting from -pi gives the residual of an impossible value.
    back = fit.residuals(frame.assign(angle=-np.pi))["angle"]
    assert back.abs().max() < 6
    # Angles that have nothing to do with the model are told.
    wrong = frame.assign(angle=ANGLE.to_natural(frame["angle"] + 1.0))
    assert kstest(fit.residuals(wrong)["angle"].dropna(), "norm").pvalue < 1e-6
