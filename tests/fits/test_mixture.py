"""Quantiles of mixtures: by their definition, and by draws."""

import numpy as np
import pytest

from avem.families import Beta, Gamma, NegativeBinomial, StudentT, UnivariateGaussian, VonMises
from avem.families.zero_augmented_gamma import ZeroAugmentedGamma
from avem.fits.predict.mixture import Mixture

ROWS, PARTS = 40, 6
CENTRES = {"normal": 3.0, "student_t": 3.0}


def random_mixture(family, seed=0):
    """Parts that lie apart, in random shares."""
    rng = np.random.default_rng(seed)
    spread = CENTRES.get(family.name, 0.8)
    eta = [rng.normal(0.5, spread, (ROWS, PARTS))]
    size = 3.0 if family.name == "beta" else 0.8  # else its quantiles may be as small as 1e-40
    eta += [rng.normal(size, 0.4, (ROWS, PARTS)) for _ in family.parameters[1:]]
    return Mixture(family, rng.dirichlet(np.ones(PARTS), ROWS), tuple(eta), ())


def drawn(mixture, row, n, rng):
    part = rng.choice(PARTS, n, p=mixture.weight[row])
    return mixture.family.draw(rng, tuple(eta[row, part] for eta in mixture.eta), ())


@pytest.mark.parametrize(
    "family", [UnivariateGaussian(), StudentT(), Gamma(), Beta()], ids=lambda f: f.name
)
@pytest.mark.parametrize("p", [0.001, 0.025, 0.5, 0.975])
def test_continuous_quantiles_are_where_the_cdf_is(family, p):
    mixture = random_mixture(family)
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(p)), p, atol=1e-7)


@pytest.mark.parametrize("p", [0.025, 0.5, 0.975])
def test_whole_quantiles_are_the_first_with_enough(p):
    mixture = random_mixture(NegativeBinomial())
    found = mixture.quantile(p)
    assert (found == np.round(found)).all()
    assert (mixture.cdf(found) >= p).all()
    assert (mixture.below(found) < p).all()


def test_a_quantile_among_exact_zeros_is_zero():
    mixture = random_mixture(ZeroAugmentedGamma())
    assert (mixture.cdf(np.zeros(ROWS)) > 0.2).all()
    assert (mixture.quantile(0.1) == 0).all()
    upper = mixture.quantile(0.99)
    np.testing.assert_allclose(mixture.cdf(upper), 0.99, atol=1e-9)


@pytest.mark.parametrize(
    "family", [UnivariateGaussian(), Gamma(), NegativeBinomial(), VonMises()], ids=lambda f: f.name
)
def test_mean_sd_and_interval_are_those_of_draws(family):
    mixture, rng = random_mixture(family, seed=1), np.random.default_rng(2)
    low, high = mixture.interval(0.8)
    for row in range(4):
        y = drawn(mixture, row, 100_000, rng)
        if family.angular:
            mean = np.exp(1j * y).mean()
            np.testing.assert_allclose(np.exp(1j * mixture.mean[row]), mean / abs(mean), atol=0.03)
            np.testing.assert_allclose(mixture.sd[row], np.sqrt(-2 * np.log(abs(mean))), rtol=0.02)
            length = (high[row] - low[row]) % (2 * np.pi)  # of the arc, anticlockwise
            inside = (y - low[row]) % (2 * np.pi) <= length
        else:
            np.testing.assert_allclose(mixture.mean[row], y.mean(), atol=0.03 * y.std())
            np.testing.assert_allclose(mixture.sd[row], y.std(), rtol=0.04)
            inside = (low[row] <= y) & (y <= high[row])
        least = 0.79
        assert least <= inside.mean() <= (1.0 if family.discrete else 0.81)
