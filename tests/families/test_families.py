"""Every emission family against SciPy, its own density and finite differences."""

import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import digamma, gammaln, polygamma

import avem.families
from avem.components.outcome import learn_families
from avem.data import Panel, parse_formula
from avem.errors import DataError, ModelError
from avem.families import (
    FAMILIES,
    Censored,
    Custom,
    Dirichlet,
    Gaussian,
    Truncated,
    UnivariateGaussian,
)
from avem.families.base import IDENTITY, LOG, LOGIT, Family
from avem.families.bernoulli import Bernoulli
from avem.families.beta import Beta
from avem.families.binomial import Binomial
from avem.families.categorical import Categorical
from avem.families.exponential import Exponential
from avem.families.gamma import Gamma
from avem.families.hurdle import HurdleNegativeBinomial, HurdlePoisson
from avem.families.log_gamma import log_gamma_rest
from avem.families.log_normal import LogNormal
from avem.families.negative_binomial import NegativeBinomial
from avem.families.ordinal import Ordinal
from avem.families.poisson import Poisson
from avem.families.student_t import StudentT
from avem.families.univariate import Univariate
from avem.families.von_mises import VonMises
from avem.families.weibull import Weibull
from avem.families.wrapped_cauchy import WrappedCauchy
from avem.families.zero_augmented_gamma import ZeroAugmentedGamma
from avem.families.zero_inflated import ZeroInflatedNegativeBinomial, ZeroInflatedPoisson
from avem.families.zero_one_inflated_beta import ZeroOneInflatedBeta
from avem.numerics.precision import in_float64

TRIALS = 12
PI = np.pi
BENT = (LOG, LOGIT)
CELL_ENDS = np.linspace(0.02, 0.98, 20)
"""Where, in shares of the draws, the cells of the chi-square test end."""
ONE_SIZE = 1024
"""All calls of `density` and `derivatives` have this size: compiled once for each family."""


# --- what the outcomes can be, as nodes and weights of a sum over the support ---------------------


def counts(top):
    return np.arange(top, dtype=float), np.ones(top)


def curve(values, t):
    """Nodes of an integral over `values(t)`, at equal steps of t."""
    y = values(t)
    return y, np.gradient(y, edge_order=2)


FINE = np.linspace(-1.0, 1.0, 200_001)
REALS = curve(np.sinh, 20 * FINE)
POSITIVE = curve(np.exp, 25 * FINE)
SHARES = curve(LOGIT.to_natural, 30 * FINE)
ANGLES = curve(lambda t: t, PI * FINE[:-1])
ZERO_OR_POSITIVE = np.append(0.0, POSITIVE[0]), np.append(1.0, POSITIVE[1])
FROM_0_TO_1 = (
    np.concatenate([[0.0], SHARES[0][1:-1], [1.0]]),
    np.concatenate([[1.0], SHARES[1][1:-1], [1.0]]),
)

COUNT_VALUES = (0, 1, 2, 7, 30, 400)
POSITIVE_VALUES = (1e-6, 0.03, 1, 2.5, 80)
ANGLE_VALUES = (-PI, -1.5, 0, 0.4, PI, 2 * PI)
NO_COUNTS = (-1, 0.5, np.inf, np.nan)
NOT_POSITIVE = (0, -1, np.inf, np.nan)
NOT_REAL = (np.inf, -np.inf, np.nan)
NO_ANGLES = (7, -90, np.inf, np.nan)


class Case(NamedTuple):
    """A family and what is expected of it."""

    family: Univariate
    reference: Callable[..., Any]
    """Log density from the outcome and the natural parameters."""
    eta: tuple[float, ...]
    """A typical value."""
    near: tuple[float, ...]
    """How close `start` comes with 4000 values."""
    nodes: tuple[np.ndarray, np.ndarray]
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    per_cell: int
    """Costly functions whose argument joins an outcome with a parameter: one call for each pair."""
    reach: float = 6.0
    """How far predictors go where the density is compared with SciPy's, which may overflow."""

    def y(self, values):
        """The outcome and, where the family reads it, the column of trials."""
        values = np.asarray(values, float)
        return values, *(np.full(values.shape, float(TRIALS)) for _ in self.family.extras)

    def draw(self, rng, eta, n):
        more = tuple(np.full(n, float(TRIALS)) for _ in self.family.extras)
        return self.family.draw(rng, tuple(np.full(n, e) for e in eta), more)


def nbinom(y, mean, size):
    return stats.nbinom.logpmf(y, size, size / (size + mean))


def gamma(y, mean, shape):
    return stats.gamma.logpdf(y, shape, scale=mean / shape)


def inflated(density):
    """`density` with extra zeros, whose probability is the last argument."""

    def reference(y, *parameters):
        *own, zero = parameters
        other = np.log1p(-zero) + density(y, *own)
        return np.where(y == 0, np.logaddexp(np.log(zero), other), other)

    return reference


def augmented_gamma(y, mean, shape, zero):
    positive = np.log1p(-zero) + gamma(np.where(y > 0, y, 1), mean, shape)
    return np.where(y > 0, positive, np.log(zero))


def hurdle(density):
    """`density` without its zeros, and zeros with the probability of the last argument."""

    def reference(y, *parameters):
        *own, zero = parameters
        above = density(np.maximum(y, 1), *own) - np.log(-np.expm1(density(0 * y, *own)))
        return np.where(y == 0, np.log(zero), np.log1p(-zero) + above)

    return reference


def inflated_beta(y, mean, precision, zero, one):
    inside = (y > 0) & (y < 1)
    beta = stats.beta.logpdf(np.where(inside, y, 0.5), mean * precision, (1 - mean) * precision)
    between = np.log1p(-zero) + np.log1p(-one) + beta
    return np.where(inside, between, np.where(y > 0, np.log1p(-zero) + np.log(one), np.log(zero)))


