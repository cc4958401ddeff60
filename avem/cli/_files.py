"""Files of the command: what a fit leaves behind, and tables for a saved fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from avem.cli._process import say
from avem.errors import DataError, FileError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from avem.fits.fit import Fit

NOT_CONVERGED = 3
_FILES = ("fit.avem", "summary.txt", "report.html")
_FORMATS = ("csv", "parquet")


# --- what a fit leaves behind ------------------------------------------------------------------


def finish(
    fitted: Fit,
    data: pd.DataFrame,
    out: Path,
    plots: Iterable[str],
    more_tables: Callable[[], dict[str, Any]] = dict,
    thorough: bool = False,
    ending: str = ".csv",
    **options: Mapping[str, Any],
) -> None:
    """Write all files, print the summary, and end with the fit's exit code.

    `more_tables` are written beside those of every fit; `options` are those of single plots;
    `ending` says how tables are written.
    """
    from avem import Stop
    from avem.data.files import write_table
    from avem.data.writing import replacing, write_text

    out.mkdir(parents=True, exist_ok=True)
    fitted.save(out / "fit.avem")  # first, so that nothing that follows can lose it
    text = str(fitted.summary(errors=thorough))
    say(text)
    write_text(out / "summary.txt", text + "\n")
    tables = {
        "parameters": fitted.standard_errors() if thorough else fitted.table(),
        "effects": fitted.effects(),
        "states": with_keys(fitted, data, *fitted._states_by_row(None)),
        **more_tables(),
    }
    for name, table in tables.items():
        write_table(table, out / f"{name}{ending}")
    fitted.report(out / "report.html", thorough=thorough or None)
    there = {"effects": fitted.model.n_effects, "forecast": "forecast" in tables}
    drawn = [name for name in plots if there.get(name, True)]
    for name in drawn:
        figure = getattr(fitted.plot, name)(**options.get(name, {}))
        with replacing(out / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=150)
    written = ["fit.avem", "summary.txt", *(f"{name}{ending}" for name in tables), "report.html"]
    written += [f"{name}.png" for name in drawn]
    say("\nWritten:\n" + "\n".join(f"  {out / name}" for name in written))
    say(f"\nOpen {out / 'report.html'} in a browser: it begins with what was found.")
    if fitted.stop is not Stop.CONVERGED:
        raise typer.Exit(NOT_CONVERGED)


def with_keys(fitted: Any, data: pd.DataFrame, *found: Any) -> pd.DataFrame:
    """What was found for each row, beside the row's subject, sequence and time."""
    import pandas as pd

    names = [fitted.columns[key] for key in ("subject", "sequence", "time")]
    return pd.concat([data[[name for name in names if name is not None]], *found], axis=1)


def table_ending(file: Path, word: str | None) -> str:
    """How the tables of a folder end: as --format says, or as the data that were read."""
    from avem.data.files import need_parquet, table_kind
    from avem.data.folders import table_files

    if word is not None and word not in _FORMATS:
        raise FileError(
            f"--format is {word!r}; csv or parquet is wanted.{did_you_mean(word, _FORMATS)}"
        )
    ending = table_kind(table_files(file)[0]) if word is None else f".{word}"
    if ending != ".parquet":
        return ".csv"
    need_parquet()
    return ending


def check_folder(
    out: Path, force: bool, tables: Iterable[str], plots: Iterable[str], ending: str = ".csv"
) -> None:
    """Say before any work is done why the results cannot go there."""
    names = (*_FILES, *(f"{table}{ending}" for table in tables), *(f"{p}.png" for p in plots))
    refuse_existing([out / name for name in names], force)
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise FileError(f"--out {str(out)!r}: {str(there)!r} is a file; a folder is wanted.")
    if not os.access(there, os.W_OK):
        raise FileError(f"--out {str(out)!r}: the folder {str(there)!r} cannot be written to.")


