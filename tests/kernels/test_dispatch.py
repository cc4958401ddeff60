"""Every registered engine is held to its definition, and the dispatch alone chooses among them."""

import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.kernels import dispatch, gaussian_chain, kalman, kalman_moments, semi_markov
from avem.kernels.dispatch import ENGINES, Engine
from avem.kernels.forward_backward import Steps, smooth
from avem.kernels.inverse import inverse_and_logdet
from avem.kernels.kalman_filter import Problem, System
from avem.kernels.posterior import posterior
from avem.kernels.rates import over_intervals
from avem.kernels.semi_markov import Stays
from avem.kernels.viterbi import viterbi


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


N = 5
VALID = np.arange(4)[:, None] < np.array([4, 1, 3, 4, 2])


def normal(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape)


def covariances(d, n):
    root = normal(d, 2 * d, n)
    return np.einsum("abn,cbn->acn", root, root) + np.eye(d)[:, :, None]


def in_one(function, arguments):
    """One program: operation by operation, every single one would be compiled by itself."""
    return jax.jit(lambda: function(*given(arguments)))()


def given(arguments):
    """What is an array of NumPy's as one of JAX's."""
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, arguments)


def chains():
    table = np.where(VALID[:, None], normal(4, 2, N), 0.0)
    return np.array([0.3, 0.7]), np.array([[0.9, 0.1], [0.2, 0.8]]), table, VALID


def semi():
    ends = np.array([[0.2, 0.6], [0.5, 0.3], [0.7, 0.4]])[:, :, None]
    stays = Stays(
        np.array([[0.5, 0.6], [0.3, 0.3], [0.2, 0.1]])[:, :, None], ends[None], 1 - ends[None]
    )
    return np.array([0.3, 0.7]), np.array([[0.0, 1.0], [1.0, 0.0]]), stays, *chains()[2:]


def gaussian():
    lists = gaussian_chain.Lists(
        (0, 1), (0,), ((0, 0, 0), (0, 0, 1), (0, 1, 1)), ((0, 0, 0), (0, 1, 2), (0, 2, 3))
    )
    squares = gaussian_chain.Squares(lists, normal(2, 2, 2, N), normal(2, 1), np.ones((2, 3)))
    rows = gaussian_chain.Records(normal(4, 2, N), normal(4, 2, N), VALID[:, None], VALID)
    return *chains()[:2], squares, rows


def states():
    system = System(
        normal(2, N),
        covariances(2, N),
        0.4 * normal(2, 2, N),
        covariances(2, N),
        normal(3, 2, N),
        np.exp(normal(3, N)),
    )
    seen = np.broadcast_to(VALID[:, None], (4, 3, N))
    return Problem(system, normal(4, 3, N), seen, VALID)


def sums():
    shape = SimpleNamespace(
        n_latent=2,
        n_outcomes=3,
        groups=((0, 1, 2),),
        group_of=np.zeros(3, int),
        w_cols=(),
        drive_cols=(),
    )
    none = np.zeros((4, 0, N))
    return shape, states(), none, none, VALID[:, None]


def quadratics(d=8):
    prior = covariances(d, 1)
    logdet = -np.linalg.slogdet(prior[..., 0])[1]
    return prior, logdet[None], covariances(d, N), normal(d, N), normal(d, N)


def intervals():
    pairs = ((0, 1), (1, 0))
    return np.exp(normal(2, N)), pairs, 2, True


KERNELS = {
    # The public function; its arguments; those of its definition, if they are others.
    "forward_backward": (smooth, chains, lambda: (*chains(), Steps())),
    "gaussian_chain": (gaussian_chain.smooth, gaussian, lambda: (*gaussian(), Steps())),
    "semi_markov": (semi_markov.smooth, semi, semi),
    "rates": (over_intervals, intervals, intervals),
    "viterbi": (viterbi, chains, chains),
    "kalman": (kalman.smooth, lambda: (states(),), lambda: (states(),)),
    "kalman_moments": (kalman_moments.moments, sums, sums),
    "posterior": (posterior, quadratics, quadratics),
    "inverse": (inverse_and_logdet, lambda: (covariances(8, N),), lambda: (covariances(8, N),)),
}
"""By kernel, a problem that every engine of it serves."""


def definition_of(kernel):
    return import_module(f"avem.kernels.{kernel}").definition


class Chosen:
    """An engine that counts its calls."""

    def __init__(self, own):
        self.own, self.n_calls = own, 0

    def make(self, **sizes):
        run = self.own.make(**sizes)

        def counted(*arguments):
            self.n_calls += 1
            return run(*arguments)

        return None if run is None else counted