def between_thresholds(y, location, gap_2, gap_3):
    """The chance that a logistic variable falls between two thresholds, from the nearer end."""
    cuts = np.stack([0 * gap_2 - np.inf, 0 * gap_2, gap_2, gap_2 + gap_3, 0 * gap_2 + np.inf])
    low, high = (np.take_along_axis(cuts, (y.astype(int) + j)[None], 0)[0] for j in (0, 1))
    flip = low > location
    low, high = np.where(flip, 2 * location - high, low), np.where(flip, 2 * location - low, high)
    return np.log(stats.logistic.cdf(high, location) - stats.logistic.cdf(low, location))


def chosen(y, *chances):
    return np.log(np.choose(y.astype(int), chances))


def binomial(y, p):
    return stats.binom.logpmf(y, TRIALS, p)


CASES = [
    Case(
        Bernoulli(),
        stats.bernoulli.logpmf,
        eta=(0.7,),
        near=(0.2,),
        nodes=counts(2),
        inside=(0, 1),
        outside=(2, -1, 0.5, np.nan),
        per_cell=0,
    ),
    Case(
        Categorical(("a", "b", "c")),
        chosen,
        eta=(0.7, -0.6),
        near=(0.2, 0.3),
        nodes=counts(3),
        inside=(0, 1, 2),
        outside=(3, -1, np.nan),
        per_cell=0,
    ),
    Case(
        Ordinal(("low", "middle", "high", "top")),
        between_thresholds,
        eta=(0.9, 0.2, -0.3),
        near=(0.2, 0.2, 0.2),
        nodes=counts(4),
        inside=(0, 1, 2, 3),
        outside=(4, -1, np.nan),
        per_cell=4,
        reach=3.0,
    ),
    Case(
        Binomial("n"),
        binomial,
        eta=(-0.8,),
        near=(0.1,),
        nodes=counts(TRIALS + 1),
        inside=(0, 3, TRIALS),
        outside=(TRIALS + 1, *NO_COUNTS),
        per_cell=0,
    ),
    Case(
        Binomial(TRIALS),
        binomial,
        eta=(-0.8,),
        near=(0.1,),
        nodes=counts(TRIALS + 1),
        inside=(0, 3, TRIALS),
        outside=(TRIALS + 1, *NO_COUNTS),
        per_cell=0,
    ),
    Case(
        Poisson(),
        stats.poisson.logpmf,
        eta=(1.1,),
        near=(0.1,),
        nodes=counts(1000),
        inside=COUNT_VALUES,
        outside=NO_COUNTS,
        per_cell=0,
    ),
    Case(
        NegativeBinomial(),
        nbinom,
        eta=(1.4, 0.9),
        near=(0.1, 0.4),
        nodes=counts(2000),
        inside=COUNT_VALUES,
        outside=NO_COUNTS,
        per_cell=5,
    ),
    Case(
        ZeroInflatedPoisson(),
        inflated(stats.poisson.logpmf),
        eta=(1.1, -0.8),
        near=(0.1, 0.3),
        nodes=counts(1000),
        inside=COUNT_VALUES,
        outside=NO_COUNTS,
        per_cell=2,
    ),
    Case(
        ZeroInflatedNegativeBinomial(),
        inflated(nbinom),
        eta=(1.9, 1.2, -0.8),
        near=(0.3, 0.7, 0.7),
        nodes=counts(2000),
        inside=COUNT_VALUES,
        outside=NO_COUNTS,
        per_cell=7,
    ),
    Case(
        HurdlePoisson(),
        hurdle(stats.poisson.logpmf),
        eta=(1.1, -0.8),
        near=(0.1, 0.2),
        nodes=counts(1000),
        inside=COUNT_VALUES,
        outside=NO_COUNTS,
        per_cell=0,
    ),
    Case(
        HurdleNegativeBinomial(),
        hurdle(nbinom),
        eta=(1.9, 1.2, -0.8),
        near=(0.2, 0.5, 0.2),
        nodes=counts(2000),
        inside=COUNT_VALUES,
        outside=NO_COUNTS,
        per_cell=5,
        reach=4.0,
    ),
    Case(
        Exponential(),
        lambda y, mean: stats.expon.logpdf(y, scale=mean),
        eta=(0.8,),
        near=(0.1,),
        nodes=POSITIVE,
        inside=(0, *POSITIVE_VALUES),
        outside=(-1, np.inf, np.nan),
        per_cell=0,
    ),
    Case(
        Gamma(),
        gamma,
        eta=(0.8, 1.3),
        near=(0.1, 0.2),
        nodes=POSITIVE,
        inside=POSITIVE_VALUES,
        outside=NOT_POSITIVE,
        per_cell=0,
    ),
    Case(
        ZeroAugmentedGamma(),
        augmented_gamma,
        eta=(0.8, 1.3, -0.9),
        near=(0.1, 0.2, 0.2),
        nodes=ZERO_OR_POSITIVE,
        inside=(0, *POSITIVE_VALUES),
        outside=(-1, np.inf, np.nan),
        per_cell=0,
    ),
    Case(
        Weibull(),
        lambda y, scale, shape: stats.weibull_min.logpdf(y, shape, scale=scale),
        eta=(0.8, 0.5),
        near=(0.1, 0.1),
        nodes=POSITIVE,
        inside=POSITIVE_VALUES,
        outside=NOT_POSITIVE,
        per_cell=1,
        reach=1.5,
    ),
    Case(
        LogNormal(),
        lambda y, mean, sd: stats.lognorm.logpdf(y, sd, scale=np.exp(mean)),
        eta=(0.8, -0.5),
        near=(0.1, 0.1),
        nodes=POSITIVE,
        inside=POSITIVE_VALUES,
        outside=NOT_POSITIVE,
        per_cell=0,
    ),
    Case(
        Beta(),
        lambda y, mean, precision: stats.beta.logpdf(y, mean * precision, (1 - mean) * precision),
        eta=(0.6, 1.9),
        near=(0.1, 0.2),
        nodes=SHARES,
        inside=(1e-6, 0.1, 0.5, 0.99),
        outside=(0, 1, -1, 2, np.nan),
        per_cell=0,
    ),
    Case(
        ZeroOneInflatedBeta(),
        inflated_beta,
        eta=(0.6, 1.9, -1.2, -0.8),
        near=(0.1, 0.2, 0.2, 0.2),
        nodes=FROM_0_TO_1,
        inside=(0, 1e-6, 0.1, 0.5, 0.99, 1),
        outside=(-1, 2, np.nan),
        per_cell=0,
    ),
    Case(
        StudentT(),
        lambda y, location, scale, df: stats.t.logpdf(y, df, location, scale),
        eta=(0.8, -0.6, np.log(4.0)),
        near=(0.1, 0.1, 0.5),
        nodes=REALS,
        inside=(-100, -1.5, 0, 0.4, 3),
        outside=NOT_REAL,
        per_cell=1,
    ),
    Case(
        UnivariateGaussian(),
        stats.norm.logpdf,
        eta=(0.8, -0.6),
        near=(0.1, 0.1),
        nodes=REALS,
        inside=(-100, -1.5, 0, 0.4, 3),
        outside=NOT_REAL,
        per_cell=0,
    ),
    Case(
        VonMises(),
        lambda y, mean, concentration: stats.vonmises.logpdf(y - mean, concentration),
        eta=(2.5, 0.7),
        near=(0.1, 0.2),
        nodes=ANGLES,
        inside=ANGLE_VALUES,
        outside=NO_ANGLES,
        per_cell=1,
    ),
    Case(
        WrappedCauchy(),
        lambda y, mean, c: stats.wrapcauchy.logpdf(np.mod(y - mean, 2 * PI), c),
        eta=(2.5, 0.7),
        near=(0.1, 0.2),
        nodes=ANGLES,
        inside=ANGLE_VALUES,
        outside=NO_ANGLES,
        per_cell=2,
    ),
]
IDS = [case.family.name + "-column" * len(case.family.extras) for case in CASES]
every_family = pytest.mark.parametrize("case", CASES, ids=IDS)
angular = [case for case in CASES if case.nodes is ANGLES]


