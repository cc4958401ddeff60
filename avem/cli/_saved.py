"""The commands that use a saved fit: `avem decode`, `predict`, `simulate`, `summary`, `report`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from avem.cli._files import (
    check_file,
    check_table,
    drawn_with_states,
    empty_rows,
    note_new_subjects,
    read_like,
    say_where,
    with_data,
    with_keys,
    write_table,
)
from avem.cli._options import (
    DataFile,
    FitFile,
    Force,
    Future,
    MissingCodes,
    NoCache,
    OutTable,
    PathArgument,
    PathOption,
)
from avem.cli._process import say, set_up_jax
from avem.errors import DataError


def _open(fit_file: Path, out: Path, force: bool, no_cache: bool) -> Any:
    """The saved fit, once it is known that a table may be written."""
    check_table(out, force)
    set_up_jax(no_cache)
    return _load(fit_file)


def _load(fit_file: Path) -> Any:
    from avem.fits.io.saving import load

    return load(fit_file)


def decode(
    fit_file: FitFile,
    file: DataFile,
    out: OutTable,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Find the states behind the rows of a table, with a saved fit.

    Of an HMM, the most probable path and the probabilities of all states; of a state-space model,
    the smoothed states with standard deviations and 95 % bands.
    """
    fitted = _open(fit_file, out, force, no_cache)
    data = read_like(fitted, file, missing_code or ())
    note_new_subjects(fitted, data)
    write_table(with_keys(fitted, data, *fitted._states_by_row(data)), out)


def predict(
    fit_file: FitFile,
    file: DataFile,
    out: Annotated[Path, PathOption(help="Table to write: a row per sequence and step ahead.")],
    horizon: Annotated[int, Option(help="Steps beyond the end of every sequence.")] = 10,
    future: Future = None,
    of: Annotated[str, Option(help="outcomes or states.")] = "outcomes",
    level: Annotated[float, Option(help="Probability of the intervals.")] = 0.95,
    effects: Annotated[
        str, Option(help="integrated over what is not known of them, or fitted.")
    ] = "integrated",
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Predict what follows the rows of a table, with a saved fit of any model."""
    fitted = _open(fit_file, out, force, no_cache)
    data = read_like(fitted, file, missing_code or ())
    later = None if future is None else read_like(fitted, future, missing_code or ())
    note_new_subjects(fitted, data)
    with suppress(DataError):  # with its rows back, a fit finds its effects by integration
        fitted = fitted.with_data(data)
    try:
        options = {"of": of, "level": level, "effects": effects}
        table = fitted.predict(data, horizon=horizon, future=later, **options)
    except DataError as error:
        if later is not None or "future=" not in str(error):
            raise
        raise DataError(f"{error} Here that is --future FILE.") from error
    write_table(table, out)


def simulate(
    fit_file: FitFile,
    out: OutTable,
    data: Annotated[
        Path | None, PathOption(help="Table with the subjects, times and covariates to use.")
    ] = None,
    subjects: Annotated[
        int | None, Option(min=1, help="Without --data: how many subjects.")
    ] = None,
    times: Annotated[int | None, Option(min=1, help="Without --data: how many rows each.")] = None,
    states: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Also write the state behind each row, as this column (several latent states: "
            "COLUMN_0, COLUMN_1, ...).",
        ),
    ] = None,
    seed: Annotated[int | None, Option(min=0, help="For the same draws again.")] = None,
    force: Force = False,
) -> None:
    """Draw a data set of new subjects from a saved fit."""
    check_table(out, force)
    if (data is None) == (subjects is None and times is None):
        raise DataError("simulate needs either --data FILE, or --subjects N and --times T.")
    fitted = _load(fit_file)
    if data is not None:
        rows = read_like(fitted, data, ())
    elif subjects is None or times is None:
        raise DataError("--subjects and --times go together.")
    else:
        rows = empty_rows(fitted, subjects, times)
    try:
        drawn = fitted.simulate(rows, seed=seed)
    except DataError as error:
        if data is not None:
            raise
        raise DataError(f"{error} Give --data with the covariates of every row.") from error
    write_table(drawn.frame if states is None else drawn_with_states(drawn, states), out)


def summary(fit_file: FitFile) -> None:
    """Print the summary of a saved fit."""
    say(str(_load(fit_file).summary(errors=False)))


def report(
    fit_file: FitFile,
    out: Annotated[Path, PathOption(help="The HTML file to write.")],
    file: Annotated[
        Path | None,
        PathArgument(metavar="[DATA]", help="The data that were fitted, for all that needs them."),
    ] = None,
    data: Annotated[Path | None, PathOption(help="DATA, as an option.")] = None,
    title: Annotated[
        str | None, Option(metavar="TEXT", help="Heading of the page.", show_default="avem's own")
    ] = None,
    timelines: Annotated[
        int | None,
        Option(
            min=1, help="Most subjects to keep the rows of.", show_default="some megabytes' worth"
        ),
    ] = None,
    thorough: Annotated[
        bool | None,
        Option(
            "--thorough/--quick",
            help="With or without standard errors and diagnosis, which may take long.",
            show_default="with, for small panels",
        ),
    ] = None,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Write the report of a saved fit, of either kind of model, as one HTML file."""
    if file is not None and data is not None:
        raise DataError("The data are there twice: as DATA and as --data.")
    check_file(out, force)
    set_up_jax(no_cache)
    fitted = _load(fit_file)
    rows = data if file is None else file
    if rows is not None:
        fitted = with_data(fitted, rows, missing_code or ())
    fitted.report(out, title=title, timelines=timelines, thorough=thorough)
    say_where(out, with_size=True)
