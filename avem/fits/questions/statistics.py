"""Statistics of a data set, to compare it with simulated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.data.columns import outcome_codes
from avem.data.frames import numbers
from avem.errors import ModelError

Statistic = Callable[[Any], Any]


def _of_seen(number: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray, Panel], float]:
    """A statistic of the values that are there, whoever's they are."""
    return lambda y, panel: float(number(y[~np.isnan(y)]))


def _subject_means(y: np.ndarray, panel: Panel) -> np.ndarray:
    seen = ~np.isnan(y)
    sums = np.bincount(panel.row_subject[seen], y[seen], minlength=panel.n_subjects)
    with np.errstate(invalid="ignore"):
        return sums / np.bincount(panel.row_subject[seen], minlength=panel.n_subjects)


def _between(y: np.ndarray, panel: Panel) -> float:
    means = _subject_means(y, panel)
    return float(np.std(means[~np.isnan(means)]))


def _autocorrelation(y: np.ndarray, panel: Panel) -> float:
    apart = y - _subject_means(y, panel)[panel.row_subject]
    before = panel.lag(apart)
    both = ~np.isnan(apart) & ~np.isnan(before)
    if both.sum() < 2 or np.ptp(apart[both]) == 0 or np.ptp(before[both]) == 0:
        return np.nan
    return float(np.corrcoef(apart[both], before[both])[0, 1])


def _same(y: np.ndarray, panel: Panel) -> float:
    before = panel.lag(y)
    both = ~np.isnan(y) & ~np.isnan(before)
    return float(np.mean(y[both] == before[both])) if both.any() else np.nan


BUILT_IN: dict[str, Callable[[np.ndarray, Panel], float]] = {
    "mean": _of_seen(np.mean),
    "sd": _of_seen(np.std),
    "between": _between,
    "autocorrelation": _autocorrelation,
    "min": _of_seen(np.min),
    "max": _of_seen(np.max),
    "zeros": _of_seen(lambda seen: np.mean(seen == 0)),
    "same": _same,
}
"""Of one outcome. "between" is the sd of the subjects' means, "autocorrelation" that at lag 1 of
values less their subject's mean, "zeros" the share of zeros, "same" that of values like the one
before. Outcomes with levels have "share", that of each level, and "same"."""


class Statistics:
    """What to compute of a data set with the rows of a panel."""

    def __init__(self, asked: Any, panel: Panel, outcomes: Mapping[str, Sequence[Any] | None]):
        """`outcomes` are the levels of each, None for numbers."""
        self.panel, self.outcomes = panel, outcomes
        self.words: list[str] = []
        self.functions: dict[str, Statistic] = {}
        self._default = asked is None
        self._telling_words: dict[str, list[str]] = {}
        if asked is None:
            self.words = [*BUILT_IN, "share"]
        else:
            self._read(asked)

    def _read(self, asked: Any) -> None:
        if isinstance(asked, str):
            self.words = [_known(asked)]
        elif callable(asked):
            self.functions = {_name_of(asked): asked}
        elif isinstance(asked, Mapping):
            wrong = [name for name, function in asked.items() if not callable(function)]
            if wrong or not asked:
                raise ModelError(f"statistic has {wrong}; a dict of names and functions is wanted.")
            self.functions = {str(name): function for name, function in asked.items()}
        elif isinstance(asked, Sequence) and asked:
            wrong = [one for one in asked if not (isinstance(one, str) or callable(one))]
            if wrong:
                raise ModelError(f"statistic has {wrong[0]!r}; names or functions are wanted.")
            self.words = [_known(one) for one in asked if isinstance(one, str)]
            self.functions = _named([one for one in asked if not isinstance(one, str)])
        else:
            raise ModelError(
                f"statistic is {asked!r}; a function of a frame is wanted, a dict of such, or some "
                f"of {', '.join([*BUILT_IN, 'share'])}."
            )

    def of(self, table: pd.DataFrame) -> dict[tuple[str, str | None], float]:
        """Every statistic of a table: by name and outcome."""
        found: dict[tuple[str, str | None], float] = {}
        for name, levels in self.outcomes.items():
            values = _values(self.panel, table, name, levels)
            if values is None or np.isnan(values).all():
                continue
            for word in self._words_of(name, levels):
                found |= self._built_in(word, name, values, levels)
        if self.functions:
            frame = self.panel.table_like(table)
            for name, function in self.functions.items():
                value = function(frame)
                if isinstance(value, pd.Series) and len(value) == len(table) > 1:
                    raise ModelError(
                        f"The statistic {name!r} gave a number for every row; one of all rows is "
                        "wanted, such as their mean, or a dict of such."
                    )
                found |= _results(name, value)
        return found

    def _words_of(self, name: str, levels) -> list[str]:
        """The words for one outcome: by default those that say something of the data's values.

        The data decide, once: that simulated values have no zeros is what "zeros" is to tell.
        """
        if not self._default or (levels is not None and tuple(levels) != (0, 1)):
            return self.words
        if name not in self._telling_words:
            values = _values(self.panel, self.panel.table, name, levels)
            telling = [] if values is None else [w for w in self.words if self._telling(w, values)]
            self._telling_words[name] = telling
        return self._telling_words[name]

    def _built_in(self, word: str, name: str, values: np.ndarray, levels) -> dict:
        if levels is not None and tuple(levels) != (0, 1):
            if word == "share":
                seen = values[~np.isnan(values)]
                shares = {level: float(np.mean(seen == j)) for j, level in enumerate(levels)}
                return {(f"share of {level}", name): share for level, share in shares.items()}
            return {(word, name): _same(values, self.panel)} if word == "same" else {}
        if word == "share":
            return {}
        return {(word, name): BUILT_IN[word](values, self.panel)}

    @staticmethod
    def _telling(word: str, values: np.ndarray) -> bool:
        """Whether a statistic that nobody asked for by name says anything of such values."""
        few = len(np.unique(values[~np.isnan(values)])) <= 2
        if word in ("min", "max", "sd", "zeros") and few:
            return False
        if word == "zeros":
            return bool((values == 0).any())
        return word != "same"


def _named(functions: Sequence[Statistic]) -> dict[str, Statistic]:
    """By name; those of one name are numbered from 1."""
    names = [_name_of(function) for function in functions]
    numbered = [
        name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}"
        for i, name in enumerate(names)
    ]
    return dict(zip(numbered, functions, strict=True))


def _name_of(function: Any) -> str:
    """What it is called; of a partial one, as the function that it completes."""
    return getattr(getattr(function, "func", function), "__name__", "statistic")


def _values(panel: Panel, table: pd.DataFrame, name: str, levels) -> np.ndarray | None:
    if levels is None:
        return numbers(pd.Series(table[name]))
    return outcome_codes(replace(panel, table=table), name, levels)


def _results(name: str, value: Any) -> dict[tuple[str, str | None], float]:
    """What a user's function gave: a number, or several by name."""
    if isinstance(value, Mapping | pd.Series):
        return {(f"{name}[{key}]", None): _number(name, one) for key, one in value.items()}
    return {(name, None): _number(name, value)}


def _number(name: str, value: Any) -> float:
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        array = np.zeros(2)
    if array.size != 1:
        raise ModelError(
            f"The statistic {name!r} gave a {type(value).__name__}; a number is wanted, or a dict "
            "of numbers."
        )
    return float(array.reshape(-1)[0])


def _known(word: str) -> str:
    if word not in (*BUILT_IN, "share"):
        names = ", ".join([*BUILT_IN, "share"])
        raise ModelError(
            f"There is no statistic {word!r}; choose from {names}, or pass a function."
        )
    return word
