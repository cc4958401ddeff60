"""Pictures of every kind of model show its own densities, probabilities and means."""

import dataclasses
from io import BytesIO
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy.special import expit, logit
from scipy.stats import binom, gamma, norm, poisson, vonmises

import avem
from avem.fits.plots.figures import (
    dot,
    legend,
    name_ticks,
    new_figure,
    png,
    short_states,
    state_colors,
)
from avem.fits.plots.subjects import gap_figure
from avem.fits.predict.at import average_moves, occupancy
from tests.fits.kinds import KINDS, fit_of, seen_rows


def lines(ax):
    return {line.get_label().split(" (")[0]: line for line in ax.lines}


def bars(ax, label):
    (found,) = [part for part in ax.containers if part.get_label().startswith(label)]
    return np.array([patch.get_height() for patch in found])


def track(ax, gid):
    (found,) = [line for line in ax.lines if line.get_gid() == gid]
    return np.asarray(found.get_ydata(), float)


def of_subject(fit, i):
    rows = np.flatnonzero(fit.panel.row_subject == i)
    return fit.panel.table.iloc[rows], np.asarray(fit.decode())[rows]


NINE = 1e-7
"""Averages of covariates have nine digits; densities far out have fewer that are the same."""
RESPONSES = {"gaussian": 2, "choice": 2, "counts": 1, "by_state": 1}
"""How many curves of responses to covariates there are."""


@pytest.mark.parametrize("kind", KINDS)
def test_all_pictures_can_be_drawn_with_and_without_data(kind):
    fit = fit_of(kind)
    for one in (fit, dataclasses.replace(fit, panel=None)):
        figure = one.plot.emissions()
        curves = RESPONSES.get(kind, 0) if one is fit else 0
        assert len(figure.axes) == len(fit.model.outcomes) + curves
        assert png(figure, 40).startswith(b"\x89PNG")
    assert len(fit.plot.states(max_subjects=2).axes) == 2 * len(fit.model.outcomes)
    if fit.model.n_effects:
        assert len(fit.plot.effects().axes) == fit.model.n_effects


# --- emissions ----------------------------------------------------------------------------------


def test_two_levels_are_bars_with_their_names():
    fit = fit_of("choice")
    ax = fit.plot.emissions().axes[0]
    table = fit.panel.table
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["right", "left"]
    assert ax.get_xlabel() == "choice at effect 0 and average covariates"
    seen = table["choice"].dropna()
    np.testing.assert_allclose(bars(ax, "data"), [(seen == v).mean() for v in ("right", "left")])
    rows = seen_rows(fit)
    at = np.array([1.0, rows["x"].mean(), (rows["kind"] == "b").mean()])
    p = expit(fit.params["coef"][:, 0] @ at)
    for k, color in enumerate(state_colors(2)):
        weight = occupancy(fit)[k]
        np.testing.assert_allclose(bars(ax, f"state {k}"), weight * np.array([1 - p[k], p[k]]))
        (drawn,) = [part for part in ax.containers if part.get_label().startswith(f"state {k}")]
        assert to_hex(drawn[0].get_facecolor()) == color.lower()
    names = [text.get_text() for text in ax.figure.legends[0].get_texts()]
    assert [name.split(" (")[0] for name in names] == ["data", "state 0", "state 1", "all states"]


def test_several_levels_sum_to_the_occupancy():
    fit = fit_of("labels")
    for ax in fit.plot.emissions().axes:
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2.5", "4"]
        total = [bars(ax, f"state {k}").sum() for k in range(2)]
        np.testing.assert_allclose(total, occupancy(fit))
    odds = np.exp([0.0, 0.0, 1.0])  # of b in state 0
    wanted = occupancy(fit)[0] * odds / odds.sum()
    np.testing.assert_allclose(bars(ax, "state 0"), wanted)


