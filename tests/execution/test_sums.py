"""Sums by a tree: the same to the last bit, whoever has which shards."""

import jax
import numpy as np
import pytest

from avem.execution.sums import add_up, added_there, branches, joined, total


def parts_of(n, seed=0):
    """Numbers of very different sizes, whose sum depends on the order."""
    rng = np.random.default_rng(seed)
    return [
        {"a": rng.standard_normal((2, 3)) * 10.0 ** rng.integers(-8, 9), "n": np.int64(i)}
        for i in range(n)
    ]


def by_hand(values):
    """Whole trees of halves, the largest first, as long as something is left."""

    def tree(some):
        half = len(some) // 2
        return tree(some[:half]) + tree(some[half:]) if half else some[0]

    found, rest = None, values
    while rest:
        size = 1 << (len(rest).bit_length() - 1)
        found = tree(rest[:size]) if found is None else found + tree(rest[:size])
        rest = rest[size:]
    return found


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 13, 64, 100])
def test_neighbours_are_added_up_first(n):
    parts = parts_of(n)
    found = add_up(parts)
    np.testing.assert_array_equal(found["a"], by_hand([part["a"] for part in parts]))
    assert found["n"] == n * (n - 1) // 2
    exact = np.sum([part["a"].astype(np.longdouble) for part in parts], axis=0)
    size = np.max([np.abs(part["a"]) for part in parts], axis=0)
    np.testing.assert_array_less(np.abs(found["a"] - exact), 1e-14 * n * size + 1e-300)


def test_the_order_of_other_sums_is_another():
    """So that the tests above and below can fail."""
    parts = parts_of(100)
    assert (add_up(parts)["a"] != add_up(parts[::-1])["a"]).any()


@pytest.mark.parametrize("n", [1, 2, 3, 5, 13, 100])
@pytest.mark.parametrize("n_workers", [1, 2, 3, 7])
@pytest.mark.parametrize("scattered", [False, True], ids=["neighbours", "scattered"])
def test_whoever_adds_up_which_part_of_it(n, n_workers, scattered):
    parts, rng = parts_of(n), np.random.default_rng(1)
    owner = rng.integers(n_workers, size=n) if scattered else np.arange(n) * n_workers // n
    told = []
    for worker in range(n_workers):
        own = np.flatnonzero(owner == worker)
        told.append(branches(own, [parts[place] for place in own]))
    if not scattered:
        assert max(map(len, told)) <= 2 * n.bit_length()
    rng.shuffle(told)
    # Some are joined on the way, as where there are many workers.
    found = total(joined([joined(told[: n_workers // 2]), joined(told[n_workers // 2 :])]))
    np.testing.assert_array_equal(found["a"], add_up(parts)["a"])
    assert found["n"] == add_up(parts)["n"]


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_where_the_shards_are_the_sum_is_the_same(n):
    parts = parts_of(n)
    with jax.enable_x64(True):
        found = jax.tree.map(np.asarray, added_there(tuple(parts)))
    np.testing.assert_array_equal(found["a"], add_up(parts)["a"])
    assert found["n"] == add_up(parts)["n"]
