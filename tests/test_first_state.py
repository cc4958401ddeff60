"""Effects on the first state: against all paths, a mixed logistic regression, and truth."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import norm

import avem
from avem.effects.cover import Cover
from avem.errors import ModelError
from avem.fits.monitor_start import begun
from avem.inference.after.filtering import filter_rows, population
from tests.brute import enumerate_paths, log_sum
from tests.fits.kinds import fit_from

MODEL = avem.MixedHMM("y ~ 1", 2, initial="~ x + (1 | who)")
PARAMS = {
    "initial_coef": [[0.0, 0.0], [0.3, 0.8]],
    "transition": [[0.7, 0.3], [0.2, 0.8]],
    "coef": [[[0.0]], [[2.0]]],
    "variance": [[1.0], [0.5]],
    "effect_covariance": [[1.5]],
}
KEYS = {"time": "t", "sequence": "day"}


def frame_of(n=5, n_days=3, length=3, seed=0):
    rng = np.random.default_rng(seed)
    rows = [(w, d, t) for w in range(n) for d in range(n_days) for t in range(length)]
    frame = pd.DataFrame(rows, columns=["who", "day", "t"])
    frame["x"] = rng.standard_normal(len(frame)).round(2)
    return frame.assign(y=rng.normal(1.0, 1.5, len(frame)).round(2))


def drawn(n, n_days, length, variance, seed=1):
    params = PARAMS | {"effect_covariance": [[variance]]}
    return MODEL.simulate(params, data=frame_of(n, n_days, length), **KEYS, seed=seed)


def test_the_likelihood_is_that_of_all_paths_on_a_dense_grid():
    frame = frame_of()
    frame.loc[4, "y"] = np.nan
    fit = fit_from(MODEL, PARAMS, frame, np.zeros((5, 1)), "t", "day")
    grid = np.linspace(-9, 9, 721)
    mean, sd = np.array(PARAMS["coef"])[:, 0, 0], np.sqrt(np.array(PARAMS["variance"])[:, 0])
    wanted = []
    for _, own in frame.groupby("who"):
        height = norm.logpdf(grid, 0.0, np.sqrt(1.5)) + np.log(grid[1] - grid[0])
        for _, rows in own.groupby("day"):
            table = np.nan_to_num(norm.logpdf(rows["y"].to_numpy()[:, None], mean, sd))
            odds = 0.3 + 0.8 * rows["x"].iloc[0] + grid
            paths, joint = enumerate_paths([1.0, 1.0], np.array(PARAMS["transition"]), table)
            after = [log_sum(joint[paths[:, 0] == k]) for k in range(2)]
            starts = np.log(expit(-odds)), np.log(expit(odds))
            height = height + np.logaddexp(after[0] + starts[0], after[1] + starts[1])
        wanted.append(log_sum(height))
    np.testing.assert_allclose(fit.loglik(frame).by_subject, wanted, atol=1e-5)


def test_states_that_are_known_are_a_mixed_logistic_regression():
    """Then nothing else says anything of first states: maximum likelihood by other means."""
    panel = drawn(25, 12, 2, 1.5)
    frame = panel.frame.assign(state=panel.states)
    model = avem.MixedHMM("y ~ 1", 2, initial="~ x + (1 | who)", known="state")
    fit = model.fit(frame, **KEYS, refine="adaptive", n_starts=1)
    frame = frame[frame["t"] == 0]
    grid = np.linspace(-6, 6, 121)
    shares = norm.pdf(grid) * (grid[1] - grid[0])
    x, first = frame["x"].to_numpy(), frame["state"].to_numpy()

    def loss(values):
        odds = values[0] + values[1] * x[:, None] + np.exp(values[2]) * grid
        own = np.log(np.where(first[:, None] == 1, expit(odds), expit(-odds)))
        heights = pd.DataFrame(own).groupby(frame["who"].to_numpy()).sum().to_numpy()
        return -np.log((np.exp(heights) * shares).sum(1)).sum()

    best = minimize(loss, [0.0, 0.0, 0.0], tol=1e-10).x
    np.testing.assert_allclose(fit.params["initial_coef"][1], best[:2], atol=2e-3)
    assert fit.params["effect_covariance"][0, 0] == pytest.approx(np.exp(2 * best[2]), rel=5e-3)


@pytest.fixture(scope="module")
def fit():
    return MODEL.fit(drawn(40, 12, 3, 2.0).frame, **KEYS, n_starts=1, init=PARAMS)


def test_what_varies_is_found_and_what_does_not_is_not(fit):
    assert 0.8 < fit.params["effect_covariance"][0, 0] < 4.0
    flat = drawn(40, 12, 3, 1e-6).frame
    none = MODEL.fit(flat, **KEYS, n_starts=1, init=PARAMS)
    assert none.params["effect_covariance"][0, 0] < 0.5
    plain = avem.MixedHMM("y ~ 1", 2, initial="~ x")
    gain = [
        float(one.loglik()) - plain.fit(one.panel, subject="who", n_starts=1).bound
        for one in (fit, none)
    ]
    assert gain[0] > 8.0 > 2.5 > gain[1] > -0.05


def test_the_numbers_of_the_states_do_not_matter():
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 3, initial="~ x + (1 | who)")
    params = {
        "initial_coef": [[0.0, 0.0], [0.3, 0.8], [-0.5, 0.4]],
        "transition": np.full((3, 3), 0.1) + 0.7 * np.eye(3),
        "coef": [[[0.0]], [[2.0]], [[4.0]]],
        "variance": [[1.0], [0.5], [0.7]],
        "effect_covariance": [[0.5, 0.1, 0.2], [0.1, 1.5, -0.4], [0.2, -0.4, 0.8]],
    }
    frame = frame_of()
    one = fit_from(hmm, params, frame, np.zeros((5, 3)), "t", "day")
    model = one.model.in_user_units()
    theta, turn = model.relabelled(model.params_in(one.params), np.array([2, 0, 1]))
    other = fit_from(hmm, model.params_out(theta), frame, np.zeros((5, 3)), "t", "day")
    assert not np.allclose(one.params["effect_covariance"], other.params["effect_covariance"])
    assert abs(float(one.loglik()) - float(other.loglik())) < 0.02
    rng = np.random.default_rng(0)
    f, a = rng.standard_normal((4, 3)), rng.standard_normal((4, len(model.designs.keys)))
    before = model.initial.chances(model.params_in(one.params), a, f, lambda: None)
    after = model.initial.chances(theta, a, f @ turn.T, lambda: None)
    np.testing.assert_allclose(after, before[:, [2, 0, 1]], atol=1e-12)


def test_all_else_goes_with_it(fit, tmp_path):
    assert fit.model.effect_names == ["initial: Intercept [1]"]
    assert fit.rename_states(["low", "high"]).model.effect_labels == ["initial: Intercept [high]"]
    fit.save(tmp_path / "fit.avem")
    loaded = avem.load(tmp_path / "fit.avem")
    frame = fit.panel.table
    pd.testing.assert_series_equal(loaded.decode(frame), fit.decode(frame))
    own = fit.coefficients(parameters="fixed")
    start = own[own["parameter"] == "initial_coef"]
    intercepts = start[(start["term"] == "Intercept") & (start["state"] == 1)]["estimate"]
    wanted = fit.params["initial_coef"][1, 0] + fit.effects()["mean"]
    np.testing.assert_allclose(intercepts, wanted)
    errors = fit.standard_errors()
    assert (errors["se"].dropna() > 0).all()
    assert fit.predict(horizon=1).notna().all().all()
    fit.report(tmp_path / "report.html", thorough=False)
    page = (tmp_path / "report.html").read_text()
    words = re.sub("<[^>]*>", "", page)
    assert "The first state depends on x and the subject" in words
    assert "starting in state 1 (log odds)" in words
    drawn_again = fit.simulate(fit.panel.table, seed=3)
    assert drawn_again.effects.shape == (40, 1)


def test_a_monitor_reads_them_too(fit):
    own = fit.panel.table.query("who == 3")
    encoded = fit._encode(own)
    cover = Cover.make(*[population(fit.theta["effect_covariance"], 1)] * 2, 12)
    whole = filter_rows(encoded, fit.theta, cover).states
    monitor = begun(fit, cover, 3)
    found = [list(monitor.update(row).states.values()) for _, row in own.iterrows()]
    np.testing.assert_allclose(found, whole, atol=1e-10)


@pytest.mark.parametrize("method", ["quadrature", "mean_field", "structured"])
def test_other_methods_agree(fit, method):
    """They maximise different bounds, whose maxima are near each other here."""
    found = MODEL.fit(fit.panel, n_starts=1, init=fit, method=method, refine=None, max_iter=200)
    near = found.params["initial_coef"][1] - fit.params["initial_coef"][1]
    assert np.abs(near).max() < 0.35


def test_what_cannot_be_told_is_refused():
    frame = frame_of(8, 1, 10)
    with pytest.raises(ModelError, match=r"not identified: every subject has one sequence"):
        MODEL.fit(frame, **KEYS)
    with pytest.raises(ModelError, match=r"say with sequence= where sequences start"):
        MODEL.fit(frame, time="t")
    two = frame_of(8, 2, 5)
    some = two[(two["who"] == 0) | (two["day"] == 0)]
    with pytest.raises(ModelError, match="on the first state need subjects with more than 1"):
        MODEL.fit(some, **KEYS)
    with pytest.raises(ModelError, match="does not go with effects on the first state"):
        avem.MixedHMM("y ~ 1", 3, initial="~ 1 + (1 | who)", effect_covariance="diagonal")
    avem.MixedHMM("y ~ 1", 2, initial="~ 1 + (1 | who)", effect_covariance="diagonal")
    with pytest.raises(ModelError, match="the first state says nothing"):
        avem.MixedHMM("y ~ 1", 2, initial="~ x + offset(x)")