@partial(jax.jit, static_argnums=0)
def compiled_density(family, y, eta):
    return family.log_density(y, eta)


@in_float64
def density(family, y, eta):
    """The log density of every value, ONE_SIZE of them at a time."""
    parts = np.broadcast_arrays(*(np.asarray(part, float) for part in (*y, *eta)))
    shape, size, n_y = parts[0].shape, parts[0].size, len(y)
    flat = np.stack([part.ravel() for part in parts])
    out = np.empty(size)
    for begin in range(0, size, ONE_SIZE):
        some = flat[:, begin : begin + ONE_SIZE]
        rows = [np.resize(row, ONE_SIZE) for row in some]
        found = compiled_density(family, tuple(rows[:n_y]), tuple(rows[n_y:]))
        out[begin : begin + ONE_SIZE] = np.asarray(found)[: some.shape[1]]
    return out.reshape(shape)


@in_float64
def broadcast_density(family, y, eta):
    """In the shapes that it is given."""
    return np.asarray(compiled_density(family, y, tuple(np.asarray(e, float) for e in eta)))


@partial(jax.jit, static_argnums=0)
def compiled_derivatives(family, y, eta):
    """Slopes along each parameter, and the rows of the table, one direction after the other."""

    def slope(along, *at):
        units = tuple(jnp.broadcast_to(unit, e.shape) for unit, e in zip(along, at, strict=True))
        return jax.jvp(lambda *at: family.log_density(y, at), at, units)[1]

    def turn(pair):
        units = tuple(jnp.broadcast_to(unit, e.shape) for unit, e in zip(pair[1], eta, strict=True))
        return jax.jvp(partial(slope, pair[0]), eta, units)

    unit = jnp.eye(len(eta))
    pairs = list(itertools.combinations_with_replacement(range(len(eta)), 2))
    first, second = jax.lax.map(turn, unit[jnp.array(pairs)])
    own = [pairs.index((j, j)) for j in range(len(eta))]
    return [first[k] for k in own], dict(zip(pairs, second, strict=True))


@in_float64
def derivatives(family, y, eta):
    """First derivatives (eta, ...) and second ones (eta, eta, ...)."""
    parts = np.broadcast_arrays(*y, *eta)
    shape, size, p = parts[0].shape, parts[0].size, len(eta)
    flat = np.stack([part.ravel() for part in parts])
    firsts, tables = [], []
    for begin in range(0, size, ONE_SIZE):
        some = flat[:, begin : begin + ONE_SIZE]
        rows = [np.resize(row, ONE_SIZE) for row in some]
        first, second = compiled_derivatives(family, tuple(rows[:-p]), tuple(rows[-p:]))
        table = [[second[min(i, j), max(i, j)] for j in range(p)] for i in range(p)]
        firsts.append(np.array(first)[:, : some.shape[1]])
        tables.append(np.array(table)[:, :, : some.shape[1]])
    first, table = np.concatenate(firsts, axis=1), np.concatenate(tables, axis=2)
    return first.reshape(p, *shape), table.reshape(p, p, *shape)


def random_etas(rng, family, n, reach):
    """n random linear predictors; an angle or a location goes as far as 10."""
    far = {LOG: reach, LOGIT: reach, IDENTITY: reach}
    return tuple(rng.uniform(-1, 1, n) * far.get(p.link, 10.0) for p in family.parameters)


# --- the density ----------------------------------------------------------------------------------


