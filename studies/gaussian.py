"""The paper's Scenario I: Gaussian mixed HMMs, simulated, fitted by both protocols, and scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

import avem
from studies.compare import spread
from studies.fits import Timed, converged, timed
from studies.study import Row, Tables

ERRORS = ("mu_rmse", "sigma2_rmse", "gamma_abs", "f_mse", "tau2_abs", "state_acc")
"""The authors' measures, under the names of their tables."""
METHODS = ("default", "AVEM alone", "exact")
"""Of the converged protocol."""


class Data(NamedTuple):
    """Simulated data, and the truth behind them."""

    model: avem.MixedHMM
    panel: avem.Panel
    truth: dict[str, np.ndarray]
    states: np.ndarray
    effects: np.ndarray


def simulate(K: int, d: int, n: int, T: int, tau2: float, seed: int) -> Data:
    """A data set of Section 6.1."""
    outcomes = " + ".join(f"y{j + 1}" for j in range(d))
    model = avem.MixedHMM(
        f"{outcomes} ~ 1 + (1 | subject)",
        K,
        avem.Gaussian("spherical"),
        effect_covariance="isotropic",
    )
    truth = _params(K, d, level=1.5, variance=1.0, stay=0.92, tau2=tau2)
    made = model.simulate(truth, n, T, seed=seed)
    panel = avem.Panel.from_frame(made.frame, "subject", time="time")
    return Data(model, panel, truth, made.states, made.effects)


def start(K: int, d: int, tau2: float) -> dict[str, np.ndarray]:
    """The authors' start, which knows the order, the centre and the scale of the truth."""
    return _params(K, d, level=0.8, variance=1.2, stay=0.85, tau2=max(0.4, 0.7 * tau2))


def _params(
    K: int, d: int, level: float, variance: float, stay: float, tau2: float
) -> dict[str, np.ndarray]:
    """Means from `level` to -`level` in every dimension, in a symmetric chain."""
    return {
        "initial": np.full(K, 1 / K),
        "transition": np.where(np.eye(K) > 0, stay, (1 - stay) / (K - 1)),
        "coef": np.tile(np.linspace(level, -level, K)[:, None, None], (1, d, 1)),
        "variance": np.full(K, variance),
        "effect_covariance": tau2 * np.eye(d),
    }


def score(found: Timed, data: Data) -> Row:
    """The errors of a fit, its states matched to the true ones by their means."""
    fit, params, truth = found.fit, found.fit.params, data.truth
    mu, true_mu = params["coef"][:, :, 0], truth["coef"][:, :, 0]
    order = linear_sum_assignment(((true_mu[:, None] - mu[None]) ** 2).sum(-1))[1]
    off = mu[order] - true_mu
    states = np.asarray(fit.state_probabilities())[:, order].argmax(1)
    gamma = params["transition"][np.ix_(order, order)]
    tau2 = float(np.diagonal(params["effect_covariance"]).mean())
    return {
        "mu_rmse": _rms(off),
        # The level of all means is confounded with the mean of the sampled effects.
        "contrast_rmse": _rms(off - off.mean(0)),
        "sigma2_rmse": _rms(params["variance"][order] - truth["variance"]),
        "gamma_abs": float(np.abs(gamma - truth["transition"]).mean()),
        "f_mse": float(np.mean((fit.effects_mean - data.effects) ** 2)),
        "tau2_abs": abs(tau2 - float(truth["effect_covariance"][0, 0])),
        "tau2_est": tau2,
        "state_acc": float((states == data.states).mean()),
        "iterations": found.iterations,
        "stop": fit.stop.name,
        "seconds": found.seconds,
    }


def _rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def paper_fit(data: Data, max_iter: int) -> Timed:
    """AVEM as the authors run it."""
    (K, d, _), tau2 = data.truth["coef"].shape, data.truth["effect_covariance"][0, 0]
    begin = start(K, d, tau2)
    return timed(data.model, data.panel, plain=True, init=begin, tol=1e-4, max_iter=max_iter)


def converged_rows(data: Data, more: Mapping[str, Timed] | None = None) -> list[Row]:
    """What a user gets, AVEM alone and the exact maximum, and further fits, scored."""
    found = converged(data.model, data.panel, data.truth)
    top = found["exact"].fit.bound
    return [
        {
            "method": name,
            **score(each, data),
            "refined": each.fit.info.refined,
            "below_exact": float(top - each.fit.loglik()),
        }
        for name, each in {**found, **(more or {})}.items()
    ]


# --- tables and words --------------------------------------------------------------------------


