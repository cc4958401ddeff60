"""The anchored ELBO against brute force, and its monotonicity for a fixed anchor."""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from avem.components.lanes import by_subject
from avem.numerics.precision import in_float64
from tests.brute import enumerate_paths, gaussian_table, log_sum
from tests.chosen import chosen
from tests.panels import (
    anchors_at,
    awkward_frame,
    chunk_of,
    passes_at,
    prepare,
    random_params,
    start_state,
)

FORMULAS = {
    "intercepts": ("y1 + y2 ~ 1 + (1 | who)", 1, 2),
    "slopes": ("y1 + y2 ~ x + (1 + x | who)", 2, 4),
    "effect only": ("y1 + y2 ~ 1 + (0 + x | who)", 1, 2),
}


def setup(kind, covariance, n_states=2, seed=0, **options):
    formula, m, d = FORMULAS[kind]
    frame = awkward_frame(seed)
    model, data, em = prepare(frame, formula, n_states, covariance, **options)
    rng = np.random.default_rng(seed + 1)
    params = random_params(rng, n_states, 2, m, d, covariance)
    anchors = rng.standard_normal((d, data.panel.n_subjects))
    return frame, model, data, em, params, start_state(model, data, params, anchors), anchors


def tables_at(frame, model, params, subject, effect):
    """The table (..., time, state) of each of a subject's sequences, at effects (..., d)."""
    own = frame[frame["who"] == subject].sort_values(["session", "t"])
    design = model.designs.parts[0]
    x = np.column_stack([np.ones(len(own)) if c == "Intercept" else own[c] for c in design.terms])
    z = np.column_stack(
        [np.ones(len(own)) if c == "Intercept" else own[c] for c in design.effect_terms]
    )
    mean = np.einsum("kjm,tm->tkj", params["coef"], x)
    by_outcome = effect.reshape(*effect.shape[:-1], 2, -1)
    mean = mean + np.einsum("tm,...jm->...tj", z, by_outcome)[..., None, :]
    covariance = model.families[0][0].noise_from_params(params[model.families[0][0].noise_name], 2)
    whole = gaussian_table(own[["y1", "y2"]].to_numpy(), mean, covariance)
    sessions = own["session"].to_numpy()
    return [whole[..., sessions == s, :] for s in np.unique(sessions)]


def brute_bound(frame, model, params, subject, anchor, nu, omega):
    """E over p(U | D, anchor) q(f) of log p(D, U, f) - log p(U | D, anchor) - log q(f)."""
    d = len(nu)
    # Everything inside is at most quadratic in f: three Gauss-Hermite nodes per axis are exact.
    node, weight = np.polynomial.hermite_e.hermegauss(3)
    grid = np.stack(np.meshgrid(*[node] * d, indexing="ij"), -1).reshape(-1, d)
    weights = np.prod(np.stack(np.meshgrid(*[weight] * d, indexing="ij"), -1).reshape(-1, d), 1)
    weights = weights / weights.sum()
    effects = nu + grid @ np.linalg.cholesky(omega).T
    total = 0.0
    tables = (tables_at(frame, model, params, subject, f) for f in (anchor, effects))
    for table, at_effects in zip(*tables, strict=True):
        _, at_anchor = enumerate_paths(params["initial"], params["transition"], table)
        posterior = np.exp(at_anchor - log_sum(at_anchor))
        entropy = -(posterior * (at_anchor - log_sum(at_anchor))).sum()
        _, joint = enumerate_paths(params["initial"], params["transition"], at_effects)
        total += entropy + weights @ (joint @ posterior)
    prior = multivariate_normal(np.zeros(d), params["effect_covariance"])
    q = multivariate_normal(nu, omega)
    return total + weights @ (prior.logpdf(effects) - q.logpdf(effects))


@pytest.mark.parametrize(
    ("kind", "covariance"),
    chosen(
        product(FORMULAS, ("spherical", "diagonal", "full")),
        [("intercepts", "spherical"), ("effect only", "diagonal"), ("slopes", "full")],
    ),
)
def test_bound_and_loglik_equal_enumeration(kind, covariance):
    frame, model, data, em, params, state, anchors = setup(kind, covariance)
    passes = passes_at(em.e, state)
    join = data.layout.join
    mean = join([np.asarray(p.mean) for p in passes])
    cov = join([np.asarray(p.covariance) for p in passes])
    bound = join([np.asarray(p.bound) for p in passes])
    loglik = join([np.asarray(p.loglik) for p in passes])
    for i, subject in enumerate(data.panel.subjects):
        expected = brute_bound(
            frame, model, params, subject, anchors[:, i], mean[:, i], cov[..., i]
        )
        np.testing.assert_allclose(bound[i], expected, rtol=1e-10, atol=1e-10)
        tables = tables_at(frame, model, params, subject, anchors[:, i])
        parts = [enumerate_paths(params["initial"], params["transition"], t)[1] for t in tables]
        np.testing.assert_allclose(loglik[i], sum(map(log_sum, parts)), rtol=1e-12)


