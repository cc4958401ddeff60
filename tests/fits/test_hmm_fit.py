"""What the user holds: tables, states and effects, on old and new data, in the user's own rows."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import avem
from avem.fits.notes import general_remarks
from tests.brute import enumerate_paths, gaussian_table, log_sum

PARAMS = {
    "initial": [0.6, 0.4],
    "transition": [[0.8, 0.2], [0.3, 0.7]],
    "coef": [[[-1.0], [0.5]], [[1.5], [-0.5]]],
    "variance": [[0.5, 1.0], [0.8, 0.6]],
    "effect_covariance": [[0.5, 0.2], [0.2, 0.4]],
}
MODEL = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 2)


@pytest.fixture(scope="module")
def truth():
    return MODEL.simulate(PARAMS, n_subjects=30, n_times=25, seed=1)


@pytest.fixture(scope="module")
def fit(truth):
    return MODEL.fit(truth.frame, time="time", n_starts=2)


def test_parameters_and_effects_are_near_the_truth(fit, truth):
    np.testing.assert_allclose(fit.params["coef"], PARAMS["coef"], atol=0.4)
    np.testing.assert_allclose(fit.params["transition"], PARAMS["transition"], atol=0.1)
    assert np.corrcoef(fit.effects_mean[:, 0], truth.effects[:, 0])[0, 1] > 0.9
    assert (fit.decode() == truth.states).mean() > 0.9
    assert (0 * fit.decode() == truth.states).mean() < 0.7  # guessing does not do


def test_state_probabilities_equal_enumeration(fit, truth):
    """On a short new sequence of a known subject, at its fitted effect."""
    rows = truth.frame[truth.frame["subject"] == 3].head(6)
    effect = fit.effects_mean[3]
    mean = fit.params["coef"][:, :, 0] + effect
    noise = avem.Gaussian("diagonal").noise_from_params(fit.params["variance"], 2)
    y = rows[["y1", "y2"]].to_numpy()
    table = gaussian_table(y, np.repeat(mean[None], 6, axis=0), noise)
    paths, joint = enumerate_paths(fit.params["initial"], fit.params["transition"], table)
    weight = np.exp(joint - log_sum(joint))
    expected = ((paths == 1) * weight[:, None]).sum(0)
    found = fit.state_probabilities(rows)
    assert (found.index == rows.index).all()
    np.testing.assert_allclose(found["state_1"], expected, atol=1e-8)
    np.testing.assert_array_equal(fit.decode(rows), paths[joint.argmax()])


def test_new_subjects_get_their_effects_from_their_rows(fit):
    new = MODEL.simulate(PARAMS, n_subjects=8, n_times=60, seed=77)
    frame = new.frame.assign(subject=[f"new {i}" for i in new.frame["subject"]])
    found = fit.infer_effects(frame)
    mean = found["mean"].to_numpy().reshape(8, 2)
    assert np.abs(mean - new.effects).mean() < 0.3
    assert np.abs(new.effects).mean() > 0.4  # 0 would not pass
    assert (fit.decode(frame) == new.states).mean() > 0.85


def test_effects_of_the_same_rows_are_those_of_the_fit(fit, truth):
    found = fit.infer_effects(truth.frame.assign(subject=truth.frame["subject"] + 1000))
    np.testing.assert_allclose(found["mean"].to_numpy().reshape(-1, 2), fit.effects_mean, atol=1e-3)


def test_effects_table(fit):
    table = fit.effects(level=0.5)
    assert list(table.columns) == ["subject", "effect", "mean", "sd", "lower", "upper"]
    assert len(table) == 60
    half = (table["upper"] - table["lower"]) / 2
    np.testing.assert_allclose(half, 0.6744897501960817 * table["sd"])
    with pytest.raises(avem.ModelError, match="between 0 and 1"):
        fit.effects(level=95)


def test_parameter_table_holds_every_number_once(fit):
    table = fit.table()
    counts = table["parameter"].value_counts()
    assert counts.to_dict() == {
        "initial": 2, "transition": 4, "coef": 4, "variance": 4, "effect_covariance": 3
    }  # fmt: skip
    row = table.query("parameter == 'coef' and state == 1 and outcome == 'y2'")
    np.testing.assert_allclose(row["estimate"], fit.params["coef"][1, 1, 0])


def test_summary_says_what_was_done(fit):
    text = str(fit.summary())
    for part in ("y1 + y2 ~ 1", "30 subjects", "CONVERGED", "Transition", "corr. y1: Intercept"):
        assert part in text
    assert repr(fit.summary()) == text
    assert "30 subjects" in repr(fit)


@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_other_frames_give_the_same_in_their_own_kind(fit, truth, kind):
    convert = {"polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[kind]
    other = MODEL.fit(convert(truth.frame), time="time", n_starts=2)
    np.testing.assert_allclose(other.bound, fit.bound, rtol=1e-12)
    states, probabilities = other.decode(), other.state_probabilities()
    if kind == "polars":
        assert isinstance(states, pl.Series)
        assert isinstance(probabilities, pl.DataFrame)
    else:
        assert isinstance(states, pa.Array | pa.ChunkedArray)
        assert isinstance(probabilities, pa.Table)
    np.testing.assert_array_equal(np.asarray(states), fit.decode())


def test_panels_from_arrays_and_lengths(fit, truth):
    arrays = [part[["y1", "y2"]].to_numpy() for _, part in truth.frame.groupby("subject")]
    one = MODEL.fit(avem.Panel.from_arrays(arrays), n_starts=2)
    two = MODEL.fit(avem.Panel.from_lengths(np.vstack(arrays), [25] * 30), n_starts=2)
    np.testing.assert_allclose([one.bound, two.bound], fit.bound, rtol=1e-12)


def test_simulating_from_a_fit(fit, truth):
    new = fit.simulate(seed=3)
    assert list(new.frame.columns) == list(truth.frame.columns)
    assert new.effects.shape == (30, 2)
    same = fit.simulate(seed=3, effects="fitted")
    np.testing.assert_array_equal(same.effects, fit.effects_mean)
    again = MODEL.fit(new.frame, time="time", n_starts=2)
    np.testing.assert_allclose(again.params["coef"], fit.params["coef"], atol=0.6)
    with pytest.raises(avem.ModelError, match="choose one of 'new', 'fitted'"):
        fit.simulate(effects="old")


def test_simulated_moments_follow_the_parameters():
    """Mean and variance of an outcome under the model, against a large draw."""
    draw = MODEL.simulate(PARAMS, n_subjects=4000, n_times=10, seed=0)
    in_state = draw.states == 1
    y = draw.frame["y1"][in_state]
    assert abs(y.mean() - 1.5) < 0.05
    assert abs(y.var() - (0.8 + 0.5)) < 0.07
    share = np.bincount(draw.states[draw.frame["time"] == 0]) / 4000
    np.testing.assert_allclose(share, [0.6, 0.4], atol=0.03)
    np.testing.assert_allclose(np.cov(draw.effects.T), PARAMS["effect_covariance"], atol=0.05)


def test_missing_cells_stay_missing_in_simulations(truth):
    frame = truth.frame.copy()
    frame.loc[[3, 9], "y2"] = np.nan
    fit = MODEL.fit(frame, time="time", n_starts=1, refine=None)
    assert fit.simulate(seed=0).frame["y2"].isna().sum() == 2


def test_a_fit_without_effects():
    model = avem.MixedHMM("y1 + y2 ~ 1", 2)
    params = {**PARAMS, "effect_covariance": np.zeros((0, 0))}
    truth = model.simulate(params, 10, 50, seed=0)
    fit = model.fit(truth.frame, subject="subject", time="time", n_starts=2)
    assert fit.effects().empty
    assert fit.effects_mean.shape == (10, 0)
    np.testing.assert_allclose(fit.params["coef"], PARAMS["coef"], atol=0.3)
    assert (fit.decode() == truth.states).mean() > 0.9


def test_one_state_is_a_linear_mixed_model():
    """With K=1 anchoring is exact: the bound is the marginal likelihood of a mixed model."""
    model = avem.MixedHMM("y ~ 1 + (1 | subject)", 1)
    params = {
        "initial": [1.0],
        "transition": [[1.0]],
        "coef": [[[2.0]]],
        "variance": [[1.0]],
        "effect_covariance": [[0.7]],
    }
    frame = model.simulate(params, 25, 8, seed=0).frame
    fit = model.fit(frame, time="time")
    from scipy.stats import multivariate_normal

    y = frame["y"].to_numpy().reshape(25, 8)
    covariance = fit.params["variance"][0, 0] * np.eye(8) + fit.params["effect_covariance"][0, 0]
    marginal = multivariate_normal(np.full(8, fit.params["coef"][0, 0, 0]), covariance)
    np.testing.assert_allclose(fit.bound, marginal.logpdf(y).sum(), rtol=1e-9)
    between = y.mean(1).var() - y.var(1, ddof=1).mean() / 8  # balanced data: closed form
    np.testing.assert_allclose(fit.params["effect_covariance"][0, 0], between, rtol=1e-3)


@pytest.mark.parametrize(
    ("step", "words"),
    [("D", "usual day. Turn the dates into a count of steps, and Panel"), ("h", "usual 01:00:00.")],
)
def test_gaps_between_dates_are_mentioned(step, words):
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta([0, 1, 2, 5], unit=step)
    frame = pd.DataFrame({"s": "a", "t": times.strftime("%Y-%m-%d %H:%M"), "y": 0.0})
    (note,) = general_remarks(None, (), avem.Panel.from_frame(frame, "s", time="t"), 0)
    assert "1 step in 't' is longer" in note
    assert words in note


def test_gaps_in_time_are_mentioned(truth):
    frame = truth.frame[~truth.frame["time"].isin([5, 6])]
    fit = MODEL.fit(frame, time="time", n_starts=1, refine=None)
    assert any("fill_gaps" in note for note in fit.info.notes)
    filled = avem.Panel.from_frame(frame, "subject", time="time").fill_gaps()
    refit = MODEL.fit(filled, n_starts=1, refine=None)
    assert refit.info.n_missing == 2 * 2 * 30
    assert not any("fill_gaps" in note for note in refit.info.notes)
    assert len(refit.decode()) == 750
    assert isinstance(refit.decode(), pd.Series)
