"""Many small symmetric matrices at once, entry by entry, in NumPy or compiled (`arrays`).

They are (d, d, ...): long loops over the rest, and no products of tiny matrices. LAPACK takes about
a microsecond for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import mul
from typing import Any

import numpy as np


def contract(xp: Any, subscripts: str, *arrays: Any) -> Any:
    """`einsum` of arrays that are short along every axis but perhaps the last.

    Compiled, it is a sum over products: as products of matrices these would be transposed first,
    and for a GPU each of them would be a program that is long to compile.
    """
    if xp is np:
        return np.einsum(subscripts, *arrays)
    inputs, output = subscripts.split("->")
    summed = sorted(set(inputs) - {*output, ","})
    order = "".join(summed) + output

    def aligned(letters: str, array: Any) -> Any:
        axes = [letters.index(letter) for letter in order if letter in letters]
        wide = tuple(slice(None) if letter in letters else None for letter in order)
        return array.transpose(axes)[wide]

    product = reduce(mul, map(aligned, inputs.split(","), arrays))
    return product.sum(tuple(range(len(summed))))


def factor(xp: Any, matrix: Any) -> Any:
    """Lower Cholesky factors; not a number where there is none."""
    low = factor_entries(xp, matrix)
    if not low:
        return matrix
    zero = xp.zeros_like(low[0][0])
    size = range(len(low))
    full = xp.stack([xp.stack([low[i][j] if j <= i else zero for j in size]) for i in size])
    return xp.where(xp.isfinite(full).all((0, 1)), full, xp.nan)


def inverse(xp: Any, matrix: Any) -> Any:
    """The inverse of positive definite matrices; not a number where they are not."""
    rows = inverse_entries(factor_entries(xp, matrix))
    return xp.stack([xp.stack(row) for row in rows]) if rows else matrix


def spectral(xp: Any, matrix: Any, function: Callable[[Any], Any]) -> Any:
    """A function of symmetric matrices: of their eigenvalues, with the same eigenvectors."""
    d = len(matrix)
    if d == 0:
        return matrix
    if d == 1:
        return function(matrix)
    if d == 2:
        return _of_two(xp, matrix, function)
    values, vectors = xp.linalg.eigh(xp.moveaxis(matrix, (0, 1), (-2, -1)))
    made = (vectors * function(values)[..., None, :]) @ xp.swapaxes(vectors, -1, -2)
    return xp.moveaxis(made, (-2, -1), (0, 1))


def _of_two(xp: Any, matrix: Any, function: Callable[[Any], Any]) -> Any:
    """By Sylvester's formula: f(A) = mean of f + slope of f (A - mean)."""
    (a, b), (_, c) = matrix
    middle = 0.5 * (a + c)
    reach = xp.hypot(0.5 * (a - c), b)
    low, high = function(middle - reach), function(middle + reach)
    apart = reach > 0.0
    slope = xp.where(apart, (high - low) / xp.where(apart, 2.0 * reach, 1.0), 0.0)
    at, side = 0.5 * (low + high), slope * (a - middle)
    return xp.stack([xp.stack([at + side, slope * b]), xp.stack([slope * b, at - side])])


def factor_entries(xp: Any, matrix: Any) -> list[list[Any]]:
    """The entries of the lower Cholesky factor, row by row; ``matrix[i][j]`` are arrays."""
    low: list[list[Any]] = []
    for i in range(len(matrix)):
        low.append([])
        for j in range(i + 1):
            rest = matrix[i][j]
            for m in range(j):
                rest = rest - low[i][m] * low[j][m]
            low[i].append(xp.sqrt(rest) if i == j else rest / low[j][j])
    return low


def inverse_entries(low: list[list[Any]]) -> list[list[Any]]:
    """The entries of the inverse of L L', row by row."""
    size = range(len(low))
    half: list[list[Any]] = [[None for _ in size] for _ in size]
    for j in size:  # the factor's inverse by forward substitution
        half[j][j] = 1.0 / low[j][j]
        for i in range(j + 1, len(low)):
            known = dot([low[i][m] for m in range(j, i)], [half[m][j] for m in range(j, i)])
            half[i][j] = -known / low[i][i]
    below = [
        [
            dot(*([half[m][c] for m in range(max(i, j), len(low))] for c in (i, j)))
            for j in range(i + 1)
        ]
        for i in size
    ]
    return [[below[max(i, j)][min(i, j)] for j in size] for i in size]


def dot(a: Any, b: Any) -> Any:
    """The sum of products; of none, 0."""
    total = None
    for x, y in zip(a, b, strict=True):
        total = x * y if total is None else total + x * y
    return 0.0 if total is None else total
