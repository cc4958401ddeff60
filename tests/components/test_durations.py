"""Distributions of durations against SciPy, and their M-steps against a search."""

from functools import partial
from itertools import product

import jax
import numpy as np
import pytest
from scipy import optimize, stats

import avem
from avem.components import free_durations
from avem.components.duration import duration_in, duration_out
from avem.components.duration_families import FAMILIES, JAX, NUMPY, duration_family
from avem.components.durations import Stay
from avem.numerics.precision import in_float64

LONGEST = 40
D = np.arange(1, LONGEST + 1)
CASES = {
    "geometric": lambda m, s: stats.geom(1 / (1 + m)),
    "shifted_poisson": lambda m, s: stats.poisson(m, loc=1),
    "negative_binomial": lambda m, s: stats.nbinom(s, s / (s + m), loc=1),
    "log_normal": lambda m, s: stats.lognorm(s, scale=m),
    "gamma": lambda m, s: stats.gamma(s, scale=m / s),
}


def test_every_family_has_a_case():
    assert set(CASES) == set(FAMILIES)


@pytest.mark.parametrize("word", CASES)
@pytest.mark.parametrize(("location", "shape"), [(4.0, 1.7), (12.0, 0.6), (2.5, 4.0)])
def test_chances_are_those_of_scipy(word, location, shape):
    own = CASES[word](location, shape)
    chances = duration_family(word).chances(LONGEST, np.log(location), np.log(shape), NUMPY)
    # Rounded up to rows, a time lasts more than d rows if it is longer than d.
    longer, reach = own.sf(D), own.sf(D - 1)
    np.testing.assert_allclose(np.exp(chances.reach), reach, rtol=1e-6, atol=1e-8)
    shown = reach > 1e-4
    np.testing.assert_allclose(
        np.exp(chances.leave)[shown], ((reach - longer) / reach)[shown], rtol=1e-5
    )
    np.testing.assert_allclose(np.exp(chances.leave) + np.exp(chances.stay), 1.0, rtol=1e-9)


