"""Our means beside the authors'."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

_FOLDER = Path(__file__).parent / "reference"
_AGREES, _DISAGREES = 3, 5


def authors(file: str) -> pd.DataFrame:
    """One of the authors' tables; see ``reference/README.md``."""
    return pd.read_csv(_FOLDER / file).rename(columns={"T_len": "T"})


def beside(
    rows: pd.DataFrame, theirs: pd.DataFrame, keys: Sequence[str], measures: Sequence[str]
) -> pd.DataFrame:
    """A row per setting and measure: our mean, theirs, and the difference in standard errors.

    Their tables have no standard deviations, so ours stand for both: the standard error of the
    difference is our sd times sqrt(1 / our replicates + 1 / theirs).

    Parameters
    ----------
    rows
        Our replicates, with the columns `keys` and `measures`.
    theirs
        Their means under the same names, with the number of replicates as ``reps``.
    """
    keys = [*keys, "measure"]
    ours = rows.melt(keys[:-1], list(measures), var_name="measure")
    ours = ours.groupby(keys, sort=False)["value"].agg(["mean", "std", "size"]).reset_index()
    known = theirs.melt([*keys[:-1], "reps"], list(measures), "measure", "theirs")
    both = ours.merge(known, on=keys)
    difference = both["mean"] - both["theirs"]
    error = both["std"] * np.sqrt(1 / both["size"] + 1 / both["reps"])
    # Numbers of iterations may be one and the same in all our replicates: if the authors' mean is
    # another, there is no error to measure the difference by.
    in_errors = (difference / error.where(error > 0)).where(difference != 0, 0.0)
    return both[keys].assign(
        **{
            "ours": both["mean"],
            "its standard error": both["std"] / np.sqrt(both["size"]),
            "authors'": both["theirs"],
            "difference in standard errors": in_errors,
        }
    )


def agreement(table: pd.DataFrame, by: Sequence[str] = ("measure",)) -> pd.DataFrame:
    """Per measure: in how many settings the two agree, and how far they are apart at most."""
    rows = []
    for values, own in table.groupby(list(by), sort=False):
        own = own.dropna(subset="difference in standard errors")
        z = own["difference in standard errors"]
        rows.append(
            {
                **dict(zip(by, values, strict=True)),
                "settings": len(own),
                f"within {_AGREES} standard errors": int((z.abs() < _AGREES).sum()),
                "share": (z.abs() < _AGREES).mean(),
                f"beyond {_DISAGREES}": int((z.abs() > _DISAGREES).sum()),
                "largest difference in standard errors": z.abs().max(),
                "mean difference in standard errors": z.mean(),
                "ours over authors', median": (own["ours"] / own["authors'"]).median(),
            }
        )
    return pd.DataFrame(rows)


def spread(
    rows: pd.DataFrame, keys: Sequence[str], measures: Sequence[str], endings: bool = False
) -> pd.DataFrame:
    """Means per setting, a row each, with the number of replicates.

    With `endings`, also how many of the fits did not converge.
    """
    grouped = rows.groupby(list(keys), sort=False, as_index=False)
    means = grouped[list(measures)].mean().assign(replicates=grouped.size()["size"])
    if endings:
        failed = rows.assign(failed=rows["stop"] != "CONVERGED").groupby(list(keys), sort=False)
        means["not converged"] = failed["failed"].sum().to_numpy()
    return means