def converged_tables(rows: pd.DataFrame, keys: Sequence[str]) -> Tables:
    """Means per setting and method, and the default's errors over those of the exact maximum."""
    measures = (*ERRORS, "contrast_rmse", "tau2_est", "below_exact", "iterations")
    means = spread(rows, [*keys, "method"], measures, endings=True)
    summary = []
    for measure in (*ERRORS, "contrast_rmse"):
        of = means.pivot_table(index=list(keys), columns="method", values=measure, sort=False)
        each = rows.pivot_table(
            index=[*keys, "replicate"], columns="method", values=measure, sort=False
        )
        for method in METHODS[:2]:
            gap = each[method] - each["exact"]
            summary.append(
                {
                    "measure": measure,
                    "method": method,
                    "mean": of[method].mean(),
                    "mean of the exact maximum": of["exact"].mean(),
                    "ratio": of[method].mean() / of["exact"].mean(),
                    "largest ratio of a setting": (of[method] / of["exact"]).max(),
                    "difference": gap.mean(),
                    "its standard error": gap.std() / np.sqrt(len(gap)),
                }
            )
    return {"default_beside_exact": pd.DataFrame(summary), "converged_means": means}


def times(frame: pd.DataFrame, keys: Sequence[str], theirs: pd.DataFrame) -> pd.DataFrame:
    """Median seconds, in all and per iteration, beside the authors' means."""
    frame = frame.assign(each=frame["seconds"] / frame["iterations"])
    columns = ["protocol", *keys, "method"]
    table = frame.groupby(columns, sort=False, as_index=False)[["seconds", "each"]].median()
    known = theirs[[*keys, "method", "time_sec"]].assign(protocol="paper")
    table = table.merge(known, on=columns, how="left")
    return table.rename(columns={"each": "seconds per iteration", "time_sec": "authors' seconds"})


def agreement_words(table: pd.DataFrame, claimed: Sequence[str]) -> str:
    """How well the paper protocol repeats the authors' numbers."""
    own = table[table["measure"].isin(claimed)]
    settings, near = own["settings"].sum(), own["within 3 standard errors"].sum()
    rest = table[~table["measure"].isin(claimed)]
    return (
        f"Paper protocol: for the errors of mu, sigma2, Gamma and f, {near} of {settings} means "
        f"({near / settings:.0%}) are within three standard errors of the authors', and the "
        f"largest difference is {own['largest difference in standard errors'].max():.1f}; for "
        f"{', '.join(rest['measure'])} the largest is "
        f"{rest['largest difference in standard errors'].max():.1f}."
    )


def falls(means: pd.DataFrame, measure: str, along: str) -> str:
    """Whether an error falls from the least to the most of something, in every other setting."""
    others = [key for key in ("tau2", "T", "n") if key != along]
    wide = means.pivot_table(index=others, columns=along, values=measure)
    ratio = wide.iloc[:, -1] / wide.iloc[:, 0]
    return (
        f"From {along}={wide.columns[0]} to {wide.columns[-1]} the error {measure} falls to "
        f"{ratio.min():.2f} to {ratio.max():.2f} of what it was. "
    )


def converged_words(tables: Tables) -> str:
    """The default beside the exact maximum."""
    table = tables["default_beside_exact"]
    said = []
    for method, own in table.groupby("method", sort=False):
        parts = [f"{row.measure} {row.ratio:.3f}" for row in own.itertuples()]
        said.append(f"{method}: {', '.join(parts)}")
    means = tables["converged_means"]
    below = means.groupby("method")["below_exact"].mean()
    return (
        "Converged protocol, errors over those of the exact maximum likelihood fit, averaged over "
        f"all settings (state_acc: more is better). {'; '.join(said)}. The log likelihood is below "
        f"the exact maximum by {below['default']:.2f} (default) and {below['AVEM alone']:.2f} "
        "(AVEM alone) on average."
    )


def level_words(tables: Tables, keys: Sequence[str]) -> str:
    """How much of the paper protocol's accuracy is its start's."""
    means = tables["converged_means"]
    exact = means[means["method"] == "exact"]
    both = tables["paper_protocol_means"].merge(exact, on=list(keys), suffixes=("", " exact"))
    mu, mu_exact = both["mu_rmse"].mean(), both["mu_rmse exact"].mean()
    contrast, contrast_exact = both["contrast_rmse"].mean(), both["contrast_rmse exact"].mean()
    f, f_exact = both["f_mse"].mean(), both["f_mse exact"].mean()
    return (
        "The paper's errors of mu depend on the protocol. The level of all means is confounded "
        "with the mean of the sampled effects; the authors start at the true level, and their rule "
        f"stops before EM has moved along it: mean RMSE {mu:.3f}, where the exact maximum "
        f"likelihood fit has {mu_exact:.3f}. The contrasts mu_k - mean(mu), which the data do "
        f"tell, have {contrast:.3f} and {contrast_exact:.3f}, the effects a squared error of "
        f"{f:.3f} and {f_exact:.3f}."
    )
