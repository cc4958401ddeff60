"""Centres under another prior."""

import jax.numpy as jnp
import numpy as np

from avem.inference.methods.adaptive.mixture import Centres, around_centres, factors
from avem.inference.methods.adaptive.node_pass import following, heights
from avem.inference.methods.adaptive.proposal import Proposal
from avem.numerics.nodes import gauss_hermite
from avem.numerics.precision import in_float64


def _spd(rng, d):
    root = rng.normal(size=(d, d))
    return root @ root.T + 0.1 * np.eye(d)


def _posterior(information, linear, sigma):
    covariance = np.linalg.inv(information + np.linalg.inv(sigma))
    return covariance @ linear, covariance


def test_gaussian_likelihoods_have_the_posterior_of_the_new_prior():
    rng = np.random.default_rng(0)
    d, n = 3, 5
    old, new = _spd(rng, d), 1e-3 * _spd(rng, d)
    likelihoods = [(_spd(rng, d), rng.normal(size=d)) for _ in range(n)]
    pairs = [_posterior(*likelihood, old) for likelihood in likelihoods]
    mean, covariance = (np.stack(parts, -1) for parts in zip(*pairs, strict=True))
    found = Centres.single(mean, covariance, old).under(new)
    for i, likelihood in enumerate(likelihoods):
        mean, covariance = _posterior(*likelihood, new)
        np.testing.assert_allclose(found.mean[0, :, i], mean, rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(found.covariance[0, :, :, i], covariance, rtol=1e-6, atol=1e-10)


def test_without_information_a_posterior_is_the_prior():
    old, new = np.diag([1.0, 2.0]), np.diag([0.01, 30.0])
    mean, covariance = np.zeros((2, 1)), old[:, :, None]
    found = Centres.single(mean, covariance, old).under(new)
    np.testing.assert_allclose(found.covariance[0, :, :, 0], new, rtol=1e-8)
    assert not found.mean.any()


def test_what_cannot_be_inverted_does_not_end_a_fit():
    old, new = np.eye(2), 0.5 * np.eye(2)
    nothing = Centres.single(np.ones((2, 1)), np.zeros((2, 2, 1)), old).under(new)
    assert np.isfinite(nothing.mean).all()
    lost = Centres.single(np.full((2, 1), np.nan), np.zeros((2, 2, 1)), old)
    assert lost.under(new) is lost


@in_float64
def test_grading_and_iterating_integrate_alike():
    """The one in NumPy, for any number of nodes; the other compiled, for one."""
    rng = np.random.default_rng(3)
    d, n, n_centres = 2, 4, 3
    wide = np.stack([np.stack([_spd(rng, d) for _ in range(n)], -1) for _ in range(n_centres)])
    log_share = np.log(rng.dirichlet(np.ones(n_centres), size=n).T)
    log_share[:, 0] = [0.0, -np.inf, -np.inf]
    sigma = _spd(rng, d)
    centres = Centres(log_share, rng.normal(size=(n_centres, d, n)), wide, sigma)
    points, weights = gauss_hermite(d, 5)
    proposal, on_device = Proposal(centres), Centres(*map(jnp.asarray, centres))
    low = factors(on_device)
    at = proposal.places(points)
    np.testing.assert_allclose(at, around_centres(on_device.mean, low, points), atol=1e-12)
    loglik = rng.normal(size=(len(at), n))
    total, nearer = proposal.integral(sigma, at, np.log(weights), loglik)
    height, part = heights(sigma, on_device, low, at, np.log(weights), loglik)
    share = np.exp(np.asarray(height) - total)
    np.testing.assert_allclose(share.sum(0), 1.0, rtol=1e-10)
    compiled = following(on_device, at, share, part, np.ones(n))
    for one, other in zip(nearer, compiled, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
