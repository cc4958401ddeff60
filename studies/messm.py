"""Scenario III: mixed-effects state-space models."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies.compare import authors
from studies.study import Row, Study, Tables

KEYS = ["n", "T", "stable"]
SIZES = ((50, 25), (50, 50), (25, 25), (25, 50), (25, 100), (50, 100))
"""In the order of the authors' cases."""
CELLS = tuple({"n": n, "T": T, "stable": s} for s in (True, False) for n, T in SIZES)
MODEL = avem.MixedSSM("y1 + y2 + y3 + y4 ~ 0", 2, subject="subject")
TRUTH: dict[str, Any] = {
    "initial_mean": np.zeros(2),
    "initial_covariance": np.eye(2),
    "transition_mean": np.array([[0.7, -0.1], [0.1, 0.6]]),
    "loading_mean": np.array([[1.0, 0.0], [0.2, 0.9], [0.3, 0.4], [0.4, 0.2]]),
    "noise": np.full(4, 0.25),
    "transition_covariance": 0.05 * np.eye(4),
    "loading_covariance": 0.05 * np.eye(7),
}
MEASURES = {
    "G": "rmse_mu_g",
    "H": "rmse_mu_h",
    "R": "rmse_R",
    "g_i": "mse_g_subject",
    "h_i": "mse_h_subject",
}
"""Root mean square errors, and the authors' names of them; two of theirs are squares."""
LIMIT, MAX_ITER, RULE, FIRST = 0.98, 120, 1e-4, 3
_LOWER = np.tril_indices(4, 0, 2)


def _data(cell: Row, seed: int) -> Any:
    """A panel; with `stable`, as the authors: any G_i of spectral radius 0.98 is scaled back."""
    n, length = cell["n"], cell["T"]
    limit = LIMIT if cell["stable"] else None
    return MODEL.simulate(TRUTH, n, length, max_radius=limit, seed=seed)


def _score(fit: avem.SSMFit, made: Any) -> Row:
    g = fit.effects_mean[:, :4] + fit.params["transition_mean"].T.ravel()
    h = fit.effects_mean[:, 4:] + _vecl(fit.params["loading_mean"])
    true_g = made.effects[:, :4] + TRUTH["transition_mean"].T.ravel()
    true_h = made.effects[:, 4:] + _vecl(TRUTH["loading_mean"])
    return {
        "G": _rmse(fit.params["transition_mean"] - TRUTH["transition_mean"]),
        "H": _rmse((fit.params["loading_mean"] - TRUTH["loading_mean"])[_LOWER]),
        "R": _rmse(fit.params["noise"] - TRUTH["noise"]),
        "g_i": _rmse(g - true_g),
        "h_i": _rmse(h - true_h),
        "Sigma_h": float(np.diagonal(fit.params["loading_covariance"]).mean()),
        "variance of true h_i": float(true_h.var(axis=0).mean()),
        # What is left when every subject's own matrices are known: nobody can do better.
        "G known": _rmse(made.effects[:, :4].mean(axis=0)),
        "H known": _rmse(made.effects[:, 4:].mean(axis=0)),
        "iterations": fit.n_iter,
        "stop": fit.stop.name,
    }


def _vecl(loading: np.ndarray) -> np.ndarray:
    return np.concatenate([loading[k:, k] for k in range(loading.shape[1])])


