"""All steps at once give what two passes give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.kernels import associative, dispatch
from avem.kernels import forward_backward as chains
from avem.kernels import gaussian_chain as chain
from avem.kernels.forward_backward import Steps
from avem.kernels.pallas import calls
from tests.chosen import chosen
from tests.kernels.test_gaussian_chain import Problem
from tests.kernels.test_pallas import KINDS, _jax, run, with_steps


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def compare(initial, transition, table, valid, steps, tol=1e-11):
    given = (initial, transition, jnp.asarray(table), valid, steps)
    wanted = run(chains.definition, *given)
    for found, want in zip(run(associative.run, *given), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=tol, atol=tol)


@pytest.mark.parametrize("kind", chosen(KINDS, ("in cells",)))
def test_every_kind_of_chain(kind):
    problem = Problem(3, 2, ((0,), (1,)))
    transition, steps = with_steps(problem, kind)
    table = chain.log_densities(_jax(problem.squares), problem.rows)
    compare(problem.initial, transition, table, problem.rows.valid, steps)


@pytest.mark.parametrize(("n_states", "times"), chosen([(1, 1), (2, 1), (8, 5)], [(2, 1)]))
def test_sizes(n_states, times):
    rng = np.random.default_rng(n_states)
    transition = rng.dirichlet(np.ones(n_states), n_states)
    table = rng.normal(size=(times, n_states, 3))
    initial = np.full(n_states, 1 / n_states)
    compare(initial, transition, table, np.ones((times, 3), bool), Steps())


def test_long_chains_far_from_any_state():
    rng = np.random.default_rng(1)
    table = -1e4 + 100.0 * rng.normal(size=(300, 2, 2))
    transition = np.array([[1 - 1e-6, 1e-6], [1e-3, 1 - 1e-3]])
    compare(np.array([1.0, 0.0]), transition, table, np.ones((300, 2), bool), Steps(), 1e-9)


def test_what_is_impossible_is_seen():
    table = np.zeros((3, 2, 2))
    table[0, 1, 0], table[1, 0, 0] = -np.inf, -np.inf
    given = (np.full(2, 0.5), np.eye(2), jnp.asarray(table), np.ones((3, 2), bool), Steps())
    found, wanted = associative.run(*given)[0], chains.definition(*given).loglik
    assert not np.isfinite(found[0])
    assert not np.isfinite(wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-12)


def test_where_it_runs(monkeypatch):
    monkeypatch.setattr(dispatch, "platform", lambda: "gpu")
    long = {"states": 3, "cells": 1, "times": 20_000, "lanes": 20}
    gaussian = {**long, "outcomes": 2, "features": 6}
    assert dispatch.engine("forward_backward", "float64", **long) is associative.run
    assert dispatch.engine("gaussian_chain", "float64", **gaussian) is None
    short = {"times": 100}
    assert dispatch.engine("forward_backward", "float64", **long | short) is calls._forward_backward
    assert dispatch.engine("gaussian_chain", "float64", **gaussian | short) is calls._gaussian_chain
