"""Data are drawn from covariates that are there, or not at all."""

import numpy as np
import pytest

from avem.errors import DataError
from tests.fits.kinds import KINDS, fit_of, rows

HMM, TRUTH = KINDS["moving"]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_missing_covariate_is_named(value):
    hmm, params = KINDS["counts"]
    gap = rows().assign(x=lambda f: f["x"].mask(f.index == 5, value))
    with pytest.raises(DataError, match=r"covariate 'x' is (missing|infinite) at row 5,"):
        hmm.simulate(params, data=gap, subject="who", time="t", seed=1)
    with pytest.raises(DataError, match="at row 5,"):
        fit_of("counts").simulate(gap, seed=1)


def test_where_nothing_is_drawn_it_may_be_missing():
    fit = fit_of("counts")
    table = fit.panel.table
    gap = table.assign(x=table["x"].mask(table["n"].isna()))
    assert gap["x"].isna().any()
    found, whole = (fit.simulate(data, seed=1) for data in (gap, table))
    assert found.frame["n"].isna().equals(table["n"].isna())
    np.testing.assert_array_equal(found.states, whole.states)


def test_moves_read_it_from_the_second_row_on():
    first = rows().assign(x=lambda f: f["x"].mask(f["t"] == 0))
    later = rows().assign(x=lambda f: f["x"].mask(f["t"] == 3))
    drawn = HMM.simulate(TRUTH, data=later.assign(x=0.5), subject="who", time="t", seed=1)
    assert len(drawn.frame) == len(later)
    with pytest.raises(DataError, match="covariate 'x' is missing"):
        HMM.simulate(TRUTH, data=later, subject="who", time="t", seed=1)
    with pytest.raises(DataError, match="covariate 'x' is missing"):
        HMM.simulate(TRUTH, data=first, subject="who", time="t", seed=1)  # a stationary start
