"""Pictures show the numbers of the fit, and show missing data as missing."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.dates import ConciseDateFormatter, num2date
from matplotlib.figure import Figure
from scipy.stats import norm

import avem
from avem.fits.plots import figures as _figures
from avem.fits.plots.figures import state_colors
from avem.fits.predict.at import occupancy
from avem.models.hmm import HMMModel

PARAMS = {
    "initial": [0.5, 0.5],
    "transition": [[0.9, 0.1], [0.15, 0.85]],
    "coef": [[[0.0], [1.0]], [[3.0], [-1.0]]],
    "variance": [[0.5, 0.3], [0.8, 0.4]],
    "effect_covariance": [[0.6, 0.2], [0.2, 0.4]],
}


@pytest.fixture(scope="module")
def fit():
    """Two outcomes, 8 subjects of different lengths."""
    model = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", 2)
    frame = model.simulate(PARAMS, n_subjects=8, n_times=40, seed=1).frame
    frame = frame[frame["time"] < 20 + 2 * frame["subject"]]
    return model.fit(frame, time="time", n_starts=1)


@pytest.fixture(scope="module")
def sessions():
    """A covariate with slopes, two sessions per mouse, missing outcomes and covariates."""
    rng = np.random.default_rng(0)
    rows = [(f"m$<{i}>$", s, t) for i in range(5) for s in ("a", "b") for t in range(25)]
    frame = pd.DataFrame(rows, columns=["mouse", "session", "trial"])
    frame["x"] = rng.normal(0.5, 1, len(frame))
    model = avem.MixedHMM("speed ~ x + (1 + x | mouse)", 2)
    params = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[0.0, 0.5]], [[6.0, -0.5]]],
        "variance": [[0.5], [0.5]],
        "effect_covariance": [[0.5, 0.0], [0.0, 0.2]],
    }
    frame = model.simulate(params, data=frame, time="trial", sequence="session", seed=1).frame
    gone = frame.index % 25 == 10
    frame.loc[gone, ["speed", "x"]] = np.nan
    return model.fit(frame, time="trial", sequence="session", n_starts=1)


def line(ax, gid):
    (found,) = [line for line in ax.lines if line.get_gid() == gid]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def expected_means(fit):
    """(rows, outcomes) params + effects, the long way round."""
    n_outcomes, n_terms = fit.params["coef"].shape[1:]
    table, state = fit.panel.table, np.asarray(fit.decode())
    columns = [np.ones(len(table)), table["x"].fillna(0)] if n_terms == 2 else [np.ones(len(table))]
    out = np.empty((len(table), n_outcomes))
    rows = zip(np.stack(columns, 1), state, fit.panel.row_subject, strict=True)
    for row, (x, k, i) in enumerate(rows):
        out[row] = (fit.params["coef"][k] + fit.effects_mean[i].reshape(n_outcomes, n_terms)) @ x
    return out


# --- states -------------------------------------------------------------------------------------


def test_states_has_a_panel_for_each_subject_and_outcome_and_says_how_many(fit):
    figure = fit.plot.states()
    assert len(figure.axes) == 6 * 2
    assert "6 of 8 subjects" in figure.get_suptitle()
    assert len(fit.plot.states(max_subjects=3, outcome="y2").axes) == 3
    shown = [ax.get_ylabel() for ax in fit.plot.states(max_subjects=2, outcome="y1").axes]
    assert shown == ["0", "7"]  # the shortest and the longest


def test_states_draws_the_data_and_the_means_of_the_fit(fit):
    figure = fit.plot.states(subjects=[5])
    rows = np.flatnonzero(fit.panel.row_subject == 5)
    wanted = expected_means(fit)[rows]
    state = np.asarray(fit.decode())[rows]
    for j, ax in enumerate(figure.axes):
        y = fit.panel.table[f"y{j + 1}"].to_numpy()[rows]
        np.testing.assert_array_equal(line(ax, "data")[1], y)
        np.testing.assert_allclose(line(ax, "mean")[1][::3], wanted[:, j], rtol=1e-12)
        for k in range(2):
            np.testing.assert_array_equal(line(ax, f"state {k}")[1], y[state == k])


def test_states_with_covariates_moves_the_mean_with_them(sessions):
    (ax,) = sessions.plot.states(subjects="m$<2>$").axes
    rows = np.flatnonzero(sessions.panel.row_subject == 2)
    wanted = expected_means(sessions)[rows, 0]
    drawn = line(ax, "mean")[1][::3]
    missing = np.isnan(sessions.panel.table["speed"].to_numpy()[rows])
    np.testing.assert_array_equal(np.isnan(drawn), missing)
    np.testing.assert_allclose(drawn[~missing], wanted[~missing], rtol=1e-12)


def test_missing_values_are_gaps_and_sessions_are_apart(sessions):
    (ax,) = sessions.plot.states(subjects=["m$<0>$"]).axes
    x, y = line(ax, "data")
    assert np.isnan(y).sum() == 2 + 1  # two missing values, and the break between the sessions
    assert np.isnan(x[25])
    assert np.isnan(y[10])
    _, mean = line(ax, "mean")
    assert np.isnan(mean[3 * 10 : 3 * 11]).all()
    assert np.isnan(mean[3 * 25 - 1])  # no riser from one session to the next
    dashed = [found for found in ax.lines if found.is_dashed()]
    assert [float(np.mean(found.get_xdata())) for found in dashed] == [24.5]
    assert "side by side" in ax.get_xlabel()  # both sessions start at trial 0


def test_real_times_are_used_where_they_can_be(fit):
    frame = fit.panel.table.copy()
    day = pd.Timestamp("2024-03-01") + pd.to_timedelta(frame["time"], unit="D")
    panel = avem.Panel.from_frame(frame.assign(day=day), "subject", time="day")
    dated = dataclasses.replace(fit, panel=panel)
    (ax,) = dated.plot.states(7, "y1").axes
    assert ax.get_xlabel() == "day"
    assert num2date(line(ax, "data")[0][0]).isoformat().startswith("2024-03-01")
    assert isinstance(ax.xaxis.get_major_formatter(), ConciseDateFormatter)
    text = avem.Panel.from_frame(
        frame.assign(day=[f"t{t:03d}" for t in frame["time"]]), "subject", time="day"
    )
    (ax,) = dataclasses.replace(fit, panel=text).plot.states(7, "y1").axes
    assert ax.get_xlabel() == "row"


def test_a_pause_in_time_breaks_the_lines(fit):
    frame = fit.panel.table.query("time < 5 or time > 14")
    paused = dataclasses.replace(fit, panel=avem.Panel.from_frame(frame, "subject", time="time"))
    (ax,) = paused.plot.states(7, "y1").axes
    assert np.flatnonzero(np.isnan(line(ax, "data")[1])).tolist() == [5]
    assert np.isnan(line(ax, "mean")[1][3 * 5 - 1])


def test_long_subjects_are_cut_and_the_title_says_so(fit):
    figure = fit.plot.states(subjects=7, outcome="y1", max_rows=10)
    assert "first 10 rows" in figure.get_suptitle()
    assert len(line(figure.axes[0], "data")[1]) == 10


def test_unknown_subjects_and_outcomes_are_named(fit):
    with pytest.raises(avem.DataError, match=r"no subject 99.*0, 1, 2, 3, 4, .*8 in all"):
        fit.plot.states(subjects=[1, 99])
    with pytest.raises(avem.DataError, match="empty"):
        fit.plot.states(subjects=[])
    with pytest.raises(avem.ModelError, match="no outcome 'z'; choose one of y1, y2"):
        fit.plot.states(outcome="z")


def test_states_of_a_fit_without_data_says_so(fit):
    with pytest.raises(avem.DataError, match="holds no data"):
        dataclasses.replace(fit, panel=None).plot.states()


# --- colours ------------------------------------------------------------------------------------


def test_a_state_has_one_colour_in_all_pictures(fit):
    colors = [color.lower() for color in state_colors(2)]
    ax = fit.plot.states(subjects=0).axes[0]
    for k in range(2):
        (dots,) = [found for found in ax.lines if found.get_gid() == f"state {k}"]
        assert to_hex(dots.get_color()) == colors[k]
        assert to_hex(ax.collections[k].get_facecolor()[0]) == colors[k]
    densities = fit.plot.emissions("y1").axes[0].lines[:2]
    assert [to_hex(found.get_color()) for found in densities] == colors
    ticks = fit.plot.transitions().axes[0].get_yticklabels()
    assert [to_hex(tick.get_color()) for tick in ticks] == colors


@pytest.mark.parametrize("n_states", [1, 7, 8, 20])
def test_colours_are_distinct(n_states):
    assert len(set(state_colors(n_states))) == n_states


# --- effects ------------------------------------------------------------------------------------


def test_effects_are_sorted_with_their_intervals(fit):
    figure = fit.plot.effects()
    assert len(figure.axes) == 2
    for ax, name in zip(figure.axes, fit.model.effect_names, strict=True):
        table = fit.effects()
        table = table[table["effect"] == name].sort_values("mean")
        np.testing.assert_array_equal(ax.lines[1].get_xdata(), table["mean"])
        ends = np.array([segment[:, 0] for segment in ax.collections[0].get_segments()])
        np.testing.assert_allclose(ends, table[["lower", "upper"]])
        labels = [tick.get_text() for tick in ax.get_yticklabels()]
        assert labels == [str(label) for label in table["subject"]]


@pytest.mark.parametrize(("n", "segments"), [(300, 300), (2500, 0)])
def test_many_subjects_lose_their_labels_and_then_their_bars(fit, n, segments):
    rng = np.random.default_rng(0)
    many = dataclasses.replace(
        fit,
        subjects=np.arange(n),
        effects_mean=rng.normal(size=(n, 2)),
        effects_cov=np.tile(0.1 * np.eye(2), (n, 1, 1)),
    )
    (ax,) = many.plot.effects("y2: Intercept").axes
    assert not ax.get_yticklabels()
    assert f"{n:,} subjects" in ax.get_ylabel()
    drawn = ax.collections[0]
    assert (len(drawn.get_segments()) if segments else 0) == segments
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), np.sort(many.effects_mean[:, 1]))


def without_effects(fit):
    """The same parameters in a model without effects."""
    spec = avem.MixedHMM("y1 + y2 ~ 1", 2).spec
    return dataclasses.replace(
        fit,
        model=dataclasses.replace(HMMModel.learn(spec, fit.panel), averages=np.ones(1)),
        params=fit.params | {"effect_covariance": np.zeros((0, 0))},
        effects_mean=np.zeros((len(fit.subjects), 0)),
        effects_cov=np.zeros((len(fit.subjects), 0, 0)),
    )


def test_no_effects_is_said_in_words(fit):
    with pytest.raises(avem.ModelError, match="No effects to draw"):
        without_effects(fit).plot.effects()
    with pytest.raises(avem.ModelError, match="no effect 'y3'; choose one of y1: Intercept"):
        fit.plot.effects("y3")


def test_without_effects_the_means_are_those_of_the_states(fit):
    plain = without_effects(fit)
    ax = plain.plot.states(subjects=3, outcome="y1").axes[0]
    assert set(line(ax, "mean")[1][::3]) <= set(fit.params["coef"][:, 0, 0])
    x, y = plain.plot.emissions("y1").axes[0].lines[0].get_data()
    sd = np.sqrt(fit.params["variance"][0, 0])
    weight = occupancy(plain)[0]
    np.testing.assert_allclose(y, weight * norm.pdf(x, fit.params["coef"][0, 0, 0], sd), rtol=1e-9)


# --- bound, emissions, transitions --------------------------------------------------------------


def test_bound_shows_the_history_and_what_was_left(fit):
    first, second = fit.plot.bound().axes
    np.testing.assert_array_equal(first.lines[0].get_ydata(), fit.bound_history)
    assert first.lines[0].get_xdata()[0] == 1
    best = max(fit.bound, fit.bound_history.max())
    distance = best - fit.bound_history
    np.testing.assert_array_equal(second.lines[0].get_ydata(), distance[distance > 0])
    assert second.get_yscale() == "log"


def test_next_to_no_progress_looks_flat(fit):
    still = dataclasses.replace(fit, bound=-10.0, bound_history=np.array([-10.000001, -10.0]))
    low, high = still.plot.bound().axes[0].get_ylim()
    assert high - low == pytest.approx(2)
    once = dataclasses.replace(fit, bound=-10.0, bound_history=np.array([-10.0]))
    assert _figures.png(once.plot.bound()).startswith(b"\x89PNG")


def test_emissions_add_the_effects_to_the_noise(fit):
    axes = fit.plot.emissions().axes
    weight = fit.state_probabilities().to_numpy().mean(0)
    assert len(axes) == 2
    for j, ax in enumerate(axes):
        sd = np.sqrt(fit.params["variance"][:, j] + fit.params["effect_covariance"][j, j])
        for k in range(2):
            x, y = ax.lines[k].get_data()
            wanted = weight[k] * norm.pdf(x, fit.params["coef"][k, j, 0], sd[k])
            np.testing.assert_allclose(y, wanted, rtol=1e-10)
        assert sum(bar.get_height() * bar.get_width() for bar in ax.patches) == pytest.approx(
            1, abs=0.02
        )
    assert axes[0].get_xlabel().startswith("y1")


def test_emissions_with_covariates_are_at_their_averages(sessions):
    ax = sessions.plot.emissions().axes[0]
    assert "average covariates" in ax.get_xlabel()
    x = sessions.panel.table["x"].mean()
    at = np.array([1.0, x])
    sigma = sessions.params["effect_covariance"]
    for k in range(2):
        peak = ax.lines[k].get_xdata()[np.argmax(ax.lines[k].get_ydata())]
        step = np.diff(ax.lines[k].get_xdata())[0]
        assert abs(peak - sessions.params["coef"][k, 0] @ at) <= step
    sd = np.sqrt(sessions.params["variance"][:, 0] + at @ sigma @ at)
    weight = sessions.state_probabilities().to_numpy().mean(0)
    tops = [found.get_ydata().max() for found in ax.lines[:2]]
    np.testing.assert_allclose(tops, weight * norm.pdf(0) / sd, rtol=1e-3)


def test_responses_have_bands_where_they_are_asked_for(sessions):
    assert not sessions.plot.emissions().axes[1].collections
    response = sessions.plot.emissions(level=0.9).axes[1]
    table = sessions.covariate("x", "speed", points=21, level=0.9)
    assert table["lower"].notna().all()
    for k, band in enumerate(response.collections):
        own = table[table["state"] == k]
        corners = band.get_paths()[0].vertices
        assert corners[:, 1].min() == pytest.approx(own["lower"].min())
        assert corners[:, 1].max() == pytest.approx(own["upper"].max())
        assert to_hex(band.get_facecolor()[0]) == state_colors(2)[k].lower()


def test_emissions_without_data_are_densities_alone(sessions):
    (ax,) = dataclasses.replace(sessions, panel=None).plot.emissions().axes
    assert not ax.patches
    assert "average covariates" in ax.get_xlabel()
    weight = occupancy(dataclasses.replace(sessions, panel=None))
    np.testing.assert_allclose(weight @ sessions.params["transition"], weight, atol=1e-9)
    assert weight.sum() == pytest.approx(1)


def test_transitions_shows_every_probability(fit):
    params = fit.params | {"transition": np.array([[0.9999, 0.0001], [0.25, 0.75]])}
    (ax,) = dataclasses.replace(fit, params=params).plot.transitions().axes
    assert [text.get_text() for text in ax.texts] == [">0.999", "<0.001", "0.250", "0.750"]
    np.testing.assert_array_equal(ax.images[0].get_array(), params["transition"])


# --- figures ------------------------------------------------------------------------------------


def test_pictures_draw_on_the_callers_axes(fit):
    ax = Figure().subplots()
    assert fit.plot.transitions(ax=ax) is ax.figure
    fit.plot.bound(ax=Figure().subplots())
    fit.plot.emissions("y1", ax=Figure().subplots())
    fit.plot.effects("y1: Intercept", ax=Figure().subplots())
    with pytest.raises(avem.ModelError, match="2 panels"):
        fit.plot.effects(ax=ax)


def test_a_figure_shows_itself_and_survives_pickling(sessions):
    figure = pickle.loads(pickle.dumps(sessions.plot.states()))  # labels with $ do not break it
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert sessions.plot.effects(figsize=(3, 2)).get_size_inches().tolist() == [3, 2]


def test_importing_avem_does_not_import_matplotlib_and_plots_never_import_pyplot():
    code = """
