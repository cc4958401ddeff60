"""The adaptive tier: EM on the marginal likelihood with nodes where each subject's posterior is.

Every subject has one or a few Gaussian *centres* c with shares s_c, whose mixture resembles its
posterior p(f | D_i): several, where the posterior has several modes. The nodes are those of each
centre, f_cj = mean_c + L_c x_j, and with the mixture's density m(f) the marginal likelihood is

    p(D_i) = sum over c, j of  s_c v_j p(D_i, f_cj) / m(f_cj),

for Gauss-Hermite nodes x_j and weights v_j. While the parameters travel, the centres take the
moments of what each E-step found, so they follow the posterior. Then they stay, but for one thing:
what a centre says of the likelihood is kept, and joined with the prior of the moment. So nodes
never stand wide apart in a prior that has become narrow, and an iteration is one smooth function of
the parameters, which acceleration needs. With many effects the x_j are quasi-random draws from a
Student t: importance sampling, which has a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp

from avem.components.lanes import Theta
from avem.components.param_info import check_count
from avem.data.layout import Chunk
from avem.errors import ModelError
from avem.inference.e_steps import State
from avem.inference.em import EM
from avem.inference.loop import Rules
from avem.inference.methods.adaptive.begin import begin, renew
from avem.inference.methods.adaptive.importance import TAIL, importance_pass, student_draws
from avem.inference.methods.adaptive.mixture import (
    LEAST_SHARE,
    Centres,
    around_centres,
    factors,
    log_normal,
    log_parts,
    prior_centres,
)
from avem.inference.methods.base import EStep, Method
from avem.inference.mode_search import Search
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.inference.tuning import (
    ADAPTIVE_DRAWS,
    ADAPTIVE_NODES,
    BETWEEN,
    FLAT_WITH_DRAWS,
    LENIENT,
    TOL_OF_DRAWS,
)
from avem.kernels.inverse import inverse_and_logdet
from avem.models.kernel import Kernel
from avem.numerics.nodes import gauss_hermite

MOST_BY_QUADRATURE = max(ADAPTIVE_NODES)


@dataclass(frozen=True)
class Adaptive(Method):
    """Maximum likelihood, the effects integrated where each subject's posterior is.

    Parameters
    ----------
    n_nodes : int, optional
        Gauss-Hermite nodes per effect; by default 15, 7 or 5 for one, two or three effects.
    n_draws : int, optional
        Quasi-random draws, a power of 2, instead of nodes; 256 for more than three effects.

    Examples
    --------
    >>> avem.Adaptive(n_nodes=9)  # as in model.fit(data, method=avem.Adaptive(n_nodes=9))
    Adaptive(n_nodes=9, n_draws=None)
    """

    n_nodes: int | None = None
    n_draws: int | None = None

    word = "adaptive"
    likelihood = True
    anchors_first = True

    def __post_init__(self) -> None:
        for name in ("n_nodes", "n_draws"):
            value = getattr(self, name)
            if value is not None:
                check_count(name, value)
                object.__setattr__(self, name, int(value))
        if self.n_draws is not None:
            _check_draws(self.n_draws)

    def bind(
        self, em: EM, effect_names: Sequence[str], plain: bool, rng: np.random.Generator
    ) -> EStep:
        """Nodes or draws of a standard distribution."""
        return AdaptiveNodes.make(len(effect_names), self.n_nodes, self.n_draws)


@dataclass(frozen=True, eq=False)
class AdaptiveNodes(EStep):
    """Nodes around every subject's centres."""

    points: np.ndarray
    """(nodes, d) of a standard distribution."""
    log_weights: np.ndarray
    tail: float
    """Degrees of freedom of that distribution; infinite: normal, and the nodes are a quadrature."""

    creeps = False  # `begin` compares both

    @property
    def by_draws(self) -> bool:
        """Importance sampling, not quadrature."""
        return self.tail < np.inf

    @property
    def nodes_stay(self) -> bool:
        """Draws follow the posterior to the end."""
        return not self.by_draws

    @property
    def n_nodes(self) -> int:
        """Local passes per subject and centre."""
        return len(self.points)

    @classmethod
    def make(
        cls, n_effects: int, n_nodes: int | None = None, n_draws: int | None = None, seed: int = 0
    ) -> AdaptiveNodes:
        """Gauss-Hermite nodes for up to 3 effects (unless draws are asked for), draws above."""
        if n_draws is None and (n_effects in ADAPTIVE_NODES or n_nodes is not None):
            points, weights = gauss_hermite(n_effects, n_nodes or ADAPTIVE_NODES[n_effects])
            return cls(points, np.log(weights), np.inf)
        n_draws = n_draws or ADAPTIVE_DRAWS
        _check_draws(n_draws)
        return cls(*student_draws(n_effects, n_draws, seed), TAIL)

    def begin(self, em: EM, state: State, rng: np.random.Generator) -> State:
        """Centres at the modes of every subject's posterior."""
        return begin(em, em.e.without_nodes(state), rng)

    def search(self, em: EM, state: State, rng: np.random.Generator) -> Search:
        """New centres."""
        return renew(em.e, state, rng)

    def rules(self, rules: Rules) -> Rules:
        """One search; EM climbs this likelihood, and leaps that lower it often lead away."""
        rules = replace(rules, max_searches=1, lenient=LENIENT)
        if not self.by_draws:
            return rules
        # Other draws would be another objective, neither better nor worse, and no digit beyond the
        # error of the draws is worth an iteration. Their levels are not quite comparable.
        tol = max(rules.tol, TOL_OF_DRAWS)
        return replace(rules, max_searches=0, tol=tol, flat=FLAT_WITH_DRAWS, harmless=np.inf)

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at all nodes, weighed by the posterior."""
        if around is None:
            around = prior_centres(theta, anchor)
        if self.by_draws:  # these look for their places themselves
            run = importance_pass
        else:
            run, around = _pass, around.under(np.asarray(theta["effect_covariance"]))
        return run(kernel, theta, around, self.points, self.log_weights, chunk, form)


def _check_draws(n_draws: int) -> None:
    if n_draws < 2 or n_draws & (n_draws - 1):
        raise ModelError(f"n_draws is {n_draws}; quasi-random draws come in powers of 2.")


@partial(jax.jit, static_argnames=("kernel", "form"))
def _pass(
    kernel: Kernel,
    theta: Theta,
    centres: Centres,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
) -> Pass:
    n = centres.mean.shape[-1]
    low = factors(centres)
    at = around_centres(centres.mean, low, points)
    local = local_at_nodes(kernel, theta, at, chunk, form)
    parts = log_parts(centres, low, at, np.inf)
    mixture = logsumexp(parts, axis=0)
    own = (centres.log_share[:, None] + log_weights[None, :, None]).reshape(len(at), n)
    height = own + local.loglik + log_normal(theta["effect_covariance"], at) - mixture
    loglik = logsumexp(height, axis=0)
    share = jnp.exp(height - loglik)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    found = pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
    around = _following(centres, at, share, parts - mixture, found.quality)
    return found._replace(around=around)


def _following(
    centres: Centres, at: Array, share: Array, log_part: Array, quality: Array
) -> Centres:
    """The centres with the moments of the posterior near them."""
    n_centres, d, n = centres.mean.shape
    if d == 0:
        return centres
    own = share * jnp.exp(log_part)  # (centre, node, subject)
    mass = own.sum(1)
    safe = jnp.maximum(mass, 1e-12)[:, None]
    mean = (own[:, :, None] * at[None]).sum(1) / safe
    away = at[None] - mean[:, None]  # (centre, node, d, subject)
    cov = jnp.einsum("cjn,cjan,cjbn->cabn", own, away, away) / safe[:, :, None]
    # Never much narrower than before: the nodes must be able to find their way back.
    cov = cov + 1e-3 * centres.covariance
    # The mixture must cover what lies between its parts.
    several = jnp.isfinite(centres.log_share).sum(0) > 1
    cov = jnp.where(several, BETWEEN, 1.0) * cov
    flat = cov.transpose(1, 2, 0, 3).reshape(d, d, n_centres * n)
    sound = jnp.isfinite(inverse_and_logdet(flat)[1]).reshape(n_centres, n)
    used = (mass > 1e-6) & sound & jnp.isfinite(quality)
    log_share = jnp.where(
        jnp.isfinite(centres.log_share), jnp.log(jnp.maximum(mass, LEAST_SHARE)), -jnp.inf
    )
    log_share = jnp.where(jnp.isfinite(quality), log_share, centres.log_share)
    return Centres(
        log_share - logsumexp(log_share, axis=0),
        jnp.where(used[:, None], mean, centres.mean),
        jnp.where(used[:, None, None], cov, centres.covariance),
        centres.prior,
    )
