"""Panels: numbering against a slow pure-Python sort, round trips to the caller, refusals."""

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avem.data import Panel
from avem.errors import DataError

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def slow_numbering(rows: list[tuple]) -> dict[str, list]:
    """Number (subject, sequence, time) rows with plain loops."""
    subjects: list = []
    for who, _, _ in rows:
        if who not in subjects:
            subjects.append(who)
    lanes = []
    for who in subjects:
        for other, session, _ in rows:
            if other == who and (who, session) not in lanes:
                lanes.append((who, session))
    row_lane = [lanes.index((who, session)) for who, session, _ in rows]
    row_step = []
    for i in range(len(rows)):
        mates = [j for j in range(len(rows)) if row_lane[j] == row_lane[i]]
        row_step.append(sorted(mates, key=lambda j: rows[j][2]).index(i))
    return {
        "subjects": subjects,
        "row_subject": [subjects.index(who) for who, _, _ in rows],
        "row_lane": row_lane,
        "row_step": row_step,
        "lane_subject": [subjects.index(who) for who, _ in lanes],
        "lane_length": [row_lane.count(lane) for lane in range(len(lanes))],
    }


cells = st.tuples(st.sampled_from(["b", "a", "c"]), st.integers(0, 2), st.integers(-4, 4))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(cells, min_size=1, max_size=25, unique=True),
    kind=st.sampled_from(sorted(KINDS)),
    when=st.sampled_from([int, float, "date", "text"]),
)
def test_numbering_matches_a_slow_sort_and_like_keeps_the_callers_order(rows, kind, when):
    times = [row[2] for row in rows]
    if when == "date":
        times = [pd.Timestamp("2024-01-10") + pd.Timedelta(days=t) for t in times]
    elif when == "text":
        times = [f"w{t + 4:02}" for t in times]
    else:
        times = [when(t) for t in times]
    data = {"who": [r[0] for r in rows], "session": [r[1] for r in rows], "t": times}
    panel = Panel.from_frame(KINDS[kind](data), "who", time="t", sequence="session")
    for name, wanted in slow_numbering(rows).items():
        assert getattr(panel, name).tolist() == wanted, name
    assert (panel.n_subjects, panel.n_rows) == (len(panel.subjects), len(rows))
    # Reading back each row's own label shows that nothing was reordered on the way.
    back = panel.like(panel.subjects[panel.row_subject], "who")
    assert (back.to_pylist() if kind == "pyarrow" else back.to_list()) == data["who"]
    assert panel.table["who"].tolist() == data["who"]


def test_results_come_back_as_the_callers_kind():
    data = {"s": [2, 1, 2], "y": [0.5, None, 1.5]}
    values = np.array([3.0, 4.0, 5.0])

    frame = pd.DataFrame(data, index=["p", "q", "r"])
    panel = Panel.from_frame(frame, "s")
    pd.testing.assert_series_equal(
        panel.like(values, "v"), pd.Series(values, ["p", "q", "r"], name="v")
    )
    assert panel.frame_like({"v": values, "w": values}).index.tolist() == ["p", "q", "r"]

    panel = Panel.from_frame(pl.DataFrame(data), "s")
    assert panel.like(values, "v").equals(pl.Series("v", values))
    assert panel.frame_like({"v": values}).equals(pl.DataFrame({"v": values}))

    panel = Panel.from_frame(pa.table(data), "s")
    assert isinstance(panel.like(values, "v"), pa.ChunkedArray)
    assert panel.frame_like({"v": values}).equals(pa.table({"v": values}))

    panel = Panel.from_frame(nw.from_native(pl.DataFrame(data)), "s")
    assert isinstance(panel.like(values, "v"), nw.Series)
    assert isinstance(panel.frame_like({"v": values}), nw.DataFrame)
    with pytest.raises(DataError, match="3 rows"):
        panel.like(values[:2], "v")


