"""Pictures of state-space fits: what is drawn, and what is not."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from avem.data import Panel
from avem.errors import DataError, ModelError
from avem.fits.plots.ssm_plots import SSMPlots
from tests.ssm_truth import specification, true_fit

RANDOM = ("transition", "loading")


@pytest.fixture(scope="module")
def fit():
    """Five subjects; the second half of the rows comes after a pause."""
    found, frame = true_fit(specification(random=RANDOM), n_subjects=5, n_times=10, missing=0.2)
    frame["t"] += 5 * (frame["t"] > 4)
    return replace(found, panel=Panel.from_frame(frame, "id", "t"))


def drawn(axes, gid):
    return [line for line in axes.lines if line.get_gid() == gid]


def test_states_over_outcomes_with_gaps(fit):
    figure = SSMPlots(fit).states(["s1", "s3"])
    grid = np.array(figure.axes).reshape(4, 2)
    assert [ax.get_title() for ax in grid[0]] == ["s1", "s3"]
    assert [ax.get_ylabel() for ax in grid[:, 0]] == ["states", "y1", "y2", "y3"]
    for ax in grid.ravel():
        line = ax.lines[0]
        assert np.isnan(line.get_ydata()).sum() == 1  # one pause, one break
        assert len(line.get_ydata()) == 11
    (points,) = drawn(grid[1, 0], "data")
    table = fit.panel.table.query("id == 's1'").sort_values("t")
    np.testing.assert_array_equal(points.get_ydata(), table["y1"])
    figure.canvas.draw()
    assert len(SSMPlots(fit).states(outcome="y2").axes) == 6
    with pytest.raises(DataError, match="no subject 'nobody'"):
        SSMPlots(fit).states("nobody")
    with pytest.raises(ModelError, match="no outcome 'z'"):
        SSMPlots(fit).states(outcome="z")


def test_forecast_goes_on_from_the_last_row(fit):
    figure = SSMPlots(fit).forecast("s2", horizon=4)
    assert len(figure.axes) == 3
    (ahead,) = drawn(figure.axes[0], "forecast")
    np.testing.assert_array_equal(ahead.get_xdata(), [1, 2, 3, 4])
    (points,) = drawn(figure.axes[0], "data")
    np.testing.assert_array_equal(points.get_xdata(), np.arange(-9, 1))
    figure.canvas.draw()


def test_forecast_of_states(fit):
    plots = SSMPlots(fit)
    figure = plots.forecast("s2", horizon=4, of="states")
    assert [ax.get_ylabel() for ax in figure.axes] == ["state 0", "state 1"]
    table = fit.predict(horizon=4, of="states").query("id == 's2'")
    past = fit.states()[(fit.panel.table["id"] == "s2").to_numpy()]
    order = fit.panel.table.query("id == 's2'")["t"].argsort()
    for k, ax in enumerate(figure.axes):
        (ahead,) = drawn(ax, "forecast")
        np.testing.assert_allclose(ahead.get_ydata(), table[table["state"] == f"state_{k}"]["mean"])
        smoothed = next(line for line in ax.lines if len(line.get_xdata()) == 10)
        np.testing.assert_allclose(smoothed.get_ydata(), past[f"state_{k}"].to_numpy()[order])
    assert len(plots.forecast("s2", horizon=4, of="outcomes").axes) == 3
    with pytest.raises(ModelError, match="leave one of them out"):
        plots.forecast("s2", of="states", outcome="y1")
    figure.canvas.draw()


def test_loadings_of_the_population_and_of_subjects(fit):
    figure = SSMPlots(fit).loadings()
    first, second = figure.axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["y1", "y2", "y3"]
    assert len(second.texts) == 1  # y1 does not read the second state
    size = np.array([1.0, 1.0, 100.0])
    scaled = replace(fit.model, scaling=replace(fit.model.scaling, scale=size))
    other = SSMPlots(replace(fit, model=scaled)).loadings()
    assert "sd of the outcome" in other.axes[0].get_xlabel()
    figure.canvas.draw()


def test_effects_residuals_and_bound(fit):
    plots = SSMPlots(fit)
    assert len(plots.effects().axes) == 9
    figure = plots.residuals(lags=3)
    assert len(figure.axes) == 6
    (line,) = drawn(figure.axes[3], "autocorrelation")
    assert len(line.get_ydata()) == 3
    figure.canvas.draw()
    assert len(plots.bound().axes) == 2


def test_one_subject_without_effects():
    spec = specification("y1 ~ 1", n_latent=1, random=())
    fit, frame = true_fit(spec, n_subjects=1, n_times=9)
    frame["t"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["t"], unit="D")
    fit = replace(fit, panel=Panel.from_frame(frame, "id", "t"))
    plots = SSMPlots(fit)
    for figure in (plots.states(), plots.forecast(horizon=2), plots.loadings(), plots.residuals()):
        figure.canvas.draw()
    with pytest.raises(ModelError, match="all alike"):
        plots.effects()
