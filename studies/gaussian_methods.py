"""Scenario I, third experiment: AVEM, quadrature and Monte Carlo EM with Gaussian outcomes."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from studies import gaussian, plots, rivals
from studies.fits import timed, until_still
from studies.study import Row, Study, Tables

KEYS = ["T", "tau2"]
CELLS = tuple({"T": T, "tau2": tau2} for T in (20, 40) for tau2 in (0.25, 1.0))
QUADRATURE = tuple(f"QEM-{n}" for n in (3, 5, 7, 9))
MONTE_CARLO = tuple(f"MCEM-{n}" for n in (25, 50, 100))
METHODS = ("AVEM", *QUADRATURE, *MONTE_CARLO)
MEASURES = (*gaussian.ERRORS, "contrast_rmse", "tau2_est")
TOL, MAX_ITER = 1e-4, 60


def _data(cell: Row, seed: int) -> gaussian.Data:
    return gaussian.simulate(2, 2, 40, cell["T"], cell["tau2"], seed)


def paper(cell: Row, seed: int) -> list[Row]:
    """All methods from the authors' start, by their rules."""
    data = _data(cell, seed)
    start = gaussian.start(2, 2, cell["tau2"])
    found = {"AVEM": gaussian.paper_fit(data, MAX_ITER)}
    for method in METHODS[1:]:
        way = rivals.method_of(method, fresh_draws=True)
        found[method] = until_still(data.model, data.panel, start, TOL, MAX_ITER, seed, method=way)
    return [{"method": name, **gaussian.score(each, data)} for name, each in found.items()]


def converged(cell: Row, seed: int) -> list[Row]:
    """The default fit, AVEM alone, the exact maximum; and the rivals run to convergence."""
    data = _data(cell, seed)
    rivals_found = {
        name: timed(data.model, data.panel, method=rivals.method_of(name)) for name in METHODS[1:]
    }
    return gaussian.converged_rows(data, rivals_found)


def reference() -> pd.DataFrame:
    """The authors' summaries."""
    return rivals.reference("gaussian_methods_summary.csv", {})


def tables(frame: pd.DataFrame) -> Tables:
    """Agreement with the authors, and the errors of all methods."""
    return rivals.tables(frame, reference(), KEYS, MEASURES)


def figure(frame: pd.DataFrame) -> Figure | None:
    """The paper's: medians with 90% intervals of each method, a column per setting."""
    rows = {
        name: plots.WORDS[name]
        for name in ("mu_rmse", "sigma2_rmse", "gamma_abs", "f_mse", "tau2_abs", "seconds")
    }
    own = frame[frame["protocol"] == "paper"]
    return plots.bars_by_panel(own, rows, KEYS, METHODS, reference())


def converged_figure(frame: pd.DataFrame) -> Figure | None:
    """The same for the converged protocol."""
    rows = {
        name: plots.WORDS[name]
        for name in ("mu_rmse", "contrast_rmse", "sigma2_rmse", "f_mse", "tau2_abs", "seconds")
    }
    own = frame[frame["protocol"] == "converged"]
    return plots.bars_by_panel(own, rows, KEYS, (*gaussian.METHODS, *METHODS[1:]))


STUDY = Study(
    "gaussian-methods",
    "Scenario I, third experiment: AVEM beside quadrature EM (QEM, nodes per dimension) and Monte "
    "Carlo EM (MCEM, draws) with nodes and draws of the prior; K=2, d=2, 40 subjects.",
    CELLS,
    {"paper": paper, "converged": converged},
    tables,
    reps={"paper": 100, "converged": 100},
    quick_cells=(0, 3),
    quick_reps=2,
    times=lambda frame: rivals.times(frame, KEYS),
    figures={"figure": figure, "converged": converged_figure},
    reading=lambda tables: rivals.reading(tables, MEASURES),
)