def test_subject_labels_keep_their_type():
    assert Panel.from_frame(pd.DataFrame({"s": [7, 3, 7]}), "s").subjects.dtype == np.int64
    assert Panel.from_frame(pl.DataFrame({"s": [7, 3, 7]}), "s").subjects.tolist() == [7, 3]
    for dtype in (object, "string", "category", "str"):
        labels = Panel.from_frame(pd.DataFrame({"s": ["b", "a"]}, dtype=dtype), "s").subjects
        assert labels.tolist() == ["b", "a"]
        assert all(type(label) is str for label in labels)
    nullable = Panel.from_frame(pd.DataFrame({"s": pd.array([5, 4], dtype="Int64")}), "s")
    assert nullable.subjects.dtype == np.int64


def test_from_arrays_and_lengths_agree():
    first, second = np.arange(6.0).reshape(3, 2), np.array([[9.0, np.nan]])
    one = Panel.from_arrays([first, second])
    two = Panel.from_lengths(np.concatenate([first, second]), [3, 1])
    for panel in (one, two):
        assert panel.table.columns.tolist() == ["subject", "y1", "y2"]
        assert panel.subjects.tolist() == [0, 1]
        assert panel.row_step.tolist() == [0, 1, 2, 0]
        assert panel.lane_length.tolist() == [3, 1]
        assert isinstance(panel.like(np.zeros(4), "z"), pd.Series)
    assert Panel.from_arrays([[1, 2], [3]]).table["y1"].tolist() == [1, 2, 3]


def test_keep_drops_subjects_whose_sequences_are_all_short():
    frame = pd.DataFrame(
        {"s": ["a", "b", "b", "c", "c"], "k": [1, 1, 2, 1, 1], "y": range(5)}, index=list("vwxyz")
    )
    kept = Panel.from_frame(frame, "s", sequence="k").keep(min_times=2)
    assert kept.subjects.tolist() == ["c"]
    assert kept.like(np.zeros(2), "v").index.tolist() == ["y", "z"]
    assert Panel.from_frame(frame, "s").keep(2).subjects.tolist() == ["b", "c"]
    with pytest.raises(DataError, match="longest has 2"):
        Panel.from_frame(frame, "s").keep(3)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_fill_gaps_inserts_missing_rows(kind):
    data = {
        "s": ["b", "a", "b", "b"],
        "k": [1, 1, 2, 1],
        "t": [5, 0, 7, 2],
        "y": [2**53 + 1, 2, 3, 4],
        "flag": [True, False, True, True],
    }
    panel = Panel.from_frame(KINDS[kind](data), "s", time="t", sequence="k").fill_gaps()
    assert panel.table["s"].tolist() == ["b", "b", "b", "b", "b", "a"]
    assert panel.table["k"].tolist() == [1, 1, 1, 1, 2, 1]
    assert panel.table["t"].tolist() == [2, 3, 4, 5, 7, 0]
    assert panel.table["t"].dtype == np.int64
    y = panel.table["y"]
    assert y.isna().tolist() == [False, True, True, False, False, False]
    assert y[y.notna()].tolist() == [4, 2**53 + 1, 3, 2]
    assert panel.table["flag"][0] is np.True_ or panel.table["flag"][0] is True
    assert panel.lane_length.tolist() == [4, 1, 1]
    back = panel.like(np.zeros(6), "z")
    assert type(back) is type(Panel.from_frame(KINDS[kind](data), "s").like(np.zeros(4), "z"))
    if kind == "pandas":
        assert back.index.tolist() == list(range(6))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_inserted_rows_have_what_is_constant(kind):
    data = {
        "s": ["b", "a", "b", "b", "a"],
        "k": [1, 1, 2, 1, 1],
        "t": [5, 0, 7, 2, 2],
        "stress": [None, None, 0.5, 1.5, None],
        "group": ["x", "y", "x", "x", "y"],
        "sure": [True, False, False, True, False],
        "y": [1.0, 2.0, 3.0, 1.0, 2.0],
    }
    panel = Panel.from_frame(KINDS[kind](data), "s", time="t", sequence="k")
    table = panel.fill_gaps(constant=["stress", "group", "sure"]).table
    assert table["group"].tolist() == ["x"] * 5 + ["y"] * 3
    assert table["sure"].tolist() == [True] * 4 + [False] * 4
    stress = table["stress"].tolist()  # missing where it was, and where the sequence has none
    assert stress[:3] == [1.5, 1.5, 1.5]
    assert stress[4] == 0.5
    assert table["stress"].isna().tolist() == [False] * 3 + [True, False] + [True] * 3
    assert table["y"].isna().tolist() == [False, True, True, False, False, False, True, False]
    one = panel.fill_gaps(constant="group").table
    assert one["group"].tolist() == table["group"].tolist()
    assert one["stress"].isna().sum() == 6


