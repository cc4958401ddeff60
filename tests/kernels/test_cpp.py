"""The other kernels in C++ give what the definitions give that they replace."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from avem.effects.quadratic import Quadratic
from avem.kernels import kalman_filter, kalman_moments, posterior
from avem.kernels.dispatch import ENGINES, engine
from avem.models.ssm_kernel import SSMKernel
from tests.chosen import chosen

pytestmark = pytest.mark.skipif(
    engine("inverse", "float64", rows=8) is None,
    reason="no C++ compiler, or no CPU: the portable code runs",
)

# One program each: operation by operation, every single one would be compiled by itself.
by_definition = jax.jit(kalman_moments.definition, static_argnums=0)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def native(kernel, **sizes):
    """The engine in C++, also for sizes that the definition serves as well."""
    (own,) = (one for one in ENGINES if one.kernel == kernel and one.backend == "cpu")
    return own.make(**sizes)


def made(q, groups, n_w, n_s, lengths, share_missing, seed):
    """A kernel, a problem on lanes of these lengths, and known columns."""
    rng = np.random.default_rng(seed)
    p, n, n_times = sum(map(len, groups)), len(lengths), max(lengths)
    kernel = SSMKernel(q, groups, tuple(range(n_w)), (), tuple(range(n_s)), True, True)
    root = rng.normal(size=(q, q))
    valid = np.arange(n_times)[:, None] < np.asarray(lengths)
    seen = np.empty((n_times, p, n), bool)
    for group in groups:
        seen[:, list(group)] = rng.random((n_times, 1, n)) >= share_missing
    system = kalman_filter.System(
        start_mean=rng.normal(size=(q, 1)),
        start_cov=(root @ root.T + np.eye(q))[:, :, None],
        transition=0.4 * rng.normal(size=(q, q, n)),
        state_noise=np.eye(q)[:, :, None],
        loading=rng.normal(size=(p, q, n)),
        noise=rng.uniform(0.2, 1.0, size=(p, 1)),
    )
    problem = kalman_filter.Problem(
        system=system,
        y=rng.normal(size=(n_times, p, n)),
        seen=seen & valid[:, None],
        valid=valid,
        drive=rng.normal(size=(n_times, q, n)) if n_s else None,
    )
    w, s = (rng.normal(size=(n_times, size, n)) for size in (n_w, n_s))
    s[:1] = 0.0
    return kernel, problem, w, s


def groups_seen(kernel, problem):
    return problem.seen[:, np.array([group[0] for group in kernel.groups])]


def agree(kernel, problem, w, s):
    run = engine("kalman_moments", w.dtype, states=kernel.n_latent)
    arguments = kernel, problem, w, s, groups_seen(kernel, problem)
    expected = by_definition(*arguments)
    found = kalman_moments.Moments(*jax.jit(run, static_argnums=0)(*arguments))
    for name in expected._fields:
        here = problem.valid[0]  # the first state of a lane without steps has no meaning
        a, b = (np.asarray(getattr(part, name))[..., here] for part in (found, expected))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=name)


ALL_SEEN, APART = ((0, 1, 2, 3),), ((0, 2), (1,), (3,))


@pytest.mark.parametrize(
    ("q", "groups", "n_w", "n_s", "lengths", "missing"),
    [
        pytest.param(2, ALL_SEEN, 0, 0, [12] * 8, 0.0, marks=pytest.mark.slow),
        (2, APART, 2, 1, [1, 12, 5, 0, 12, 7, 3, 12, 9, 2, 12], 0.3),
        (1, ((0,),), 1, 0, [6], 0.2),
        pytest.param(3, APART, 0, 2, [9, 4, 9, 1, 9], 0.5, marks=pytest.mark.slow),
    ],
)
def test_moments_equal_the_scans(q, groups, n_w, n_s, lengths, missing):
    agree(*made(q, groups, n_w, n_s, lengths, missing, seed=q))


def test_moments_of_large_and_many_numbers():
    kernel, problem, w, s = made(2, ALL_SEEN, 0, 0, [400] * 3, 0.0, seed=5)
    # Determinants whose product is far beyond the largest number there is.
    tight = problem.system._replace(noise=np.full((4, 1), 1e-12))
    agree(kernel, problem._replace(system=tight), w, s)


def test_moments_at_several_nodes():
    kernel, problem, w, s = made(2, APART, 1, 1, [7, 3, 7], 0.3, seed=9)
    run = engine("kalman_moments", w.dtype, states=2)
    seen = groups_seen(kernel, problem)
    loadings = problem.system.loading[None] + np.arange(4.0)[:, None, None, None]

    def at(loading):
        return problem._replace(system=problem.system._replace(loading=loading))

    at_each = jax.jit(jax.vmap(lambda h: run(kernel, at(h), w, s, seen)))
    found = kalman_moments.Moments(*map(np.asarray, at_each(loadings)))
    for i, loading in enumerate(loadings):
        expected = by_definition(kernel, at(loading), w, s, seen)
        for name in expected._fields:
            np.testing.assert_allclose(
                getattr(found, name)[i], getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name
            )


@pytest.mark.parametrize(("d", "n"), [(1, 1), (7, 5), (11, 8), (30, 19)])
def test_inverse_and_log_determinant(d, n):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(n, d, 2 * d))
    matrices = root @ np.swapaxes(root, 1, 2)
    batch = np.moveaxis(matrices, 0, -1)
    run = jax.jit(native("inverse"))
    inverse, logdet = run(batch)
    expected = np.moveaxis(np.linalg.inv(matrices), 0, -1)
    np.testing.assert_allclose(inverse, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(logdet, np.linalg.slogdet(matrices)[1], rtol=1e-12)
    twice, logdets = jax.jit(jax.vmap(run))(np.stack([batch, 2.0 * batch]))
    np.testing.assert_allclose(twice[1], expected / 2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(logdets[1], logdet + d * np.log(2), rtol=1e-12)


@pytest.mark.parametrize(("d", "n", "has_origin"), [(2, 3, True), (11, 8, True), (7, 21, False)])
def test_posterior_of_a_quadratic(d, n, has_origin):
    rng = np.random.default_rng(d)
    roots = rng.normal(size=(n + 1, d, 2 * d))
    squares = np.moveaxis(roots @ np.swapaxes(roots, 1, 2), 0, -1)
    prior, quadratic = squares[..., :1], Quadratic(squares[..., 1:], rng.normal(size=(d, n)))
    if has_origin:
        quadratic = quadratic._replace(origin=rng.normal(size=(d, n)))
    logdet = -np.linalg.slogdet(prior[..., 0])[1]
    run = jax.jit(native("posterior"))

    def agree(found, expected):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)

    expected = jax.jit(posterior.definition)(prior, logdet[None], *quadratic)
    agree(run(prior, logdet[None], *quadratic), expected)
    # Under vmap, with what is shared and what is not.
    at_each = jax.jit(
        jax.vmap(lambda linear: run(prior, logdet[None], *quadratic._replace(linear=linear)))
    )
    several = at_each(np.stack([quadratic.linear + 1.0, quadratic.linear]))
    agree(jax.tree.map(lambda leaf: leaf[1], several), expected)


def test_a_matrix_that_is_not_positive_definite_has_no_inverse():
    batch = jnp.stack([jnp.eye(8), jnp.eye(8).at[0, 0].set(-1.0).at[1, 1].set(-1.0)], axis=-1)
    inverse, logdet = engine("inverse", batch.dtype, rows=8)(batch)
    assert logdet[0] == 0.0
    assert np.isnan(logdet[1])
    np.testing.assert_array_equal(inverse[..., 0], np.eye(8))


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("AVEM_NATIVE", "0")
    assert engine("inverse", jnp.float64, rows=8) is None


@pytest.mark.parametrize("gaps", chosen((False, True), (True,)))
def test_moments_where_the_covariances_settle(gaps):
    """Long stretches without gaps: covariances stop changing, and start again after a gap."""
    kernel, problem, w, s = made(2, APART, 1, 1, [150] * 9 + [90] if gaps else [150] * 9, 0.0, 11)
    if gaps:
        seen = problem.seen.copy()
        seen[70:72, [0, 2], 3] = seen[100, 1, 5] = False
        problem = problem._replace(seen=seen)
    agree(kernel, problem, w, s)
