"""Names of states in the tables that users get; tables inside have numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from pandas.api.types import is_integer_dtype

from avem.models.state_names import with_names

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_SECOND = ("to_state", "minus")
"""Columns of states that stand beside "state"."""
_OF_EFFECTS = ("term", "other")
"""Columns of the table of parameters that may hold the name of an effect or of a state."""


def named_states(fit: Fit, table: pd.DataFrame) -> pd.DataFrame:
    """The table with names in place of numbers, where the states have names."""
    names = fit.state_names
    if not names:
        return table
    known = dict(zip(fit.model.effect_names, fit.model.effect_labels, strict=True))
    columns = {}
    for column in _of_states(fit, list(table.columns)):
        if is_integer_dtype(table[column]):
            found = [None if pd.isna(k) else names[int(k)] for k in table[column]]
            columns[column] = _texts(table, found)
    texts = ["effect"] if "effect" in table else []
    if "parameter" in table:
        texts += [column for column in _OF_EFFECTS if column in table]
    for column in texts:
        told = {x: known.get(x, with_names(x, names)) for x in table[column] if isinstance(x, str)}
        columns[column] = _texts(table, [told.get(x, x) for x in table[column]])
    return table.assign(**columns)


def _of_states(fit: Fit, columns: list) -> list[str]:
    """The columns that hold states; a user's own column may have such a name, too."""
    if "state" not in columns or "state" in fit.columns.values():
        return []
    after = columns[columns.index("state") + 1 :][:1]
    return ["state", *(column for column in after if column in _SECOND)]


def _texts(table: pd.DataFrame, values: Sequence) -> pd.Series:
    return pd.Series(list(values), index=table.index, dtype=object)
