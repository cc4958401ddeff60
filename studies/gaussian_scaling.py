"""Scenario I, second experiment: accuracy and cost by number of states and of outcomes."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from studies import gaussian, plots
from studies.compare import agreement, authors, beside, spread
from studies.study import Row, Study, Tables

KEYS = ["K", "d"]
CELLS = tuple({"K": K, "d": d} for K in range(2, 8) for d in range(2, 6))
N, T, TAU2, MAX_ITER = 60, 60, 1.0, 80
SMALL = (2, 3)
"""Numbers of states at which the authors' start leads to the right solution."""


def _data(cell: Row, seed: int) -> gaussian.Data:
    return gaussian.simulate(cell["K"], cell["d"], N, T, TAU2, seed)


def paper(cell: Row, seed: int) -> list[Row]:
    """AVEM as the authors run it."""
    data = _data(cell, seed)
    return [{"method": "AVEM", **gaussian.score(gaussian.paper_fit(data, MAX_ITER), data)}]


def converged(cell: Row, seed: int) -> list[Row]:
    """The default fit, AVEM alone, the exact maximum."""
    return gaussian.converged_rows(_data(cell, seed))


def reference() -> pd.DataFrame:
    """The authors' means: iterations and seconds alone."""
    return authors("speed_experiment_summary.csv").assign(reps=100, method="AVEM")


def tables(frame: pd.DataFrame) -> Tables:
    """Agreement in iterations, errors from both starts, the default beside the exact maximum."""
    found: Tables = {}
    by = dict(tuple(frame.groupby("protocol")))
    if "paper" in by:
        both = beside(by["paper"], reference(), KEYS, ["iterations"])
        found["agreement_with_the_authors"] = agreement(both.assign(states=both["K"]), ["states"])
        found["iterations"] = both
        measures = (*gaussian.ERRORS, "contrast_rmse", "iterations")
        found["paper_protocol_means"] = spread(by["paper"], KEYS, measures)
    if "converged" in by:
        found |= gaussian.converged_tables(by["converged"], KEYS)
    return found


def times(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians, beside the authors' seconds."""
    return gaussian.times(frame, KEYS, reference())


def figure(frame: pd.DataFrame) -> Figure:
    """Errors, seconds and seconds per iteration by K, a line per d; a column per protocol."""
    frame = frame[frame["method"].isin(("AVEM", "default"))]
    frame = frame.assign(seconds_each=frame["seconds"] / frame["iterations"])
    rows = {
        **{name: plots.WORDS[name] for name in ("mu_rmse", "sigma2_rmse", "gamma_abs", "f_mse")},
        "seconds": "seconds",
        "seconds_each": "seconds per iteration",
    }
    return plots.lines_by_panel(frame, rows, across="protocol", x="K", lines="d", theirs=None)


def reading(tables: Tables) -> str:
    """What the tables say."""
    said = []
    if "agreement_with_the_authors" in tables:
        few = tables["iterations"][tables["iterations"]["K"].isin(SMALL)]
        z = few["difference in standard errors"].abs()
        said.append(
            f"The authors give iterations and seconds alone. With two and three states our numbers "
            f"of iterations and theirs differ by at most {z.max():.1f} standard errors in "
            f"{len(few)} settings."
        )
    if "default_beside_exact" in tables:
        said.append(gaussian.converged_words(tables))
        if "paper_protocol_means" in tables:
            said.append(_start_words(tables))
    return "\n\n".join(said)


def _start_words(tables: Tables) -> str:
    """What the authors' start costs when there are many states."""
    means = tables["converged_means"]
    default = means[means["method"] == "default"]
    both = tables["paper_protocol_means"].merge(default, on=KEYS, suffixes=("", " default"))
    words, below = [], []
    for K, own in both.groupby("K"):
        paper, ours = own["state_acc"].mean(), own["state_acc default"].mean()
        words.append(f"{K}: {paper:.2f} and {ours:.2f}")
        below.append(f"{K}: {own['below_exact'].mean():.2f}")
    return (
        "Share of states found, by number of states, from the authors' start by their rule and by "
        f"the default from the data: {'; '.join(words)}. How far the default's log likelihood is "
        f"below that of the best fit known, which may be one from the truth: {'; '.join(below)}. "
        "The more states share the range, the more solutions there are, and four agreeing starts "
        "need not have found the highest."
    )


STUDY = Study(
    "gaussian-scaling",
    f"Scenario I, second experiment: errors and time of AVEM by number of states K and of outcomes "
    f"d; n=T={N}, tau2=1. The means lie between -1.5 and 1.5 whatever K, so more states overlap "
    "more.",
    CELLS,
    {"paper": paper, "converged": converged},
    tables,
    reps={"paper": 100, "converged": 5},
    quick_cells=(0, 4),
    quick_reps=3,
    times=times,
    figures={"figure": figure},
    reading=reading,
)
