"""Values beyond a limit: their probabilities against SciPy's distribution functions."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import stats

import avem
from avem.errors import DataError, ModelError
from avem.numerics.precision import in_float64

REFERENCES = {
    "gaussian": lambda a, b: stats.norm(a, np.exp(b)),
    "log_normal": lambda a, b: stats.lognorm(np.exp(b), scale=np.exp(a)),
    "gamma": lambda a, b: stats.gamma(np.exp(b), scale=np.exp(a - b)),
    "weibull": lambda a, b: stats.weibull_min(np.exp(b), scale=np.exp(a)),
    "exponential": lambda a, b: stats.expon(scale=np.exp(a)),
}


def in_columns(word):
    """Every row with limits of its own."""
    return avem.Censored(word, lower="low", upper="high")


every_base = pytest.mark.parametrize("word", REFERENCES)


@in_float64
def densities(family, y, eta):
    """As NumPy."""
    return jax.tree.map(np.asarray, compiled(family, y, eta))


@partial(jax.jit, static_argnums=0)
def compiled(family, y, eta):
    """Log density with its first and second derivatives, elementwise."""

    def along(function, which):
        unit = tuple(np.ones(1) * (i == which) + 0 * e for i, e in enumerate(eta))
        return lambda *at: jax.jvp(function, at, unit)[1]

    def value(*at):
        return family.log_density(y, at)

    first = [along(value, j) for j in range(len(eta))]
    second = [along(f, j) for i, f in enumerate(first) for j in range(i + 1)]
    return value(*eta), [f(*eta) for f in first], [f(*eta) for f in second]


def grid(word):
    """Limits and predictors, of one size for all families."""
    rng = np.random.default_rng(0)
    y = rng.choice([0.02, 0.5, 1.0, 3.0, 20.0], 512)
    eta = rng.uniform(-1.5, 1.5, (2, 512))
    return y, tuple(eta[: 1 if word == "exponential" else 2])


@every_base
def test_beyond_a_limit_counts_its_probability(word):
    family = avem.Censored(word, lower=0.5, upper=3.0)
    y, eta = grid(word)
    value, side = family.columns((y,))
    np.testing.assert_array_equal(value, np.clip(y, 0.5, 3.0))
    found, *_ = densities(in_columns(word), (value, side), eta)
    truth = REFERENCES[word](*eta, *[0.0] * (2 - len(eta)))
    expected = np.where(y <= 0.5, truth.logcdf(0.5), np.where(y >= 3, truth.logsf(3.0), np.nan))
    inside = np.isnan(expected)
    assert 50 < inside.sum() < 200
    expected[inside] = truth.logpdf(y)[inside]
    known = np.isfinite(expected) & (expected > -600)
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-9, atol=1e-9)
    assert known.mean() > 0.9


@every_base
def test_derivatives_equal_differences(word):
    family = in_columns(word)
    y, eta = grid(word)
    columns = (y, np.resize([-1.0, 0.0, 1.0], len(y)))
    _, first, second = densities(family, columns, eta)
    step, pairs = 1e-5, [(i, j) for i in range(len(eta)) for j in range(i + 1)]
    for j in range(len(eta)):
        moved = [
            densities(family, columns, tuple(e + s * step * (i == j) for i, e in enumerate(eta)))
            for s in (1, -1)
        ]
        by_value = (moved[0][0] - moved[1][0]) / (2 * step)
        size = 1 + np.abs(second).max(0)
        np.testing.assert_allclose(first[j] / size, by_value / size, atol=1e-7)
        for (i, k), found in zip(pairs, second, strict=True):
            if k == j:
                by_first = (moved[0][1][i] - moved[1][1][i]) / (2 * step)
                np.testing.assert_allclose(found / size, by_first / size, atol=1e-6)


@every_base
def test_all_is_finite_far_out(word):
    family = in_columns(word)
    n = 1 if word == "exponential" else 2
    at = np.array(np.meshgrid(*[[-30.0, -9.0, 0.0, 9.0, 30.0]] * 2)).reshape(2, -1)
    y = np.repeat([1e-6, 1.0, 80.0], at.shape[1] * 3)
    side = np.tile(np.repeat([-1.0, 0.0, 1.0], at.shape[1]), 3)
    eta = np.tile(at[:n], 9)
    y, side, *eta = (np.resize(part, 512) for part in (y, side, *eta))  # compiled once
    value, first, second = densities(family, (y, side), tuple(eta))
    for part in (value, *first, *second):
        assert np.isfinite(part).all()


@every_base
def test_limits_at_infinity_are_none(word):
    """The density is that of the quantity itself."""
    family = in_columns(word)
    y, eta = grid(word)
    columns = family.columns((y, np.full(len(y), -np.inf), np.full(len(y), np.inf)))
    np.testing.assert_array_equal(columns[1], 0.0)
    truth = REFERENCES[word](*eta, *[0.0] * (2 - len(eta)))
    found, expected = densities(family, columns, eta)[0], truth.logpdf(y)
    known = np.isfinite(expected)
    np.testing.assert_allclose(found[known], expected[known], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_a_fit_without_limits_is_that_of_the_family():
    frame = panel()
    frame["low"], frame["high"] = -np.inf, np.inf
    free = avem.MixedHMM(avem.outcome("y ~ 1 + (1 | who)", "gaussian", sd="~ 1"), 2)
    none = avem.Censored("gaussian", lower="low", upper="high")
    options = {"n_starts": 1, "refine": None}
    one = free.fit(frame, **options)
    other = avem.MixedHMM("y ~ 1 + (1 | who)", 2, none).fit(frame, **options)
    np.testing.assert_allclose(other.params["coef"], one.params["coef"], rtol=1e-6)
    np.testing.assert_allclose(np.log(other.params["sd"]), one.params["sd_coef"][..., 0], atol=1e-6)
    np.testing.assert_allclose(other.bound, one.bound, rtol=1e-9)


def panel(seed=0, n=12, n_times=60, spread=0.5):
    """Two states, at 0 and 4, with effects of this standard deviation."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(n), n_times)
    state = (np.arange(n * n_times) // 15) % 2
    effect = spread * rng.standard_normal(n)
    y = 4.0 * state + effect[who] + rng.standard_normal(n * n_times)
    return pd.DataFrame({"who": who, "y": y, "state": state})


@pytest.fixture(scope="module", params=[0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def tobit(request):
    """A fifth of the values below the limit of -0.5 of detection, in other units."""
    frame = panel(spread=request.param)
    frame["y"] = 1e-6 * np.maximum(frame["y"], -0.5)
    formula = "y ~ 1 + (1 | who)" if request.param else "y ~ 1"
    model = avem.MixedHMM(formula, 2, avem.Censored(avem.Gaussian, lower=-0.5e-6))
    return frame, model.fit(frame, "who", n_starts=1, refine=None)


def test_a_fit_sees_beyond_the_limit(tobit):
    frame, fit = tobit
    share = (frame["y"] <= -0.5e-6).mean()
    assert 0.1 < share < 0.3
    low, high = 1e6 * fit.params["coef"][:, 0, 0]
    sd = 1e6 * fit.params["sd"][:, 0]
    assert abs(low - panel(spread=0.5 * fit.model.n_effects).query("state == 0")["y"].mean()) < 0.15
    assert abs(high - 4) < 0.3
    assert (np.abs(np.log(sd)) < 0.12).all()
    # Taken as they are, the values at the limit pull the spread in.
    formula = "y ~ 1 + (1 | who)" if fit.model.n_effects else "y ~ 1"
    naive = avem.MixedHMM(formula, 2).fit(frame, "who", n_starts=1, refine=None)
    assert 1e6 * np.sqrt(naive.params["variance"][0, 0]) < 0.8
    assert 1e6 * naive.params["coef"][0, 0, 0] > low + 0.1


def test_only_densities_have_a_unit(tobit):
    frame, fit = tobit
    of_row = fit.model.log_jacobian(fit._own_data.y)
    np.testing.assert_array_equal(of_row == 0, frame["y"] <= -0.5e-6)
    assert len(np.unique(of_row)) == 2


@pytest.mark.slow
def test_the_likelihood_does_not_depend_on_the_unit(tobit):
    """Densities change with it, probabilities beyond the limit do not."""
    frame, fit = tobit
    other = frame.assign(y=1e6 * frame["y"])
    formula = "y ~ 1 + (1 | who)" if fit.model.n_effects else "y ~ 1"
    model = avem.MixedHMM(formula, 2, avem.Censored("gaussian", lower=-0.5))
    same = model.fit(other, "who", n_starts=1, refine=None)
    n_inside = (other["y"] > -0.5).sum()
    np.testing.assert_allclose(fit.bound, same.bound + n_inside * np.log(1e6), rtol=1e-8)
    np.testing.assert_allclose(1e6 * fit.params["coef"], same.params["coef"], rtol=1e-5)


def test_what_is_done_with_a_fit(tobit, tmp_path):
    frame, fit = tobit
    drawn = fit.simulate(seed=1).frame["y"]
    assert drawn.min() == -0.5e-6
    assert 0.05 < (drawn == -0.5e-6).mean() < 0.4
    residuals = fit.residuals()["y"]
    assert stats.kstest(residuals, "norm").pvalue > 1e-3
    lower = fit.predict(horizon=20)["lower"]
    assert (lower < -0.5e-6).any()  # of the quantity itself
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem")
    family = avem.Censored("gaussian", lower=-0.5e-6)
    assert again.model.spec.outcomes[0].family == family
    assert "censored Gaussian" in str(fit.summary(errors=False))
    with pytest.raises(DataError, match="density with a probability beyond the limits"):
        avem.compare({"a": fit, "b": avem.MixedHMM("y ~ 1", 1).fit(frame, "who")})


def test_limits_of_coming_rows_are_not_needed():
    frame = panel(n=4, n_times=20).assign(low=0.5)
    frame["y"] = np.maximum(frame["y"], frame["low"])
    model = avem.MixedHMM("y ~ 1", 1, avem.Censored("exponential", lower="low"))
    fit = model.fit(frame, "who", n_starts=1)
    ahead, mean = fit.predict(horizon=2), np.exp(fit.params["coef"].item())
    # A constant hazard beyond what was seen: time at risk per event, if values below had none.
    assert mean > 0.5
    np.testing.assert_allclose(ahead[["mean", "sd"]], mean, rtol=1e-6)


def test_values_and_limits_are_checked():
    frame = panel()
    model = avem.MixedHMM("y ~ 1", 2, avem.Censored("gamma", lower="low"))
    with pytest.raises(DataError, match=r"'y' is -?[\d.]+ at .*a censored outcome takes positive"):
        model.fit(frame.assign(low=-5.0), "who")
    fine = frame.assign(low=0.1)
    fine.loc[3, "low"] = np.nan
    with pytest.raises(DataError, match=r"'low' is missing at .*where the outcome 'y' is observed"):
        model.fit(fine, "who")
    for bad, message in (
        ({}, "needs the family of the quantity and a limit"),
        ({"lower": 2, "upper": 1}, "is not below"),
        ({"lower": np.inf}, "leaves no value"),
        ({"lower": True}, "a number or the name of a column"),
    ):
        with pytest.raises(ModelError, match=message):
            avem.Censored("gamma", **bad)
    unknown = avem.Censored("gaussian", lower="low").draw(
        np.random.default_rng(0), (np.zeros(5), np.zeros(5)), (np.full(5, np.nan),)
    )
    assert np.isfinite(unknown).all()  # a limit that is not known is none
    with pytest.raises(ModelError, match="available: gaussian, log_normal"):
        avem.Censored("poisson", lower=1)
    with pytest.raises(ModelError, match="needs the family of the quantity"):
        avem.MixedHMM("y ~ 1", 2, "censored")
