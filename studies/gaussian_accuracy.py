"""Scenario I, first experiment: accuracy by number of subjects, length and spread of effects."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from studies import gaussian, plots
from studies.compare import agreement, authors, beside, spread
from studies.study import Row, Study, Tables

KEYS = ["tau2", "T", "n"]
CELLS = tuple(
    {"tau2": tau2, "T": T, "n": n}
    for tau2 in (0.25, 0.5, 1.0, 2.0)
    for T in (20, 40, 60, 80)
    for n in (20, 40, 60, 80, 100)
)
MEASURES = (*gaussian.ERRORS, "iterations")
CLAIMED = ("mu_rmse", "sigma2_rmse", "gamma_abs", "f_mse")
"""The measures of the paper's figure."""
K, D, MAX_ITER = 3, 2, 80


def _data(cell: Row, seed: int) -> gaussian.Data:
    return gaussian.simulate(K, D, cell["n"], cell["T"], cell["tau2"], seed)


def paper(cell: Row, seed: int) -> list[Row]:
    """AVEM as the authors run it."""
    data = _data(cell, seed)
    return [{"method": "AVEM", **gaussian.score(gaussian.paper_fit(data, MAX_ITER), data)}]


def converged(cell: Row, seed: int) -> list[Row]:
    """The default fit, AVEM alone, the exact maximum."""
    return gaussian.converged_rows(_data(cell, seed))


def reference() -> pd.DataFrame:
    """The authors' means."""
    return authors("accuracy_experiment_summary.csv").assign(reps=100, method="AVEM")


def tables(frame: pd.DataFrame) -> Tables:
    """Agreement with the authors' numbers; then what a user gets beside the exact maximum."""
    found: Tables = {}
    by = dict(tuple(frame.groupby("protocol")))
    if "paper" in by:
        both = beside(by["paper"], reference(), KEYS, MEASURES)
        found["agreement_with_the_authors"] = agreement(both)
        found["paper_protocol"] = both
        own = spread(by["paper"], KEYS, (*gaussian.ERRORS, "contrast_rmse", "iterations"))
        found["paper_protocol_means"] = own
    if "converged" in by:
        found |= gaussian.converged_tables(by["converged"], KEYS)
    return found


def times(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians, beside the authors' seconds."""
    return gaussian.times(frame, KEYS, reference())


def figure(frame: pd.DataFrame) -> Figure:
    """The paper's: a row of panels per measure, a panel per tau2, a line per T."""
    frame = frame[frame["method"].isin(("AVEM", "default"))]
    rows = {**{name: plots.WORDS[name] for name in CLAIMED}, "seconds": "seconds"}
    theirs = reference().rename(columns={"time_sec": "seconds"})
    return plots.lines_by_panel(frame, rows, across="tau2", x="n", lines="T", theirs=theirs)


def reading(tables: Tables) -> str:
    """What the tables say."""
    said = []
    if "agreement_with_the_authors" in tables:
        said.append(gaussian.agreement_words(tables["agreement_with_the_authors"], CLAIMED))
        means = tables["paper_protocol_means"]
        said.append(gaussian.falls(means, "mu_rmse", "n") + gaussian.falls(means, "f_mse", "T"))
    if "default_beside_exact" in tables:
        said.append(gaussian.converged_words(tables))
        if "paper_protocol_means" in tables:
            said.append(gaussian.level_words(tables, KEYS))
    return "\n\n".join(said)


STUDY = Study(
    "gaussian-accuracy",
    "Scenario I, first experiment: errors of AVEM with K=3 states and d=2 outcomes, by number of "
    "subjects n, length T and variance tau2 of the effects.",
    CELLS,
    {"paper": paper, "converged": converged},
    tables,
    reps={"paper": 100, "converged": 10},
    quick_cells=(0, 40),
    quick_reps=5,
    times=times,
    figures={"figure": figure},
    reading=reading,
)
