"""Filter and smoother against the dense joint Gaussian of all states and outcomes."""

import jax
import numpy as np
import pytest

from avem.kernels.kalman import expected_log_density, smooth
from avem.kernels.kalman_filter import More, Problem, System, filter_states, predict_states
from avem.numerics.precision import in_float64
from tests.chosen import chosen

T = 6
LENGTHS = (6, 4, 1, 6)
RUN = in_float64(jax.jit(smooth))


def make(q, p, seed=0):
    """Systems of four lanes of different lengths, with missing cells and rows, and a drive."""
    rng = np.random.default_rng(seed)
    n = len(LENGTHS)

    def covariances():
        root = rng.standard_normal((n, q, q))
        return np.moveaxis(root @ np.swapaxes(root, 1, 2) + 0.3 * np.eye(q), 0, -1)

    system = System(
        rng.standard_normal((q, n)),
        covariances(),
        0.5 * rng.standard_normal((q, q, n)),
        covariances(),
        rng.standard_normal((p, q, n)),
        rng.uniform(0.1, 1.0, (p, n)),
    )
    valid = np.arange(T)[:, None] < np.array(LENGTHS)
    seen = valid[:, None] & (rng.random((T, p, n)) < 0.7)
    seen[2, :, 0] = False  # a whole row
    return system, rng.standard_normal((T, p, n)), seen, valid, rng.standard_normal((T, q, n))


def dense(system, y, seen, drive, lane, length):
    """Joint mean and covariance of all states, conditioned on the outcomes; and log p(y)."""
    m, P, G, Q, H, R = (np.asarray(part)[..., lane] for part in system)
    q = len(m)
    mean, cov = np.zeros((length, q)), np.zeros((length, q, length, q))
    for t in range(length):
        if t == 0:
            mean[0], cov[0, :, 0] = m + drive[0, :, lane], P
            continue
        mean[t] = G @ mean[t - 1] + drive[t, :, lane]
        cov[t, :, :t] = np.einsum("ab,bsc->asc", G, cov[t - 1, :, :t])
        cov[:t, :, t] = np.einsum("asc->sca", cov[t, :, :t])
        cov[t, :, t] = G @ cov[t - 1, :, t - 1] @ G.T + Q
    mean, cov = mean.ravel(), cov.reshape(length * q, length * q)
    load = np.kron(np.eye(length), H)
    keep = seen[:length, :, lane].ravel()
    load, noise = load[keep], np.diag(np.tile(R, length)[keep])
    values = y[:length, :, lane].ravel()[keep]
    if not keep.any():
        return mean.reshape(length, q), cov.reshape(length, q, length, q), 0.0
    total = load @ cov @ load.T + noise
    gain = np.linalg.solve(total, load @ cov).T
    away = values - load @ mean
    height = away @ np.linalg.solve(total, away) + np.linalg.slogdet(total)[1]
    loglik = -0.5 * (height + len(away) * np.log(2 * np.pi))
    mean, cov = mean + gain @ (values - load @ mean), cov - gain @ load @ cov
    return mean.reshape(length, q), cov.reshape(length, q, length, q), loglik


@pytest.mark.parametrize(("q", "p"), chosen([(1, 1), (2, 3), (4, 5), (7, 8)], [(2, 3), (7, 8)]))
def test_smoothing_equals_the_dense_joint_gaussian(q, p):
    system, y, seen, valid, drive = make(q, p)
    found = jax.tree.map(np.asarray, RUN(Problem(system, y, seen, valid, drive)))
    for lane, length in enumerate(LENGTHS):
        mean, cov, loglik = dense(system, y, seen, drive, lane, length)
        np.testing.assert_allclose(found.loglik[lane], loglik, atol=1e-10)
        np.testing.assert_allclose(found.mean[:length, :, lane], mean, atol=1e-10)
        for t in range(length):
            np.testing.assert_allclose(found.cov[t, :, :, lane], cov[t, :, t], atol=1e-10)
            if t:
                cross = cov[t, :, t - 1]
                np.testing.assert_allclose(found.cross[t, :, :, lane], cross, atol=1e-10)
        for part in found[1:]:
            assert not part[length:, ..., lane].any()
        assert not found.cross[0].any()


def test_filtering_uses_the_past_alone():
    system, y, seen, valid, drive = make(2, 3)
    found = in_float64(jax.jit(filter_states))(Problem(system, y, seen, valid, drive))
    ahead = in_float64(jax.jit(predict_states))(Problem(system, y, seen, valid, drive))
    for t in (0, 2, 3):
        mean, cov, _ = dense(system, y, seen & (np.arange(T) <= t)[:, None, None], drive, 0, 6)
        np.testing.assert_allclose(found.mean[t, :, 0], mean[t], atol=1e-10)
        np.testing.assert_allclose(found.cov[t, :, :, 0], cov[t, :, t], atol=1e-10)
        mean, cov, _ = dense(system, y, seen & (np.arange(T) < t)[:, None, None], drive, 0, 6)
        np.testing.assert_allclose(ahead.mean[t, :, 0], mean[t], atol=1e-10)
        np.testing.assert_allclose(ahead.cov[t, :, :, 0], cov[t, :, t], atol=1e-10)


