"""States, predictions and residuals of state-space fits against dense joint Gaussians."""

import numpy as np
import pytest

from avem.inference.after.ssm_states import gaussian_nodes, moments, noise_of, residuals
from tests.ssm_truth import specification, true_fit

RANDOM = ("transition", "loading")


@pytest.fixture(scope="module")
def fit():
    """Covariates on states and outcomes, effects everywhere, two sequences each, gaps."""
    spec = specification("y1 + y2 + y3 ~ x + (1 | id)", state="~ 0 + x", random=RANDOM)
    found, _ = true_fit(spec, n_subjects=3, n_times=5, sequences=2, missing=0.3, seed=1)
    return found


def joint(fit, lane, effects):
    """The rows of a lane, and mean and covariance of its states and outcomes, in user's units."""
    model, params, panel = fit.model, fit.params, fit.panel
    kernel, q, p = model.shape, model.n_latent, len(model.outcomes)
    data = model.read(panel)
    rows = panel.order[panel.row_lane[panel.order] == lane]
    own = effects[panel.lane_subject[lane]]
    g, h = params["transition_mean"].copy(), params["loading_mean"].copy()
    coef = np.zeros((p, len(kernel.w_cols)))
    coef[:, [kernel.w_cols.index(c) for c in model.x_cols]] = params["coef"]
    entries = [(g, e) for e in kernel.transition_effects]
    entries += [(h, e) for e in kernel.loading_effects] + [(coef, e) for e in kernel.coef_effects]
    for (matrix, entry), value in zip(entries, own, strict=True):
        matrix[entry] += value
    size = len(rows)
    mean, cov = np.zeros((size, q)), np.zeros((size, q, size, q))
    for t, row in enumerate(rows):
        if t == 0:
            mean[0], cov[0, :, 0] = params["initial_mean"], params["initial_covariance"]
            continue
        mean[t] = g @ mean[t - 1] + params["state_coef"] @ data.A[row, list(model.drive_cols)]
        cov[t, :, :t] = np.einsum("ab,bsc->asc", g, cov[t - 1, :, :t])
        cov[:t, :, t] = np.einsum("asc->sca", cov[t, :, :t])
        cov[t, :, t] = g @ cov[t - 1, :, t - 1] @ g.T + np.eye(q)
    level = mean @ h.T + data.A[np.ix_(rows, list(kernel.w_cols))] @ coef.T
    cov = cov.reshape(size * q, size * q)
    load = np.kron(np.eye(size), h)
    whole = np.block([[cov, cov @ load.T], [load @ cov, load @ cov @ load.T]])
    return rows, data.Y[rows], np.concatenate([mean.ravel(), level.ravel()]), whole


def condition(fit, y, keep, mean, cov):
    """Mean and covariance of states and levels given the outcomes where `keep`."""
    at = len(mean) - y.size + np.flatnonzero(keep.ravel())
    noise = np.tile(fit.params["noise"], len(y))[keep.ravel()]
    gain = np.linalg.solve(cov[np.ix_(at, at)] + np.diag(noise), cov[at]).T
    return mean + gain @ (y[keep] - mean[at]), cov - gain @ cov[at]


@pytest.mark.parametrize("kind", ["smoothed", "filtered", "predicted"])
def test_moments_are_those_of_the_joint_gaussian(fit, kind):
    data = fit._encode(None)
    found = moments(fit.model, data, fit.theta, fit._effects_for(data), kind)
    q, p = fit.model.n_latent, len(fit.model.outcomes)
    for lane in range(fit.panel.n_lanes):
        rows, y, mean, cov = joint(fit, lane, fit.effects_mean)
        for t, row in enumerate(rows):
            last = {"smoothed": len(rows), "filtered": t + 1, "predicted": t}[kind]
            keep = ~np.isnan(y) & (np.arange(len(rows)) < last)[:, None]
            m, c = condition(fit, y, keep, mean, cov)
            state = slice(t * q, (t + 1) * q)
            level = slice(len(rows) * q + t * p, len(rows) * q + (t + 1) * p)
            np.testing.assert_allclose(found.state[row], m[state], atol=1e-9)
            np.testing.assert_allclose(found.state_cov[row], c[state, state], atol=1e-9)
            np.testing.assert_allclose(found.level[row], m[level], atol=1e-9)
            np.testing.assert_allclose(found.level_cov[row], c[level, level], atol=1e-9)


