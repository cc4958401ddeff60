"""Chains over intervals: probabilities and their slopes in the rates, by both engines."""

import jax
import numpy as np
import pytest
from scipy.linalg import expm, expm_frechet

from avem.kernels import rates
from avem.kernels.dispatch import engine
from tests.chosen import chosen


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def every_move(n_states):
    return tuple((k, m) for k in range(n_states) for m in range(n_states) if k != m)


def ways():
    """The engine, where there is one, and the definition."""
    found = {"definition": rates.definition}
    if engine("rates", "float64", states=3):
        found["engine"] = rates.over_intervals
    return found


def computed(way, rate, pairs, n_states, slopes=True):
    run = jax.jit(lambda rate: ways()[way](rate, pairs, n_states, slopes))
    return jax.tree.map(np.asarray, run(rate))


def generator(rate, pairs, n_states):
    found = np.zeros((n_states, n_states))
    for (k, m), q in zip(pairs, rate, strict=True):
        found[k, m] += q
        found[k, k] -= q
    return found


PARTS = {2: ((0, 1), (1, 0)), 3: ((0, 1), (0, 2), (1, 0), (1, 2)), 5: every_move(5)}


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("n_states", chosen((2, 3, 5), (3,)))
def test_they_are_those_of_scipy(way, n_states):
    pairs = PARTS[n_states]
    rng = np.random.default_rng(n_states)
    rate = rng.gamma(0.5, 1.0, (len(pairs), 13)) * np.geomspace(1e-4, 30.0, 13)
    rate[0, 3] = 0.0
    found = computed(way, rate, pairs, n_states)
    for i in range(13):
        q = generator(rate[:, i], pairs, n_states)
        np.testing.assert_allclose(found.chance[:, :, i], expm(q), rtol=1e-11, atol=1e-14)
        for m, one in enumerate(np.eye(len(pairs))):
            along = generator(one * rate[:, i], pairs, n_states)
            slope = expm_frechet(q, along, compute_expm=False)
            np.testing.assert_allclose(found.slope[m, :, :, i], slope, rtol=1e-9, atol=1e-13)
    plain = computed(way, rate, pairs, n_states, slopes=False)
    assert plain.slope.shape == (0, n_states, n_states, 13)
    np.testing.assert_allclose(plain.chance, found.chance, rtol=1e-14)


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("fast", [1e3, 1e9, 1e40])
def test_fast_moves_end_at_their_shares(way, fast):
    """Two states that change places all the time, and a third that is seldom entered."""
    pairs, slow = ((0, 1), (1, 0), (1, 2)), 1e-3
    rate = np.array([[fast], [3.0 * fast], [slow]])
    found = computed(way, rate, pairs, 3)
    left = -np.expm1(-slow / 4.0)
    share = np.array([0.75, 0.25])
    near = pytest.approx(left, rel=1e-2 if fast < 1e9 else 1e-6)
    if fast < 1e30:  # beyond the limit of speed, where rates are cut, slow ones are lost
        assert found.chance[0, 2, 0] == near
        np.testing.assert_allclose(found.chance[0, :2, 0], share * (1 - left), rtol=1e-2)
    np.testing.assert_allclose(found.chance.sum(1), 1.0, rtol=1e-14)
    assert np.isfinite(found.slope).all()


def test_no_move_at_all_and_intervals_of_nothing():
    for way in ways():
        still = computed(way, np.zeros((2, 3)), PARTS[2], 2)
        np.testing.assert_array_equal(still.chance, np.eye(2)[:, :, None] + np.zeros(3))
        np.testing.assert_array_equal(still.slope, 0.0)


def test_what_is_no_number_stays_in_its_interval():
    for way in ways():
        rate = np.full((2, 9), 0.5)
        rate[1, 4] = np.nan
        found = computed(way, rate, PARTS[2], 2)
        broken = np.isnan(found.chance).any((0, 1))
        np.testing.assert_array_equal(broken, np.arange(9) == 4)
