"""The paper's Appendix C: an effect that acts on the first steps alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies import fits, plots
from studies.fits import Timed, timed
from studies.study import Row, Study, Tables

KEYS = ["mu", "t0"]
CELLS = tuple({"mu": mu, "t0": t0} for mu in (1.5, 0.5) for t0 in (5, 10, 15))
PARTIAL = {f"partial {n}": n for n in (5, 7, 9)}
METHODS = ("AVEM", *PARTIAL, "default", "exact")
N, T = 40, 40
SAME = 2.0
"""A difference of fewer standard errors is none."""


def setting(
    mu: float, t0: int, n_times: int, seed: int
) -> tuple[avem.MixedHMM, avem.Panel, dict[str, Any], np.ndarray]:
    """The model, a panel, the truth, and the true effects."""
    model = avem.MixedHMM(
        f"y ~ 1 + (1 + {_early(t0)} | subject)",
        2,
        avem.Gaussian("spherical"),
        effect_covariance="diagonal",
    )
    truth = _params(mu, 1.0, 0.92, (1.0, 1.5))
    made = model.simulate(truth, N, n_times, seed=seed)
    panel = avem.Panel.from_frame(made.frame, "subject", time="time")
    return model, panel, truth, made.effects


def _early(t0: int) -> str:
    return f"I(time < {t0})"


def early_effect(t0: int) -> str:
    """The name of the localized effect in a fit."""
    return f"y: {_early(t0)}"


def _params(mu: float, variance: float, stay: float, tau2: tuple[float, float]) -> dict[str, Any]:
    return {
        "initial": np.array([0.5, 0.5]),
        "transition": np.array([[stay, 1 - stay], [1 - stay, stay]]),
        "coef": np.array([[[-mu]], [[mu]]]),
        "variance": np.full(2, variance),
        "effect_covariance": np.diag(tau2),
    }


def _ways(cell: Row, **options: Any) -> dict[str, dict[str, Any]]:
    """AVEM, and partial anchoring with 5, 7 and 9 nodes for the localized effect."""
    early, ways = early_effect(cell["t0"]), {"AVEM": options}
    return ways | {
        name: options | {"method": avem.Partial(early, n_nodes=n)} for name, n in PARTIAL.items()
    }


def paper(cell: Row, seed: int) -> list[Row]:
    """Plain iterations from the start of the authors' other Gaussian fits; nodes of the prior."""
    model, panel, truth, effects = setting(cell["mu"], cell["t0"], T, seed)
    start = _params(0.8, 1.2, 0.85, (0.7, 1.05))
    ways = _ways(cell, plain=True, tol=1e-4, max_iter=80, init=start)
    return [
        {"method": name, **_score(timed(model, panel, **options), truth, effects)}
        for name, options in ways.items()
    ]


def converged(cell: Row, seed: int) -> list[Row]:
    """From the data alone, to convergence; the default fit and the exact maximum beside them."""
    model, panel, truth, effects = setting(cell["mu"], cell["t0"], T, seed)
    found = {
        name: timed(model, panel, **options) for name, options in _ways(cell, refine=None).items()
    }
    found |= fits.converged(model, panel, truth)
    del found["AVEM alone"]  # it is there as AVEM
    return [{"method": name, **_score(each, truth, effects)} for name, each in found.items()]


def _score(found: Timed, truth: dict[str, Any], effects: np.ndarray) -> Row:
    params = found.fit.params
    error = (found.fit.effects_mean - effects) ** 2
    off = np.sort(params["coef"].ravel()) - truth["coef"].ravel()
    return {
        "f_local_mse": float(error[:, 1].mean()),
        "f_global_mse": float(error[:, 0].mean()),
        "mu_rmse": float(np.sqrt(np.mean(off**2))),
        "contrast_rmse": float(np.sqrt(np.mean((off - off.mean()) ** 2))),
        "tau2_local": float(params["effect_covariance"][1, 1]),
        "iterations": found.iterations,
        "stop": found.fit.stop.name,
        "seconds": found.seconds,
    }


def tables(frame: pd.DataFrame) -> Tables:
    """Means over replicates, and by how much each method beats the AVEM of its protocol."""
    rows = []
    for (protocol, mu, t0), cell in frame.groupby(["protocol", *KEYS], sort=False):
        errors = cell.pivot(index="replicate", columns="method", values="f_local_mse")
        for method in [name for name in METHODS if name in errors]:
            own = cell[cell["method"] == method]
            better = errors["AVEM"] - errors[method]
            rows.append(
                {
                    "protocol": protocol,
                    "mu": mu,
                    "t0": t0,
                    "method": method,
                    "MSE localized": own["f_local_mse"].mean(),
                    "less than AVEM by": better.mean(),
                    "its standard error": better.std() / np.sqrt(len(better)),
                    "MSE global": own["f_global_mse"].mean(),
                    "mu RMSE": own["mu_rmse"].mean(),
                    "contrast RMSE": own["contrast_rmse"].mean(),
                    "tau2 localized": own["tau2_local"].mean(),
                    "not converged": int((own["stop"] != "CONVERGED").sum()),
                }
            )
    return {"errors": pd.DataFrame(rows)}


def _figure(frame: pd.DataFrame, protocol: str) -> Figure | None:
    """The paper's: bars of each method, a column per setting; means, as there."""
    rows = {"f_local_mse": "MSE of localized f", "mu_rmse": "RMSE of mu", "seconds": "seconds"}
    own = frame[frame["protocol"] == protocol]
    methods = [name for name in METHODS if name in set(own["method"])]
    return plots.bars_by_panel(own, rows, KEYS, methods)


def reading(tables: Tables) -> str:
    """Where partial anchoring helps."""
    said = []
    table = tables["errors"]
    for (protocol, mu), own in table.groupby(["protocol", "mu"], sort=False):
        parts = []
        for method, each in own[own["method"] != "AVEM"].groupby("method", sort=False):
            z = each["less than AVEM by"] / each["its standard error"]
            base = each["MSE localized"] + each["less than AVEM by"]
            share = (each["MSE localized"] / base).mean()
            parts.append(
                f"{method} has {share:.2f} of AVEM's error of the localized effect (clearly less "
                f"in {(z > SAME).sum()}, clearly more in {(z < -SAME).sum()} of {len(each)})"
            )
        said.append(f"{protocol.capitalize()} protocol, mu={mu}: " + "; ".join(parts) + ".")
    return "\n\n".join(said)


STUDY = Study(
    "partial",
    f"Appendix C: a global effect (variance 1) and one on the first t0 of {T} steps (variance 1.5),"
    f" {N} subjects, two Gaussian states at -mu and mu: well separated (1.5) or not (0.5). Partial "
    "anchoring integrates the localized effect over 5, 7 or 9 nodes: of its prior in the paper "
    "protocol, of its posterior otherwise. The paper does not say how its fits start; the paper "
    "protocol takes the start of the authors' other Gaussian fits.",
    CELLS,
    {"paper": paper, "converged": converged},
    tables,
    reps={"paper": 100, "converged": 30},
    quick_reps=2,
    figures={
        "figure": lambda frame: _figure(frame, "paper"),
        "converged": lambda frame: _figure(frame, "converged"),
    },
    reading=reading,
)
