"""What an E-step leaves of one chunk of subjects, whatever the method, and the M-step's terms.

Every method runs the local pass at some places: one anchor per subject, or several nodes. Here is
what they share: passes at many nodes, and the sums over subjects (and nodes) that the M-step needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components.lanes import Theta
from avem.components.linear import CoefTerms
from avem.data.layout import Chunk
from avem.effects.quadratic import EffectTerms
from avem.models.kernel import Kernel, Local
from avem.numerics.devices import platform
from avem.numerics.jit import jit

_LANES_AT_ONCE = 1024
"""More at a time do not stay in the cache; fewer do not pay for the way there."""
_CELLS_AT_ONCE = 1 << 23
"""On a GPU, enough to keep all of it busy."""


class Totals(NamedTuple):
    """What the closed forms of the M-step need: sums over subjects. JAX arrays, then NumPy."""

    model: Any
    """The kernel's own."""
    effect_mean: Any
    effect_second: Any


class Spread(NamedTuple):
    """The covariance of q_i, where the next E-step reads more of q_i than its mean."""

    covariance: Array

    def shifted(self, shift: Array) -> Spread:
        """Itself: a shift from the effects into the coefficients leaves their covariance."""
        return self

    def stepped(self, towards: Spread, stride: np.ndarray) -> Spread:
        """Every subject's part of the way to another one."""
        return Spread(self.covariance + stride * (np.asarray(towards.covariance) - self.covariance))


def spread_of(theta: Theta, anchor: Array, around: Spread | None) -> Array:
    """(d, d, subject) covariance of q_i; before the first E-step, the prior's."""
    cov = theta["effect_covariance"][:, :, None] if around is None else around.covariance
    return jnp.broadcast_to(cov, (*cov.shape[:2], anchor.shape[1]))


class Kept(Protocol):
    """What an E-step keeps on the device for the M-step by Newton."""

    def coef_terms(self, kernel: Kernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        """A chunk's part of the M-step of theta[key]: value and derivatives, over the effects."""
        ...


class Pass(NamedTuple):
    """One chunk after the E-step. JAX arrays; NumPy's once Python looks at them."""

    mean: Any
    """Of every subject's effects."""
    covariance: Any
    loglik: Any
    """log p(D_i | anchor) of each subject, or log p(D_i) where the effects are integrated."""
    bound: Any
    """The method's objective for each subject."""
    around: Any
    """What the next E-step needs beside the mean: None, a `Spread`, or where to put nodes."""
    quality: Any
    """Effective number of nodes of each subject; None with one anchor."""
    totals: Totals
    kept: Any
    """A `Kept`; None: left behind for want of memory."""
    terms: tuple[CoefTerms, ...]
    """The first Newton step's, for each of the kernel's `newton_keys`."""


class Glance(NamedTuple):
    """What climbing to a mode reads of an E-step, as in `Pass`."""

    mean: Any
    covariance: Any
    loglik: Any


class Nodes(NamedTuple):
    """Values of the effects at which the local pass was run, and what came back."""

    at: Array
    """(node, d, subject)."""
    covariance: Array | None
    """(d, d, subject) of what is left uncertain at a node; None: nothing is."""
    share: Array
    """(node, subject) posterior weights, which sum to 1."""
    weighed: Local
    """Local passes (leading axis: node) times their shares."""

    def coef_terms(self, kernel: Kernel, key: str, coef: Array, chunk: Chunk) -> CoefTerms:
        """A sum over nodes; first, where what is summed is the same at all of them."""
        if not kernel.effects_act_on(key):
            whole = jax.tree.map(lambda part: part.sum(0), self.weighed)
            return kernel.coef_terms(key, coef, self.at[0], None, whole, chunk)
        each = over_nodes(
            lambda part, f: kernel.coef_terms(key, coef, f, self.covariance, part, chunk),
            (self.weighed, self.at),
            chunk,
        )
        return jax.tree.map(lambda part: part.sum(0), each)

    def pieces(self, chunk: Chunk) -> tuple[Piece, ...]:
        """Everyone."""
        return (Piece(np.arange(len(np.asarray(chunk.real))), chunk, self),)

    def moments(self) -> tuple[Array, Array]:
        """Posterior mean (d, subject) and second moment (d, d, subject)."""
        mean = (self.share[:, None] * self.at).sum(0)
        second = (self.share[:, None, None] * self.at[:, :, None] * self.at[:, None]).sum(0)
        return mean, second if self.covariance is None else second + self.covariance

    def quality(self) -> Array:
        """Effective number of nodes."""
        return 1.0 / (self.share**2).sum(0)


class Piece(NamedTuple):
    """Some subjects of a chunk after an E-step: who, their data, and the nodes."""

    members: Any
    chunk: Chunk
    nodes: Nodes


def over_nodes(function, stacked, chunk: Chunk):
    """`function` at every node (leading axis), as many at a time as pays."""
    n_lanes, n_nodes = chunk.valid.shape[-1], jax.tree.leaves(stacked)[0].shape[0]
    most = _LANES_AT_ONCE if platform() == "cpu" else _CELLS_AT_ONCE // len(chunk.valid)
    n_rounds = -(-n_nodes * n_lanes // max(most, 1))
    at_once = -(-n_nodes // n_rounds)
    # Whole rounds only: a smaller last one would be compiled on its own.
    order = np.minimum(np.arange(n_rounds * at_once), n_nodes - 1).reshape(n_rounds, at_once)
    rounds = jax.tree.map(lambda leaf: leaf[order], stacked)
    found = lax.map(lambda parts: jax.vmap(function)(*parts), rounds)
    # With the size written out: there may be no effects, and -1 says nothing of an empty array.
    size = n_rounds * at_once
    return jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:])[:n_nodes], found)


