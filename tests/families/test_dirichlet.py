"""Parts of a whole: the density against SciPy, and a fit from rows to files."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

import avem
from avem.errors import DataError, ModelError
from avem.families import Beta, Dirichlet
from avem.numerics.precision import in_float64

THREE = Dirichlet(("sleep", "work", "rest"))
QUICK = {"n_starts": 1, "refine": None}


@partial(jax.jit, static_argnums=0)
def compiled(family, y, eta):
    def total(at):
        return family.log_density(y, tuple(at)).sum()

    at = jax.numpy.stack(eta)
    return family.log_density(y, eta), jax.grad(total)(at), jax.hessian(total)(at)


@in_float64
def density(family, y, eta):
    """Log density of rows, gradient (eta, rows) and Hessian (eta, rows, eta, rows)."""
    return jax.tree.map(np.asarray, compiled(family, tuple(y), tuple(eta)))


def random_rows(n=40, seed=0):
    rng = np.random.default_rng(seed)
    eta = rng.uniform(-2, 2, (3, n)) + np.array([[0], [0], [1.5]])
    return rng.dirichlet([2.0, 1.0, 3.0], n).T, eta


def test_density_equals_scipy():
    y, eta = random_rows(81)  # as many as below: compiled once
    found, slope, bend = density(THREE, y, eta)
    means = np.exp(np.stack([0 * eta[0], *eta[:2]]))
    alpha = np.exp(eta[2]) * means / means.sum(0)
    expected = [stats.dirichlet.logpdf(y[:, i], alpha[:, i]) for i in range(y.shape[1])]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    step = 1e-5
    for j in range(3):
        moved = [density(THREE, y, eta + s * step * np.eye(3)[:, [j]]) for s in (1, -1)]
        by_value = (moved[0][0] - moved[1][0]) / (2 * step)
        np.testing.assert_allclose(slope[j], by_value, rtol=1e-5, atol=1e-6)
        by_slope = (moved[0][1] - moved[1][1]) / (2 * step)
        np.testing.assert_allclose(np.einsum("irr->ir", bend[:, :, j]), by_slope, atol=1e-4)


def test_two_parts_are_a_beta_share():
    y, eta = random_rows()
    share = y[0] / (y[0] + y[1])
    two = density(Dirichlet(("a", "b")), (1 - share, share), (eta[0], eta[2]))[0]
    np.testing.assert_allclose(two, density(Beta(), (share,), (eta[0], eta[2]))[0], rtol=1e-10)


def test_all_is_finite_far_out():
    at = np.array(np.meshgrid(*[[-30.0, 0.0, 30.0]] * 3)).reshape(3, -1)[:, :27]
    y = np.repeat([[1e-6], [0.3], [0.7]], at.shape[1], axis=1)
    for part in density(THREE, y, at):
        assert np.isfinite(part).all()


def test_draws_and_parts_alone():
    eta = tuple(np.full(20_000, e) for e in (0.4, -0.7, 1.6))
    drawn = THREE.draw(np.random.default_rng(1), eta, ())
    np.testing.assert_allclose(drawn.sum(-1), 1.0)
    means = THREE.means_of_parts(tuple(np.full(1, e[0]) for e in eta))[0]
    np.testing.assert_allclose(drawn.mean(0), means, atol=0.01)
    for j in range(3):
        beta, predictors = THREE.alone(j)
        own = predictors(tuple(np.full(1, e[0]) for e in eta), None, np.zeros(1, int))
        np.testing.assert_allclose(beta.mean(own), means[j], rtol=1e-12)
        assert stats.kstest(beta.cdf(drawn[:2000, j], own), "uniform").pvalue > 1e-3
    start = THREE.start(tuple(drawn.T))
    np.testing.assert_allclose(start, (0.4, -0.7, 1.6), atol=0.1)
    small = THREE.draw(np.random.default_rng(2), tuple(np.full(500, e) for e in (0, 0, -6.0)), ())
    assert THREE.valid(tuple(small.T)).all()


# --- a fit ----------------------------------------------------------------------------------------


MODEL = avem.MixedHMM("sleep + work + rest ~ 1 + (1 | who)", 2, "dirichlet")
TRUTH = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.9, 0.1], [0.15, 0.85]]),
    "coef": np.array([[[1.5], [0.5]], [[-1.0], [0.0]]]),
    "precision": np.array([[12.0], [20.0]]),
    "effect_covariance": 0.3**2 * np.eye(2),
}


@pytest.fixture(scope="module")
def fitted():
    drawn = MODEL.simulate(TRUTH, 20, 50, seed=0)
    frame = drawn.frame.copy()
    frame.loc[::17, ["sleep", "work", "rest"]] = np.nan
    return frame, drawn, MODEL.fit(frame, time="time", **QUICK)


@pytest.mark.slow
def test_one_state_is_the_maximum_that_scipy_finds():
    frame = MODEL.simulate(TRUTH, 6, 20, seed=3).frame
    fit = avem.MixedHMM("sleep + work + rest ~ 1", 1, "dirichlet").fit(frame, "who", "time")
    y = frame[["sleep", "work", "rest"]].to_numpy()

    def cost(log_alpha):
        return -sum(stats.dirichlet.logpdf(row, np.exp(log_alpha)) for row in y)

    found = minimize(cost, np.zeros(3), method="BFGS")
    np.testing.assert_allclose(fit.loglik(), -found.fun, rtol=1e-8)
    ratios, total = found.x[1:] - found.x[0], np.exp(found.x).sum()
    np.testing.assert_allclose(fit.params["coef"].ravel(), ratios, atol=1e-4)
    np.testing.assert_allclose(fit.params["precision"].ravel(), [total], rtol=1e-4)
    text = str(fit.summary(errors=False))
    assert "Coefficients (log ratio to the first part)" in text
    assert "Mean share of every part" in text


@pytest.mark.slow
def test_a_fit_finds_the_truth(fitted):
    frame, drawn, fit = fitted
    # States come in the order of the first part's mean: less sleep first.
    level = TRUTH["coef"] + drawn.effects.mean(0)[:, None]
    np.testing.assert_allclose(fit.params["coef"], level, atol=0.15)
    np.testing.assert_allclose(fit.params["precision"], TRUTH["precision"], rtol=0.25)
    np.testing.assert_allclose(fit.params["transition"], TRUTH["transition"], atol=0.06)
    sd = np.sqrt(np.diagonal(fit.params["effect_covariance"]))
    np.testing.assert_allclose(sd, drawn.effects.std(0), atol=0.1)
    known = frame["sleep"].notna()
    assert (fit.decode()[known] == drawn.states[known]).mean() > 0.95
    # One iteration from states that are nearly equal does not pass for it.
    middle = {name: value.mean(0, keepdims=True) + 0 * value for name, value in TRUTH.items()}
    poor = middle | {
        "coef": 0.9 * middle["coef"] + 0.1 * TRUTH["coef"],
        "transition": np.full((2, 2), 0.5),
        "effect_covariance": TRUTH["effect_covariance"],
    }
    with pytest.warns(avem.AvemWarning, match="iteration limit"):
        start = MODEL.fit(frame, time="time", init=poor, max_iter=1, **QUICK)
    assert np.abs(start.params["coef"] - level).max() > 0.3


@pytest.mark.slow
def test_what_is_done_with_a_fit(fitted, tmp_path):
    frame, _, fit = fitted
    assert "Mean share of every part at effect 0" in str(fit.summary(errors=False))
    table = fit.table()
    assert set(table.loc[table["parameter"] == "coef", "outcome"]) == {"work", "rest"}
    ahead = fit.predict(horizon=2)
    sums = ahead.groupby([c for c in ahead.columns[:2]])["mean"].sum()
    np.testing.assert_allclose(sums, 1.0, atol=1e-8)
    assert (fit.residuals()[["sleep", "work", "rest"]].std() - 1).abs().max() < 0.15
    again = fit.simulate(seed=1).frame
    np.testing.assert_allclose(
        again[["sleep", "work", "rest"]].sum(axis=1, min_count=3).dropna(), 1
    )
    fit.save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem").with_data(frame)
    np.testing.assert_allclose(loaded.bound, fit.bound)
    assert loaded.model.families[0][0] == THREE


def test_what_cannot_be_is_refused():
    odd = MODEL.simulate(TRUTH, 4, 10, seed=0).frame
    odd.loc[3, "work"] = np.nan
    with pytest.raises(DataError, match="some observed at"):
        MODEL.fit(odd, time="time")
    odd.loc[3, "work"] = 0.9
    with pytest.raises(DataError, match="add up to 1 in every row"):
        MODEL.fit(odd, time="time")
    odd.loc[3, "work"] = 0.0
    with pytest.raises(DataError, match="a dirichlet outcome takes shares"):
        MODEL.fit(odd, time="time")
    with pytest.raises(ModelError, match="names 1: write all of them"):
        avem.MixedHMM("work ~ 1", 2, "dirichlet")
    with pytest.raises(ModelError, match="rename the column"):
        avem.outcome("work + precision ~ 1", "dirichlet")