def test_padding_changes_no_bit():
    system, y, seen, valid, drive = make(2, 3)
    longer = [
        np.concatenate([part, np.ones((4, *part.shape[1:]), part.dtype)]) for part in (y, drive)
    ]
    masks = [np.concatenate([m, np.zeros((4, *m.shape[1:]), bool)]) for m in (seen, valid)]
    short = RUN(Problem(system, y, seen, valid, drive))
    long = RUN(Problem(system, longer[0], *masks, longer[1]))
    np.testing.assert_array_equal(short.loglik, long.loglik)
    for a, b in zip(short[1:], long[1:], strict=True):
        np.testing.assert_array_equal(a, b[:T])
        assert not np.asarray(b[T:]).any()


def test_shared_parameters_and_no_drive():
    system, y, seen, valid, drive = make(2, 3)
    shared = System(*(part[..., :1] for part in system))
    same = System(*(np.repeat(part[..., :1], len(LENGTHS), axis=-1) for part in system))
    one = RUN(Problem(shared, y, seen, valid))
    other = RUN(Problem(same, y, seen, valid, 0 * drive))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_tiny_noise_does_not_cancel():
    system, y, seen, valid, drive = make(2, 3)
    system = system._replace(noise=np.full_like(system.noise, 1e-6))
    found = RUN(Problem(system, y, seen, valid, drive))
    _, _, loglik = dense(system, y, seen, drive, 1, 4)
    np.testing.assert_allclose(found.loglik[1], loglik, rtol=1e-6)


def test_more_information_is_like_further_outcomes():
    """Outcomes z_t = x_t + N(0, V) say -x'V^-1 x / 2 + z'V^-1 x and a constant."""
    system, y, seen, valid, drive = make(2, 3)
    rng = np.random.default_rng(5)
    z, v = rng.standard_normal((T, 2, len(LENGTHS))), rng.uniform(0.3, 2.0, (2, len(LENGTHS)))
    wide = system._replace(
        loading=np.concatenate([system.loading, np.eye(2)[:, :, None].repeat(len(LENGTHS), 2)]),
        noise=np.concatenate([system.noise, v]),
    )
    also = np.broadcast_to(valid[:, None], z.shape)
    whole = Problem(wide, np.concatenate([y, z], 1), np.concatenate([seen, also], 1), valid, drive)
    precision = np.broadcast_to(np.eye(2)[:, :, None] / v, (T, 2, 2, len(LENGTHS)))
    constant = -0.5 * (z**2 / v + np.log(2 * np.pi * v)).sum(1)
    more = More(precision, z / v, constant)
    for a, b in zip(RUN(whole), RUN(Problem(system, y, seen, valid, drive, more)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_expected_log_density_is_that_of_draws():
    """And at the posterior it exceeds log p(y) by minus the entropy, whatever the system was."""
    system, y, seen, valid, drive = make(2, 3)
    other, *_ = make(2, 3, seed=3)
    problem, moved = Problem(system, y, seen, valid, drive), Problem(other, y, seen, valid, drive)
    found = RUN(problem)
    value = np.asarray(in_float64(jax.jit(expected_log_density))(moved, found))
    for lane, length in enumerate(LENGTHS):
        mean, cov, _ = dense(system, y, seen, drive, lane, length)
        size = length * 2
        prior, spread, _ = dense(other, y, seen & False, drive, lane, length)
        spread = spread.reshape(size, size)
        away = (mean - prior).ravel()
        second = cov.reshape(size, size) + np.outer(away, away)
        states = np.trace(np.linalg.solve(spread, second)) + np.linalg.slogdet(spread)[1]
        total = -0.5 * (states + size * np.log(2 * np.pi))
        for t in range(length):
            for j in np.flatnonzero(seen[t, :, lane]):
                h, r = other.loading[j, :, lane], other.noise[j, lane]
                square = (y[t, j, lane] - h @ mean[t]) ** 2 + h @ cov[t, :, t] @ h
                total -= 0.5 * (square / r + np.log(2 * np.pi * r))
        np.testing.assert_allclose(value[lane], total, atol=1e-9)


@pytest.mark.parametrize("gaps", [False, True])
def test_statsmodels_says_the_same_of_single_series(gaps):
    statespace = pytest.importorskip("statsmodels.tsa.statespace.mlemodel")
    rng = np.random.default_rng(8)
    q, p, length = 2, 3, 40
    system, *_ = make(q, p)
    system = System(*(part[..., :1] for part in system))
    y = rng.standard_normal((length, p))
    seen = rng.random((length, p)) < (0.7 if gaps else 1.1)
    m, P, G, Q, H, R = (np.asarray(part)[..., 0] for part in system)
    theirs = statespace.MLEModel(np.where(seen, y, np.nan), k_states=q)
    theirs.ssm.initialize_known(m, P)
    theirs["design"], theirs["obs_cov"] = H, np.diag(R)
    theirs["transition"], theirs["selection"], theirs["state_cov"] = G, np.eye(q), Q
    result = theirs.ssm.smooth()
    valid = np.ones((length, 1), bool)
    ours = RUN(Problem(system, y[:, :, None], seen[:, :, None], valid))
    np.testing.assert_allclose(ours.loglik[0], result.llf, rtol=1e-10)
    np.testing.assert_allclose(ours.mean[:, :, 0], result.smoothed_state.T, atol=1e-9)
    cov = np.moveaxis(result.smoothed_state_cov, -1, 0)
    np.testing.assert_allclose(ours.cov[..., 0], cov, atol=1e-9)
    cross = np.moveaxis(result.smoothed_state_autocov, -1, 0)  # Cov(x_{t+1}, x_t) at t
    np.testing.assert_allclose(ours.cross[1:, :, :, 0], cross[:-1], atol=1e-9)
