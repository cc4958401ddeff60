"""The adaptive tier: EM on the marginal likelihood with nodes where each subject's posterior is.

Every subject has one or a few Gaussian *centres* c with shares s_c, whose mixture resembles its
posterior p(f | D_i): several, where the posterior has several modes. The nodes are those of each
centre, f_cj = mean_c + L_c x_j, and with the mixture's density m(f) the marginal likelihood is

    p(D_i) = sum over c, j of  s_c v_j p(D_i, f_cj) / m(f_cj),

for Gauss-Hermite nodes x_j and weights v_j (few effects), and for quasi-random draws from a
Student t with v_j = 1/J (many): then it is importance sampling, with a look at its weights. After
each E-step the centres take the moments of what they found, so they follow the posterior.

Where a subject's importance weights rest on too few draws, it gets the Laplace form instead: points
at equal weights around its centre, and the volume of a Gaussian there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp
from scipy.special import gammaln, ndtri
from scipy.stats import chi2, qmc

from avem.data._layout import Chunk
from avem.errors import ModelError
from avem.inference.passes import Nodes, Pass, local_at_nodes, pass_at_nodes, weigh
from avem.inference.structured import slopes_at_nodes
from avem.models.kernel import Kernel
from avem.models.lanes import Theta
from avem.numerics.linalg import cholesky, inverse_and_logdet
from avem.numerics.nodes import gauss_hermite

_PER_EFFECT = {0: 1, 1: 15, 2: 7, 3: 5}
"""Gauss-Hermite nodes per effect; above, draws."""
MOST_BY_QUADRATURE = max(_PER_EFFECT)
_N_DRAWS = 256
_TAIL = 6.0
"""Degrees of freedom of the draws."""
_TOO_FEW = 0.03
"""Effective draws, as a share of all, below which importance weights are not trusted."""
_LEAST_SHARE = 0.02
"""A centre keeps at least this share of the proposal."""
_BETWEEN = 1.3
"""How much wider than the posterior near them the variances of several centres are."""
_LOG_2PI = float(np.log(2 * np.pi))


class Centres(NamedTuple):
    """A mixture of Gaussians for every subject, like its posterior. NumPy's arrays or JAX's."""

    log_share: Any
    """(centre, subject); -inf: the centre is not in use."""
    mean: Any
    """(centre, d, subject)."""
    covariance: Any
    """(centre, d, d, subject)."""

    def shifted(self, shift: Array) -> Centres:
        """The same when `shift` moves from the effects into the coefficients."""
        return self._replace(mean=self.mean - shift[:, None])


@dataclass(frozen=True, eq=False)
class Adaptive:
    """Nodes around every subject's centres."""

    points: np.ndarray
    """(nodes, d) of a standard distribution."""
    log_weights: np.ndarray
    tail: float
    """Degrees of freedom of that distribution; infinite: normal, and the nodes are a quadrature."""

    anchored = False
    has_q = False

    @property
    def by_draws(self) -> bool:
        """Importance sampling, not quadrature."""
        return self.tail < np.inf

    @classmethod
    def make(
        cls, n_effects: int, n_nodes: int | None = None, n_draws: int | None = None, seed: int = 0
    ) -> Adaptive:
        """Gauss-Hermite nodes for up to 3 effects (unless draws are asked for), draws above."""
        if n_draws is None and (n_effects in _PER_EFFECT or n_nodes is not None):
            points, weights = gauss_hermite(n_effects, n_nodes or _PER_EFFECT[n_effects])
            return cls(points, np.log(weights), np.inf)
        n_draws = n_draws or _N_DRAWS
        if n_draws < 2 or n_draws & (n_draws - 1):
            raise ModelError(f"n_draws is {n_draws}; quasi-random draws come in powers of 2.")
        return cls(*_student_draws(n_effects, n_draws, seed), _TAIL)

    def e_step(self, kernel, theta, anchor, around, chunk, form) -> Pass:
        """Local passes at all nodes, weighed by the posterior."""
        if around is None:
            around = prior_centres(theta, anchor)
        return _pass(kernel, theta, around, self.points, self.log_weights, chunk, form, self.tail)


