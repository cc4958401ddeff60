"""Is the default the maximum of the likelihood? Beside an exact one, on settings that are hard.

The exact log likelihood is written here once more, by the forward recursion at 81 points of a grid
for the effect, and maximised by BFGS from several starts, the truth among them.
"""

from __future__ import annotations

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import minimize

import avem
from studies.study import Row, Study, Tables

KEYS = ["setting"]
GRID = np.linspace(-6.0, 6.0, 81)
SPIKE = 0.05
"""A standard deviation below this is that of a single value, whose likelihood has no bound."""
SETTINGS: dict[str, dict] = {
    "means +-0.7, staying 0.6": {"mean": 0.7, "stay": 0.6, "n": 60, "T": 50},
    "means +-0.5, staying 0.7": {"mean": 0.5, "stay": 0.7, "n": 60, "T": 50},
    "means +-0.5, staying 0.9": {"mean": 0.5, "stay": 0.9, "n": 60, "T": 20},
    "one Bernoulli state": {"mean": None, "n": 150, "T": 5, "variance": 1.5},
    "log odds +-4.2": {"mean": 4.2, "stay": 0.9, "n": 100, "T": 60, "variance": 3.8},
}
CELLS = tuple({"setting": name} for name in SETTINGS)


def replicate(cell: Row, seed: int) -> list[Row]:
    """The default, AVEM alone and the exact maximum on one panel."""
    setting = SETTINGS[cell["setting"]]
    gaussian = "variance" not in setting
    model = avem.MixedHMM(
        "y ~ 1 + (1 | subject)",
        1 if setting["mean"] is None else 2,
        "gaussian" if gaussian else "bernoulli",
    )
    truth = _truth(setting)
    made = model.simulate(truth, setting["n"], setting["T"], seed=seed)
    fits, seconds = {}, {}
    for name, options in {"default": {}, "AVEM": {"refine": None}}.items():
        began = time.process_time()
        fits[name] = model.fit(made.frame, time="time", **options)
        seconds[name] = time.process_time() - began
    y = made.frame["y"].to_numpy(float).reshape(setting["n"], setting["T"]).T
    rng = np.random.default_rng(seed)
    first = [_packed(truth, gaussian), _packed(fits["default"].params, gaussian)]
    starts = [*first, *(first[0] + 0.7 * rng.standard_normal(len(first[0])) for _ in range(3))]
    best, variance = max((_maximum(start, y, gaussian) for start in starts), key=lambda b: b[0])
    return [
        {
            "method": name,
            "below": best - _height(_packed(fit.params, gaussian), y, gaussian),
            "said - exact": float(fit.loglik())
            - _height(_packed(fit.params, gaussian), y, gaussian),
            "stated error": fit.loglik().error,
            "variance ratio": float(fit.params["effect_covariance"][0, 0]) / variance,
            "told": bool(fit.info.notes),
            "seconds": seconds[name],
        }
        for name, fit in fits.items()
    ]


def _truth(setting: dict) -> dict:
    if setting["mean"] is None:
        coef, moves = [[[0.3]]], [[1.0]]
    else:
        coef = [[[-setting["mean"]]], [[setting["mean"]]]]
        stay = setting["stay"]
        moves = [[stay, 1 - stay], [1 - stay, stay]]
    n_states = len(coef)
    truth = {
        "initial": np.full(n_states, 1 / n_states),
        "transition": np.array(moves),
        "coef": np.array(coef),
        "effect_covariance": np.array([[setting.get("variance", 1.0)]]),
    }
    return truth if "variance" in setting else truth | {"variance": np.ones((n_states, 1))}


# --- the likelihood, independently --------------------------------------------------------------


def _packed(params: dict, gaussian: bool) -> np.ndarray:
    """Free parameters: means, log sds, log variance of the effect, log odds of the chain."""
    parts = [np.ravel(params["coef"])]
    if gaussian:
        parts.append(0.5 * np.log(np.ravel(params["variance"])))
    parts.append(np.log(np.maximum(np.ravel(params["effect_covariance"]), 1e-8)))
    initial, moves = (np.log(np.maximum(params[key], 1e-6)) for key in ("initial", "transition"))
    parts.append(initial[1:] - initial[0])
    parts += [np.delete(row - row[k], k) for k, row in enumerate(moves)]
    return np.concatenate(parts)


