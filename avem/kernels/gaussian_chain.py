"""Forward-backward over chains with Gaussian outcomes: rows of data in, sums over time out.

A row has the numbers v = (1, a, y): a one, design columns and outcomes. In state k its log density
is a sum of squares of residuals, and what is wanted of the state probabilities are sums of products
of the row's numbers. Both are described by short lists (`Lists`), so that one engine serves every
Gaussian model, and nothing of the size of a table need leave it:

    r_j = y_j - sum of coef[k, j, c] a_c  over the columns c
    log density = sum of constant[k, g]  over the groups g that are seen
                  - sum of weight[k, q] r_i r_j  over the terms q = (g, i, j) of such groups
    sums[k, f] = sum over time of p(U_t = k) v_l v_r,  for the features f = (g, l, r), if g is seen
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float

from avem.kernels import forward_backward as chains
from avem.kernels.dispatch import engine
from avem.kernels.forward import ByCell, rows_of
from avem.kernels.forward_backward import Steps

Triple = tuple[int, int, int]


@dataclass(frozen=True)
class Lists:
    """Which numbers of a row are combined, and how. Hashable."""

    columns: tuple[int, ...]
    """Design columns."""
    groups: tuple[int, ...]
    """Columns of `seen`."""
    terms: tuple[Triple, ...]
    """(column of `seen`, outcome, outcome)."""
    features: tuple[Triple, ...]
    """(column of `seen`, number of the row, number of the row)."""
    constant: int = -1
    """The design column that is 1 wherever something was seen, which need not be read; or none."""

    def arrays(self) -> tuple[np.ndarray, ...]:
        """As integers of four bytes: (column,), (group,), (term, 3), (feature, 3)."""
        shapes = ((-1,), (-1,), (-1, 3), (-1, 3))
        lists = (self.columns, self.groups, self.terms, self.features)
        return tuple(
            np.array(own, np.int32).reshape(shape) for own, shape in zip(lists, shapes, strict=True)
        )


class Squares(NamedTuple):
    """Log densities of Gaussian outcomes: squares of residuals, as the lists combine them."""

    lists: Lists
    coef: Float[Array, "state outcome column lane"]
    """Of all outcomes of the data, 0 for those of others; one lane: the same for all."""
    constant: Float[Array, "state group"]
    weight: Float[Array, "state term"]


class Records(NamedTuple):
    """The data."""

    a: Float[Array, "time column lane"]
    y: Float[Array, "time outcome lane"]
    seen: Bool[Array, "time group lane"]
    valid: Bool[Array, "time lane"]

    @classmethod
    def of(cls, chunk: Any) -> Records:
        """Of everything that has arrays of these names."""
        return cls(chunk.a, chunk.y, chunk.seen, chunk.valid)


class ChainSums(NamedTuple):
    """What is left of the chains of all lanes."""

    loglik: Float[Array, " lane"]
    first: Float[Array, "state lane"]
    """p(U_1 = k | D, f)."""
    pair: Float[Array, "cell state state lane"]
    sums: Float[Array, "state feature lane"]


def smooth(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"] | ByCell,
    squares: Squares,
    rows: Records,
    form: str = "scaled",
    steps: Steps | None = None,
) -> ChainSums:
    """Log likelihoods, and sums over the posterior state probabilities; see `forward_backward`."""
    steps = Steps() if steps is None else steps
    run = None
    if form == "scaled":
        states, outcomes = squares.coef.shape[:2]
        sizes = {"features": len(squares.lists.features), "cells": steps.n_cells}
        sizes |= {"times": len(rows.valid), "lanes": rows.valid.shape[-1]}
        sizes["together"] = int(steps.together)
        dtype = squares.coef.dtype
        run = engine("gaussian_chain", dtype, states=states, outcomes=outcomes, **sizes)
    if run is None and steps.together:
        apart = smooth(initial, transition, squares, rows, form, Steps(None, 0))
        return apart._replace(pair=chains.by_cell(apart.pair, steps))
    if run is None:
        return definition(initial, rows_of(transition), squares, rows, steps, form)
    return ChainSums(*run(initial, transition, squares, rows, steps))


def definition(
    initial: Float[Array, "state *lane"],
    transition: Float[Array, "*time state state *lane"],
    squares: Squares,
    rows: Records,
    steps: Steps,
    form: str = "scaled",
) -> ChainSums:
    """What `smooth` computes, by a table."""
    table = log_densities(squares, rows)
    found = chains.smooth(initial, transition, table, rows.valid, form, steps)
    sums = weighed_products(squares.lists, found.state, rows)
    return ChainSums(found.loglik, found.state[0], found.pair, sums)


def log_densities(squares: Squares, rows: Records) -> Float[Array, "time state lane"]:
    """Log density of every row in every state; 0 where nothing was seen."""
    lists = squares.lists
    by_state = []
    for coef, constant, weight in zip(*squares[1:], strict=True):
        r = {}
        for j in sorted({j for _, *pair in lists.terms for j in pair}):
            slopes = zip(coef[j], lists.columns, strict=True)
            r[j] = rows.y[:, j] - sum((own * rows.a[:, c] for own, c in slopes), 0.0)
        of_group: dict[int, Any] = dict.fromkeys(lists.groups, 0.0)
        for g, own in zip(lists.groups, constant, strict=True):
            of_group[g] = of_group[g] + own
        for (g, i, j), own in zip(lists.terms, weight, strict=True):
            of_group[g] = of_group[g] - own * (r[i] * r[j])
        shown = [jnp.where(rows.seen[:, g], total, 0.0) for g, total in of_group.items()]
        by_state.append(sum(shown[1:], shown[0]))
    return jnp.stack(by_state, 1)


def weighed_products(
    lists: Lists, state: Float[Array, "time state lane"], rows: Records
) -> Float[Array, "state feature lane"]:
    """Sums over time of state probability x product, for every feature."""
    group = np.array([g for g, _, _ in lists.features], int)

    def add(total, now):
        state_t, y, a, seen = now
        # One row at a time: gathers of rows inside the loop were once compiled wrongly.
        numbers = [jnp.ones_like(state_t[0]), *a, *y]
        products = jnp.stack([numbers[left] * numbers[right] for _, left, right in lists.features])
        products = jnp.where(seen[group], products, 0.0)
        return total + state_t[:, None] * products[None], None

    nothing = jnp.zeros((state.shape[1], len(lists.features), state.shape[2]), state.dtype)
    # A scan adds the steps in order, so that padding cannot change the last bit.
    return lax.scan(add, nothing, (state, rows.y, rows.a, rows.seen))[0]


def together(several: Sequence[Squares]) -> Squares:
    """Outcomes that are independent given the state, as one."""
    if len(several) == 1:
        return several[0]
    lists = [one.lists for one in several]
    columns = sorted({c for own in lists for c in own.columns})
    coef: Any = 0.0
    for one in several:
        place = np.array(one.lists.columns)[:, None] == np.array(columns)
        coef += jnp.einsum("kjcn,cm->kjmn", one.coef, place.astype(one.coef.dtype))
    return Squares(
        Lists(
            tuple(columns),
            tuple(group for own in lists for group in own.groups),
            tuple(term for own in lists for term in own.terms),
            tuple(feature for own in lists for feature in own.features),
            lists[0].constant,
        ),
        coef,
        jnp.concatenate([one.constant for one in several], 1),
        jnp.concatenate([one.weight for one in several], 1),
    )
