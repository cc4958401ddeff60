"""The command that fits a state-space model: `avem fit-ssm`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer
from typer import Option

from avem.cli._files import check_folder, finish, read_for, read_like, table_ending, with_keys
from avem.cli._options import (
    DataFile,
    Force,
    Future,
    MissingCodes,
    NoCache,
    NoPlots,
    OutFolder,
    Seed,
    SequenceColumn,
    SubjectColumn,
    TableFormat,
    TimeColumn,
    TimeScale,
    TimeUnit,
    WeightColumn,
    WeightsKind,
    given_options,
)
from avem.cli._outcomes import names_in, read_names
from avem.cli._process import set_up_jax
from avem.errors import DataError

_TABLES = ("parameters", "effects", "states", "residuals", "whiteness", "forecast")
_PLOTS = ("states", "loadings", "effects", "residuals", "forecast", "bound")


def fit_ssm(
    file: DataFile,
    outcomes: Annotated[
        str,
        Option(
            metavar="Y1,Y2,...",
            help="Outcome columns, or a formula with covariates: 'y1 + y2 ~ x + (1 | person)'.",
        ),
    ],
    n_latent: Annotated[int, Option("--n-latent", "--latent", help="Dimension of the states.")],
    out: OutFolder,
    subject: SubjectColumn = None,
    time: TimeColumn = None,
    sequence: SequenceColumn = None,
    state: Annotated[
        str | None, Option(help="Formula of covariates that move the states: '~ 0 + x'.")
    ] = None,
    random: Annotated[
        str | None,
        Option(
            help="What differs between subjects: both, transition (drift in continuous time), "
            "loading or none.",
            show_default="both",
        ),
    ] = None,
    time_scale: TimeScale = "discrete",
    unit: TimeUnit = None,
    weights: WeightColumn = None,
    weights_kind: WeightsKind = "survey",
    effect_covariance: Annotated[
        str | None, Option(help="Effects between subjects: full or diagonal.")
    ] = None,
    state_names: Annotated[
        str | None,
        Option(
            metavar="A,B,...",
            help="Names of the states, in their order: the first outcome loads on the first state "
            "alone, the second one on the first two, and so on.",
        ),
    ] = None,
    method: Annotated[str | None, Option(help="As for fit.", show_default="avem")] = None,
    refine: Annotated[str | None, Option(help="As for fit: auto, adaptive or never.")] = None,
    starts: Annotated[int | None, Option(help="Starting points to try.")] = None,
    seed: Seed = 0,
    max_iter: Annotated[int | None, Option(help="Most iterations.")] = None,
    horizon: Annotated[int, Option(help="Steps to forecast; 0 for none.", min=0)] = 10,
    future: Future = None,
    table_format: TableFormat = None,
    no_plots: NoPlots = False,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit a state-space model to a table and write everything about it into a folder."""
    ending = table_ending(file, table_format)
    check_folder(out, force, _TABLES, _PLOTS, ending)
    set_up_jax(no_cache)
    import avem

    model = avem.MixedSSM(
        read_names(outcomes),
        n_latent,
        **given_options(
            subject=subject,
            state=state,
            random=random if random is None or "," not in random else names_in(random, "--random"),
            effect_covariance=effect_covariance,
            state_names=None if state_names is None else names_in(state_names, "--state-names"),
            time_scale=None if time_scale == "discrete" else time_scale,
            unit=unit,
        ),
    )
    data = read_for(model, file, subject, time, sequence, missing_code or ())
    if future is not None:  # a file that cannot be read is told before the fit
        read_for(model, future, subject, time, sequence, missing_code or ())
    options = given_options(method=method, refine=refine, n_starts=starts, max_iter=max_iter)
    if refine == "never":
        options["refine"] = None
    options |= {"weights": weights, "weights_kind": weights_kind}
    fitted = model.fit(data, time=time, sequence=sequence, seed=seed, **options)
    later = None if future is None else read_like(fitted, future, missing_code or ())
    ahead = {"horizon": horizon, "future": later}
    tables = partial(_own_tables, fitted, data, ahead)
    plots = () if no_plots else _PLOTS
    finish(fitted, data, out, plots, tables, ending=ending, forecast=ahead)


def _own_tables(fitted: Any, data: Any, ahead: dict[str, Any]) -> dict[str, Any]:
    """What is written of a state-space model alone."""
    tables = {
        "residuals": with_keys(fitted, data, fitted.residuals()),
        "whiteness": fitted.whiteness(),
    }
    if ahead["horizon"]:
        try:
            tables["forecast"] = fitted.predict(**ahead)
        except DataError as error:  # of the forecast alone: the fit is as good without it
            typer.echo(f"avem: note: no forecast. {error} Here that is --future FILE.", err=True)
    return tables
