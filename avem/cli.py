"""The command `avem`: files in, files out.

Exit codes: 0 done; 2 the command or its input is wrong; 3 the fit did not converge (all files are
written); 130 interrupted before there was anything to keep; 1 anything else, a bug.

What is slow to import is imported inside the commands, so that `avem --help` answers at once.
"""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from avem.errors import AvemError, AvemWarning, DataError, FileError

if TYPE_CHECKING:
    import pandas as pd

    from avem.results.hmm_fit import HMMFit

_PLOTS = ("states", "effects", "bound", "emissions")
_FILES = ("fit.avem", "summary.txt", "parameters.csv", "effects.csv", "states.csv", "report.html")
_NOT_CONVERGED, _INTERRUPTED = 3, 130


class _Commands(TyperGroup):
    """Turns what the commands raise into one line on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # `avem summary FIT | head`: typer ends quietly
        except (AvemError, OSError) as error:
            typer.echo(f"avem: {' '.join(str(error).split())}", err=True)
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
            if end.code in (_NOT_CONVERGED, _INTERRUPTED):
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(end.code)
            raise


app = _App(
    name="avem",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FitFile = Annotated[Path, typer.Argument(metavar="FIT", help="A fit saved by avem (.avem).")]
DataFile = Annotated[Path, typer.Argument(metavar="FILE", help="The data: .csv, .tsv or .parquet.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are already there.")]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", envvar="AVEM_NO_CACHE", help="Do not keep compiled code on disk."),
]
MissingCodes = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-code",
        metavar="VALUE",
        help="A value that means missing, such as -99, in outcomes and covariates. Repeatable.",
    ),
]


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
    """Hidden Markov models with subject-specific random effects."""


@app.command()
def fit(
    file: DataFile,
    formula: Annotated[
        str, typer.Argument(metavar="FORMULA", help="Such as 'y1 + y2 ~ x + (1 + x | person)'.")
    ],
    states: Annotated[int, typer.Option(help="Number of states.")],
    out: Annotated[Path, typer.Option(help="Folder for the results; made if need be.")],
    time: Annotated[str | None, typer.Option(help="Column to sort the rows by.")] = None,
    sequence: Annotated[
        str | None, typer.Option(help="Column (session, day) that restarts the chain.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Subject column, if the formula names none.")
    ] = None,
    covariance: Annotated[
        str, typer.Option(help="Noise within a state: spherical, diagonal or full.")
    ] = "diagonal",
    effect_covariance: Annotated[
        str, typer.Option(help="Effects between subjects: full, diagonal or isotropic.")
    ] = "full",
    starts: Annotated[int, typer.Option(help="Starting points to try.")] = 8,
    seed: Annotated[int, typer.Option(help="For the starting points.")] = 0,
    max_iter: Annotated[int, typer.Option(help="Most iterations.")] = 500,
    plain: Annotated[
        bool, typer.Option("--plain", help="The paper's iteration to the letter.")
    ] = False,
    no_plots: Annotated[bool, typer.Option("--no-plots", help="Write no PNG files.")] = False,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit a model to a table and write everything about it into a folder."""
    _check_folder(out, force)
    _set_up_jax(no_cache)
    import avem
    from avem.data.files import read_table

    model = avem.MixedHMM(
        formula, states, avem.Gaussian(covariance), effect_covariance=effect_covariance
    )
    group = model.formula.groups[0][1] if model.formula.groups else subject
    columns = {"subject": group, "time": time, "sequence": sequence}
    data = read_table(file, columns, missing_code or ())
    options = {"n_starts": starts, "max_iter": max_iter, "seed": seed, "plain": plain}
    fitted = model.fit(data, subject, time, sequence, **options)
    _finish(fitted, data, out, plots=not no_plots)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo-output"),
    no_cache: NoCache = False,
) -> None:
    """Fit the mood diary that comes with avem and write everything about it into a folder."""
    _check_folder(out, force=True)
    _set_up_jax(no_cache)
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
    _finish(fitted, data, out, plots=True)


