"""Scenario II: AVEM, quadrature and Monte Carlo EM with Bernoulli outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies import fits, plots, rivals
from studies.fits import Timed, timed, until_still
from studies.study import Row, Study, Tables

KEYS = ["T", "tau2"]
CELLS = tuple({"T": T, "tau2": tau2} for T in (100, 200) for tau2 in (0.25, 1.0))
METHODS = (
    "AVEM",
    *(f"QEM-{n}" for n in (5, 10, 15, 20)),
    *(f"MCEM-{n}" for n in (10, 15, 20)),
)
CONVERGED = ("default", "AVEM alone", "exact", *METHODS[1:])
MEASURES = ("beta_rmse", "gamma_abs", "f_mse", "tau2_abs", "tau2_est", "state_acc")
MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")
TOL, MAX_ITER, N = 5e-4, 200, 40


def _params(beta: float, stay: float, tau2: float) -> dict[str, np.ndarray]:
    return {
        "initial": np.full(2, 0.5),
        "transition": np.array([[stay, 1 - stay], [1 - stay, stay]]),
        "coef": np.array([[[-beta]], [[beta]]]),
        "effect_covariance": np.array([[tau2]]),
    }


def start(tau2: float) -> dict[str, np.ndarray]:
    """The authors' start, for data with this variance of the effects."""
    return _params(0.4, 0.85, max(0.3, 0.7 * tau2))


def simulate(cell: Row, seed: int) -> tuple[Any, avem.Panel, dict[str, np.ndarray]]:
    """A data set of Section 6.2, as a panel too, and its parameters."""
    truth = _params(1.5, 0.92, cell["tau2"])
    made = MODEL.simulate(truth, N, cell["T"], seed=seed)
    return made, avem.Panel.from_frame(made.frame, "subject", time="time"), truth


def paper(cell: Row, seed: int) -> list[Row]:
    """All methods from the authors' start, until no parameter changes by their tolerance."""
    made, panel, truth = simulate(cell, seed)
    rows = []
    for method in METHODS:
        way = rivals.method_of(method, fresh_draws=True)
        found = until_still(MODEL, panel, start(cell["tau2"]), TOL, MAX_ITER, seed, method=way)
        rows.append({"method": method, **_score(found, made, truth)})
    return rows


def converged(cell: Row, seed: int) -> list[Row]:
    """The default fit, AVEM alone, the exact maximum; and the rivals run to convergence."""
    made, panel, truth = simulate(cell, seed)
    found = fits.converged(MODEL, panel, truth)
    found |= {name: timed(MODEL, panel, method=rivals.method_of(name)) for name in METHODS[1:]}
    top = found["exact"].fit.bound
    return [
        {
            "method": name,
            **_score(found[name], made, truth),
            "below_exact": float(top - found[name].fit.loglik()),
        }
        for name in CONVERGED
    ]


def _score(found: Timed, made: Any, truth: dict[str, np.ndarray]) -> Row:
    """The errors of a fit, the state of lower odds first."""
    params = found.fit.params
    order = np.argsort(params["coef"][:, 0, 0])
    beta = params["coef"][order, 0, 0]
    gamma = params["transition"][np.ix_(order, order)]
    states = np.asarray(found.fit.state_probabilities())[:, order].argmax(1)
    tau2 = float(params["effect_covariance"][0, 0])
    return {
        "beta_rmse": float(np.sqrt(np.mean((beta - truth["coef"][:, 0, 0]) ** 2))),
        "gamma_abs": float(np.abs(gamma - truth["transition"]).mean()),
        "f_mse": float(np.mean((found.fit.effects_mean - made.effects) ** 2)),
        "tau2_abs": abs(tau2 - float(truth["effect_covariance"][0, 0])),
        "tau2_est": tau2,
        "state_acc": float((states == made.states).mean()),
        "iterations": found.iterations,
        "stop": found.fit.stop.name,
        "seconds": found.seconds,
    }


def reference() -> pd.DataFrame:
    """The authors' summaries; they have tau2=1 alone."""
    return rivals.reference("bernoulli_methods_summary.csv", {"Laplace-AVEM": "AVEM"})


def tables(frame: pd.DataFrame) -> Tables:
    """Agreement with the authors, and the errors of all methods."""
    return rivals.tables(frame, reference(), KEYS, MEASURES)


def figure(frame: pd.DataFrame) -> Figure | None:
    """The paper's: medians with 90% intervals of each method, a column per setting."""
    own = frame[frame["protocol"] == "paper"]
    return plots.bars_by_panel(own, _ROWS, KEYS, METHODS, reference())


def converged_figure(frame: pd.DataFrame) -> Figure | None:
    """The same for the converged protocol."""
    own = frame[frame["protocol"] == "converged"]
    return plots.bars_by_panel(own, _ROWS, KEYS, CONVERGED)


_ROWS = {
    name: plots.WORDS[name]
    for name in ("beta_rmse", "gamma_abs", "f_mse", "tau2_abs", "state_acc", "seconds")
}
STUDY = Study(
    "bernoulli-methods",
    "Scenario II: AVEM beside quadrature EM (QEM, nodes) and Monte Carlo EM (MCEM, draws) with "
    "nodes and draws of the prior; Bernoulli outcomes with log odds -1.5 and 1.5 in two states, 40 "
    "subjects. The authors' numbers are there for tau2=1.",
    CELLS,
    {"paper": paper, "converged": converged},
    tables,
    quick_cells=(1,),
    quick_reps=2,
    times=lambda frame: rivals.times(frame, KEYS),
    figures={"figure": figure, "converged": converged_figure},
    reading=lambda tables: rivals.reading(tables, MEASURES),
)
