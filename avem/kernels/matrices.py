"""Small matrices, many at once, written as one writes matrices: ``A @ B.T + C``.

There are two kinds with the same operations. `Unrolled` has one array per entry, each over the
batch: a compiler makes one loop over the batch of all that is done with them, which for 2 x 2 is
several times faster than a general product of batches. `Batched` has one array, and is for those
whose unrolled products would be long to compile. `pack` chooses. A vector is a matrix with one
column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from avem.numerics.small import dot, factor_entries, inverse_entries

_LARGEST = 6
_MOST_ENTRIES = 48


def pack(array: Float[Array, "*time i j n"], alike: Matrix | None = None) -> Matrix:
    """Matrices from an array whose last axis is the batch; of the kind of `alike` if given."""
    if alike is not None:
        return alike.of(array)
    rows, columns = array.shape[-3:-1]
    small = min(rows, columns) <= _LARGEST and rows * columns <= _MOST_ENTRIES
    return Unrolled.of(array) if small else Batched.of(array)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Unrolled:
    """Entries apart: a tuple of rows, each a tuple of arrays over the batch."""

    entries: tuple[tuple[Array, ...], ...]

    @classmethod
    def of(cls, array: Float[Array, "*time i j n"]) -> Unrolled:
        """The matrices of an array whose last axis is the batch."""
        rows, columns = map(range, array.shape[-3:-1])
        return cls(tuple(tuple(array[..., i, j, :] for j in columns) for i in rows))

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """For JAX."""
        return self.entries, None

    @classmethod
    def tree_unflatten(cls, _: None, entries: Any) -> Unrolled:
        """For JAX."""
        return cls(tuple(entries))

    def unpack(self) -> Float[Array, "*time i j n"]:
        """The inverse of `of`."""
        return jnp.stack([jnp.stack(row, axis=-2) for row in self.entries], axis=-3)

    def _each(self, function: Any, *others: Unrolled) -> Unrolled:
        together = zip(self.entries, *(other.entries for other in others), strict=True)
        return Unrolled(
            tuple(tuple(function(*cells) for cells in zip(*rows, strict=True)) for rows in together)
        )

    def __add__(self, other: Any) -> Unrolled:
        return self._each(lambda a, b: a + b, other)

    def __sub__(self, other: Any) -> Unrolled:
        return self._each(lambda a, b: a - b, other)

    def __matmul__(self, other: Any) -> Unrolled:
        columns = list(zip(*other.entries, strict=True))
        return Unrolled(
            tuple(tuple(dot(row, column) for column in columns) for row in self.entries)
        )

    @property
    def T(self) -> Unrolled:
        """The transpose."""
        return Unrolled(tuple(zip(*self.entries, strict=True)))

    def scaled(self, rows: Any) -> Unrolled:
        """Every row times an entry of the column `rows`."""
        pairs = zip(self.entries, rows.entries, strict=True)
        return Unrolled(tuple(tuple(a * unit for a in row) for row, (unit,) in pairs))

    def where(self, mask: Bool[Array, " n"], other: Any = None) -> Unrolled:
        """These matrices where `mask`, and the others, or 0, elsewhere."""
        if other is None:
            return self._each(lambda a: jnp.where(mask, a, 0.0))
        return self._each(lambda a, b: jnp.where(mask, a, b), other)

    def dot(self, other: Any) -> Array:
        """The sum of the products of all entries: tr A'B."""
        mine = [a for row in self.entries for a in row]
        return dot(mine, [b for row in other.entries for b in row])

    def row_dots(self, other: Any) -> Unrolled:
        """The sums of the products of the entries of each row, as a column."""
        pairs = zip(self.entries, other.entries, strict=True)
        return Unrolled(tuple((dot(mine, theirs),) for mine, theirs in pairs))

    def cholesky(self) -> Unrolled:
        """The lower factor."""
        zero, low = jnp.zeros_like(self.entries[0][0]), factor_entries(jnp, self.entries)
        size = range(len(low))
        return Unrolled(tuple(tuple(low[i][j] if j <= i else zero for j in size) for i in size))

    def inverse_and_logdet(self) -> tuple[Unrolled, Array]:
        """Of positive definite matrices."""
        low = factor_entries(jnp, self.entries)
        rows = tuple(tuple(row) for row in inverse_entries(low))
        pivots = low[0][0]
        for i in range(1, len(low)):
            pivots = pivots * low[i][i]
        return Unrolled(rows), 2.0 * jnp.log(pivots)


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Batched:
    """One array, the batch in front of the matrices."""

    array: Float[Array, "*time n i j"]

    @classmethod
    def of(cls, array: Float[Array, "*time i j n"]) -> Batched:
        """The matrices of an array whose last axis is the batch."""
        return cls(jnp.moveaxis(array, -1, -3))

    def tree_flatten(self) -> tuple[tuple[Array], None]:
        """For JAX."""
        return (self.array,), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: Any) -> Batched:
        """For JAX."""
        return cls(*leaves)

    def unpack(self) -> Float[Array, "*time i j n"]:
        """The inverse of `of`."""
        return jnp.moveaxis(self.array, -3, -1)

    def __add__(self, other: Any) -> Batched:
        return Batched(self.array + other.array)

    def __sub__(self, other: Any) -> Batched:
        return Batched(self.array - other.array)

    def __matmul__(self, other: Any) -> Batched:
        return Batched(self.array @ other.array)

    @property
    def T(self) -> Batched:
        """The transpose."""
        return Batched(jnp.swapaxes(self.array, -1, -2))

    def scaled(self, rows: Any) -> Batched:
        """Every row times an entry of the column `rows`."""
        return Batched(self.array * rows.array)

    def where(self, mask: Bool[Array, " n"], other: Any = None) -> Batched:
        """These matrices where `mask`, and the others, or 0, elsewhere."""
        elsewhere = 0.0 if other is None else other.array
        return Batched(jnp.where(mask[..., None, None], self.array, elsewhere))

    def dot(self, other: Any) -> Array:
        """The sum of the products of all entries: tr A'B."""
        return (self.array * other.array).sum((-2, -1))

    def row_dots(self, other: Any) -> Batched:
        """The sums of the products of the entries of each row, as a column."""
        return Batched((self.array * other.array).sum(-1, keepdims=True))

    def inverse_and_logdet(self) -> tuple[Batched, Array]:
        """Of positive definite matrices."""
        factor = jnp.linalg.cholesky(self.array)
        half = jnp.linalg.inv(factor)
        logdet = 2.0 * jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
        return Batched(jnp.swapaxes(half, -1, -2) @ half), logdet


Matrix = Unrolled | Batched
