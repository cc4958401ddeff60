"""The comparisons of methods: AVEM beside quadrature and Monte Carlo EM, in both protocols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

import avem
from studies.compare import agreement, authors, beside, spread
from studies.study import Tables

_RUN_AWAY = 10


def method_of(name: str, fresh_draws: bool = False) -> avem.Method:
    """AVEM, QEM-7 (nodes per effect) or MCEM-50 (draws, anew in every iteration if so asked)."""
    kind, _, number = name.partition("-")
    if kind == "QEM":
        return avem.Quadrature(int(number))
    return avem.MonteCarlo(int(number), fresh_draws) if kind == "MCEM" else avem.AVEM()


def reference(file: str, names: Mapping[str, str]) -> pd.DataFrame:
    """The authors' summaries: a row per setting, method and measure; their names put into ours."""
    found = authors(file).rename(columns={"metric": "measure", "tau2_true": "tau2"})
    return found.assign(method=found["method"].replace(names))


def wide(theirs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Their means, a column per measure, with the number of replicates."""
    index = [*keys, "method", "reps"]
    return theirs.pivot_table(index=index, columns="measure", values="mean").reset_index()


def tables(
    frame: pd.DataFrame, theirs: pd.DataFrame, keys: Sequence[str], measures: Sequence[str]
) -> Tables:
    """Agreement with the authors where they give numbers; medians and means of all methods."""
    found: Tables = {}
    by = dict(tuple(frame.groupby("protocol")))
    keys = [*keys, "method"]
    if "paper" in by:
        known = [*(m for m in measures if m in set(theirs["measure"])), "iterations"]
        both = beside(by["paper"], wide(theirs, keys[:-1]), keys, known)
        found["agreement_with_the_authors"] = agreement(both, ["method"])
        found["agreement_by_measure"] = agreement(both)
        found["beside_the_authors"] = both
        found["paper_protocol_means"] = spread(by["paper"], keys, [*measures, "iterations"])
    away = frame[frame["tau2_est"] > _RUN_AWAY * frame["tau2"]]
    if len(away):
        counts = away.groupby(["protocol", *keys], sort=False).size()
        found["run_away"] = counts.rename("fits").reset_index()
    if "converged" in by:
        columns = [*measures, "below_exact", "iterations"]
        found["converged_means"] = spread(by["converged"], keys, columns, endings=True)
    return found


def times(frame: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Median seconds of every method, and as a multiple of AVEM's."""
    columns = ["protocol", *keys, "method"]
    table = frame.groupby(columns, sort=False, as_index=False)["seconds"].median()
    base = table[table["method"].isin(("AVEM", "AVEM alone"))].set_index(columns[:-1])["seconds"]
    own = table.set_index(columns[:-1])["seconds"]
    return table.assign(**{"times AVEM": (own / base.reindex(own.index)).to_numpy()})


def reading(tables: Tables, measures: Sequence[str]) -> str:
    """What the tables say."""
    said = []
    if "agreement_with_the_authors" in tables:
        table = tables["agreement_with_the_authors"]
        near, n = table["within 3 standard errors"].sum(), table["settings"].sum()
        worst = table.sort_values("largest difference in standard errors").iloc[-1]
        said.append(
            f"Paper protocol: {near} of {n} means ({near / n:.0%}) are within three standard "
            "errors of the authors'; the largest difference is "
            f"{worst['largest difference in standard errors']:.1f} ({worst['method']})."
        )
        said.append(_best(tables["paper_protocol_means"], measures, "Paper protocol"))
    if "run_away" in tables:
        fits = tables["run_away"].groupby(["protocol", "method"], sort=False)["fits"].sum()
        parts = [f"{n} by {method} ({protocol})" for (protocol, method), n in fits.items()]
        said.append(
            f"Fits whose variance of the effects ends at more than {_RUN_AWAY} times the true one: "
            f"{', '.join(parts)}. A few nodes of the prior, spread ever wider, let it run away; "
            "means over replicates are then means of such a fit."
        )
    if "converged_means" in tables:
        means = tables["converged_means"]
        said.append(_best(means[means["method"] != "exact"], measures, "Converged"))
        said.append(_beside_exact(means, measures))
    return "\n\n".join(said)


def _best(means: pd.DataFrame, measures: Sequence[str], protocol: str) -> str:
    """Which methods have the smallest error, in how many settings."""
    errors = [name for name in measures if name not in ("state_acc", "tau2_est")]
    keys = [name for name in ("T", "tau2") if name in means]
    parts = []
    for measure in errors:
        first = means.loc[means.groupby(keys)[measure].idxmin(), "method"].value_counts()
        parts.append(
            f"{measure}: " + ", ".join(f"{name} in {count}" for name, count in first.items())
        )
    settings = means.groupby(keys).ngroups
    return f"{protocol}, smallest mean error in {settings} settings. " + "; ".join(parts) + "."


def _beside_exact(means: pd.DataFrame, measures: Sequence[str]) -> str:
    """Every method's errors over those of the exact maximum, averaged over the settings."""
    errors = [name for name in measures if name not in ("state_acc", "tau2_est")]
    average = means.groupby("method", sort=False)[errors].mean()
    parts = [
        f"{method}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in row.items())
        for method, row in (average / average.loc["exact"]).iterrows()
        if method != "exact"
    ]
    return "Errors over those of the exact maximum likelihood fit. " + "; ".join(parts) + "."