@pytest.mark.parametrize("word", CASES)
def test_numpy_and_jax_agree_and_nothing_is_infinite_far_out(word):
    @in_float64
    def found(maths):
        eta = maths.xp.array([[-9.0, -1.0, 2.0, 6.0]])
        parts = [
            duration_family(word).chances(LONGEST, eta, maths.xp.full_like(eta, s), maths)
            for s in (duration_family(word).limits if duration_family(word).shape else (0.0,))
        ]
        return [part for chances in parts for part in (*chances, *chances.phase(maths))]

    with np.errstate(all="raise", under="ignore"):
        plain = found(NUMPY)
    compiled = in_float64(jax.jit(lambda: found.__wrapped__(JAX)))()
    for one, other in zip(plain, compiled, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("word", CASES)
@pytest.mark.parametrize("eta", [-1e75, 1e75])
def test_locations_that_no_data_have_are_numbers_all_the_same(word, eta):
    family, one = duration_family(word), np.ones((1, 1))
    with np.errstate(all="raise", under="ignore"):
        for shape in (-1e75, 0.0, 1e75) if family.shape else (0.0,):
            chances = family.chances(LONGEST, eta * one, shape * one, NUMPY)
            assert (np.exp(chances.leave) <= 1).all()
            assert (np.exp(chances.stay) <= 1).all()


@pytest.mark.parametrize("word", CASES)
def test_derivatives(word):
    family = duration_family(word)

    @in_float64
    def check():
        rng = np.random.default_rng(0)
        counts = rng.random((3, 12))

        at = np.array([1.1, 0.4])

        def of(maths, place):
            chances = family.chances(12, place[0], place[1], maths)
            parts = (chances.phase(maths)[0], chances.leave, chances.stay)
            return sum((own * part).sum() for own, part in zip(counts, parts, strict=True))

        f = partial(of, JAX)
        slope, bend = jax.jit(lambda x: (jax.grad(f)(x), jax.hessian(f)(x)))(at)
        step = 1e-4 * np.eye(2)
        for i, j in product(range(2), repeat=2):
            signs = [
                (a, b, of(NUMPY, at + a * step[i] + b * step[j])) for a in (1, -1) for b in (1, -1)
            ]
            turn = sum(a * b * value for a, b, value in signs) / 4e-8
            assert bend[i, j] == pytest.approx(turn, rel=1e-5, abs=1e-5)
            near = (of(NUMPY, at + step[i]) - of(NUMPY, at - step[i])) / 2e-4
            assert slope[i] == pytest.approx(near, rel=1e-6, abs=1e-6)

    check()


def test_the_phase_of_a_row_is_where_long_sequences_are():
    """Drawn stays one after the other: the share of rows that are the u-th of theirs."""
    rng = np.random.default_rng(1)
    chances = duration_family("negative_binomial").chances(6, np.log(3.0), np.log(2.0), NUMPY)
    leave, phase = np.exp(chances.leave), np.exp(chances.phase(NUMPY)[0])
    u, seen = 0, np.zeros(6)
    for ends in rng.random(60_000):
        seen[u] += 1
        u = 0 if ends < leave[u] else min(u + 1, 5)
    np.testing.assert_allclose(seen / seen.sum(), phase, atol=0.01)
    stay = Stay(leave[None, None], np.exp(chances.reach)[None, None], phase[None, None], np.ones(1))
    lengths = stay.lengths(4000)[0, 0]
    assert lengths.sum() == pytest.approx(1.0, abs=1e-9)
    assert (lengths * np.arange(1, 4001)).sum() == pytest.approx(
        np.exp(chances.phase(NUMPY)[1]), rel=1e-9
    )


@pytest.mark.parametrize("phased", [True, False])
def test_free_lengths_are_the_best_ones(phased):
    rng = np.random.default_rng(2)
    n = 5
    phase = rng.random(n) if phased else np.eye(n)[0] * 2.0
    ended = np.array([2.0, 3.0, 0.0, 3.0, 0.5])
    reached = np.zeros(n)
    stayed = np.zeros(n)
    for u in range(n):  # some of what reaches a row is cut off there
        reached[u] = phase[u] + (ended.sum() if u == 0 else stayed[u - 1])
        stayed[u] = max(0.0, 0.9 * (reached[u] - ended[u])) if u < n - 1 else 0.0
    assert (reached >= ended + stayed).all()
    counts = free_durations.LengthCounts(phase, ended, stayed)

    def height(chance):
        reach = np.maximum(np.cumsum(chance[::-1])[::-1], 1e-300)
        ahead = np.append(reach[1:], 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.nansum(np.where(ended > 0, ended * np.log(chance / reach), 0.0))
            own += np.nansum(np.where(stayed > 0, stayed * np.log(ahead / reach), 0.0))
        return own + phased * (phase * np.log(reach / reach.sum())).sum()

    def of(x):
        chance = np.exp(np.append(0.0, x))
        return -height(chance / chance.sum())

    chance = np.full(n, 1 / n)
    for _ in range(40):
        chance = free_durations._best(chance, counts, phased, True)
    best = optimize.minimize(of, np.zeros(n - 1), method="Nelder-Mead", options={"maxiter": 20_000})
    assert height(chance) >= -best.fun - 1e-6

    block = free_durations.FreeLengths(phased, True)
    at = rng.dirichlet(np.ones(n))
    sums = free_durations.LengthCounts(*(part[:, None] for part in counts))
    slope = block.slopes({"duration": at[None]}, sums)["duration"][0]
    for j in range(n):
        unit = 1e-6 * (np.arange(n) == j)
        # As a function of all five numbers, which need not add up to one.
        near = (height(at + unit) - height(at - unit)) / 2e-6
        assert slope[j] == pytest.approx(near, abs=1e-4)


def test_what_is_no_duration_is_refused():
    wrong = [
        ({"family": "poison"}, "shifted_poisson"),
        ({"family": {0: "gamma", 2: "gamma"}}, "states"),
        ({"family": "gamma", "formula": "y ~ x"}, "one-sided"),
        ({"family": "gamma", "max": 0}, "max"),
        ({"family": "gamma", "max": 10**9}, "at most 10,000"),
        ({"family": "gamma", "cut": "middle"}, "cut"),
        ({"family": "free", "formula": "~ x"}, "free"),
    ]
    for given, words in wrong:
        with pytest.raises(avem.ModelError, match=words):
            avem.Duration(**given)
    with pytest.raises(avem.ModelError, match="3 families for 2"):
        avem.MixedHMM("y ~ 1", 2, duration=["gamma"] * 3)
    with pytest.raises(avem.ModelError, match="at least 2 states"):
        avem.MixedHMM("y ~ 1", 1, duration="gamma")
    with pytest.raises(avem.ModelError, match="Give covariates and effects to the duration"):
        avem.MixedHMM("y ~ 1", 2, duration="gamma", transition="~ x")
    with pytest.raises(avem.ModelError, match="without duration="):
        avem.MixedHMM("y ~ 1", 2, duration="gamma", initial="stationary")
    with pytest.raises(avem.ModelError, match="word"):
        avem.MixedHMM("y ~ 1", 2, duration=3)
    with pytest.raises(avem.ModelError, match="Rename"):
        avem.MixedHMM("duration ~ 1", 2, duration="gamma")


def test_a_duration_goes_into_json_and_back():
    for own in (
        avem.Duration(),
        avem.Duration("gamma", "~ x + (1 | who)", max=9, cut="end", effects_by_state=True),
        avem.Duration(["gamma", "geometric"], cut=False),
        avem.Duration({1: "gamma", 0: "geometric"}),
    ):
        assert duration_in(duration_out(own)) == own
        assert eval(repr(own), {"Duration": avem.Duration}) == own
    named = avem.MixedHMM(
        "y ~ 1", 2, duration={"b": "gamma", "a": "geometric"}, state_names=["a", "b"]
    )
    assert named.spec.duration == avem.Duration(["geometric", "gamma"])
