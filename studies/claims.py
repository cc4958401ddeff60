"""The paper's claims, in sentences whose numbers come from the tables of the studies."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from studies.study import Tables

Found = Mapping[str, Tables]
"""The tables of every study that has been run, times included, by the study's name."""


def one_by_one(found: Found) -> list[str]:
    """What the paper says of its figures and theorems, in numbers."""
    said = []
    if "gaussian-accuracy" in found and "paper_protocol_means" in found["gaussian-accuracy"]:
        said.append(_more_data(found["gaussian-accuracy"]))
    if "gaussian-scaling" in found:
        said.append(_cost(found["gaussian-scaling"]["times"]))
    for name in ("gaussian-methods", "bernoulli-methods"):
        if name in found:
            said.append(_speed(name, found[name]["times"]))
    if "partial" in found:
        said.append(_partial(found["partial"]["errors"]))
    if "default_over_the_authors" in found.get("messm", {}):
        said.append(_state_space(found["messm"]))
    if "theory" in found:
        said.append(_rates(found["theory"]["slopes"]))
    return said


def where_the_protocol_matters(found: Found) -> list[str]:
    """Claims that depend on where the fits start and when they stop."""
    said = []
    own = found.get("gaussian-accuracy", {})
    if {"paper_protocol_means", "converged_means"} <= set(own):
        from studies.gaussian import level_words

        said.append(level_words(own, ["tau2", "T", "n"]))
    for name, error in (("gaussian-methods", "mu_rmse"), ("bernoulli-methods", "tau2_abs")):
        own = found.get(name, {})
        if {"paper_protocol_means", "converged_means"} <= set(own):
            said.append(_ranks(name, own, error))
    own = found.get("gaussian-scaling", {})
    if {"paper_protocol_means", "converged_means"} <= set(own):
        said.append(_many_states(own))
    return said


def what_refinement_changes(found: Found) -> list[str]:
    """The default, which refines where anchoring does not hold, beside AVEM alone and the exact."""
    said = []
    for name in ("gaussian-accuracy", "gaussian-scaling", "gaussian-methods", "bernoulli-methods"):
        means = found.get(name, {}).get("converged_means")
        if means is not None:
            said.append(_refined(name, means))
    return said


def _more_data(own: Tables) -> str:
    means = own["paper_protocol_means"]
    parts = []
    for measure, along in (
        ("mu_rmse", "n"),
        ("sigma2_rmse", "n"),
        ("gamma_abs", "n"),
        ("f_mse", "T"),
    ):
        others = [key for key in ("tau2", "T", "n") if key != along]
        wide = means.pivot_table(index=others, columns=along, values=measure)
        falls = (wide.iloc[:, -1] < wide.iloc[:, 0]).sum()
        ratio = (wide.iloc[:, -1] / wide.iloc[:, 0]).mean()
        parts.append(
            f"{measure} along {along} in {falls} of {len(wide)} (to {ratio:.2f} on average)"
        )
    return (
        "More subjects and longer sequences give smaller errors (gaussian-accuracy, from the "
        "smallest to the largest): " + "; ".join(parts) + "."
    )


def _cost(times: pd.DataFrame) -> str:
    own = times[times["protocol"] == "paper"]
    if own.empty:
        return "gaussian-scaling: the paper protocol has not been run."
    parts = []
    for words, values in (("A fit", "seconds"), ("an iteration", "seconds per iteration")):
        by = own.pivot_table(index="K", columns="d", values=values)
        parts.append(
            f"{words} takes {(by.iloc[-1] / by.iloc[0]).mean():.1f} times as long with "
            f"{by.index[-1]} states as with {by.index[0]}, and "
            f"{(by.iloc[:, -1] / by.iloc[:, 0]).mean():.1f} times as long with {by.columns[-1]} "
            f"outcomes as with {by.columns[0]}"
        )
    faster = (own["authors' seconds"] / own["seconds"]).median()
    return (
        "The paper's times grow with the number of states more than with that of outcomes "
        f"(gaussian-scaling). {'; '.join(parts)}. At this size what does not depend on either is "
        f"much of an iteration. Our fits take {1 / faster:.2f} of the authors' seconds, on another "
        "machine."
    )


def _speed(name: str, times: pd.DataFrame) -> str:
    parts = []
    for protocol, own in times.groupby("protocol", sort=False):
        ratio = own.groupby("method")["times AVEM"].mean()
        rivals = ratio[ratio.index.str.contains("EM-")]
        parts.append(
            f"{protocol} protocol, {rivals.min():.1f} ({rivals.idxmin()}) to {rivals.max():.1f} "
            f"({rivals.idxmax()}) times"
        )
    return f"Seconds of quadrature and Monte Carlo EM over AVEM's ({name}): {'; '.join(parts)}."