@every_family
def test_density_equals_scipy(case):
    rng = np.random.default_rng(0)
    values = np.repeat(case.inside, 200)
    eta = random_etas(rng, case.family, len(values), case.reach)
    expected = case.reference(values, *case.family.natural(eta).values())
    ours = density(case.family, case.y(values), eta)
    np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-9)


@every_family
def test_density_sums_to_one_and_has_the_mean(case):
    y, weight = case.nodes
    mass = weight * np.exp(density(case.family, case.y(y), [np.full(1, e) for e in case.eta]))
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-6)
    if case.nodes is ANGLES:
        expected = np.angle((mass * np.exp(1j * y)).sum())
    else:
        expected = (mass * y).sum()
    if case.family.extras:  # the mean is that of the share, for want of the trials
        expected /= TRIALS
    mean = case.family.mean(tuple(np.array([e]) for e in case.eta))
    np.testing.assert_allclose(mean, [expected], rtol=1e-5)


def summed(case, eta):
    """The support in order, the mass of each of its cells, and that of all up to each node."""
    y, weight = case.nodes
    mass = weight * np.exp(density(case.family, case.y(y), [np.full(1, e) for e in eta]))
    single = ~case.family.has_density((y,))
    below = np.cumsum(mass) - np.where(single, 0.0, 0.5 * mass)  # half of the cell it is in
    if case.nodes is ANGLES:  # whose first cell begins half a turn away
        below -= 0.5 * mass[0]
    return y, mass, below, single


@every_family
@pytest.mark.parametrize("shift", [0.0, 0.8, -1.1])
def test_cdf_and_variance_are_sums_over_the_density(case, shift):
    family, eta = case.family, tuple(e + shift for e in case.eta)
    y, mass, expected, single = summed(case, eta)
    at = np.unique(np.linspace(0, len(y) - 1, 400).astype(int))
    one, more = [np.full(1, e) for e in eta], case.y(y[at])[1:]
    found = family.cdf(y[at], one, more)
    np.testing.assert_allclose(found, expected[at], atol=2e-6)
    below = np.where(single, expected - mass, expected)
    np.testing.assert_allclose(family.below(y[at], one, more), below[at], atol=2e-6)
    assert ((found >= 0) & (found <= 1)).all()
    if case.nodes is ANGLES:
        spread = 1 - np.abs((mass * np.exp(1j * y)).sum())
    else:
        spread = (mass * (y - (mass * y).sum()) ** 2).sum()
    with_trials = tuple(np.full(1, float(TRIALS)) for _ in family.extras)
    variance = family.variance(one, with_trials)
    if np.isfinite(variance).all():
        np.testing.assert_allclose(variance, [spread], rtol=2e-4)


@every_family
def test_cdf_is_0_and_1_outside_the_support(case):
    if case.family.angular:  # no outside: angles are read modulo a full turn
        eta = tuple(np.full(1, e) for e in case.eta)
        ends = case.family.cdf(np.array([-PI, PI, 0.3, 0.3 + 2 * PI]), eta)
        np.testing.assert_allclose(ends[:2], [0, 1], atol=1e-12)
        np.testing.assert_allclose(ends[2], ends[3], atol=1e-12)
        return
    trials = tuple(np.full(2, float(TRIALS)) for _ in case.family.extras)
    eta = tuple(np.full(2, e) for e in case.eta)
    np.testing.assert_allclose(
        case.family.cdf(np.array([-1e9, 1e9]), eta, trials), [0.0, 1.0], atol=1e-12
    )


@every_family
def test_cdf_of_draws_is_uniform(case):
    """Between `below` and `cdf`, at random: what randomised residuals are made of."""
    rng, n = np.random.default_rng(3), 4000
    eta = tuple(np.full(n, e) for e in case.eta)
    y = case.draw(rng, case.eta, n)
    more = case.y(y)[1:]
    low, high = case.family.below(y, eta, more), case.family.cdf(y, eta, more)
    assert stats.kstest(low + rng.random(n) * (high - low), "uniform").pvalue > 1e-3


@every_family
def test_derivatives_equal_finite_differences(case):
    rng = np.random.default_rng(1)
    values, step, p = np.repeat(case.inside, 20), 1e-5, len(case.eta)
    at = np.array(random_etas(rng, case.family, len(values), 2.5))
    moves = np.concatenate([np.zeros((1, p)), step * np.eye(p), -step * np.eye(p)])
    moved = tuple(at[:, None] + moves.T[:, :, None])  # for each eta: (move, value)
    y = case.y(values[None])
    value = density(case.family, y, moved)
    first, second = derivatives(case.family, y, moved)
    up, down = slice(1, p + 1), slice(p + 1, None)
    by_value = (value[up] - value[down]) / (2 * step)
    by_first = (first[:, up] - first[:, down]) / (2 * step)
    size = 1 + np.abs(second[:, :, 0]).max((0, 1))  # of the parts that cancel in an entry
    np.testing.assert_allclose(first[:, 0] / size, by_value / size, rtol=1e-6, atol=2e-8)
    np.testing.assert_allclose(second[:, :, 0] / size, by_first / size, rtol=1e-6, atol=2e-8)


@every_family
def test_all_is_finite_far_out(case):
    grid = itertools.product([-30.0, -9.0, 0.0, 9.0, 30.0], repeat=len(case.eta))
    eta = tuple(np.array(list(grid)).T[:, :, None])
    y = case.y(np.array([[case.family.harmless, *case.inside]]))
    assert np.isfinite(density(case.family, y, eta)).all()
    first, second = derivatives(case.family, y, eta)
    assert np.isfinite(first).all()
    assert np.isfinite(second).all()
    assert np.abs(first).max() > 0


