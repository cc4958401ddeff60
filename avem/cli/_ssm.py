"""The command `avem fit-ssm`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from avem.cli._files import (
    check_folder,
    read_for,
    read_like,
    say_written,
    start_folder,
    with_keys,
    write_plots,
    write_tables,
)
from avem.cli._options import (
    DataFile,
    Force,
    MissingCodes,
    NoCache,
    NoPlots,
    SequenceColumn,
    SubjectColumn,
    TimeColumn,
)
from avem.cli._process import set_up_jax
from avem.errors import DataError

_TABLES = ("parameters", "effects", "states", "residuals", "whiteness", "forecast")
_PLOTS = ("states", "loadings", "effects", "residuals", "forecast", "bound")


def fit_ssm(
    file: DataFile,
    outcomes: Annotated[
        str,
        typer.Option(
            metavar="Y1,Y2,...",
            help="Outcome columns, or a formula with covariates: 'y1 + y2 ~ x + (1 | person)'.",
        ),
    ],
    n_latent: Annotated[
        int, typer.Option("--n-latent", "--latent", help="Dimension of the states.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results; made if need be.")],
    subject: SubjectColumn = None,
    time: TimeColumn = None,
    sequence: SequenceColumn = None,
    state: Annotated[
        str | None, typer.Option(help="Formula of covariates that act on the states: '~ x'.")
    ] = None,
    random: Annotated[
        str | None,
        typer.Option(
            help="What differs between subjects: both, transition, loading or none.",
            show_default="both",
        ),
    ] = None,
    effect_covariance: Annotated[
        str | None, typer.Option(help="Effects between subjects: full or diagonal.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="As for fit.", show_default="avem")] = None,
    refine: Annotated[str | None, typer.Option(help="As for fit: auto, adaptive or never.")] = None,
    starts: Annotated[int | None, typer.Option(help="Starting points to try.")] = None,
    seed: Annotated[int, typer.Option(help="For the starting points.")] = 0,
    max_iter: Annotated[int | None, typer.Option(help="Most iterations.")] = None,
    horizon: Annotated[int, typer.Option(help="Steps to forecast; 0 for none.", min=0)] = 10,
    future: Annotated[
        Path | None,
        typer.Option(help="Table with the covariates of the steps ahead, if the model has any."),
    ] = None,
    no_plots: NoPlots = False,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit a state-space model to a table and write everything about it into a folder."""
    files = ("fit.avem", "summary.txt", "report.html", *(f"{name}.csv" for name in _TABLES))
    check_folder(out, force, files, _PLOTS)
    set_up_jax(no_cache)
    import avem

    model = avem.MixedSSM(
        read_names(outcomes),
        n_latent,
        **_given(
            subject=subject,
            state=state,
            random=random if random is None or "," not in random else _names(random),
            effect_covariance=effect_covariance,
        ),
    )
    data = read_for(model, file, subject, time, sequence, missing_code or ())
    options = _given(method=method, refine=refine, n_starts=starts, max_iter=max_iter)
    if refine == "never":
        options["refine"] = None
    fitted = model.fit(data, time=time, sequence=sequence, seed=seed, **options)
    later = None if future is None else read_like(fitted, future, missing_code or ())
    _finish(fitted, data, out, horizon, later, plots=not no_plots)


def _finish(fitted: Any, data: Any, out: Path, horizon: int, future: Any, plots: bool) -> None:
    """Write all files, print the summary, and end with the fit's exit code."""
    from avem.fits.report import write_report

    written = start_folder(fitted, out)
    tables = {
        "parameters": fitted.table(),
        "effects": fitted.effects(),
        "states": with_keys(fitted, data, fitted.states()),
        "residuals": with_keys(fitted, data, fitted.residuals()),
        "whiteness": fitted.whiteness(),
    }
    left_out = set() if fitted.model.n_effects else {"effects"}
    if horizon:
        try:
            tables["forecast"] = fitted.predict(horizon=horizon, future=future)
        except DataError as error:  # of the forecast alone: the fit is as good without it
            typer.echo(f"avem: note: no forecast. {error} Here that is --future FILE.", err=True)
    written += write_tables(tables, out)
    left_out |= set() if "forecast" in tables else {"forecast"}
    shown = [name for name in _PLOTS if name not in left_out]
    ahead = {"horizon": horizon, "future": future}
    write_report(fitted, out / "report.html", thorough=False)
    written.append("report.html")
    written += write_plots(fitted, shown if plots else [], out, forecast=ahead)
    say_written(fitted, written, out)


def read_names(text: str) -> str | list[str]:
    """Outcomes as they were typed: a formula, or names with commas between them."""
    return text if "~" in text else _names(text)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others keep the library's own defaults."""
    return {name: value for name, value in options.items() if value is not None}
