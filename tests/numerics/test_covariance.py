"""Covariances that stay away from singular."""

import numpy as np
import pytest

from avem.numerics.covariance import factorable, floor_eigenvalues


def test_what_rounding_made_uneven_is_even_again():
    """Two columns with one value far out: what tells them apart is less than the rounding of it."""
    uneven = np.array([[8.00610747e21, 8.0061053091e21], [8.0061054587e21, 8.0061033092e21]])
    found, _ = floor_eigenvalues(uneven, np.ones(2))
    np.testing.assert_array_equal(found, found.T)
    np.linalg.cholesky(found)
    np.testing.assert_allclose(found, uneven, rtol=1e-7)


def test_directions_that_are_too_small_are_raised():
    rng = np.random.default_rng(0)
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    unit = np.array([1.0, 1e3, 1e-4])
    low = (turn * np.array([1e-9, 0.5, 4.0])) @ turn.T * np.outer(unit, unit)
    floor = 0.01 * unit**2
    found, raised = floor_eigenvalues(low, floor)
    values = np.linalg.eigvalsh(found / np.outer(unit, unit))
    np.testing.assert_allclose(values, [0.01, 0.5, 4.0], rtol=1e-9)
    np.testing.assert_array_equal(raised, turn[:, 0] ** 2 > 0.1)
    same, none = floor_eigenvalues(found * 1.01, floor)
    np.testing.assert_array_equal(same, found * 1.01)
    assert not none.any()


def test_what_rounding_has_made_singular_can_be_factored():
    rng = np.random.default_rng(0)
    sound = np.stack([np.cov(rng.standard_normal((3, 9))) for _ in range(4)], -1)
    far = np.array([1e8, 1.0, 1e-6])[:, None, None] * np.array([1e8, 1.0, 1e-6])[:, None]
    alone = far * np.ones((3, 3, 1))
    found = factorable(np.concatenate([far * sound, alone], -1))
    np.testing.assert_array_equal(found[..., :4], far * sound)
    np.testing.assert_allclose(found[..., 4], alone[..., 0], rtol=1e-11)
    np.linalg.cholesky(np.moveaxis(found, -1, 0))
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(alone[..., 0])
    one = np.zeros((1, 1, 2))
    assert factorable(one) is one
