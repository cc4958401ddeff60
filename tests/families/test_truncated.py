"""Values that only lie between limits: against SciPy, and fits that see what was cut off."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import minimize

import avem
from avem.errors import DataError, ModelError
from tests.chosen import chosen
from tests.families.test_censored import REFERENCES, densities

LIMITS = [(0.5, 3.0), (0.5, None), (None, 3.0)]
some_base = pytest.mark.parametrize("word", chosen(REFERENCES, ("gaussian",)))


def points(word, low, high, size=256):
    """Values between the limits and predictors, of one size for all families."""
    rng = np.random.default_rng(1)
    y = rng.uniform(0.1 if low is None else low, 6.0 if high is None else high, size)
    return y, tuple(rng.uniform(-1.5, 1.5, (2, size))[: 1 if word == "exponential" else 2])


def truth_of(word, eta):
    return REFERENCES[word](*eta, *[0.0] * (2 - len(eta)))


@some_base
def test_the_density_is_divided_by_what_is_left(word):
    for low, high in LIMITS:
        family = avem.Truncated(word, low, high)
        y, eta = points(word, low, high)
        truth = truth_of(word, eta)
        first = truth.cdf(-np.inf if low is None else low)
        last = truth.cdf(np.inf if high is None else high)
        found, slopes, _ = densities(family, family.columns((y,)), eta)
        known = last - first > 1e-7
        assert known.mean() > 0.8
        wanted = truth.logpdf(y) - np.log(last - first)
        np.testing.assert_allclose(found[known], wanted[known], rtol=1e-6, atol=1e-6)
        for j, slope in enumerate(slopes):
            step = 1e-5 * (np.arange(len(eta)) == j)[:, None]
            ends = [
                densities(family, family.columns((y,)), tuple(np.array(eta) + way * step))[0]
                for way in (1, -1)
            ]
            np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-4, atol=1e-4)


@some_base
def test_all_is_finite_far_out(word):
    n = 1 if word == "exponential" else 2
    at = np.array(np.meshgrid(*[[-30.0, -9.0, 0.0, 9.0, 30.0]] * 2)).reshape(2, -1)
    y, eta = np.repeat([0.6, 1.0, 2.9], at.shape[1]), tuple(np.tile(at[:n], 3))
    y, *eta = (np.resize(part, 256) for part in (y, *eta))
    for low, high in LIMITS:
        family = avem.Truncated(word, low, high)
        value, first, second = densities(family, family.columns((y,)), tuple(eta))
        for part in (value, *first, *second):
            assert np.isfinite(part).all(), (low, high)
        near = tuple(np.clip(part, -2.0, 2.0) for part in eta)  # beyond, the moments themselves go
        for part in (family.cdf(y, near), family.expected(near), family.variance(near)):
            assert np.isfinite(part).all(), (low, high)


def moment(truth, power, low, high, positive):
    """By quadrature, of a positive quantity over its logarithm."""
    if not positive:
        ends = np.clip([low, high], -40, 40)
        return quad(lambda y: y**power * truth.pdf(y), *ends, limit=400, epsabs=1e-13)[0]
    ends = (-60.0 if low < 0 else np.log(low), 30.0 if np.isinf(high) else np.log(high))
    parts = np.linspace(*ends, 40)
    return sum(
        quad(lambda t: np.exp((power + 1) * t) * truth.pdf(np.exp(t)), a, b)[0]
        for a, b in pairwise(parts)
    )


@some_base
def test_moments_shares_and_draws(word):
    rng = np.random.default_rng(0)
    for low, high in LIMITS:
        family = avem.Truncated(word, low, high)
        for a, b in ((0.3, -0.2), (-1.0, 0.4), (1.2, 0.1)):
            eta = (a,) if word == "exponential" else (a, b)
            truth = truth_of(word, eta)
            ends = (-np.inf if low is None else low, np.inf if high is None else high)
            mass, mean, square = (
                moment(truth, power, *ends, positive=word != "gaussian") for power in range(3)
            )
            mean, square = mean / mass, square / mass
            at = tuple(np.array(part) for part in eta)
            assert family.expected(at) == pytest.approx(mean, rel=1e-6)
            assert family.variance(at) == pytest.approx(square - mean**2, rel=1e-5)
            y = np.linspace(0.1, 4.0, 9)
            shares = (truth.cdf(np.clip(y, *ends)) - truth.cdf(ends[0])) / mass
            wanted = np.where(y < ends[0], 0.0, np.clip(shares, 0, 1))
            np.testing.assert_allclose(family.cdf(y, at), wanted, atol=1e-7)
            drawn = family.draw(rng, tuple(np.full(2000, part) for part in eta), ())
            assert stats.kstest(family.cdf(drawn, at), "uniform").pvalue > 1e-3


@some_base
def test_limits_that_cut_nothing_off_are_none(word):
    y, eta = points(word, None, None)
    family = avem.Truncated(word, lower=-1e60 if word == "gaussian" else 0.0, upper=1e60)
    found = densities(family, family.columns((y,)), eta)[0]
    np.testing.assert_allclose(found, truth_of(word, eta).logpdf(y), rtol=1e-8, atol=1e-8)


# --- fits -----------------------------------------------------------------------------------------

CUT, UNIT = -0.5, 1e-6


def panel(seed=3):
    """Two states at 0 and 4 with sd 1, of which only values above -0.5 were kept."""
    model = avem.MixedHMM("y ~ 1", 2)
    params = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[0.0]], [[4.0]]],
        "variance": [[1.0], [1.0]],
    }
    drawn = model.simulate(params, 16, 50, subject="who", seed=seed)
    rng, frame = np.random.default_rng(seed), drawn.frame.assign(state=drawn.states)
    cut = frame["y"] < CUT
    while cut.any():  # drawn again, as long as they are not recorded
        frame.loc[cut, "y"] = 4.0 * frame.loc[cut, "state"] + rng.normal(size=cut.sum())
        cut = frame["y"] < CUT
    return frame


@pytest.fixture(scope="module")
def cut():
    frame = panel()
    frame["y"] = UNIT * frame["y"]
    model = avem.MixedHMM("y ~ 1", 2, avem.Truncated(avem.Gaussian, lower=CUT * UNIT))
    return frame, model.fit(frame, "who", n_starts=1)


def test_a_fit_sees_what_was_cut_off(cut):
    frame, fit = cut
    mean, sd = fit.params["coef"][:, 0, 0] / UNIT, fit.params["sd"][:, 0] / UNIT
    np.testing.assert_allclose(mean, [0.0, 4.0], atol=0.45)
    np.testing.assert_allclose(sd, 1.0, atol=0.2)
    plain = avem.MixedHMM("y ~ 1", 2).fit(frame, "who", n_starts=1)  # the control
    assert plain.params["coef"][0, 0, 0] / UNIT > 0.35
    assert float(fit.loglik()) > float(plain.loglik()) + 10


def test_the_maximum_is_that_of_another_optimiser(cut):
    """Of the likelihood by the forward recursion, in the user's own unit."""
    frame, fit = cut

    def negative(v):
        mean, sd = v[:2], np.exp(v[2:4])
        leave = 1 / (1 + np.exp(-v[4:6]))
        moves = np.array([[1 - leave[0], leave[0]], [leave[1], 1 - leave[1]]])
        first = 1 / (1 + np.exp(-v[6]))
        total = 0.0
        for _, own in frame.groupby("who"):
            y = own["y"].to_numpy()[:, None] / UNIT
            density = stats.norm.pdf(y, mean, sd) / stats.norm.sf(CUT, mean, sd)
            now = np.array([1 - first, first]) * density[0]
            for row in density[1:]:
                total += np.log(now.sum())
                now = (now / now.sum()) @ moves * row
            total += np.log(now.sum())
        return -total

    best = minimize(negative, [0.1, 4, 0, 0, -2, -2, 0], method="BFGS", options={"gtol": 1e-4})
    wanted = -best.fun - len(frame) * np.log(UNIT)
    assert float(fit.loglik()) == pytest.approx(wanted, abs=1e-4)
    np.testing.assert_allclose(fit.params["coef"][:, 0, 0] / UNIT, best.x[:2], atol=5e-3)