def check_table(out: Path, force: bool) -> None:
    """Say before any work is done why a table cannot be written there."""
    from avem.data.files import writable_kind

    check_file(out, force)
    writable_kind(out)


def check_file(out: Path, force: bool) -> None:
    """Say before any work is done why a file cannot be written there."""
    from avem.data.writing import is_stream, need_file

    need_file(out)
    if not is_stream(out):
        refuse_existing([out], force)


def refuse_existing(paths: Iterable[Path], force: bool) -> None:
    there = [str(path) for path in paths if path.exists()]
    if there and not force:
        raise FileError(f"{', '.join(there)} would be overwritten; add --force to allow it.")


# --- tables in and out -------------------------------------------------------------------------


def write_table(table: Any, out: Path) -> None:
    """Write the table, and say where it is."""
    from avem.data import files

    files.write_table(table, out)
    say_where(out)


def say_where(out: Path, with_size: bool = False) -> None:
    """Print what was written, unless it was written to a device such as this very output."""
    from avem.data.writing import is_stream

    if not is_stream(out):
        say(f"{out} ({out.stat().st_size / 1e6:.1f} MB)" if with_size else f"{out}")


def drawn_with_states(drawn: Any, name: str) -> pd.DataFrame:
    """Simulated data with a column for the states, or one for each latent state: x_0, x_1, ..."""
    if not name.strip():
        raise DataError("--states is empty; the name of a column is wanted.")
    frame, states = drawn.frame, drawn.states
    columns = {name: states}
    if states.ndim > 1:
        columns = {f"{name}_{k}": states[:, k] for k in range(states.shape[1])}
    there = [column for column in columns if column in frame]
    if there:
        raise DataError(f"--states {name!r}: there is a column {there[0]!r} already; name another.")
    return frame.assign(**columns)


def read_for(
    model: Any,
    path: Path,
    subject: str | None,
    time: str | None,
    sequence: str | None,
    missing: Collection[str],
) -> pd.DataFrame:
    """A table for a model, whose formulas may name the subject."""
    from avem.data.files import read_table

    groups = (group for part in model.spec.formulas for _, group in part.groups)
    columns = {"subject": next(groups, subject), "time": time, "sequence": sequence}
    return read_table(path, columns, missing)


def read_like(fitted: Any, path: Path, missing: Collection[str]) -> pd.DataFrame:
    """A table for a saved fit, its subjects read as text if the fit's are: 12 is not '12'."""
    from avem.data.files import read_table

    subject = str(fitted.columns["subject"])
    is_text = all(isinstance(label, str) for label in fitted.subjects.tolist())
    return read_table(path, fitted.columns, missing, text=[subject] if is_text else [])


def with_data(fitted: Any, path: Path, missing: Collection[str]) -> Any:
    """The fit with its data back, which must be the data that were fitted."""
    try:
        return fitted.with_data(read_like(fitted, path, missing))
    except DataError as error:
        raise DataError(f"{str(path)!r}: {error}") from error


def note_new_subjects(fitted: Fit, data: pd.DataFrame) -> None:
    from avem.data.frames import column, examples

    labels = column(data, str(fitted.columns["subject"]), "the subject").drop_duplicates()
    new = labels[~labels.isin(fitted.subjects.tolist())].tolist()
    if new and fitted.model.n_effects:
        typer.echo(
            f"avem: note: {len(new)} of {len(labels)} subjects are not in the fit "
            f"({examples(new)}); their effects come from these rows.",
            err=True,
        )


def empty_rows(fitted: Fit, n_subjects: int, n_times: int) -> pd.DataFrame:
    """Rows of subjects 1, 2, ..., each with one sequence of times 1, 2, ..."""
    from avem.data.grouping import blank_frame

    names = fitted.columns
    time = names["time"] or "time"
    rows = blank_frame(str(names["subject"]), n_subjects, n_times, time, first=1)
    if names["sequence"] is not None:
        rows.insert(1, names["sequence"], 1)
    return rows
