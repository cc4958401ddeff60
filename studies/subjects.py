"""What is said of single subjects: do intervals of coefficients hold, are states calibrated?"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies.study import Row, Study, Tables

SETTINGS: dict[str, dict] = {
    "6 x 1,000": {"n": 6, "T": 1000, "mean": 1.0, "stay": 0.9},
    "40 x 30": {"n": 40, "T": 30, "mean": 1.0, "stay": 0.9},
    "50 x 60": {"n": 50, "T": 60, "mean": 1.0, "stay": 0.9},
    "40 x 30, overlapping": {"n": 40, "T": 30, "mean": 0.7, "stay": 0.8},
}
CELLS = tuple({"setting": name} for name in SETTINGS)
STATES = {
    "fitted effects": {},
    "integrated effects": {"effects": "integrated"},
    "estimated parameters": {"parameters": "estimated"},
}
N_BINS = 10


def replicate(cell: Row, seed: int) -> list[Row]:
    """One panel: shares of intervals that hold the truth; where states overlap, claims by bins."""
    setting = SETTINGS[cell["setting"]]
    mean, stay = setting["mean"], setting["stay"]
    truth = {
        "initial": np.array([0.5, 0.5]),
        "transition": np.array([[stay, 1 - stay], [1 - stay, stay]]),
        "coef": np.array([[[-mean]], [[mean]]]),
        "variance": np.ones(2),
        "effect_covariance": np.eye(1),
    }
    model = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, avem.Gaussian("spherical"))
    made = model.simulate(truth, setting["n"], setting["T"], seed=seed)
    fit = model.fit(made.frame, time="time")
    if "overlapping" in cell["setting"]:
        return list(_claims(fit, made.states))
    effects, table = np.ravel(made.effects), fit.coefficients()
    level = table["state"].map({0: -mean, 1: mean}) + table["subject"].map(
        pd.Series(effects, fit.subjects)
    )
    rows: list[Row] = [{"of": "coefficients", "covered": _held(table, level.to_numpy(float))}]
    for words in ("fixed", "estimated"):
        table = fit.effects(parameters=words)
        rows.append({"of": f"effects, parameters {words}", "covered": _held(table, effects)})
    return rows


def _held(table: pd.DataFrame, true: np.ndarray) -> float:
    lower, upper = table["lower"].to_numpy(float), table["upper"].to_numpy(float)
    return float(((lower <= true) & (true <= upper)).mean())


def _claims(fit: avem.HMMFit, states: np.ndarray):
    """By bins of the probability of the state that is most probable."""
    for name, options in STATES.items():
        chance = fit.state_probabilities(**options).to_numpy()
        top, right = chance.max(1), chance.argmax(1) == np.asarray(states)
        place = np.minimum(((top - 0.5) * 2 * N_BINS).astype(int), N_BINS - 1)
        for b in range(N_BINS):
            inside = place == b
            yield {
                "of": name,
                "bin": b,
                "rows": int(inside.sum()),
                "claimed": float(top[inside].sum()),
                "right": int(right[inside].sum()),
            }


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Coverage per setting, and claims beside what was right."""
    covered = frame[frame["covered"].notna()] if "covered" in frame else frame[:0]
    found = {}
    if len(covered):
        groups = covered.groupby(["setting", "of"], sort=False)["covered"]
        found["coverage"] = pd.DataFrame(
            {"coverage": groups.mean(), "se": groups.sem(), "panels": groups.size()}
        ).reset_index()
    claims = frame[frame["bin"].notna()] if "bin" in frame else frame[:0]
    if len(claims):
        sums = claims.groupby(["of", "bin"], sort=False)[["rows", "claimed", "right"]].sum()
        table = sums.reset_index()
        table["claimed"] /= table["rows"].clip(lower=1)
        table["right"] = table["right"] / table["rows"].clip(lower=1)
        table["bin"] = [f"{0.5 + 0.05 * b:.2f} to {0.55 + 0.05 * b:.2f}" for b in table["bin"]]
        found["calibration"] = table
    return found


def reading(tables: Tables) -> str:
    """The figures in words."""
    words = []
    if "coverage" in tables:
        own = tables["coverage"].set_index(["of", "setting"])["coverage"]
        shares = ", ".join(f"{own['coefficients'][s]:.1%} ({s})" for s in own["coefficients"].index)
        words.append(f"Nominal 95% intervals of subjects' coefficients hold the truth in {shares}.")
    if "calibration" in tables:
        for name, own in tables["calibration"].groupby("of", sort=False):
            share = own["rows"] / own["rows"].sum()
            claimed, right = (share * own["claimed"]).sum(), (share * own["right"]).sum()
            furthest = (own["claimed"] - own["right"]).abs().max()
            words.append(
                f"State probabilities with {name} claim {claimed:.1%} where {right:.1%} are right; "
                f"in the worst of ten bins they are {100 * furthest:.1f} points off."
            )
    return " ".join(words)


def figure(frame: pd.DataFrame) -> Figure:
    """Claimed against right, in bins; the line is where they are equal."""
    drawn = Figure(figsize=(4.5, 4.0), layout="constrained")
    ax = drawn.subplots()
    made = tables(frame)
    if "calibration" in made:
        for name, own in made["calibration"].groupby("of", sort=False):
            ax.plot(own["claimed"], own["right"], "o-", ms=4, label=name)
        ax.legend(fontsize=8)
    ax.plot([0.5, 1.0], [0.5, 1.0], color="0.6", zorder=0)
    ax.set_xlabel("claimed")
    ax.set_ylabel("right")
    return drawn


STUDY = Study(
    "subjects",
    "Default fits of simulated panels: how often intervals of subjects' coefficients and effects "
    "hold the truth, and whether state probabilities are right as often as they claim.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 200},
    quick_reps=2,
    figures={"figure": figure},
    reading=reading,
)
