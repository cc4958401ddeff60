"""Answers for data that are not in memory: computed part by part, when they are asked for."""

from __future__ import annotations

import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.data.files import need_parquet, write_table
from avem.data.scanning.memory import shown_bytes
from avem.data.scanning.scan import Scan
from avem.errors import AvemWarning, FileError, ModelError

P = ParamSpec("P")
R = TypeVar("R")
_PART_ROWS = 100_000


@dataclass(frozen=True, eq=False, repr=False)
class LazyTable:
    """A table of rows or subjects of a `Scan` that is computed when it is asked for.

    Attributes
    ----------
    name : str
        The method that made it.
    n_rows : int or None
        How many rows it will have; None where that is not known yet.
    scan : Scan
        What it is about.
    parts : callable
        Goes through the table part by part, as pandas frames.

    Examples
    --------
    >>> avem.load_affect().to_parquet(folder / "diary.parquet")
    >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
    >>> model = avem.MixedHMM("valence ~ 1 + (1 | person)", n_states=2)
    >>> states = model.fit(scan, init=fit, refine=None).decode()
    >>> states.head(2).columns.tolist()
    ['person', 'day', 'beep', 'state']
    """

    name: str
    n_rows: int | None
    scan: Scan
    parts: Callable[[], Iterator[pd.DataFrame]]
    """The table in parts; the labels of rows say where they belong among all."""

    def head(self, n: int = 5) -> Any:
        """Return the first rows, as `write_parquet` writes them.

        Parameters
        ----------
        n : int
            How many.

        Returns
        -------
        DataFrame
            Of the kind of the source.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> model = avem.MixedHMM("valence ~ 1 + (1 | person)", n_states=2)
        >>> len(model.fit(scan, init=fit, refine=None).effects().head(3))
        3
        """
        found: list[pd.DataFrame] = []
        for part in self.parts():
            found.append(part)
            if sum(map(len, found)) >= n:
                break
        return self._own_kind(pd.concat(found).head(n))

    def frame(self) -> Any:
        """Return the whole table, in the order of the source's rows, or of the subjects.

        Returns
        -------
        DataFrame
            Of the kind of the source. With a warning where it is larger than the scan's `memory`.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> model = avem.MixedHMM("valence ~ 1 + (1 | person)", n_states=2)
        >>> states = model.fit(scan, init=fit, refine=None).decode().frame()
        >>> bool((states["person"] == avem.load_affect()["person"]).all())
        True
        """
        found: list[pd.DataFrame] = []
        for part in self.parts():
            if not found and self.n_rows is not None:
                self._warn(part)
            found.append(part)
        return self._own_kind(pd.concat(found).sort_index(kind="stable"))

    def _warn(self, part: pd.DataFrame) -> None:
        each = part.memory_usage(deep=True, index=False).sum() / max(len(part), 1)
        size = each * (self.n_rows or 0)
        if size > self.scan.memory:
            warnings.warn(
                f"The whole table takes about {shown_bytes(size)}, more than memory="
                f"{shown_bytes(self.scan.memory)} of the scan. write_parquet(folder) writes it "
                "part by part.",
                AvemWarning,
                stacklevel=3,
            )

    def write_parquet(self, folder: str | PathLike[str]) -> None:
        """Write the table into a new folder of Parquet files, whole or not at all.

        Parameters
        ----------
        folder : str or path
            Must not exist, or be empty. Subjects come one after the other, each with all its rows
            in order of time; what identifies a row is in columns of its own.

        Examples
        --------
        >>> avem.load_affect().to_parquet(folder / "diary.parquet")
        >>> scan = avem.Panel.scan(folder / "diary.parquet", "person", time="beep", sequence="day")
        >>> model = avem.MixedHMM("valence ~ 1 + (1 | person)", n_states=2)
        >>> model.fit(scan, init=fit, refine=None).decode().write_parquet(folder / "states")
        >>> sorted(path.name for path in (folder / "states").iterdir())
        ['part-00000.parquet']
        """
        need_parquet()
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FileError(f"{str(target)!r} exists and is no empty folder. Choose another name.")
        if not target.absolute().parent.is_dir():
            raise FileError(f"There is no folder {str(target.absolute().parent)!r}. Make it first.")
        begun = target.absolute().with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            begun.mkdir()
            for number, part in enumerate(self.parts()):
                write_table(part.reset_index(drop=True), begun / f"part-{number:05}.parquet")
            if target.exists():
                target.rmdir()
            os.replace(begun, target)
        except OSError as error:
            raise FileError(f"Cannot write into {str(target)!r}: {error.strerror}.") from error
        finally:
            shutil.rmtree(begun, ignore_errors=True)

    def __getitem__(self, key: object) -> Any:
        raise ModelError(
            f"{self.name}() of a scan is not computed yet: {key!r} cannot be taken from it. Take "
            "it from its head() or frame(), or from what write_parquet(folder) has written."
        )

    def __repr__(self) -> str:
        size = "" if self.n_rows is None else f"{self.n_rows:,} rows, "
        return (
            f"LazyTable({self.name}: {size}not computed yet; write_parquet(folder), head() or "
            "frame())"
        )

    def _own_kind(self, table: pd.DataFrame) -> Any:
        return self.scan.source.table(table.reset_index(drop=True))


