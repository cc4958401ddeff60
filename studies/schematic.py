"""The paper's two schematic figures, drawn from fits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.polynomial.hermite_e import hermegauss
from scipy.stats import multivariate_normal

import avem
from studies import gaussian, partial
from studies.given import log_likelihoods
from studies.study import Row, Study, Tables

CELLS = (
    {"figure": "anchoring", "panel": "T=10", "T": 10, "t0": 0},
    {"figure": "anchoring", "panel": "T=100", "T": 100, "t0": 0},
    {"figure": "partial", "panel": "concentrates", "T": 200, "t0": 100},
    {"figure": "partial", "panel": "does not concentrate", "T": 200, "t0": 3},
)
NODES, SIDE, REACH = 7, 45, 4.5
"""Nodes per dimension; grid points per side, over so many sd of the posterior on both sides."""


class Subject(NamedTuple):
    """One subject of a fit, and log p(D_i | f) as a function of f."""

    fit: avem.HMMFit
    mean: np.ndarray
    cov: np.ndarray
    loglik: Any


def replicate(cell: Row, seed: int) -> list[Row]:
    """The posterior of the first subject on a grid, its q, and the prior, of one fit."""
    who = _anchored(cell, seed) if cell["figure"] == "anchoring" else _partial(cell, seed)
    prior = who.fit.params["effect_covariance"]
    low, high = _range(who, prior)
    grid = np.stack(np.meshgrid(*np.linspace(low, high, SIDE).T, indexing="ij"), -1)
    points = grid.reshape(-1, 2)
    log_post = who.loglik(points) + multivariate_normal([0, 0], prior).logpdf(points)
    weight = np.exp(log_post - log_post.max())
    weight /= weight.sum()
    middle = weight @ points
    spread = (points - middle).T * weight @ (points - middle)
    return [
        {
            "low": low.tolist(),
            "high": high.tolist(),
            "density": weight.reshape(SIDE, SIDE).round(9).tolist(),
            "posterior_mean": middle.tolist(),
            "posterior_cov": spread.tolist(),
            "q_mean": who.mean.tolist(),
            "q_cov": who.cov.tolist(),
            "prior_cov": prior.tolist(),
            "shares": _node_shares(who, prior).tolist(),
        }
    ]


def _range(who: Subject, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The box that holds the posterior: where a coarse grid over the prior finds it."""
    sd = np.sqrt(np.diagonal(prior))
    low, high = -4 * sd, 4 * sd
    for _ in range(3):
        axes = np.linspace(low, high, 25).T
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        height = who.loglik(points) + multivariate_normal([0, 0], prior).logpdf(points)
        weight = np.exp(height - height.max())
        weight /= weight.sum()
        middle = weight @ points
        step = (high - low) / 24
        sd = np.sqrt(weight @ (points - middle) ** 2 + step**2 / 4)
        low, high = middle - REACH * sd, middle + REACH * sd
    return low, high


def _node_shares(who: Subject, prior: np.ndarray) -> np.ndarray:
    """The weight of every node of the prior after seeing the subject's data."""
    points, weights = prior_nodes(prior)
    height = np.log(weights) + who.loglik(points)
    share = np.exp(height - height.max())
    return share / share.sum()