def _partial(table: pd.DataFrame) -> str:
    parts = []
    for (protocol, mu), own in table.groupby(["protocol", "mu"], sort=False):
        nine = own[own["method"] == "partial 9"]
        share = nine["MSE localized"] / (nine["MSE localized"] + nine["less than AVEM by"])
        z = (nine["less than AVEM by"] / nine["its standard error"]).min()
        parts.append(
            f"{protocol} protocol, states at {mu} and -{mu}: {share.mean():.2f} of AVEM's error "
            f"(at least {z:.1f} standard errors less)"
        )
    return f"Partial anchoring (9 nodes) and the localized effect: {'; '.join(parts)}."


def _state_space(own: Tables) -> str:
    """Scenario III: the authors' errors reached from the data alone, and what refinement adds."""
    ratios = own["default_over_the_authors"].groupby("error", sort=False)["ratio"].median()
    means = own["loadings"]
    means = means[means["stable"]].groupby("method")[["Sigma_h", "variance of true h_i"]].mean()
    avem, default = means.loc["AVEM"], means.loc["default"]
    return (
        "State-space models (messm), from starts found in the data: the default's median errors "
        "over the authors', whose fits start at the truth and some noise, are "
        f"{', '.join(f'{name} {ratio:.2f}' for name, ratio in ratios.items())} (medians over the "
        f"settings). AVEM alone finds {avem['Sigma_h'] / avem['variance of true h_i']:.0%} of the "
        f"variance of the loadings, the default "
        f"{default['Sigma_h'] / default['variance of true h_i']:.0%}."
    )


def _rates(slopes: pd.DataFrame) -> str:
    own = slopes[slopes["parameters"] == "true"]
    parts = []
    for _, row in own.iterrows():
        if pd.isna(row["slope in T"]):
            words = f"zero in {row['zero in']}"
        else:
            words = f"{row['slope in T']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})"
        parts.append(f"{row['outcome']}, {row['quantity'].removesuffix(' / nT')}: {words}")
    return (
        "Rates of the theorems, as powers of T at the true parameters (the paper's bounds are of "
        f"order -1 where information grows with T). {'; '.join(parts)}."
    )


def _ranks(name: str, own: Tables, error: str) -> str:
    """The place of AVEM among the methods by one error, in both protocols."""
    words = []
    for protocol, table, avem in (
        ("paper", "paper_protocol_means", "AVEM"),
        ("converged", "converged_means", "AVEM alone"),
    ):
        means = own[table]
        means = means[~means["method"].isin(("default", "exact"))]
        rank = means.groupby(["T", "tau2"])[error].rank()[means["method"] == avem]
        average = means.groupby("method")[error].mean()
        best = average.drop(avem).idxmin()
        words.append(
            f"{protocol} protocol, {average[avem]:.3f} on average, place "
            f"{', '.join(f'{r:.0f}' for r in rank)} of {means['method'].nunique()} in the "
            f"settings; the best rival {best} has {average[best]:.3f}"
        )
    exact = own["converged_means"].query("method == 'exact'")[error].mean()
    return f"AVEM's {error} in {name}: {'; '.join(words)}; the exact maximum {exact:.3f}."


def _many_states(own: Tables) -> str:
    default = own["converged_means"].query("method == 'default'")
    both = own["paper_protocol_means"].merge(default, on=["K", "d"], suffixes=("", " default"))
    top = both[both["K"] == both["K"].max()]
    return (
        f"With {top['K'].iloc[0]} states (gaussian-scaling) the authors' start and rule find "
        f"{top['state_acc'].mean():.2f} of the states and have a contrast error of "
        f"{top['contrast_rmse'].mean():.2f}; the default from the data finds "
        f"{top['state_acc default'].mean():.2f} and has {top['contrast_rmse default'].mean():.2f}."
    )


def _refined(name: str, means: pd.DataFrame) -> str:
    average = means.groupby("method")[["tau2_est", "tau2_abs", "f_mse", "below_exact"]].mean()
    parts = []
    for method in ("AVEM alone", "default", "exact"):
        row = average.loc[method]
        parts.append(
            f"{method}: tau2 {row['tau2_est']:.3f} (error {row['tau2_abs']:.3f}), squared error of "
            f"f {row['f_mse']:.3f}, log likelihood {row['below_exact']:.2f} below the maximum"
        )
    return f"{name}, averages over all settings. {'; '.join(parts)}."