def _rmse(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def paper(cell: Row, seed: int) -> list[Row]:
    """AVEM as the authors run it: from the truth and some noise, until the parameters are still."""
    if not cell["stable"]:
        return []
    made, rng = _data(cell, seed), np.random.default_rng(seed)
    lower = np.tril(np.ones((4, 2)))
    start: Any = {
        **TRUTH,
        "transition_mean": TRUTH["transition_mean"] + 0.1 * rng.standard_normal((2, 2)),
        "loading_mean": TRUTH["loading_mean"] + 0.1 * rng.standard_normal((4, 2)) * lower,
        "noise": TRUTH["noise"] * np.exp(0.1 * rng.standard_normal(4)),
    }
    seen = [_watched(start)]

    def still(now: avem.Iteration) -> bool:
        seen.append(_watched(now.params))
        change = np.linalg.norm(seen[-1] - seen[-2]) / (np.linalg.norm(seen[-2]) + 1e-8)
        return now.number >= 2 and change < RULE

    began = time.process_time()
    options = {"plain": True, "init": start, "tol": 0.0, "max_iter": MAX_ITER}
    fit = MODEL.fit(made.frame, time="time", callback=still, **options)
    bounds = fit.bound_history
    size = cell["n"] * cell["T"]
    path = np.round((bounds - bounds[FIRST - 1]) / size, 7)[FIRST - 1 :].tolist()
    row = _score(fit, made) | {"iterations": len(bounds), "path": path}
    return [{"method": "AVEM", **row, "seconds": time.process_time() - began}]


def _watched(params: Any) -> np.ndarray:
    """What the authors' rule looks at."""
    names = ("transition_mean", "loading_mean", "initial_mean", "noise")
    return np.concatenate([np.ravel(params[name]) for name in names])


def converged(cell: Row, seed: int) -> list[Row]:
    """From the data alone: the default, and AVEM without refinement."""
    made, rows = _data(cell, seed), []
    ways: dict[str, dict[str, Any]] = {"default": {}, "AVEM": {"refine": None}}
    for name, options in ways.items():
        began = time.process_time()
        fit = MODEL.fit(made.frame, time="time", **options)
        seconds = time.process_time() - began
        finite = all(np.isfinite(value).all() for value in fit.params.values())
        score = _score(fit, made)
        rows.append({"method": name, **score, "finite": finite, "seconds": seconds})
    return rows


def reference() -> pd.DataFrame:
    """The authors' replicates, as root mean square errors."""
    raw = authors("messm_all_metrics_raw.csv")
    found = raw[["n", "T"]].assign(stable=True)
    for name, theirs in MEASURES.items():
        found[name] = np.sqrt(raw[theirs]) if theirs.startswith("mse") else raw[theirs]
    return found


def tables(frame: pd.DataFrame) -> Tables:
    """Median errors beside the authors', and what becomes of the variance of the loadings."""
    names = list(MEASURES)
    medians = frame.groupby(["protocol", "method", *KEYS], sort=False, as_index=False)[names]
    ours = medians.median().assign(replicates=medians.size()["size"])
    theirs = reference().groupby(KEYS, sort=False, as_index=False)[names].median()
    table = ours.merge(theirs, on=KEYS, how="left", suffixes=("", ", authors'"))
    found = {"median_errors": table}
    if (frame["method"] == "default").any():
        found["default_over_the_authors"] = _ratios(frame)
    if "finite" in frame:
        own = frame[frame["protocol"] == "converged"]
        grouped = own.groupby(["method", *KEYS], sort=False, as_index=False)
        columns = ["Sigma_h", "variance of true h_i", "H", "R", "h_i"]
        means = grouped[columns].mean()
        means["not finite"] = grouped["finite"].agg(lambda v: int((~v.astype(bool)).sum()))[
            "finite"
        ]
        means["not converged"] = grouped["stop"].agg(lambda v: int((v != "CONVERGED").sum()))[
            "stop"
        ]
        found["loadings"] = means
    return found


def _ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """The default's median errors as multiples of the authors', with bootstrap standard errors."""
    ours = frame[(frame["method"] == "default") & frame["stable"]]
    theirs, rng, rows = reference(), np.random.default_rng(0), []
    for n, t in SIZES:
        own, other = (every[(every["n"] == n) & (every["T"] == t)] for every in (ours, theirs))
        for name in MEASURES if len(own) else ():
            above, below = (_medians(each[name].to_numpy(), rng) for each in (own, other))
            row = {"n": n, "T": t, "error": name, "ratio": own[name].median()}
            row["ratio"] /= other[name].median()
            row["standard error"] = float((above / below).std())
            row["default"], row["authors'"] = own[name].median(), other[name].median()
            known = f"{name} known"
            row["if all subjects were known"] = own[known].median() if known in own else np.nan
            rows.append(row)
    return pd.DataFrame(rows)


def _medians(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Of resampled values."""
    return np.median(rng.choice(values, (1000, len(values))), axis=1)


def reading(tables: Tables) -> str:
    """Whether the default is as good as the authors' fits, and what refinement changes."""
    table = tables["median_errors"]
    if "default_over_the_authors" not in tables:
        return "The authors' protocol alone."
    ratios = tables["default_over_the_authors"]
    said = [
        f"{name} {own['ratio'].min():.2f} to {own['ratio'].max():.2f}"
        for name, own in ratios.groupby("error", sort=False)
    ]
    words = (
        "The default fit starts from the data alone, the authors' from the truth and some noise. "
        "Its median errors, as multiples of theirs over the settings: "
        f"{', '.join(said)}."
    )
    z = (ratios["ratio"] - 1.0) / ratios["standard error"]
    worst = ratios.loc[z.idxmax()]
    words += (
        f" Of the {len(ratios)} ratios {int((z > 2).sum())} are above 1 by more than two standard "
        f"errors, {int((z < -2).sum())} below. The largest in standard errors is that of "
        f"{worst['error']} at n={worst['n']}, T={worst['T']}: {worst['ratio']:.2f} with a standard "
        f"error of {worst['standard error']:.2f}."
    )
    if np.isfinite(worst["if all subjects were known"]):
        authors_own = worst["authors'"]
        words += (
            f" Had every subject's own matrix been known, the error would be "
            f"{worst['if all subjects were known']:.4f} in our panels; the authors' is "
            f"{authors_own:.4f}, ours {worst['default']:.4f}. What is left of this error is "
            "which subjects were drawn."
        )
    means = tables.get("loadings", pd.DataFrame(columns=["method", *KEYS]))
    means = means.set_index(["method", *KEYS])
    if ("AVEM", 50, 50, True) not in means.index:
        return words
    a, b = (means.loc[(method, 50, 50, True)] for method in ("AVEM", "default"))
    return words + (
        f" At n=T=50 AVEM alone has a mean variance of the loadings of {a['Sigma_h']:.4f} where "
        f"the true ones vary by {a['variance of true h_i']:.4f}; refined it is {b['Sigma_h']:.4f}, "
        f"and the error of the subjects' loadings falls from {a['h_i']:.3f} to {b['h_i']:.3f}, "
        f"that of the mean loadings from {a['H']:.3f} to {b['H']:.3f}, that of R from "
        f"{a['R']:.4f} to {b['R']:.4f}. No parameter of any fit is other than finite: "
        f"{int(tables['loadings']['not finite'].sum())} of "
        f"{int(table[table['protocol'] == 'converged']['replicates'].sum())} fits, with unstable "
        "subjects scaled back or not."
    )


def boxes(frame: pd.DataFrame) -> Figure:
    """The paper's figure, top: errors in the six settings, and the authors'."""
    shown = frame[frame["stable"]]
    kinds = [(f"{m}, {p}", own) for (p, m), own in shown.groupby(["protocol", "method"])]
    kinds.append(("authors'", reference()))
    figure = Figure(figsize=(3.2 * len(MEASURES), 4.2), layout="constrained")
    for ax, name in zip(figure.subplots(1, len(MEASURES)), MEASURES, strict=True):
        for place, (label, own) in enumerate(kinds):
            values = [own[(own["n"] == n) & (own["T"] == t)][name] for n, t in SIZES]
            at = np.arange(len(SIZES)) + 0.8 * (place + 0.5) / len(kinds) - 0.4
            drawn = ax.boxplot(
                values,
                positions=at,
                widths=0.7 / len(kinds),
                showfliers=False,
                patch_artist=True,
                medianprops={"color": "black"},
            )
            for box in drawn["boxes"]:
                box.set_facecolor(f"C{place}")
            drawn["boxes"][0].set_label(label)
        ax.set_xticks(range(len(SIZES)), [f"{n}\n{t}" for n, t in SIZES])
        ax.set_title(f"RMSE of {name}")
        ax.set_xlabel("n over T")
        ax.set_ylim(bottom=0)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(kinds))
    return figure


def paths(frame: pd.DataFrame) -> Figure | None:
    """The paper's figure, bottom: the anchored bound from the third iteration on."""
    shown = frame[frame["protocol"] == "paper"]
    if shown.empty:
        return None
    figure = Figure(figsize=(14, 3.2), layout="constrained")
    for ax, (n, t) in zip(figure.subplots(1, len(SIZES), sharey=True), SIZES, strict=True):
        for path in shown[(shown["n"] == n) & (shown["T"] == t)]["path"]:
            ax.plot(FIRST + np.arange(len(path)), path, color="C0", alpha=0.25, lw=0.8)
        ax.set_title(f"n={n}, T={t}")
        ax.set_xlabel("iteration")
    figure.axes[0].set_ylabel("(bound - bound at 3) / nT")
    return figure


STUDY = Study(
    "messm",
    "Scenario III: state-space models with 4 outcomes, 2 states and 11 effects per subject, in the "
    "paper's six settings; with unstable subjects scaled back as the authors do, and without.",
    CELLS,
    {"paper": paper, "converged": converged},
    tables,
    quick_cells=(2,),
    quick_reps=2,
    figures={"errors": boxes, "bounds": paths},
    reading=reading,
)
