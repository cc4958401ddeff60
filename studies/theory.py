"""The paper's theorems, and Condition 2, as rates in the length of the sequences."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import norm
from scipy.stats import t as student

import avem
from studies import bernoulli_methods, gaussian
from studies.fits import timed
from studies.given import log_likelihoods, state_weights
from studies.study import Row, Study, Tables

LENGTHS = (50, 100, 200, 400, 800)
CELLS = tuple(
    {"outcome": outcome, "T": T} for outcome in ("Gaussian", "Bernoulli") for T in LENGTHS
)
N, K, LONG_RUN = 40, 3, 100
QUANTITIES = {
    "spread": "Condition 2: largest trace of Omega_i",
    "anchor": "Theorem 1: (J at the mean anchors - at the optimal ones) / nT",
    "fall": "Theorem 2: largest fall of the bound in an iteration / nT",
    "gap": "Theorem 3: (structured - anchored bound at the same q) / nT",
    "gap_own": "Theorem 3: (structured - anchored bound, each at its own q) / nT",
}
ROUNDING = 1e-12
"""Of a bound, relatively: less is no fall."""
COLLAPSED = 0.02
"""An estimated variance of the effects that is no longer near the true one, 1."""
BESIDE = np.array([-0.2, 0.0, 0.2])
"""Anchors around the mean of q, in its standard deviations."""


def replicate(cell: Row, seed: int) -> list[Row]:
    """All quantities of one panel, at the true and at the estimated parameters."""
    model, panel, truth, start = setting(cell, seed)
    estimated = timed(model, panel, refine=None)
    at_truth = model.fit(panel, init=truth, fixed=truth, refine=None)
    return [
        {"parameters": "true", **_quantities(model, panel, at_truth, truth)},
        {
            "parameters": "estimated",
            **_quantities(model, panel, estimated.fit, start),
            "seconds": estimated.seconds,
        },
    ]


def _quantities(
    model: avem.MixedHMM, panel: avem.Panel, fit: avem.HMMFit, start: dict[str, Any]
) -> Row:
    """Those of the theorems at the parameters of a fit; Theorem 2's on the way from `start`."""
    # The same parameters for both families, and a search for modes: then bounds differ by the
    # families alone.
    held = {"init": fit, "fixed": fit.params, "refine": None}
    mean = model.fit(panel, **held)
    structured = model.fit(panel, method=avem.Structured(15), **held)
    regret, gap = anchor_regret(mean, panel)
    plain = model.fit(panel, init=start, plain=True, tol=0.0, max_iter=LONG_RUN)
    steps = np.diff(plain.bound_history)
    noise = ROUNDING * abs(mean.bound)
    size = panel.n_rows
    return {
        "spread": float(np.trace(mean.effects_cov, axis1=1, axis2=2).max()),
        "anchor": float(regret.sum()) / size,
        "fall": float(-steps.min()) / size if steps.min() < -noise else 0.0,
        "gap": float(gap.sum()) / size,
        "gap_own": max(float(structured.bound - mean.bound), 0.0) / size,
        "falls": int((steps < -noise).sum()),
        "tau2": float(fit.params["effect_covariance"][0, 0]),
    }


