"""Do nominal 95% intervals hold the truth 95 times of 100?"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies.study import Row, Study, Tables

CELLS = ({"model": "Gaussian, n=60, T=60"}, {"model": "Bernoulli, n=60, T=200"})
_GAUSSIAN = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, avem.Gaussian("spherical"))
_BERNOULLI = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, "bernoulli")
_CHAIN = {"initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.1, 0.9]]}
SETTINGS = {
    CELLS[0]["model"]: (
        _GAUSSIAN,
        60,
        60,
        _CHAIN
        | {"coef": [[[-1.0]], [[1.0]]], "variance": [1.0, 1.0], "effect_covariance": [[0.5]]},
    ),
    CELLS[1]["model"]: (
        _BERNOULLI,
        60,
        200,
        _CHAIN | {"coef": [[[-1.5]], [[1.5]]], "effect_covariance": [[0.5]]},
    ),
}
KINDS = ("observed", "sandwich")


def replicate(cell: Row, seed: int) -> list[Row]:
    """One panel: for every parameter, whether its intervals hold the truth."""
    model, n_subjects, n_times, truth = SETTINGS[cell["model"]]
    truth = {name: np.array(value) for name, value in truth.items()}
    frame = model.simulate(truth, n_subjects, n_times, seed=seed).frame
    # From the truth's labels: the order of the states is not in question here.
    fit = model.fit(frame, time="time", init=truth, refine="adaptive")
    rows = []
    for kind in KINDS:
        table = fit.standard_errors(kind)
        for _, row in table.iterrows():
            name = row["parameter"]
            where = tuple(int(row[c]) for c in ("state", "to_state") if pd.notna(row[c]))
            true = float(np.ravel(truth[name][where])[0])
            label = name + "".join(f"[{place}]" for place in where)
            rows.append(
                {
                    "parameter": label,
                    "kind": kind,
                    "truth": true,
                    "estimate": float(row["estimate"]),
                    "se": float(row["se"]),
                    "covered": bool(row["lower"] <= true <= row["upper"]),
                    "note": row["note"],
                    "stop": fit.stop.name,
                }
            )
    return rows


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Coverage per parameter, with the sd of the estimates beside the mean standard error."""
    # Two probabilities of a row are one parameter.
    frame = frame[~frame["parameter"].isin(["initial[1]", "transition[0][0]", "transition[1][1]"])]
    rows = []
    keys = ["model", "parameter", "kind"]
    for (model, parameter, kind), own in frame.groupby(keys, sort=False):
        stated = own[own["note"] == ""]
        rows.append(
            {
                "model": model,
                "parameter": parameter,
                "kind": kind,
                "coverage": stated["covered"].mean(),
                "sd of estimates": stated["estimate"].std(),
                "mean se": stated["se"].mean(),
                "panels": len(stated),
                "without se": len(own) - len(stated),
            }
        )
    table = pd.DataFrame(rows)
    return {"coverage": table}


def reading(tables: Tables) -> str:
    """The range of coverage over the parameters."""
    parts = []
    for kind, own in tables["coverage"].groupby("kind"):
        share, n = own["coverage"], own["panels"].min()
        parts.append(
            f"{kind}: {share.min():.1%} to {share.max():.1%}, {share.mean():.1%} on average"
        )
    error = np.sqrt(0.95 * 0.05 / n)
    return (
        f"Of nominal 95% intervals hold the truth, parameter by parameter, {'; '.join(parts)}. The "
        f"standard error of each figure is {error:.1%}."
    )


def figure(frame: pd.DataFrame) -> Figure:
    """Coverage of each parameter, with twice its standard error; the line is at 95%."""
    table = tables(frame)["coverage"]
    models = list(dict.fromkeys(table["model"]))
    drawn = Figure(figsize=(9, 3.6), layout="constrained")
    axes = drawn.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, models, strict=True):
        for shift, (kind, own) in zip((-0.1, 0.1), table.groupby("kind"), strict=True):
            own = own[own["model"] == name]
            error = 2 * np.sqrt(own["coverage"] * (1 - own["coverage"]) / own["panels"])
            at = np.arange(len(own)) + shift
            ax.errorbar(at, own["coverage"], error, fmt="o", ms=4, label=kind)
            ax.set_xticks(range(len(own)), own["parameter"], rotation=90, fontsize=7)
        ax.axhline(0.95, color="0.6", zorder=0)
        ax.set_title(name, fontsize=9)
    axes[0].legend(fontsize=8)
    return drawn


STUDY = Study(
    "coverage",
    "Refined fits of simulated panels: how often nominal 95% intervals hold the truth, from the "
    "observed information and from the sandwich.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 400},
    quick_reps=5,
    figures={"figure": figure},
    reading=reading,
)