@pytest.mark.parametrize("family", [ZeroAugmentedGamma(), NegativeBinomial(), VonMises()])
def test_reverse_derivatives_are_finite_too(family):
    """They also read the branch of a formula that is not taken, where 0 times infinity lurks."""
    grid = itertools.product([-30.0, 0.0, 30.0], repeat=len(family.parameters))
    eta = tuple(np.array(list(grid)).T)

    @in_float64
    def gradient(y):
        return jax.jit(jax.grad(lambda at: family.log_density((y,), at).sum()))(eta)

    for y in (0.0, 3.0):
        assert np.isfinite(gradient(y)).all()


@every_family
def test_parameters_broadcast(case):
    rng = np.random.default_rng(2)
    cells, states, lanes = 5, 3, 4
    values = rng.choice(case.inside, (cells, 1, lanes))
    small = [e + rng.normal(size=(1, states, 1)) for e in case.eta]
    large = [e + rng.normal(size=(cells, states, lanes)) for e in case.eta]
    for large_one in range(len(case.eta)):
        eta = [*small[:large_one], large[large_one], *small[large_one + 1 :]]
        full = [np.broadcast_to(e, (cells, states, lanes)) for e in eta]
        everywhere = case.y(np.broadcast_to(values, (cells, states, lanes)))
        got = broadcast_density(case.family, case.y(values), eta)
        assert got.shape == (cells, states, lanes)
        expected = density(case.family, everywhere, full)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


COSTLY = {"bessel_i0e", "cos", "digamma", "div", "exp", "expm1", "lgamma", "log", "log1p"}
COSTLY |= {"logistic", "polygamma", "pow", "sin", "tan"}


def costly_shapes(jaxpr):
    """Shapes of the results of all costly steps, also of those inside other functions."""
    for step in jaxpr.eqns:
        inner = [value for value in step.params.values() if hasattr(value, "eqns")]
        for part in inner:
            yield from costly_shapes(part)
        if not inner and step.primitive.name in COSTLY:
            yield step.outvars[0].aval.shape


@every_family
def test_costly_functions_are_called_on_small_arrays(case):
    """What depends on a parameter, or on the outcome, alone is computed at that shape."""
    y = case.y(np.broadcast_to(case.inside[0], (5, 1, 4)))
    eta = tuple(np.full((1, 3, 1), e) for e in case.eta)
    jaxpr = in_float64(jax.make_jaxpr(case.family.log_density))(y, eta).jaxpr
    shapes = [shape for shape in costly_shapes(jaxpr) if shape == (5, 3, 4)]
    assert len(shapes) == case.per_cell


# --- limits: large parts of the formulas must cancel before they are computed ---------------------


def test_negative_binomial_with_a_large_size():
    y = np.arange(40.0)
    ours = density(NegativeBinomial(), (y,), (np.log(9.0), np.log(1e6)))
    np.testing.assert_allclose(ours, nbinom(y, 9.0, 1e6), atol=1e-7)
    far = density(NegativeBinomial(), (y,), (np.log(9.0), 30.0))
    np.testing.assert_allclose(far, stats.poisson.logpmf(y, 9.0), atol=1e-10)
    eta = np.full(40, np.log(9.0)), np.full(40, 30.0)
    first, second = derivatives(NegativeBinomial(), (y,), eta)
    np.testing.assert_allclose(first, [y - 9.0, 0 * y], atol=1e-9)
    np.testing.assert_allclose(second[:, 0], [0 * y - 9.0, 0 * y], atol=1e-9)


def test_student_t_with_a_large_df():
    y = np.linspace(-4, 4, 9)
    ours = density(StudentT(), (y,), (0.5, 0.2, 30.0))
    np.testing.assert_allclose(ours, stats.norm.logpdf(y, 0.5, np.exp(0.2)), atol=1e-10)
    first, second = derivatives(StudentT(), (y,), [np.full(9, e) for e in (0.5, 0.2, 30.0)])
    np.testing.assert_allclose(first[2], 0.0, atol=1e-9)
    np.testing.assert_allclose(second[2], 0.0, atol=1e-9)


def test_von_mises_with_a_large_concentration():
    z, sd = np.linspace(-4, 4, 9), 1e-6
    eta = np.full(9, 0.5), np.full(9, -2 * np.log(sd))
    y = (0.5 + sd * z,)
    ours = density(VonMises(), y, eta)
    np.testing.assert_allclose(ours, stats.norm.logpdf(z) - np.log(sd), atol=1e-8)
    first, second = derivatives(VonMises(), y, eta)
    np.testing.assert_allclose(first[1], 0.5 - 0.5 * z**2, atol=1e-8)
    np.testing.assert_allclose(second[1, 1], -0.5 * z**2, atol=1e-8)


def test_gamma_with_a_large_shape():
    shape = np.exp(16.0)
    eta = np.array([0.7]), np.array([16.0])
    expected = 0.5 * np.log(shape / (2 * PI)) - 0.7 - 1 / (12 * shape)
    np.testing.assert_allclose(density(Gamma(), (np.exp(0.7),), eta), expected, atol=1e-8)
    _, second = derivatives(Gamma(), (np.exp(0.7),), eta)
    np.testing.assert_allclose(second[0, 0], -shape, rtol=1e-9)
    np.testing.assert_allclose(second[1, 1], 0.0, atol=1e-6)


def test_beta_with_a_large_precision():
    eta = np.array([0.0]), np.array([30.0])
    half = 0.5 * np.exp(30.0)
    expected = np.log(2) + 0.5 * np.log(half / PI) - 1 / (8 * half)
    np.testing.assert_allclose(density(Beta(), (0.5,), eta), expected, atol=1e-10)
    first, _ = derivatives(Beta(), (0.5,), eta)
    np.testing.assert_allclose(first[1], 0.5, atol=1e-10)