import sys, avem
assert "matplotlib" not in sys.modules
from avem.fits.plots.figures import new_figure, state_colors
new_figure((2, 2)).subplots()
state_colors(20)
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- what is ahead, and residuals -----------------------------------------------------------------


def test_forecast_shows_the_predicted_means_and_chances(fit):
    table = fit.predict(horizon=4, of="states")
    figure = fit.plot.forecast(3, horizon=4, outcome="y2", max_rows=12)
    above, below = figure.axes
    means = fit.predict(horizon=4)
    own = means[(means["subject"] == 3) & (means["outcome"] == "y2")]["mean"]
    drawn = [line.get_ydata()[0] for line in above.lines if line.get_gid() == "mean"]
    np.testing.assert_allclose(drawn, own, rtol=1e-9)
    points = sum(len(line.get_xdata()) for line in above.lines if "state" in str(line.get_gid()))
    assert points == 12
    heights = [bar.get_height() for bar in below.patches]
    assert len(heights) == 2 * (12 + 4)
    ahead = table[table["subject"] == 3].pivot(index="step", columns="state", values="probability")
    np.testing.assert_allclose(heights[-4:], ahead["state_1"], rtol=1e-9)
    assert len(fit.plot.forecast(max_subjects=2, horizon=1).axes) == 2 * 3
    (alone,) = fit.plot.forecast(3, horizon=4, of="states", max_rows=12).axes
    assert [bar.get_height() for bar in alone.patches] == heights
    outcomes = fit.plot.forecast(3, horizon=4, of="outcomes", max_rows=12).axes
    assert [ax.get_ylabel() for ax in outcomes] == ["y1", "y2"]
    drawn = [line.get_ydata()[0] for line in outcomes[1].lines if line.get_gid() == "mean"]
    np.testing.assert_allclose(drawn, own, rtol=1e-9)
    with pytest.raises(avem.ModelError, match="of is 'means'; choose one of 'outcomes', 'states'"):
        fit.plot.forecast(3, of="means")
    with pytest.raises(avem.ModelError, match="leave one of them out"):
        fit.plot.forecast(3, of="states", outcome="y1")


def test_residuals_are_drawn_as_they_are(fit):
    values = fit.residuals(effects="drawn")["y1"].to_numpy()
    figure = fit.plot.residuals("y1", lags=4)
    top, middle, bottom = figure.axes
    (points,) = [line for line in top.lines if line.get_gid() == "quantiles"]
    assert set(np.round(points.get_ydata(), 9)) == set(np.round(values, 9))
    (spikes,) = [line for line in middle.lines if line.get_gid() == "autocorrelation"]
    expected = fit.whiteness(4).iloc[0][[f"lag_{k}" for k in range(1, 5)]]
    np.testing.assert_allclose(spikes.get_ydata(), expected.to_numpy(float))
    total = sum(bar.get_height() * bar.get_width() for bar in bottom.patches)
    np.testing.assert_allclose(total, 1.0)
    assert len(fit.plot.residuals(kind="ordinary", effects="fitted").axes) == 6
