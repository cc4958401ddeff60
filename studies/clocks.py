"""Effects on stays, rates and drifts: are they found, and not where there are none?"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import avem
from studies.study import Row, Study, Tables

CLOCKS = ("stays", "rates", "drifts")
CELLS = tuple(
    {"clock": clock, "subjects": kind} for clock in CLOCKS for kind in ("differ", "alike")
)
WAYS: dict[str, dict[str, Any]] = {
    "anchored": {"refine": None},
    "exact": {"refine": "adaptive"},
}
ALIKE = 1e-12
"""The variance of effects where there are none."""


class Setting(NamedTuple):
    """A model, what its data are like, and what is looked at."""

    model: Any
    truth: dict[str, Any]
    sd: float
    """Of every effect."""
    location: str
    """The parameter that the effects act on."""
    drawing: dict[str, Any]


def stays() -> Setting:
    """60 subjects x 300 rows, three states with negative binomial stays."""
    duration = avem.Duration("negative_binomial", "~ 1 + (1 | subject)", max=40)
    truth = {
        "initial": np.full(3, 1 / 3),
        "transition": np.array([[0, 0.7, 0.3], [0.5, 0, 0.5], [0.2, 0.8, 0]]),
        "duration_coef": np.log([[4.0], [9.0], [6.0]]),
        "duration_shape": np.array([10.0, 3.0, 30.0]),
        "coef": np.array([-2.0, 0.0, 2.0]).reshape(3, 1, 1),
        "variance": np.full((3, 1), 0.5),
    }
    model = avem.MixedHMM("y ~ 1", 3, duration=duration)
    return Setting(model, truth, 0.3, "duration_coef", {"n_subjects": 60, "n_times": 300})


def rates(seed: int) -> Setting:
    """100 subjects with 5 to 60 rows at irregular times, and a covariate that varies with them."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(5, 61, 100)
    frame = pd.DataFrame({"subject": np.repeat(np.arange(100), rows)})
    frame["time"] = rng.gamma(1.5, 0.4, len(frame)) + 0.05
    frame["time"] = frame.groupby("subject")["time"].cumsum()
    frame["x"] = rng.standard_normal(len(frame))
    truth = {
        "initial": [0.5, 0.5],
        "rate_coef": np.array([[[0, 0], [-0.3, 0.7]], [[-0.3, -0.7], [0, 0]]]),
        "coef": [[[-2.0]], [[2.0]]],
        "variance": [[0.5], [0.5]],
    }
    model = avem.MixedHMM(
        "y ~ 1",
        2,
        transition="~ x + (1 | subject)",
        time_scale="continuous",
        effect_covariance="diagonal",
    )
    return Setting(model, truth, 0.8, "rate_coef", {"data": frame, "time": "time"})


def drifts(seed: int) -> Setting:
    """60 subjects x 40 rows at irregular times, two states and three outcomes."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"subject": np.repeat(np.arange(60), 40)})
    frame["time"] = rng.gamma(1.5, 1 / 1.5, len(frame)) + 0.05
    frame["time"] = frame.groupby("subject")["time"].cumsum()
    truth = {
        "initial_mean": [0.0, 0.0],
        "initial_covariance": np.eye(2),
        "drift_mean": np.array([[-0.5, 0.2], [0.0, -0.3]]),
        "loading_mean": [[1.0, 0.0], [0.5, 1.0], [0.0, 0.8]],
        "coef": np.zeros((3, 1)),
        "noise": [0.2, 0.2, 0.2],
    }
    model = avem.MixedSSM(
        ["y1", "y2", "y3"],
        2,
        subject="subject",
        random="drift",
        time_scale="continuous",
        effect_covariance="diagonal",
    )
    drawing = {"data": frame, "time": "time", "max_radius": 0.97}
    return Setting(model, truth, 0.1, "drift_mean", drawing)


def setting_of(clock: str, seed: int) -> Setting:
    """What a cell's panels are drawn from."""
    return {"stays": lambda _: stays(), "rates": rates, "drifts": drifts}[clock](seed)


def replicate(cell: Row, seed: int) -> list[Row]:
    """One panel by both tiers: every location with its interval, and the effects."""
    setting, differ = setting_of(cell["clock"], seed), cell["subjects"] == "differ"
    linear, truth = cell["clock"] == "drifts", dict(setting.truth)
    d = {"stays": 1, "rates": 2, "drifts": 4}[cell["clock"]]
    variance = setting.sd**2 if differ else ALIKE
    truth["drift_covariance" if linear else "effect_covariance"] = variance * np.eye(d)
    made = setting.model.simulate(truth, **setting.drawing, seed=seed)
    rows: list[Row] = []
    for method, options in WAYS.items():
        began = time.process_time()
        fit = setting.model.fit(made.frame, time="time", **options)
        seconds = time.process_time() - began
        table = fit.standard_errors()
        for _, own in table[table["parameter"] == setting.location].iterrows():
            name, true = _entry(own, setting)
            rows.append(
                {
                    "method": method,
                    "parameter": name,
                    "truth": true,
                    "estimate": float(own["estimate"]),
                    "se": float(own["se"]),
                    "held": float(own["lower"] <= true <= own["upper"]),
                }
            )
        covariance = fit.params["drift_covariance" if linear else "effect_covariance"]
        own, true = np.asarray(fit.effects_mean), np.asarray(made.effects)[:, :d]
        rows.append(
            {
                "method": method,
                "sd": float(np.sqrt(np.diagonal(covariance)).mean()),
                "of_sd": setting.sd if differ else 0.0,
                "correlation": _correlation(own[:, :d], true) if differ else np.nan,
                "loglik": float(fit.loglik()),
                "converged": float(fit.stop.name == "CONVERGED"),
                "fit_seconds": seconds,
            }
        )
    return rows


