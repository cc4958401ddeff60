"""Pictures of questions: they draw the tables' own numbers, in the states' colours."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import avem
from avem.data import Panel
from avem.errors import ModelError
from avem.fits.plots.figures import state_colors
from avem.fits.plots.residuals import residuals_figure
from tests.fits.kinds import fit_from, fit_of


def lines(ax, gid):
    return [line for line in ax.get_lines() if line.get_gid() == gid]


@pytest.fixture(scope="module")
def crowd():
    """200 subjects."""
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.2, 0.8]],
        "coef": [[[0.0]], [[4.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[0.3]],
    }
    rows = pd.DataFrame({"who": np.repeat(np.arange(200), 10), "t": np.tile(np.arange(10), 200)})
    drawn = hmm.simulate(truth, data=rows, subject="who", time="t", seed=0)
    return fit_from(hmm, truth, drawn.frame, drawn.effects)


def test_occupancy_stacks_every_subject_to_1(crowd):
    for fit, named in ((crowd, False), (fit_of("moving"), True)):
        (ax,) = fit.plot.occupancy().axes
        n = len(fit.subjects)
        bars = [patch for patch in ax.patches if patch.get_gid() is not None]
        width = np.array([bar.get_width() for bar in bars]).reshape(2, n).sum(0)
        np.testing.assert_allclose(width, 1)
        colors = {to_hex(bar.get_facecolor()) for bar in bars}
        assert colors == {color.lower() for color in state_colors(2)}
        assert (ax.get_yticklabels()[0].get_text() in fit.subjects) == named


def test_occupancy_along_a_column_draws_its_table(crowd):
    (ax,) = crowd.plot.occupancy("t").axes
    table = crowd.occupancy(by="t")
    for k in range(2):
        (line,) = lines(ax, f"state {k}")
        own = table[table["state"] == k]
        np.testing.assert_array_equal(line.get_xdata(), own["t"])
        np.testing.assert_array_equal(line.get_ydata(), own["share"])
        assert line.get_color() == state_colors(2)[k]
    (ax,) = fit_of("moving").plot.occupancy("kind").axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b"]


def test_stationary_draws_the_group_and_subjects_that_differ(crowd):
    (ax,) = crowd.plot.stationary(level=None).axes
    assert not lines(ax, "subjects")
    assert lines(ax, "state 1")[0].get_ydata()[0] == pytest.approx(1 / 3)
    (ax,) = fit_of("moving").plot.stationary(level=None).axes
    drawn = lines(ax, "subjects")[1].get_ydata()
    table = fit_of("moving").stationary(by="subject", level=None)
    np.testing.assert_array_equal(drawn, table.loc[table["state"] == 1, "share"])


def test_dwell_draws_both_distributions(crowd):
    figure = crowd.plot.dwell(level=None)
    table = crowd.dwell(by="length")
    for k, ax in enumerate(figure.axes):
        own = table[table["state"] == k]
        for name in ("implied", "decoded"):
            (line,) = lines(ax, name)
            longer = 1 - np.cumsum(own[name])[: len(line.get_ydata()) - 1]
            np.testing.assert_allclose(line.get_ydata(), [1, *longer])
        assert f"state {k}" in ax.get_title()


def test_covariate_draws_a_panel_for_each_state_left_or_outcome():
    fit = fit_of("by_state")
    figure = fit.plot.covariate("x", level=None, points=5)
    table = fit.covariate("x", level=None, points=5)
    assert [ax.get_title() for ax in figure.axes] == ["from state 0", "from state 1"]
    own = table[(table["state"] == 1) & (table["to_state"] == 0)]
    np.testing.assert_array_equal(lines(figure.axes[1], "state 0")[0].get_ydata(), own["estimate"])
    assert len(fit.plot.covariate("x", "stationary", level=None).axes) == 1
    titles = [ax.get_title() for ax in fit_of("gaussian").plot.covariate("x", level=None).axes]
    assert titles == ["y1", "y2"]
    (ax,) = fit_of("choice").plot.covariate("kind", level=None).axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b"]
    with pytest.raises(ModelError, match="no covariate 'heat'"):
        fit.plot.covariate("heat")


def test_where_states_last_the_covariate_is_seen_on_the_chances_to_leave():
    hmm = avem.MixedHMM("y ~ 1", 2, transition="~ x")
    truth = {
        "initial": [0.5, 0.5],
        "transition_coef": [[[0, 0], [-5.0, 0.3]], [[-4.0, 0.2], [0, 0]]],
        "coef": [[[0.0]], [[4.0]]],
        "variance": [[1.0], [1.0]],
    }
    rows = pd.DataFrame({"who": np.repeat([0, 1], 10), "t": np.tile(np.arange(10), 2)})
    rows["x"] = np.linspace(-1, 1, 20)
    frame = hmm.simulate(truth, data=rows, subject="who", time="t", seed=0).frame
    figure = fit_from(hmm, truth, frame, np.zeros((2, 0))).plot.covariate("x", level=None)
    assert "staying left out" in figure.get_suptitle()
    for ax, k, to in zip(figure.axes, (0, 1), (1, 0), strict=True):
        assert not lines(ax, f"state {k}")
        drawn = lines(ax, f"state {to}")[0].get_ydata()
        assert 0.8 * ax.get_ylim()[1] > drawn.min() > 0
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()  # to be compared


def test_contrast_draws_its_intervals():
    fit = fit_of("gaussian")
    figure = fit.plot.contrast(subjects=["s0", "s1", "s2"])
    assert [ax.get_title() for ax in figure.axes] == fit.model.effect_names
    table = fit.contrast(subjects=["s0", "s1", "s2"])
    own = table[table["effect"] == "y2: x"]
    (line,) = lines(figure.axes[3], "difference")
    np.testing.assert_array_equal(line.get_xdata(), own["difference"])
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels[0].startswith("s0")


def test_a_lag_with_a_few_pairs_does_not_flatten_the_others():
    short = pd.DataFrame({"who": np.repeat(np.arange(60), 5), "t": np.tile(np.arange(5), 60)})
    long = pd.DataFrame({"who": 60, "t": np.arange(11)})
    panel = Panel.from_frame(pd.concat([short, long], ignore_index=True), "who", "t")
    values = np.random.default_rng(0).normal(size=panel.n_rows)
    axis = residuals_figure(panel, {"y": values}, "", lags=10).axes[1]
    assert axis.get_ylim()[1] < 0.4  # a band of one pair reaches beyond 1


def test_check_draws_a_histogram_and_the_data():
    fit = fit_of("gaussian")
    found = fit.check(["mean", "max"], n=12)
    figure = found.plot()
    assert len(figure.axes) == 4
    for ax, observed in zip(figure.axes, found.table["observed"], strict=True):
        assert sum(patch.get_height() for patch in ax.patches) == 12
        assert ax.get_lines()[0].get_xdata()[0] == observed
    assert len(fit.plot.check("sd", n=3).axes) == 2