def test_constant_columns_that_change_are_refused():
    frame = pd.DataFrame({"s": ["a", "b", "b"], "t": [1, 1, 3], "x": [1.5, 2.5, 3.5]})
    panel = Panel.from_frame(frame, "s", time="t")
    with pytest.raises(DataError, match=r"'x', which has several values .* 'b': 2\.5 and 3\.5"):
        panel.fill_gaps(constant=["x"])
    with pytest.raises(DataError, match="no column 'z'"):
        panel.fill_gaps(constant="z")


def test_fill_gaps_takes_decimal_steps_and_negative_times():
    frame = pd.DataFrame({"s": 0, "t": [0.3, -0.2, 0.1], "y": 1.0})
    filled = Panel.from_frame(frame, "s", time="t").fill_gaps(0.1)
    np.testing.assert_allclose(filled.table["t"], [-0.2, -0.1, 0, 0.1, 0.2, 0.3], atol=1e-12)
    assert filled.table["y"].isna().sum() == 3


def test_fill_gaps_refusals():
    frame = pd.DataFrame({"s": "a7", "t": [0, 1, 1000], "when": pd.date_range("2024", periods=3)})
    with pytest.raises(DataError, match="3 rows into 1001"):
        Panel.from_frame(frame, "s", time="t").fill_gaps()
    with pytest.raises(DataError, match=r"row 1: subject 'a7' starts at 0 and has a row at 1\."):
        Panel.from_frame(frame, "s", time="t").fill_gaps(500)
    with pytest.raises(DataError, match="needs numbers"):
        Panel.from_frame(frame, "s", time="when").fill_gaps()
    with pytest.raises(DataError, match="give time="):
        Panel.from_frame(frame, "s").fill_gaps()
    with pytest.raises(DataError, match="positive"):
        Panel.from_frame(frame, "s", time="t").fill_gaps(0)


def test_whole_times_are_exact_beyond_double_precision():
    start = 1_700_000_000_000_000_001  # nanoseconds
    frame = pd.DataFrame({"s": 0, "t": [start, start + 1, start + 3], "y": 1.0})
    panel = Panel.from_frame(frame, "s", time="t")
    assert panel.gaps() == (1, 1)
    assert panel.fill_gaps(1).table["t"].tolist() == [start + i for i in range(4)]


@pytest.mark.parametrize("times", [[0, 1, 2**63], [-(2**63), 0, 2**63 - 1]])
def test_times_too_far_apart_for_whole_numbers(times):
    panel = Panel.from_frame(pd.DataFrame({"s": 0, "t": times}), "s", time="t")
    assert panel.row_step.tolist() == [0, 1, 2]
    assert panel.gaps() == (0, 0)
    with pytest.raises(DataError, match="Count from the first"):
        panel.fill_gaps(1)


@pytest.mark.parametrize("times", [[0, 1, 2**61], [0.0, 1.0, 1e308], [-1e308, 0.0, 1e308]])
def test_times_too_far_apart_to_fill(times):
    panel = Panel.from_frame(pd.DataFrame({"s": "a7", "t": times}), "s", time="t")
    with pytest.raises(DataError, match=r"more than 20 times as many.*'a7'"):
        panel.fill_gaps(1)