def _entry(row: pd.Series, setting: Setting) -> tuple[str, float]:
    """Which coefficient a row of standard errors is of, in words, and its true value."""
    true, state = np.asarray(setting.truth[setting.location]), int(row["state"])
    if setting.location == "drift_mean":
        to = int(row["to_state"])
        return f"drift of {to} by {state}", float(true[to, state])
    if setting.location == "duration_coef":
        return f"log further rows, state {state}", float(true[state, 0])
    to, term = int(row["to_state"]), str(row["term"])
    return f"log rate {state} to {to}, {term}", float(true[state, to, int(term == "x")])


def _correlation(found: np.ndarray, true: np.ndarray) -> float:
    """Of subjects' effects with the true ones, on average over effects."""
    pairs = zip(found.T, true.T, strict=True)
    return float(np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs]))


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Locations with their intervals; the effects' spread and correlation; the likelihoods."""
    keys = ["clock", "subjects", "method"]
    located = frame[frame["parameter"].notna()].groupby([*keys, "parameter"], sort=False)
    locations = pd.DataFrame(
        {
            "truth": located["truth"].first(),
            "mean": located["estimate"].mean(),
            "sd of estimates": located["estimate"].std(),
            "mean se": located["se"].mean(),
            "coverage": located["held"].mean(),
            "panels": located.size(),
        }
    ).reset_index()
    rest = frame[frame["parameter"].isna()]
    groups = rest.groupby(keys, sort=False)
    effects = pd.DataFrame(
        {
            "true sd": groups["of_sd"].first(),
            "mean sd": groups["sd"].mean(),
            "largest sd": groups["sd"].max(),
            "correlation": groups["correlation"].mean(),
            "converged": groups["converged"].mean(),
            "panels": groups.size(),
        }
    ).reset_index()
    wide = rest.pivot(index=[*keys[:2], "replicate"], columns="method", values="loglik")
    gained = (wide["exact"] - wide["anchored"]).groupby(level=keys[:2], sort=False)
    likelihood = pd.DataFrame(
        {"gained by the exact tier": gained.mean(), "least": gained.min(), "most": gained.max()}
    ).reset_index()
    return {"locations": locations, "effects": effects, "likelihood": likelihood}


def times(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a fit, by tier."""
    own = frame[frame["parameter"].isna()]
    keys = ["protocol", "clock", "subjects", "method"]
    return own.groupby(keys, sort=False, as_index=False)["fit_seconds"].median()


def reading(tables: Tables) -> str:
    """The figures in words."""
    effects = tables["effects"].set_index(["clock", "subjects", "method"])
    words = []
    for clock in CLOCKS:
        both = [effects.loc[(clock, "differ", method)] for method in WAYS]
        none = [effects.loc[(clock, "alike", method)] for method in WAYS]
        own = tables["locations"].query("clock == @clock and subjects == 'differ'")
        held = own.groupby("method", sort=False)["coverage"].mean()
        bias = ((own["mean"] - own["truth"]).abs()).groupby(own["method"], sort=False).max()
        words.append(
            f"Effects on {clock} with a standard deviation of {both[0]['true sd']:g}: anchored "
            f"{both[0]['mean sd']:.3f}, exact {both[1]['mean sd']:.3f} on average; where subjects "
            f"are alike {none[0]['mean sd']:.3f} and {none[1]['mean sd']:.3f}. Their correlation "
            f"with the true ones is {both[0]['correlation']:.2f} and {both[1]['correlation']:.2f}; "
            f"the furthest mean estimate of a location is {bias['anchored']:.3f} and "
            f"{bias['exact']:.3f} from the truth, and nominal 95% intervals hold it in "
            f"{held['anchored']:.0%} and {held['exact']:.0%}."
        )
    return " ".join(words)


def figure(frame: pd.DataFrame) -> Figure:
    """Standard deviations of effects, panel by panel, by both tiers; the line is the truth."""
    drawn = Figure(figsize=(8.0, 3.0), layout="constrained")
    rest = frame[frame["parameter"].isna()]
    clocks = list(dict.fromkeys(rest["clock"]))
    axes = np.atleast_1d(drawn.subplots(1, len(clocks)))
    for ax, clock in zip(axes, clocks, strict=True):
        own = rest[rest["clock"] == clock]
        places = [(s, m) for s in ("differ", "alike") for m in WAYS]
        for x, (subjects, method) in enumerate(places):
            some = own[(own["subjects"] == subjects) & (own["method"] == method)]
            ax.plot(np.full(len(some), x), some["sd"], "o", ms=4, alpha=0.6)
            if len(some):
                ax.hlines(some["of_sd"].iloc[0], x - 0.35, x + 0.35, color="k", lw=1)
        ax.set_xticks(range(4), [f"{s}\n{m}" for s, m in places], fontsize=7)
        ax.set_title(f"effects on {clock}", fontsize="medium")
    axes[0].set_ylabel("standard deviation found")
    return drawn


STUDY = Study(
    "clocks",
    "Effects of the subject on how long stays last (60 subjects x 300 rows, three states), on the "
    "rates of moves in continuous time (100 subjects with 5 to 60 rows at irregular times) and on "
    "the drift of states that are quantities (60 subjects x 40 irregular rows): what the anchored "
    "and the exact tier find from the data alone, and what they find where subjects are alike.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 10},
    quick_reps=1,
    times=times,
    figures={"figure": figure},
    reading=reading,
)