def test_every_engine_is_compared_with_its_definition():
    assert {one.kernel for one in ENGINES} <= set(KERNELS)


@pytest.mark.parametrize("own", ENGINES, ids=lambda own: f"{own.kernel}-{own.backend}")
def test_an_engine_gives_what_the_definition_gives(own, monkeypatch):
    if own.backend != jax.default_backend():
        pytest.skip("it cannot be had here")
    if own.make(states=2, outcomes=2, rows=8) is None:
        # Where one source compiles, all must: an engine that is missing is slow without a word.
        assert dispatch.engine("inverse", "float64", rows=8) is None, own.kernel
        pytest.skip("there is no compiler")
    public, arguments, defined = KERNELS[own.kernel]
    chosen = Chosen(own)
    monkeypatch.delenv("AVEM_NATIVE", raising=False)
    monkeypatch.setattr(dispatch, "ENGINES", (replace(own, make=chosen.make),))
    found = in_one(public, arguments())
    assert chosen.n_calls == 1
    expected = in_one(definition_of(own.kernel), defined())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def refuse(*_, **__):
    raise AssertionError("an engine was asked for")


@pytest.mark.parametrize("kernel", KERNELS)
def test_switched_off_the_definition_runs(kernel, monkeypatch):
    """With ``AVEM_NATIVE=0`` nothing is even built."""
    monkeypatch.setenv("AVEM_NATIVE", "0")
    monkeypatch.setattr(dispatch, "ENGINES", (Engine(kernel, refuse),))
    public, arguments, _ = KERNELS[kernel]
    assert "ffi_call" not in str(jax.make_jaxpr(lambda: public(*given(arguments())))())


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_new_engine_is_one_registration(kernel, monkeypatch):
    """It stands before the others, and gets the definition's arguments."""
    public, arguments, defined = KERNELS[kernel]
    definition, taken = definition_of(kernel), []

    def run(*own):
        taken.append(len(own))
        return tuple(jax.tree.map(lambda part: part + 1, definition(*own)))

    monkeypatch.delenv("AVEM_NATIVE", raising=False)
    new = Engine(kernel, lambda **sizes: run, jax.default_backend())
    monkeypatch.setattr(dispatch, "ENGINES", (new, *ENGINES))
    found, expected = jax.eval_shape(
        lambda: (public(*given(arguments())), definition(*given(defined())))
    )
    assert taken[0] == len(defined())
    assert [part.shape for part in found] == [part.shape for part in expected]


@pytest.mark.parametrize(
    ("limits", "dtype", "sizes", "serves"),
    [
        ({}, "float64", {}, True),
        ({}, "float32", {}, False),
        ({"dtypes": ("float32", "float64")}, "float32", {}, True),
        ({"backend": "elsewhere"}, "float64", {}, False),
        ({"at_most": {"states": 8}}, "float64", {"states": 8}, True),
        ({"at_most": {"states": 8}}, "float64", {"states": 9}, False),
        ({"at_least": {"rows": 7}}, "float64", {"rows": 7, "lanes": 1}, True),
        ({"at_least": {"rows": 7}}, "float64", {"rows": 6, "lanes": 1}, False),
    ],
)
def test_limits(limits, dtype, sizes, serves, monkeypatch):
    monkeypatch.delenv("AVEM_NATIVE", raising=False)
    limits = {"backend": jax.default_backend()} | limits
    cannot = Engine("new", lambda **sizes: None, **limits)  # such as without a compiler
    monkeypatch.setattr(dispatch, "ENGINES", (cannot, Engine("new", lambda **_: abs, **limits)))
    assert dispatch.engine("new", dtype, **sizes) is (abs if serves else None)


def test_only_the_dispatch_knows_of_engines():
    """No other module imports from the folders of the engines."""
    package = Path(dispatch.__file__).parents[1]
    knowing = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "kernels.cpp" in path.read_text(encoding="utf-8") and path.parent.name != "cpp"
    ]
    assert knowing == ["kernels/dispatch.py"]


def test_without_triton_the_definition_runs(monkeypatch):
    monkeypatch.setattr(dispatch, "platform", lambda: "gpu")
    sizes = {"states": 3, "outcomes": 2, "features": 6, "cells": 1, "times": 10, "lanes": 5}
    assert dispatch.engine("gaussian_chain", "float64", **sizes) is not None
    monkeypatch.setitem(sys.modules, "jax.experimental.pallas.triton", None)
    for name in ("avem.kernels.pallas.blocks", "avem.kernels.pallas.calls"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr("jax.experimental.pallas.triton", raising=False)
    monkeypatch.delattr("avem.kernels.pallas.calls", raising=False)
    assert dispatch.engine("gaussian_chain", "float64", **sizes) is None