def _student_draws(d: int, n_draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Quasi-random draws from a standard Student t, and their log weights.

    They come in pairs, x and -x, and are stretched and weighed so that importance sampling of a
    standard normal has its mass, mean and covariance exactly: all subjects share them, so that what
    they get wrong of a Gaussian posterior would not average out.
    """
    uniform = qmc.Sobol(d + 1, scramble=True, rng=seed).random(n_draws // 2)
    uniform = np.clip(uniform, 1e-9, 1 - 1e-9)
    half = ndtri(uniform[:, :-1]) * np.sqrt(_TAIL / chi2.ppf(uniform[:, -1:], _TAIL))
    points = np.concatenate([half, -half])
    for _ in range(20):  # stretching changes the weights a little
        square = (points**2).sum(1)
        weights = np.exp(_log_base(square, d, np.inf, np) - _log_base(square, d, _TAIL, np))
        second = (weights[:, None] * points).T @ points / weights.sum()
        points = np.linalg.solve(np.linalg.cholesky(second), points.T).T
    return points, np.full(n_draws, -np.log(weights.sum()))


def prior_centres(theta: Theta, anchor: Array) -> Centres:
    """One centre per subject: its anchor, as wide as the prior."""
    d, n = anchor.shape
    wide = np.broadcast_to(np.asarray(theta["effect_covariance"])[:, :, None], (d, d, n))
    return Centres(np.zeros((1, n)), np.asarray(anchor)[None], wide[None])


@partial(jax.jit, static_argnames=("kernel", "form", "tail"))
def _pass(
    kernel: Kernel,
    theta: Theta,
    centres: Centres,
    points: Array,
    log_weights: Array,
    chunk: Chunk,
    form: str,
    tail: float,
) -> Pass:
    n_centres, d, n = centres.mean.shape
    n_nodes = len(points)
    batch = centres.covariance.transpose(1, 2, 0, 3).reshape(d, d, n_centres * n)
    low = cholesky(batch).reshape(d, d, n_centres, n) if d else batch.reshape(0, 0, n_centres, n)
    at = centres.mean[:, None] + jnp.einsum("abcn,jb->cjan", low, points)
    at = at.reshape(n_centres * n_nodes, d, n)
    if tail < np.inf:
        # The middle, and points at equal weights around it, of the Laplace form.
        around = np.sqrt(d) * np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])
        at = jnp.concatenate(
            [at, centres.mean[:1] + jnp.einsum("abn,jb->jan", low[:, :, 0], around)]
        )
    local = local_at_nodes(kernel, theta, at, chunk, form)
    joint = local.loglik + _log_normal(theta["effect_covariance"], at)
    main = n_centres * n_nodes
    parts = _log_parts(centres, low, at[:main], tail)
    mixture = logsumexp(parts, axis=0)
    own = (centres.log_share[:, None] + log_weights[None, :, None]).reshape(main, n)
    height = own + joint[:main] - mixture
    if tail < np.inf:  # weights much larger than the average are cut off
        height = jnp.minimum(height, logsumexp(height, axis=0) - 0.5 * np.log(main))
    loglik = logsumexp(height, axis=0)
    share = jnp.exp(height - loglik)
    quality = 1.0 / (share**2).sum(0)
    around_next = _following(centres, at[:main], share, parts - mixture, quality, tail)
    if tail < np.inf:
        bad = ~(quality > _TOO_FEW * main)
        volume = jnp.log(jnp.diagonal(low[:, :, 0])).sum(-1) + 0.5 * d * _LOG_2PI
        loglik = jnp.where(bad, joint[main] + volume, loglik)
        cubature = jnp.where(bad, 1 / (2 * d), 0.0) * jnp.ones((2 * d, 1))
        middle = jnp.zeros((1, n))
        share = jnp.concatenate([jnp.where(bad, 0.0, share), middle, cubature])
        quality = jnp.where(bad, 0.0, quality)
        score = slopes_at_nodes(
            kernel,
            theta,
            at[main : main + 1],
            jax.tree.map(lambda x: x[main : main + 1], local),
            chunk,
        )[0]
        around_next = _by_newton(around_next, centres, theta, score, bad)
    nodes = Nodes(at, None, share, weigh(kernel, local, share, chunk))
    found = pass_at_nodes(kernel, theta, nodes, loglik, loglik, chunk)
    return found._replace(around=around_next, quality=quality)


def _log_normal(sigma: Array, at: Array) -> Array:
    """(node, subject) log density of the prior."""
    d = at.shape[1]
    if d == 0:
        return jnp.zeros((at.shape[0], at.shape[2]))
    factor = jnp.linalg.cholesky(sigma)
    half = jnp.linalg.inv(factor)
    white = jnp.einsum("ab,jbn->jan", half, at)
    return -0.5 * ((white**2).sum(1) + d * _LOG_2PI) - jnp.log(jnp.diagonal(factor)).sum()


def _log_parts(centres: Centres, low: Array, at: Array, tail: float) -> Array:
    """(centre, node, subject) log of share x density of every centre at every node."""
    n_centres, d, n = centres.mean.shape
    if d == 0:
        return jnp.broadcast_to(centres.log_share[:, None], (n_centres, at.shape[0], n))
    parts = []
    for c in range(n_centres):
        away = at - centres.mean[c]
        white: list[Array] = []
        for i in range(d):  # forward substitution
            rest = away[:, i] - sum((low[i, j, c] * white[j] for j in range(i)), 0.0)
            white.append(rest / low[i, i, c])
        square = sum((w * w for w in white[1:]), white[0] * white[0])
        logdet = sum(jnp.log(low[i, i, c]) for i in range(d))
        parts.append(centres.log_share[c] + _log_base(square, d, tail) - logdet)
    return jnp.stack(parts)


def _log_base(square: Any, d: int, tail: float, numpy: Any = jnp) -> Any:
    """Log density of the nodes' standard distribution at a squared distance."""
    if tail == np.inf:
        return -0.5 * (square + d * _LOG_2PI)
    constant = gammaln(0.5 * (tail + d)) - gammaln(0.5 * tail) - 0.5 * d * np.log(tail * np.pi)
    return constant - 0.5 * (tail + d) * numpy.log1p(square / tail)


def _following(
    centres: Centres, at: Array, share: Array, log_part: Array, quality: Array, tail: float
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
    trust = jnp.ones(n) if tail == np.inf else quality / (quality + 5.0 * d)
    cov = trust * cov + (1.0 - trust) * centres.covariance
    # Never much narrower than before: the nodes must be able to find their way back.
    cov = cov + 1e-3 * centres.covariance
    # The mixture must cover what lies between its parts.
    several = jnp.isfinite(centres.log_share).sum(0) > 1
    cov = jnp.where(several, _BETWEEN, 1.0) * cov
    flat = cov.transpose(1, 2, 0, 3).reshape(d, d, n_centres * n)
    sound = jnp.isfinite(inverse_and_logdet(flat)[1]).reshape(n_centres, n)
    used = (mass > 1e-6) & sound & jnp.isfinite(quality)
    log_share = jnp.where(
        jnp.isfinite(centres.log_share), jnp.log(jnp.maximum(mass, _LEAST_SHARE)), -jnp.inf
    )
    log_share = jnp.where(jnp.isfinite(quality), log_share, centres.log_share)
    return Centres(
        log_share - logsumexp(log_share, axis=0),
        jnp.where(used[:, None], mean, centres.mean),
        jnp.where(used[:, None, None], cov, centres.covariance),
    )


def _by_newton(found: Centres, before: Centres, theta: Theta, score: Array, bad: Array) -> Centres:
    """Subjects without trusted weights keep their first centre, which takes a Newton step."""
    prior = jnp.linalg.inv(theta["effect_covariance"])
    cov = before.covariance[0]
    step = (cov * (score - prior @ before.mean[0])[None]).sum(1)
    length = jnp.sqrt((step**2 / jnp.diagonal(cov).T).sum(0))
    step = step / jnp.maximum(1.0, length)
    mean = before.mean.at[0].add(jnp.nan_to_num(step))
    alone = jnp.where(jnp.arange(len(before.mean))[:, None] == 0, 0.0, -jnp.inf)
    return Centres(
        jnp.where(bad, alone, found.log_share),
        jnp.where(bad, mean, found.mean),
        jnp.where(bad, before.covariance, found.covariance),
    )
