"""Fits of state-space models in continuous time: what they find, and what they can be asked."""

import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from typer.testing import CliRunner

import avem
from avem.cli import app
from avem.errors import DataError, ModelError

FOLDER = Path(os.environ.get("AVEM_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRUTH = {
    "initial_mean": [0.0],
    "initial_covariance": [[2.0]],
    "drift_mean": [[-0.4]],
    "loading_mean": [[1.0], [0.8]],
    "coef": [[1.0], [-1.0]],
    "noise": [0.3, 0.3],
    "drift_covariance": [[0.02]],
}


def visits(n=30, length=25, seed=0, mean=1.5):
    """Rows at irregular hours."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"who": np.repeat(np.arange(n), length)})
    frame["hour"] = rng.gamma(1.5, mean / 1.5, len(frame)) + 0.05
    return frame.assign(hour=frame.groupby("who")["hour"].cumsum())


def model_of(**options):
    chosen = {"subject": "who", "random": "drift", "time_scale": "continuous"} | options
    return avem.MixedSSM(["y1", "y2"], 1, **chosen)


@pytest.fixture(scope="module")
def drawn():
    return model_of().simulate(TRUTH, data=visits(), time="hour", seed=1, max_radius=0.95)


@pytest.fixture(scope="module")
def fit(drawn):
    return model_of(unit="hours").fit(drawn.frame, time="hour", refine="adaptive")


def test_the_fit_finds_the_drift(fit, drawn):
    assert fit.stop.name == "CONVERGED"
    table = fit.standard_errors().set_index(["parameter"])
    row = table.loc["drift_mean"]
    assert abs(row["estimate"] + 0.4) < 3 * row["se"]
    assert set(fit.effects()["effect"]) == {"drift[0, 0]"}
    own = np.corrcoef(fit.effects_mean[:, 0], drawn.effects[:, 0])[0, 1]
    assert own > 0.35
    np.testing.assert_allclose(fit.drifts[:, 0, 0], fit.effects_mean[:, 0] + row["estimate"])
    np.testing.assert_allclose(fit.transitions, np.exp(fit.drifts))
    x = fit.states()
    assert np.corrcoef(x["state_0"], drawn.states[:, 0])[0, 1] > 0.9
    inside = (x["state_0_lower"] < drawn.states[:, 0]) & (drawn.states[:, 0] < x["state_0_upper"])
    assert 0.9 < inside.mean() < 0.99


def test_the_unit_of_time_changes_numbers_and_nothing_else(fit, drawn):
    """Dates in days for numbers in hours: all of it is exact."""
    start = pd.Timestamp("2024-03-30 12:00", tz="Europe/Berlin")
    dates = drawn.frame.assign(hour=start + pd.to_timedelta(drawn.frame["hour"], unit="h"))
    params = {
        "drift_mean": fit.params["drift_mean"] * 24,
        "drift_covariance": fit.params["drift_covariance"] * 24**2,
        "loading_mean": fit.params["loading_mean"] * np.sqrt(24),
        "initial_mean": fit.params["initial_mean"] / np.sqrt(24),
        "initial_covariance": fit.params["initial_covariance"] / 24,
        "coef": fit.params["coef"],
        "noise": fit.params["noise"],
    }
    other = model_of().fit(dates, time="hour", init=params, method="adaptive", refine=None)
    np.testing.assert_allclose(other.loglik(), fit.loglik(), atol=1e-4)
    assert "Drift per day" in str(other.summary())
    assert "Drift per hour" in str(fit.summary())
    states = other.states()["state_0"] * np.sqrt(24)
    np.testing.assert_allclose(states, fit.states()["state_0"], atol=1e-3)


def test_forecasts_go_to_any_time(fit, drawn):
    frame = drawn.frame
    some = frame[frame["who"].isin([0, 1])]
    last = some.groupby("who")["hour"].max()
    future = pd.DataFrame(
        {"who": [0, 0, 1, 1], "hour": [last[0] + 1, last[0] + 3, last[1] + 2, 1e4]}
    )
    asked = {"horizon": 2, "data": some, "future": future, "effects": "fitted"}
    found = fit.predict(of="states", **asked)
    now = fit.states(some, kind="filtered")
    ends = now.groupby(some["who"].to_numpy()).last()
    drift = {who: fit.drifts[list(fit.subjects).index(who), 0, 0] for who in (0, 1)}
    gaps = [(0, 1.0), (0, 3.0), (1, 2.0), (1, 1e4 - last[1])]
    for row, (who, gap) in zip(found.to_dict("records"), gaps, strict=True):
        kept = np.exp(drift[who] * gap)
        here = ends.loc[who]
        assert abs(row["mean"] - kept * here["state_0"]) < 1e-8
        spread = (kept**2 - 1) / (2 * drift[who]) + kept**2 * here["state_0_sd"] ** 2
        assert abs(row["sd"] - np.sqrt(spread)) < 1e-6
    outcomes = fit.predict(**asked)
    np.testing.assert_allclose(
        outcomes["mean"].iloc[::2].to_numpy(),
        fit.params["coef"][0, 0] + fit.params["loading_mean"][0, 0] * found["mean"].to_numpy(),
    )
    with pytest.raises(DataError, match="after the end"):
        fit.predict(
            horizon=1, data=some, future=future.drop(columns="hour").assign(hour=[0, 1] * 2)
        )


def of_one(a, truth, frame, ahead=0):
    """On a grid of drifts: log likelihood of a subject's rows, and mean and variance at the end."""
    x, cov = np.full(len(a), truth["initial_mean"][0]), truth["initial_covariance"][0][0]
    cov, loglik = np.full(len(a), cov), np.zeros(len(a))
    loading, coef = np.array(truth["loading_mean"])[:, 0], np.array(truth["coef"])[:, 0]
    times = np.append(frame["hour"], frame["hour"].iloc[-1] + ahead)
    rows = np.vstack([frame[["y1", "y2"]] - coef, [np.nan, np.nan]])
    for gap, y in zip(np.diff(times, prepend=times[0]), rows, strict=True):
        kept = np.exp(a * gap)
        x, cov = kept * x, kept**2 * cov + (kept**2 - 1) / (2 * a)
        for h, own, noise in zip(loading, y, truth["noise"], strict=True):
            if not np.isnan(own):
                total, miss = h**2 * cov + noise, own - h * x
                loglik -= 0.5 * (np.log(2 * np.pi * total) + miss**2 / total)
                x, cov = x + cov * h * miss / total, cov * noise / total
    return loglik, x, cov


def test_drifts_that_rows_rule_out_weigh_nothing():
    """After days without an outcome states may have grown to 1e50 under them. By fine grids."""
    truth = TRUTH | {"drift_covariance": [[0.15]]}
    frame = model_of().simulate(truth, data=visits(8), time="hour", seed=3, max_radius=0.9).frame
    late = frame.groupby("who").cumcount() >= 12
    frame.loc[late, ["y1", "y2"]] = np.nan
    frame.loc[late, "hour"] += 6.0 * (frame.groupby("who").cumcount() - 11)[late]
    held = {name: value for name, value in truth.items() if name != "drift_mean"}
    fit = model_of().fit(frame, time="hour", fixed=held, refine="adaptive")
    a = np.linspace(-4.0, 0.9, 7002)
    own = [of_one(a, truth, rows, 3.0) for _, rows in frame.groupby("who")]

    def height(mean):
        prior = -0.5 * ((a - mean) ** 2 / 0.15 + np.log(2 * np.pi * 0.15)) + np.log(a[1] - a[0])
        return [logsumexp(loglik + prior) for loglik, _, _ in own], prior

    mean = fit.params["drift_mean"][0, 0]
    np.testing.assert_allclose(fit.loglik().by_subject, height(mean)[0], atol=1e-3)
    around = [sum(height(mean + by)[0]) for by in (-1e-3, 0.0, 1e-3)]
    se = fit.standard_errors().set_index("parameter").loc["drift_mean", "se"]
    assert abs(se * np.sqrt(-np.diff(around, 2)[0] / 1e-6) - 1) < 0.01

    future = pd.DataFrame({"who": range(8), "hour": frame.groupby("who")["hour"].max() + 3.0})
    found = fit.predict(horizon=1, future=future, of="states")
    for row, (loglik, x, cov) in zip(found.to_dict("records"), own, strict=True):
        weight = np.exp(loglik + height(mean)[1])
        weight /= weight.sum()
        for p, end in ((0.025, row["lower"]), (0.975, row["upper"])):
            assert abs(weight @ norm.cdf((end - x) / np.sqrt(cov)) - p) < 0.01


def test_a_picture_of_what_is_to_come_has_the_unit_of_time(fit, drawn):
    ax = fit.plot.forecast(3, horizon=2, outcome="y1").axes[0]
    assert ax.get_xlabel() == "hours from the last row"
    hours = drawn.frame.loc[drawn.frame["who"] == 3, "hour"].to_numpy()
    ahead = fit.predict(horizon=2).query("who == 3 and outcome == 'y1'")["hour"].to_numpy()
    drawn_at = next(line for line in ax.lines if line.get_gid() == "forecast")
    np.testing.assert_allclose(drawn_at.get_xdata(), ahead - hours[-1])
    smoothed = next(line for line in ax.lines if len(line.get_xdata()) == 20)
    np.testing.assert_allclose(smoothed.get_xdata(), hours[-20:] - hours[-1])


@pytest.mark.usefixtures("blank_pictures")
def test_it_is_saved_simulated_checked_and_reported(fit, drawn, tmp_path):
    fit.save(tmp_path / "fit.avem")
    again = avem.load(tmp_path / "fit.avem").with_data(drawn.frame)
    assert again.model.spec == fit.model.spec
    pd.testing.assert_frame_equal(again.states(), fit.states())
    assert np.abs(fit.residuals().mean()).max() < 0.1
    assert np.abs(fit.residuals().std() - 1).max() < 0.1
    assert fit.simulate(seed=2).states.shape == (len(drawn.frame), 1)
    fit.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "in continuous time, with a drift" in page
    assert "time_scale=&#x27;continuous&#x27;" in page or "time_scale='continuous'" in page
    assert eval(repr(model_of(unit="hours")), {"MixedSSM": avem.MixedSSM}).spec == fit.model.spec


def test_what_cannot_be_is_refused_in_words(drawn):
    frame = drawn.frame
    with pytest.raises(DataError, match="needs times"):
        model_of().fit(frame)
    with pytest.raises(ModelError, match="between rows"):
        model_of().fit(frame, time="hour", method="mean_field")
    with pytest.raises(ModelError, match="unit="):
        avem.MixedSSM(["y1"], 1, unit="hours")
    with pytest.raises(ModelError, match="id you mean"):
        avem.MixedSSM(["y1"], 1, time_scale="continous")
    with pytest.raises(ModelError, match="drift"):
        avem.MixedSSM(["y1"], 1, random="drift")
    with pytest.raises(ModelError, match="continuous time"):
        _ = (
            avem.MixedSSM(["y1", "y2"], 1, subject="who", random="none")
            .fit(frame[frame["who"] < 8], n_starts=1, refine=None)
            .drifts
        )


@pytest.mark.slow
def test_the_command_writes_it(drawn, tmp_path):
    drawn.frame[drawn.frame["who"] < 8].to_csv(tmp_path / "data.csv", index=False)
    words = ["--outcomes", "y1,y2", "--latent", "1", "--subject", "who", "--time", "hour"]
    more = [
        "--time-scale",
        "continuous",
        "--unit",
        "hours",
        "--random",
        "none",
        "--refine",
        "never",
    ]
    out = ["--out", str(tmp_path / "out"), "--no-plots", "--starts", "1"]
    done = CliRunner().invoke(
        app,
        ["fit-ssm", str(tmp_path / "data.csv"), *words, *more, *out],
        env={"AVEM_NO_CACHE": "1"},
    )
    assert done.exit_code == 0, done.output
    assert "Drift per hour" in (tmp_path / "out" / "summary.txt").read_text()


def test_rows_far_from_even_are_spoken_of(drawn):
    steps = avem.MixedSSM(["y1", "y2"], 1, subject="who", random="none")
    found = steps.fit(drawn.frame[drawn.frame["who"] < 8], time="hour", n_starts=1)
    assert any("time_scale='continuous'" in note for note in found.info.notes)


METHODS = ["avem", "partial", "structured", "adaptive", "monte_carlo", "quadrature"]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_comes_near_the_likelihood_of_the_others(fit, drawn, method):
    other = model_of().fit(drawn.frame, time="hour", method=method, refine=None, max_iter=200)
    assert abs(other.params["drift_mean"][0, 0] - fit.params["drift_mean"][0, 0]) < 0.1
    assert other.loglik() > fit.loglik() - 5


@pytest.mark.slow
def test_recovery_of_drifts_with_a_negative_control():
    """40 panels of two states; then subjects who are alike, whose variance must go to nothing."""
    mean = np.array([[-0.5, 0.2], [0.0, -0.3]])
    truth = TRUTH | {
        "initial_mean": [0.0, 0.0],
        "initial_covariance": np.eye(2),
        "drift_mean": mean,
        "loading_mean": [[1.0, 0.0], [0.5, 1.0], [0.0, 0.8]],
        "coef": np.zeros((3, 1)),
        "noise": [0.2, 0.2, 0.2],
        "drift_covariance": 0.01 * np.eye(4),
    }
    model = avem.MixedSSM(
        ["y1", "y2", "y3"],
        2,
        subject="who",
        random="drift",
        time_scale="continuous",
        effect_covariance="diagonal",
    )
    estimates, covers, variances = [], [], {True: [], False: []}
    for seed in range(10):
        frame = visits(60, 40, seed=seed, mean=1.0)
        for differ in (True, False):
            own = truth if differ else truth | {"drift_covariance": 1e-12 * np.eye(4)}
            made = model.simulate(own, data=frame, time="hour", seed=seed, max_radius=0.97)
            fit = model.fit(made.frame, time="hour", refine="adaptive")
            variances[differ].append(np.diagonal(fit.params["drift_covariance"]))
            if differ:
                table = fit.standard_errors()
                rows = table[table["parameter"] == "drift_mean"]
                estimates.append(fit.params["drift_mean"])
                covers.append(np.abs(rows["estimate"] - mean.ravel()) < 1.96 * rows["se"])
    estimates = np.array(estimates)
    print(estimates.mean(0), estimates.std(0), np.mean(covers), file=sys.stderr)
    print(np.mean(variances[True], 0), np.mean(variances[False], 0), file=sys.stderr)
    np.testing.assert_allclose(estimates.mean(0), mean, atol=0.05)
    assert np.mean(covers) > 0.8
    assert (np.mean(variances[False], 0) < 0.3 * np.mean(variances[True], 0)).all()


@pytest.mark.slow
@pytest.mark.skipif(not (FOLDER / "AnomAuth.csv").exists(), reason="the panel is not here")
def test_the_figure_of_ctsem_on_the_panel_of_anomie_and_authoritarianism():
    """Its model has no noise of measurement, the limit of ours: -2 log L = 23415.929 (its tests).

    EM stands still there, for states without noise leave loadings no room; so the likelihood is
    climbed by its slopes, from our own start, as the noise is made smaller and smaller.
    """
    from scipy.optimize import minimize

    from tests.models.ct_climb import climber

    table = pd.read_csv(FOLDER / "AnomAuth.csv")
    times = np.concatenate(
        [np.zeros((len(table), 1)), table[[f"dT{i}" for i in range(1, 5)]].cumsum(axis=1)], axis=1
    )
    frame = pd.concat(
        pd.DataFrame(
            {
                "who": np.arange(len(table)),
                "time": times[:, t],
                "y1": table[f"Y1_T{t}"],
                "y2": table[f"Y2_T{t}"],
            }
        )
        for t in range(5)
    )
    model = avem.MixedSSM(["y1", "y2"], 2, subject="who", random="none", time_scale="continuous")
    vector, found = None, {}
    for noise in 10.0 ** -np.arange(1, 8):
        height, start, unit = climber(model, frame, noise)
        vector = start if vector is None else vector
        options = {"maxiter": 300, "gtol": 1e-7}
        done = minimize(height, vector, jac=True, method="BFGS", options=options)
        vector, found[noise] = done.x, done.fun * unit
    last, before = found[1e-7], found[1e-6]
    assert abs(last + (last - before) / 9 - 23415.929) < 2e-3
    # What measurement noise explains, their model must not.
    assert found[0.1] < 23006
