"""Tables of state-space fits: states, predictions, forecasts, residuals and their tests."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

from avem.data import Panel
from avem.data.ahead import times_ahead
from avem.errors import DataError, ModelError
from avem.fits.predict.ssm import predict, states
from avem.inference.after.ssm_states import moments
from avem.inference.e_steps import state_at
from avem.inference.fit_ssm import make_ssm_em
from avem.models.ssm import SSMModel
from avem.numerics.precision import in_float64
from tests.ssm_truth import draw, specification, true_fit


@pytest.fixture(scope="module")
def made():
    return true_fit(n_subjects=3, n_times=8, sequences=2, missing=0.2, seed=3)


def test_states_are_in_the_callers_row_order(made):
    fit, frame = made
    found = states(fit)
    assert found.index.equals(frame.index)
    assert list(found)[:5] == ["state_0", "state_0_sd", "state_0_lower", "state_0_upper", "state_1"]
    again = states(fit, frame.sort_values(["id", "day", "t"]))
    pd.testing.assert_frame_equal(found.sort_index(), again.sort_index())
    assert (states(fit, kind="filtered")["state_0_sd"] >= found["state_0_sd"] - 1e-9).all()
    wide = states(fit, level=0.99)
    assert (wide["state_1_upper"] > found["state_1_upper"]).all()
    with pytest.raises(ModelError, match="smoothed"):
        states(fit, kind="best")
    with pytest.raises(ModelError, match="integrated"):
        states(fit, effects="mean")


def test_predictions_belong_to_the_residuals(made):
    fit, frame = made
    found, left = fit.predictions(), fit.residuals()
    want = (frame["y2"] - found["y2"]) / found["y2_sd"]
    np.testing.assert_allclose(left["y2"], want, atol=1e-10)
    assert (left["y2"].isna() == frame["y2"].isna()).all()
    assert found["y2"].notna().all()


def test_predictions_are_missing_where_covariates_are():
    fit, frame = true_fit(specification("y1 + y2 ~ x"), n_subjects=2, n_times=6, seed=5)
    frame = frame.astype({"y1": float})
    hole = frame.index[4]
    frame.loc[hole, ["x", "y1", "y2"]] = np.nan
    found = fit.predictions(frame)
    assert found.isna().any(axis=1).sum() == 1
    assert found.loc[hole].isna().all()


def test_forecasts_are_those_of_simulation(made):
    """States drawn from the last filtered ones and moved on, many times."""
    fit, frame = made
    last = states(fit, kind="filtered")
    table = predict(fit, 4, effects="fitted")
    keys = ["id", "day", "t", "step", "outcome", "mean", "sd", "lower", "upper"]
    assert list(table) == keys
    assert len(table) == fit.panel.n_lanes * 4 * 3
    row = frame.index[(frame["id"] == "s1") & (frame["day"] == 1) & (frame["t"] == 7)][0]
    own = fit.effects_mean[list(fit.subjects).index("s1")]
    g = fit.params["transition_mean"] + own.reshape(2, 2).T
    data = fit._encode(None)
    cov = moments(fit.model, data, fit.theta, fit._effects_for(data), "filtered").state_cov
    rng = np.random.default_rng(0)
    mean = last.loc[row, ["state_0", "state_1"]].to_numpy(float)
    x = rng.multivariate_normal(mean, cov[frame.index.get_loc(row)], 200_000)
    rows = table[(table["id"] == "s1") & (table["day"] == 1)].set_index(["step", "outcome"])
    for step in range(1, 5):
        x = x @ g.T + rng.standard_normal(x.shape)
        noise = rng.standard_normal((len(x), 3)) * np.sqrt(fit.params["noise"])
        y = x @ fit.params["loading_mean"].T + fit.params["coef"][:, 0] + noise
        found = rows.loc[step].loc[["y1", "y2", "y3"]]
        np.testing.assert_allclose(found["mean"], y.mean(0), atol=0.03)
        np.testing.assert_allclose(found["sd"], y.std(0), rtol=0.01)
        np.testing.assert_allclose(found["upper"], np.quantile(y, 0.975, axis=0), atol=0.05)
        assert (found["t"] == 7 + step).all()
    hidden = predict(fit, 4, of="states", effects="fitted")
    one = hidden[(hidden["id"] == "s1") & (hidden["day"] == 1) & (hidden["step"] == 4)]
    np.testing.assert_allclose(one["mean"], x.mean(0), atol=0.03)


def test_doubt_about_the_effects_widens_forecasts(made):
    fit, _ = made
    one, other = predict(fit, 3, effects="fitted"), predict(fit, 3)
    assert (other["sd"] > one["sd"]).all()
    np.testing.assert_allclose(one["mean"], other["mean"], atol=0.5)


def test_forecasts_with_covariates():
    spec = specification("y1 + y2 ~ 0 + x", state="~ 0 + x", random=())
    fit, frame = true_fit(spec, n_subjects=2, n_times=6, seed=4)
    with pytest.raises(DataError, match=r"needs 'x' at every step.*columns id, day, t, x"):
        predict(fit, 2)
    future = pd.DataFrame(
        {"id": ["s1", "s0"] * 2, "day": 0, "t": [6, 6, 7, 7], "x": [1.0, -1.0, 2.0, 0.5]}
    )
    table = predict(fit, 2, future=future, effects="fitted")
    x = states(fit, kind="filtered")
    end = frame.index[(frame["id"] == "s0") & (frame["t"] == 5)][0]
    state = x.loc[end, ["state_0", "state_1"]].to_numpy(float)
    for step, now in ((1, -1.0), (2, 0.5)):
        state = fit.params["transition_mean"] @ state + fit.params["state_coef"][:, 0] * now
        want = fit.params["loading_mean"] @ state + fit.params["coef"][:, 0] * now
        got = table[(table["id"] == "s0") & (table["step"] == step)]
        np.testing.assert_allclose(got["mean"], want, atol=1e-9)
    with pytest.raises(DataError, match="1 rows for id 's1'"):
        predict(fit, 2, future=future.drop(index=2))
    with pytest.raises(DataError, match="In future: There is no column 'id'"):
        predict(fit, 2, future=future.rename(columns={"id": "person"}))
    with pytest.raises(DataError, match="rows after the end"):
        predict(fit, 2, future=future.assign(t=future["t"] - 3))
    with pytest.raises(DataError, match="needs 'x'"):
        predict(fit, 2, future=future.assign(x=np.nan))
    with pytest.raises(DataError, match="horizon is 0"):
        predict(fit, 0)


def test_a_lagged_outcome_is_known_one_step_ahead():
    spec = specification("y1 + y2 ~ lag(y1)", random=())
    fit, frame = true_fit(specification("y1 + y2 ~ x", random=()), n_subjects=2, n_times=6)
    fit = replace(fit, model=SSMModel.learn(spec, fit.panel))
    with pytest.raises(ModelError, match=r"lag\(\) of an outcome.*horizon=1"):
        predict(fit, 2)
    last = frame[frame["t"] == frame["t"].max()]
    state = states(fit, kind="filtered").loc[last.index, ["state_0", "state_1"]].to_numpy(float)
    level = state @ fit.params["transition_mean"].T @ fit.params["loading_mean"].T
    level += fit.params["coef"][:, 0] + np.outer(last["y1"], fit.params["coef"][:, 1])
    table = predict(fit, 1, effects="fitted")
    for who, want in zip(last["id"], level, strict=True):
        np.testing.assert_allclose(table[table["id"] == who]["mean"], want, atol=1e-9)


def test_times_go_on_where_steps_are_regular():
    dates = pd.date_range("2024-01-30", periods=3, freq="D")
    frame = pd.DataFrame({"id": ["a"] * 3, "t": dates, "y": 0.0})
    found = times_ahead(Panel.from_frame(frame, "id", "t"), 2)
    assert found is not None
    assert found.tolist() == [pd.Timestamp("2024-02-02"), pd.Timestamp("2024-02-03")]
    frame["t"] = ["2024-01", "2024-02", "2024-03"]
    assert times_ahead(Panel.from_frame(frame, "id", "t"), 2) is None


# --- whiteness ----------------------------------------------------------------------------------


def test_residuals_are_white_under_the_truth():
    """P-values of panels from the truth are uniform, and those of wrong models are not."""
    fit, frame = true_fit(n_subjects=6, n_times=20, missing=0.1)
    rng = np.random.default_rng(0)
    p_white, p_normal, p_apart = [], [], []
    for _ in range(40):
        frame[["y1", "y2", "y3"]] = draw(fit.model, fit.params, fit.panel, fit.effects_mean, rng)
        table = fit.whiteness(data=frame, effects="fitted")
        p_white += table["p_white"].tolist()
        p_normal += table["p_normal"].tolist()
        p_apart += [table["p_apart"].iloc[0]]
    for values in (p_white, p_apart):
        assert kstest(values, "uniform").pvalue > 0.001
        assert np.mean(np.array(values) < 0.05) < 0.15
    assert np.mean(np.array(p_normal) < 0.05) < 0.15


def test_wrong_models_are_found():
    one = specification("y1 + y2 + y3 ~ 1", random=())
    fit, _ = true_fit(one, n_subjects=10, n_times=60)
    right = fit.whiteness()
    assert right[["p_white", "p_normal", "p_apart"]].min().min() > 1e-3
    np.testing.assert_allclose(right["sd"], 1.0, atol=0.1)
    still = {**fit.params, "transition_mean": 0 * fit.params["transition_mean"]}
    wrong = replace(fit, params=still).whiteness()
    assert wrong["p_white"].max() < 1e-6
    assert wrong["lag_1"].min() > 0.15
    noise = np.diag(fit.params["noise"]) + 0.25
    tied, _ = true_fit(one, n_subjects=10, n_times=60, noise_cov=noise)
    wide = {**tied.params, "noise": np.diag(noise)}
    found = replace(tied, params=wide).whiteness()
    assert found["p_apart"].min() < 1e-4


@in_float64
def posterior(fit):
    """Mean and covariance of q_i at the true parameters, in the user's units."""
    data = fit._encode(None)
    em = make_ssm_em(fit.model, data)
    mean = np.zeros((fit.model.n_effects, data.panel.n_subjects))
    for _ in range(12):
        mean, cov = em.e.of_subjects(state_at(em.data, fit.theta, mean), "mean", "covariance")
    return fit.model.effects_out(mean, cov)


def test_residuals_at_drawn_effects_are_white_where_those_at_fitted_ones_are_not():
    spec = specification("y1 + y2 ~ 0", n_latent=1, random=("transition", "loading"))
    fit, _ = true_fit(spec, n_subjects=800, n_times=12, size=0.3, seed=2)
    fit = replace(fit, **dict(zip(("effects_mean", "effects_cov"), posterior(fit), strict=True)))
    fitted, drawn = fit.whiteness(effects="fitted"), fit.whiteness()
    assert fitted["p_white"].min() < 1e-3
    assert drawn["p_white"].min() > 0.01
    assert (drawn["lag_1"].abs() < 0.025).all()


def test_heavy_tails_are_found():
    fit, frame = true_fit(n_subjects=6, n_times=30)
    frame.loc[frame.index[::20], "y2"] += 8.0
    table = fit.whiteness(data=frame).set_index("outcome")
    assert table.loc["y2", "p_normal"] < 1e-6
    with pytest.raises(ModelError, match="from 1 to 29"):
        fit.whiteness(lags=30)
    with pytest.raises(ModelError, match="drawn"):
        fit.residuals(effects="new")