def test_responses_to_covariates_are_drawn_where_states_differ_in_them():
    fit = fit_of("choice")
    _, number, labels = fit.plot.emissions().axes
    share, coef = (seen_rows(fit)["kind"] == "b").mean(), fit.params["coef"][:, 0]
    for k in range(2):
        x, y = number.lines[k].get_data()
        wanted = expit(coef[k, 0] + coef[k, 1] * x + coef[k, 2] * share)
        np.testing.assert_allclose(y, wanted, rtol=1e-10)
    assert number.get_xlabel() == "x"
    assert number.get_ylabel() == "probability of choice[left] at effect 0"
    assert [tick.get_text() for tick in labels.get_xticklabels()] == ["a", "b"]
    # Nothing is drawn of a response that all states share, and nothing in the caller's own axes.
    same = fit.params | {"coef": np.array([[[-1.0, 0.5, 0.2]], [[-1.0, 0.5, 0.2]]])}
    assert len(dataclasses.replace(fit, params=same).plot.emissions().axes) == 1
    own = Figure().subplots()
    assert fit.plot.emissions(ax=own).axes == [own]


def test_counts_are_bars_at_whole_numbers():
    fit = fit_of("counts")
    ax = fit.plot.emissions().axes[0]
    rate = np.exp(fit.params["coef"][:, 0] @ [1.0, seen_rows(fit)["x"].mean()])
    for k in range(2):
        x, y = lines(ax)[f"state {k}"].get_data()
        assert (np.diff(x) == 1).all()
        np.testing.assert_allclose(y, occupancy(fit)[k] * poisson.pmf(x, rate[k]), rtol=NINE)
    seen = fit.panel.table["n"].dropna()
    share = [(seen == value).mean() for value in x]
    np.testing.assert_allclose(bars(ax, "data")[: len(x)], share)
    assert ax.get_ylabel() == "probability"


def test_large_counts_share_their_bars():
    fit = fit_of("counts")
    params = fit.params | {"coef": np.array([[[5.0, 0.0]], [[7.0, 0.0]]])}
    frame = fit.panel.table.assign(n=fit.panel.table["n"] * 100)
    panel = avem.Panel.from_frame(frame, "who", time="t")
    (ax,) = dataclasses.replace(fit, params=params, panel=panel).plot.emissions().axes
    (drawn,) = [part for part in ax.containers if part.get_label() == "data"]
    assert len(drawn) <= 60
    width = drawn[1].get_x() - drawn[0].get_x()
    assert width > 1
    assert (bars(ax, "data") * width).sum() == pytest.approx(1, abs=0.02)
    x, y = lines(ax)["state 1"].get_data()
    assert x[np.argmax(y)] == pytest.approx(np.exp(7.0), abs=1)


def test_trials_that_differ_are_averaged_over():
    fit = fit_of("trials")
    (ax,) = fit.plot.emissions().axes
    trials = fit.panel.table.loc[fit.panel.table["wins"].notna(), "trials"].to_numpy()
    x, y = lines(ax)["state 1"].get_data()
    wanted = binom.pmf(x[:, None], trials, expit(1.0)).mean(1)
    np.testing.assert_allclose(y, occupancy(fit)[1] * wanted, rtol=1e-8)
    (ax,) = dataclasses.replace(fit, panel=None).plot.emissions().axes
    assert [text.get_text() for text in ax.texts] == ["Not drawn without trials of every row."]


def with_rows(fit, **columns):
    """The fit with other data."""
    frame = fit.panel.table.assign(**columns)
    return dataclasses.replace(fit, panel=avem.Panel.from_frame(frame, "who", time="t"))


