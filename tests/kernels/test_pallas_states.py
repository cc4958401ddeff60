"""The GPU's kernel of state-space models, in Pallas' interpreter, against the definition."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.kernels import kalman_moments
from avem.kernels.kalman_filter import Problem, System
from avem.kernels.pallas import calls


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def covariances(rng, q, n):
    root = rng.standard_normal((q, 2 * q, n))
    return np.einsum("abn,cbn->acn", root, root) / (2 * q) + 0.1 * np.eye(q)[:, :, None]


def problem(q, groups, n_w=0, n_s=0, lengths=(5, 1, 0, 4, 5), gaps=True, scale=1.0, seed=0):
    """The arguments of the kernel; the parameters that are no subject's have one lane."""
    rng = np.random.default_rng(seed)
    p, n, times = sum(map(len, groups)), len(lengths), max(lengths)
    group_of = np.empty(p, int)
    for number, members in enumerate(groups):
        group_of[list(members)] = number
    valid = np.arange(times)[:, None] < np.array(lengths)
    shown = rng.random((times, len(groups), n)) < 0.6 if gaps else True
    seen = valid[:, None] & np.broadcast_to(shown, (times, len(groups), n))
    s = rng.standard_normal((times, n_s, n))
    s[:1] = 0.0
    drive = np.einsum("as,tsn->tan", rng.standard_normal((q, n_s)), s) if n_s else None
    system = System(
        rng.standard_normal((q, 1)),
        covariances(rng, q, 1),
        0.5 * rng.standard_normal((q, q, n)),
        np.eye(q)[:, :, None],
        scale * rng.standard_normal((p, q, n)),
        rng.uniform(0.2, 2.0, (p, 1)),
    )
    y = np.where(seen[:, group_of], scale * 3.0 * rng.standard_normal((times, p, n)), 0.0)
    shape = SimpleNamespace(
        n_latent=q,
        n_outcomes=p,
        groups=groups,
        group_of=group_of,
        w_cols=tuple(range(n_w)),
        drive_cols=tuple(range(n_s)),
    )
    w = rng.standard_normal((times, n_w, n))
    arrays = jax.tree.map(jnp.asarray, (Problem(system, y, seen[:, group_of], valid, drive), w, s))
    return shape, *arrays, jnp.asarray(seen)


def compare(given, tol=1e-10):
    found = calls._kalman_moments(*given)
    wanted = kalman_moments.definition(*given)
    for name, got, want in zip(wanted._fields, found, wanted, strict=True):
        size = 1.0 + np.abs(want).max(initial=0.0)
        np.testing.assert_allclose(got, want, rtol=tol, atol=tol * size, err_msg=name)


def test_groups_gaps_and_regressors():
    compare(problem(2, ((0, 2), (1,)), n_w=2, n_s=1))


@pytest.mark.parametrize("q", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_any_number_of_states(q):
    compare(problem(q, (tuple(range(q)),), lengths=(3, 2), seed=q))


def test_sequences_of_one_row_in_more_than_a_block():
    compare(problem(1, ((0,),), lengths=(1,) * 70, gaps=False))


@pytest.mark.slow
def test_outcomes_far_from_any_state():
    compare(problem(2, ((0, 1),), scale=1e6, gaps=False), tol=1e-8)


def test_an_engine_for_what_stays_in_registers():
    assert calls.kalman_moments(states=2, outcomes=4, groups=1) is calls._kalman_moments
    assert calls.kalman_moments(states=4, outcomes=30, groups=4) is None