def anchor_regret(fit: avem.HMMFit, panel: avem.Panel) -> tuple[np.ndarray, np.ndarray]:
    """(subjects,) each: J_i(mean anchor) - J_i(optimal anchor), and J_i(mean anchor), at q_i.

    J_i(f0) = E_q[log p(D_i|f) - S_i(f; f0)] - [log p(D_i|f0) - S_i(f0; f0)], where S_i(f; f0) is
    the log density of the outcomes at f, the states weighed as at f0; what belongs to the chain
    alone cancels. The optimum is that of the parabola through three anchors around the mean.
    """
    n, n_times = len(fit.subjects), panel.n_rows // panel.n_subjects
    outcome = fit.model.spec.outcomes[0].formula.outcomes[0]
    y = panel.table[outcome].to_numpy(float).reshape(n, n_times)
    x, w = hermegauss(15)
    w = w / w.sum()
    sd = np.sqrt(fit.effects_cov[:, 0, 0])
    nodes, anchors = (fit.effects_mean + sd[:, None] * at for at in (x, BESIDE))

    def copies(f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shape = (n, f.shape[1], n_times)
        pair = np.broadcast_to(y[:, None], shape), np.broadcast_to(f[:, :, None], shape)
        return tuple(each.reshape(-1, n_times, 1) for each in pair)

    at_nodes = log_likelihoods(fit, *copies(nodes)).reshape(n, -1)
    at_anchors = log_likelihoods(fit, *copies(anchors)).reshape(n, -1)
    states = state_weights(fit, *copies(anchors)).reshape(n, len(BESIDE), n_times, -1)
    there = _log_density(fit, y, nodes)
    here = _log_density(fit, y, anchors)
    crossed = np.einsum("iatk,ijtk->iaj", states, there)
    own = np.einsum("iatk,iatk->ia", states, here)
    j = (at_nodes[:, None] - crossed) @ w - (at_anchors - own)
    slope = (j[:, 2] - j[:, 0]) / 2
    bend = j[:, 0] + j[:, 2] - 2 * j[:, 1]
    return slope**2 / (2 * bend), j[:, 1]


def _log_density(fit: avem.HMMFit, y: np.ndarray, f: np.ndarray) -> np.ndarray:
    """(subjects, values of f, T, states) log density of the outcomes at effects f."""
    level = f[:, :, None, None] + fit.params["coef"][:, 0, 0]
    if "variance" in fit.params:
        return norm.logpdf(y[:, None, :, None], level, np.sqrt(fit.params["variance"]))
    return y[:, None, :, None] * level - np.logaddexp(0, level)


def setting(
    cell: Row, seed: int
) -> tuple[avem.MixedHMM, avem.Panel, dict[str, Any], dict[str, Any]]:
    """Scenarios I (K=3, d=1) and II with tau2=1: model, data, truth, the authors' start."""
    if cell["outcome"] == "Gaussian":
        data = gaussian.simulate(K, 1, N, cell["T"], 1.0, seed)
        return data.model, data.panel, data.truth, gaussian.start(K, 1, 1.0)
    _, panel, truth = bernoulli_methods.simulate({"T": cell["T"], "tau2": 1.0}, seed)
    return bernoulli_methods.MODEL, panel, truth, bernoulli_methods.start(1.0)


def tables(frame: pd.DataFrame) -> Tables:
    """Slopes of the logarithms of the means, and the means by length."""
    keys = ["parameters", "outcome"]
    means = frame.groupby([*keys, "T"], sort=False, as_index=False)
    slopes = []
    for (parameters, outcome), every in frame.groupby(keys, sort=False):
        own = every[every["tau2"] > COLLAPSED]
        for name, words in QUANTITIES.items():
            slope, low, high = slope_of(own, name)
            slopes.append(
                {
                    "parameters": parameters,
                    "outcome": outcome,
                    "quantity": words,
                    "slope in T": slope,
                    "lower": low,
                    "upper": high,
                    "zero in": f"{(own[name] <= 0).sum()} of {len(own)}",
                    "left out": len(every) - len(own),
                }
            )
    columns = [*QUANTITIES, "falls", "tau2"]
    return {"slopes": pd.DataFrame(slopes), "means_by_length": means[columns].mean()}


def slope_of(rows: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Slope of the log of the mean on log T, with its 95% interval.

    The replicates of each length are independent, so the variance of the slope is a weighted sum of
    those of the logs of the means, which the delta method gives.
    """
    by = rows.groupby("T")[name].agg(["mean", "var", "size"])
    by = by[by["mean"] > 0]
    if len(by) < 3:
        return np.nan, np.nan, np.nan
    x = np.log(by.index.to_numpy(float))
    x = x - x.mean()
    weight = x / (x @ x)
    slope = float(weight @ np.log(by["mean"]))
    variance = float(weight**2 @ (by["var"] / by["size"] / by["mean"] ** 2))
    half = student.ppf(0.975, max(by["size"].sum() - 2, 1)) * np.sqrt(variance)
    return slope, slope - half, slope + half


def figure(frame: pd.DataFrame) -> Figure:
    """Every quantity against T on logarithmic scales; grey: falling as 1/T."""
    drawn = Figure(figsize=(13, 3.4), layout="constrained")
    axes = drawn.subplots(1, len(QUANTITIES))
    lengths = np.array(sorted(frame["T"].unique()), float)
    frame = frame[frame["tau2"] > COLLAPSED]
    for ax, (name, words) in zip(axes, QUANTITIES.items(), strict=True):
        means = frame.groupby(["outcome", "parameters", "T"], sort=False)[name].mean().sort_index()
        for outcome, colour in (("Gaussian", "C0"), ("Bernoulli", "C1")):
            for parameters, style in (("true", "o-"), ("estimated", "s--")):
                if (outcome, parameters) not in means.index.droplevel("T"):
                    continue
                line = means[outcome, parameters]
                label = f"{outcome}, {parameters}"
                ax.plot(line.index, line.where(line > 0), style, c=colour, ms=4, label=label)
        ax.plot(lengths, means.max() * lengths[0] / lengths, color="0.7", zorder=0)
        ax.set(xscale="log", yscale="log", xlabel="T")
        ax.set_xticks(lengths, [f"{T:.0f}" for T in lengths])
        ax.set_xticks([], minor=True)
        ax.set_title(fill(words.replace(": ", ":\n"), 38, replace_whitespace=False), fontsize=6)
    axes[0].legend(fontsize=6)
    return drawn


def reading(tables: Tables) -> str:
    """Whether each quantity falls at the rate that the paper gives."""
    parts = []
    for _, row in tables["slopes"].iterrows():
        words = f"- {row['outcome']}, {row['parameters']} parameters. {row['quantity']}: "
        if np.isnan(row["slope in T"]):
            parts.append(words + f"zero in {row['zero in']}, no slope.")
        else:
            parts.append(
                words + f"T^{row['slope in T']:.2f} (95% interval {row['lower']:.2f} to "
                f"{row['upper']:.2f})."
            )
    return (
        "The paper's bounds are of order T^-r with 0 < r <= 1, r = 1 where the information on an "
        "effect grows with T; a slope of -1 or steeper agrees with that. The theorems are about "
        "parameters near the true ones; replicates whose variance of the effects has collapsed "
        "(Bernoulli, short sequences) are left out of the slopes.\n\n" + "\n".join(parts)
    )


STUDY = Study(
    "theory",
    f"Condition 2 and Theorems 1 to 3 in numbers: {N} subjects, effects of variance 1, Gaussian "
    "(Scenario I, K=3, d=1) and Bernoulli outcomes (Scenario II), at the true parameters and at "
    "those of AVEM alone. J is the paper's expected divergence; its optimum is that of a parabola "
    f"through anchors around the mean of q. Theorem 2 follows {LONG_RUN} plain iterations, from "
    "the truth and from the authors' start. Theorem 3 compares the bounds at "
    "the anchored fit's q, and those of two fits.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 30},
    quick_cells=(0, 1, 2),
    quick_reps=1,
    figures={"figure": figure},
    reading=reading,
)
