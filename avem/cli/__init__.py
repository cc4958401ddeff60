"""The command `avem`: files in, files out.

Exit codes: 0 done; 2 the command or its input is wrong; 3 the fit did not converge (all files are
written); 130 interrupted before there was anything to keep; 1 anything else, a bug.

What is slow to import is imported inside the commands, so that `avem --help` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from avem.cli._files import (
    NOT_CONVERGED,
    check_folder,
    drawn_with_states,
    empty_rows,
    finish,
    note_new_subjects,
    read_for,
    read_like,
    refuse_existing,
    states_of,
    with_data,
)
from avem.cli._options import (
    DataFile,
    FitFile,
    Force,
    MissingCodes,
    NoCache,
    NoPlots,
    SequenceColumn,
    SubjectColumn,
    TimeColumn,
)
from avem.cli._outcomes import Defaults, read_outcomes, read_states
from avem.cli._predict import predict
from avem.cli._process import find_studies, plain_warnings, set_up_jax
from avem.cli._ssm import fit_ssm, read_names
from avem.errors import AvemError, DataError, ModelError

_INTERRUPTED = 130


def _here(message: str) -> str:
    """A message with what it advises in Python as options of the command."""
    return re.sub(r"give subject='([^']*)' to fit\(\)", r"give --subject '\1'", message)


class _Commands(TyperGroup):
    """Turns what the commands raise into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with plain_warnings():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # `avem summary FIT | head`: typer ends quietly
        except (AvemError, OSError) as error:
            typer.echo(f"avem: {_here(' '.join(str(error).split()))}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("avem: interrupted.", err=True)
            raise typer.Exit(_INTERRUPTED) from None


class _App(typer.Typer):
    """The command as a process; tests call the commands without it."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__call__(*args, **kwargs)
        except SystemExit as end:
            # After an interrupt JAX may still compute in the background, and Python, ending the
            # usual way, take its data away: a crash that would hide the exit code.
            if end.code in (NOT_CONVERGED, _INTERRUPTED):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code)
            raise


app = _App(
    name="avem",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        import avem

        typer.echo(f"avem {avem.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Hidden Markov and state-space models with subject-specific random effects."""


@app.command()
def fit(
    file: DataFile,
    states: Annotated[int, typer.Option(help="Number of states.")],
    out: Annotated[Path, typer.Option(help="Folder for the results; made if need be.")],
    formula: Annotated[
        str | None,
        typer.Argument(metavar="FORMULA", help="Such as 'y1 + y2 ~ x + (1 + x | person)'."),
    ] = None,
    named_formula: Annotated[
        str | None, typer.Option("--formula", help="FORMULA, as an option.")
    ] = None,
    family: Annotated[
        str, typer.Option(help="Of the outcomes: gaussian, bernoulli, poisson, gamma, ...")
    ] = "gaussian",
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OUTCOME",
            help="Instead of FORMULA, for outcomes of several families; repeatable. Such as "
            "'gamma: step ~ x + (1 | id)', or with a formula for a parameter of the family, "
            "'gamma(shape ~ x): step ~ 1'.",
        ),
    ] = None,
    transition: Annotated[
        str, typer.Option(help="Formula of the transitions: '~ x + (1 | person)'.")
    ] = "~ 1",
    initial: Annotated[
        str, typer.Option(help="Formula of the first state, or: stationary.")
    ] = "~ 1",
    time: TimeColumn = None,
    sequence: SequenceColumn = None,
    subject: SubjectColumn = None,
    covariance: Annotated[
        str | None,
        typer.Option(
            help="Of gaussian outcomes within a state: spherical, diagonal or full.",
            show_default="diagonal",
        ),
    ] = None,
    trials: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Of binomial outcomes: column with their number, or the number."
        ),
    ] = None,
    effect_covariance: Annotated[
        str, typer.Option(help="Effects between subjects: full, block, diagonal or isotropic.")
    ] = "full",
    effects_by_state: Annotated[
        bool, typer.Option("--effects-by-state", help="Every state has effects of its own.")
    ] = False,
    method: Annotated[
        str,
        typer.Option(
            help="avem, adaptive (maximum likelihood), partial, mean_field, structured, quadrature "
            "or monte_carlo."
        ),
    ] = "avem",
    refine: Annotated[
        str,
        typer.Option(
            help="Go on from AVEM's solution to maximum likelihood: auto (where anchoring does not "
            "hold), adaptive (always) or never."
        ),
    ] = "auto",
    q_update: Annotated[
        str, typer.Option(help="Effects without a closed form: laplace or quadrature.")
    ] = "laplace",
    standard_errors: Annotated[
        bool,
        typer.Option("--standard-errors", help="Also in parameters.csv: errors and intervals."),
    ] = False,
    starts: Annotated[int, typer.Option(help="Starting points to try.")] = 8,
    seed: Annotated[int, typer.Option(help="For the starting points.")] = 0,
    max_iter: Annotated[int, typer.Option(help="Most iterations.")] = 500,
    plain: Annotated[
        bool, typer.Option("--plain", help="The paper's iteration to the letter.")
    ] = False,
    no_plots: NoPlots = False,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit a model to a table and write everything about it into a folder."""
    if formula is not None and named_formula is not None:
        raise ModelError("The formula is there twice: as FORMULA and as --formula.")
    check_folder(out, force)
    set_up_jax(no_cache)
    import avem
    from avem.inference.methods.names import method_with

    defaults = Defaults(family, covariance, trials, effects_by_state)
    model = avem.MixedHMM(
        read_outcomes(formula or named_formula, outcome or (), defaults),
        states,
        transition=transition,
        initial=initial,
        effect_covariance=cast(Any, effect_covariance),  # the model checks words
    )
    data = read_for(model, file, subject, time, sequence, missing_code or ())
    fitted = model.fit(
        data,
        subject,
        time,
        sequence,
        method=method_with(method, {"q_update": q_update}),
        refine=None if refine == "never" else cast(Any, refine),
        n_starts=starts,
        max_iter=max_iter,
        seed=seed,
        plain=plain,
    )
    finish(fitted, data, out, plots=not no_plots, standard_errors=standard_errors)


app.command("fit-ssm")(fit_ssm)


@app.command()
def select(
    file: DataFile,
    formula: Annotated[
        str,
        typer.Argument(
            metavar="FORMULA", help="As for fit; with --latent as --outcomes of fit-ssm."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Table to write: a row per number of states.")],
    states: Annotated[
        str | None,
        typer.Option(metavar="A-B", help="Numbers of states to try.", show_default="1-5"),
    ] = None,
    latent: Annotated[
        str | None,
        typer.Option(
            metavar="A-B", help="For a state-space model: numbers of latent states to try."
        ),
    ] = None,
    family: Annotated[str, typer.Option(help="Of the outcomes of an HMM.")] = "gaussian",
    transition: Annotated[str, typer.Option(help="Formula of an HMM's transitions.")] = "~ 1",
    criterion: Annotated[str, typer.Option(help="bic, aic, icl (of an HMM) or held_out.")] = "bic",
    folds: Annotated[
        int | None, typer.Option(help="Also cross-validate, with so many folds.")
    ] = None,
    by: Annotated[str, typer.Option(help="What is held out: subjects or time.")] = "subjects",
    time: TimeColumn = None,
    sequence: SequenceColumn = None,
    subject: SubjectColumn = None,
    seed: Annotated[int, typer.Option(help="For starting points and folds.")] = 0,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit models with several numbers of states and compare them."""
    from avem.data.files import write_table

    refuse_existing([out], force)
    set_up_jax(no_cache)
    import avem

    if latent is None:
        model = avem.MixedHMM(formula, 2, family, transition=transition)
        numbers = {"states": read_states(states or "1-5")}
    else:
        if states is not None or family != "gaussian" or transition != "~ 1":
            raise ModelError(
                "--latent is for a state-space model; --states, --family and "
                "--transition are for an HMM."
            )
        model = avem.MixedSSM(read_names(formula), 1, subject=subject)
        numbers = {"latent": read_states(latent, "--latent")}
    data = read_for(model, file, subject, time, sequence, missing_code or ())
    found = avem.select(
        model,
        data,
        **numbers,
        criterion=cast(Any, criterion),
        cv=None if folds is None else {"folds": folds, "by": by, "seed": seed},
        subject=subject,
        time=time,
        sequence=sequence,
        seed=seed,
    )
    typer.echo(repr(found))
    write_table(found.table, out)
    typer.echo(f"\n{out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo-output"),
    no_cache: NoCache = False,
) -> None:
    """Fit the mood diary that comes with avem and write everything about it into a folder."""
    check_folder(out, force=True)
    set_up_jax(no_cache)
    import avem
    from avem.data.examples import load_affect

    data = load_affect()
    formula = "valence + arousal ~ stress + (1 + stress | person)"
    typer.echo(
        f"A simulated diary of mood: {data['person'].nunique()} people, {len(data):,} prompts, one "
        "in seven of them unanswered.\nMood moves between 3 hidden states; people differ in their "
        "level and in their response to stress.\nIn Python:\n\n"
        f'  avem.MixedHMM("{formula}", n_states=3).fit(\n'
        '      avem.load_affect(), time="beep", sequence="day")\n\n'
        "Fitting (the first run on a machine also compiles, which takes longer) ...\n"
    )
    fitted = avem.MixedHMM(formula, n_states=3).fit(data, time="beep", sequence="day")
    finish(fitted, data, out, plots=True)


