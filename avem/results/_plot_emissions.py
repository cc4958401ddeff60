"""Effects of subjects, and what the states emit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from avem.results._figures import DARK, GREY, OKABE_ITO, plain, state_colors
from avem.results._plot_states import row_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from avem.results.hmm_fit import HMMFit

LABELLED, _SEPARATE = 60, 2000
"""Up to how many subjects are named, and have an interval of their own."""


def draw_effect(ax: Axes, table: pd.DataFrame, name: str) -> None:
    """A caterpillar: rows of `table` are subjects in order of their mean."""
    n = len(table)
    place = np.arange(n)
    mean, lower, upper = (table[column].to_numpy() for column in ("mean", "lower", "upper"))
    color = OKABE_ITO[0]
    ax.axvline(0, color=GREY, lw=0.8, zorder=0)
    if n > _SEPARATE:
        ax.fill_betweenx(place, lower, upper, color=color, alpha=0.3, lw=0)
        ax.plot(mean, place, color=DARK, lw=1.2)
    else:
        room = 280 / n  # points for each subject
        ax.hlines(place, lower, upper, color=color, lw=np.clip(room / 2, 0.3, 1.4), alpha=0.7)
        ax.plot(mean, place, "o", color=DARK, mec="none", ms=np.clip(room, 0.9, 4))
    if n <= LABELLED:
        ax.set_yticks(place, [plain(label) for label in table.iloc[:, 0]], fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} subjects, sorted")
    ax.set_ylim(-0.7, n - 0.3)
    ax.set_title(plain(name, 40), fontsize="medium")


class _Emissions(NamedTuple):
    """The states' densities at average covariates, and the data brought there."""

    y: np.ndarray | None
    """(rows, outcomes); None for a fit without its data."""
    weight: np.ndarray
    """(states,) occupancy."""
    mean: np.ndarray
    sd: np.ndarray
    """(states, outcomes) of noise and effects together."""
    where: str


def occupancy(fit: HMMFit) -> np.ndarray:
    """(states,) share of the rows in each state; without data, that of the chain in the end."""
    states = range(fit.model.n_states)
    if fit.panel is not None:
        table = fit.state_probabilities()
        return np.array([np.asarray(table[f"state_{k}"]).mean() for k in states])
    # Staying put every second step changes no long-run share, but ends any cycling.
    lazy = (fit.params["transition"] + np.eye(len(states))) / 2
    share = fit.params["initial"] @ np.linalg.matrix_power(lazy, 1 << 20)
    return share / share.sum()


def emission_view(fit: HMMFit) -> _Emissions:
    design, params, family = fit.model.design, fit.params, fit.model.family
    is_constant = np.array([name == "Intercept" for name in design.columns], bool)
    y, at, where = None, is_constant.astype(float), " at covariates 0"
    if fit.panel is not None:
        data = design.apply(fit.panel)
        at, where = data.A[~np.isnan(data.Y).all(1)].mean(0), " at average covariates"
        state = np.asarray(fit.decode())
        y = data.Y - row_means(fit, data.A - at, state, fit.panel.row_subject)
    x, z, p = at[list(design.x_cols)], at[list(design.z_cols)], len(design.outcomes)
    block = params["effect_covariance"].reshape(p, len(z), p, len(z))
    between = np.einsum("a,jajb,b->j", z, block, z)
    noise = family.noise_from_params(params[family.noise_name], p)
    sd = np.sqrt(np.diagonal(noise, axis1=1, axis2=2) + between)
    where = "" if is_constant.all() else where
    return _Emissions(y, occupancy(fit), params["coef"] @ x, sd, where)


def draw_emission(ax: Axes, view: _Emissions, j: int, name: str) -> None:
    mean, sd = view.mean[:, j], view.sd[:, j]
    low, high = (mean - 4 * sd).min(), (mean + 4 * sd).max()
    label = plain(name, 40) + view.where
    if view.y is not None:
        y = view.y[~np.isnan(view.y[:, j]), j]
        # A single wild value must not squeeze everything else into one bar.
        low, high = np.quantile(y, [0.001, 0.999])
        low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
        beyond = int(((y < low) | (y > high)).sum())
        label += f" ({beyond:,} of {len(y):,} lie beyond)" if beyond else ""
        bins = int(np.clip(2 * len(y) ** (1 / 3), 10, 80))
        share = np.full(len(y), bins / (high - low) / len(y))
        ax.hist(y, bins, range=(low, high), weights=share, color="#d0d0d0", label="data")
    grid = np.linspace(low, high, 600)
    density = view.weight[:, None] * _normal(grid, mean[:, None], sd[:, None])
    for k, color in enumerate(state_colors(len(mean))):
        ax.plot(grid, density[k], color=color, lw=2, label=f"state {k} ({view.weight[k]:.0%})")
    ax.plot(grid, density.sum(0), color=DARK, lw=1, ls="--", label="all states")
    ax.set(xlabel=label, ylabel="density", xlim=(low, high), ylim=(0, None))


def _normal(x: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
