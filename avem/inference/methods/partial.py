"""Partial anchoring (the paper's Section 7): some effects anchored, the others integrated.

The effects are split into f = (a, b). Every subject has one anchor for a, and nodes for b that are
weighed by p(D_i, b_j | a0); q_i(a) is then updated as in AVEM, with the expected log likelihood
averaged over the nodes. The nodes are first those of the prior of b given the anchor, as in the
paper, then those of a Gaussian with the posterior's moments, so that few are enough. With nothing
integrated this is AVEM; with everything integrated it is EM on the marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.components.param_info import check_count
from avem.data.layout import Chunk
from avem.effects.posterior import GaussianQ, update_by_newton, update_from_quadratic
from avem.effects.prior import EffectDensity, log_joint
from avem.effects.quadratic import EffectTerms, Quadratic
from avem.errors import ModelError
from avem.inference.after.diagnose import diffuse_effects
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.anchored import TO_THE_END
from avem.inference.methods.avem import check_q_update
from avem.inference.methods.base import EStep, Method
from avem.inference.methods.prior_nodes import check_grid
from avem.inference.passes import Nodes, Pass, local_at_nodes, over_nodes, pass_at_nodes, weigh
from avem.inference.tuning import NARROW, PRIOR_NODES
from avem.kernels.inverse import cholesky, inverse_and_logdet
from avem.models.kernel import Kernel, Local
from avem.numerics.jit import jit
from avem.numerics.nodes import gauss_hermite

AUTO = "auto"


@dataclass(frozen=True)
class Partial(Method):
    """Partial anchoring: some effects anchored, the others integrated.

    Parameters
    ----------
    unanchored : str or sequence of str
        Names of the effects to integrate (as in `fit.effects()`); ``"auto"``: those whose posterior
        is much wider than q.
    n_nodes : int
        Gauss-Hermite nodes per integrated effect.
    q_update : {"laplace", "quadrature"}
        As in `AVEM`, for the anchored effects.

    Examples
    --------
    >>> avem.Partial(unanchored="valence: Intercept").unanchored
    ('valence: Intercept',)
    """

    unanchored: str | Sequence[str] = AUTO
    n_nodes: int = PRIOR_NODES
    q_update: Literal["laplace", "quadrature"] = "laplace"

    word = "partial"
    anchors_first = True

    def __post_init__(self) -> None:
        check_count("n_nodes", self.n_nodes)
        check_q_update(self.q_update)
        object.__setattr__(self, "n_nodes", int(self.n_nodes))
        if self.unanchored != AUTO:
            one = isinstance(self.unanchored, str)
            names = (self.unanchored,) if one else tuple(self.unanchored)
            object.__setattr__(self, "unanchored", names)

    @property
    def q_of_start(self) -> str:
        """Its own."""
        return self.q_update

    def check(self, effect_names: Sequence[str], plain: bool) -> None:
        """The names are those of effects, and the nodes not too many."""
        if self.unanchored == AUTO:
            return
        unknown = [name for name in self.unanchored if name not in effect_names]
        if unknown:
            known = ", ".join(effect_names) or "none"
            raise ModelError(f"unanchored has {unknown}; the effects are {known}.")
        check_grid(len(self.unanchored), self.n_nodes)

    def decided(self, em: EM, state: State, effect_names: Sequence[str]) -> Method:
        """With the names of the effects that are integrated."""
        if self.unanchored != AUTO:
            return self
        return replace(self, unanchored=[effect_names[e] for e in diffuse_effects(em.e, state)])

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """Nodes of the integrated effects, which stay with the prior in the paper's iteration."""
        at = {list(effect_names).index(name) for name in self.unanchored}
        return PartialNodes.make(tuple(sorted(at)), self.n_nodes, self.q_update, not plain)


