"""A fitted state-space model on data: states and outcomes, given the past or all of a sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from avem.components.lanes import Theta, to_lanes
from avem.components.param_info import Params
from avem.data.layout import Chunk
from avem.effects.draws import roots
from avem.execution.dataset import Dataset
from avem.inference.after.marginal import PosteriorNodes
from avem.inference.e_steps import Impossible
from avem.kernels import kalman, kalman_filter
from avem.models.encoded import Encoded
from avem.models.ssm import SSMModel
from avem.models.ssm_kernel import SSMKernel
from avem.numerics.jit import jit
from avem.numerics.nodes import normal_rule
from avem.numerics.precision import in_float64


class StateMoments(NamedTuple):
    """What is known of the states, and of the outcomes' expected values given the states."""

    state: Any
    """(rows, q)."""
    state_cov: Any
    """(rows, q, q)."""
    level: Any
    """(rows, p): H x + A w."""
    level_cov: Any
    """(rows, p, p): without the noise of the outcomes themselves."""

    def outcome_cov(self, noise: np.ndarray) -> np.ndarray:
        """(rows, p, p) of the outcomes, whose noise (p,) is independent of everything."""
        return self.level_cov + np.diag(noise)


def _pass(kernel: SSMKernel, theta: Theta, f: Array, chunk: Chunk, kind: str) -> StateMoments:
    """On every lane of a chunk, as (time, ..., lane) arrays."""
    problem = kernel.system(theta, f, chunk)
    if kind == "smoothed":
        found = kalman.smooth(problem)
    elif kind == "filtered":
        found = kalman_filter.filter_states(problem)
    else:
        found = kalman_filter.predict_states(problem)
    own = to_lanes(f, chunk)
    matrix = kernel.outcome_matrix(theta, own)
    loading, coef = matrix[:, : kernel.n_latent], matrix[:, kernel.n_latent :]
    w = chunk.a[:, np.array(kernel.w_cols, int)]
    level = jnp.einsum("jan,tan->tjn", loading, found.mean)
    level += jnp.einsum("jan,tan->tjn", coef, w)
    level_cov = jnp.einsum("jan,tabn,kbn->tjkn", loading, found.cov, loading)
    return StateMoments(found.mean, found.cov, level, level_cov)


@jit("kernel", "kind")
def _at(kernel: SSMKernel, theta: Theta, f: Array, chunk: Chunk, kind: str) -> StateMoments:
    return _pass(kernel, theta, f, chunk, kind)


@jit("kernel", "kind")
def _averaged(
    kernel: SSMKernel, theta: Theta, at: Array, share: Array, chunk: Chunk, kind: str
) -> StateMoments:
    """Mean and covariance with the effects at weighed nodes: the law of total variance."""
    centre = _pass(kernel, theta, (share[:, None] * at).sum(0), chunk, kind)

    def outer(x: Array) -> Array:
        return x[:, :, None] * x[:, None]

    def add(total: StateMoments, node: tuple[Array, Array]) -> tuple[StateMoments, None]:
        f, weight = node
        found, weight = _pass(kernel, theta, f, chunk, kind), to_lanes(weight[None], chunk)[0]
        # About the centre, so that nothing large cancels.
        state, level = found.state - centre.state, found.level - centre.level
        new = StateMoments(
            state, found.state_cov + outer(state), level, found.level_cov + outer(level)
        )
        # What weighs nothing may be infinite.
        each = [
            old + jnp.where(weight > 0, weight * part, 0.0)
            for old, part in zip(total, new, strict=True)
        ]
        return StateMoments(*each), None

    total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, centre), (at, share))
    return StateMoments(
        centre.state + total.state,
        total.state_cov - outer(total.state),
        centre.level + total.level,
        total.level_cov - outer(total.level),
    )


def _at_effects(chunk: Chunk, f: Any, kernel: SSMKernel, theta: Params, kind: str) -> StateMoments:
    return _at(kernel, theta, f, chunk, kind)


def _over_effects(
    chunk: Chunk, at: Any, share: Any, kernel: SSMKernel, theta: Params, kind: str
) -> StateMoments:
    return _averaged(kernel, theta, at, share, chunk, kind)


def gaussian_nodes(mean: np.ndarray, cov: np.ndarray) -> PosteriorNodes:
    """Nodes for effects that are N(mean, cov): (d, subjects), (d, d, subjects)."""
    points, weights = normal_rule(len(mean))
    at = mean + np.einsum("den,je->jdn", roots(cov), points)
    return PosteriorNodes(at, np.repeat(weights[:, None], mean.shape[1], axis=1))


@in_float64
def moments(
    model: SSMModel,
    data: Encoded,
    theta: Params,
    effects: np.ndarray,
    kind: str,
    share: np.ndarray | None = None,
) -> StateMoments:
    """States and expected outcomes of every row, in the panel's row order and the user's units.

    Every subject is at its effect (d, subjects); or, with a `share` (nodes, subjects), at nodes
    (nodes, d, subjects), and what is not known of the effects adds to the covariances.
    """
    shards = Dataset.of(data)
    own = [shards.split(part) for part in (effects, share) if part is not None]
    function = _at_effects if share is None else _over_effects
    rows: StateMoments = shards.rows(function, own, data.kernel, theta, kind)
    if not all(np.isfinite(part).all() for part in rows):
        raise Impossible
    scale, centre = model.scaling.scale, model.scaling.centre
    usual = model.usual_time
    return rows._replace(
        state=rows.state * np.sqrt(usual),
        state_cov=rows.state_cov * usual,
        level=rows.level * scale + centre,
        level_cov=rows.level_cov * np.outer(scale, scale),
    )


def noise_of(model: SSMModel, theta: Params) -> np.ndarray:
    """(p,) variances of the outcomes given the states, in the user's units."""
    return np.asarray(theta["noise_covariance"])[:, 0, 0] * model.scaling.scale**2


def residuals(
    model: SSMModel, data: Encoded, theta: Params, effects: np.ndarray, joint: bool = False
) -> np.ndarray:
    """(rows, p) one-step residuals over their standard deviations, NaN where nothing was seen.

    What is left of each outcome once the past of its sequence has predicted it. Under the model,
    with the effects known, they are standard normal and independent over time; those of one row
    are correlated, unless ``joint`` takes out of each outcome what the ones before it say.
    """
    past = moments(model, data, theta, effects, "predicted")
    cov = past.outcome_cov(noise_of(model, theta))
    y = data.y * model.scaling.scale + model.scaling.centre
    miss, seen = y - past.level, ~np.isnan(y)
    if not joint:
        return miss / np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    # A missing outcome is a number of its own that nothing depends on.
    both = seen[:, :, None] & seen[:, None]
    root = np.linalg.cholesky(np.where(both, cov, np.eye(cov.shape[1])))
    left = np.linalg.solve(root, np.where(seen, miss, 0.0)[:, :, None])[:, :, 0]
    return np.where(seen, left, np.nan)
