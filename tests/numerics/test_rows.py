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


@pytest.fixture(params=["one thread", "several threads"])
def threads(request, short, monkeypatch):
    if request.param == "several threads":
        monkeypatch.setattr(rows, "_MANY", 200)
        monkeypatch.setattr(rows, "_WIDE", 90)


@pytest.mark.parametrize("order", ["sorted", "unsorted", "with gaps"])
def test_sums_by_owner_are_numpys(threads, order):
    rng = np.random.default_rng(2)
    owner = np.sort(rng.integers(0, 40, 1037))
    if order == "unsorted":
        owner = rng.permutation(owner)
    if order == "with gaps":
        owner = 3 * owner + (owner > 20) * 200
    n = int(owner.max()) + 5
    values, mask = rng.standard_normal(1037), rng.random(1037) < 0.3
    found = rows.sum_by(owner, lambda at: values[at], n)
    np.testing.assert_allclose(found, np.bincount(owner, values, n), rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(rows.count_by(owner, mask, n), np.bincount(owner, mask, n))
    np.testing.assert_array_equal(rows.count_rows(owner, n), np.bincount(owner, minlength=n))
    assert rows.count_by(owner, mask, n).dtype == np.int64


def test_a_sum_does_not_depend_on_who_else_is_there(threads):
    owner = np.repeat(np.arange(60), 23)
    values = np.random.default_rng(3).standard_normal(len(owner))
    found = rows.sum_by(owner, lambda at: values[at], 60)
    for first in (7, 31):
        own = owner[23 * first :] - first
        part = rows.sum_by(own, lambda at, k=23 * first: values[k:][at], 60 - first)
        np.testing.assert_array_equal(part, found[first:])


@pytest.mark.parametrize("n", [0, 1, 2, 1037])
def test_other_passes_are_numpys(threads, n):
    rng = np.random.default_rng(4)
    values = rng.standard_normal((n, 3))
    values[rng.random((n, 3)) < 0.2] = np.nan
    np.testing.assert_array_equal(rows.seen(values), ~np.isnan(values))
    assert rows.no_nan(values[:, 0]) == (not np.isnan(values[:, 0]).any())
    np.testing.assert_array_equal(
        rows.side_by_side([values[:, :1], values]), values[:, [0, 0, 1, 2]]
    )
    some = rows.any_seen(values, [0, 2])
    np.testing.assert_array_equal(some, (~np.isnan(values[:, [0, 2]])).any(1))
    first = np.unique(np.concatenate([[0], rng.integers(0, max(n, 1), 50)]))[: max(n, 1)]
    if n:
        own = rng.integers(0, 9, len(first))
        wanted = np.repeat(own, np.diff(first, append=n))
        np.testing.assert_array_equal(rows.repeated(own, first, n), wanted)
        whole = np.nan_to_num(values)
        np.testing.assert_allclose(rows.means(whole), whole.mean(0), rtol=1e-12)
        np.testing.assert_allclose(rows.means(whole, some), whole[some].mean(0), rtol=1e-12)
    if n > 1:
        assert rows.bounds(values[:, 0]) == (np.nanmin(values[:, 0]), np.nanmax(values[:, 0]))


def test_whether_rows_rise_is_seen_wherever_they_fall(threads):
    values = np.repeat(np.arange(400), 2)
    assert rows.rising(values)
    assert rows.rising(values[:1])
    assert rows.rising(values[:0])
    for place in (1, 99, 100, 101, 450, 799):
        fallen = values.copy()
        fallen[place] = fallen[place - 1] - 1
        assert not rows.rising(fallen), place


def test_threads_know_which_errors_are_none(threads):
    values = np.full(1037, 1e300)
    with np.errstate(over="ignore"):
        found = rows.filled(np.empty(1037), lambda at: values[at] * values[at])
    assert np.isinf(found).all()


def test_what_goes_wrong_in_a_thread_is_told(threads):
    def broken(at):
        if at.start <= 500 < at.stop:
            raise ValueError("row 500")

    with pytest.raises(ValueError, match="row 500"):
        rows.each(broken, 1037)