def test_residuals_whiten_the_joint_gaussian(fit):
    """Together they are the data's distance: e'e of a sequence is y'S^-1 y, its mean taken off."""
    data = fit._encode(None)
    f = fit._effects_for(data)
    joint_ones = residuals(fit.model, data, fit.theta, f, joint=True)
    each = residuals(fit.model, data, fit.theta, f)
    assert (np.isnan(each) == np.isnan(data.y)).all()
    assert (np.isnan(joint_ones) == np.isnan(data.y)).all()
    past = moments(fit.model, data, fit.theta, f, "predicted")
    variance = np.diagonal(past.outcome_cov(noise_of(fit.model, fit.theta)), axis1=1, axis2=2)
    miss = fit.model.read(fit.panel).Y - past.level
    np.testing.assert_allclose(each, miss / np.sqrt(variance), atol=1e-10)
    for lane in range(fit.panel.n_lanes):
        rows, y, mean, cov = joint(fit, lane, fit.effects_mean)
        keep = ~np.isnan(y)
        at = len(mean) - y.size + np.flatnonzero(keep.ravel())
        noise = np.tile(fit.params["noise"], len(y))[keep.ravel()]
        away = y[keep] - mean[at]
        height = away @ np.linalg.solve(cov[np.ix_(at, at)] + np.diag(noise), away)
        np.testing.assert_allclose(np.nansum(joint_ones[rows] ** 2), height, rtol=1e-9)


def test_integrated_moments_follow_the_law_of_total_variance(fit):
    """Against plain draws of the effects, whose own error is the tolerance."""
    data = fit._encode(None)
    mean = fit._effects_for(data)
    cov = fit.model.effects_cov_in(fit.effects_cov)
    at, share = gaussian_nodes(mean, cov)
    found = moments(fit.model, data, fit.theta, at, "smoothed", share)
    rng = np.random.default_rng(0)
    _, user_cov = fit.model.effects_out(mean, cov)
    n_draws = 400
    levels, spreads = [], []
    for _ in range(n_draws):
        root = np.linalg.cholesky(user_cov)
        drawn = fit.effects_mean + np.einsum(
            "nde,ne->nd", root, rng.standard_normal(fit.effects_mean.shape)
        )
        one = moments(fit.model, data, fit.theta, fit.model.effects_in(drawn), "smoothed")
        levels.append(one.level)
        spreads.append(one.level_cov)
    between = np.var(levels, axis=0)
    want = between + np.diagonal(np.mean(spreads, 0), axis1=1, axis2=2)
    sd = np.sqrt(between / n_draws)
    assert (np.abs(found.level - np.mean(levels, 0)) < 5 * sd + 0.02).all()
    got = np.diagonal(found.level_cov, axis1=1, axis2=2)
    np.testing.assert_allclose(got, want, rtol=0.25)
    plain = moments(fit.model, data, fit.theta, mean, "smoothed")
    assert got.mean() > 1.02 * np.diagonal(plain.level_cov, axis1=1, axis2=2).mean()


def test_no_doubt_about_the_effects_changes_nothing(fit):
    data = fit._encode(None)
    mean = fit._effects_for(data)
    none = np.zeros((len(mean), len(mean), mean.shape[1]))
    one = moments(fit.model, data, fit.theta, mean, "filtered")
    at, share = gaussian_nodes(mean, none)
    other = moments(fit.model, data, fit.theta, at, "filtered", share)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)