@app.command()
def decode(
    fit_file: FitFile,
    file: DataFile,
    out: Annotated[Path, typer.Option(help="Table to write.")],
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Find the states behind the rows of a table, with a saved fit.

    Of an HMM, the most probable path and the probabilities of all states; of a state-space model,
    the smoothed states with standard deviations and 95 % bands.
    """
    from avem.data.files import write_table

    refuse_existing([out], force)
    set_up_jax(no_cache)
    from avem.fits.io.saving import load

    fitted = load(fit_file)
    data = read_like(fitted, file, missing_code or ())
    note_new_subjects(fitted, data)
    write_table(states_of(fitted, data), out)
    typer.echo(f"{out}")


app.command()(predict)


@app.command()
def simulate(
    fit_file: FitFile,
    out: Annotated[Path, typer.Option(help="Table to write.")],
    data: Annotated[
        Path | None, typer.Option(help="Table with the subjects, times and covariates to use.")
    ] = None,
    subjects: Annotated[
        int | None, typer.Option(min=1, help="Without --data: how many subjects.")
    ] = None,
    times: Annotated[
        int | None, typer.Option(min=1, help="Without --data: how many rows each.")
    ] = None,
    states: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Also write the state behind each row, as this column (several latent states: "
            "COLUMN_0, COLUMN_1, ...).",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For the same draws again.")] = None,
    force: Force = False,
) -> None:
    """Draw a data set of new subjects from a saved fit."""
    from avem.data.files import write_table

    refuse_existing([out], force)
    if (data is None) == (subjects is None and times is None):
        raise DataError("simulate needs either --data FILE, or --subjects N and --times T.")
    from avem.fits.io.saving import load

    fitted = load(fit_file)
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
    frame = drawn.frame if states is None else drawn_with_states(drawn, states)
    write_table(frame, out)
    typer.echo(f"{out}")


@app.command()
def summary(fit_file: FitFile) -> None:
    """Print the summary of a saved fit."""
    from avem.fits.io.saving import load

    typer.echo(str(load(fit_file).summary()))


@app.command()
def report(
    fit_file: FitFile,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="The data that were fitted, for all that needs them."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="DATA, as an option.")] = None,
    timelines: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most subjects to keep the rows of.", show_default="some megabytes' worth"
        ),
    ] = None,
    thorough: Annotated[
        bool | None,
        typer.Option(
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
    refuse_existing([out], force)
    set_up_jax(no_cache)
    from avem.fits.io.saving import load
    from avem.fits.report import write_report

    fitted = load(fit_file)
    rows = data if file is None else file
    if rows is not None:
        fitted = with_data(fitted, rows, missing_code or ())
    write_report(fitted, out, timelines=timelines, thorough=thorough)
    typer.echo(f"{out} ({out.stat().st_size / 1e6:.1f} MB)")


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as gaussian-accuracy.")],
    reps: Annotated[
        int | None,
        typer.Option(min=1, help="Replicates per setting.", show_default="as the study says"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at a time.")] = 2,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the results.", show_default="docs/studies/NAME"),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="paper (from the authors' start, by their rule), converged (what a user gets) or "
            "both."
        ),
    ] = "both",
    quick: Annotated[
        bool, typer.Option("--quick", help="A few replicates of a few settings: about a minute.")
    ] = False,
) -> None:
    """Run one of the paper's simulation studies, or go on with it where it was stopped."""
    find_studies().run_study(name, reps, jobs, out, protocol, quick)
