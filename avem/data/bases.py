"""Several columns from one: splines, bs(x, df=5), and orthogonal polynomials, poly(x, 3).

What they need of the data, knots and norms, is learned once; new data are put on the same basis.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from avem.errors import DataError
from avem.numerics.order_statistics import counter_of, quantiles
from avem.numerics.rounding import exact_sum

BASES = ("bs", "poly")
OPTIONS = ("df", "degree")
_MOST_COLUMNS = {"bs": 50, "poly": 10}
_USUAL_DEGREE, _MOST_DEGREE = 3, 5
HOW = {
    "bs": "bs() takes a column and its number of columns, df, from degree to 50: bs(x, df=5), "
    "bs(x, df=5, degree=2)",
    "poly": "poly() takes a column and a degree from 1 to 10: poly(x, 3)",
}


Parts = Callable[[], Iterable[np.ndarray]]
"""Every call goes through a column's finite values, part by part."""


class Basis(NamedTuple):
    """A call of one of `BASES`."""

    function: str
    degree: int
    n_columns: int

    @property
    def n_learned(self) -> int:
        """How many numbers `learn` gives."""
        if self.function == "bs":
            return 2 + self.n_columns - self.degree
        return 2 + self.degree + (self.degree + 1)

    def learn(self, parts: Parts, label: str) -> list[float]:
        """Boundaries and inner knots of a spline; moments, shifts and norms of polynomials."""
        needed, different, n = self.n_columns + 1, np.zeros(0), 0
        ends = [np.inf, -np.inf]
        for x in parts():
            n += len(x)
            ends = [x.min(initial=ends[0]).item(), x.max(initial=ends[1]).item()]
            if len(different) < needed:
                different = np.unique(np.concatenate([different, x]))[:needed]
        if len(different) < needed:
            raise DataError(
                f"The column of {label} has {len(different)} different values; at least {needed} "
                f"are wanted for {self.n_columns} columns. Ask for fewer."
            )
        if self.function == "poly":
            return _learn_poly(parts, n, max(map(abs, ends)), self.degree)
        shares = np.linspace(0, 1, self.n_columns - self.degree + 2)[1:-1]
        counter = counter_of(lambda: (x[:, None] for x in parts()))
        inner = (
            quantiles(counter, np.array([n]), shares.tolist())[:, 0] if len(shares) else np.zeros(0)
        )
        if (np.diff([ends[0], *inner, ends[1]]) <= 0).any():
            raise DataError(
                f"The column of {label} has so many equal values that knots at its quantiles "
                "fall together. Ask for a smaller df."
            )
        return [*ends, *inner.tolist()]

    def is_learned(self, found: Any) -> bool:
        """Whether these can be what `learn` gave: they may come from a stranger's file."""
        if not isinstance(found, list) or len(found) != self.n_learned:
            return False
        if not all(type(x) in (int, float) and np.isfinite(x) for x in found):
            return False
        if self.function == "poly":
            return found[1] > 0 and all(norm > 0 for norm in found[2 + self.degree :])
        low, high, *inner = found
        return bool((np.diff([low, *inner, high]) > 0).all())

    def outside(self, x: np.ndarray, learned: Sequence[float]) -> np.ndarray:
        """(rows,) where nothing was learned: a spline says nothing beyond its boundaries."""
        if self.function == "poly":
            return np.zeros(len(x), bool)
        room = 1e-9 * (learned[1] - learned[0])
        return (x < learned[0] - room) | (x > learned[1] + room)

    def values(self, x: np.ndarray, learned: Sequence[float]) -> np.ndarray:
        """(rows, columns); arbitrary where x is outside or not finite."""
        if self.function == "poly":
            return _poly(np.where(np.isfinite(x), x, learned[0]), learned, self.degree)
        from scipy.interpolate import BSpline

        low, high, *inner = learned
        ends = self.degree + 1
        knots = np.array([low] * ends + inner + [high] * ends)
        x = np.clip(np.where(np.isfinite(x), x, low), low, high)
        # The first one is what the others leave of the intercept.
        return BSpline.design_matrix(x, knots, self.degree).toarray()[:, 1:]


def read_basis(node: ast.Call, function: str) -> Basis | None:
    """The basis that a call asks for; None where it cannot be read."""
    names = {"bs": ("df", "degree"), "poly": ("degree",)}[function]
    given = dict(zip(names, node.args[1:], strict=False))
    if not node.args or not isinstance(node.args[0], ast.Name) or len(node.args) > 1 + len(names):
        return None
    for keyword in node.keywords:
        if keyword.arg not in names or keyword.arg in given:
            return None
        given[keyword.arg] = keyword.value
    whole = {
        name: value.value
        for name, value in given.items()
        if isinstance(value, ast.Constant) and type(value.value) is int
    }
    if len(whole) < len(given) or names[0] not in whole:
        return None
    degree = whole.get("degree", _USUAL_DEGREE)
    n_columns = whole["df"] if function == "bs" else degree
    least, most = (degree, _MOST_DEGREE) if function == "bs" else (1, _MOST_COLUMNS["poly"])
    if not (1 <= degree <= most and least <= n_columns <= _MOST_COLUMNS[function]):
        return None
    return Basis(function, degree, n_columns)


# --- polynomials that are orthogonal over the data, by their three-term recurrence ----------------


def _learn_poly(parts: Parts, n: int, largest: float, degree: int) -> list[float]:
    unit = largest or 1.0  # so that no square overflows
    middle = exact_sum(x / unit for x in parts()) / n
    square = exact_sum((x / unit - middle) ** 2 for x in parts()) / n
    mean, sd = middle * unit, float(np.sqrt(square)) * unit
    shifts, norms = [], [float(n)]
    for _ in range(degree):
        scaled = ((x - mean) / sd for x in parts())
        total = exact_sum(z * _orthogonal(z, shifts, norms)[-1] ** 2 for z in scaled)
        shifts.append(total / norms[-1])
        scaled = ((x - mean) / sd for x in parts())
        norms.append(exact_sum(_orthogonal(z, shifts, norms)[-1] ** 2 for z in scaled))
    return [mean, sd, *shifts, *norms]


def _orthogonal(z: np.ndarray, shifts: Sequence[float], norms: Sequence[float]) -> list[np.ndarray]:
    """Polynomials of degree 0 and of so many more as there are shifts, (rows,) each."""
    found = [np.ones(len(z))]
    for j, shift in enumerate(shifts):
        before = norms[j] / norms[j - 1] * found[-2] if j else 0.0
        found.append((z - shift) * found[-1] - before)
    return found


def _poly(x: np.ndarray, learned: Sequence[float], degree: int) -> np.ndarray:
    mean, sd = learned[:2]
    shifts, norms = learned[2 : 2 + degree], learned[2 + degree :]
    found = _orthogonal((x - mean) / sd, shifts, norms)[1:]
    return np.stack(found, axis=1) / np.sqrt(norms[1:])
