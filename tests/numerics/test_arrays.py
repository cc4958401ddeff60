"""Functions of subjects' values: in NumPy and compiled they are one and the same."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import avem
from avem.effects.prior import EffectDensity, log_joint
from avem.inference import catch_up
from avem.inference.methods.adaptive import centres
from avem.inference.methods.adaptive.mixture import Centres
from avem.inference.methods.adaptive.proposal import Proposal, integral
from avem.inference.methods.adaptive.rules import ladder
from avem.numerics import arrays, small
from avem.numerics.precision import in_float64

N = 7


def matrices(d, seed=0):
    root = np.random.default_rng(seed).normal(size=(d, d, N))
    return np.einsum("acn,bcn->abn", root, root) + 0.1 * np.eye(d)[:, :, None]


def alike(found, wanted):
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize("d", [0, 1, 2, 3, 5])
@in_float64
def test_small_matrices_are_those_of_lapack(d, xp):
    given = matrices(d)
    each = np.moveaxis(given, -1, 0)
    alike(small.factor(xp, given), np.moveaxis(np.linalg.cholesky(each), 0, -1))
    alike(small.inverse(xp, given), np.moveaxis(np.linalg.inv(each), 0, -1))
    if d:
        values, vectors = np.linalg.eigh(each)
        wanted = (vectors * np.maximum(values, 1.0)[:, None]) @ np.swapaxes(vectors, 1, 2)
        floored = small.spectral(xp, given, lambda x: xp.maximum(x, 1.0))
        alike(floored, np.moveaxis(wanted, 0, -1))


@pytest.mark.parametrize(
    "subscripts", ["ab,bn->an", "kgij,kgabn->iajbn", "abn,bn,bcn->acn", "an->n"]
)
@in_float64
def test_sums_of_products_are_those_of_einsum(subscripts):
    rng = np.random.default_rng(0)
    shapes = [[ord(c) % 5 + 1 for c in part] for part in subscripts.split("->")[0].split(",")]
    given = [rng.normal(size=shape) for shape in shapes]
    wanted = np.einsum(subscripts, *given, optimize=True)
    for xp in (np, jnp):
        alike(small.contract(xp, subscripts, *given), wanted)


@pytest.mark.parametrize("d", [0, 1, 3])
def test_the_density_of_effects_is_that_of_scipy(d, both):
    sigma, f, loglik = matrices(d)[..., 0], *np.split(np.arange(1.0, N * (d + 1) + 1), [N * d])
    f, density = np.sin(f.reshape(d, N)), EffectDensity.of(sigma)
    loglik[1] = np.nan
    wanted = loglik + (multivariate_normal(np.zeros(d), sigma).logpdf(f.T) if d else 0.0)
    for found in both(lambda: log_joint(loglik, density, f)):
        alike(found, np.where(np.isnan(wanted), -np.inf, wanted))


def test_what_has_no_factor_is_not_a_number():
    given = matrices(2)
    given[:, :, 3] = [[1.0, 2.0], [2.0, 1.0]]
    with np.errstate(invalid="ignore"):
        low = small.factor(np, given)
    assert np.isnan(low[..., 3]).all()
    assert np.isfinite(np.delete(low, 3, axis=-1)).all()


def test_a_matrix_with_one_eigenvalue_twice():
    given = 3.0 * np.ones(N) * np.eye(2)[:, :, None]
    alike(small.spectral(np, given, np.sqrt), np.sqrt(3.0) * np.ones(N) * np.eye(2)[:, :, None])


@pytest.fixture
def both(monkeypatch):
    """Run a function in NumPy, and compiled as on a GPU; both results."""

    @in_float64
    def run(function):
        plain = function()
        with monkeypatch.context() as patch:
            patch.setattr(arrays, "in_numpy", lambda: False)
            return plain, function()

    return run


def compare(pair):
    plain, compiled = pair
    for found, wanted in zip(compiled, plain, strict=True):
        alike(found, wanted)


def mixture(n_centres=2, d=2):
    rng = np.random.default_rng(1)
    log_share = np.log(rng.dirichlet(np.ones(n_centres), N)).T
    log_share[1, 2] = -np.inf
    log_share[0, 2] = 0.0
    cov = np.stack([matrices(d, seed) for seed in range(n_centres)])
    return Centres(log_share, rng.normal(size=(n_centres, d, N)), cov, np.eye(d))


def test_nodes_weights_and_centres(both):
    sigma, rule = np.array([[1.0, 0.3], [0.3, 2.0]]), ladder(2)[1]

    def run():
        proposal = Proposal.of(mixture().under(sigma), rule, sigma)
        total, moved = integral(mixture(), rule, sigma, lambda at: -((at - 1.0) ** 2).sum(1))
        share = np.linspace(0, 1, len(proposal.at) * N).reshape(-1, N)
        share = share / share.sum(0)
        followed = proposal.following(share)
        return *proposal[1:], *followed[:3], total, *moved[:3], *moved.modes()

    compare(both(run))


def test_some_subjects_are_put_among_others(both):
    few, members = mixture().of(np.array([0, 1, 4, 4])), np.array([5, 2, 3])
    mask = np.arange(N) % 2 == 0

    def run():
        put = mixture().put(members, few.first(1))
        return *put[:3], *put.put_where(mask, mixture().first(1))[:3], *few.filled(4)[:3]

    plain, compiled = both(run)
    compare((plain, compiled))
    alike(plain[1][0, :, members], mixture().mean[0][:, [0, 1, 4]].T)
    alike(plain[1][1], mixture().mean[1])


def test_modes_are_chosen_and_anchors_extrapolated(both):
    rng = np.random.default_rng(2)
    at, slope = rng.normal(size=(2, 5, 2, N))
    found = centres._Candidates(4 * at, rng.normal(size=(5, N)), 0.1 * slope)
    real = np.arange(N) < N - 1
    first, then = rng.normal(size=(2, 2, 2, N))
    height, density = rng.normal(size=(2, N)), EffectDensity.of(np.eye(2))

    def run():
        chosen = centres._choose(found, 0.3 * matrices(2), real, 3)
        place, distance = catch_up._placed(*first, height[0], density, real)
        best, *rest = catch_up._step(place, *then, height[1], density, real)
        return (
            *chosen,
            *best,
            distance,
            *rest,
            *centres._onward(found, found, np.stack([matrices(2)] * 5))[0],
        )

    plain, compiled = both(run)
    compare((plain, compiled))
    # By hand: the highest that are further than two standard deviations from all chosen before.
    ahead = found.at + centres._newton(np, 0.3 * matrices(2), found.slope)
    log_share, places_of = plain[:2]
    for i in range(N):
        kept = []
        for c in np.argsort(-found.height[:, i]):
            low = found.height[c, i] <= found.height[:, i].max() - 7.0 or not real[i]
            away = [ahead[c, :, i] - ahead[k, :, i] for k in kept]
            near = [a @ np.linalg.inv(0.3 * matrices(2)[..., i]) @ a <= 4.0 for a in away]
            if (kept and low) or any(near) or len(kept) == 3:
                continue
            kept.append(c)
        count = np.isfinite(log_share[:, i]).sum()
        assert count == min(len(kept), len(log_share))
        alike(places_of[:count, :, i], found.at[kept[:count], :, i])


@pytest.mark.slow
def test_a_fit_is_the_same_where_everything_stays_on_the_device(monkeypatch):
    hmm = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)
    truth = {
        "initial": [0.5, 0.5],
        "transition": [[0.8, 0.2], [0.2, 0.8]],
        "coef": [[[-0.6]], [[0.6]]],
        "variance": [[1.0], [1.0]],
        "effect_covariance": [[0.8]],
    }
    frame = hmm.simulate(truth, 60, 30, seed=1).frame
    fits = [hmm.fit(frame, time="time", n_starts=2)]
    monkeypatch.setattr(arrays, "in_numpy", lambda: False)
    fits.append(hmm.fit(frame, time="time", n_starts=2))
    assert fits[1].bound == pytest.approx(fits[0].bound, rel=1e-10)
    for name, value in fits[0].params.items():
        np.testing.assert_allclose(fits[1].params[name], value, atol=1e-6)
