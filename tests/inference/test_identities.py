"""What must hold between the methods, at given parameters, for several kinds of model."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal, norm

import avem
from avem.inference.after.diagnose import gaps
from avem.inference.e_steps import State, state_at
from avem.inference.methods.adaptive.centres import find_centres, information, score_pass
from avem.inference.methods.adaptive.method import AdaptiveNodes
from avem.inference.methods.mean_field import ExpectedDensities
from avem.inference.methods.partial import PartialNodes
from avem.inference.methods.prior_nodes import PriorNodes
from avem.inference.methods.structured import StructuredNodes
from avem.inference.on_shard import Subjects
from avem.numerics.nodes import gauss_hermite
from avem.numerics.precision import in_float64
from tests.brute import forward, integrate
from tests.chosen import chosen
from tests.panels import anchors_at, chunk_of, passes_at, prepare_model

CHAIN = {"initial": [0.6, 0.4], "transition": [[0.8, 0.2], [0.3, 0.7]]}
MODELS = {
    "gaussian": (
        avem.MixedHMM("y1 + y2 ~ 1 + (1 | who)", 2),
        CHAIN
        | {
            "coef": [[[-1.0], [-0.5]], [[1.0], [0.5]]],
            "variance": [[1.0, 0.5], [0.5, 1.0]],
            "effect_covariance": [[0.8, 0.3], [0.3, 0.6]],
        },
    ),
    "bernoulli": (
        avem.MixedHMM("y ~ x + (1 + x | who)", 2, "bernoulli"),
        CHAIN | {"coef": [[[-1.5, 0.3]], [[1.5, 0.3]]], "effect_covariance": [[0.8, 0], [0, 0.4]]},
    ),
    "transitions": (
        avem.MixedHMM(
            "y1 ~ 1 + (1 | who)", 2, transition="~ 1 + (1 | who)", effect_covariance="block"
        ),
        {
            "initial": [0.6, 0.4],
            "transition_coef": [[[0.0], [-1.5]], [[-1.0], [0.0]]],
            "coef": [[[-1.0]], [[1.0]]],
            "variance": [[1.0], [0.5]],
            "effect_covariance": np.diag([0.5, 0.4, 0.3]),
        },
    ),
}
N, T = 10, 25
EACH = chosen(MODELS, ("bernoulli",))
"""Of tests that compile a lot: effects on the transitions, too, in the slow run."""


@cache
def prepared(name):
    hmm, params = MODELS[name]
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({"who": np.repeat(range(N), T), "t": np.tile(range(T), N), "session": 0})
    rows["x"] = rng.standard_normal(len(rows))
    params = {key: np.array(value, float) for key, value in params.items()}
    frame = hmm.simulate(params, data=rows, time="t", seed=2).frame
    outcome = hmm.spec.outcomes[0].formula.outcomes[0]
    frame.loc[frame.index % 11 == 3, outcome] = np.nan
    return frame, *prepare_model(hmm, frame), params


def settled(e, state, rounds=5):
    for _ in range(rounds):
        found = e.e_step(state, 1e-7)
        state = found.state
    return state, found


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_every_richer_family_has_a_higher_bound(name):
    """Anchored, mean field, structured, exact: each one contains the one before."""
    _, model, _, em, params = prepared(name)
    d = model.n_effects
    start = state_at(em.data, model.params_in(params), np.zeros((d, N)))
    anchored, found = settled(em.e, start)
    levels = [found.bound]
    for method in (ExpectedDensities(), StructuredNodes.make(d, 9 if d < 3 else 5)):
        _, found = settled(replace(em.e, method=method), anchored)
        levels.append(found.bound)
    adaptive = replace(em.e, method=AdaptiveNodes.make(d, 11 if d < 3 else 7))
    centres = find_centres(adaptive, anchored, np.random.default_rng(0))
    levels.append(adaptive.e_step(centres).bound)
    assert (np.diff(levels) > 1e-6).all(), levels


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_the_gaps_make_up_the_difference(name):
    _, model, encoded, em, params = prepared(name)
    zero = np.zeros((model.n_effects, N))
    state, _ = settled(em.e, state_at(em.data, model.params_in(params), zero))
    passes, found = passes_at(em.e, state), gaps(em.e, state, np.random.default_rng(0))
    real = np.asarray(chunk_of(em).real)
    gap = encoded.layout.split(found.structured - found.bound)
    anchoring = next(gap)[real]
    gaussian = found.loglik - found.structured
    np.testing.assert_allclose(found.bound, encoded.layout.join([passes[0].bound]), atol=1e-8)
    assert anchoring.min() > -1e-6
    assert gaussian.min() > -1e-4
    assert anchoring.sum() > 0.1  # there is something to lose here
    # Section 5 of the derivation: the anchoring gap by its own formula, at many draws from q.
    draws = np.random.default_rng(1).standard_normal((400, model.n_effects, real.size))
    low = np.linalg.cholesky(np.moveaxis(passes[0].covariance, -1, 0))
    at = passes[0].mean + np.einsum("nab,jbn->jan", low, draws)
    kernel, chunk, theta = em.kernel, chunk_of(em), state.theta
    local = jax.jit(lambda f: kernel.local(theta, f, chunk, "log"))
    here = local(anchors_at(em, state)[0])
    value = jax.jit(
        lambda f: kernel.value(theta, f, None, here, kernel.quadratic(theta, here), chunk)
    )

    def excess(f):
        return np.asarray(local(f).loglik - value(f))

    excesses = np.array([excess(f) for f in at])
    by_formula = excesses.mean(0) - excess(anchors_at(em, state)[0])
    error = excesses.std(0) / np.sqrt(len(excesses))
    assert (np.abs(by_formula[real] - anchoring) < 5 * error[real] + 1e-6).all()


@pytest.mark.parametrize("name", ["gaussian", pytest.param("bernoulli", marks=pytest.mark.slow)])
@in_float64
def test_partial_anchoring_has_avem_and_quadrature_at_its_ends(name):
    _, model, _, em, params = prepared(name)
    d = model.n_effects
    anchors = 0.3 * np.random.default_rng(3).standard_normal((d, N))
    state = state_at(em.data, model.params_in(params), anchors)
    real = np.asarray(chunk_of(em).real)

    def e_step(method):
        return passes_at(replace(em.e, method=method), state)[0]

    def partial(*unanchored):
        return e_step(PartialNodes.make(unanchored, 5, follow=False))

    nothing, anchored, everything = partial(), passes_at(em.e, state)[0], partial(*range(d))
    points, weights = gauss_hermite(d, 5)
    quadrature = e_step(PriorNodes(points, np.log(weights)))
    for ours, theirs in ((nothing, anchored), (everything, quadrature)):
        for part in ("mean", "covariance", "bound", "loglik"):
            a, b = getattr(ours, part)[..., real], getattr(theirs, part)[..., real]
            np.testing.assert_allclose(a, b, atol=1e-8, err_msg=part)
        np.testing.assert_allclose(ours.totals.model[-1], theirs.totals.model[-1], atol=1e-8)
        np.testing.assert_allclose(
            ours.totals.effect_second, theirs.totals.effect_second, atol=1e-8
        )
    # In between, the bound is in between: some of the gap is closed.
    first = partial(0)
    assert np.isfinite(first.bound).all()


@pytest.mark.slow
@in_float64
def test_a_partial_bound_is_a_bound_and_better_than_the_anchored_one():
    _, model, _, em, params = prepared("bernoulli")
    state, anchored = settled(em.e, state_at(em.data, model.params_in(params), np.zeros((2, N))))
    rng = np.random.default_rng(0)
    _, partly = settled(replace(em.e, method=PartialNodes.make((0,), 9)), state)
    adaptive = replace(em.e, method=AdaptiveNodes.make(2))
    exact = adaptive.e_step(find_centres(adaptive, state, rng))
    assert anchored.bound < partly.bound < exact.bound


def tables_of(name, frame, params, who, grid):
    """(f, time, state) log densities of one subject at every effect of the grid (f, d)."""
    own = frame[frame["who"] == who]
    coef = params["coef"]
    if name == "gaussian":
        y = own[["y1", "y2"]].to_numpy()
        out = np.zeros((len(grid), len(y), 2))
        for k in range(2):
            for j in range(2):
                mean = coef[k, j, 0] + grid[:, j][:, None]
                part = norm.logpdf(y[:, j], mean, np.sqrt(params["variance"][k, j]))
                out[:, :, k] += np.where(np.isnan(y[:, j]), 0.0, part)
        return out
    y, x = own["y"].to_numpy(), own["x"].to_numpy()
    eta = coef[:, 0, :1] + coef[:, 0, 1:] * x + (grid[:, :1] + grid[:, 1:] * x)[:, None]
    p = np.where(y == 1, 1 / (1 + np.exp(-eta)), 1 / (1 + np.exp(eta)))
    return np.where(np.isnan(y)[:, None], 0.0, np.log(np.moveaxis(p, 1, 2)))


@pytest.mark.parametrize("name", chosen(("gaussian", "bernoulli"), ("bernoulli",)))
def test_the_adaptive_likelihood_equals_a_dense_integral(name):
    frame, model, _, em, params = prepared(name)
    sigma = params["effect_covariance"]
    line = np.linspace(-6, 6, 161)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    cell, grid = (
        (line[1] - line[0]) ** 2 * np.sqrt(np.linalg.det(sigma)),
        grid @ np.linalg.cholesky(sigma).T,
    )
    prior = multivariate_normal.logpdf(grid, cov=sigma)
    wanted = [
        integrate(
            forward(
                params["initial"], params["transition"], tables_of(name, frame, params, who, grid)
            ),
            prior,
            cell,
        )
        for who in range(N)
    ]

    @in_float64
    def ours():
        state = state_at(em.data, model.params_in(params), np.zeros((2, N)))
        adaptive = replace(em.e, method=AdaptiveNodes.make(2, 11))
        centres = find_centres(adaptive, state, np.random.default_rng(0))
        return adaptive.of_subjects(centres, "bound")[0]

    np.testing.assert_allclose(ours(), wanted, rtol=1e-5)
    np.testing.assert_allclose(ours().sum(), np.sum(wanted), rtol=1e-6)


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_draws_agree_with_nodes(name):
    """Importance sampling, meant for many effects, where quadrature can check it."""
    _, model, _, em, params = prepared(name)
    d = model.n_effects
    state = state_at(em.data, model.params_in(params), np.zeros((d, N)))
    by_nodes = replace(em.e, method=AdaptiveNodes.make(d, 11 if d < 3 else 7))
    by_draws = replace(em.e, method=AdaptiveNodes.make(d, n_draws=1024))
    a, b = (
        passes_at(one, find_centres(one, state, np.random.default_rng(0)))[0]
        for one in (by_nodes, by_draws)
    )
    real = np.asarray(chunk_of(em).real)
    np.testing.assert_allclose(b.bound[real], a.bound[real], atol=0.05)
    np.testing.assert_allclose(b.mean[:, real], a.mean[:, real], atol=0.05)
    assert (b.quality[real] > 100).all()


def far_away(chunk, subjects):
    def moved(centres):
        return centres._replace(mean=centres.mean + 4.0)

    return subjects._replace(around=subjects.around._each(moved))


def followed(chunk, subjects):
    return Subjects(subjects.anchor, subjects.found.around)


@pytest.mark.slow
@in_float64
def test_failed_weights_fall_back_to_laplace():
    """Centres far too narrow: a handful of draws would carry all the weight."""
    _, model, _, em, params = prepared("transitions")
    d = model.n_effects
    state = state_at(em.data, model.params_in(params), np.zeros((d, N)))
    adaptive = replace(em.e, method=AdaptiveNodes.make(d, n_draws=64))
    found = find_centres(adaptive, state, np.random.default_rng(0))
    spoilt = replace(found, subjects=em.data.keep(far_away, (found.subjects,)))
    passed = passes_at(adaptive, spoilt)[0]
    real = np.asarray(chunk_of(em).real)
    assert (passed.quality[real] == 0).any()
    assert np.isfinite(passed.bound).all()
    state = spoilt
    for _ in range(40):  # Newton steps bring the centre back, and the weights with it
        state = adaptive.e_step(state).state
        passes = passes_at(adaptive, state)
        state = replace(state, subjects=em.data.keep(followed, (state.subjects,)))
    assert (passes[0].quality[real] > 10).all()
    right = passes_at(adaptive, found)[0].bound
    np.testing.assert_allclose(passes[0].bound[real], right[real], atol=0.5)


@pytest.mark.parametrize("name", chosen(MODELS, ("transitions",)))
@in_float64
def test_scores_and_information_by_differences(name):
    _, model, encoded, em, params = prepared(name)
    d, theta, chunk = model.n_effects, model.params_in(params), chunk_of(em)
    f = encoded.layout.split(0.3 * np.random.default_rng(4).standard_normal((d, N)))
    f = tuple(f)
    score, complete = score_pass(em.kernel, theta, f[0], chunk, "log")
    setting = em.e.setting(State(theta, em.data.place(f)))
    observed = information(chunk, f[0], setting, np.full(d, 1e-3))
    real = np.asarray(chunk.real)

    local = jax.jit(lambda at: em.kernel.local(theta, at, chunk, "log").loglik)

    def height(move):
        return np.asarray(local(f[0] + move[:, None]))

    for e in range(d):
        unit = 1e-4 * (np.arange(d) == e)
        slope = (height(unit) - height(-unit)) / 2e-4
        np.testing.assert_allclose(np.asarray(score)[e, real], slope[real], atol=1e-5)
        big = 1e-3 * (np.arange(d) == e)
        bend = -(height(big) - 2 * height(0 * big) + height(-big)) / 1e-6
        np.testing.assert_allclose(observed[e, e, real], bend[real], atol=1e-2, rtol=1e-3)
    # What is observed is less than what would be known with the states.
    assert (
        np.diagonal(observed[:, :, real].sum(-1)).sum()
        < np.diagonal(np.asarray(complete)[:, :, real].sum(-1)).sum()
    )