def test_positive_numbers_and_angles():
    fit = fit_of("movement")
    step, angle = fit.plot.emissions().axes
    weight, x_mean = occupancy(fit), seen_rows(fit)["x"].mean()
    assert step.get_xlabel().startswith("step at effect 0 and average covariates")
    assert angle.get_xlabel() == "angle"
    assert angle.name == "polar"
    seen = fit.panel.table["step"].dropna()
    assert seen.quantile(0.99) > 10 * seen.median()  # so the axis is one of logarithms
    assert step.get_xscale() == "log"
    edges = [patch.get_x() for patch in step.patches] + [step.get_xlim()[1]]
    area = np.diff(np.log(edges)) @ [patch.get_height() for patch in step.patches]
    assert area == pytest.approx(1, abs=0.02)
    for k, (mean, log_shape) in enumerate([(1.0, 1 + 0.2 * x_mean), (np.e**2, 1.5 + 0.1 * x_mean)]):
        x, y = lines(step)[f"state {k}"].get_data()
        shape = np.exp(log_shape)
        np.testing.assert_allclose(
            y, x * weight[k] * gamma.pdf(x, shape, scale=mean / shape), rtol=NINE
        )
    x, y = lines(angle)["state 0"].get_data()
    np.testing.assert_allclose(y, weight[0] * vonmises.pdf(x, 0.8, loc=3.0), rtol=1e-9)
    assert [tick.get_text() for tick in angle.get_xticklabels()] == ["-π/2", "0", "π/2", "π"]
    petals = np.array([patch.get_height() for patch in angle.patches])
    assert petals.sum() * 2 * np.pi / len(petals) == pytest.approx(1)


def test_angles_in_axes_of_ones_own_are_as_the_user_counts_them():
    fit = fit_of("movement")
    ax = Figure().subplots()
    fit.plot.emissions("angle", ax=ax)
    np.testing.assert_allclose(ax.get_xlim(), [-np.pi, np.pi])
    turned = with_rows(fit, angle=fit.panel.table["angle"] % (2 * np.pi))
    ax = Figure().subplots()
    turned.plot.emissions("angle", ax=ax)
    np.testing.assert_allclose(ax.get_xlim(), [0, 2 * np.pi])
    x, y = lines(ax)["state 1"].get_data()
    np.testing.assert_allclose(y, occupancy(fit)[1] * vonmises.pdf(x, 4.0), rtol=1e-9)
    # The same petals, whatever angles are counted from.
    heights = [
        [patch.get_height() for patch in one.plot.emissions("angle").axes[0].patches]
        for one in (fit, turned)
    ]
    np.testing.assert_allclose(heights[0], heights[1])


def test_a_long_tail_does_not_squeeze_the_rest():
    fit = fit_of("movement")
    steps = np.random.default_rng(0).gamma(4.0, 0.5, len(fit.panel.table))
    steps[0] = 14.0
    (ax,) = with_rows(fit, step=steps).plot.emissions("step").axes
    assert ax.get_xscale() == "linear"
    assert ax.get_xlim()[1] < 1.2 * np.quantile(steps, 0.99)
    beyond = int((steps > ax.get_xlim()[1]).sum())
    assert f"({beyond} of {len(steps)} lie beyond)" in ax.get_xlabel()
    area = sum(patch.get_height() * patch.get_width() for patch in ax.patches)
    assert area == pytest.approx(1 - beyond / len(steps), abs=1e-9)


def test_a_share_of_zeros_is_told_apart():
    fit = fit_of("zeros")
    (ax,) = fit.plot.emissions().axes
    seen = fit.panel.table["y"].dropna()
    assert f"zeros: {(seen == 0).mean():.0%} of the data, 40% in state 0, 10% in state 1" in (
        ax.get_xlabel()
    )
    area = sum(patch.get_height() * patch.get_width() for patch in ax.patches)
    assert area == pytest.approx((seen > 0).mean(), abs=0.02)
    x, y = lines(ax)["state 0"].get_data()
    wanted = occupancy(fit)[0] * 0.6 * gamma.pdf(x, 2.0, scale=0.5)
    np.testing.assert_allclose(y, wanted, rtol=1e-9)


def test_skewed_numbers_with_zeros_are_drawn_on_a_logarithmic_axis():
    fit = fit_of("zeros")
    y = np.random.default_rng(0).lognormal(0.0, 2.0, len(fit.panel.table))
    y[:5] = 0.0
    (ax,) = with_rows(fit, y=y).plot.emissions().axes
    assert ax.get_xscale() == "log"
    assert f"zeros: {5 / len(y):.0%} of the data" in ax.get_xlabel()
    edges = np.log([[patch.get_x(), patch.get_x() + patch.get_width()] for patch in ax.patches])
    area = sum(np.diff(edges)[:, 0] * [patch.get_height() for patch in ax.patches])
    assert area == pytest.approx((y > 0).mean(), abs=0.01)


