"""Rules from few nodes to many, and what decides between them."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.inference.gate import gate
from avem.inference.methods.adaptive.importance import student_draws
from avem.inference.methods.adaptive.rules import ladder
from avem.numerics.nodes import cross_rule, fifth_degree
from tests.chosen import chosen


@pytest.mark.parametrize("d", [2, 3, 4, 5, 6])
def test_rules_are_right_for_polynomials(d):
    eye = np.eye(d)
    for points, weights in (cross_rule(d), fifth_degree(d)):
        assert (weights > 0).all()
        np.testing.assert_allclose(weights.sum(), 1.0)
        np.testing.assert_allclose(weights @ points, np.zeros(d), atol=1e-12)
        np.testing.assert_allclose(
            np.einsum("j,ja,jb->ab", weights, points, points), eye, atol=1e-9
        )
    points, weights = fifth_degree(d)
    fourth = np.einsum("j,ja,jb,jc,je->abce", weights, points, points, points, points)
    pairs = ("ab,ce->abce", "ac,be->abce", "ae,bc->abce")
    np.testing.assert_allclose(fourth, sum(np.einsum(p, eye, eye) for p in pairs), atol=1e-9)


def test_ladders_climb():
    for d in range(1, 7):
        sizes = [len(rule.points) for rule in ladder(d)]
        assert sizes == sorted(set(sizes))
        assert sizes[0] == 2 * d + 1
    assert [rule.by_draws for rule in ladder(4)] == [False, False, True]
    assert [rule.by_draws for rule in ladder(9)] == [True]


def skewed(n=60, n_times=6, variance=4.0, seed=1):
    """Choices of subjects many of whom always say the same."""
    rng = np.random.default_rng(seed)
    chance = 1 / (1 + np.exp(-(1.5 + np.sqrt(variance) * rng.standard_normal(n))))
    y = (rng.random((n, n_times)) < chance[:, None]).astype(int)
    return pd.DataFrame({"who": np.repeat(np.arange(n), n_times), "y": y.ravel()})


def dense_loglik(frame, level, variance):
    """By a trapezoid rule over 20,001 points."""
    f = np.linspace(-12, 12, 20_001) * np.sqrt(variance)
    odds = level + f
    prior = np.exp(-0.5 * f**2 / variance) / np.sqrt(2 * np.pi * variance)
    ones = frame.groupby("who")["y"].sum().to_numpy()[:, None]
    n_times = frame.groupby("who")["y"].size().to_numpy()[:, None]
    height = ones * odds - n_times * np.logaddexp(0.0, odds)
    return np.log(np.trapezoid(np.exp(height) * prior, f, axis=1)).sum()


@pytest.mark.slow
def test_skewed_posteriors_have_one_likelihood():
    """Summary, loglik and diagnosis agree, with an integral that no rule of ours made."""
    frame = skewed()
    fit = avem.MixedHMM("y ~ 1 + (1 | who)", 1, "bernoulli").fit(frame)
    assert fit.info.refined
    assert fit.info.bias > 0.1
    assert fit.info.bias_at == "on the way"
    exact = dense_loglik(frame, fit.params["coef"].item(), fit.params["effect_covariance"].item())
    found = fit.loglik()
    np.testing.assert_allclose(fit.bound, exact, atol=0.02)
    np.testing.assert_allclose(float(found), exact, atol=0.01 + found.error)
    np.testing.assert_allclose(fit.diagnose().subjects["loglik"].sum(), exact, atol=0.02)
    # At the maximum: no better level or variance near it.
    level, variance = fit.params["coef"].item(), fit.params["effect_covariance"].item()
    for other in ((level + 0.1, variance), (level - 0.1, variance), (level, 1.1 * variance)):
        assert dense_loglik(frame, *other) < exact
    assert dense_loglik(frame, level, variance / 1.1) < exact


def test_anchoring_stands_where_it_changes_nothing(monkeypatch):
    asked = []

    def watched(em, exact, state, rng):
        asked.append(state.theta["effect_covariance"])
        return gate(em, exact, state, rng)

    monkeypatch.setattr("avem.inference.stages.gate", watched)
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.9, 0.1], [0.1, 0.9]],
        "coef": [[[-3.0]], [[3.0]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[0.5]],
    }
    frame = model.simulate(truth, 12, 60, seed=2).frame
    fit = model.fit(frame, time="time")
    refined = model.fit(frame, time="time", refine="adaptive")
    assert not fit.info.refined
    assert fit.info.bias < 0.1
    se = refined.standard_errors()["se"].to_numpy(float)
    moved = np.abs(fit.values_of(fit.params) - refined.values_of(refined.params))
    assert np.nanmax(moved / se) < 0.1
    # What is kept of the question says whether it was asked at the parameters that are returned.
    assert refined.info.bias_at is None
    for options in ({}, {"refine": None}):
        own = model.fit(frame, time="time", **options)
        here = np.allclose(asked[-1], own.theta["effect_covariance"], rtol=1e-9, atol=0)
        assert own.info.bias_at == ("end" if here else "on the way")
    assert own.info.bias_at == "end"


def test_coefficients_of_subjects_and_their_errors():
    """With known variances, the prediction error of a subject's mean is in every textbook."""
    rng = np.random.default_rng(4)
    n, n_times, noise, between = 9, 5, 1.0, 0.7
    y = 2.0 + np.sqrt(between) * rng.standard_normal((n, 1)) + rng.standard_normal((n, n_times))
    frame = pd.DataFrame({"who": np.repeat(list("abcdefghi"), n_times), "y": y.ravel()})
    held = {"variance": [[noise]], "effect_covariance": [[between]]}
    fit = avem.MixedHMM("y ~ 1 + (1 | who)", 1).fit(frame, fixed=held)
    width = 1 / (1 / between + n_times / noise)
    share = width * n_times / noise
    level = y.mean()
    table = fit.coefficients()
    np.testing.assert_allclose(table["estimate"], level + share * (y.mean(1) - level), rtol=1e-6)
    of_level = (between + noise / n_times) / n
    np.testing.assert_allclose(table["se"], np.sqrt(width + (1 - share) ** 2 * of_level), rtol=1e-4)
    np.testing.assert_allclose(
        fit.coefficients(parameters="fixed")["se"], np.sqrt(width), rtol=1e-6
    )
    deviation = fit.effects(parameters="estimated")
    np.testing.assert_allclose(deviation["sd"], np.sqrt(width + share**2 * of_level), rtol=1e-4)
    assert table["who"].tolist() == list("abcdefghi")


