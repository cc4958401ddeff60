"""What covariates do: by their formulas, with bands against an independent delta method."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from scipy.special import expit, softmax
from scipy.stats import norm

import avem
from avem.errors import DataError, ModelError
from tests.fits.kinds import CHAIN, fit_from, fit_of, seen_rows

HMM = avem.MixedHMM("y ~ x", 2, transition="~ x")
MOVES = np.zeros((2, 2, 2))
MOVES[0, 1], MOVES[1, 0] = [-1.2, 0.8], [-0.8, -0.5]
TRUTH = {
    "initial": [0.5, 0.5],
    "transition_coef": MOVES,
    "coef": [[[0.0, 0.5]], [[2.5, -0.3]]],
    "variance": [[1.0], [0.6]],
    "effect_covariance": np.zeros((0, 0)),
}


def draw(seed, n=12, n_times=60):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {"who": np.repeat(np.arange(n), n_times), "t": np.tile(np.arange(n_times), n)}
    )
    rows["x"] = rng.standard_normal(len(rows))
    return HMM.simulate(TRUTH, data=rows, subject="who", time="t", seed=seed).frame


def fit_to(frame):
    return HMM.fit(frame, subject="who", time="t", init=TRUTH, n_starts=1, tol=1e-9)


@pytest.fixture(scope="module")
def fit():
    return fit_to(draw(7))


# --- an independent likelihood, in NumPy --------------------------------------------------------


def unpack(v):
    start = np.array([1.0, np.exp(v[0])]) / (1 + np.exp(v[0]))
    return start, v[1:5].reshape(2, 2), v[5:9].reshape(2, 2), np.exp(v[9:11])


def pack(params):
    moves = np.stack([params["transition_coef"][0, 1], params["transition_coef"][1, 0]])
    start = np.log(params["initial"][1] / params["initial"][0])
    parts = [[start], moves.ravel(), params["coef"].ravel(), np.log(params["variance"]).ravel()]
    return np.concatenate(parts)


def loglik(v, y, x):
    """(subjects, times) y and x, complete."""
    start, moves, coef, variance = unpack(v)
    density = norm.pdf(y[..., None], coef[:, 0] + x[..., None] * coef[:, 1], np.sqrt(variance))
    up, down = (expit(moves[k, 0] + moves[k, 1] * x) for k in (0, 1))
    before, total = start * density[:, 0], 0.0
    for t in range(y.shape[1]):
        if t:
            stay0 = before[:, 0] * (1 - up[:, t]) + before[:, 1] * down[:, t]
            stay1 = before[:, 0] * up[:, t] + before[:, 1] * (1 - down[:, t])
            before = np.stack([stay0, stay1], axis=1) * density[:, t]
        norm_t = before.sum(1)
        total += np.log(norm_t).sum()
        before = before / norm_t[:, None]
    return total


def covariance(v, y, x, step=1e-3):
    """Inverse of minus the numerical Hessian."""
    d = len(v)
    hessian = np.zeros((d, d))
    units = step * np.eye(d)
    for i in range(d):
        for j in range(i + 1):
            corners = [
                a * b * loglik(v + a * units[i] + b * units[j], y, x)
                for a in (1, -1)
                for b in (1, -1)
            ]
            hessian[i, j] = hessian[j, i] = sum(corners) / (4 * step**2)
    return np.linalg.inv(-hessian)


def by_delta(function, v, cov):
    slope = [(function(v + u) - function(v - u)) / 2e-6 for u in 1e-6 * np.eye(len(v))]
    return np.sqrt(np.einsum("in,ij,jn->n", np.array(slope), cov, np.array(slope)))


def test_bands_are_those_of_an_independent_delta_method(fit):
    frame = fit.panel.table
    y, x = (frame[name].to_numpy().reshape(12, 60) for name in ("y", "x"))
    v = pack(fit.params)
    cov = covariance(v, y, x)
    grid = [-1.0, 0.3, 2.0]

    def up(v):
        return np.array([expit(v[1] + v[2] * g) for g in grid])

    def share(v):
        down = np.array([expit(v[3] + v[4] * g) for g in grid])
        return up(v) / (up(v) + down)

    def mean(v):
        return np.array([v[7] + v[8] * g for g in grid])

    def stay(v):
        return 1 / expit(np.array([v[1] + v[2] * x.mean(), v[3] + v[4] * x.mean()]))

    moves = fit.covariate("x", "transitions", grid=grid)
    moves = moves[(moves["state"] == 0) & (moves["to_state"] == 1)]
    shares = fit.covariate("x", "stationary", grid=grid)
    shares = shares[shares["state"] == 1]
    means = fit.covariate("x", "y", grid=grid)
    means = means[means["state"] == 1]
    for table, function in ((moves, up), (shares, share), (means, mean)):
        assert table["x"].tolist() == grid
        np.testing.assert_allclose(table["estimate"], function(v), rtol=1e-8)
        np.testing.assert_allclose(table["se"], by_delta(function, v, cov), rtol=2e-3)
        assert (table["note"] == "").all()
    z = 1.959964
    np.testing.assert_allclose(means["upper"], means["estimate"] + z * means["se"], rtol=1e-6)
    p = shares["estimate"]
    wanted = expit(np.log(p / (1 - p)) - z * shares["se"] / (p * (1 - p)))
    np.testing.assert_allclose(shares["lower"], wanted, rtol=1e-5)
    dwell = fit.dwell()
    np.testing.assert_allclose(dwell["expected"], stay(v), rtol=1e-8)
    np.testing.assert_allclose(dwell["se"], by_delta(stay, v, cov), rtol=2e-3)
    share = fit.stationary()
    at_mean = stay(v)[1] ** -1 / (stay(v) ** -1).sum()
    assert share["share"][0] == pytest.approx(at_mean)


def test_states_are_compared_with_their_errors(fit):
    table = fit.contrast(states=(1, 0))
    coef, errors = fit.params["coef"], fit.standard_errors()
    assert table["parameter"].tolist() == ["coef", "coef", "variance"]
    np.testing.assert_allclose(table["difference"][:2], (coef[1] - coef[0]).ravel())
    # The two states' coefficients are nearly independent here, not quite.
    own = errors[errors["parameter"] == "coef"]["se"].to_numpy().reshape(2, 2)
    np.testing.assert_allclose(table["se"][:2], np.hypot(*own), rtol=0.3)
    # p goes with the interval: 0 is outside it where p is below 0.05.
    z = table["difference"] / table["se"]
    freedom = len(fit.subjects) - 1 if fit.model.n_effects else np.inf
    np.testing.assert_allclose(table["p"], 2 * stats.t.sf(np.abs(z), freedom), rtol=1e-9)
    away = (table["lower"] > 0) | (table["upper"] < 0)
    assert (away == (table["p"] < 0.05)).all()
    both = fit.contrast(states=True)
    pd.testing.assert_frame_equal(both, table)


def test_what_is_held_has_no_error_and_says_so(fit):
    held = replace(fit, info=replace(fit.info, fixed=("coef", "transition_coef")))
    table = held.contrast(states=(1, 0))
    assert table["note"].tolist() == ["held", "held", ""]
    assert table["se"].isna().tolist() == [True, True, False]
    for table in (held.dwell(), held.stationary(), held.covariate("x", grid=[0.0])):
        assert table[["se", "lower", "upper"]].isna().all(axis=None)
        assert (table["note"] == "held, or at its boundary: no standard error").all()


def test_a_subject_without_effects_has_the_parameters_errors(fit):
    by_subject = fit.stationary(by="subject")
    assert by_subject["se"].gt(0).all()
    assert (by_subject["lower"] < by_subject["share"]).all()


@pytest.mark.slow
def test_bands_cover_the_truth():
    """Nominal 95%, in 80 panels: within four standard errors of it."""
    grid, hits, n = [-1.0, 1.0], [], 80
    for seed in range(n):
        found = fit_to(draw(seed))
        moves = found.covariate("x", "transitions", grid=grid)
        moves = moves[moves["state"] != moves["to_state"]]
        truth = np.array(
            [expit(MOVES[k, 1 - k, 0] + MOVES[k, 1 - k, 1] * g) for g in grid for k in (0, 1)]
        )
        hits.append((moves["lower"] < truth) & (truth < moves["upper"]))
        means = found.covariate("x", "outcomes", grid=grid)
        truth = np.array([b + c * g for g in grid for b, c in ((0.0, 0.5), (2.5, -0.3))])
        hits.append((means["lower"] < truth) & (truth < means["upper"]))
    share = np.mean(np.concatenate(hits))
    assert 0.95 - 4 * np.sqrt(0.05 * 0.95 / (2 * n)) < share < 0.985


# --- estimates of other kinds of models ---------------------------------------------------------


def test_others_are_averaged_or_held():
    fit = fit_of("choice")  # choice ~ x + kind
    rows = seen_rows(fit)
    coef = fit.params["coef"][:, 0]
    share_b = (rows["kind"] == "b").mean()
    table = fit.covariate("x", grid=[0.0, 2.0], level=None)
    assert set(table["outcome"]) == {"choice[left]"}
    wanted = [expit(c[0] + c[1] * g + c[2] * share_b) for g in (0.0, 2.0) for c in coef]
    np.testing.assert_allclose(table["estimate"], wanted, rtol=1e-10)
    held = fit.covariate("x", grid=[2.0], at={"kind": "b"}, level=None)
    np.testing.assert_allclose(held["estimate"], [expit(c @ [1, 2, 1]) for c in coef], rtol=1e-10)
    levels = fit.covariate("kind", level=None)
    assert levels["kind"].tolist() == ["a", "a", "b", "b"]
    wanted = [expit(c @ [1, rows["x"].mean(), b]) for b in (0, 1) for c in coef]
    np.testing.assert_allclose(levels["estimate"], wanted, rtol=1e-10)


def test_a_number_is_looked_at_over_its_range():
    fit = fit_of("counts")
    table = fit.covariate("x", points=7, level=None)
    x = fit.panel.table["x"]
    wanted = np.linspace(x.min(), x.max(), 7)
    np.testing.assert_allclose(table["x"].to_numpy()[::2], wanted)
    coef = fit.params["coef"][:, 0]
    means = np.exp(coef[:, 0] + coef[:, 1] * wanted[:, None]).ravel()
    np.testing.assert_allclose(table["estimate"], means, rtol=1e-10)


def test_functions_of_a_covariate_follow_it():
    fit = fit_of("by_state")  # y ~ scale(x), transition ~ x
    x, coef = fit.panel.table["x"], fit.params["coef"][:, 0]
    table = fit.covariate("x", "y", grid=[1.0], level=None)
    z = (1.0 - x.mean()) / x.std(ddof=0)
    np.testing.assert_allclose(table["estimate"], coef[:, 0] + coef[:, 1] * z, rtol=1e-10)
    moves = fit.covariate("x", grid=[1.0], level=None)  # the transitions come first
    eta = fit.params["transition_coef"] @ [1.0, 1.0]
    np.testing.assert_allclose(moves["estimate"], softmax(eta, axis=1).ravel(), rtol=1e-10)


def test_levels_of_an_outcome_have_probabilities_that_sum_to_1():
    hmm = avem.MixedHMM("a ~ x", 2, avem.Categorical(("lo", "mid", "hi")))
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[0.5, 1.0], [-1.0, 0.2]], [[-0.5, 0.0], [1.0, 0.3]]],
        "effect_covariance": np.zeros((0, 0)),
    }
    from tests.fits.kinds import fit_from, rows

    drawn = hmm.simulate(truth, data=rows(), subject="who", time="t", seed=0)
    fit = fit_from(hmm, truth, drawn.frame, drawn.effects)
    table = fit.covariate("x", grid=[0.0], level=None)
    assert table["outcome"].tolist() == ["a[lo]", "a[mid]", "a[hi]"] * 2
    first = softmax([0.0, 0.5, -1.0])
    np.testing.assert_allclose(table["estimate"][:3], first, rtol=1e-10)


def test_polars_gives_the_same(fit):
    frame = pl.from_pandas(fit.panel.table)
    again = fit.with_data(frame).covariate("x", points=3, level=None)
    assert isinstance(again, pl.DataFrame)
    own = fit.covariate("x", points=3, level=None)
    pd.testing.assert_frame_equal(again.to_pandas(), own, check_dtype=False)


@pytest.mark.parametrize("kind", [tuple, np.array, pd.Series, pl.Series, iter])
def test_a_grid_may_be_any_list(fit, kind):
    asked = {"level": None, "on": "outcomes"}
    pd.testing.assert_frame_equal(
        fit.covariate("x", grid=kind([0.5, 1.0]), **asked),
        fit.covariate("x", grid=[0.5, 1.0], **asked),
    )


# --- what cannot be asked -----------------------------------------------------------------------


def test_what_is_not_there_is_said():
    fit = fit_of("choice")
    with pytest.raises(ModelError, match="no covariate 'heat'; choose one of 'x', 'kind'"):
        fit.covariate("heat")
    with pytest.raises(ModelError, match=r"does not act on the transitions.*acts on choice"):
        fit.covariate("x", "transitions")
    with pytest.raises(ModelError, match="on is 'means'; choose one of 'transitions'"):
        fit.covariate("x", "means")
    with pytest.raises(DataError, match="levels that the design does not know: 'z'"):
        fit.covariate("kind", grid=["z"])
    with pytest.raises(DataError, match="levels that the design does not know: 'z'"):
        fit.covariate("x", at={"kind": "z"})
    with pytest.raises(ModelError, match="at has 'heat'; beside 'x' there are the others"):
        fit.covariate("x", at={"heat": 1})
    with pytest.raises(ModelError, match="one value is wanted"):
        fit.covariate("x", at={"kind": None})
    with pytest.raises(ModelError, match=r"at is \[\('kind', 'b'\)\]; a dict from covariates"):
        fit.covariate("x", at=[("kind", "b")])
    for grid in ([1.0, np.nan], [], [[1, 2], 3], [1, None], np.array(2.0)):
        with pytest.raises(ModelError, match="values of 'x' are wanted, none missing"):
            fit.covariate("x", grid=grid)
    with pytest.raises(ModelError, match=r"grid is 3; a list of values of 'x' is wanted: \[3\]"):
        fit.covariate("x", grid=3)
    with pytest.raises(ModelError, match="grid is 'b'; a list of values of 'kind' is wanted"):
        fit.covariate("kind", grid="b")
    hmm = avem.MixedHMM("choice ~ log(t + 1) + (1 | who)", 2, avem.Bernoulli(("right", "left")))
    truth = CHAIN | {"coef": [[[-1.0, 0.5]], [[1.5, -0.5]]], "effect_covariance": [[0.5]]}
    logs = fit_from(hmm, truth, fit.panel.table, fit.effects_mean)
    with pytest.raises(ModelError, match="no value at t = -3; choose others"):
        logs.covariate("t", grid=[-3, 3], level=None)
    with pytest.raises(ModelError, match="points is 0"):
        fit.covariate("x", points=0)
    with pytest.raises(ModelError, match="they have none"):
        fit_of("trials").covariate("x")
    with pytest.raises(ModelError, match="custom family"):
        fit_of("custom").covariate("x")
