"""The distribution that a chain stays in, against sums over trees, and where states are rare."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import avem
from avem.numerics.markov import long_run, stationary
from avem.numerics.precision import in_float64
from tests.fits.kinds import fit_from, rows


def by_trees(moves):
    """(states,) shares: sums, over the ways to reach a state from all others, of their products."""
    k = len(moves)
    share = np.zeros(k)
    for root in range(k):
        others = [state for state in range(k) if state != root]
        for ends in product(range(k), repeat=k - 1):
            step = dict(zip(others, ends, strict=True))
            if all(_leads(state, step, root) for state in others):
                share[root] += np.prod([moves[state, end] for state, end in step.items()])
    return share / share.sum()


def _leads(state, step, root):
    seen = set()
    while state != root and state not in seen:
        seen.add(state)
        state = step[state]
    return state == root


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_it_is_the_sum_over_trees_however_rare_a_state_is(k):
    rng = np.random.default_rng(k)
    for rare in (1.0, 1e-10, 1e-40):
        moves = rng.dirichlet(np.ones(k), size=k)
        if k > 1:
            moves[:-1, -1] *= rare
            moves[:-1] /= moves[:-1].sum(1, keepdims=True)
        wanted = by_trees(moves)
        np.testing.assert_allclose(stationary(moves), wanted, rtol=1e-12)
        compiled = in_float64(jax.jit(lambda own: stationary(own, jnp)))
        np.testing.assert_allclose(compiled(moves[None]), wanted[None], rtol=1e-12)


def test_a_state_that_is_never_left_has_it_all():
    moves = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]])
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        own = moves[np.ix_(order, order)]
        np.testing.assert_allclose(stationary(own), np.array(order) == 2, atol=1e-12)
    apart = np.array([[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(long_run(apart, np.array([0.3, 0.7])), [0.3, 0.7])


def test_a_stationary_start_bears_a_state_that_is_hardly_ever_entered():
    """Logarithms are taken of the shares, by nodes and in the slopes of the moves."""
    hmm = avem.MixedHMM("y ~ 1", 3, transition="~ 1 + (1 | who)", initial="stationary")
    coef = np.full((3, 3, 1), -1.5) + 0.3 * np.arange(9).reshape(3, 3, 1)
    coef[[0, 1], 2] = -45.0
    params = {
        "transition_coef": coef * (1 - np.eye(3))[:, :, None],
        "coef": [[[0.0]], [[2.0]], [[9.0]]],
        "variance": [[1.0]] * 3,
        "effect_covariance": 0.2 * np.eye(6),
    }
    frame = rows().assign(y=np.random.default_rng(0).normal(size=len(rows())))
    fit = fit_from(hmm, params, frame, np.zeros((8, 6)))
    assert np.isfinite(fit.state_probabilities()).all(axis=None)
    moves = fit.transitions(level=None)["probability"].to_numpy().reshape(3, 3)
    share = fit.stationary(level=None)["share"]
    np.testing.assert_allclose(share, by_trees(moves), rtol=1e-9)
    assert 0 < share.min() < 1e-15
