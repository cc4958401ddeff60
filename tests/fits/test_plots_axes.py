"""Every picture can be drawn in axes of the caller's own, or fill a part of a figure."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import avem
from avem.fits.plots.figures import png
from tests.fits.kinds import fit_of, ssm_fit

# For each picture: of which fit, how it is drawn, and its number of panels.
PICTURES = {
    "states": ("movement", lambda plot, **o: plot.states(["s1", "s2"], **o), 4),
    "map": ("movement", lambda plot, **o: plot.map(["s1", "s2"], "x", "step", **o), 2),
    "forecast": ("counts", lambda plot, **o: plot.forecast("s1", 2, future={"x": 0}, **o), 2),
    "residuals": ("movement", lambda plot, **o: plot.residuals("angle", effects="fitted", **o), 3),
    "emissions": ("movement", lambda plot, **o: plot.emissions(**o), 2),
    "transitions": ("movement", lambda plot, **o: plot.transitions("graph", **o), 1),
    "occupancy": ("movement", lambda plot, **o: plot.occupancy(**o), 1),
    "occupancy by": ("movement", lambda plot, **o: plot.occupancy("kind", **o), 1),
    "dwell": ("movement", lambda plot, **o: plot.dwell(level=None, **o), 2),
    "stationary": ("movement", lambda plot, **o: plot.stationary(level=None, **o), 1),
    "effects": ("movement", lambda plot, **o: plot.effects(**o), 1),
    "bound": ("movement", lambda plot, **o: plot.bound(**o), 2),
    "covariate": ("by_state", lambda plot, **o: plot.covariate("x", level=None, **o), 2),
    "contrast": ("movement", lambda plot, **o: plot.contrast(subjects=["s1", "s2"], **o), 1),
    "check": ("movement", lambda plot, **o: plot.check("mean", n=2, **o), 2),
    "ssm states": ("ssm", lambda plot, **o: plot.states(max_subjects=1, **o), 4),
    "ssm forecast": ("ssm", lambda plot, **o: plot.forecast(None, 2, "y1", 1, **o), 1),
    "ssm loadings": ("ssm", lambda plot, **o: plot.loadings(**o), 2),
    "ssm residuals": ("ssm", lambda plot, **o: plot.residuals("y1", 2, effects="fitted", **o), 2),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_goes_into_axes_or_a_part_of_a_figure(name):
    kind, drawn, n = PICTURES[name]
    plot = (ssm_fit() if kind == "ssm" else fit_of(kind)).plot
    assert len(drawn(plot).axes) == n
    own = Figure(layout="constrained")
    axes = own.subplots(1, n, squeeze=False)
    assert drawn(plot, ax=axes if n > 1 else axes[0, 0]) is own
    assert own.axes == list(axes[0])
    assert not own.get_suptitle()
    assert not own.legends
    assert all(ax.has_data() or ax.patches for ax in own.axes)
    both = Figure(layout="constrained", figsize=(14, 5))
    left, right = np.ravel(np.asarray(both.subfigures(1, 2)))
    drawn(plot, ax=left)
    assert len(left.axes) == n
    assert not right.axes
    assert png(both, 30).startswith(b"\x89PNG")
    with pytest.raises(avem.ModelError, match=rf"There are {n} panels to draw and {n + 1} axes"):
        drawn(plot, ax=list(Figure().subplots(1, n + 1)))
    with pytest.raises(avem.ModelError, match="ax is a str; axes of matplotlib are wanted"):
        drawn(plot, ax=["here"] * n)


def test_the_states_have_the_names_of_the_fit(monkeypatch):
    """In legends, headings and graphs, never their numbers."""
    fit = fit_of("by_state")
    monkeypatch.setattr(type(fit), "state_labels", ("calm", "tense"))
    plot = fit.plot
    figures = {
        "states": plot.states("s1"),
        "emissions": plot.emissions(),
        "matrix": plot.transitions(),
        "graph": plot.transitions("graph"),
        "occupancy": plot.occupancy(),
        "stationary": plot.stationary(level=None),
        "dwell": plot.dwell(level=None),
        "covariate": plot.covariate("x", level=None),
        "residuals": plot.residuals(effects="fitted"),
        "map": plot.map("s1", "x", "y"),
    }
    for name, figure in figures.items():
        words = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        for ax in figure.axes:
            words += [text.get_text() for text in ax.texts]
            words += [ax.get_title(), *(tick.get_text() for tick in ax.get_xticklabels())]
            words += [tick.get_text() for tick in ax.get_yticklabels()]
        assert any("calm" in text for text in words), name
        assert any("tense" in text for text in words), name
        assert not any("state 0" in text or "state 1" in text for text in words), name
