"""Rows ahead: what comes from a frame, what from a dict, and what is asked for."""

import numpy as np
import pandas as pd
import pytest

from avem.data import Panel
from avem.data.ahead import look_ahead
from avem.errors import DataError

ROWS = pd.DataFrame(
    {
        "who": [1, 1, 1, 1, 2, 2],
        "day": [1, 1, 2, 2, 1, 1],
        "t": [1, 2, 1, 2, 1, 2],
        "y": np.arange(6.0),
        "x": np.linspace(0, 1, 6),
        "dose": [0.0, 1, 0, 1, 0, 1],
        "group": ["a", "a", "a", "a", "b", "b"],
    }
).sample(frac=1.0, random_state=0)
PANEL = Panel.from_frame(ROWS, "who", "t", "day")
COVARIATES = ["x", "dose", "group"]


def ahead(future, panel=PANEL, horizon=2, covariates=COVARIATES):
    return look_ahead(panel, horizon, ["y"], covariates, future)


def test_a_dict_is_the_frame_with_its_values_in_every_sequence():
    ends = ROWS.drop_duplicates(["who", "day"]).drop(columns=["y", "x", "dose"])
    future = pd.concat([ends.assign(t=2 + s, x=0.5, dose=10.0 * s) for s in (1, 2)])
    by_dict, by_frame = ahead({"x": 0.5, "dose": [10.0, 20.0]}), ahead(future)
    pd.testing.assert_frame_equal(by_dict.keys, by_frame.keys)
    pd.testing.assert_frame_equal(by_dict.panel.table, by_frame.panel.table)
    assert by_dict.rows.tolist() == by_frame.rows.tolist()
    new = by_dict.panel.table.iloc[by_dict.rows]
    assert new["group"].tolist() == new["who"].map({1: "a", 2: "b"}).tolist()
    assert new["dose"].tolist() == [10.0, 20.0] * 3


def test_of_single_rows_nothing_goes_on_by_itself():
    single = Panel.from_frame(ROWS[ROWS["t"] == 1].drop_duplicates("who"), "who", "t", "day")
    with pytest.raises(DataError, match="needs 'group' at every step ahead, where future lacks"):
        ahead({"x": 0.5, "dose": 0}, single)


@pytest.mark.parametrize(
    ("future", "words"),
    [
        (None, "needs 'x', 'dose', 'group' at.*Pass future=.*who, day, t, x, dose, group and 2"),
        ({"x": 1}, "needs 'dose' at every step ahead, where future lacks it"),
        ({"X": 1}, "future has 'X'; what this model needs ahead is 'x', 'dose', 'group'"),
        ({"x": [1, 2, 3]}, "future has 3 values of 'x'; one is wanted, or one for each of the 2"),
        (ROWS[ROWS["who"] == 1], "future has 0 rows for who 2, day 1; 2 are wanted"),
        (ROWS, "future begins at 1 for who ., day 1, whose data end at 2"),
    ],
)
def test_what_is_lacking_is_said(future, words):
    with pytest.raises(DataError, match=words):
        ahead(future)