@app.command()
def decode(
    fit_file: FitFile,
    file: DataFile,
    out: Annotated[Path, typer.Option(help="Table to write: states and their probabilities.")],
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Find the states behind the rows of a table, with a saved fit."""
    from avem.data.files import write_table

    _refuse_existing([out], force)
    _set_up_jax(no_cache)
    fitted = _load(fit_file)
    data = _read_like(fitted, file, missing_code or ())
    _note_new_subjects(fitted, data)
    states = _with_keys(fitted, data, fitted.decode(data), fitted.state_probabilities(data))
    write_table(states, out)
    typer.echo(f"{out}")


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
    seed: Annotated[int | None, typer.Option(min=0, help="For the same draws again.")] = None,
    force: Force = False,
) -> None:
    """Draw a data set of new subjects from a saved fit."""
    from avem.data.files import write_table

    _refuse_existing([out], force)
    if (data is None) == (subjects is None and times is None):
        raise DataError("simulate needs either --data FILE, or --subjects N and --times T.")
    fitted = _load(fit_file)
    if data is not None:
        rows = _read_like(fitted, data, ())
    elif subjects is None or times is None:
        raise DataError("--subjects and --times go together.")
    else:
        rows = _empty_rows(fitted, subjects, times)
    try:
        drawn = fitted.simulate(rows, seed=seed)
    except DataError as error:
        if data is not None:
            raise
        raise DataError(f"{error} Give --data with the covariates of every row.") from error
    write_table(drawn.frame, out)
    typer.echo(f"{out}")


@app.command()
def summary(fit_file: FitFile) -> None:
    """Print the summary of a saved fit."""
    typer.echo(str(_load(fit_file).summary()))


@app.command()
def report(
    fit_file: FitFile,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")],
    data: Annotated[
        Path | None, typer.Option(help="The data that were fitted, for pictures of the states.")
    ] = None,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Write the report of a saved fit as one HTML file."""
    _refuse_existing([out], force)
    _set_up_jax(no_cache)
    from avem.results.report import write_report

    fitted = _load(fit_file)
    if data is not None:
        fitted = _with_data(fitted, data, missing_code or ())
    write_report(fitted, out)
    typer.echo(f"{out}")


# --- what a fit leaves behind ------------------------------------------------------------------


def _finish(fitted: HMMFit, data: pd.DataFrame, out: Path, plots: bool) -> None:
    """Write all files, print the summary, and end with the fit's exit code."""
    from avem import Stop
    from avem.data.files import write_table
    from avem.results.report import write_report

    out.mkdir(parents=True, exist_ok=True)
    fitted.save(out / "fit.avem")  # first, so that nothing that follows can lose it
    text = str(fitted.summary())
    typer.echo(text)
    (out / "summary.txt").write_text(text + "\n", encoding="utf-8")
    write_table(fitted.table(), out / "parameters.csv")
    write_table(fitted.effects(), out / "effects.csv")
    states = _with_keys(fitted, data, fitted.decode(), fitted.state_probabilities())
    write_table(states, out / "states.csv")
    write_report(fitted, out / "report.html")
    written = [*_FILES]
    for name in _PLOTS if plots else ():
        if name != "effects" or fitted.model.n_effects:
            getattr(fitted.plot, name)().savefig(out / f"{name}.png", dpi=150)
            written.append(f"{name}.png")
    typer.echo("\nWritten:\n" + "\n".join(f"  {out / name}" for name in written))
    if fitted.stop is not Stop.CONVERGED:
        raise typer.Exit(_NOT_CONVERGED)


def _with_keys(fitted: HMMFit, data: pd.DataFrame, *found: Any) -> pd.DataFrame:
    """What was found for each row, beside the row's subject, sequence and time."""
    import pandas as pd

    names = [fitted.columns[key] for key in ("subject", "sequence", "time")]
    return pd.concat([data[[name for name in names if name is not None]], *found], axis=1)


def _check_folder(out: Path, force: bool) -> None:
    """Say before any work is done why the results cannot go there."""
    _refuse_existing([out / name for name in (*_FILES, *(f"{p}.png" for p in _PLOTS))], force)
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not there.is_dir():
        raise FileError(f"--out {str(out)!r}: {str(there)!r} is a file; a folder is wanted.")
    if not os.access(there, os.W_OK):
        raise FileError(f"--out {str(out)!r}: the folder {str(there)!r} cannot be written to.")


def _refuse_existing(paths: Iterable[Path], force: bool) -> None:
    there = [str(path) for path in paths if path.exists()]
    if there and not force:
        raise FileError(f"{', '.join(there)} would be overwritten; add --force to allow it.")


# --- tables in and out -------------------------------------------------------------------------


def _load(path: Path) -> HMMFit:
    from avem.results.saving import load

    return load(path)


def _read_like(fitted: HMMFit, path: Path, missing: Collection[str]) -> pd.DataFrame:
    """A table for a saved fit, its subjects read as text if the fit's are: 12 is not '12'."""
    from avem.data.files import read_table

    subject = str(fitted.columns["subject"])
    is_text = all(isinstance(label, str) for label in fitted.subjects.tolist())
    return read_table(path, fitted.columns, missing, text=[subject] if is_text else [])


def _with_data(fitted: HMMFit, path: Path, missing: Collection[str]) -> HMMFit:
    """The fit with its data back, which must be the data that were fitted."""
    import numpy as np

    from avem import Panel

    names = fitted.columns
    frame = _read_like(fitted, path, missing)
    panel = Panel.from_frame(
        frame, str(names["subject"]), time=names["time"], sequence=names["sequence"]
    )
    same = panel.n_rows == fitted.info.n_rows and panel.n_lanes == fitted.info.n_sequences
    if not same or not np.array_equal(panel.subjects, fitted.subjects):
        raise DataError(
            f"{str(path)!r} is not what was fitted: it has {panel.n_rows:,} rows of "
            f"{panel.n_subjects:,} subjects in {panel.n_lanes:,} sequences; the fit had "
            f"{fitted.info.n_rows:,}, {len(fitted.subjects):,} and {fitted.info.n_sequences:,}, "
            f"its first subject being {fitted.subjects[0]!r}."
        )
    return replace(fitted, panel=panel)


def _note_new_subjects(fitted: HMMFit, data: pd.DataFrame) -> None:
    from avem.data.frames import column, examples

    labels = column(data, str(fitted.columns["subject"]), "the subject").drop_duplicates()
    new = labels[~labels.isin(fitted.subjects.tolist())].tolist()
    if new and fitted.model.n_effects:
        typer.echo(
            f"avem: note: {len(new)} of {len(labels)} subjects are not in the fit "
            f"({examples(new)}); their effects come from these rows.",
            err=True,
        )


def _empty_rows(fitted: HMMFit, n_subjects: int, n_times: int) -> pd.DataFrame:
    """Rows of subjects 1, 2, ..., each with one sequence of times 1, 2, ..."""
    import numpy as np
    import pandas as pd

    names = fitted.columns
    columns = {names["subject"]: np.repeat(np.arange(1, n_subjects + 1), n_times)}
    if names["sequence"] is not None:
        columns[names["sequence"]] = np.ones(n_subjects * n_times, int)
    columns[names["time"] or "time"] = np.tile(np.arange(1, n_times + 1), n_subjects)
    return pd.DataFrame(columns)


# --- the process -------------------------------------------------------------------------------


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show avem's warnings as one line, without the place in the code where they arose."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AvemWarning)
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, AvemWarning):
                typer.echo(f"avem: warning: {message}", err=True)
            else:
                shown(message, category, *rest)

        warnings.showwarning = show
        yield


def _set_up_jax(no_cache: bool) -> None:
    """Keep compiled code between runs: a command is short, and compiling is most of it."""
    import jax

    folder = None if no_cache else _cache_folder()
    if folder is None:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _cache_folder() -> Path | None:
    """This user's folder for compiled code, or None where there is none to write to.

    Each machine has its own: a home shared by machines with different processors would otherwise
    hand code compiled for one to another.
    """
    try:
        folder = _user_cache() / "avem" / (platform.node() or "here")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return None
    return folder if os.access(folder, os.W_OK) else None


def _user_cache() -> Path:
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
