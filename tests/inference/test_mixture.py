"""Centres under another prior, and the nodes around them."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.proposal import Proposal, integral
from avem.inference.methods.adaptive.rules import grid
from avem.inference.tuning import BETWEEN


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
    # One who is lost stays as it is, and is nothing to the others.
    one_lost = Centres.single(np.array([[1.0, np.nan], [1.0, np.nan]]), np.zeros((2, 2, 2)), old)
    found = one_lost.under(new)
    np.testing.assert_array_equal(found.mean[0, :, 0], nothing.mean[0, :, 0])
    assert np.isnan(found.mean[0, :, 1]).all()
    np.testing.assert_array_equal(found.covariance[0, :, :, 1], 0.0)


def test_nodes_weigh_what_prior_and_mixture_say():
    rng = np.random.default_rng(3)
    d, n, n_centres = 2, 4, 3
    wide = np.stack([np.stack([_spd(rng, d) for _ in range(n)], -1) for _ in range(n_centres)])
    log_share = np.log(rng.dirichlet(np.ones(n_centres), size=n).T)
    log_share[:, 0] = [0.0, -np.inf, -np.inf]
    sigma, rule = _spd(rng, d), grid(d, 5)
    centres = Centres(log_share, rng.normal(size=(n_centres, d, n)), wide, sigma)
    proposal = Proposal.of(centres, rule, sigma)
    for i in range(n):
        densities = np.zeros(len(proposal.at))
        for c in range(n_centres):
            own = multivariate_normal(centres.mean[c, :, i], wide[c, :, :, i])
            densities += np.exp(log_share[c, i]) * own.pdf(proposal.at[:, :, i])
        share = np.exp(np.repeat(log_share[:, i], 25) + np.tile(rule.log_weights, n_centres))
        prior = multivariate_normal(np.zeros(d), sigma).pdf(proposal.at[:, :, i])
        weight = share * prior / densities
        np.testing.assert_allclose(np.exp(proposal.log_weight[:, i]), weight, rtol=1e-10)


@pytest.mark.parametrize("d", [1, 2])
def test_a_few_nodes_at_a_time_are_all_of_them(d):
    """Sums of weights and distances, against those of all nodes at once."""
    rng = np.random.default_rng(6)
    n, n_centres, sigma, rule = 5, 2, _spd(rng, d), grid(d, 5)
    wide = np.stack([np.stack([_spd(rng, d) for _ in range(n)], -1) for _ in range(n_centres)])
    log_share = np.log(rng.dirichlet(np.ones(n_centres), size=n).T)
    log_share[:, 0] = [0.0, -np.inf]
    centres = Centres(log_share, 5.0 + rng.normal(size=(n_centres, d, n)), wide, sigma)

    def loglik(at):
        return -300.0 + 7.0 * np.sin(at).sum(1)

    total, nearer = integral(centres, rule, sigma, loglik)
    proposal = Proposal.of(centres, rule, sigma)
    height = proposal.log_weight + loglik(proposal.at)
    np.testing.assert_allclose(total, np.logaddexp.reduce(height), rtol=1e-13)
    wanted = proposal.following(share := np.exp(height - total))
    for found, own in zip(nearer[:3], wanted[:3], strict=True):
        np.testing.assert_allclose(found, own, rtol=1e-10, atol=1e-12)
    own = share * proposal.part
    mass = np.maximum(own.sum(1), 1e-300)
    mean = (own[:, :, None] * proposal.at).sum(1) / mass[:, None]
    away = proposal.at - mean[:, None]
    cov = (own[:, :, None, None] * away[:, :, :, None] * away[:, :, None]).sum(1)
    cov = cov / mass[:, None, None] + 1e-3 * wide
    cov = np.where(np.isfinite(log_share).sum(0) > 1, BETWEEN, 1.0) * cov
    used = mass > 1e-6
    np.testing.assert_allclose(nearer.mean[:, 0][used], mean[:, 0][used], rtol=1e-10)
    np.testing.assert_allclose(nearer.covariance[:, 0, 0][used], cov[:, 0, 0][used], rtol=1e-9)


def test_a_gaussian_posterior_is_integrated_exactly_and_followed():
    """One centre that is the posterior: its mass is the evidence, its moments stay."""
    rng = np.random.default_rng(4)
    d, sigma, information = 2, _spd(rng, 2), _spd(rng, 2)
    mean, covariance = _posterior(information, linear := rng.normal(size=d), sigma)
    centres = Centres.single(mean[:, None], covariance[:, :, None], sigma)

    def loglik(at):
        f = at[:, :, 0]
        return (f @ linear - 0.5 * np.einsum("ja,ab,jb->j", f, information, f))[:, None]

    total, nearer = integral(centres, grid(d, 3), sigma, loglik)
    half = 0.5 * (mean @ linear + np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(sigma)[1])
    np.testing.assert_allclose(total, half, rtol=1e-10)
    np.testing.assert_allclose(nearer.mean[0, :, 0], mean, atol=1e-10)
    np.testing.assert_allclose(nearer.covariance[0, :, :, 0], 1.001 * covariance, rtol=1e-9)


def test_what_has_no_likelihood_keeps_its_centres():
    centres = Centres.single(np.ones((1, 2)), np.ones((1, 1, 2)), np.eye(1))

    def loglik(at):
        out = np.zeros((len(at), 2))
        out[1, 1] = np.nan
        return out

    total, nearer = integral(centres, grid(1, 3), np.eye(1), loglik)
    assert np.isfinite(total).tolist() == [True, False]
    assert nearer.mean[0, 0, 1] == 1.0
    assert np.isfinite(nearer.covariance).all()
    lost = Proposal.of(centres._replace(covariance=-np.ones((1, 1, 1, 2))), grid(1, 3), np.eye(1))
    assert np.isnan(lost.log_weight).all()
