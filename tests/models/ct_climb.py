"""-2 log L of a state-space model whose subjects are alike, with slopes, for an optimiser."""

from functools import partial

import jax
import numpy as np

from avem.data import Panel
from avem.inference.ssm_starts import make_ssm_start
from avem.models.ssm import SSMModel
from avem.numerics.precision import in_float64

_UNIT = 1e4


@partial(jax.jit, static_argnames="kernel")
def _total(kernel, theta, chunk):
    f = np.zeros((0, chunk.real.shape[0]))
    local = kernel.local(theta, f, chunk, "")
    return local.loglik.sum(), kernel.sums(local, f, None, chunk)


@in_float64
def climber(made, frame, noise):
    """(function of a vector of free parameters, the start's vector, unit of the function)."""
    panel = Panel.from_frame(frame, "who", time="time")
    model = SSMModel.learn(made.spec, panel)
    model = model.scaled_to(model.read(panel))
    data = model.encode(panel)
    theta = make_ssm_start(model, data.sample, 0, np.random.default_rng(0))
    theta["noise_covariance"] = np.full((len(model.outcomes), 1, 1), noise)
    free = model.find_free(theta, {"noise"}, np.ones(len(model.outcomes)))
    shift = data.log_jacobian(model).sum()

    @in_float64
    def height(vector):
        if np.abs(vector).max() > 50:
            return 1e6, 0 * vector
        here, total, slopes = free.theta(vector, theta), shift, None
        for chunk in data.chunks:
            loglik, sums = jax.tree.map(np.asarray, _total(data.kernel, here, chunk))
            total = total + loglik
            slopes = sums if slopes is None else jax.tree.map(np.add, slopes, sums)
        slope = free.pull(here, data.kernel.slopes(here, slopes))
        return -2 * float(total) / _UNIT, -2 * np.asarray(slope) / _UNIT

    return height, free.vector(theta), _UNIT
