"""Gaussian emissions: y_t | state k, effect f ~ N(B_k x_t + F z_t, V_k).

`B_k` (outcomes x terms) are the state's fixed coefficients, `F` (outcomes x effect terms) is the
subject's effect laid out as a matrix, and `V_k` is spherical, diagonal or full. With x = z = 1 this
is the paper's eq. (gauss_case).

All that inference needs of a subject's data, given the state probabilities, is a handful of
weighted sums of products of the design columns and the outcomes, *moments*. From these, the
expected log density is an explicit quadratic in the effect (`effect_quadratic`) and the M-step is a
weighted regression (`accumulate`, then `regressions`): each iteration reads the data once.

Missing cells: the outcomes are split into *groups* that are seen or missing together; a group that
is not seen at a step has weight 0 there. With a spherical or diagonal covariance each outcome can
be its own group; with a full one the groups are the patterns of observed outcomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from avem.components.gaussian_regressions import Regressions, Sums
from avem.data.layout import Chunk
from avem.families.gaussian import Gaussian
from avem.kernels import gaussian_chain as chain
from avem.numerics.small import contract


@dataclass(frozen=True)
class GaussianKernel:
    """The Gaussian formulas for one shape of model; hashable, so that jit can key on it."""

    family: Gaussian
    n_states: int
    n_outcomes: int
    x_cols: tuple[int, ...]
    z_cols: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    effects: tuple[tuple[int, ...], ...]
    """For every state, the place in f of each effect, by outcome, then by `z_cols`."""
    n_effects: int
    """Of the whole model: the length of f."""

    @property
    def n_own_effects(self) -> int:
        """How many effects act in one state."""
        return len(self.effects[0])

    @property
    def _shared(self) -> bool:
        return len(set(self.effects)) == 1

    @property
    def _effects_apart(self) -> tuple[tuple[int, ...], ...]:
        """The effects that act in every state; one state for all when they are shared."""
        return self.effects[:1] if self._shared else self.effects

    # --- features: the products of design columns and outcomes that are summed over time --------

    @cached_property
    def _features(self) -> dict[tuple[str, int, int, int], int]:
        """Number of each product: (kind, group, i, j), kind by kind.

        Kinds: "1" the weight alone, "aa" two design columns, "ay" a column and an outcome, "yy" two
        outcomes.
        """
        columns = self._columns
        full = self.family.covariance == "full"
        pairs = {
            "1": lambda members: [(0, 0)],
            "aa": lambda members: [(i, j) for i in columns for j in columns if i <= j],
            "ay": lambda members: [(i, j) for i in columns for j in members],
            "yy": lambda members: [
                (i, j) for i in members for j in members if i == j or (full and i < j)
            ],
        }
        keys = [
            (kind, g, i, j)
            for kind, of_group in pairs.items()
            for g, members in enumerate(self.groups)
            for i, j in of_group(members)
        ]
        return {key: number for number, key in enumerate(keys)}

    def _index(self, kind: str, rows: tuple[int, ...], cols: tuple[int, ...]) -> np.ndarray:
        """(group, rows, cols) feature numbers; products that are not kept point past the end."""
        nowhere = len(self._features)

        def number(g: int, i: int, j: int) -> int:
            swapped = kind != "ay" and i > j
            return self._features.get((kind, g, *((j, i) if swapped else (i, j))), nowhere)

        groups = range(len(self.groups))
        found = [[[number(g, i, j) for j in cols] for i in rows] for g in groups]
        return np.array(found, int).reshape(len(groups), len(rows), len(cols))

    def _take(self, moments: Array, index: np.ndarray) -> Array:
        return _with_zeros(moments, 1)[:, index]

    # --- densities ------------------------------------------------------------------------------

    def _precision(self, covariance: Array) -> tuple[Array, Array]:
        """Precision of each group's outcomes, 0 outside them, and the log density's constant."""
        p = self.n_outcomes
        precisions, constants = [], []
        for members in self.groups:
            member = np.zeros(p, bool)
            member[list(members)] = True
            inside = np.outer(member, member)
            if self.family.covariance == "full":
                # Outcomes outside the group are replaced by independent unit-variance ones.
                filled = jnp.where(inside, covariance, jnp.eye(p))
                factor = jnp.linalg.cholesky(filled)
                half = jnp.linalg.inv(factor)
                inverse = jnp.swapaxes(half, 1, 2) @ half
                logdet = 2.0 * jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)).sum(-1)
            else:
                variance = jnp.diagonal(covariance, axis1=1, axis2=2)
                inverse = jnp.eye(p) / variance[:, :, None]
                logdet = jnp.where(member, jnp.log(variance), 0.0).sum(-1)
            precisions.append(jnp.where(inside, inverse, 0.0))
            constants.append(-0.5 * (len(members) * jnp.log(2.0 * jnp.pi) + logdet))
        return jnp.stack(precisions, 1), jnp.stack(constants, 1)

    @property
    def _columns(self) -> list[int]:
        return sorted({*self.x_cols, *self.z_cols})

    @property
    def _terms(self) -> list[tuple[int, int, int]]:
        """(group, outcome, outcome) of the squares in the log density."""
        return [(g, i, j) for kind, g, i, j in self._features if kind == "yy"]

    def _weights(self, precision: Array) -> list[Array]:
        """(state,) of every term: both of a pair of outcomes at once."""
        return [precision[:, g, i, j] * (0.5 if i == j else 1.0) for g, i, j in self._terms]

    def lists(
        self,
        y_cols: tuple[int, ...],
        seen_cols: tuple[int, ...],
        n_columns: int,
        constant: int = -1,
    ) -> chain.Lists:
        """What is combined of a row; the arguments say where a chunk has this emission's parts."""
        row = {
            "1": lambda i: 0,
            "a": lambda i: 1 + i,
            "y": lambda i: 1 + n_columns + y_cols[i],
        }
        return chain.Lists(
            columns=tuple(self._columns),
            groups=seen_cols,
            terms=tuple((seen_cols[g], y_cols[i], y_cols[j]) for g, i, j in self._terms),
            features=tuple(
                (seen_cols[g], row[kind[0]](i), row[kind[-1]](j))
                for kind, g, i, j in self._features
            ),
            constant=constant,
        )

    def squares(
        self,
        coef: Float[Array, "state outcome term"],
        covariance: Float[Array, "state outcome outcome"],
        f: Float[Array, "d lane"],
        lists: chain.Lists,
        y_cols: tuple[int, ...],
        n_outcomes: int,
    ) -> chain.Squares:
        """Densities of rows when every lane has its effect."""
        precision, constant = self._precision(covariance)
        slopes = self._slopes(coef, f, y_cols, n_outcomes)
        return chain.Squares(lists, slopes, constant, jnp.stack(self._weights(precision), 1))

    def _slopes(
        self, coef: Array, f: Array, y_cols: tuple[int, ...], n_outcomes: int
    ) -> Float[Array, "state outcome column lane"]:
        """Of every outcome on every column: fixed coefficient plus effect."""
        columns, states = self._columns, self._effects_apart
        outcome = _places(y_cols, range(n_outcomes))[:, None]
        fixed = _with_zeros(coef, 1, 2)[:, outcome, _places(self.x_cols, columns)][..., None]
        if not self.n_own_effects:
            return fixed
        own = np.reshape(states, (len(states), len(y_cols), len(self.z_cols)))
        own = np.pad(own, ((0, 0), (0, 1), (0, 1)), constant_values=self.n_effects)
        return fixed + _with_zeros(f, 0)[own[:, outcome, _places(self.z_cols, columns)]]

    def expected_loss(
        self,
        covariance: Array,
        cov: Float[Array, "d d lane"],
        seen_cols: tuple[int, ...],
        chunk: Chunk,
    ) -> Float[Array, "time state lane"]:
        """By how much log densities are lower on average, when effects have that covariance."""
        weights = self._weights(self._precision(covariance)[0])
        z = [chunk.a[:, c] for c in self.z_cols]
        by_state = []
        for k in range(self.n_states):
            total = 0.0
            for (g, i, j), weight in zip(self._terms, weights, strict=True):
                spread = weight[k] * self._spread(cov, k, i, j, z)
                total += jnp.where(chunk.seen[:, seen_cols[g]], spread, 0.0)
            by_state.append(total)
        return jnp.stack(by_state, 1)

    def _spread(self, cov: Array, k: int, i: int, j: int, z: list[Array]) -> Array:
        """Covariance of the effects' part of outcomes i and j in state k, row by row."""
        n = len(z)
        rows, cols = self.effects[k][i * n : (i + 1) * n], self.effects[k][j * n : (j + 1) * n]
        parts = [z[a] * z[b] * cov[rows[a], cols[b]] for a in range(n) for b in range(n)]
        return sum(parts, jnp.zeros_like(cov[0, 0]))

    # --- the effect, given the states -----------------------------------------------------------

    def effect_quadratic(
        self, coef: Array, covariance: Array, moments: Float[Array, "state feature subject"]
    ) -> tuple[Float[Array, "d d subject"], Float[Array, "d subject"]]:
        """Lambda and h: E[log p(D, U | f)] = h'f - f'Lambda f / 2 + constant, for every subject."""
        precision, _ = self._precision(covariance)
        zz, zx, zy = (self._take(moments, self._places[of]) for of in ("zz", "zx", "zy"))
        n = moments.shape[-1]
        states = "" if self._shared else "k"  # shared effects: sum over the states at once
        quadratic = contract(jnp, f"kgij,kgabn->{states}iajbn", precision, zz)
        # The precision couples outcome i of the effect with the residual of outcome j.
        residual = zy - contract(jnp, "kjm,kgamn->kgajn", coef, zx)
        linear = contract(jnp, f"kgij,kgajn->{states}ian", precision, residual)
        at = np.array(self._effects_apart, int)
        own = at.shape[1]
        quadratic = quadratic.reshape(len(at), own, own, n)
        linear = linear.reshape(len(at), own, n)
        if np.array_equal(at, [np.arange(self.n_effects)]):
            return quadratic[0], linear[0]
        # A product with 0s and 1s puts every entry in its place, without a scatter.
        place = jnp.asarray(at[:, :, None] == np.arange(self.n_effects), quadratic.dtype)
        return (
            jnp.einsum("kabn,kad,kbe->den", quadratic, place, place),
            jnp.einsum("kan,kad->dn", linear, place),
        )

    # --- M-step ---------------------------------------------------------------------------------

    def accumulate(
        self,
        moments: Float[Array, "state feature subject"],
        mean: Float[Array, "d subject"],
        second_moment: Float[Array, "d d subject"],
    ) -> Float[Array, "state feature product"]:
        """Sums over subjects of moments times 1, E_q[f] and E_q[f f']: all that an M-step needs."""
        d, n = mean.shape
        factors = jnp.concatenate([jnp.ones((1, n)), mean, second_moment.reshape(d * d, n)])
        return jnp.einsum("kfn,pn->kfp", moments, factors)

    def read(self, products: np.ndarray) -> Sums:
        """What was accumulated, as the M-step reads it."""
        n_states, n_features, n_products = products.shape
        d, at = self.n_effects, self._places
        found = np.zeros((n_states, n_features + 1, n_products))  # the last is what is not kept
        found[:, :-1] = products
        plain, once = found[..., 0], found[..., 1 : 1 + d]
        twice = found[..., 1 + d :].reshape(n_states, n_features + 1, d, d)
        # Axes: state, group, outcome, term of an effect; then outcome and term, or what is needed.
        k, own, other = self._own_places
        by_x = once[k, at["zx"][None, :, None], own].sum(3)
        by_y = once[k, at["zy"][None, :, None], own].sum(3)
        pairs = at["zz"][None, :, None, :, None]
        square = twice[k[..., None], pairs, own[..., None], other].sum((3, 5))
        return Sums(
            weight=plain[:, at["1"][:, 0, 0]],
            xx=plain[:, at["xx"]],
            xr=np.swapaxes(plain[:, at["xy"]], 2, 3) - by_x,
            rr=plain[:, at["yy"]] - by_y - np.swapaxes(by_y, 2, 3) + square,
        )

    @cached_property
    def _own_places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """States, and the effects that act in each, as indices that broadcast."""
        k, p, e = self.n_states, self.n_outcomes, len(self.z_cols)
        own = np.array(self.effects, int).reshape(k, 1, p, e, 1)
        return np.arange(k).reshape(-1, 1, 1, 1, 1), own, own.reshape(k, 1, 1, 1, p, e)

    @cached_property
    def _places(self) -> dict[str, np.ndarray]:
        """(group, row, column) of features, for products of x, z and outcomes."""
        cols = {"x": self.x_cols, "z": self.z_cols, "y": tuple(range(self.n_outcomes))}
        kinds = {"xx": "aa", "zz": "aa", "zx": "aa", "xy": "ay", "zy": "ay", "yy": "yy"}
        found = {of: self._index(kind, cols[of[0]], cols[of[1]]) for of, kind in kinds.items()}
        return {**found, "1": self._index("1", (0,), (0,))}

    @property
    def regressions(self) -> Regressions:
        """The M-step."""
        return Regressions(self.family.covariance, self.groups, self.n_outcomes)


def _places(of: Sequence[int], among: Sequence[int]) -> np.ndarray:
    """Where each of `among` stands in `of`; past its end if it does not."""
    return np.array([of.index(own) if own in of else len(of) for own in among], int)


def _with_zeros(array: Array, *axes: int) -> Array:
    """With zeros past the end of some axes: what is in its place need not be asked first."""
    return jnp.pad(array, [(0, int(axis in axes)) for axis in range(array.ndim)])
