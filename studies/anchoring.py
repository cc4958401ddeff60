"""When does anchoring hold? What AVEM loses, and how much its diagnosis says is lost."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies.study import Row, Study, Tables

CELLS = (
    *(
        {"outcome": "2 Gaussian", "K": K, "distance": distance, "tau2": tau2, "T": T}
        for K, distance, tau2, T in (
            (2, 4.0, 1.0, 40),
            (2, 2.0, 1.0, 40),
            (2, 2.0, 0.1, 40),
            (2, 1.0, 1.0, 40),
            (2, 1.0, 0.1, 40),
            (3, 3.0, 1.0, 60),
            (3, 1.5, 1.0, 60),
        )
    ),
    *(
        {"outcome": "Bernoulli", "K": 2, "distance": 3.0, "tau2": tau2, "T": T}
        for tau2, T in ((0.25, 100), (1.0, 100), (0.25, 400))
    ),
)


def replicate(cell: Row, seed: int) -> list[Row]:
    """AVEM and its refinement on one panel of 40 subjects."""
    model, truth = _model(cell)
    made = model.simulate(truth, 40, cell["T"], seed=seed)
    found: dict[str, Any] = {}
    for name, refine in (("avem", None), ("refined", "adaptive")):
        began = time.process_time()
        fit = model.fit(made.frame, time="time", refine=refine)
        found[f"{name}_seconds"] = time.process_time() - began
        found[f"{name}_tau2"] = float(np.diagonal(fit.params["effect_covariance"]).mean())
        found[f"{name}_f_mse"] = float(np.mean((fit.effects_mean - made.effects) ** 2))
        found[f"{name}_stop"] = fit.stop.name
        found["lost"] = float(max(fit.info.lost))
    return [found]


def _model(cell: Row) -> tuple[avem.MixedHMM, dict[str, Any]]:
    K = cell["K"]
    move = 0.1 / (K - 1)
    level = cell["distance"] * (np.arange(K) - (K - 1) / 2)
    truth: dict[str, Any] = {
        "initial": np.full(K, 1 / K),
        "transition": np.where(np.eye(K) > 0, 0.9, move),
    }
    if cell["outcome"] == "Bernoulli":
        truth |= {"coef": level[:, None, None], "effect_covariance": [[cell["tau2"]]]}
        return avem.MixedHMM("y ~ 1 + (1 | subject)", K, "bernoulli"), truth
    truth |= {
        "coef": np.repeat(level[:, None, None], 2, axis=1),
        "variance": np.ones(K),
        "effect_covariance": cell["tau2"] * np.eye(2),
    }
    noise = avem.Gaussian("spherical")
    model = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", K, noise, effect_covariance="isotropic")
    return model, truth


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Per setting, in the order of the information lost."""
    rows = []
    keys = ["outcome", "K", "distance", "tau2", "T"]
    for values, own in frame.groupby(keys, sort=False):
        cell = dict(zip(keys, values, strict=True))
        rows.append(
            {
                **cell,
                "lost": own["lost"].mean(),
                "tau2 AVEM": own["avem_tau2"].mean(),
                "tau2 refined": own["refined_tau2"].mean(),
                "MSE of f AVEM": own["avem_f_mse"].mean(),
                "MSE of f refined": own["refined_f_mse"].mean(),
                "not converged": int((own["refined_stop"] != "CONVERGED").sum()),
            }
        )
    return {"by_information_lost": pd.DataFrame(rows).sort_values("lost", ignore_index=True)}


def reading(tables: Tables) -> str:
    """What is lost where little, some and most of the information is lost."""
    table = tables["by_information_lost"]
    said = []
    for low, high in ((0, 0.05), (0.05, 0.4), (0.4, 1)):
        own = table[(table["lost"] >= low) & (table["lost"] < high)]
        if own.empty:
            continue
        tau2, f = (own[f"{name} AVEM"] / own[f"{name} refined"] for name in ("tau2", "MSE of f"))
        said.append(
            f"{own['lost'].min():.0%} to {own['lost'].max():.0%} lost ({len(own)} settings): AVEM's"
            f" tau2 is {tau2.min():.2f} to {tau2.max():.2f} of the refined fit's, its squared error"
            f" of f {f.min():.2f} to {f.max():.2f} times as large"
        )
    return "; ".join(said) + "."


def figure(frame: pd.DataFrame) -> Figure:
    """How far AVEM and the refined fit are from the truth, by the information lost."""
    drawn = Figure(figsize=(8, 3.4), layout="constrained")
    keys = ["outcome", "K", "distance", "tau2", "T"]
    means = frame.groupby(keys, sort=False).mean(numeric_only=True).reset_index()
    for ax, (name, words) in zip(
        drawn.subplots(1, 2), (("tau2", "tau2 over the truth"), ("f_mse", "MSE of f")), strict=True
    ):
        for way, marker in (("avem", "o"), ("refined", "x")):
            scale = means["tau2"] if name == "tau2" else 1.0
            ax.plot(means["lost"], means[f"{way}_{name}"] / scale, marker, label=way)
        ax.set(xlabel="share of information lost", ylabel=words)
        ax.legend()
    return drawn


STUDY = Study(
    "anchoring",
    "When does anchoring hold? 40 subjects; states at equal distances on every outcome (standard "
    "deviations, or log odds); `lost` is the share of information on the effects that is lost by "
    "not seeing the states, as `fit.diagnose()` reports it.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 30},
    quick_cells=(0, 4),
    figures={"figure": figure},
    reading=reading,
)
