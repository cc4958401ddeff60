"""Centres under another prior."""

import numpy as np

from avem.inference.methods.adaptive.mixture import Centres


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
