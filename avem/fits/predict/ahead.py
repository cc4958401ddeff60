"""The rows ahead of a fit's sequences, and tables with a row for each of them and each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.data.ahead import Ahead, look_ahead
from avem.errors import DataError, ModelError


def rows_ahead(model: Any, panel: Panel, horizon: int, future: Any) -> Ahead:
    """The panel going on by `horizon` rows, with the covariates that the model reads there."""
    outcomes, parts = set(model.outcomes), model.parts_ahead
    for part in parts:
        direct = part.reads_now(outcomes)
        if direct:
            what = f"{part.formula.text!r} reads {', '.join(direct)}"
            raise ModelError(f"{what}, which is not known at the steps ahead.")
    read = [name for part in parts for name in part.covariates]
    needed = [name for name in dict.fromkeys([*read, *model.extras]) if name not in outcomes]
    behind = [name for part in model.designs.parts for name in part.covariates if name not in read]
    blank = (*model.outcomes, *model.extras_behind, *model.marks, *behind)
    ahead = look_ahead(panel, horizon, blank, needed, future, timed=model.continuous)
    check_ahead(model, ahead.panel, ahead.rows)
    return ahead


def check_ahead(model: Any, panel: Panel, rows: np.ndarray) -> None:
    """Raise where terms ahead are no numbers, as of a covariate that is infinite.

    Formulas that look back at outcomes are left out: these are yet to come.
    """
    at, nowhere = np.zeros((2, panel.n_rows), bool)
    at[rows] = True
    read = [part for part in model.parts_ahead if not part.lags(set(model.outcomes))]
    parts = model.designs.parts
    needed = [at if any(part is one for one in read) else nowhere for part in parts]
    try:
        model.designs.apply(panel, needed, [False] * len(parts))
    except DataError as error:
        raise DataError(f"At the steps ahead: {error}") from error


def for_each(ahead: Ahead, names: Sequence[str], what: str) -> pd.DataFrame:
    """The keys of the rows ahead, each once for every name, in a column `what`."""
    table: Any = ahead.keys.loc[ahead.keys.index.repeat(len(names))].reset_index(drop=True)
    table[what] = np.tile(np.array(names, dtype=object), len(ahead.keys))
    return table
