"""An HMM fitted to data whose stays are not those of a chain: dwell times, BIC, held-out score."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies.study import Row, Study, Tables

N, TIMES, STAYS = 20, 200, np.array([12.0, 6.0])
SIZES: dict[str, float] = {"as in a chain": 1.0, "less varied": 4.0, "nearly fixed": 50.0}
"""Of the negative binomial number of further steps: its variance is m + m^2 / size."""
MEANS = {"apart": 1.5, "overlapping": 0.7}
CELLS = tuple({"stays": stays, "states": states} for states in MEANS for stays in SIZES)
MODELS = {"HMM": None, "negative binomial": avem.Duration("negative_binomial", max=80)}


def replicate(cell: Row, seed: int) -> list[Row]:
    """One panel and its twin of new subjects: both models' dwell times, BIC, score, states."""
    mean, size = MEANS[cell["states"]], SIZES[cell["stays"]]
    truth = {
        "initial": np.array([0.5, 0.5]),
        "transition": np.array([[0.0, 1.0], [1.0, 0.0]]),
        "duration_coef": np.log(STAYS - 1.0)[:, None],
        "duration_shape": np.full(2, size),
        "coef": np.array([[[-mean]], [[mean]]]),
        "variance": np.ones((2, 1)),
    }
    drawing = avem.MixedHMM("y ~ 1", 2, duration=avem.Duration("negative_binomial", max=80))
    made, held_out = (drawing.simulate(truth, N, TIMES, seed=s) for s in (seed, seed + 2**31))
    rows: list[Row] = []
    for name, duration in MODELS.items():
        fit = avem.MixedHMM("y ~ 1", 2, duration=duration).fit(
            made.frame, subject="subject", time="time", n_starts=2
        )
        dwell = fit.dwell(level=None)["expected"].to_numpy(float)
        right = np.asarray(fit.decode()) == made.states
        found = fit.params
        rows.append(
            {
                "method": name,
                "bic": fit.bic(),
                "score": float(fit.loglik(held_out.frame)) / len(held_out.frame),
                "dwell": float(np.mean(dwell / STAYS)),
                "short": _short_stays(fit),
                "true_short": _share(STAYS, np.full(2, size)),
                "coef": float(np.sqrt(np.mean((found["coef"][:, 0, 0] - [-mean, mean]) ** 2))),
                "decoded": float(right.mean()),
            }
        )
    return rows


SHORT = 2
"""Steps up to which a stay is short."""


def _share(stays: np.ndarray, sizes: np.ndarray) -> float:
    """Of stays of at most `SHORT` steps, by the negative binomial; averaged over states."""
    chance = sizes / (sizes + stays - 1.0)
    each = np.cumsum([chance**sizes, chance**sizes * sizes * (1.0 - chance)], axis=0)[SHORT - 1]
    return float(each.mean())


def _short_stays(fit: avem.HMMFit) -> float:
    """The share of short stays that the fit believes in."""
    if "duration_shape" not in fit.params:
        return float(np.mean(1.0 - np.diagonal(fit.params["transition"]) ** SHORT))
    stays = 1.0 + np.exp(fit.params["duration_coef"][:, 0])
    return _share(stays, np.ravel(fit.params["duration_shape"]))


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Means of both models, and how often BIC and the held-out score choose the second."""
    keys = ["states", "stays"]
    columns = ["dwell", "short", "true_short", "coef", "decoded"]
    means = frame.groupby([*keys, "method"], sort=False, as_index=False)[columns].mean()
    wide = frame.pivot(index=[*keys, "replicate"], columns="method", values=["bic", "score"])
    first, second = MODELS
    gain = pd.DataFrame(
        {
            "bic": wide[("bic", first)] - wide[("bic", second)],
            "score": wide[("score", second)] - wide[("score", first)],
        }
    )
    groups = gain.groupby(level=keys, sort=False)
    chosen = pd.DataFrame(
        {
            "bic gained": groups["bic"].mean(),
            "chosen by bic": groups["bic"].agg(lambda x: (x > 0).mean()),
            "score gained per row": groups["score"].mean(),
            "se": groups["score"].sem(),
            "better held out": groups["score"].agg(lambda x: (x > 0).mean()),
            "panels": groups.size(),
        }
    ).reset_index()
    return {"means": means, "choice": chosen}


def reading(tables: Tables) -> str:
    """The figures in words."""
    means = tables["means"].set_index(["states", "stays", "method"])
    choice = tables["choice"].set_index(["states", "stays"])
    words = []
    for at, row in choice.iterrows():
        chain = means.loc[(*at, "HMM")]
        other = means.loc[(*at, "negative binomial")]
        states, stays = at
        words.append(
            f"States {states}, stays {stays}: BIC chooses the semi-Markov model in "
            f"{row['chosen by bic']:.0%} of panels, and new subjects' rows are better explained in "
            f"{row['better held out']:.0%}. The chain's mean stays are {chain['dwell']:.2f} of the "
            f"true ones (the other's {other['dwell']:.2f}); it takes {chain['short']:.1%} of stays "
            f"for {SHORT} steps or fewer where {chain['true_short']:.1%} are "
            f"({other['short']:.1%}), and decodes {chain['decoded']:.1%} of rows rightly "
            f"({other['decoded']:.1%})."
        )
    return " ".join(words)


def figure(frame: pd.DataFrame) -> Figure:
    """Short stays as both models have them, beside the truth."""
    drawn = Figure(figsize=(6.5, 3.2), layout="constrained")
    means = tables(frame)["means"]
    axes = np.atleast_1d(drawn.subplots(1, means["states"].nunique(), sharey=True))
    for ax, (states, own) in zip(axes, means.groupby("states", sort=False), strict=True):
        for method, part in own.groupby("method", sort=False):
            ax.plot(part["stays"], part["short"], "o-", label=method)
        true = own.drop_duplicates("stays")
        ax.plot(true["stays"], true["true_short"], "k_", ms=14, label="truth")
        ax.set_title(f"states {states}", fontsize="medium")
        ax.tick_params(axis="x", labelsize=8)
    axes[0].set_ylabel(f"share of stays of at most {SHORT} steps")
    axes[0].legend(fontsize=8)
    return drawn


STUDY = Study(
    "durations",
    "An HMM fitted to data whose stays are not those of a Markov chain: 20 subjects x 200 rows, "
    "two states with mean stays of 12 and 6 rows, negative binomial ones of several variances; "
    "beside the model that made the data. The held-out score is the log likelihood per row of as "
    "many new subjects.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 100},
    quick_reps=1,
    figures={"figure": figure},
    reading=reading,
)
