"""The kernels are translated for GPUs also where there is none: what Triton lacks is seen here."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.kernels.forward_backward import Steps
from avem.kernels.pallas import blocks, calls
from tests.kernels.test_gaussian_chain import Problem
from tests.kernels.test_pallas import with_steps
from tests.kernels.test_pallas_states import problem as of_states

# So says JAX from 0.12 on. Where it is gone, the definitions run (`test_dispatch.py`).
pytestmark = pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")


def on_a_gpu():
    """From 0.12 on JAX wants to know for which one."""
    if not hasattr(jax.sharding, "AbstractDevice"):
        return nullcontext()
    device = jax.sharding.AbstractDevice("NVIDIA H200", 132, "gpu")
    mesh = jax.sharding.AbstractMesh((1,), ("all",), abstract_device=device)
    return jax.sharding.use_abstract_mesh(mesh)


def lowered(monkeypatch, function, *arrays):
    monkeypatch.setattr(blocks, "platform", lambda: "gpu")
    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, arrays)
        with on_a_gpu():
            return jax.jit(function).trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("kind", ["one matrix", "of every step"])
def test_chains(monkeypatch, kind):
    made = Problem(3, 2, ((0,), (1,)))
    transition, steps = with_steps(made, kind)
    squares = made.squares

    def gaussian(transition, rows, *parts):
        own = squares._replace(coef=parts[0], constant=parts[1], weight=parts[2])
        return calls._gaussian_chain(made.initial, transition, own, rows, steps)

    text = lowered(monkeypatch, gaussian, transition, made.rows, *squares[1:])
    assert "triton" in text
    table = np.zeros((*made.rows.valid.shape[:1], 3, made.rows.valid.shape[1]))

    def both(transition, table, valid):
        one = calls._forward_backward(made.initial, transition, table, valid, Steps())
        return one, calls._viterbi(made.initial, transition, table, valid)

    if kind == "one matrix":
        assert lowered(monkeypatch, both, transition, table, made.rows.valid).count("triton") == 2


def test_states_and_inverses(monkeypatch):
    shape, *arrays = of_states(2, ((0, 2), (1,)), n_w=2, n_s=1)
    moments = lowered(monkeypatch, lambda *a: calls._kalman_moments(shape, *a), *arrays)
    inverse = lowered(monkeypatch, calls._inverse, np.zeros((11, 11, 70)))
    assert "triton" in moments
    assert "triton" in inverse
