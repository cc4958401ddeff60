"""Gaussian closed forms against autodiff, SciPy and numerical optimisation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from avem.errors import ModelError
from avem.families.gaussian import Gaussian
from avem.numerics.precision import in_float64
from tests.brute import gaussian_table
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

COVARIANCES = ["spherical", "diagonal", "full"]


def setup(covariance, formula="y1 + y2 ~ x + (1 + x | who)", n_states=3):
    model, data, em = prepare(awkward_frame(), formula, n_states, covariance)
    rng = np.random.default_rng(0)
    d = model.n_effects
    params = random_params(rng, n_states, 2, len(model.designs.parts[0].terms), d, covariance)
    anchors = rng.standard_normal((d, data.panel.n_subjects))
    return model, data, em, params, start_state(model, data, params, anchors)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_table_equals_scipy(covariance):
    model, data, em, params, state = setup(covariance)
    table = in_float64(jax.jit(em.kernel.table))(
        state.theta, anchors_at(em, state)[0], chunk_of(em)
    )
    rows = data.layout.gather([np.asarray(table)])
    effects = data.layout.join(anchors_at(em, state))[:, data.panel.row_subject].T.reshape(-1, 2, 2)
    mean = np.einsum("kjm,rm->rkj", params["coef"], data.a[:, list(model.designs.x_cols(0))])
    mean += np.einsum("rje,re->rj", effects, data.a[:, list(model.designs.z_cols(0))])[:, None]
    family = Gaussian(covariance)
    noise = family.noise_from_params(params[family.noise_name], 2)
    np.testing.assert_allclose(rows, gaussian_table(data.y, mean, noise), rtol=1e-10)


@pytest.mark.parametrize(
    "covariance",
    [c if c == "full" else pytest.param(c, marks=pytest.mark.slow) for c in COVARIANCES],
)
def test_effect_quadratic_equals_autodiff_of_expected_complete(covariance):
    """The closed form against the general path of the seam."""
    _, _, em, _, state = setup(covariance)
    chunk, theta, anchor = chunk_of(em), state.theta, jnp.asarray(anchors_at(em, state)[0])

    @in_float64
    @jax.jit
    def both():
        posterior = em.kernel.posterior(theta, anchor, chunk, "scaled")
        block = em.kernel.blocks[0]
        closed = block.quadratic(theta, block.collect(posterior.state, chunk))

        def total(f):
            return em.kernel.expected_complete(theta, f, posterior, chunk).sum()

        zero = jnp.zeros(anchors_at(em, state)[0].shape)
        gradient = jax.grad(total)(zero)
        hessian = jax.hessian(total)(zero)
        own = jnp.moveaxis(jnp.diagonal(hessian, axis1=1, axis2=3), -1, -1)
        return closed, -own, gradient

    (precision, linear), hessian, gradient = both()
    np.testing.assert_allclose(precision, hessian, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(linear, gradient, rtol=1e-9, atol=1e-10)


def m_step_objective(sums, groups, coef, covariance):
    """The part of the bound that one state's coefficients and covariance enter, from the sums."""
    total = 0.0
    for g, members in enumerate(groups):
        at = np.ix_(members, members)
        b = coef[list(members)]
        xr = sums.xr[g][list(members)]
        residual = sums.rr[g][at] - b @ xr.T - xr @ b.T + b @ sums.xx[g] @ b.T
        part = covariance[at]
        total += sums.weight[g] * np.linalg.slogdet(part)[1]
        total += np.trace(np.linalg.solve(part, residual))
    return -0.5 * total


@pytest.mark.parametrize("covariance", chosen(COVARIANCES, ("full",)))
def test_m_step_reaches_the_optimum(covariance):
    """Repeated coefficient and covariance updates end where a numerical optimiser ends."""
    frame = awkward_frame()
    frame = frame.assign(x=1.0)  # intercept only, but many rows per state: well determined
    _, _, em, _, state = setup(covariance, "y1 + y2 ~ 1 + (1 | who)", n_states=1)
    step = in_float64(em.step)(state)
    kernel = em.kernel.blocks[0].kernel
    total = kernel.read(np.asarray(passes_at(em.e, step.before)[0].totals.model[0]))
    coef, noise = state.theta["0.coef"], state.theta["0.covariance"]
    for _ in range(200):
        coef, noise = kernel.regressions.maximise(coef, noise, total, np.full(2, 1e-6))
    one = jax.tree.map(lambda a: a[0], total)

    def unpack(v):
        if covariance == "spherical":
            return v[:2, None], np.eye(2) * np.exp(v[2])
        if covariance == "diagonal":
            return v[:2, None], np.diag(np.exp(v[2:4]))
        root = np.array([[np.exp(v[2]), 0.0], [v[3], np.exp(v[4])]])
        return v[:2, None], root @ root.T

    size = {"spherical": 3, "diagonal": 4, "full": 5}[covariance]
    found = minimize(
        lambda v: -m_step_objective(one, kernel.groups, *unpack(v)),
        np.zeros(size),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    best_coef, best_noise = unpack(found.x)
    np.testing.assert_allclose(coef[0], best_coef, atol=1e-5)
    np.testing.assert_allclose(noise[0], best_noise, atol=1e-5)


def test_a_collapsing_variance_is_floored():
    family = Gaussian("diagonal")
    groups, _ = family.groups(np.ones((5, 2), bool))
    from avem.components.gaussian_kernel import GaussianKernel
    from avem.components.gaussian_regressions import Sums

    kernel = GaussianKernel(family, 1, 2, (0,), (), groups, ((),), 0)
    ones = np.ones((1, 1))
    sums = Sums(5 * ones, 5 * ones[..., None, None], np.zeros((1, 1, 2, 1)), np.zeros((1, 1, 2, 2)))
    sums.rr[0, 0] = np.diag([0.0, 5.0])
    _, noise = kernel.regressions.maximise(
        np.zeros((1, 2, 1)), np.eye(2)[None], sums, np.full(2, 1e-6)
    )
    assert noise[0, 0, 0] == 1e-6
    assert noise[0, 1, 1] == 1.0


def test_groups_of_outcomes():
    whole = np.array([[True, True], [False, False]])
    assert Gaussian().groups(whole)[0] == ((0, 1),)
    cells = np.array([[True, True], [False, True], [False, False]])
    assert Gaussian("diagonal").groups(cells)[0] == ((0,), (1,))
    groups, seen = Gaussian("full").groups(cells)
    assert groups == ((1,), (0, 1))
    assert seen.tolist() == [[False, True], [True, False], [False, False]]


def test_unknown_covariance_is_refused():
    with pytest.raises(ModelError, match="choose one of spherical, diagonal, full"):
        Gaussian("round")
