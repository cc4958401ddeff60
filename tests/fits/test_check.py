"""Predictive checks: exact statistics, fair p under the truth, extreme p under a wrong model."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest

import avem
from avem.errors import ModelError
from tests.fits.kinds import fit_from, fit_of

HMM = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
TRUTH = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.15, 0.85]],
    "coef": [[[0.0]], [[4.0]]],
    "variance": [[1.0], [1.0]],
    "effect_covariance": [[1.0]],
}
ROWS = pd.DataFrame({"who": np.repeat(np.arange(10), 30), "t": np.tile(np.arange(30), 10)})


def draw(seed):
    return HMM.simulate(TRUTH, data=ROWS, subject="who", time="t", seed=seed)


def true_fit(seed):
    drawn = draw(seed)
    frame = drawn.frame
    frame.loc[[3, 4, 40], "y"] = np.nan
    return fit_from(HMM, TRUTH, frame, drawn.effects)


@pytest.fixture(scope="module")
def fit():
    return true_fit(0)


def test_the_observed_statistics_are_those_of_the_data(fit):
    frame = fit.panel.table
    table = fit.check(n=3).table.set_index("statistic")
    y = frame["y"]
    assert table.index.tolist() == ["mean", "sd", "between", "autocorrelation", "min", "max"]
    assert table.loc["mean", "observed"] == pytest.approx(y.mean())
    assert table.loc["sd", "observed"] == pytest.approx(y.std(ddof=0))
    means = frame.groupby("who")["y"].mean()
    assert table.loc["between", "observed"] == pytest.approx(means.std(ddof=0))
    apart = y - frame["who"].map(means)
    before = apart.groupby(frame["who"]).shift()
    wanted = apart.corr(before)
    assert table.loc["autocorrelation", "observed"] == pytest.approx(wanted)
    assert (table["outcome"] == "y").all()


def test_the_summary_is_that_of_the_simulations(fit):
    found = fit.check(["mean", "max"], n=25, seed=3, level=0.8)
    assert found.simulated.shape == (25, 2)
    np.testing.assert_allclose(found.table["mean"], found.simulated.mean(0))
    np.testing.assert_allclose(found.table["lower"], np.quantile(found.simulated, 0.1, axis=0))
    for p, observed, drawn in zip(
        found.table["p"], found.table["observed"], found.simulated.T, strict=True
    ):
        tails = [(drawn >= observed).sum() + 1, (drawn <= observed).sum() + 1]
        assert p == pytest.approx(min(1, 2 * min(tails) / 26))
    # The same seed gives the same, and more of them begin alike.
    more = fit.check(["mean", "max"], n=27, seed=3)
    np.testing.assert_array_equal(more.simulated[:25], found.simulated)
    assert "25 simulated data sets, effects new" in repr(found)


def test_what_is_missing_stays_missing(fit):
    counts = fit.check({"missing": lambda frame: frame["y"].isna().sum()}, n=4)
    assert counts.table["observed"].tolist() == [3.0]
    assert (counts.simulated == 3).all()
    where = fit.check(lambda frame: frame["y"].isna()[[3, 4, 40]].all(), n=2)
    assert (where.simulated == 1).all()


def test_effects_are_drawn_anew_from_their_posterior_or_held(fit):
    """Spread of the subjects' means over the simulations: large, small, none but noise."""
    vague = replace(fit, effects_cov=np.ones((10, 1, 1)))

    def spread(effects):
        return vague.check(lambda f: f["y"][:30].mean(), n=30, effects=effects).table["sd"][0]

    held = spread("fitted")
    assert spread("new") > 1.3 * held
    assert spread("drawn") > 1.3 * held
    with pytest.raises(ModelError, match="effects is 'old'; choose one of 'new', 'fitted'"):
        fit.check(effects="old")


def test_a_user_function_sees_frames_of_the_users_kind(fit):
    frame = pl.from_pandas(fit.panel.table)
    again = fit.with_data(frame)

    def top(frame):
        assert isinstance(frame, pl.DataFrame)
        assert frame["y"].null_count() == 3
        return {"top": frame["y"].max(), "mean": frame["y"].mean()}

    found = again.check(top, n=3)
    assert found.table["statistic"].tolist() == ["top[top]", "top[mean]"]
    y = fit.panel.table["y"]
    np.testing.assert_allclose(found.table["observed"], [y.max(), y.mean()])
    named = fit.panel.table.set_axis([f"r{i}" for i in range(300)], axis=0)
    labels = fit.with_data(named).check(lambda frame: frame.index[0] == "r0", n=2)
    assert (labels.simulated == 1).all()


def test_zeros_of_the_data_that_the_model_never_makes_are_out(fit):
    frame = fit.panel.table.assign(y=fit.panel.table["y"].where(ROWS["t"] > 2, 0.0))
    check = fit_from(HMM, TRUTH, frame, fit.effects_mean).check(n=19)
    zeros = check.table.set_index("statistic").loc["zeros"]
    assert zeros["observed"] == pytest.approx((frame["y"] == 0).sum() / frame["y"].notna().sum())
    assert (zeros["mean"], zeros["sd"], zeros["p"]) == (0.0, 0.0, pytest.approx(0.1))
    ax = check.plot().axes[6]
    assert not ax.patches  # one value, not a bar that reaches over the data's own
    assert sorted(line.get_xdata()[0] for line in ax.lines) == [0.0, zeros["observed"]]


