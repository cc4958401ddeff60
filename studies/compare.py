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
    keys = list(keys)
    found = []
    known = theirs.set_index(keys)
    for values, own in rows.groupby(keys, sort=False):
        values = values if isinstance(values, tuple) else (values,)
        if values not in known.index and values[0] not in known.index:
            continue
        their = known.loc[values if len(keys) > 1 else values[0]]
        for measure in measures:
            ours, n = own[measure].mean(), len(own)
            difference = ours - their[measure]
            error = own[measure].std() * np.sqrt(1 / n + 1 / their["reps"])
            found.append(
                {
                    **dict(zip(keys, values, strict=True)),
                    "measure": measure,
                    "ours": ours,
                    "its standard error": own[measure].std() / np.sqrt(n),
                    "authors'": their[measure],
                    # All runs of Monte Carlo EM take the same number of iterations, here and there.
                    "difference in standard errors": difference / error if difference else 0.0,
                }
            )
    return pd.DataFrame(found)


def agreement(table: pd.DataFrame, by: Sequence[str] = ("measure",)) -> pd.DataFrame:
    """Per measure: in how many settings the two agree, and how far they are apart at most."""
    rows = []
    for values, own in table.groupby(list(by), sort=False):
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
                "ours over authors', mean": (own["ours"] / own["authors'"]).mean(),
            }
        )
    return pd.DataFrame(rows)


def spread(rows: pd.DataFrame, keys: Sequence[str], measures: Sequence[str]) -> pd.DataFrame:
    """Means per setting, a row each, with the number of replicates."""
    grouped = rows.groupby(list(keys), sort=False, as_index=False)
    return grouped[list(measures)].mean().assign(replicates=grouped.size()["size"])