def test_log_gamma_without_its_leading_part():
    x = np.append(np.geomspace(1e-20, 60.0, 300), [8 - 1e-12, 8.0])
    leading = (x - 0.5) * np.log(x) - x + 0.5 * np.log(2 * PI)
    ours = np.asarray(in_float64(jax.jit(log_gamma_rest))(x))
    np.testing.assert_allclose(ours, gammaln(x) - leading, rtol=1e-13, atol=5e-14)


def test_derivatives_of_log_gamma_without_its_leading_part():
    x = np.concatenate([np.geomspace(1e-8, 50, 60), [7.999999, 8.0, 8.000001]])
    slope = jax.jit(jax.vmap(jax.grad(log_gamma_rest)))
    bend = jax.jit(jax.vmap(jax.grad(jax.grad(log_gamma_rest))))
    wanted = digamma(x) - np.log(x) + 0.5 / x
    np.testing.assert_allclose(in_float64(slope)(x), wanted, rtol=1e-13, atol=5e-15)
    wanted = polygamma(1, x) - 1 / x - 0.5 / x**2
    np.testing.assert_allclose(in_float64(bend)(x), wanted, rtol=1e-12, atol=5e-15)
    # Far out the terms of SciPy's cancel: there, the first two of the series.
    far = np.array([1e3, 1e6])
    wanted = -1 / (12 * far**2) + 1 / (120 * far**4)
    np.testing.assert_allclose(in_float64(slope)(far), wanted, rtol=1e-13)
    wanted = 1 / (6 * far**3) - 1 / (30 * far**5)
    np.testing.assert_allclose(in_float64(bend)(far), wanted, rtol=1e-12)


@pytest.mark.parametrize("case", angular, ids=lambda case: case.family.name)
def test_angles_are_periodic(case):
    y, turn = np.linspace(-3, 3, 50), 2 * PI
    here = density(case.family, (y,), case.eta)
    np.testing.assert_allclose(density(case.family, (y + turn,), case.eta), here, rtol=1e-12)
    turned = case.eta[0] - turn, case.eta[1]
    np.testing.assert_allclose(density(case.family, (y,), turned), here, rtol=1e-12)
    assert np.ptp(here) > 0.5


# --- draws ----------------------------------------------------------------------------------------


def misfit(case, values, eta):
    """p value of a chi-square test of `values` against the density at `eta`."""
    y, weight = case.nodes
    mass = weight * np.exp(density(case.family, case.y(y), eta))
    ends = np.unique(np.quantile(case.draw(np.random.default_rng(99), eta, 2000), CELL_ENDS))
    expected = len(values) * np.bincount(np.digitize(y, ends), mass, len(ends) + 1)
    found = np.bincount(np.digitize(values, ends), minlength=len(ends) + 1)
    kept = expected > 1
    assert found[~kept].sum() <= 5
    chi_square = ((found - expected)[kept] ** 2 / expected[kept]).sum()
    return stats.chi2.sf(chi_square, kept.sum() - 1)


@every_family
def test_draws_follow_the_density(case):
    values = case.draw(np.random.default_rng(5), case.eta, 20_000)
    assert values.dtype == float
    assert case.family.valid(case.y(values)).all()
    if case.nodes is ANGLES:
        assert np.all((values > -PI) & (values <= PI))
    assert misfit(case, values, case.eta) > 1e-3
    for j in range(len(case.eta)):  # the same check sees a wrong parameter
        wrong = [e + 0.6 * (i == j) for i, e in enumerate(case.eta)]
        assert misfit(case, values, wrong) < 1e-6


@every_family
def test_draws_have_the_mean(case):
    n = 20_000
    values = case.draw(np.random.default_rng(6), case.eta, n)
    mean = case.family.mean(case.eta)
    if case.nodes is ANGLES:
        values, mean = np.sin(values - mean), 0.0
    if case.family.extras:
        values = values / TRIALS
    error = values.std() / np.sqrt(n)
    assert abs(values.mean() - mean) < 4 * error
    assert error < 0.05  # small enough to tell


@every_family
def test_draws_broadcast(case):
    """Each cell of the joint shape gets a draw of its own."""
    rng = np.random.default_rng(7)
    if len(case.eta) == 1:
        eta = (np.full((2, 400), case.eta[0]),)
    else:
        eta = [np.full((1, 400), e) for e in case.eta]
        for j in range(len(eta)):
            turned = [np.full((2, 1), e) if i == j else eta[i] for i, e in enumerate(case.eta)]
            values = case.family.draw(rng, tuple(turned), case.y(np.zeros((2, 400)))[1:])
            assert values.shape == (2, 400)
            assert not np.array_equal(values[0], values[1])
    values = case.family.draw(rng, tuple(eta), case.y(np.zeros(eta[0].shape))[1:])
    assert values.shape == eta[0].shape
    assert len(np.unique(values)) > 1


def test_extreme_draws_are_valid():
    """Small shapes underflow to 0, small precisions round to 0 and 1."""
    rng, n = np.random.default_rng(8), 2000
    for family in (Gamma(), Beta(), ZeroAugmentedGamma(), LogNormal()):
        eta = tuple(np.full(n, e) for e in (0.0, -8.0, -30.0)[: len(family.parameters)])
        values = family.draw(rng, eta, ())
        assert family.valid((values,)).all()
        assert np.all(values > 0)


# --- starting values and features -----------------------------------------------------------------


@every_family
def test_start_is_near_the_truth(case):
    values = case.draw(np.random.default_rng(9), case.eta, 4000)
    start = case.family.start(case.y(values))
    assert all(type(e) is float for e in start)
    np.testing.assert_array_less(np.abs(np.subtract(start, case.eta)), case.near)


@pytest.mark.parametrize("family", [ZeroInflatedPoisson(), ZeroInflatedNegativeBinomial()])
def test_start_sees_no_extra_zeros_where_there_are_none(family):
    """However the counts of different states are spread."""
    rng = np.random.default_rng(11)
    y = np.concatenate([rng.poisson(rate, 300) for rate in (10.0, 20.0, 100.0)])
    assert y.min() > 0
    *_, zero = family.start((y.astype(float),))
    assert LOGIT.to_natural(zero) < 0.06