def test_levels_have_shares(fit):
    table = fit_of("choice").check(n=2).table
    y = fit_of("choice").panel.table["choice"]
    assert table["statistic"].tolist() == ["same", "share of right", "share of left"]
    assert table["observed"][1] == pytest.approx((y.dropna() == "right").mean())
    counts = fit_of("counts")
    zeros = (counts.panel.table["n"].dropna() == 0).mean()
    assert counts.check("zeros", n=2).table["observed"][0] == pytest.approx(zeros)


def test_an_interrupted_check_keeps_what_was_done(fit):
    calls = []

    def impatient(frame):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return frame["y"].mean()

    found = fit.check(impatient, n=50)
    assert len(found.simulated) == 6  # the first call was for the data
    assert "6 simulated data sets of 50: interrupted" in repr(found)
    calls.clear()
    calls += [1] * 6
    with pytest.raises(KeyboardInterrupt):  # nothing to keep
        fit.check(impatient, n=50)


def test_progress_is_shown_on_long_runs(fit, monkeypatch, capsys):
    monkeypatch.setattr("avem.inference.display.QUIET_SECONDS", 0.0)
    monkeypatch.setattr("avem.inference.display.LOG_SECONDS", 0.0)
    fit.check("mean", n=3, progress=True)
    assert "check: 3/3" in capsys.readouterr().err


def test_values_that_are_only_looked_back_at_stay_as_they_are():
    """An autoregression around 100: a first value drawn without a past would be far below it."""
    hmm = avem.MixedHMM("y ~ lag(y)", 1)
    truth = {
        "initial": [1.0],
        "transition": [[1.0]],
        "coef": [[[10.0, 0.9]]],
        "variance": [[1.0]],
        "effect_covariance": np.zeros((0, 0)),
    }
    frame = ROWS.assign(y=100 + np.random.default_rng(0).standard_normal(300))
    drawn = fit_from(hmm, truth, frame, np.zeros((10, 0))).simulate(seed=1).frame
    first = (frame["t"] == 0).to_numpy()
    np.testing.assert_array_equal(drawn["y"][first], frame["y"][first])
    assert not (drawn["y"][~first] == frame["y"][~first]).any()
    assert drawn["y"].min() > 85


def test_functions_of_one_name_are_told_apart(fit):
    def share(frame, of):
        return float((frame["y"] > of).mean())

    several = [lambda frame: 1.0, "mean", lambda frame: 2.0, partial(share, of=9.0)]
    table = fit.check(several, n=2).table.set_index("statistic")
    assert list(table.index) == ["mean", "<lambda> 1", "<lambda> 2", "share"]
    assert table["observed"].tolist()[1:3] == [1.0, 2.0]
    assert fit.check(partial(share, of=0.0), n=2).table["statistic"].tolist() == ["share"]


def test_what_cannot_be_a_statistic_is_said(fit):
    with pytest.raises(ModelError, match="statistic has 3; names or functions"):
        fit.check(["mean", 3])
    with pytest.raises(ModelError, match="no statistic 'median'; choose from mean, sd"):
        fit.check("median")
    with pytest.raises(ModelError, match="statistic is 3; a function"):
        fit.check(3)
    with pytest.raises(ModelError, match=r"statistic has \['a'\]"):
        fit.check({"a": "mean"})
    with pytest.raises(ModelError, match="'wide' gave a list"):
        fit.check({"wide": lambda frame: [1, 2]}, n=2)
    with pytest.raises(ModelError, match="'rows' gave a number for every row"):
        fit.check({"rows": lambda frame: frame["y"]}, n=2)
    with pytest.raises(ModelError, match="n is 0"):
        fit.check(n=0)
    with pytest.raises(ModelError, match="None of these statistics applies"):
        fit.check("share", n=2)


def p_values(seeds, n):
    statistics = ["mean", "sd", "autocorrelation", "between"]
    return np.array([true_fit(seed).check(statistics, n=n, seed=seed).table["p"] for seed in seeds])


def test_p_is_fair_under_the_truth():
    p = p_values(range(1, 9), 19)
    assert 0.3 < p.mean() < 0.75
    assert (p <= 0.1).mean() < 0.35


@pytest.mark.slow
def test_p_is_uniform_under_the_truth():
    p = p_values(range(100), 39)
    for own in p.T:
        for cut in (0.1, 0.25, 0.5, 0.75):
            share = (own <= cut + 1e-9).mean()
            assert abs(share - cut) < 4 * np.sqrt(cut * (1 - cut) / len(own)) + 0.03


def test_too_few_states_are_seen_by_the_autocorrelation():
    frame = draw(5).frame
    one = avem.MixedHMM("y ~ 1", 1).fit(frame, subject="who", time="t")
    wrong = one.check(["mean", "autocorrelation"], n=60).table.set_index("statistic")["p"]
    assert wrong["autocorrelation"] == pytest.approx(2 / 61)
    assert wrong["mean"] > 0.2
    right = fit_from(HMM, TRUTH, frame, draw(5).effects).check("autocorrelation", n=60)
    assert right.table["p"][0] > 0.05