def effect_terms(kernel: Kernel, theta: Theta, f: Array, chunk: Chunk, form: str) -> EffectTerms:
    """Slopes of log p(D_i | f), by Fisher's identity, and the information with the states seen."""
    local = kernel.local(theta, f, chunk, form)
    return kernel.effect_terms(theta, f, None, local, kernel.quadratic(theta, local), chunk)


def local_at_nodes(kernel: Kernel, theta: Theta, at: Array, chunk: Chunk, form: str) -> Local:
    """The local pass at every node."""
    return over_nodes(lambda f: kernel.local(theta, f, chunk, form), (at,), chunk)


def weigh(kernel: Kernel, local: Local, share: Array, chunk: Chunk) -> Local:
    """Local passes at nodes times the nodes' shares."""
    return jax.vmap(lambda part, s: kernel.weigh(part, s, chunk))(local, share)


def counted(kernel: Kernel, local: Local, chunk: Chunk) -> Local:
    """A local pass in which every subject counts by its weight."""
    return local if chunk.weight is None else kernel.weigh(local, chunk.weight, chunk)


def counts(chunk: Chunk) -> Array:
    """(subject,) how much each counts; 0 for padding."""
    real = jnp.asarray(chunk.real, float)
    return real if chunk.weight is None else jnp.where(chunk.real, chunk.weight, 0.0)


def sums_at_nodes(kernel: Kernel, nodes: Nodes, chunk: Chunk) -> Totals:
    """The M-step's sums over subjects and nodes."""
    n_nodes, d, n = nodes.at.shape
    # Every node of every subject counts like a subject of its own.
    flat = jnp.moveaxis(nodes.at, 0, 1).reshape(d, n_nodes * n)
    cov = None if nodes.covariance is None else jnp.tile(nodes.covariance, (1, 1, n_nodes))

    def merged(leaf: Array) -> Array:
        moved = jnp.moveaxis(leaf, 0, -2)
        return moved.reshape(*moved.shape[:-2], moved.shape[-2] * moved.shape[-1])

    mean, second = nodes.moments()
    return Totals(
        model=kernel.sums(jax.tree.map(merged, nodes.weighed), flat, cov, chunk),
        effect_mean=_total(mean, chunk),
        effect_second=_total(second, chunk),
    )


def _total(values: Array, chunk: Chunk) -> Array:
    """The sum over subjects (last axis)."""
    counting = values if chunk.weight is None else values * chunk.weight
    return jnp.where(chunk.real, counting, 0.0).sum(-1)


def pass_at_nodes(
    kernel: Kernel, theta: Theta, nodes: Nodes, loglik: Array, bound: Array, chunk: Chunk
) -> Pass:
    """The E-step by weighed nodes."""
    mean, second = nodes.moments()
    if chunk.weight is not None:
        nodes = nodes._replace(
            weighed=jax.vmap(lambda part: counted(kernel, part, chunk))(nodes.weighed)
        )
    kept = nodes._replace(weighed=kernel.needed_by_newton(nodes.weighed))
    return Pass(
        mean=mean,
        covariance=second - mean[:, None] * mean[None],
        loglik=jnp.where(chunk.real, loglik, 0.0),
        bound=jnp.where(chunk.real, bound, 0.0),
        around=None,
        quality=nodes.quality(),
        totals=sums_at_nodes(kernel, nodes, chunk),
        kept=kept,
        terms=first_terms(kernel, theta, kept, chunk),
    )


def first_terms(kernel: Kernel, theta: Theta, kept: Kept, chunk: Chunk) -> tuple[CoefTerms, ...]:
    """The terms of the first Newton step, for each of the kernel's `newton_keys`."""
    return tuple(kept.coef_terms(kernel, key, theta[key], chunk) for key in kernel.newton_keys)


@jit("kernel", "key")
def coef_pass(kernel: Kernel, key: str, coef: Array, kept: Kept, chunk: Chunk) -> CoefTerms:
    """The terms of a further Newton step."""
    return kept.coef_terms(kernel, key, coef, chunk)


@jit("kernel", "key")
def coef_height(kernel: Kernel, key: str, coef: Array, kept: Kept, chunk: Chunk) -> Array:
    """The value alone of `coef_pass`."""
    return kept.coef_terms(kernel, key, coef, chunk).value
