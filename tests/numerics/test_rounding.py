"""Sums that do not depend on the order of rows, once they are rounded."""

import numpy as np
import pandas as pd
import pytest

import avem
from avem.components.scaling import size, summary
from avem.numerics.rounding import on_grid
from avem.numerics.rows import largest


@pytest.mark.parametrize("unit", [1e-200, 1e-9, 1.0, 3e7, 1e75])
def test_sums_in_another_order_are_the_same(unit):
    """Two hundred orders of the rows, whose plain sums are not all equal."""
    rng = np.random.default_rng(0)
    values = unit * (5.0 + rng.standard_normal(999))
    orders = [rng.permutation(999) for _ in range(200)]
    assert len({float(values[order].mean()) for order in orders}) > 1
    measures = (lambda x: summary(x).spread, size, lambda x: float(on_grid(x.mean(), largest(x))))
    for measure in measures:
        (found,) = {measure(values[order]) for order in orders}
        assert found == pytest.approx(measure(values), rel=1e-12)
        assert found > 0


def test_little_is_lost_and_whole_numbers_stay_whole():
    rng = np.random.default_rng(1)
    values = np.exp(rng.uniform(-50, 50, 1000))
    assert np.abs(on_grid(values, values) / values - 1).max() < 2.0**-29
    np.testing.assert_array_equal(on_grid(np.arange(-500.0, 500.0), 500.0), np.arange(-500, 500))
    np.testing.assert_array_equal(on_grid(np.array([0.0, 7.25, np.nan]), 0.0), [0.0, 7.25, np.nan])
    assert largest(np.array([np.nan, -3.0, 2.0])) == 3.0
    assert largest(np.array([np.nan])) == largest(np.zeros(0)) == 0.0


def test_units_of_a_fit_do_not_depend_on_the_order_of_rows():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"who": np.repeat(np.arange(20), 10), "time": np.tile(np.arange(10), 20)})
    frame["y"], frame["x"] = rng.normal(3.0, 2.0, (2, 200))
    model = avem.MixedHMM("y ~ scale(x) + I(x ** 2) + (1 | who)", 2, transition="~ x")
    found = set()
    for seed in range(5):
        mixed = frame.sample(frac=1.0, random_state=seed)
        # Subjects are numbered by first appearance, which stays as it is.
        mixed = mixed.sort_values("who", kind="stable")
        panel = avem.Panel.from_frame(mixed, "who", time="time")
        learned, _ = model._model(panel, plain=False)
        units = learned.scaling.to_json(), learned.designs.parts[0].state["moments"]
        found.add(repr(units))
    assert len(found) == 1