def test_effects_of_a_state_widen_its_own_gaussian():
    fit = fit_of("by_state")
    ax = fit.plot.emissions().axes[0]
    sd = np.sqrt(fit.params["variance"][:, 0] + np.diag(fit.params["effect_covariance"]))
    for k in range(2):
        x, y = lines(ax)[f"state {k}"].get_data()
        every = fit.panel.table["x"]
        z = (seen_rows(fit)["x"].mean() - every.mean()) / every.std(ddof=0)
        mean = fit.params["coef"][k, 0] @ [1.0, z]
        np.testing.assert_allclose(y, occupancy(fit)[k] * norm.pdf(x, mean, sd[k]), rtol=NINE)


def test_a_custom_density_is_not_drawn_and_says_so():
    fit = fit_of("custom")
    custom, gaussian = fit.plot.emissions().axes
    assert [text.get_text() for text in custom.texts] == ["A custom density is not drawn."]
    assert len(custom.patches) > 1
    assert not custom.lines
    assert len(gaussian.lines) == 3
    names = [text.get_text() for text in fit.plot.emissions().legends[0].get_texts()]
    assert len(names) == 4


def test_a_density_without_bounds_leaves_the_bars_visible():
    fit = fit_of("movement")
    steep = {
        "step.coef": np.full((2, 1, 1), -1.0),
        "step.shape_coef": np.array([[[-1.0, 0.0]]] * 2),
    }
    even = with_rows(fit, step=fit.panel.table["step"].clip(upper=5.0))
    ax = dataclasses.replace(even, params=fit.params | steep).plot.emissions("step").axes[0]
    tallest = max(patch.get_height() for patch in ax.patches)
    assert lines(ax)["all states"].get_ydata().max() > 10 * tallest
    assert ax.get_ylim()[1] < 5 * tallest


# --- states -------------------------------------------------------------------------------------


