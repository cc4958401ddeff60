"""The command `avem predict`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from avem.cli._files import note_new_subjects, read_like, refuse_existing
from avem.cli._options import DataFile, FitFile, Force, MissingCodes, NoCache
from avem.cli._process import set_up_jax
from avem.errors import DataError


def predict(
    fit_file: FitFile,
    file: DataFile,
    out: Annotated[Path, typer.Option(help="Table to write: a row per sequence and step ahead.")],
    horizon: Annotated[int, typer.Option(help="Steps beyond the end of every sequence.")] = 10,
    future: Annotated[
        Path | None,
        typer.Option(help="Table with the covariates of the steps ahead, if the model has any."),
    ] = None,
    of: Annotated[str, typer.Option(help="outcomes or states.")] = "outcomes",
    level: Annotated[float, typer.Option(help="Probability of the intervals.")] = 0.95,
    effects: Annotated[
        str, typer.Option(help="integrated over what is not known of them, or fitted.")
    ] = "integrated",
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Predict what follows the rows of a table, with a saved fit of any model."""
    from avem.data.files import write_table
    from avem.fits.io.saving import load

    refuse_existing([out], force)
    set_up_jax(no_cache)
    fitted = load(fit_file)
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
    typer.echo(f"{out}")