def test_times_that_are_missing_everywhere():
    frame = pl.DataFrame({"s": [0, 0], "t": pl.Series([None, None], dtype=pl.String)})
    with pytest.raises(DataError, match="'t', the time, is missing at rows 0, 1"):
        Panel.from_frame(frame, "s", time="t")


def test_columns_with_several_levels_of_names():
    names = pd.MultiIndex.from_product([["s", "t"], ["mean"]])
    with pytest.raises(DataError, match=r"2 levels of names.*Join them"):
        Panel.from_frame(pd.DataFrame([[0, 1]], columns=names), "s")


def test_an_arrow_table_has_the_columns_that_it_shows():
    """Also where pandas wrote it, and would take some of them for its index."""
    frame = pd.DataFrame({"s": [0, 0], "t": [1, 0]}, index=pd.Index(["a", "b"], name="label"))
    panel = Panel.from_frame(pa.Table.from_pandas(frame), "s", time="t")
    assert panel.table.columns.tolist() == ["s", "t", "label"]
    indexed = pa.Table.from_pandas(frame.set_index("s"))
    assert Panel.from_frame(indexed, "s", time="t").row_step.tolist() == [1, 0]


def test_messages_quote_the_beginning_of_long_labels():
    frame = pd.DataFrame({"s": "x" * 5000, "t": [0, 0]})
    with pytest.raises(DataError, match="has two rows at time 0") as caught:
        Panel.from_frame(frame, "s", time="t")
    assert len(str(caught.value)) < 500


def test_a_null_character_in_a_name():
    with pytest.raises(DataError, match="null character"):
        Panel.from_frame(pl.DataFrame({"s": [0, 0], "\0": [1, 2]}), "s")


def test_columns_that_pandas_cannot_hold():
    frame = pl.DataFrame({"s": [0, 0], "x": [1, 2]}).with_columns(pl.col("x").cast(pl.Time))
    with pytest.raises(DataError, match="A polars DataFrame has a column that pandas cannot hold"):
        Panel.from_frame(frame, "s")


good = {"mouse": ["a7", "a7", "b"], "trial": [3.0, 4.0, 1.0], "day": [1.0, 1.0, 1.0]}


@pytest.mark.parametrize(
    ("change", "columns", "message"),
    [
        ({}, {"subject": "mouze"}, "no column 'mouze'.*Did you mean 'mouse'.*'trial'"),
        ({}, {"subject": "mouse", "time": "mouse"}, "must be different columns"),
        ({"mouse": ["a", None, "b"]}, {"subject": "mouse"}, "'mouse'.*missing at row 'q'"),
        ({"trial": [1, np.nan, np.nan]}, {"subject": "mouse", "time": "trial"}, "rows 'q', 'r'"),
        ({"trial": [1, np.inf, 2]}, {"subject": "mouse", "time": "trial"}, "infinite at row 'q'"),
        ({"day": [1, 2, None]}, {"subject": "mouse", "sequence": "day"}, "missing at row 'r'"),
        (
            {"trial": [3, 3, 3]},
            {"subject": "mouse", "time": "trial"},
            "subject 'a7' has two rows at time 3: give sequence=",
        ),
        ({"trial": [1, "x", 2]}, {"subject": "mouse", "time": "trial"}, "mixes types"),
        ({"trial": ["9", "10", "1"]}, {"subject": "mouse", "time": "trial"}, "numbers as text"),
    ],
)
def test_bad_frames_are_refused(change, columns, message):
    with pytest.raises(DataError, match=message):
        Panel.from_frame(pd.DataFrame({**good, **change}, index=list("pqr")), **columns)


def test_padded_numbers_as_text_sort_well():
    panel = Panel.from_frame(pd.DataFrame({"s": 0, "t": ["02", "10", "01"]}), "s", time="t")
    assert panel.row_step.tolist() == [1, 2, 0]