def prior_nodes(prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(49, 2) Gauss-Hermite nodes of the prior, and their weights."""
    x, w = hermegauss(NODES)
    pairs = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    return pairs @ np.linalg.cholesky(prior).T, np.outer(w, w).ravel() / w.sum() ** 2


def _anchored(cell: Row, seed: int) -> Subject:
    """Scenario I with K=2, d=2; AVEM alone."""
    data = gaussian.simulate(2, 2, 40, cell["T"], 1.0, seed)
    fit = data.model.fit(data.panel, refine=None)
    y = data.panel.table[["y1", "y2"]].to_numpy(float)[: cell["T"]]

    def loglik(points: np.ndarray) -> np.ndarray:
        shape = (len(points), *y.shape)
        return log_likelihoods(
            fit, np.broadcast_to(y, shape), np.broadcast_to(points[:, None], shape)
        )

    return Subject(fit, fit.effects_mean[0], fit.effects_cov[0], loglik)


def _partial(cell: Row, seed: int) -> Subject:
    """Appendix C: a global effect and one on the first t0 steps; partial anchoring."""
    model, panel, _, _ = partial.setting(1.5, cell["t0"], cell["T"], seed)
    fit = model.fit(panel, method=avem.Partial(partial.early_effect(cell["t0"])))
    y = panel.table["y"].to_numpy(float)[: cell["T"]]
    early = np.arange(cell["T"]) < cell["t0"]

    def loglik(points: np.ndarray) -> np.ndarray:
        level = points[:, :1] + points[:, 1:] * early
        return log_likelihoods(fit, np.broadcast_to(y, level.shape)[..., None], level[..., None])

    return Subject(fit, fit.effects_mean[0], fit.effects_cov[0], loglik)


def tables(frame: pd.DataFrame) -> Tables:
    """Per panel: how wide the posterior and q are, and how many nodes of the prior matter."""
    rows = []
    for _, own in frame.iterrows():
        sd = [np.sqrt(np.diagonal(own[n])) for n in ("prior_cov", "posterior_cov", "q_cov")]
        shares = np.array(own["shares"])
        apart = np.abs(np.array(own["q_mean"]) - own["posterior_mean"]) / sd[1]
        rows.append(
            {
                "figure": own["figure"],
                "panel": own["panel"],
                **{
                    f"{name}, f{j + 1}": values[j]
                    for name, values in zip(("prior sd", "posterior sd", "q sd"), sd, strict=True)
                    for j in range(2)
                },
                "q mean off by, in sd": apart.max(),
                f"nodes of {NODES**2} that matter": 1 / np.sum(shares**2),
            }
        )
    return {"one_subject": pd.DataFrame(rows)}


def _draw(frame: pd.DataFrame, which: str) -> Figure | None:
    own = frame[(frame["figure"] == which) & (frame["replicate"] == 0)]
    if own.empty:
        return None
    drawn = Figure(figsize=(4.6 * len(own), 4.6), layout="constrained")
    for ax, (_, row) in zip(
        drawn.subplots(1, len(own), squeeze=False)[0], own.iterrows(), strict=True
    ):
        prior, q_mean = np.array(row["prior_cov"]), np.array(row["q_mean"])
        axes = np.linspace(row["low"], row["high"], SIDE).T
        density = np.array(row["density"]).T
        ax.contourf(
            *axes, density, levels=density.max() * np.array([0.05, 0.3, 0.6, 1]), cmap="Reds"
        )
        reach = 4.1 * np.sqrt(np.diagonal(prior))
        ax.add_patch(_ellipse(np.zeros(2), prior, ls="--", color="0.4", label="prior"))
        ax.add_patch(_ellipse(q_mean, np.array(row["q_cov"]), ls=":", color="C2", lw=2, label="q"))
        if which == "anchoring":
            points, weights = prior_nodes(prior)
            ax.scatter(*points.T, s=3 + 300 * weights, c="k", label=f"{NODES} x {NODES} nodes")
            ax.plot(*q_mean, "+", c="C2", ms=10, label="anchor")
        else:
            x, w = hermegauss(9)
            sd = np.sqrt(np.array(row["q_cov"])[1, 1])
            ax.axvline(q_mean[0], c="C0", lw=0.8, label="anchor of f(a)")
            ax.scatter(
                np.full(9, q_mean[0]),
                q_mean[1] + sd * x,
                s=2 + 25 * w / w.max(),
                c="k",
                zorder=3,
                label="nodes of f(b)",
            )
        ax.set(xlim=(-reach[0], reach[0]), ylim=(-reach[1], reach[1]), title=row["panel"])
        names = ("f1", "f2") if which == "anchoring" else ("f(a)", "f(b)")
        ax.set(xlabel=names[0], ylabel=names[1])
    ax.legend(fontsize=8, loc="upper left")
    return drawn


def _ellipse(middle: np.ndarray, cov: np.ndarray, **style: Any) -> Ellipse:
    """Two standard deviations around the middle."""
    values, vectors = np.linalg.eigh(cov)
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    width, height = 4 * np.sqrt(values[1]), 4 * np.sqrt(values[0])
    return Ellipse(tuple(middle), width, height, angle=angle, fill=False, **style)


def reading(tables: Tables) -> str:
    """What the pictures show, in numbers."""
    parts = []
    matter = f"nodes of {NODES**2} that matter"
    for _, row in tables["one_subject"].iterrows():
        parts.append(
            f"- {row['figure']}, {row['panel']}: the posterior's sd are "
            f"{row['posterior sd, f1']:.2f} and {row['posterior sd, f2']:.2f}, q's "
            f"{row['q sd, f1']:.2f} and {row['q sd, f2']:.2f}; of {NODES**2} nodes of the prior "
            f"{row[matter]:.1f} matter."
        )
    return (
        "One subject of one fit per panel. Red: its posterior; dotted: q; dashed: the prior; "
        "ellipses at two standard deviations; dots: nodes, as large as their weights. The number "
        "of nodes that matter is 1 / sum of squared posterior weights.\n\n" + "\n".join(parts)
    )


STUDY = Study(
    "schematic",
    "The paper's two schematic figures from fits: AVEM beside quadrature with nodes of the prior, "
    "for short and long sequences (K=2, d=2); partial anchoring where the localized effect acts on "
    "many steps, and where on few.",
    CELLS,
    {"converged": replicate},
    tables,
    reps={"converged": 1},
    quick_cells=(0, 1, 2, 3),
    quick_reps=1,
    figures={
        "anchoring": lambda frame: _draw(frame, "anchoring"),
        "partial": lambda frame: _draw(frame, "partial"),
    },
    reading=reading,
)
