"""Bernoulli outcomes, two states that overlap: what refinement repairs, and what it costs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies import plots, rivals
from studies.study import Row, Study, Tables

MODEL = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")
BETA = np.array([-1.5, 1.5])
KEYS = ["T", "tau2"]
CELLS = tuple({"T": T, "tau2": tau2} for T in (100, 200) for tau2 in (0.25, 1.0))
WAYS: dict[str, dict[str, Any]] = {
    "AVEM": {"refine": None},
    "refined": {"refine": "adaptive"},
    "quadrature 10": {"method": avem.Quadrature(10)},
    "quadrature 20": {"method": avem.Quadrature(20)},
    "Monte Carlo 20": {"method": avem.MonteCarlo(20)},
}
EXACT_NODES = 101


def replicate(cell: Row, seed: int) -> list[Row]:
    """All methods on one panel of 40 subjects."""
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": BETA[:, None, None],
        "effect_covariance": [[cell["tau2"]]],
    }
    made = MODEL.simulate(truth, 40, cell["T"], seed=seed)
    fits, seconds = {}, {}
    for name, options in WAYS.items():
        began = time.process_time()
        fits[name] = MODEL.fit(made.frame, time="time", **options)
        seconds[name] = time.process_time() - began
    # The maximum by brute force: so many nodes of the prior that it does not matter where they are,
    # from the refined fit and from the truth, whichever ends higher.
    began = time.process_time()
    starts = (fits["refined"], truth)
    exact = [
        MODEL.fit(made.frame, time="time", method=avem.Quadrature(EXACT_NODES), init=start)
        for start in starts
    ]
    fits["exact"] = max(exact, key=lambda fit: fit.bound)
    seconds["exact"] = time.process_time() - began
    return [
        {
            "method": name,
            "tau2_hat": float(fit.params["effect_covariance"][0, 0]),
            "beta_rmse": float(np.sqrt(np.mean((_beta(fit) - BETA) ** 2))),
            "f_mse": float(np.mean((fit.effects_mean - made.effects) ** 2)),
            "loglik": float(fit.loglik()),
            "seconds": seconds[name],
            "iterations": fit.n_iter,
            "stop": fit.stop.name,
        }
        for name, fit in fits.items()
    ]


def _beta(fit: avem.HMMFit) -> np.ndarray:
    return np.sort(fit.params["coef"][:, 0, 0])


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Errors of every method, and the collapses."""
    frame = frame.assign(
        tau2_error=(frame["tau2_hat"] - frame["tau2"]) ** 2, beta_error=frame["beta_rmse"] ** 2
    )
    rows = []
    order = [*WAYS, "exact"]
    for (T, tau2), cell in frame.groupby(KEYS):
        by_replicate = cell.pivot(index="replicate", columns="method")
        exact_collapsed = by_replicate["tau2_hat"]["exact"] < 0.02
        for method in order:
            own = cell[cell["method"] == method]
            collapsed = (by_replicate["tau2_hat"][method] < 0.02) & ~exact_collapsed
            rows.append(
                {
                    "T": T,
                    "tau2": tau2,
                    "method": method,
                    "tau2 mean": own["tau2_hat"].mean(),
                    "tau2 RMSE": np.sqrt(own["tau2_error"].mean()),
                    "beta RMSE": np.sqrt(own["beta_error"].mean()),
                    "f RMSE": np.sqrt(own["f_mse"].mean()),
                    "log likelihood below exact": float(
                        (by_replicate["loglik"]["exact"] - by_replicate["loglik"][method]).mean()
                    ),
                    "collapses not shared by exact": int(collapsed.sum()),
                }
            )
    return {"errors": pd.DataFrame(rows)}


def times(frame: pd.DataFrame) -> pd.DataFrame:
    """Median seconds, and as a multiple of AVEM's."""
    return rivals.times(frame, KEYS)


def reading(tables: Tables) -> str:
    """What AVEM alone loses, and what the refined fit keeps."""
    table = tables["errors"]
    by = {name: own.reset_index(drop=True) for name, own in table.groupby("method")}
    avem, refined, exact = by["AVEM"], by["refined"], by["exact"]
    off = (refined["tau2 RMSE"] / exact["tau2 RMSE"] - 1).abs().max()
    return (
        f"AVEM alone estimates {(avem['tau2 mean'] / avem['tau2']).min():.2f} to "
        f"{(avem['tau2 mean'] / avem['tau2']).max():.2f} of the true tau2 on average, and it "
        f"collapses in {avem['collapses not shared by exact'].sum()} panels where the maximum does "
        f"not (the refined fit in {refined['collapses not shared by exact'].sum()}). The refined "
        f"fit's error of tau2 is the exact one's to {off:.1%}, and its log likelihood at most "
        f"{refined['log likelihood below exact'].max():.1g} below on average."
    )


def figure(frame: pd.DataFrame) -> Figure | None:
    """Medians and 90% intervals of each method, a column per setting."""
    rows = {"tau2_hat": "tau2", "beta_rmse": "RMSE of beta", "f_mse": "MSE of f"}
    return plots.bars_by_panel(frame, rows | {"seconds": "seconds"}, KEYS, [*WAYS, "exact"])


STUDY = Study(
    "refine",
    "Two overlapping states with Bernoulli outcomes, 40 subjects, beta = (-1.5, 1.5): estimates by "
    "AVEM run to convergence, by AVEM refined, by quadrature and Monte Carlo EM with nodes of the "
    f"prior, and exactly ({EXACT_NODES} nodes, from two starts).",
    CELLS,
    {"converged": replicate},
    tables,
    times=times,
    quick_reps=3,
    figures={"figure": figure},
    reading=reading,
)
