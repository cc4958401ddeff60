"""Tracks on a map: where the animals were, in the colours of their states."""

import dataclasses

import numpy as np
import pytest
from matplotlib.colors import to_rgba

import avem
from avem.errors import DataError
from avem.fits.plots.figures import png, state_colors
from tests.fits.kinds import fit_of


@pytest.fixture(scope="module")
def fit():
    """The fit of steps and turns, with the positions that these lead to."""
    fit = fit_of("movement")
    assert fit.panel is not None
    frame = fit.panel.table.copy()
    rng = np.random.default_rng(1)
    frame["east"] = 7e5 + rng.normal(0, 100, len(frame)).cumsum()
    frame["north"] = 5e6 + rng.normal(0, 100, len(frame)).cumsum()
    frame.loc[frame["t"] == 10, "east"] = np.nan
    frame["lon"], frame["lat"] = 11 + frame["east"] % 1, 60 + frame["north"] % 1
    return dataclasses.replace(fit, panel=avem.Panel.from_frame(frame, "who", "t"))


def test_every_step_has_the_colour_of_the_row_it_leaves(fit):
    figure = fit.plot.map(["s1", "s4"], "east", "north")
    assert len(figure.axes) == 2
    ax = figure.axes[1]
    rows = np.flatnonzero(fit.panel.row_subject == 4)
    table, state = fit.panel.table.iloc[rows], np.asarray(fit.decode())[rows]
    chance = fit.state_probabilities().to_numpy()[rows, state]
    (steps,) = [c for c in ax.collections if c.get_gid() == "steps"]
    x, y = table["east"].to_numpy(), table["north"].to_numpy()
    leaves = [i for i in range(len(rows) - 1) if not np.isnan(x[i] + x[i + 1])]
    assert len(leaves) == len(rows) - 1 - 2  # a missing position takes both its steps
    wanted = [[(x[i], y[i]), (x[i + 1], y[i + 1])] for i in leaves]
    np.testing.assert_array_equal(np.array(steps.get_segments()), wanted)
    ink = 0.15 + 0.85 * np.clip((chance - 0.5) / 0.5, 0, 1)
    colors = [to_rgba(state_colors(2)[state[i]], ink[i]) for i in leaves]
    np.testing.assert_allclose(steps.get_colors(), colors)
    (dots,) = [c for c in ax.collections if c.get_gid() == "positions"]
    assert len(dots.get_offsets()) == len(rows) - 1
    assert ax.get_aspect() == 1
    assert ax.get_title() == "s4"
    assert png(figure, 40).startswith(b"\x89PNG")


def test_a_degree_of_longitude_is_as_short_as_it_is(fit):
    (ax,) = fit.plot.map("s2", "lon", "lat", kind="lonlat").axes
    own = fit.panel.table.loc[fit.panel.row_subject == 2, "lat"]
    assert ax.get_aspect() == pytest.approx(1 / np.cos(np.radians(own.mean())))


def test_what_cannot_be_drawn_is_said(fit):
    with pytest.raises(DataError, match="no column 'y', wanted as the coordinate y"):
        fit.plot.map()
    with pytest.raises(DataError, match=r"'east', the longitude, is 7.*kind='projected'"):
        fit.plot.map(x="east", y="north", kind="lonlat")
    with pytest.raises(DataError, match="no subject 's99'"):
        fit.plot.map("s99", "east", "north")
    with pytest.raises(DataError, match="kind is 'globe'"):
        fit.plot.map(x="east", y="north", kind="globe")
    everywhere = fit.panel.table.assign(east=np.nan)
    gone = dataclasses.replace(fit, panel=avem.Panel.from_frame(everywhere, "who", "t"))
    assert png(gone.plot.map("s1", "east", "north"), 40).startswith(b"\x89PNG")