def test_what_is_done_with_a_fit(cut, tmp_path):
    frame, fit = cut
    assert fit.simulate(seed=1).frame["y"].min() >= CUT * UNIT
    assert stats.kstest(fit.residuals()["y"], "norm").pvalue > 1e-3
    ahead = fit.predict(horizon=2)
    assert (ahead["lower"] >= CUT * UNIT * (1 - 1e-6)).all()
    assert (ahead["mean"] > ahead["lower"]).all()
    expected = fit.predictions()["y"].mean()
    assert expected == pytest.approx(frame["y"].mean(), rel=0.05)
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem").with_data(frame)
    assert float(again.loglik()) == pytest.approx(float(fit.loglik()), abs=1e-8)
    assert again.model.spec.outcomes[0].family == avem.Truncated("gaussian", lower=CUT * UNIT)
    fit.report(tmp_path / "page.html", thorough=False)
    assert "truncated Gaussian" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (fit.standard_errors()["se"].dropna() > 0).all()
    fit.plot.emissions()


def test_values_and_limits_are_checked():
    frame = pd.DataFrame({"who": np.repeat([0, 1], 20), "y": np.linspace(0.1, 4.0, 40)})
    with pytest.raises(DataError, match=r"'y' is 0.1 at .*positive numbers from 0.5 to inf"):
        avem.MixedHMM("y ~ 1", 1, avem.Truncated("gamma", lower=0.5)).fit(frame, "who")
    for bad, message in (
        ({}, "A truncated outcome needs the family of the quantity and a limit"),
        ({"lower": 2, "upper": 1}, "is not below"),
        ({"lower": "column"}, "a number is wanted"),
        ({"upper": -np.inf}, "leaves no value"),
    ):
        with pytest.raises(ModelError, match=message):
            avem.Truncated("gamma", **bad)
    with pytest.raises(ModelError, match="Truncated family is 'poisson'; available: gaussian"):
        avem.Truncated("poisson", lower=1)
    with pytest.raises(ModelError, match="needs the family of the quantity"):
        avem.MixedHMM("y ~ 1", 2, "truncated")
