"""The kernels for GPUs, in Pallas' interpreter, against the definitions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.kernels import dispatch, viterbi
from avem.kernels import forward_backward as chains
from avem.kernels import gaussian_chain as chain
from avem.kernels.forward_backward import Steps
from avem.kernels.pallas import calls
from avem.numerics import devices
from tests.chosen import chosen
from tests.kernels.test_gaussian_chain import LENGTHS, Problem


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def with_steps(problem, kind, seed=0):
    """Transitions, and how pairs are added up."""
    rng = np.random.default_rng(seed)
    times, n = problem.rows.valid.shape
    k = problem.k
    if kind == "one matrix":
        return problem.transition, Steps()
    if kind == "of every lane":
        return rng.dirichlet(np.ones(k), size=(n, k)).transpose(1, 2, 0), Steps()
    if kind == "in cells":
        return problem.transition, Steps(jnp.asarray(rng.integers(0, 2, (times, n))), 2)
    return rng.dirichlet(np.ones(k), size=(times, n, k)).transpose(0, 2, 3, 1), Steps(None, 0)


KINDS = ("one matrix", "of every lane", "in cells", "of every step")


def same(found, wanted, tol=1e-12):
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


def run(function, *given):
    """Compiled: step by step, every step would be a program of its own."""
    return jax.jit(lambda: function(*given))()


@pytest.mark.parametrize("kind", chosen(KINDS, ("of every step",)))
@pytest.mark.parametrize("patterns", chosen((False, True), (False,)))
def test_gaussian_outcomes(kind, patterns):
    problem = Problem(2, 3, ((0, 1), (2,)), patterns=patterns)
    transition, steps = with_steps(problem, kind)
    given = (problem.initial, transition, _jax(problem.squares), problem.rows, steps)
    same(run(calls._gaussian_chain, *given), run(chain.definition, *given))


@pytest.mark.parametrize("n_states", chosen((1, 3, 5, 8), (1, 3)))
def test_any_number_of_states(n_states):
    problem = Problem(n_states, 1, ((0,),), lengths=(3, 1, 0, 4))
    given = (problem.initial, problem.transition, _jax(problem.squares), problem.rows, Steps())
    same(run(calls._gaussian_chain, *given), run(chain.definition, *given))


@pytest.mark.parametrize("kind", chosen(KINDS, ("in cells",)))
def test_given_tables(kind):
    problem = Problem(2, 2, ((0,), (1,)), seed=1)
    transition, steps = with_steps(problem, kind)
    table = chain.log_densities(_jax(problem.squares), problem.rows)
    given = (problem.initial, transition, table, problem.rows.valid, steps)
    same(run(calls._forward_backward, *given), run(chains.definition, *given))


def test_a_column_of_ones_is_not_read():
    problem = Problem(2, 2, ((0,), (1,)))
    rows = problem.rows._replace(a=jnp.asarray(problem.rows.a).at[:, 0].set(1.0))
    squares = _jax(problem.squares)
    known = squares._replace(lists=replace(squares.lists, constant=0))
    given = (problem.initial, problem.transition)
    wanted = chain.definition(*given, squares, rows, Steps())
    unread = rows._replace(a=rows.a.at[:, 0].set(jnp.nan))
    same(calls._gaussian_chain(*given, known, unread, Steps()), wanted)


def test_many_lanes_and_one_step():
    """More than a block, not a whole number of them; and sequences of a single row."""
    problem = Problem(2, 1, ((0,),), lengths=(1,) * 70)
    given = (problem.initial, problem.transition, _jax(problem.squares), problem.rows, Steps())
    same(run(calls._gaussian_chain, *given), run(chain.definition, *given))


def test_extreme_densities_give_the_same_flags():
    table = np.zeros((4, 2, 3))
    table[:, 0, 0] = -1e5  # far from any state: rescaled, and fine
    table[:, 1, 0] = -2e5
    table[1, :, 1] = (-np.inf, 0.0)  # one state is impossible
    transition = np.array([[1.0, 0.0], [0.0, 1.0]])
    table[0, :, 2], table[1, :, 2] = (0.0, -np.inf), (-np.inf, 0.0)  # no path is possible
    valid = np.ones((4, 3), bool)
    given = (np.array([0.5, 0.5]), transition, jnp.asarray(table), valid, Steps())
    found, wanted = run(calls._forward_backward, *given), run(chains.definition, *given)
    np.testing.assert_allclose(found[0][:2], wanted.loglik[:2])
    assert not np.isfinite(found[0][2])
    assert not np.isfinite(wanted.loglik[2])


def test_nodes_by_vmap():
    problem = Problem(2, 1, ((0,),))
    squares = _jax(problem.squares)
    several = jnp.stack([squares.coef, 1.3 * squares.coef])

    def at(coef):
        rest = (problem.rows, Steps())
        own = squares._replace(coef=coef)
        return calls._gaussian_chain(problem.initial, problem.transition, own, *rest)

    together = run(jax.vmap(at), several)
    for node, coef in enumerate(several):
        same([part[node] for part in together], run(at, coef))


@pytest.mark.parametrize("n_states", [1, 3, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", ["one matrix", "of every lane", pytest.param("of every step", marks=pytest.mark.slow)]
)
def test_best_paths(n_states, kind):
    problem = Problem(n_states, 1, ((0,),), lengths=(4, 1, 0, 3))
    transition, _ = with_steps(problem, kind)
    table = np.array(chain.log_densities(_jax(problem.squares), problem.rows))
    table[1, 0] = -np.inf  # impossible in one state, and two states alike
    table[2] = 0.0
    given = (problem.initial, transition, jnp.asarray(table), problem.rows.valid)
    (path, height), wanted = calls._viterbi(*given), viterbi.definition(*given)
    np.testing.assert_array_equal(path, wanted[0])
    np.testing.assert_allclose(height, wanted[1])


@pytest.mark.parametrize("d", [1, 7, pytest.param(16, marks=pytest.mark.slow)])
def test_inverses(d):
    root = np.random.default_rng(d).standard_normal((d, 2 * d, 70))
    matrix = np.einsum("abn,cbn->acn", root, root)
    matrix[..., 1] *= 1e12
    matrix[..., 2] = np.eye(d)
    found, logdet = calls._inverse(jnp.asarray(matrix))
    each = np.moveaxis(matrix, -1, 0)
    wanted = np.moveaxis(np.linalg.inv(each), 0, -1)
    np.testing.assert_allclose(
        found / np.abs(wanted).max((0, 1)), wanted / np.abs(wanted).max((0, 1)), atol=1e-9
    )
    np.testing.assert_allclose(logdet, np.linalg.slogdet(each)[1], atol=1e-10)
    negative = calls._inverse(-jnp.asarray(matrix))
    assert np.isnan(negative[1]).all()


def test_dispatch_by_where_the_data_are(monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    monkeypatch.setattr(dispatch, "platform", lambda: "gpu")
    sizes = {"states": 3, "outcomes": 2, "features": 6, "cells": 1}
    assert dispatch.engine("gaussian_chain", "float64", **sizes) is calls._gaussian_chain
    many = {**sizes, "features": 100}
    assert dispatch.engine("gaussian_chain", "float64", **many) is None  # too many sums
    assert dispatch.engine("forward_backward", "float64", states=9, cells=1) is None
    assert len(LENGTHS) < 64  # the tests above pad


def _jax(squares):
    return chain.Squares(squares.lists, *(jnp.asarray(part) for part in squares[1:]))