def by_parts(method: Callable[P, R]) -> Callable[P, R]:
    """A method of a fit that takes data and answers by rows: of a scan, it answers part by part."""
    shape = signature(method)

    @wraps(method)
    def answer(*given: P.args, **options: P.kwargs) -> R:
        fit: Any = given[0]
        data = given[1] if len(given) > 1 else options.get("data")
        if getattr(fit.panel if data is None else data, "in_memory", True):
            return method(*given, **options)
        chosen = dict(shape.bind(*given, **options).arguments)
        if chosen.get("parameters") == "estimated":
            raise ModelError(
                "parameters='estimated' is for data in memory: fit.sample() gives the fit on some "
                "subjects."
            )
        table: Any = _rows_of(method, chosen, "seed" in shape.parameters)
        return table

    return answer


def _rows_of(method: Callable[..., Any], given: dict[str, Any], draws: bool) -> LazyTable:
    """What a method gives of all rows; `given` are its arguments, `draws`: it takes a seed."""
    fit, data = given.pop("self"), given.pop("data", None)
    scan: Scan = fit.panel if data is None else data

    def parts() -> Iterator[pd.DataFrame]:
        groups = list(scan.blocks(_PART_ROWS))
        for number, (group, panel) in enumerate(zip(groups, scan.panels(groups), strict=True)):
            options = dict(given)
            if draws and number:  # parts must not repeat each other's draws
                state = np.random.SeedSequence([given.get("seed", 0), number]).generate_state(1)
                options["seed"] = int(state[0])
            if data is None:
                found = method(on_subjects(fit, group, panel), **options)
            else:
                found = method(fit, data=panel, **options)
            yield _with_keys(panel, found, group)

    n_rows = {"predict": None, "clusters": scan.n_subjects}.get(method.__name__, scan.n_rows)
    return LazyTable(method.__name__, n_rows, scan, parts)


def on_subjects(fit: Any, numbers: np.ndarray, panel: Panel) -> Any:
    """The same fit as that of some of its subjects, whose data are in memory."""
    return replace(
        fit,
        panel=panel,
        subjects=fit.subjects[numbers],
        effects_mean=fit.effects_mean[numbers],
        effects_cov=fit.effects_cov[numbers],
    )


def _with_keys(panel: Panel, found: Any, numbers: np.ndarray) -> pd.DataFrame:
    """Answers for rows, with whose rows they are; those of subjects, by their number among all."""
    table = found.to_frame() if isinstance(found, pd.Series) else found
    if panel.subject in table.columns:
        own = pd.Index(panel.subjects).get_indexer(pd.Index(table[panel.subject]))
        return table.set_axis(numbers[own])
    keys = [name for name in (panel.subject, panel.sequence, panel.time) if name is not None]
    own = panel.table[keys].set_axis(panel.source.index)
    return pd.concat([own, table], axis=1)


def subjects_table(fit: Any, name: str, table: Callable[[slice], pd.DataFrame]) -> LazyTable:
    """A table by subjects; `table` gives that of a stretch of them, several rows each."""
    n, each = len(fit.subjects), max(1, fit.model.n_effects)

    def parts() -> Iterator[pd.DataFrame]:
        for start in range(0, max(n, 1), _PART_ROWS):
            own = table(slice(start, start + _PART_ROWS))
            yield own.set_axis(start * each + np.arange(len(own)))

    return LazyTable(name, n * fit.model.n_effects, fit.panel, parts)