def poor_samples(case):
    for value in case.inside:
        for n in (1, 2, 50):
            yield np.full(n, float(value))
    yield np.array([*case.inside, *case.inside], float)
    yield np.array([min(case.inside), max(case.inside)], float)
    yield np.append(np.full(50, float(case.inside[0])), float(case.inside[-1]))


@every_family
def test_start_is_sane_for_poor_samples(case):
    for values in poor_samples(case):
        y = case.y(values)
        start = case.family.start(y)
        assert len(start) == len(case.eta)
        assert np.isfinite(start).all()
        linked = [e for e, p in zip(start, case.family.parameters, strict=True) if p.link in BENT]
        assert np.abs(linked).max(initial=0.0) < 15
        fitted = density(case.family, tuple(np.resize(column, 64) for column in y), start)
        assert np.isfinite(fitted).all()
        if np.ptp(values) == 0:
            assert fitted[0] > -8


@every_family
def test_features_are_finite_and_vary(case):
    features = case.family.features(case.y(case.inside))
    assert features.ndim == 2
    assert len(features) == len(case.inside)
    assert np.isfinite(features).all()
    assert np.all(features.std(0) > 0)
    for values in poor_samples(case):
        assert np.isfinite(case.family.features(case.y(values))).all()


@every_family
def test_features_tell_states_apart(case):
    """Two samples whose location differs by much have features far apart."""
    rng, n = np.random.default_rng(10), 400
    shift = PI if case.nodes is ANGLES else 2.5
    other = (case.eta[0] - shift, *case.eta[1:])
    samples = [case.draw(rng, eta, n) for eta in (case.eta, other)]
    features = case.family.features(case.y(np.concatenate(samples)))
    between = np.abs(features[:n].mean(0) - features[n:].mean(0))
    within = np.sqrt((features[:n].var(0) + features[n:].var(0)) / 2)
    assert (between / within).max() > 1.0


def test_zeros_have_a_feature_of_their_own():
    y = np.array([0.0, 1.0, np.e, 0.0])
    expected = np.array([[0, 0.5], [1, 0], [1, 1], [0, 0.5]])
    np.testing.assert_allclose(ZeroAugmentedGamma().features((y,)), expected, atol=1e-15)
    assert np.isfinite(ZeroAugmentedGamma().features((np.zeros(3),))).all()


# --- plain facts ----------------------------------------------------------------------------------


@every_family
def test_natural_inverts_the_links(case):
    if isinstance(case.family, Categorical):
        chances = case.family.natural(tuple(np.array([e]) for e in case.eta))
        assert list(chances) == ["a", "b", "c"]
        odds = [np.log(chances[level] / chances["a"]).item() for level in "bc"]
        np.testing.assert_allclose(odds, case.eta)
        return
    natural = case.family.natural(case.eta)
    assert list(natural) == [p.name for p in case.family.parameters]
    back = [p.link.to_eta(natural[p.name]) for p in case.family.parameters]
    np.testing.assert_allclose(back, case.eta)
    bent = [p.name for p in case.family.parameters if p.link in BENT]
    unchanged = [name for name, e in zip(natural, case.eta, strict=True) if natural[name] == e]
    assert not set(bent) & set(unchanged)


@every_family
def test_valid_tells_inside_from_outside(case):
    inside = case.family.valid(case.y(case.inside))
    assert inside.dtype == bool
    assert inside.all()
    assert not case.family.valid(case.y(case.outside)).any()
    assert case.family.valid(case.y([case.family.harmless])).all()


@every_family
def test_families_are_equal_and_hash_alike_when_alike(case):
    again = type(case.family)(**case.family.__dict__)
    assert again is not case.family
    assert again == case.family
    assert hash(again) == hash(case.family)
    assert sum(case.family == other.family for other in CASES) == 1


def learned(family, values):
    frame = pd.DataFrame({"who": 0, "y": values, "z": values})
    panel = Panel.from_frame(frame, "who")
    return learn_families(avem.outcome("y ~ 1", family), panel)[0].levels


def test_the_order_of_words_is_never_guessed():
    words = ["low", "high", "middle", "low"]
    ordered = pd.Categorical(words, ["low", "middle", "high"], ordered=True)
    assert learned("ordinal", ordered) == ("low", "middle", "high")
    for values in (words, pd.Categorical(words, ["low", "middle", "high"])):
        with pytest.raises(DataError, match="nothing says which is higher"):
            learned("ordinal", values)
    assert learned("ordinal", [3, 1, 2, 10]) == (1, 2, 3, 10)
    assert learned("categorical", words) == ("high", "low", "middle")
    with pytest.raises(DataError, match="takes 40 values"):
        learned("ordinal", np.arange(40))
    with pytest.raises(DataError, match="takes 1 values"):
        learned("ordinal", [1, 1])
    frame = pd.DataFrame({"who": 0, "y": [1, 2, 3], "z": [1, 2, 2]})
    with pytest.raises(DataError, match="different numbers of levels"):
        learn_families(avem.outcome("y + z ~ 1", "ordinal"), Panel.from_frame(frame, "who"))


def test_two_ordered_levels_are_bernoulli():
    y, eta = np.array([0.0, 1.0, 1.0]), (np.array([-2.0, 0.3, 5.0]),)
    two = Ordinal(("no", "yes"))
    np.testing.assert_allclose(density(two, (y,), eta), density(Bernoulli(), (y,), eta), rtol=1e-12)
    np.testing.assert_allclose(two.mean_values(eta)[:, 0], Bernoulli().mean(eta))