def test_many_repeats_are_counted():
    frame = pd.DataFrame({"s": np.repeat(np.arange(9), 2), "t": 0, "k": 1})
    with pytest.raises(DataError, match=r"\(9 repeats in all\)"):
        Panel.from_frame(frame, "s", time="t")
    with pytest.raises(DataError, match="within each sequence 'k'"):
        Panel.from_frame(frame, "s", time="t", sequence="k")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"s": [1]}, "a dict; a pandas, polars or pyarrow frame"),
        (np.zeros((2, 2)), "a numpy ndarray.*from_arrays"),
        (pl.LazyFrame({"s": [1]}), "collect a lazy frame"),
        (pd.DataFrame({"s": []}), "no rows"),
        (pd.DataFrame([[1, 2]], columns=["s", "s"]), "more than one column named 's'"),
        (pa.Table.from_arrays([pa.array([1])] * 2, names=["s", "s"]), "more than one column"),
    ],
)
def test_wrong_kinds_are_refused(frame, message):
    with pytest.raises(DataError, match=message):
        Panel.from_frame(frame, "s")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Panel.from_arrays([]), "empty list"),
        (lambda: Panel.from_arrays(np.zeros((3, 2))), "Wrap a single"),
        (lambda: Panel.from_arrays([np.zeros((2, 3, 4))]), r"subject 0 has shape \(2, 3, 4\)"),
        (lambda: Panel.from_arrays([[[1, 2], [3]]]), "ragged"),
        (lambda: Panel.from_arrays([["a"]]), "numbers are wanted"),
        (
            lambda: Panel.from_arrays([np.zeros((2, 2)), np.zeros((2, 3))]),
            "subject 1 has 3 columns",
        ),
        (lambda: Panel.from_arrays([np.zeros((2, 2)), np.zeros((0, 2))]), "none for subject 1"),
        (lambda: Panel.from_lengths(np.zeros(4), [1, 2]), "sum to 3, but X has 4 rows"),
        (lambda: Panel.from_lengths(np.zeros(4), [2.0, 2.0]), "whole numbers"),
        (lambda: Panel.from_lengths(np.zeros(4), [5, -1]), "at least one row"),
    ],
)
def test_bad_arrays_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()


def test_many_subjects_are_quick():
    rng = np.random.default_rng(0)
    subject = rng.permutation(np.repeat(np.arange(20_000), 10))
    frame = pd.DataFrame({"s": subject, "t": rng.permutation(len(subject))})
    panel = Panel.from_frame(frame, "s", time="t")
    assert panel.n_subjects == 20_000
    again = frame.groupby("s")["t"].rank().to_numpy() - 1
    np.testing.assert_array_equal(panel.row_step, again)


def test_gaps_are_steps_longer_than_the_usual_one() -> None:
    frame = pd.DataFrame({"s": ["a"] * 5 + ["b"] * 2, "t": [0, 2, 4, 10, 12, 0, 1]})
    frame.loc[6, "t"] = 2
    assert Panel.from_frame(frame, "s", time="t").gaps() == (1, 2)
    assert Panel.from_frame(frame, "s").gaps() == (0, 0)
    assert Panel.from_frame(frame.assign(t=frame["t"] / 3), "s", time="t").gaps() == (0, 0)
    whole = frame.assign(t=frame["t"].astype(float))
    assert Panel.from_frame(whole, "s", time="t").gaps() == (1, 2)
    assert Panel.from_frame(whole.assign(t=whole["t"] * 2.0**53), "s", time="t").gaps() == (0, 0)
    irregular = frame.assign(t=[0, 2, 4, 11, 13, 0, 2])
    assert Panel.from_frame(irregular, "s", time="t").gaps() == (0, 0)
    days = pd.Timestamp("2024-02-25") + pd.to_timedelta(frame["t"], unit="D")
    for times in (days, days.dt.tz_localize("UTC"), days.dt.strftime("%Y-%m-%d"), days.astype(str)):
        panel = Panel.from_frame(frame.assign(t=times), "s", time="t")
        assert panel.gaps() == (1, pd.Timedelta(days=2))
    hours = days.dt.strftime("%Y-%m-%dT%H:%M")
    assert Panel.from_frame(frame.assign(t=hours), "s", time="t").gaps()[0] == 1
    assert Panel.from_frame(frame.assign(t=hours + " h"), "s", time="t").gaps() == (0, 0)
    zones = ["2024-01-01T10:00+01:00", "2024-01-01T10:30+02:00"]
    with pytest.raises(DataError, match="need not be its order in time"):
        Panel.from_frame(pd.DataFrame({"s": "a", "t": zones}), "s", time="t")