def test_the_updated_q_is_the_best_gaussian():
    frame, model, data, em, params, state, anchors = setup("slopes", "full")
    passes = passes_at(em.e, state)
    mean = data.layout.join([np.asarray(p.mean) for p in passes])
    cov = data.layout.join([np.asarray(p.covariance) for p in passes])
    rng = np.random.default_rng(3)
    i = 0
    args = (frame, model, params, data.panel.subjects[i], anchors[:, i])
    best = brute_bound(*args, mean[:, i], cov[..., i])
    for _ in range(10):
        shift = 0.05 * rng.standard_normal(4)
        stretch = np.eye(4) + 0.05 * rng.standard_normal((4, 4))
        other = brute_bound(*args, mean[:, i] + shift, stretch @ cov[..., i] @ stretch.T)
        assert other < best


@partial(jax.jit, static_argnames="kernel")
def at_anchor(kernel, theta, anchors, chunk):
    posterior = kernel.posterior(theta, anchors, chunk, "log")
    own = kernel.expected_complete(theta, anchors, posterior, chunk)
    return posterior, by_subject(posterior.loglik, chunk) - own


@partial(jax.jit, static_argnames="kernel")
def expected_at(kernel, theta, effects, posterior, chunk):
    """expected_complete at many effects (node, d, subject)."""
    one = jax.tree_util.Partial(kernel.expected_complete, theta)
    return jax.lax.map(lambda f: one(f, posterior, chunk), effects)


def blockwise_bound(em, local_theta, anchors, theta, mean, cov):
    """The anchored ELBO with p(U | D, anchor; local_theta) held, at another theta and q."""
    chunk, d = chunk_of(em), len(mean)
    posterior, entropy = at_anchor(em.kernel, local_theta, anchors, chunk)
    node, weight = np.polynomial.hermite_e.hermegauss(3)
    grid = np.stack(np.meshgrid(*[node] * d, indexing="ij"), -1).reshape(-1, d)
    weights = np.prod(np.stack(np.meshgrid(*[weight] * d, indexing="ij"), -1).reshape(-1, d), 1)
    weights /= weights.sum()
    root = np.linalg.cholesky(np.moveaxis(cov, -1, 0))
    effects = mean + np.einsum("nij,xj->xin", root, grid)
    expected = weights @ np.asarray(expected_at(em.kernel, theta, effects, posterior, chunk))
    prior = np.linalg.inv(theta["effect_covariance"])
    second = cov + mean[:, None] * mean[None]
    ratio = np.linalg.slogdet(theta["effect_covariance"])[1]
    ratio = ratio - np.linalg.slogdet(np.moveaxis(cov, -1, 0))[1]
    divergence = 0.5 * (np.einsum("ij,ijn->n", prior, second) - d + ratio)
    return float((np.asarray(entropy) + expected - divergence)[np.asarray(chunk.real)].sum())


@pytest.mark.parametrize(
    ("kind", "structure", "recentre"),
    chosen(
        product(("intercepts", "slopes"), ("isotropic", "diagonal", "full"), (False, True)),
        [("intercepts", "isotropic", True), ("slopes", "full", False), ("slopes", "full", True)],
    ),
)
@in_float64
def test_no_block_update_lowers_the_bound(kind, structure, recentre):
    """For a fixed anchor: first the q-update, then the M-step, each from the same local pass."""
    covariance = "spherical" if structure == "isotropic" else structure
    *_, em, _, state, _ = setup(kind, covariance, structure=structure)
    em = replace(em, m_step=replace(em.m_step, recentre=recentre))
    q = None
    for _ in range(4):
        step = em.step(state)
        found, anchor = passes_at(em.e, step.before)[0], anchors_at(em, state)[0]
        mean, cov = found.mean, found.covariance
        after_q = blockwise_bound(em, state.theta, anchor, state.theta, mean, cov)
        np.testing.assert_allclose(after_q, step.bound, rtol=1e-10)
        if q is not None:
            before = blockwise_bound(em, state.theta, anchor, state.theta, *q)
            assert after_q >= before - 1e-8 * abs(before)
        moved = anchors_at(em, step.state)[0]  # the mean of q, after recentring
        after_m = blockwise_bound(em, state.theta, anchor, step.state.theta, moved, cov)
        assert after_m >= after_q - 1e-8 * abs(after_q)
        assert after_m > after_q + 1e-6  # it does move
        state, q = step.state, (moved, cov)
