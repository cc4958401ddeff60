"""What models learn from the columns of a scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from avem.data.columns import MAX_LEVELS
from avem.data.scanning.facts import distinct


class Digest:
    """The columns of a scan as far as a model learns from them: the values that occur."""

    def __init__(self, folder: Path, facts: dict[str, Any]) -> None:
        self._folder, self._facts = folder, facts
        self._known: dict[str, pd.Series] = {}

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self._facts)

    def __getitem__(self, name: str) -> pd.Series:
        if name not in self._known:
            found = distinct(self._folder, name, 2 * MAX_LEVELS)
            if self._facts[name]["missing"] and pd.api.types.is_integer_dtype(found.dtype):
                found = found.astype(float)  # as pandas has whole numbers with gaps
            self._known[name] = found
        return self._known[name]