@pytest.mark.parametrize(
    "times", [["25.01.2024", "04.03.2024"], ["1/5/2024", "1/15/2024"], ["Jan", "Feb"]]
)
def test_text_whose_order_is_not_the_one_meant_is_refused(times) -> None:
    with pytest.raises(DataError, match="to_datetime"):
        Panel.from_frame(pd.DataFrame({"s": ["a", "a"], "t": times}), "s", time="t")


@pytest.mark.parametrize("times", [["2024-03-04 10:00", "2024-01-25 09:30"], ["w02", "w01"]])
def test_text_that_sorts_right_is_taken(times) -> None:
    panel = Panel.from_frame(pd.DataFrame({"s": ["a", "a"], "t": times}), "s", time="t")
    assert panel.row_step.tolist() == [1, 0]


@pytest.mark.parametrize("labels", ["int", "float", "text", "category", "date"])
@pytest.mark.parametrize("times", ["int", "float", "date", "text", "none"])
@pytest.mark.parametrize("change", ["sorted", "one swapped", "subject returns", "shuffled"])
def test_rows_that_come_sorted_are_numbered_as_any_others(labels, times, change):
    """What is recognised as sorted has the numbers that sorting gives."""
    who, when = np.repeat([5, 2, 9], [4, 1, 6]), np.r_[0:4, 3, 0:6]
    day = pd.Timestamp("2024-03-01") + pd.to_timedelta(when, unit="D")
    subject = {
        "int": who,
        "float": who / 4,
        "text": [f"p{i}" for i in who],
        "category": pd.Categorical([f"p{i}" for i in who]),
        "date": pd.Timestamp("2020-01-01") + pd.to_timedelta(who, unit="D"),
    }[labels]
    time = {"int": when, "float": when / 4, "date": day, "text": day.strftime("%Y-%m-%d")}
    frame = pd.DataFrame({"s": subject, "t": time.get(times, 0), "number": who, "step": when})
    rows = {
        "sorted": np.arange(11),
        "one swapped": np.r_[0:6, 7, 6, 8:11],
        "subject returns": np.r_[0:3, 4:11, 3],
        "shuffled": np.random.default_rng(0).permutation(11),
    }[change]
    frame = frame.iloc[rows].reset_index(drop=True)
    panel = Panel.from_frame(frame, "s", None if times == "none" else "t")
    seen: dict[int, int] = {}
    number = [seen.setdefault(one, len(seen)) for one in frame["number"]]
    np.testing.assert_array_equal(panel.row_subject, number)
    wanted = frame.groupby("number")["step"].rank().to_numpy() - 1
    if times == "none":
        wanted = frame.groupby("number").cumcount().to_numpy()
    np.testing.assert_array_equal(panel.row_step, wanted)
    by_place = np.lexsort((panel.row_step, panel.row_lane))
    np.testing.assert_array_equal(panel.order, by_place)
    assert panel.in_order == bool((by_place == np.arange(11)).all())
    if change == "sorted":
        assert panel.in_order


@pytest.mark.parametrize("last", [np.nan, np.inf])
def test_a_last_time_that_is_none_is_refused_in_a_sorted_table(last):
    """It is the only row of its subject, so that no other row says that it is out of order."""
    frame = pd.DataFrame({"s": [1, 1, 2], "t": [0.0, 1.0, last]})
    with pytest.raises(DataError, match=r"missing at row 2|infinite at row 2"):
        Panel.from_frame(frame, "s", time="t")