def test_two_outcomes_with_effects_and_effects_on_transitions():
    """Several effects of Gaussian outcomes beside those of another part."""
    rng = np.random.default_rng(5)
    n, n_times = 12, 20
    own = rng.standard_normal((n, 1, 2))
    state = rng.random((n, n_times)) < 0.5
    y = own + 3.0 * state[..., None] + rng.standard_normal((n, n_times, 2))
    frame = pd.DataFrame({"who": np.repeat(np.arange(n), n_times)})
    frame["t"], frame["x"] = np.tile(np.arange(n_times), n), rng.normal(size=len(frame))
    frame["y1"], frame["y2"] = y[..., 0].ravel(), y[..., 1].ravel()
    model = avem.MixedHMM("y1 + y2 ~ 1 + (1 | who)", 2, transition="~ 1 + (1 | who)")
    with pytest.warns(avem.AvemWarning, match="limit"):
        fit = model.fit(frame, time="t", n_starts=1, max_iter=2, refine=None)
    assert np.isfinite(fit.bound)


def test_degenerate_fits_are_not_recommended():
    rng = np.random.default_rng(0)
    y = rng.beta(2, 3, size=400)
    y[rng.random(400) < 0.2] = 0.0
    frame = pd.DataFrame({"who": np.repeat(np.arange(20), 20), "y": y})
    with pytest.warns(avem.AvemWarning, match="held at its floor"):
        found = avem.select(avem.MixedHMM("y ~ 1", 2), frame, range(1, 3), subject="who")
    assert found.n_states == 1
    assert found.fits[2].degenerate == ("state 0: a variance at its floor",)
    assert found.table["degenerate"].tolist() == ["", "state 0: a variance at its floor"]
    assert found.table["bic"].idxmin() == 1  # which it would have been otherwise
    assert "degenerate, not recommended" in str(found)


@pytest.mark.parametrize("max_iter", chosen((1, 2, 3, 4), (1, 3)))
def test_being_near_is_not_convergence(max_iter):
    """Few nodes lead near the solution in an iteration or two; the tolerance is another matter."""
    frame = skewed()
    model = avem.MixedHMM("y ~ 1 + (1 | who)", 1, "bernoulli")
    with pytest.warns(avem.AvemWarning, match="limit"):
        fit = model.fit(frame, method="adaptive", max_iter=max_iter, n_starts=1)
    assert fit.stop is avem.Stop.OUT_OF_STEPS
    assert fit.n_iter <= max_iter


@pytest.mark.parametrize(("d", "n_draws"), [(4, 8), (8, 16), (16, 32), (48, 256)])
def test_draws_that_cannot_be_stretched_stay_as_they_fell(d, n_draws):
    points, log_weights = student_draws(d, n_draws, 2**31 - 1)
    assert np.isfinite(log_weights).all()
    np.testing.assert_array_equal(points[n_draws // 2 :], -points[: n_draws // 2])
    assert np.abs(points).max() < 1e3


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_draws": 4}, "n_draws is 4, too few for 4 effects, .* Use n_draws=8 or more"),
        ({"n_nodes": 60}, "60 nodes for each of 4 effects .* or draws \\(n_draws=\\)"),
    ],
)
@pytest.mark.parametrize("where", ["method", "refine"])
def test_too_few_draws_and_too_many_nodes_are_refused_before_the_fit(options, match, where):
    frame = skewed(6, 8).assign(x=np.tile(np.arange(8.0), 6), z=np.tile([0.0, 1], 24))
    model = avem.MixedHMM("y ~ x * z + (1 + x * z | who)", 2)
    with pytest.raises(avem.ModelError, match=match):
        model.fit(frame, "who", **{where: avem.Adaptive(**options)})


def test_nodes_or_draws():
    with pytest.raises(avem.ModelError, match=r"n_nodes=9 and n_draws=64; .* Give one of them"):
        avem.Adaptive(n_nodes=9, n_draws=64)
