"""A panel on disk: its subjects and sequences are known here, its rows are read part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from avem.data.carrying import Carried, check_listed
from avem.data.frames import Source
from avem.data.panel import Panel
from avem.data.scanning.cache import facts_of, removed_with, sorted_folder
from avem.data.scanning.digest import Digest
from avem.data.scanning.memory import bytes_of, need_rows, shown_bytes
from avem.data.scanning.reading import Reader, column_of, first_rows, ranges
from avem.data.scanning.sort import LANE, ROW, Keys
from avem.data.scanning.sources import backend_of
from avem.data.weights import WeightKind, Weights, check_weights
from avem.errors import DataError, ModelError

_BLOCK = 200_000
"""Rows that are read at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Scan:
    """A panel whose rows are on disk, sorted; make one with `Panel.scan`.

    Attributes
    ----------
    folder : pathlib.Path
        Where the sorted rows are.
    subject, time, sequence : str or None
        Column names.
    subjects : numpy.ndarray
        (n_subjects,) labels in order of first appearance.
    lane_subject, lane_length : numpy.ndarray of int
        (n_lanes,) each sequence's subject and number of rows.
    lane_number, lane_row : numpy.ndarray of int
        (n_lanes,) what each sequence is called on disk, and where its first row is.
    memory : int
        Bytes that a fit may use for data and subjects' state.
    source : Source
        The kind of frame in which answers come.
    weights : Weights or None
        How much each subject counts in a fit; see `weighted`.
    carried : Carried or None
        Which covariates are carried forward; see `carry_forward`.

    Examples
    --------
    >>> avem.load_affect().to_parquet(folder / "diary.parquet")
    >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
    >>> scan.n_subjects
    60
    """

    in_memory: ClassVar[bool] = False

    folder: Path
    subject: str
    time: str | None
    sequence: str | None
    subjects: np.ndarray
    lane_subject: np.ndarray
    lane_length: np.ndarray
    lane_number: np.ndarray
    lane_row: np.ndarray
    memory: int
    source: Source
    weights: Weights | None = None
    carried: Carried | None = None

    # --- sizes ----------------------------------------------------------------------------------

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self.subjects)

    @property
    def n_lanes(self) -> int:
        """Number of sequences, over all subjects."""
        return len(self.lane_subject)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.lane_length.sum())

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What was learned of every column, and of the times."""
        return facts_of(self.folder)

    def report(self) -> Any:
        """Return what the scan found: a row for each column.

        Returns
        -------
        DataFrame
            ``column``, ``type``, ``missing``, and of numbers ``min``, ``max``, ``mean``, ``sd``.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.report()["column"].tolist()[:3]
        ['person', 'day', 'beep']
        """
        rows = [{"column": name, **own} for name, own in self.facts["columns"].items()]
        wanted = ["column", "type", "missing", "min", "max", "mean", "sd"]
        return self.source.table(pd.DataFrame(rows).reindex(columns=wanted))

    def gaps(self) -> tuple[int, Any]:
        """Return how many steps within sequences skip some, and the usual step.

        Returns
        -------
        tuple of (int, int or pandas.Timedelta)
            As `Panel.gaps` gives them.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.gaps()[0]
        0
        """
        if self.facts["gaps"] is None:
            return 0, 0
        n_gaps, usual, dates = self.facts["gaps"]
        return n_gaps, pd.Timedelta(usual, unit="ns") if dates and n_gaps else usual

    def __repr__(self) -> str:
        size = sum(path.stat().st_size for path in self.folder.glob("*.parquet"))
        return (
            f"Scan({self.n_subjects:,} subjects in {self.subject!r}, {self.n_lanes:,} sequences, "
            f"{self.n_rows:,} rows, {shown_bytes(size)} on disk, memory "
            f"{shown_bytes(self.memory)}, columns {', '.join(self.facts['columns'])})"
        )

    # --- what models learn from -----------------------------------------------------------------

    @cached_property
    def table(self) -> Digest:
        """The values that occur in each column."""
        return Digest(self.folder, self.facts["columns"])

    def column_parts(self, name: str) -> Iterator[pd.Series]:
        """Return a column part by part, in the order on disk.

        Parameters
        ----------
        name : str
            Of the column.

        Returns
        -------
        iterator of pandas.Series

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> sum(len(part) for part in scan.column_parts("beep")) == scan.n_rows
        True
        """
        if self.carried is not None and name in self.carried.columns:
            panels = self.panels(self.blocks(_BLOCK))
            return (pd.Series(panel.table[name], name=name) for panel in panels)
        if name not in self.facts["columns"]:
            raise DataError(
                f"There is no column {name!r}. The columns are {', '.join(self.facts['columns'])}."
            )
        return column_of(self.folder / "rows.parquet", name)

    @property
    def row_subject(self) -> np.ndarray:
        """Not in memory: an error that says what to do."""
        raise need_rows()

    row_lane = row_step = order = row_subject

    @property
    def fill_gaps(self) -> Any:
        """Of a `Panel` alone: an error that says what to do."""
        raise ModelError(
            "fill_gaps needs the rows in memory, and those of a scan are on disk. Put the missing "
            "steps into the table and scan it again; scan.sample(1000) gives a Panel of some "
            "subjects, which has fill_gaps."
        )

    @property
    def keep(self) -> Any:
        """Of a `Panel` alone: an error that says what to do."""
        raise ModelError(
            "A scan has no keep. scan.of_subjects(scan.longest >= 2) is the scan of the subjects "
            "with at least one sequence of 2 rows."
        )

    # --- rows -----------------------------------------------------------------------------------

    @cached_property
    def file_order(self) -> np.ndarray:
        """(subjects,) the subjects as they follow each other on disk."""
        return np.argsort(self.longest, kind="stable")

    @cached_property
    def longest(self) -> np.ndarray:
        """(subjects,) rows of each one's longest sequence."""
        longest = np.zeros(self.n_subjects, np.int64)
        np.maximum.at(longest, self.lane_subject, self.lane_length)
        return longest

    @cached_property
    def _first_lane(self) -> np.ndarray:
        """First lane of each subject, and where the last one's end."""
        n_lanes = np.bincount(self.lane_subject, minlength=self.n_subjects)
        return np.concatenate([[0], np.cumsum(n_lanes)])

    def panels(self, groups: Iterable[np.ndarray]) -> Iterator[Panel]:
        """Return the panels of groups of subjects, which follow each other as on disk.

        Parameters
        ----------
        groups : iterable of numpy.ndarray of int
            Numbers of subjects, each group a stretch of `file_order`.

        Returns
        -------
        iterator of Panel
            Its row labels are the places of the rows in the source, from 0.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> [panel.n_subjects for panel in scan.panels([scan.file_order[:10]])]
        [10]
        """
        reader = Reader(self.folder / "rows.parquet")
        for group in groups:
            lanes = self._lanes_of(group)
            start = int(self.lane_row[lanes[0]])
            stop = int(self.lane_row[lanes[-1]] + self.lane_length[lanes[-1]])
            table = reader.rows(start, stop)
            if len(table) > self.lane_length[lanes].sum():  # others lie in between
                own = np.isin(table[LANE].to_numpy(), self.lane_number[lanes])
                table = table.loc[own].reset_index(drop=True)
            yield self._panel(table, group)

    def _panel(self, table: pd.DataFrame, group: np.ndarray) -> Panel:
        """The panel of rows as they are on disk, of these subjects in this order."""
        index = pd.Index(table.pop(ROW).to_numpy())
        lanes = self._lanes_of(group)
        wanted = np.repeat(self.lane_number[lanes], self.lane_length[lanes])
        if not np.array_equal(table.pop(LANE).to_numpy(), wanted):
            raise DataError(
                f"The sorted rows in {str(self.folder)!r} are not those that were scanned. Remove "
                "the folder and scan again."
            )
        source = Source(index=index)
        made = replace(self.outline(group), table=table, source=source, weights=self.weights)
        return made if self.carried is None else made.carry_forward(self.carried.columns)

    def _lanes_of(self, group: np.ndarray) -> np.ndarray:
        first = self._first_lane
        return ranges(first[group], first[group + 1] - first[group])

    def outline(self, group: np.ndarray) -> Panel:
        """Return the panel of these subjects in this order, without its table.

        Parameters
        ----------
        group : numpy.ndarray of int
            Numbers of subjects.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.outline(np.array([5])).subjects.tolist()
        ['p06']
        """
        counts = self._first_lane[group + 1] - self._first_lane[group]
        length = self.lane_length[self._lanes_of(group)]
        row_lane = np.repeat(np.arange(len(length)), length)
        lane_subject = np.repeat(np.arange(len(group)), counts)
        arrays = (
            self.subjects[group],
            lane_subject[row_lane],
            row_lane,
            ranges(np.zeros(len(length), np.int64), length),
            lane_subject,
            length,
        )
        for array in arrays:
            array.flags.writeable = False
        return Panel(pd.DataFrame(), self.subject, self.time, self.sequence, *arrays, Source())

    def stretch(self, group: np.ndarray) -> Scan:
        """Return the scan of a few subjects, who follow each other as on disk; small to send.

        Parameters
        ----------
        group : numpy.ndarray of int
            Numbers of subjects, a stretch of `file_order`.

        Returns
        -------
        Scan
            Its subjects are in the order of `group`.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.stretch(scan.file_order[:10]).n_subjects
        10
        """
        lanes, counts = self._lanes_of(group), np.diff(self._first_lane)[group]
        return replace(
            self,
            subjects=self.subjects[group],
            lane_subject=np.repeat(np.arange(len(group)), counts),
            lane_length=self.lane_length[lanes],
            lane_number=self.lane_number[lanes],
            lane_row=self.lane_row[lanes],
        )

    def panel(self) -> Panel:
        """Return the panel of all subjects of a `stretch`.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.stretch(scan.file_order[:10]).panel().n_subjects
        10
        """
        (found,) = self.panels([np.arange(self.n_subjects)])
        return found

    def blocks(self, n_rows: int) -> Iterator[np.ndarray]:
        """Return groups of subjects for `panels`, of about so many rows each.

        Parameters
        ----------
        n_rows : int
            A subject with more rows is a group of its own.

        Returns
        -------
        iterator of numpy.ndarray of int

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> sum(len(group) for group in scan.blocks(1000))
        60
        """
        rows = np.bincount(self.lane_subject, self.lane_length, self.n_subjects)[self.file_order]
        block = (np.cumsum(rows) - rows) // max(n_rows, 1)
        cuts = np.flatnonzero(np.diff(block)) + 1
        yield from np.split(self.file_order, cuts)

    def of_subjects(self, chosen: np.ndarray) -> Scan:
        """Return the scan of some of its subjects, on the same files.

        Parameters
        ----------
        chosen : numpy.ndarray of bool
            (n_subjects,) who stays.

        Returns
        -------
        Scan

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.of_subjects(np.arange(60) < 20).n_subjects
        20
        """
        if not chosen.any():
            raise DataError("No subject is left.")
        lanes = chosen[self.lane_subject]
        number = np.cumsum(chosen) - 1
        new = replace(
            self,
            subjects=self.subjects[chosen],
            lane_subject=number[self.lane_subject[lanes]],
            lane_length=self.lane_length[lanes],
            lane_number=self.lane_number[lanes],
            lane_row=self.lane_row[lanes],
        )
        return self._kept_by(new)

    def _kept_by(self, new: Scan) -> Scan:
        """Another scan of the same folder, which must stay as long as that is there."""
        vars(new)["_whole"] = self
        return new

    def weighted(self, weights: str, kind: WeightKind = "survey") -> Scan:
        """Return the scan with a weight for each subject, for fits to it.

        Parameters
        ----------
        weights : str
            A column with positive numbers, one and the same in all rows of a subject.
        kind : {"survey", "frequency"}
            As for `Panel.weighted`.

        Returns
        -------
        Scan

        Examples
        --------
        >>> avem.load_affect().assign(n_alike=2).to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.weighted("n_alike", "frequency").subject_weights[:3]
        array([2., 2., 2.])
        """
        new = self._kept_by(replace(self, weights=check_weights(weights, kind)))
        _ = new.subject_weights  # refuse here what cannot be one
        return new

    def carry_forward(self, columns: Sequence[str]) -> Scan:
        """Return the scan with missing values of covariates filled, as `Panel.carry_forward` does.

        Parameters
        ----------
        columns : list of str
            The covariates.

        Returns
        -------
        Scan
            Its `carried` says in how many rows.

        Examples
        --------
        >>> diary = avem.load_affect()
        >>> dose = diary["beep"].where(diary["beep"] == 1)
        >>> diary.assign(dose=dose).to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.carry_forward(["dose"]).carried.counts[0] > 0
        True
        """
        check_listed(columns)
        new = self._kept_by(replace(self, carried=Carried(tuple(columns), ())))
        filled = np.zeros(len(columns), int)
        for panel in new.panels(self.blocks(_BLOCK)):
            if panel.carried is not None:
                filled += np.array(panel.carried.counts, int)
        return self._kept_by(replace(new, carried=Carried(tuple(columns), tuple(filled.tolist()))))

    @cached_property
    def subject_weights(self) -> np.ndarray | None:
        """(subjects,) how much each counts, survey weights with a mean of 1; None: all alike."""
        if self.weights is None:
            return None
        found = np.empty(self.n_subjects)
        groups = list(self.blocks(_BLOCK))
        for group, panel in zip(groups, self.panels(groups), strict=True):
            found[group] = self.weights.read(panel)
        return self.weights.counting(found)

    def sample(self, n_subjects: int = 1000) -> Panel:
        """Return the panel of some subjects, evenly drawn from all, in the order of `subjects`.

        Parameters
        ----------
        n_subjects : int
            How many at most.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.sample(10).n_subjects
        10
        """
        places = np.linspace(0, self.n_subjects - 1, min(n_subjects, self.n_subjects))
        return self.panel_of(np.unique(places.round().astype(int)))

    def panel_of(self, subjects: np.ndarray) -> Panel:
        """Return the panel of some subjects, in the order of `subjects`.

        Parameters
        ----------
        subjects : numpy.ndarray of int
            Numbers of subjects, lowest first.

        Returns
        -------
        Panel

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> scan.panel_of(np.array([0, 5])).subjects.tolist()
        ['p01', 'p06']
        """
        wanted = np.zeros(self.n_subjects, bool)
        wanted[subjects] = True
        parts = []
        groups = [group for group in self.blocks(_BLOCK) if wanted[group].any()]
        for panel, group in zip(self.panels(groups), groups, strict=True):
            keep = wanted[group][panel.row_subject]
            index = panel.source.index
            assert index is not None
            keys = {ROW: index[keep], LANE: group[panel.row_subject[keep]]}
            parts.append(panel.table.loc[keep].assign(**keys))
        # Rows stay in their order within a subject.
        table = pd.concat(parts, ignore_index=True).sort_values(LANE, kind="stable")
        chosen = np.flatnonzero(wanted)
        lanes = self._lanes_of(chosen)
        table[LANE] = np.repeat(self.lane_number[lanes], self.lane_length[lanes])
        return self._panel(table.reset_index(drop=True), chosen)


def open_scan(
    source: Any,
    subject: str,
    time: str | None,
    sequence: str | None,
    memory: Any = "4GB",
    cache: Any = None,
) -> Scan:
    """Return the scan of a source: see `Panel.scan`."""
    size = bytes_of(memory)
    folder = sorted_folder(source, Keys(subject, time, sequence), size, cache)
    labels = pd.read_parquet(folder / "subjects.parquet")[subject]
    lane_subject, length = (np.load(folder / f"lane_{x}.npy") for x in ("subject", "length"))
    scan = Scan(
        folder,
        subject,
        time,
        sequence,
        np.array(pd.Index(labels)),
        lane_subject,
        length,
        np.arange(len(length)),
        first_rows(lane_subject, length),
        size,
        Source(backend_of(source)),
    )
    removed_with(scan, folder)
    return scan
