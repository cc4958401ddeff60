"""Thirty iterations of every method on the paper's Gaussian example, K=2, d=2, n=40, T=40.

Each from the same start, without stopping, acceleration or mode searches (`plain=True`), warm. The
authors' R scripts ran other numbers of iterations on another machine: their seconds per iteration
are for orientation.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import avem

FOLDER = Path(__file__).parents[1] / "tests" / "reference"
NAME = "gauss_K2_d2_n40_T40"
ITERATIONS, REPEATS = 30, 5
METHODS: dict[str, dict[str, Any]] = {
    "avem": {},
    "mean_field": {"method": "mean_field"},
    "partial (1 of 2 effects, 9 nodes)": {"method": avem.Partial("y1: Intercept")},
    "structured (5 x 5 nodes)": {"method": "structured"},
    "quadrature (9 x 9 nodes)": {"method": avem.Quadrature(9)},
    "quadrature (25 x 25 nodes)": {"method": avem.Quadrature(25)},
    "monte_carlo (100 draws)": {"method": avem.MonteCarlo(100)},
    "adaptive (7 x 7 nodes, 4 centres)": {"method": "adaptive"},
}
IN_R = {
    "avem": 1.213 / 131,
    "quadrature (9 x 9 nodes)": 1.333 / 36,
    "quadrature (25 x 25 nodes)": 18.155 / 86,
}
"""Seconds per iteration of the authors' scripts with compiled inner functions, on the same data."""


def seconds(model: avem.MixedHMM, frame: pd.DataFrame, start: dict, options: dict) -> float:
    """Median wall seconds of the iterations, after a first fit that compiles."""
    taken = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        model.fit(frame, plain=True, init=start, tol=0.0, max_iter=ITERATIONS, **options)
        taken.append(time.perf_counter() - began)
    return median(taken[1:])


if __name__ == "__main__":
    y = np.load(FOLDER / f"{NAME}.npz")["y"]
    given = json.loads((FOLDER / f"{NAME}.json").read_text())["start"]
    frame = pd.DataFrame(y.reshape(-1, 2), columns=["y1", "y2"])
    frame["subject"] = np.repeat(np.arange(len(y)), y.shape[1])
    model = avem.MixedHMM(
        "y1 + y2 ~ 1 + (1 | subject)",
        2,
        avem.Gaussian("spherical"),
        effect_covariance="isotropic",
    )
    start = {
        "initial": given["delta"],
        "transition": given["Gamma"],
        "coef": np.array(given["mu"])[:, :, None],
        "variance": given["sigma2"],
        "effect_covariance": np.eye(2) * given["tau2"],
    }
    print(
        f"{ITERATIONS} iterations, n=40, T=40, K=2, two effects; wall seconds, median of {REPEATS}"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", avem.AvemWarning)  # the iteration limit is meant
        base = seconds(model, frame, start, METHODS["avem"])
        for name, options in METHODS.items():
            own = seconds(model, frame, start, options)
            words = f"{name:36s}{own:8.3f} s  {own / base:6.1f} x avem"
            if name in IN_R:
                words += f"   R, for orientation: {IN_R[name] * ITERATIONS:.1f} s"
            print(words, flush=True)
