"""Pseudo-residuals: against enumeration, under the true model, and under wrong ones."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import kstest, norm

import avem
from avem.errors import ModelError
from tests.brute import enumerate_paths, gaussian_table, log_sum
from tests.fits.kinds import fit_from
from tests.panels import awkward_frame, random_params

MIXED = avem.MixedHMM(
    [
        avem.outcome("step ~ 1 + (1 | who)", "gamma"),
        avem.outcome("count ~ 1", "poisson"),
        avem.outcome("hit ~ 1", "bernoulli"),
    ],
    2,
)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.2, 0.8]],
    "step.coef": [[[0.0]], [[1.2]]],
    "step.shape": [[2.0], [5.0]],
    "count.coef": [[[0.3]], [[1.8]]],
    "hit.coef": [[[-1.0]], [[1.0]]],
    "effect_covariance": [[0.3]],
}


@pytest.fixture(scope="module")
def made():
    return MIXED.simulate(TRUTH, 60, 30, seed=5)


@pytest.fixture(scope="module")
def drawn(made):
    return made.frame


@pytest.fixture(scope="module")
def true_fit(made):
    """The true model with the true parameters and effects."""
    return fit_from(MIXED, TRUTH, made.frame, made.effects, time="time")


@pytest.fixture(scope="module")
def tiny():
    """A shuffled panel with gaps, two sequences of some subjects, and what it is fitted with."""
    frame = awkward_frame(seed=4)
    truth = random_params(np.random.default_rng(2), 2, 2, 2, 2, "full")
    model = avem.MixedHMM("y1 + y2 ~ x + (1 | who)", 2, avem.Gaussian("full"))
    keys = {"time": "t", "sequence": "session"}
    return frame, truth, model.fit(frame, **keys, init=truth, fixed=truth, refine=None)


def enumerated(frame, truth, fit, kind):
    """Residuals of every row, from all paths of its sequence."""
    out = frame[["y1", "y2"]] * np.nan
    effects = dict(zip(fit.subjects, fit.effects_mean, strict=True))
    initial, transition = truth["initial"], truth["transition"]
    for (who, _), rows in frame.groupby(["who", "session"]):
        rows = rows.sort_values("t")
        x = np.column_stack([np.ones(len(rows)), rows["x"]])
        mean = np.einsum("kjm,tm->tkj", truth["coef"], x) + effects[who]
        table = gaussian_table(rows[["y1", "y2"]].to_numpy(), mean, truth["covariance"])
        for t, row in enumerate(rows.index):
            hidden = table.copy()
            hidden[t if kind == "ordinary" else slice(t, None)] = 0.0
            paths, joint = enumerate_paths(initial, transition, hidden)
            weight = np.exp(joint - log_sum(joint))
            chance = np.array([weight[paths[:, t] == k].sum() for k in range(2)])
            sd = np.sqrt(np.diagonal(truth["covariance"], axis1=1, axis2=2))
            y = rows.loc[row, ["y1", "y2"]].to_numpy(float)
            out.loc[row] = norm.ppf(chance @ norm.cdf((y - mean[t]) / sd))
    return out


@pytest.mark.parametrize("kind", ["forecast", "ordinary"])
def test_residuals_equal_enumeration(tiny, kind):
    frame, truth, fit = tiny
    found = fit.residuals(kind=kind)
    assert found.index.equals(frame.index)
    assert list(found) == ["y1", "y2"]
    expected = enumerated(frame, truth, fit, kind)
    assert expected.isna().sum().sum() == 5
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_residuals_come_as_the_data_do(tiny):
    frame, _, fit = tiny
    as_polars = fit.residuals(pl.from_pandas(frame))
    assert isinstance(as_polars, pl.DataFrame)
    np.testing.assert_allclose(as_polars.to_numpy(), fit.residuals(), atol=1e-12)
    ordered = frame.sort_values(["who", "session", "t"])
    again = fit.residuals(ordered).loc[frame.index]
    np.testing.assert_allclose(again, fit.residuals(), atol=1e-12)


@pytest.mark.parametrize("kind", ["forecast", "ordinary"])
def test_residuals_are_normal_under_the_true_model(true_fit, kind):
    found = true_fit.residuals(kind=kind, effects="drawn", seed=1)
    for name in ("step", "count", "hit"):
        assert kstest(found[name], "norm").pvalue > 0.01


def test_residuals_of_the_true_model_are_white(true_fit):
    table = true_fit.whiteness(lags=3).set_index("outcome")
    assert (table[["p_white", "p_normal"]] > 0.01).all().all()
    np.testing.assert_allclose(table["mean"], 0, atol=0.06)
    np.testing.assert_allclose(table["sd"], 1, atol=0.06)


def test_whiteness_by_lag_is_counted(true_fit):
    """Each autocorrelation by hand, and together they are the test of the wide table."""
    wide = true_fit.whiteness(lags=3, effects="fitted").set_index("outcome")
    long = true_fit.whiteness(lags=3, effects="fitted", by="lag")
    assert long[["outcome", "lag"]].value_counts().tolist() == [1] * 3 * len(wide)
    frame = true_fit.panel.table.assign(e=true_fit.residuals()["step"]).sort_values("time")
    for row in long[long["outcome"] == "step"].to_dict("records"):
        before = frame.groupby("who")["e"].shift(row["lag"])
        pairs = frame.assign(before=before)[["e", "before"]].dropna()
        product = (pairs["e"] * pairs["before"]).sum()
        r = product / np.sqrt((pairs**2).sum().prod())
        assert row["autocorrelation"] == pytest.approx(r, rel=1e-9)
        assert (row["n"], row["se"]) == (len(pairs), pytest.approx(len(pairs) ** -0.5))
        assert row["p"] == pytest.approx(2 * norm.sf(abs(r) * np.sqrt(len(pairs))))
        assert wide.loc["step", f"lag_{row['lag']}"] == pytest.approx(r, rel=1e-9)
    last = long[long["lag"] == 3].set_index("outcome")
    np.testing.assert_allclose(last["p_white"], wide.loc[last.index, "p_white"], rtol=1e-9)
    with pytest.raises(ModelError, match="by is 'lags'; choose one of 'outcome', 'lag'"):
        true_fit.whiteness(by="lags")
    for lags in (2.5, "a", True, 0):
        for ask in (true_fit.whiteness, true_fit.plot.residuals):
            with pytest.raises(ModelError, match=f"lags is {lags!r}; a whole number"):
                ask(lags=lags)


def test_residuals_tell_that_a_state_is_missing(drawn):
    alone = {"initial": [1.0], "transition": [[1.0]], "effect_covariance": np.zeros((0, 0))}
    alone |= {"coef": [[[np.log(drawn["count"].mean())]]]}
    poisson = avem.MixedHMM("count ~ 1", 1, "poisson")
    one = fit_from(poisson, alone, drawn, np.zeros((60, 0)), time="time")
    table = one.whiteness(lags=3)
    assert table["p_white"][0] < 1e-6
    assert table["lag_1"][0] > 0.2
    assert kstest(one.residuals()["count"], "norm").pvalue < 1e-6


def test_residuals_tell_a_wrong_family(drawn):
    """Two Gaussians for what two gammas made."""
    wrong = avem.MixedHMM("step ~ 1 + (1 | who)", 2).fit(
        drawn, time="time", n_starts=1, refine=None
    )
    assert wrong.whiteness()["p_normal"][0] < 1e-6


def test_mid_residuals_are_the_middle_of_the_randomised_ones(true_fit):
    mid = norm.cdf(true_fit.residuals(discrete="mid"))
    some = norm.cdf([true_fit.residuals(seed=seed) for seed in range(40)])
    np.testing.assert_allclose(mid[:, 0], some[0][:, 0])  # continuous: nothing to draw
    assert np.abs(some - some[0])[:, :, 1:].max() > 0.1
    half = 0.5 * (some.max(0) - some.min(0))
    assert (np.abs(mid - some.mean(0)) <= half + 1e-12).all()
    np.testing.assert_allclose(mid.mean(0), some.mean((0, 1)), atol=5e-3)
    np.testing.assert_array_equal(true_fit.residuals(seed=3), true_fit.residuals(seed=3))


def test_what_residuals_cannot_be(true_fit, drawn):
    with pytest.raises(ModelError, match="kind is 'pearson'; choose one of 'forecast', 'ordinary'"):
        true_fit.residuals(kind="pearson")
    with pytest.raises(ModelError, match="discrete is 'upper'"):
        true_fit.residuals(discrete="upper")
    with pytest.raises(ModelError, match="effects is 'new'; choose one of 'fitted', 'drawn'"):
        true_fit.residuals(effects="new")
    with pytest.raises(ModelError, match="lags is 40; from 1 to 29"):
        true_fit.whiteness(lags=40)
    lagged = avem.MixedHMM("step ~ lag(step)", 1).fit(drawn, time="time", subject="who")
    assert lagged.residuals()["step"].isna().sum() == 60
    with pytest.raises(ModelError, match="reads step from other rows"):
        lagged.residuals(kind="ordinary")
    own = avem.Custom(lambda y, x, h, params, f: -((y - params["a"]) ** 2), {"a": 0.0})
    custom = avem.MixedHMM("step ~ 1", 1, own).fit(drawn, time="time", subject="who", max_iter=2)
    with pytest.raises(ModelError, match="Residuals need the distribution function"):
        custom.residuals()