@partial(jax.jit, static_argnames=("n_states", "gaussian"))
def _loglik(v: jax.Array, y: jax.Array, n_states: int, gaussian: bool) -> jax.Array:
    mean, rest = v[:n_states], v[n_states:]
    log_sd, rest = (rest[:n_states], rest[n_states:]) if gaussian else (None, rest)
    spread, rest = rest[0], rest[1:]
    initial = jax.nn.log_softmax(jnp.concatenate([jnp.zeros(1), rest[: n_states - 1]]))
    odds = rest[n_states - 1 :].reshape(n_states, n_states - 1)
    rows = jnp.stack([jnp.insert(odds[k], k, 0.0) for k in range(n_states)])
    moves = jax.nn.log_softmax(rows, axis=1)
    level = mean[:, None] + jnp.exp(0.5 * spread) * jnp.asarray(GRID)[None]

    def density(now: jax.Array) -> jax.Array:  # (subject, state, point)
        value = now[:, None, None]
        if log_sd is None:
            return value * level - jnp.logaddexp(0.0, level)
        scale = log_sd[None, :, None]
        return -0.5 * ((value - level) * jnp.exp(-scale)) ** 2 - scale - 0.5 * np.log(2 * np.pi)

    def step(before: jax.Array, now: jax.Array) -> tuple[jax.Array, None]:
        joint = before[:, :, None] + moves[None, :, :, None]
        return jax.nn.logsumexp(joint, axis=1) + density(now), None

    last, _ = jax.lax.scan(step, initial[None, :, None] + density(y[0]), y[1:])
    weights = jax.nn.log_softmax(-0.5 * jnp.asarray(GRID) ** 2)
    return jax.nn.logsumexp(jax.nn.logsumexp(last, axis=1) + weights, axis=1).sum()


_slope = jax.jit(jax.value_and_grad(_loglik), static_argnames=("n_states", "gaussian"))


def _n_states(v: np.ndarray) -> int:
    return 1 if len(v) <= 3 else 2


def _height(v: np.ndarray, y: np.ndarray, gaussian: bool) -> float:
    with jax.enable_x64(True):
        return float(_loglik(jnp.asarray(v), jnp.asarray(y), _n_states(v), gaussian))


def _maximum(start: np.ndarray, y: np.ndarray, gaussian: bool) -> tuple[float, float]:
    """The height, and the effect's variance there; -inf where a state closes in on one value."""
    k = _n_states(start)

    def down(v: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            value, slope = _slope(jnp.asarray(v), jnp.asarray(y), k, gaussian)
            return -float(value), -np.asarray(slope)

    found = minimize(down, start, jac=True, method="BFGS", options={"gtol": 1e-4})
    log_sd = found.x[k : 2 * k] if gaussian else np.zeros(1)
    height = -np.inf if np.exp(log_sd).min() < SPIKE else -float(found.fun)
    return height, float(np.exp(found.x[2 * k if gaussian else k]))


# --- what it says -------------------------------------------------------------------------------


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """How often and how far each is below the maximum, and what it says itself."""
    rows = []
    for setting in SETTINGS:
        for method in ("default", "AVEM"):
            own = frame[(frame["setting"] == setting) & (frame["method"] == method)]
            if not len(own):
                continue
            low = own["below"] > 0.5
            rows.append(
                {
                    "setting": setting,
                    "method": method,
                    "panels": len(own),
                    "more than 0.5 below": int(low.sum()),
                    "of these told": int((low & own["told"].astype(bool)).sum()),
                    "most below": own["below"].max(),
                    "least variance ratio": own["variance ratio"].min(),
                    "largest variance ratio": own["variance ratio"].max(),
                    "likelihood off by": own["said - exact"].abs().max(),
                }
            )
    return {"below": pd.DataFrame(rows)}


def reading(tables: Tables) -> str:
    """How often the default and AVEM alone miss the maximum."""
    table = tables["below"].groupby("method")[["panels", "more than 0.5 below"]].sum()
    default, alone = table.loc["default"], table.loc["AVEM"]
    return (
        f"The default is more than 0.5 log units below the best known solution in "
        f"{default['more than 0.5 below']} of {default['panels']} panels, AVEM alone in "
        f"{alone['more than 0.5 below']}."
    )


STUDY = Study(
    "default",
    "What fit() gives without options, beside the maximum of an exact likelihood that is written "
    "independently (81 points of a grid, BFGS from the truth and four other starts): states that "
    "overlap, few rows of a Bernoulli outcome, posteriors that are skewed.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 20},
    quick_reps=2,
    reading=reading,
)
