"""The state-space kernel against its definition, differentiated; and one method against another."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from avem.data import Panel, parse_formula
from avem.inference.e_steps import state_at
from avem.inference.fit_ssm import make_ssm_em
from avem.inference.methods.adaptive.centres import find_centres
from avem.inference.methods.adaptive.method import AdaptiveNodes
from avem.inference.methods.mean_field import ExpectedDensities
from avem.inference.methods.structured import StructuredNodes
from avem.models.ssm import SSMModel
from avem.models.ssm_specification import SSMSpecification
from avem.numerics.precision import in_float64

FORMULAS = {
    "paper": ("y1 + y2 + y3 ~ 0", "~ 0", ("transition", "loading")),
    "all": ("y1 + y2 + y3 ~ 1 + x + (1 | id)", "~ 0 + z", ("transition", "loading")),
    "loading": ("y1 + y2 + y3 ~ 1", "~ 0", ("loading",)),
    "intercepts": ("y1 + y2 + y3 ~ 0 + (1 | id)", "~ 0", ()),
}


def make(name, q=2, n=5, length=6, seed=0, gaps=True):
    """A model on a small panel with unequal, nested sequences and missing cells; theta; effects."""
    rng = np.random.default_rng(seed)
    rows = [
        {"id": i, "session": s, "time": t}
        for i in range(n)
        for s in range(1 + i % 2)
        for t in range(length - i % 3 if i else 1)
    ]
    frame = pd.DataFrame(rows)
    for column in ("y1", "y2", "y3", "x", "z"):
        frame[column] = rng.standard_normal(len(frame))
    if gaps:
        frame.loc[frame.sample(frac=0.2, random_state=1).index, "y2"] = np.nan
        frame.loc[frame.sample(frac=0.1, random_state=2).index, ["y1", "y2", "y3"]] = np.nan
    panel = Panel.from_frame(frame, "id", time="time", sequence="session")
    outcomes, state, random = FORMULAS[name]
    spec = SSMSpecification(q, parse_formula(outcomes), parse_formula(state), random, ("full",) * 3)
    model = SSMModel.learn(spec, panel)
    d, p = model.n_effects, 3
    root = 0.3 * rng.standard_normal((d, d)) / np.sqrt(max(d, 1))
    start = rng.standard_normal((q, q))
    blocks = model.effect_blocks
    sigma = np.where(blocks[:, None] == blocks, root @ root.T + 0.05 * np.eye(d), 0.0)
    theta = {
        "start_mean": rng.standard_normal(q),
        "start_covariance": start @ start.T + np.eye(q),
        "dynamics": 0.4 * rng.standard_normal((q, q)),
        "drive": 0.5 * rng.standard_normal((q, len(model.drive_cols))),
        "loading": np.tril(rng.standard_normal((p, q))),
        "coef": rng.standard_normal((p, len(model.x_cols))),
        "noise_covariance": rng.uniform(0.3, 1.0, (p, 1, 1)),
        "effect_covariance": sigma,
    }
    data = model.encode(panel)
    effects = tuple(data.layout.split(0.3 * rng.standard_normal((d, n))))
    return model, data, theta, effects


@partial(jax.jit, static_argnames="kernel")
def passes(kernel, theta, f, chunk):
    return kernel.path_posterior(theta, f, chunk, ""), kernel.local(theta, f, chunk, "")


@partial(jax.jit, static_argnames="kernel")
def terms_at(kernel, theta, f, local, chunk):
    return kernel.effect_terms(theta, f, None, local, kernel.quadratic(theta, local), chunk)


@partial(jax.jit, static_argnames="kernel")
def sums_at(kernel, local, mean, cov, chunk):
    return kernel.sums(local, mean, cov, chunk)


EACH = [
    "all",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("paper", "loading", "intercepts")),
]


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_the_quadratic_is_the_expected_log_likelihood(name):
    _, data, theta, effects = make(name)
    kernel, chunk = data.kernel, data.chunks[0]
    here, there = effects[0], effects[0] + 0.2
    posterior, local = passes(kernel, theta, here, chunk)

    @jax.jit
    def exact(f):
        return kernel.expected_complete(theta, f, posterior, chunk)

    terms = terms_at(kernel, theta, there, local, chunk)
    value = jax.jit(
        lambda f: kernel.value(theta, f, None, local, kernel.quadratic(theta, local), chunk)
    )
    at_anchor = value(here)
    np.testing.assert_allclose(terms.value - at_anchor, exact(there) - exact(here), atol=1e-9)
    slope = jax.jit(jax.grad(lambda f: exact(f).sum()))(jnp.asarray(there))
    np.testing.assert_allclose(terms.gradient, slope, atol=1e-9)
    bend = jax.jit(jax.jacfwd(jax.grad(lambda f: exact(f).sum())))(jnp.asarray(there))
    own = -np.einsum("aibi->abi", np.asarray(bend))
    np.testing.assert_allclose(terms.curvature, own, atol=1e-9)


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_slopes_are_those_of_the_expected_log_likelihood(name):
    _, data, theta, effects = make(name)
    kernel, chunk = data.kernel, data.chunks[0]
    posterior, local = passes(kernel, theta, effects[0], chunk)
    sums = jax.tree.map(np.asarray, sums_at(kernel, local, effects[0], None, chunk))
    found = kernel.slopes(theta, sums)

    def height(t):
        return kernel.expected_complete(t, effects[0], posterior, chunk).sum()

    exact = jax.jit(jax.grad(height))({key: jnp.asarray(value) for key, value in theta.items()})
    for key in found:
        slope = np.asarray(exact[key])
        if key == "start_covariance":  # either triangle may get the slope of both
            slope = (slope + slope.T) / 2
        np.testing.assert_allclose(found[key], slope, atol=1e-8, err_msg=key)


@pytest.mark.parametrize("name", EACH)
@in_float64
def test_the_m_step_is_a_maximum_of_the_bound(name):
    """At the new parameters every slope of E_q of the expected log likelihood is 0."""
    model, data, theta, effects = make(name, n=8, length=9)
    em = make_ssm_em(model, data)
    kernel, chunk = data.kernel, data.chunks[0]
    mean = effects[0] + 0.1
    cov = np.repeat(0.02 * np.eye(model.n_effects)[:, :, None], mean.shape[1], axis=2)
    cov[..., ~np.asarray(chunk.real)] = 0.0
    posterior, local = passes(kernel, theta, effects[0], chunk)
    sums = jax.tree.map(np.asarray, sums_at(kernel, local, mean, cov, chunk))
    new = {**theta, **kernel.maximise(theta, sums, frozenset(), em.m_step.free, np.zeros(3))}
    points = np.sqrt(model.n_effects) * np.concatenate(
        [np.eye(model.n_effects), -np.eye(model.n_effects)]
    )

    def expected(t):  # exact for a quadratic: points at equal weights around the mean
        at = mean + np.sqrt(0.02) * points[:, :, None] * np.asarray(chunk.real)
        each = jax.vmap(lambda f: kernel.expected_complete(t, f, posterior, chunk))(at)
        return each.mean(0).sum()

    slope = jax.jit(jax.grad(expected))({key: jnp.asarray(value) for key, value in new.items()})
    for key, free in em.m_step.free.items():
        np.testing.assert_allclose(np.asarray(slope[key])[free], 0.0, atol=1e-8, err_msg=key)
    for key in ("noise_covariance", "start_mean", "start_covariance"):
        np.testing.assert_allclose(slope[key], 0.0, atol=1e-7, err_msg=key)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "all"])
@in_float64
def test_every_richer_family_has_a_higher_bound(name):
    """AVEM <= mean field <= structured <= exact, at each one's own best q."""
    model, data, theta, _ = make(name, n=6, length=12)
    em = make_ssm_em(model, data)
    nobody = np.zeros((model.n_effects, data.layout.n_subjects))

    def best(e):
        state = e.e_step(state_at(e.data, theta, nobody), 1e-9).state
        return state, e.of_subjects(state, "bound")[0]

    anchored_state, anchored = best(em.e)
    _, blocked = best(replace(em.e, method=ExpectedDensities()))
    structured = replace(em.e, method=StructuredNodes.make(model.n_effects, None))
    _, free = best(structured)
    exact = replace(em.e, method=AdaptiveNodes.make(model.n_effects, n_draws=2048))
    centres = find_centres(exact, anchored_state, np.random.default_rng(0))
    levels = [anchored, blocked, free, exact.of_subjects(centres, "bound")[0]]
    for lower, higher in pairwise(levels):
        assert (higher - lower > -0.02).all()
    # Not all the same: the first gap is real, and so is the last.
    assert (levels[1] - levels[0]).sum() > 0.01
    assert (levels[3] - levels[0]).sum() > 0.1


@in_float64
def test_padding_and_order_of_subjects_change_nothing():
    model, data, theta, effects = make("all")
    _, local = passes(data.kernel, theta, effects[0], data.chunks[0])
    order = np.random.default_rng(0).permutation(data.panel.n_rows)
    shuffled = Panel.from_frame(data.panel.table.iloc[order], "id", time="time", sequence="session")
    again = model.encode(shuffled)
    place = [data.panel.subjects.tolist().index(s) for s in shuffled.subjects.tolist()]
    moved = data.layout.join(effects)[:, place]
    first = next(iter(again.layout.split(moved)))
    _, other = passes(again.kernel, theta, first, again.chunks[0])
    mine = data.layout.join([np.asarray(local.loglik)])[place]
    np.testing.assert_allclose(again.layout.join([np.asarray(other.loglik)]), mine, atol=1e-12)
