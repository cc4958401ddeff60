"""The Panel: validated rows of many subjects, each with one or more sequences in time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from avem.data.carrying import Carried, carried_forward, check_listed
from avem.data.filling import filled
from avem.data.frames import (
    Source,
    as_dates,
    column,
    examples,
    to_pandas,
    whole_numbers,
)
from avem.data.sorting import ascending, codes, step_sizes, steps_in_time
from avem.data.weights import WeightKind, Weights, check_weights
from avem.errors import DataError
from avem.numerics.rows import count_rows

if TYPE_CHECKING:
    from avem.data.scanning.scan import Scan


@dataclass(frozen=True, eq=False, repr=False)
class Panel:
    """Rows of data with their subject, sequence and place in time; rows stay in input order.

    Make one with `from_frame`, `from_arrays` or `from_lengths`. A "lane" is one sequence of one
    subject: lanes are numbered by subject, then by first appearance within the subject.

    Attributes
    ----------
    table : pandas.DataFrame
        All input columns, in the caller's row order, rows numbered 0, 1, ...
    subject, time, sequence : str or None
        Column names.
    subjects : numpy.ndarray
        (n_subjects,) labels in order of first appearance, in their own type.
    row_subject, row_lane, row_step : numpy.ndarray of int
        (n_rows,) each row's subject, lane, and position from 0 within its lane once sorted by time.
    lane_subject, lane_length : numpy.ndarray of int
        (n_lanes,) each lane's subject and number of rows.
    source : Source
        The caller's kind of frame and row labels.
    weights : Weights or None
        How much each subject counts in a fit; see `weighted`.
    carried : Carried or None
        Which covariates were carried forward; see `carry_forward`.

    Examples
    --------
    >>> diary = avem.load_affect()
    >>> panel = avem.Panel.from_frame(diary, subject="person", time="beep", sequence="day")
    >>> panel.n_subjects, panel.n_rows == len(diary)
    (60, True)
    """

    table: pd.DataFrame
    subject: str
    time: str | None
    sequence: str | None
    subjects: np.ndarray
    row_subject: np.ndarray
    row_lane: np.ndarray
    row_step: np.ndarray
    lane_subject: np.ndarray
    lane_length: np.ndarray
    source: Source
    weights: Weights | None = None
    carried: Carried | None = None

    in_memory: ClassVar[bool] = True

    @classmethod
    def from_frame(
        cls, frame: Any, subject: str, time: str | None = None, sequence: str | None = None
    ) -> "Panel":
        """Return the panel of a pandas, polars or pyarrow frame, one row per observation.

        Parameters
        ----------
        frame : DataFrame
            Any eager frame that narwhals reads; rows may be in any order when `time` is given.
        subject : str
            The column that says whose row it is.
        time : str, optional
            The column to sort by within a sequence: numbers, dates, or text that sorts right.
            Without it the rows of a sequence are taken in the order they come.
        sequence : str, optional
            The column that splits a subject's rows into separate sequences (sessions).

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.Panel.from_frame(avem.load_affect(), "person", "beep", "day").n_subjects
        60
        """
        table, source = to_pandas(frame)
        return _index(table, subject, time, sequence, source)

    @classmethod
    def from_arrays(cls, arrays: Sequence[ArrayLike]) -> "Panel":
        """Return the panel of one array per subject, outcomes ``y1`` to ``yp``.

        Parameters
        ----------
        arrays : list of array
            For each subject (T_i, p) or (T_i,) numbers; NaN where missing.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.Panel.from_arrays([np.zeros((5, 2)), np.zeros((3, 2))])
        Panel(2 subjects in 'subject', 2 sequences, 8 rows, columns subject, y1, y2)
        """
        if not isinstance(arrays, list | tuple):
            raise DataError(
                f"from_arrays got a {type(arrays).__name__}; a list with one (T_i, p) array per "
                "subject is wanted. Wrap a single subject's array in a list."
            )
        if not arrays:
            raise DataError("from_arrays got an empty list; one array per subject is wanted.")
        made = [_matrix(array, f"the array of subject {i}") for i, array in enumerate(arrays)]
        widths = np.array([array.shape[1] for array in made])
        if (widths != widths[0]).any():
            odd = int(np.flatnonzero(widths != widths[0])[0])
            raise DataError(
                f"The array of subject {odd} has {widths[odd]} columns and that of subject 0 has "
                f"{widths[0]}; all subjects need the same outcomes. Use NaN for missing values."
            )
        return _from_rows(np.concatenate(made), np.array([len(array) for array in made]))

    @classmethod
    def from_lengths(cls, X: ArrayLike, lengths: ArrayLike) -> "Panel":
        """Return the panel of subjects that are stacked in one array, as hmmlearn takes them.

        Parameters
        ----------
        X : array
            (sum(lengths), p) numbers, one subject below the other; NaN where missing.
        lengths : list of int
            How many rows each subject has.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.Panel.from_lengths(np.zeros((8, 2)), lengths=[5, 3]).lane_length.tolist()
        [5, 3]
        """
        rows = _matrix(X, "X")
        counts = np.asarray(lengths)
        if counts.ndim != 1 or counts.dtype.kind not in "iu":
            raise DataError(
                f"lengths is {counts.dtype} of shape {counts.shape}; a list of whole numbers, one "
                "per subject, is wanted."
            )
        if counts.sum() != len(rows):
            raise DataError(f"lengths sum to {counts.sum()}, but X has {len(rows)} rows.")
        return _from_rows(rows, counts)

    def weighted(self, weights: str, kind: WeightKind = "survey") -> "Panel":
        """Return the panel with a weight for each subject, for fits to it.

        Parameters
        ----------
        weights : str
            A column with positive numbers, one and the same in all rows of a subject.
        kind : {"survey", "frequency"}
            ``"survey"``: how many people a subject stands for; only the ratios count, and standard
            errors are robust ones (a sandwich). ``"frequency"``: there are so many subjects alike,
            of which one is in the data.

        Returns
        -------
        Panel

        Examples
        --------
        >>> diary = avem.load_affect().assign(n_alike=2)
        >>> panel = avem.Panel.from_frame(diary, "person", "beep", "day")
        >>> panel.weighted("n_alike", "frequency").subject_weights[:3]
        array([2., 2., 2.])
        """
        found = replace(self, weights=check_weights(weights, kind))
        _ = found.subject_weights  # refuse here what cannot be one
        return found

    def carry_forward(self, columns: Sequence[str]) -> "Panel":
        """Return the panel with missing values of covariates filled, within each sequence.

        Each takes the last value before it; where there is none, it stays missing.

        Parameters
        ----------
        columns : list of str
            The covariates.

        Returns
        -------
        Panel
            Its `carried` says in how many rows.

        Examples
        --------
        >>> frame = avem.load_affect().head(3).assign(dose=[5.0, np.nan, 2.0])
        >>> avem.Panel.from_frame(frame, "person").carry_forward(["dose"]).table["dose"].tolist()
        [5.0, 5.0, 2.0]
        """
        check_listed(columns)
        table, carried = carried_forward(self, columns)
        return replace(self, table=table, carried=carried)

    @cached_property
    def subject_weights(self) -> np.ndarray | None:
        """(subjects,) how much each counts, survey weights with a mean of 1; None: all alike."""
        return None if self.weights is None else self.weights.of(self)

    @staticmethod
    def scan(
        source: Any,
        subject: str,
        time: str | None = None,
        sequence: str | None = None,
        *,
        memory: str | int = "4GB",
        cache: str | PathLike[str] | None = None,
    ) -> "Scan":
        """Return a panel that stays on disk: of files, or lazy tables, larger than memory.

        The rows are checked and sorted once, out of core, into a folder; a subject's rows may be
        spread over all files in any order. What `fit` and others take as data can be a scan. It
        needs the extra ``avem[scale]``.

        Parameters
        ----------
        source : str, path, list of these, or lazy table
            Parquet or CSV files, folders of them or patterns such as ``"logs/*.parquet"``; or a
            polars LazyFrame, a pyarrow Dataset, a DuckDB relation, or a Dask DataFrame.
        subject : str
            The column that says whose row it is.
        time : str, optional
            The column to sort by within a sequence. Without it the rows of a sequence are taken in
            the order they come, file by file.
        sequence : str, optional
            The column that splits a subject's rows into separate sequences.
        memory : str or int
            What a fit may use for data and for what it knows of subjects, as "4GB".
        cache : str or path, optional
            A folder where the sorted rows of files are kept and found again, as long as the files
            have not changed. By default a temporary one, which is removed with the scan.

        Returns
        -------
        Scan

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "*.parquet", "person", time="beep", sequence="day")
        >>> scan.n_subjects, scan.n_rows == len(avem.load_affect())
        (60, True)
        """
        from avem.data.scanning.scan import open_scan

        return open_scan(source, subject, time, sequence, memory, cache)

    def column_parts(self, name: str) -> Iterator[pd.Series]:
        """Return a column part by part, in whatever order is at hand: here, in one part.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        iterator of pandas.Series

        Examples
        --------
        >>> panel = avem.Panel.from_frame(avem.load_affect(), "person")
        >>> [len(part) for part in panel.column_parts("beep")] == [panel.n_rows]
        True
        """
        yield column(self.table, name, "a column")

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.subjects)

    @property
    def n_lanes(self) -> int:
        """Number of sequences, over all subjects."""
        return len(self.lane_subject)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.row_subject)

    def like(self, values: ArrayLike, name: str) -> Any:
        """Return one value per row as the caller's kind of series, in the caller's row order.

        Parameters
        ----------
        values : array
            (n_rows,) a value for each row.
        name : str
            Of the series.

        Returns
        -------
        Series
            Of the kind that the data came in.

        Examples
        --------
        >>> panel = avem.Panel.from_lengths(np.zeros(3), lengths=[2, 1])
        >>> panel.like(panel.row_step, "step").tolist()
        [0, 1, 0]
        """
        return self.source.series(self._per_row(values, name), name)

    def frame_like(self, columns: Mapping[str, ArrayLike]) -> Any:
        """Return columns of one value per row as the caller's kind of frame.

        Parameters
        ----------
        columns : dict of str to array
            (n_rows,) each.

        Returns
        -------
        DataFrame
            Of the kind that the data came in.

        Examples
        --------
        >>> panel = avem.Panel.from_lengths(np.zeros(3), lengths=[2, 1])
        >>> panel.frame_like({"step": panel.row_step, "lane": panel.row_lane}).shape
        (3, 2)
        """
        return self.source.frame({k: self._per_row(v, k) for k, v in columns.items()})

    def table_like(self, table: pd.DataFrame) -> Any:
        """Return a table with the panel's rows as the caller's kind of frame.

        Parameters
        ----------
        table : pandas.DataFrame
            A row for each row of the panel, in the same order.

        Returns
        -------
        DataFrame
            Of the kind that the data came in, with the caller's row labels.

        Examples
        --------
        >>> panel = avem.Panel.from_lengths(np.zeros(3), lengths=[2, 1])
        >>> panel.table_like(panel.table.assign(y1=1.0))["y1"].tolist()
        [1.0, 1.0, 1.0]
        """
        index = self.source.index
        return self.source.table(table if index is None else table.set_axis(index))

    def _per_row(self, values: ArrayLike, name: str) -> np.ndarray:
        array = np.asarray(values)
        if array.shape != (self.n_rows,):
            raise DataError(
                f"{name!r} has shape {array.shape}; one value for each of the {self.n_rows} rows "
                "is wanted."
            )
        return array

    def keep(self, min_times: int = 2) -> "Panel":
        """Return a panel of the subjects with at least one sequence of `min_times` rows.

        Parameters
        ----------
        min_times : int
            Shortest sequence that counts.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.Panel.from_lengths(np.zeros(6), lengths=[5, 1]).keep(min_times=2).n_subjects
        1
        """
        kept = np.zeros(self.n_subjects, dtype=bool)
        kept[self.lane_subject[self.lane_length >= min_times]] = True
        rows = kept[self.row_subject]
        if not rows.any():
            raise DataError(
                f"No subject has a sequence of {min_times} rows; the longest has "
                f"{self.lane_length.max()}. Lower min_times."
            )
        table = self.table.loc[rows].reset_index(drop=True)
        return self._like(table, self.source.rows(rows))

    @cached_property
    def order(self) -> np.ndarray:
        """(rows,) the rows by lane, and within it by time."""
        if self.in_order:
            return np.arange(self.n_rows)
        return np.lexsort((self.row_step, self.row_lane))

    @cached_property
    def in_order(self) -> bool:
        """Whether the rows come by lane, and within it by time, as those of most tables do."""
        return ascending(self.row_lane, self.row_step)

    def part(self, table: pd.DataFrame, rows: np.ndarray) -> "Panel":
        """Return the panel of some rows of a table with this panel's rows and columns.

        Parameters
        ----------
        table : pandas.DataFrame
            A row for each row of the panel, in the same order.
        rows : numpy.ndarray of int
            Positions of the rows to take.

        Returns
        -------
        Panel

        Examples
        --------
        >>> panel = avem.Panel.from_lengths(np.zeros(6), lengths=[4, 2])
        >>> panel.part(panel.table, np.array([0, 1, 4])).lane_length.tolist()
        [2, 1]
        """
        chosen = table.iloc[rows].reset_index(drop=True)
        keep = np.zeros(self.n_rows, bool)
        keep[rows] = True
        return self._like(chosen, self.source.rows(keep))

    def _like(self, table: pd.DataFrame, source: Source) -> "Panel":
        """Return the panel of another table by the same columns."""
        made = _index(table, self.subject, self.time, self.sequence, source)
        return replace(made, weights=self.weights, carried=self.carried)

    def gaps(self) -> tuple[int, Any]:
        """Return how many steps within sequences skip some, and the usual step.

        (0, 0) unless times are whole numbers or dates (as text, too: 2024-01-25) and all steps are
        multiples of the most common one: only then is a longer step surely a gap.

        Returns
        -------
        tuple of (int, int or pandas.Timedelta)
            The number of gaps, and the usual step: of dates a `pandas.Timedelta`.

        Examples
        --------
        >>> diary = avem.load_affect().query("beep != 2")
        >>> n_gaps, step = avem.Panel.from_frame(diary, "person", "beep", "day").gaps()
        >>> n_gaps > 0, step
        (True, 1)
        """
        if self.time is None:
            return 0, 0
        values = column(self.table, self.time, "the time")
        dates = as_dates(values)
        time = whole_numbers(values, of_floats=True) if dates is None else dates
        if time is None:
            return 0, 0
        order = slice(None) if self.in_order else self.order
        sizes, counts = step_sizes(time[order], self.row_step[order])
        if not len(sizes):
            return 0, 0
        usual = int(sizes[counts.argmax()])
        if (sizes % usual).any():
            return 0, 0
        found = int(counts[sizes > usual].sum())
        return found, usual if dates is None or not found else pd.Timedelta(usual, unit="ns")

    def lag(self, values: np.ndarray, back: int = 1) -> np.ndarray:
        """Return each row's value some rows before in its sequence.

        Parameters
        ----------
        values : numpy.ndarray
            (n_rows,) a number for each row.
        back : int
            How many rows before.

        Returns
        -------
        numpy.ndarray
            (n_rows,), NaN where the sequence has not so many rows before.

        Examples
        --------
        >>> avem.Panel.from_lengths(np.zeros(4), lengths=[3, 1]).lag(np.array([1.0, 2.0, 3.0, 4.0]))
        array([nan,  1.,  2., nan])
        """
        order = self.order
        out = np.full(self.n_rows, np.nan)
        has_past = self.row_step[order] >= back
        out[order[has_past]] = values[order[np.flatnonzero(has_past) - back]]
        return out

    def fill_gaps(self, step: float = 1, constant: str | Sequence[str] = ()) -> "Panel":
        """Return a panel whose times advance by exactly one step within each sequence.

        Inserted rows hold the subject, sequence, time and the columns in `constant`, and missing
        values elsewhere. Rows come sorted by sequence and time; they are no longer the caller's
        rows, so results have the caller's kind of frame but rows numbered 0, 1, ...

        Parameters
        ----------
        step : float
            How far apart in time two rows of a sequence are.
        constant : str or list of str
            Columns with one value in all rows of a sequence, such as the group of a person or the
            weather of a day: inserted rows have it, too. A covariate of the transitions is needed
            at every step.

        Returns
        -------
        Panel

        Examples
        --------
        >>> diary = avem.load_affect().query("beep != 2")
        >>> panel = avem.Panel.from_frame(diary, "person", "beep", "day").fill_gaps(step=1)
        >>> panel.gaps()[0]
        0
        """
        table = filled(self, step, constant)
        index = None if self.source.index is None else pd.RangeIndex(len(table))
        source = Source(self.source.backend, index, self.source.wrapped)
        return self._like(table, source)

    def __repr__(self) -> str:
        return (
            f"Panel({self.n_subjects:,} subjects in {self.subject!r}, {self.n_lanes:,} sequences, "
            f"{self.n_rows:,} rows, columns {', '.join(map(str, self.table.columns))})"
        )


def _index(
    table: pd.DataFrame, subject: str, time: str | None, sequence: str | None, source: Source
) -> Panel:
    """Return the panel of a clean pandas table: check the three columns and number the rows."""
    given = [repr(name) for name in (subject, time, sequence) if name is not None]
    if len(set(given)) < len(given):
        raise DataError(
            f"subject={subject!r}, time={time!r} and sequence={sequence!r} must be different "
            "columns."
        )
    if len(table) == 0:
        raise DataError("The data have no rows.")
    row_subject, subjects = codes(table, subject, "the subject", source)
    row_lane, lane_subject = row_subject, np.arange(len(subjects))
    if sequence is not None:
        row_sequence, labels = codes(table, sequence, "the sequence", source)
        pair, pairs = pd.factorize(row_subject * len(labels) + row_sequence)
        owner = pairs // len(labels)
        by_subject = np.argsort(owner, kind="stable")
        number = np.empty_like(by_subject)
        number[by_subject] = np.arange(len(by_subject))
        row_lane, lane_subject = number[pair], owner[by_subject]
    lane_length = count_rows(row_lane, len(lane_subject))

    names = subject, time, sequence
    row_step = steps_in_time(table, names, source, row_lane, lane_length)

    arrays = (subjects, row_subject, row_lane, row_step, lane_subject, lane_length)
    for array in arrays:
        array.flags.writeable = False
    return Panel(table, subject, time, sequence, *arrays, source)


def _matrix(values: ArrayLike, what: str) -> np.ndarray:
    """Return `values` as a (rows, p) numeric array."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{what} is ragged; every row needs the same number of values.") from None
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} is of type {array.dtype}; numbers are wanted.")
    if array.ndim not in (1, 2):
        raise DataError(f"{what} has shape {array.shape}; (times, outcomes) or (times,) is wanted.")
    if array.ndim == 2 and array.shape[1] == 0:
        raise DataError(f"{what} has no columns; one per outcome is wanted.")
    return array[:, None] if array.ndim == 1 else array


def _from_rows(rows: np.ndarray, lengths: np.ndarray) -> Panel:
    """Return the panel of stacked subjects labelled 0..n-1, with outcomes y1..yp."""
    if (lengths < 1).any():
        empty = np.flatnonzero(lengths < 1).tolist()
        raise DataError(f"Every subject needs at least one row; none for subject {examples(empty)}")
    table = pd.DataFrame(rows, columns=[f"y{j + 1}" for j in range(rows.shape[1])])
    table.insert(0, "subject", np.repeat(np.arange(len(lengths)), lengths))
    return _index(table, "subject", None, None, Source(index=table.index))