@dataclass(frozen=True, eq=False)
class PartialNodes(EStep):
    """Anchor all effects but the `unanchored` ones."""

    unanchored: tuple[int, ...]
    points: np.ndarray
    """(nodes, unanchored effects) as if their prior were standard normal."""
    log_weights: np.ndarray
    q_update: str = "laplace"
    follow: bool = True
    """Nodes follow the posterior; otherwise they stay with the prior."""

    has_q = True

    @classmethod
    def make(
        cls, unanchored: tuple[int, ...], n_nodes: int, q_update: str = "laplace", follow=True
    ) -> PartialNodes:
        """Gauss-Hermite nodes of the effects with these numbers."""
        points, weights = gauss_hermite(len(unanchored), n_nodes)
        return cls(unanchored, points, np.log(weights), q_update, follow)

    @property
    def nodes_stay(self) -> bool:
        """They follow only while the parameters travel."""
        return True

    @property
    def n_nodes(self) -> int:
        """Local passes per subject."""
        return len(self.points)

    def heights(self, p: Pass, anchor: np.ndarray, theta: Theta) -> np.ndarray:
        """Of log p(D_i, a), which every step raises; the bound is not highest where they end."""
        a = np.setdiff1d(np.arange(len(anchor)), self.unanchored)
        sigma = np.asarray(theta["effect_covariance"])[np.ix_(a, a)]
        return log_joint(np.asarray(p.loglik), EffectDensity.of(sigma), np.asarray(anchor)[a])

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at the anchor and all nodes, and the new q_i of the anchored effects."""
        centre = None
        if around is not None and self.follow:
            centre = around.under(np.asarray(theta["effect_covariance"]))
        return _pass(
            kernel,
            theta,
            anchor,
            centre,
            self.points,
            self.log_weights,
            chunk,
            form,
            self.unanchored,
            self.q_update,
            TO_THE_END,
        )


@jit("kernel", "form", "b", "q_update")
def _pass(
    kernel: Kernel,
    theta: Theta,
    anchor: Array,
    centre: Centres | None,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
    b: tuple[int, ...],
    q_update: str,
    newton_steps: int,
) -> Pass:
    split = _Split(tuple(e for e in range(len(anchor)) if e not in b), b)
    prior = jnp.linalg.inv(theta["effect_covariance"])
    at_b, correction = split.nodes(prior, anchor, centre, points)
    local = local_at_nodes(kernel, theta, split.joined(anchor[split.a_at], at_b), chunk, form)
    height = log_weights[:, None] + local.loglik + correction
    mass = logsumexp(height, axis=0)
    share = jnp.exp(height - mass)
    weighed = weigh(kernel, local, share, chunk)
    averaged = _Averaged(kernel, theta, split, at_b, weighed, chunk)
    if not split.a:
        found = pass_at_nodes(kernel, theta, Nodes(at_b, None, share, weighed), mass, mass, chunk)
        return found._replace(around=averaged.centre(prior, anchor[:0], found))
    q, gain = averaged.update(prior, anchor, share, q_update, newton_steps)
    cov = split.embedded(q.covariance)
    nodes = Nodes(split.joined(q.mean, at_b), cov, share, weighed)
    bound = mass + gain + _prior_gain(split, prior, anchor, q, at_b, share)
    found = pass_at_nodes(kernel, theta, nodes, mass, bound, chunk)
    return found._replace(around=averaged.centre(prior, q.mean, found))


@dataclass(frozen=True)
class _Split:
    """Which effects are anchored (a) and which are integrated (b)."""

    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def a_at(self) -> np.ndarray:
        return np.array(self.a, int)

    @property
    def b_at(self) -> np.ndarray:
        return np.array(self.b, int)

    def nodes(
        self, prior: Array, anchor: Array, centre: Centres | None, points: Array
    ) -> tuple[Array, Array]:
        """(node, b, subject) nodes, and log p(b | a0) less their own log density."""
        of_b = prior[np.ix_(self.b_at, self.b_at)]
        if centre is None or not self.b:  # those of p(b | a0) itself
            low = jnp.linalg.cholesky(jnp.linalg.inv(of_b))
            at = self.prior_mean(prior, anchor)[None] + (points @ low.T)[:, :, None]
            return at, jnp.zeros((len(points), anchor.shape[1]))
        low = cholesky(centre.covariance[0][self.b_at[:, None], self.b_at])
        at = centre.mean[0][self.b_at][None] + jnp.einsum("abn,jb->jan", low, points)
        away = at - self.prior_mean(prior, anchor)
        square = jnp.einsum("jan,ab,jbn->jn", away, of_b, away)
        volume = jnp.log(jnp.diagonal(low)).sum(-1) + 0.5 * jnp.linalg.slogdet(of_b)[1]
        return at, volume - 0.5 * (square - (points**2).sum(1)[:, None])

    def prior_mean(self, prior: Array, anchor: Array) -> Array:
        """(b, subject) E[b | a0]."""
        pull = prior[np.ix_(self.b_at, self.a_at)] @ anchor[self.a_at]
        return -jnp.linalg.solve(prior[np.ix_(self.b_at, self.b_at)], pull)

    def joined(self, a: Array, at_b: Array) -> Array:
        """(node, d, subject) effects from a (a, subject) and the nodes of b."""
        whole = jnp.zeros((len(at_b), len(self.a) + len(self.b), at_b.shape[-1]), at_b.dtype)
        return whole.at[:, self.a_at].set(a[None]).at[:, self.b_at].set(at_b)

    def embedded(self, cov: Array) -> Array:
        """(d, d, subject) the covariance of a, and next to none of b."""
        d = len(self.a) + len(self.b)
        # Not exactly 0: it may be factored.
        whole = jnp.zeros((d, d, cov.shape[-1])) + 1e-14 * jnp.eye(d)[:, :, None]
        return whole.at[self.a_at[:, None], self.a_at].set(cov)


@dataclass(frozen=True, eq=False)
class _Averaged:
    """The expected log likelihood as a function of a, averaged over the nodes of b."""

    kernel: Kernel
    theta: Theta
    split: _Split
    at_b: Array
    weighed: Local
    chunk: Chunk

    def update(self, prior, anchor, share, q_update, newton_steps) -> tuple[GaussianQ, Array]:
        """q_i(a), and the gain of its expected log likelihood over that at the anchor."""
        a, b = self.split.a_at, self.split.b_at
        sigma = jnp.linalg.inv(prior[np.ix_(a, a)])
        # The prior of a given b, with b at its posterior mean.
        pull = prior[np.ix_(a, b)] @ (share[:, None] * self.at_b).sum(0)
        quadratic = jax.vmap(lambda part: self.kernel.quadratic(self.theta, part))(self.weighed)
        if self.kernel.closed_form:
            precision, linear = jax.vmap(lambda own: own.about_zero())(quadratic)
            cross = (precision[:, a[:, None], b] * self.at_b[:, None]).sum(2)
            linear = (linear[:, a] - cross).sum(0) - pull
            total = Quadratic(precision.sum(0)[a[:, None], a], linear)
            q, _ = update_from_quadratic(sigma, total, anchor[a])
        else:

            def terms(mean: Array, cov: Array | None) -> EffectTerms:
                own = self._sum(self.kernel.effect_terms, mean, cov, quadratic)
                return EffectTerms(
                    own.value - (pull * mean).sum(0),
                    own.gradient[a] - pull,
                    own.curvature[a[:, None], a],
                    own.majorant[a[:, None], a],
                )

            q = update_by_newton(
                sigma,
                terms,
                anchor[a],
                concave=self.kernel.concave,
                quadrature=q_update == "quadrature",
                max_steps=newton_steps,
            )
        there = self._sum(self.kernel.value, q.mean, q.covariance, quadratic)
        return q, there - self._sum(self.kernel.value, anchor[a], None, quadratic)

    def centre(self, prior: Array, mean_a: Array, found: Pass) -> Centres:
        """Of the next nodes: the posterior's, and never as narrow as with the states known."""
        sigma = self.theta["effect_covariance"]
        if not self.split.b:
            return Centres.single(found.mean, found.covariance, sigma)
        b = self.split.b_at
        quadratic = jax.vmap(lambda part: self.kernel.quadratic(self.theta, part))(self.weighed)
        own = self._sum(self.kernel.effect_terms, mean_a, None, quadratic)
        complete, logdet = inverse_and_logdet(
            prior[np.ix_(b, b)][:, :, None] + own.majorant[b[:, None], b]
        )
        extra = jnp.where(jnp.isfinite(logdet), NARROW * complete, 0.0)
        wider = found.covariance.at[b[:, None], b].add(extra)
        return Centres.single(found.mean, wider, sigma)

    def _sum(self, function, mean: Array, cov: Array | None, quadratic):
        whole = None if cov is None else self.split.embedded(cov)
        each = over_nodes(
            lambda part, f, quad: function(self.theta, f, whole, part, quad, self.chunk),
            (self.weighed, self.split.joined(mean, self.at_b), quadratic),
            self.chunk,
        )
        return jax.tree.map(lambda part: part.sum(0), each)


def _prior_gain(split: _Split, prior, anchor, q: GaussianQ, at_b, share) -> Array:
    """E_q of log p(a, b) - log p(b | a0), and the entropy of q(a)."""
    a, b = split.a_at, split.b_at
    of_b = prior[np.ix_(b, b)]
    square = (prior[np.ix_(a, a)][:, :, None] * q.second_moment()).sum((0, 1))
    cross = 2.0 * q.mean * jnp.einsum("ab,jbn->jan", prior[np.ix_(a, b)], at_b)
    own = jnp.einsum("jan,ab,jbn->jn", at_b, of_b, at_b)
    away = at_b - split.prior_mean(prior, anchor)
    given = jnp.einsum("jan,ab,jbn->jn", away, of_b, away)
    expected = (share * (square[None] + cross.sum(1) + own - given)).sum(0)
    logdet = jnp.linalg.slogdet(prior)[1] - jnp.linalg.slogdet(of_b)[1]
    _, spread_logdet = inverse_and_logdet(q.covariance)
    return 0.5 * (len(a) + logdet + spread_logdet - expected)