def test_special_cases_of_the_new_families():
    """Where they meet families that are older than they are."""
    y, rate = np.arange(9.0), 1.7
    none = LOGIT.to_eta(np.exp(-rate))  # as many zeros as a Poisson count has
    hurdled = density(HurdlePoisson(), (y,), (np.log(rate), none))
    np.testing.assert_allclose(hurdled, stats.poisson.logpmf(y, rate), rtol=1e-10)
    t = np.geomspace(0.01, 9, 9)
    plain = density(Exponential(), (t,), (0.4,))
    np.testing.assert_allclose(density(Weibull(), (t,), (0.4, 0.0)), plain, rtol=1e-12)
    share = np.linspace(0.1, 0.9, 9)
    inside = density(ZeroOneInflatedBeta(), (share,), (0.3, 1.0, -40.0, -40.0))
    np.testing.assert_allclose(inside, density(Beta(), (share,), (0.3, 1.0)), rtol=1e-12)


def test_binomial_trials_come_from_a_column_or_a_number():
    assert Binomial("n").extras == ("n",)
    assert Binomial(5).extras == ()
    assert Binomial(5) != Binomial(6)
    y, n = np.array([0.0, 2, 3, 1, 1, 0]), np.array([0.0, 2, 2, 1.5, -1, np.nan])
    np.testing.assert_array_equal(Binomial("n").valid((y, n)), [True, True] + [False] * 4)
    eta = (np.zeros(3),)
    drawn = Binomial("n").draw(np.random.default_rng(0), eta, (np.array([0.0, 1.0, 1e6]),))
    assert drawn[0] == 0
    assert drawn[1] <= 1
    assert abs(drawn[2] - 5e5) < 5e3
    np.testing.assert_allclose(Binomial(8).mean(eta), 4.0)


@pytest.mark.parametrize("trials", [0, -1, 2.5, True, None])
def test_bad_trials(trials):
    with pytest.raises(ModelError, match="Binomial trials is"):
        Binomial(trials)


def leaves(kind):
    below = kind.__subclasses__()
    return {kind} if not below else set().union(*map(leaves, below))


def test_the_list_of_families_is_complete():
    ours = {kind for kind in leaves(Family) if kind.__module__.startswith("avem.")}
    assert ours == {
        *(type(case.family) for case in CASES),
        Gaussian,
        Custom,
        Censored,
        Truncated,
        Dirichlet,
    }
    assert {kind for kind in FAMILIES.values() if kind in ours} == ours - {
        UnivariateGaussian,
        Custom,
    }
    assert FAMILIES["gaussian"] is Gaussian
    assert all(FAMILIES[kind.name] is kind for kind in ours - {UnivariateGaussian, Custom})
    assert "normal" not in FAMILIES
    exported = {value for value in vars(avem.families).values() if inspect.isclass(value)}
    assert ours <= exported
    assert all(kind.__name__ in avem.families.__all__ for kind in ours)


# --- what every family says of itself ---------------------------------------------------------


def log_prob(y, x, history, params, effect):
    return -0.5 * (y - params["level"] - history) ** 2


EVERY = [
    *(case.family for case in CASES),
    *(Gaussian(covariance) for covariance in ("diagonal", "spherical", "full")),
    Custom(log_prob, {"level": 0.0}, update=lambda history, y, x, params, effect: y),
    Censored("gamma", lower="limit"),
    Censored("gaussian", lower=-1.0, upper=2.0),
    Truncated("weibull", lower=0.2),
    Truncated("gaussian", lower=-1.0, upper=2.0),
]
really_every_family = pytest.mark.parametrize("family", EVERY, ids=repr)


@really_every_family
def test_facts_agree_with_each_other(family):
    assert family.takes_levels == (family.levels is not None)
    assert set(family.with_formula).isdisjoint(family.own_params)
    assert family.describe()
    assert family.sentence
    assert hash(family) == hash(family)
    alone = family.alone(0)
    assert (alone is None) == isinstance(family, Custom)
    if family.parameters:  # one outcome: itself, whatever the noise and the state
        assert alone.family is (family.base if isinstance(family, Censored) else family)
        assert alone.predictors((1.0, 2.0), None, np.array(0)) == (1.0, 2.0)


@really_every_family
def test_json_and_code_make_it_again(family):
    if family.cannot_save:
        assert "Python functions" in family.cannot_save
        assert family.code() == "avem.Custom(log_prob, params={'level': 0.0}, effects=())"
        return
    word, *values = family.to_json().values()
    assert avem.families.families_in_files()[word](*values) == family
    made = eval(family.code(), {"avem": avem})
    formulas = {name: parse_formula(text) for name, text in family.code_formulas.items()}
    assert made.given(parse_formula("y ~ 1"), formulas, False) == family


@pytest.mark.parametrize("covariance", ["diagonal", "spherical", "full"])
def test_one_gaussian_outcome_alone_is_normal(covariance):
    rng = np.random.default_rng(12)
    noise = np.array([[[4.0, 1.0], [1.0, 9.0]], [[1.0, 0.0], [0.0, 16.0]]])
    etas, state = (rng.normal(size=5), rng.normal(size=5)), np.array([0, 1, 1, 0, 0])
    family, predictors = Gaussian(covariance).alone(1)
    eta = predictors(etas, noise, state)
    assert family == UnivariateGaussian()
    np.testing.assert_array_equal(family.mean(eta), etas[1])
    np.testing.assert_allclose(family.variance(eta), noise[state, 1, 1])


def test_a_family_that_cannot_be_registered():
    with pytest.raises(ModelError, match="is no family"):
        avem.families.register(Case)
    with pytest.raises(ModelError, match="There is a family 'gamma' already"):

        @avem.families.register
        @dataclass(frozen=True)
        class Other(Univariate):
            name = "gamma"

    assert avem.families.register(Gamma) is Gamma
    assert FAMILIES["gamma"] is Gamma