def test_the_line_of_two_levels_is_a_probability():
    fit = fit_of("choice")
    (ax,) = fit.plot.states("s3").axes
    table, state = of_subject(fit, 3)
    eta = fit.params["coef"][state, 0] @ np.array([1.0, 0, 0])
    eta += (fit.params["coef"][state, 0, 1:] * np.c_[table["x"], table["kind"] == "b"]).sum(1)
    drawn = track(ax, "mean")[::3]
    missing = table["choice"].isna().to_numpy()
    np.testing.assert_array_equal(np.isnan(drawn), missing)
    np.testing.assert_allclose(drawn[~missing], expit(eta + fit.effects_mean[3, 0])[~missing])
    for k in range(2):  # ticks, not a line that goes up and down
        y = track(ax, f"state {k}")
        shown = ~np.isnan(y)
        wanted = (table["choice"] == "left")[(state == k) & ~missing]
        np.testing.assert_array_equal(y[shown], wanted)
        assert [line.get_marker() for line in ax.lines if line.get_gid() == f"state {k}"] == ["|"]
    assert not [line for line in ax.lines if line.get_gid() == "data"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["right", "left"]
    assert "probability of left" in ax.get_title()


def test_more_levels_have_no_mean():
    figure = fit_of("labels").plot.states("s1")
    for ax in figure.axes:
        assert np.isnan(track(ax, "mean")).all()
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["1", "2.5", "4"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["state 0", "state 1"]
    with_mean = fit_of("counts").plot.states("s1")
    assert len(with_mean.legends[0].get_texts()) == 3


def test_the_line_is_the_mean_of_the_family():
    counts, trials = fit_of("counts"), fit_of("trials")
    (ax,) = counts.plot.states("s2").axes
    table, state = of_subject(counts, 2)
    coef = counts.params["coef"][state, 0]
    wanted = np.exp(coef[:, 0] + coef[:, 1] * table["x"] + counts.effects_mean[2, 0])
    shown = ~np.isnan(track(ax, "mean")[::3])
    np.testing.assert_allclose(track(ax, "mean")[::3][shown], wanted[shown])
    (ax,) = trials.plot.states("s2").axes
    table, state = of_subject(trials, 2)
    share = expit(trials.params["coef"][state, 0, 0] + trials.effects_mean[2, 0])
    np.testing.assert_allclose(
        track(ax, "mean")[::3][shown], (share * table["trials"])[shown], rtol=1e-12
    )


def test_every_state_has_its_own_effect_in_the_line():
    fit = fit_of("by_state")
    (ax,) = fit.plot.states("s4").axes
    table, state = of_subject(fit, 4)
    every = fit.panel.table["x"]
    z = (table["x"] - every.mean()) / every.std(ddof=0)
    coef = fit.params["coef"][state, 0]
    wanted = coef[:, 0] + coef[:, 1] * z + fit.effects_mean[4, state]
    drawn = track(ax, "mean")[::3]
    shown = ~np.isnan(drawn)
    assert len(set(state)) == 2
    np.testing.assert_allclose(drawn[shown], wanted[shown])


def test_above_a_track_are_the_probabilities_of_the_states():
    fit = fit_of("counts")
    (ax,) = fit.plot.states("s2").axes
    (strip,) = ax.child_axes
    chance = fit.state_probabilities().to_numpy()[fit.panel.row_subject == 2]
    assert len(strip.collections) == 2
    tops = np.cumsum(chance, axis=1)
    for k, drawn in enumerate(strip.collections):
        corners = drawn.get_paths()[0].vertices
        assert to_hex(drawn.get_facecolor()[0]) == state_colors(2)[k].lower()
        for t in range(fit.panel.lane_length[2]):
            here = corners[np.abs(corners[:, 0] - t) < 0.6][:, 1]
            assert np.abs(here - tops[t, k]).min() < 1e-12
    assert strip.get_xlim() == ax.get_xlim()


def test_no_line_crosses_half_a_turn():
    fit = fit_of("movement")
    (ax,) = fit.plot.states("s1", "angle").axes
    assert not [line for line in ax.lines if line.get_gid() == "data"]
    mean = track(ax, "mean")
    assert {round(value, 6) for value in mean[~np.isnan(mean)]} == {0.0, 3.0}
    risers = np.abs(np.diff(mean))
    assert np.nanmax(risers) < np.pi
    far = fit.params | {"angle.coef": np.array([[[3.0]], [[-1.0]]])}
    (ax,) = dataclasses.replace(fit, params=far).plot.states("s1", "angle").axes
    assert np.nanmax(np.abs(np.diff(track(ax, "mean")))) == 0  # the way round would be shorter
    turned = with_rows(fit, angle=fit.panel.table["angle"] % (2 * np.pi))
    turned = dataclasses.replace(turned, params=far)
    (ax,) = turned.plot.states("s1", "angle").axes
    assert np.nanmin(track(ax, "mean")) == pytest.approx(3.0)
    assert np.nanmax(track(ax, "mean")) == pytest.approx(2 * np.pi - 1)
    assert next(tick.get_text() for tick in ax.get_yticklabels()) == "0"


# --- transitions --------------------------------------------------------------------------------


def test_transitions_with_covariates_are_at_their_averages():
    fit = fit_of("moving")
    (ax,) = fit.plot.transitions().axes
    np.testing.assert_array_equal(ax.images[0].get_array(), average_moves(fit))
    coef, x = fit.params["transition_coef"], seen_rows(fit)["x"].mean()
    assert logit(ax.images[0].get_array()[0, 1]) == pytest.approx(coef[0, 1] @ [1, x])
    assert "at effect 0 and average covariates" in ax.get_title()
    (ax,) = fit_of("counts").plot.transitions().axes
    assert ax.get_title() == "Transition probabilities"


def test_the_long_run_without_data_follows_the_average_transitions():
    fit = dataclasses.replace(fit_of("moving"), panel=None)
    share = occupancy(fit)
    np.testing.assert_allclose(share @ average_moves(fit), share, atol=1e-12)


def test_the_graph_has_a_disc_for_each_state_and_an_arrow_for_each_move():
    fit = fit_of("moving")
    (ax,) = fit.plot.transitions("graph").axes
    patches = {patch.get_gid(): patch for patch in ax.patches}
    assert set(patches) == {"state 0", "state 1", "0 to 1", "1 to 0"}
    matrix, share = average_moves(fit), occupancy(fit)
    for k, color in enumerate(state_colors(2)):
        assert to_hex(patches[f"state {k}"].get_facecolor()) == color.lower()
        assert to_hex(patches[f"{k} to {1 - k}"].get_edgecolor()) == color.lower()
    radius = [patches[f"state {k}"].get_radius() for k in range(2)]
    np.testing.assert_allclose(radius[0] / radius[1], np.sqrt(share[0] / share[1]))
    thick = [patches[f"{k} to {1 - k}"].get_linewidth() for k in range(2)]
    assert (thick[0] > thick[1]) == (matrix[0, 1] > matrix[1, 0])
    written = {text.get_text() for text in ax.texts}
    assert {f"{p:.3f}" for p in matrix.ravel()} <= written
    assert f"state 0\n{share[0]:.0%} of rows" in written
    with pytest.raises(avem.ModelError, match="kind is 'tree'; choose one of 'matrix', 'graph'"):
        fit.plot.transitions("tree")
    rare = {"transition": np.array([[0.4, 0.6], [0.001, 0.999]])}
    plain = fit_of("counts")
    (ax,) = dataclasses.replace(plain, params=plain.params | rare).plot.transitions("graph").axes
    assert "1 move below 0.012 left out" in ax.get_title()


# --- long names ----------------------------------------------------------------------------------


def long_names(*names):
    return SimpleNamespace(state_labels=names)


def test_shortened_names_stay_different():
    assert short_states(long_names("rest", "go"), 8) == ["rest", "go"]
    assert short_states(long_names("travels by day", "rests"), 8) == ["travels…", "rests"]
    assert short_states(long_names("travels by day", "travels by night"), 8) == [
        "trav…day",
        "trav…ght",
    ]
    inside = short_states(long_names("x" * 9 + "1" + "y" * 9, "x" * 9 + "2" + "y" * 9), 8)
    assert inside == ["0: xxxx…", "1: xxxx…"]
    assert short_states(long_names("a $5 bill", "b"), 24) == [r"a \$5 bill", "b"]


@pytest.mark.parametrize("n", [2, 8])
def test_a_legend_fits_into_its_figure(n):
    figure = new_figure((5.0, 4.0))
    figure.add_subplot()
    labels = [f"a name of twenty-four {k}" for k in range(n)]
    legend(figure, None, [dot(label, "C0") for label in labels], 7)
    figure.savefig(BytesIO(), format="png")
    (drawn,) = figure.legends
    box = drawn.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert [text.get_text() for text in drawn.get_texts()] == labels


def test_names_at_an_axis_are_turned_where_they_would_meet():
    for names, turned in ((["low", "high"], False), ([f"a longer name {k}" for k in "abcd"], True)):
        figure = new_figure((3.6, 3.0))
        ax = figure.add_subplot()
        name_ticks(ax, names)
        ticks = ax.get_xticklabels()
        assert [tick.get_rotation() == 45 for tick in ticks] == [turned] * len(names)
        figure.savefig(BytesIO(), format="png")
        if not turned:
            ends = [tick.get_window_extent() for tick in ticks]
            assert all(one.x1 < other.x0 for one, other in pairwise(ends))


def test_the_title_of_the_gap_is_the_whole_advice():
    """Names of effects have colons, and may have dollars."""
    said = "Much of the information on a$b: Intercept (12%), c$d: Intercept (17%) is lost. Refined."
    subjects = pd.DataFrame({"who": ["s0", "s1"], "anchoring_gap": 0.1, "gaussian_gap": 0.2})
    effects = pd.DataFrame({"effect": ["a$b: Intercept", "c$d: Intercept"], "lost": [0.1, 0.2]})
    found: Any = SimpleNamespace(subjects=subjects, effects=effects, advice=said, limit=0.1)
    figure = gap_figure(found, figsize=(6.0, 3.0))
    figure.savefig(BytesIO(), format="png")
    assert figure.get_suptitle().replace("\n", " ").replace(r"\$", "$") == said
    assert figure._suptitle.get_window_extent().x1 <= figure.bbox.x1
