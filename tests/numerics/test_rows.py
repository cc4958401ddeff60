"""Passes over many rows, a stretch at a time, and order statistics by way of a sample."""

import numpy as np
import pytest

from avem.components.scaling import spread_of, summary
from avem.numerics import order_statistics, rows
from avem.numerics.order_statistics import quantiles_of

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@pytest.fixture
def short(monkeypatch):
    """Many stretches of a few rows, and a sample of a few values."""
    monkeypatch.setattr(rows, "_STRETCH", 100)
    monkeypatch.setattr(order_statistics, "_SAMPLE", 64)


def values_of(kind, rng, n):
    """Numbers of which some are hard to find from a sample."""
    if kind == "ties":
        return rng.integers(0, 4, n).astype(float)
    if kind == "periodic":  # the sample sees one of the four values
        return np.tile([0.0, 1.0, 2.0, 50.0], n // 4 + 1)[:n]
    if kind == "constant":
        return np.full(n, 3.25)
    if kind == "sorted":
        return np.sort(rng.standard_cauchy(n))
    return rng.standard_normal(n) * np.exp(10 * rng.standard_normal(n))


@pytest.mark.parametrize("kind", ["any", "ties", "periodic", "constant", "sorted"])
@pytest.mark.parametrize("n", [1, 2, 511, 512, 2048, 5003])
def test_quantiles_are_numpys(short, kind, n):
    values = values_of(kind, np.random.default_rng(n), n)
    np.testing.assert_array_equal(quantiles_of(values, SHARES), np.quantile(values, SHARES))


def test_a_sample_leaves_little_to_sort(short, monkeypatch):
    """Of 100,000 numbers a few per cent are looked at closely."""
    sizes, partition = [], np.partition
    monkeypatch.setattr(np, "partition", lambda a, k: sizes.append(len(a)) or partition(a, k))
    monkeypatch.setattr(order_statistics, "_SAMPLE", 4096)
    values = np.random.default_rng(0).standard_normal(100_000)
    assert quantiles_of(values, [0.25, 0.5])[1] == pytest.approx(np.median(values), rel=1e-12)
    assert 0 < sum(sizes) < 25_000


@pytest.mark.parametrize("missing", [False, True])
def test_a_summary_is_what_numpy_says(short, missing):
    values = 1e60 * np.random.default_rng(1).normal(5, 2, 1037)
    if missing:
        values[::7] = np.nan
    seen, found = values[~np.isnan(values)], summary(values)
    high, low = np.quantile(seen, [0.75, 0.25])
    assert found.spread == pytest.approx(spread_of(seen.std(), high, low), rel=1e-9)
    assert found.median == pytest.approx(np.median(seen), rel=1e-15)
    assert found.largest == np.abs(seen).max()


def test_a_summary_of_nothing_and_of_a_constant():
    assert summary(np.full(3, np.nan))[::2] == (1.0, 0.0)
    assert summary(np.full(3, -4.0)) == (1.0, -4.0, 4.0)


def test_passes_over_stretches_are_those_over_all(short):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1234, 3)) * [1.0, 1e8, 1e-8]
    x[rng.random(x.shape) < 0.3] = np.nan
    assert rows.largest(x[:, 1]) == np.nanmax(np.abs(x[:, 1]))
    assert not rows.no_nan(x)
    assert rows.no_nan(np.nan_to_num(x))
    np.testing.assert_array_equal(rows.any_seen(x, [0, 2]), ~np.isnan(x[:, [0, 2]]).all(1))
    assert not rows.any_seen(x, []).any()
    for at in ([], [1], [1, 2], [2, 0]):
        np.testing.assert_array_equal(rows.take_columns(x, at), x[:, at])
    assert np.shares_memory(rows.take_columns(x, [1, 2]), x)
    owner, seen = rng.integers(0, 9, len(x)), ~np.isnan(x[:, 0])
    counts = [(seen & (owner == i)).sum() for i in range(10)]
    np.testing.assert_array_equal(rows.count_by(owner, seen, 10), counts)


def test_a_triangle_by_stretches_is_that_of_all_rows(short):
    x = np.random.default_rng(3).standard_normal((1234, 4))
    found = rows.triangle(x, np.array([1.0, 2.0, 3.0, 4.0]))
    x = x / [1.0, 2.0, 3.0, 4.0]
    np.testing.assert_allclose(found.T @ found, x.T @ x, rtol=1e-12, atol=1e-12 * len(x))
    assert rows.triangle(x[:2], np.ones(4)).shape == (2, 4)
