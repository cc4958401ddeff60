"""Is the default the maximum of the likelihood? Beside an exact one, on settings that are hard.

The exact log likelihood is written here once more, by the forward recursion at the points of a grid
for the effects, and maximised by BFGS from several starts, the truth among them.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.optimize import minimize

import avem
from studies.study import Row, Study, Tables

KEYS = ["setting"]
LINE = np.linspace(-6.0, 6.0, 81)[:, None]
SQUARE = np.stack(np.meshgrid(*2 * [np.linspace(-5.0, 5.0, 21)]), -1).reshape(-1, 2)
SPIKE = 0.05
"""A standard deviation below this is that of a single value, whose likelihood has no bound."""


class Setting(NamedTuple):
    """What panels are drawn from: log odds or Gaussian means, and what the effects act on."""

    means: tuple[float, ...]
    stay: float
    n: int
    n_times: int
    variance: float = 1.0
    gaussian: bool = True
    on_moves: bool = False

    @property
    def k(self) -> int:
        return len(self.means)

    @property
    def grid(self) -> np.ndarray:
        """(points, effects) in standard deviations."""
        return SQUARE if self.on_moves else LINE

    @property
    def model(self) -> avem.MixedHMM:
        if self.on_moves:
            moves = "~ 1 + (1 | subject)"
            return avem.MixedHMM("y ~ 1", self.k, transition=moves, effect_covariance="diagonal")
        family = "gaussian" if self.gaussian else "bernoulli"
        return avem.MixedHMM("y ~ 1 + (1 | subject)", self.k, family)

    @property
    def truth(self) -> dict:
        """Parameters as the model has them."""
        k = self.k
        moves = np.full((k, k), (1 - self.stay) / max(k - 1, 1))
        np.fill_diagonal(moves, self.stay)
        found = {"initial": np.full(k, 1 / k), "coef": np.reshape(self.means, (k, 1, 1))}
        found["effect_covariance"] = self.variance * np.eye(self.grid.shape[1])
        if self.gaussian:
            found["variance"] = np.ones((k, 1))
        if self.on_moves:
            found["transition_coef"] = np.log(moves / self.stay)[:, :, None]
        else:
            found["transition"] = moves
        return found


SETTINGS = {
    "means +-0.7, staying 0.6": Setting((-0.7, 0.7), 0.6, 60, 50),
    "means +-0.5, staying 0.7": Setting((-0.5, 0.5), 0.7, 60, 50),
    "means +-0.5, staying 0.9": Setting((-0.5, 0.5), 0.9, 60, 20),
    "means -1.25, 0, 1.25, staying 0.8": Setting((-1.25, 0.0, 1.25), 0.8, 60, 50),
    "means -1, 0, 1, staying 0.8": Setting((-1.0, 0.0, 1.0), 0.8, 60, 50),
    "one Bernoulli state": Setting((0.3,), 1.0, 150, 5, 1.5, gaussian=False),
    "log odds +-4.2": Setting((-4.2, 4.2), 0.9, 100, 60, 3.8, gaussian=False),
    "effects on moves": Setting((-3.0, 3.0), 0.8, 60, 25, on_moves=True),
}
CELLS = tuple({"setting": name} for name in SETTINGS)


def replicate(cell: Row, seed: int) -> list[Row]:
    """The default, AVEM alone and the exact maximum on one panel."""
    setting = SETTINGS[cell["setting"]]
    made = setting.model.simulate(setting.truth, setting.n, setting.n_times, seed=seed)
    fits, seconds = {}, {}
    for name, options in {"default": {}, "AVEM": {"refine": None}}.items():
        began = time.process_time()
        fits[name] = setting.model.fit(made.frame, time="time", **options)
        seconds[name] = time.process_time() - began
    y = made.frame["y"].to_numpy(float).reshape(setting.n, setting.n_times).T
    rng = np.random.default_rng(seed)
    first = [_packed(setting.truth, setting), _packed(fits["default"].params, setting)]
    starts = [*first, *(first[0] + 0.7 * rng.standard_normal(len(first[0])) for _ in range(3))]
    best, variance = max((_maximum(start, y, setting) for start in starts), key=lambda b: b[0])
    rows: list[Row] = []
    for name, fit in fits.items():
        exact = _height(_packed(fit.params, setting), y, setting)
        ratio = np.diag(fit.params["effect_covariance"]) / variance
        rows.append(
            {
                "method": name,
                "below": best - exact,
                "said - exact": float(fit.loglik()) - exact,
                "stated error": fit.loglik().error,
                "variance ratio": float(ratio[np.abs(np.log(np.maximum(ratio, 1e-9))).argmax()]),
                "told": bool(fit.info.notes),
                "seconds": seconds[name],
            }
        )
    return rows


# --- the likelihood, independently --------------------------------------------------------------


def _packed(params: dict, setting: Setting) -> np.ndarray:
    """Free parameters: means, log sds, log variances of the effects, log odds of the chain."""
    parts = [np.ravel(params["coef"])]
    if setting.gaussian:
        parts.append(0.5 * np.log(np.ravel(params["variance"])))
    parts.append(np.log(np.maximum(np.diag(params["effect_covariance"]), 1e-8)))
    initial = np.log(np.maximum(params["initial"], 1e-6))
    parts.append(initial[1:] - initial[0])
    if setting.on_moves:
        odds = np.asarray(params["transition_coef"])[:, :, 0]
    else:
        odds = np.log(np.maximum(params["transition"], 1e-6))
    parts += [np.delete(row - row[k], k) for k, row in enumerate(odds)]
    return np.concatenate(parts)


@partial(jax.jit, static_argnames=("setting",))
def _loglik(v: jax.Array, y: jax.Array, setting: Setting) -> jax.Array:
    k, grid = setting.k, jnp.asarray(setting.grid)
    sizes = (k, k if setting.gaussian else 0, grid.shape[1], k - 1)
    mean, log_sd, spread, first, rest = jnp.split(v, np.cumsum(sizes))
    initial = jax.nn.log_softmax(jnp.concatenate([jnp.zeros(1), first]))
    odds = rest.reshape(k, k - 1)
    rows = jnp.stack([jnp.insert(odds[i], i, 0.0) for i in range(k)])[:, :, None]
    effects = jnp.exp(0.5 * spread)[:, None] * grid.T
    if setting.on_moves:  # one effect for each of the two moves
        rows = rows + (1 - jnp.eye(k))[:, :, None] * effects[:, None]
        level = mean[:, None]
    else:
        level = mean[:, None] + effects
    moves = jax.nn.log_softmax(rows, axis=1)  # (from, to, point)

    def density(now: jax.Array) -> jax.Array:  # (subject, state, point)
        value = now[:, None, None]
        if not setting.gaussian:
            return value * level - jnp.logaddexp(0.0, level)
        scale = log_sd[None, :, None]
        return -0.5 * ((value - level) * jnp.exp(-scale)) ** 2 - scale - 0.5 * np.log(2 * np.pi)

    def step(before: jax.Array, now: jax.Array) -> tuple[jax.Array, None]:
        joint = before[:, :, None] + moves[None]
        return jax.nn.logsumexp(joint, axis=1) + density(now), None

    begin = initial[None, :, None] + density(y[0]) + jnp.zeros(len(grid))
    last, _ = jax.lax.scan(step, begin, y[1:])
    weights = jax.nn.log_softmax(-0.5 * (grid**2).sum(1))
    return jax.nn.logsumexp(jax.nn.logsumexp(last, axis=1) + weights, axis=1).sum()


_slope = jax.jit(jax.value_and_grad(_loglik), static_argnames=("setting",))


def _height(v: np.ndarray, y: np.ndarray, setting: Setting) -> float:
    with jax.enable_x64(True):
        return float(_loglik(jnp.asarray(v), jnp.asarray(y), setting))


def _maximum(start: np.ndarray, y: np.ndarray, setting: Setting) -> tuple[float, np.ndarray]:
    """The height, and the effects' variances; -inf where a state closes in on one value."""

    def down(v: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            value, slope = _slope(jnp.asarray(v), jnp.asarray(y), setting)
            return -float(value), -np.asarray(slope)

    found = minimize(down, start, jac=True, method="BFGS", options={"gtol": 1e-4})
    of_sds, of_effects = np.split(found.x[setting.k :], [setting.k if setting.gaussian else 0])
    spike = setting.gaussian and np.exp(of_sds).min() < SPIKE
    return -np.inf if spike else -float(found.fun), np.exp(of_effects[: setting.grid.shape[1]])


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
    "independently (points of a grid, BFGS from the truth and four other starts): states that "
    "overlap, few rows of a Bernoulli outcome, posteriors that are skewed, effects on moves.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 20},
    quick_reps=2,
    reading=reading,
)
