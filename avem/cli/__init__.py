"""The command `avem`: files in, files out.

Exit codes: 0 done; 2 the command or its input is wrong; 3 the fit did not converge (all files are
written); 130 interrupted before there was anything to keep; 1 anything else, a bug.

What is slow to import is imported inside the commands, so that `avem --help` answers at once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from avem.cli._demo import demo
from avem.cli._files import NOT_CONVERGED
from avem.cli._fit import fit
from avem.cli._fit_ssm import fit_ssm
from avem.cli._options import PathOption
from avem.cli._process import find_studies, plain_warnings
from avem.cli._saved import decode, predict, report, simulate, summary
from avem.cli._select import select
from avem.errors import AvemError

_INTERRUPTED = 130
_NOBODY_READS = 141
_LONGEST = 1000


_UsageError: Any = typer.BadParameter.__base__
"""Of a command that cannot be read; Typer has it in another place from version to version."""


def _here(message: str) -> str:
    """A message with what it advises in Python as options of the command."""
    return re.sub(r"give subject='([^']*)' to fit\(\)", r"give --subject '\1'", message)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Turn what is raised into one line on stderr and an exit code."""
    try:
        yield
    except BrokenPipeError:
        _leave()
    except SystemExit as end:
        if end.code != 1:  # Rich's word for a broken pipe, while it shows the help
            raise
        _leave()
    except _UsageError as error:
        command = "avem" if error.ctx is None else error.ctx.command_path
        message = error.format_message().rstrip(".")
        if "unexpected extra argument" in message:
            message += ". A formula, and a pattern of files, need quotes: 'folder/*.csv'"
        _complain(f"{message}{'' if message.endswith('?') else '.'} See {command} --help.")
    except (AvemError, OSError) as error:
        _complain(_here(str(error)))
    except MemoryError as error:
        _complain(f"Out of memory. {error} Use fewer rows, states or effects, or a larger machine.")
    except KeyboardInterrupt:
        typer.echo("avem: interrupted.", err=True)
        raise typer.Exit(_INTERRUPTED) from None


def _leave() -> None:
    """End quietly: nobody reads on."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    raise typer.Exit(_NOBODY_READS) from None


def _complain(message: str) -> None:
    words = " ".join(message.split())
    if len(words) > _LONGEST:  # a name that was typed or read may be of any length
        words = f"{words[: _LONGEST // 2]} ... {words[-_LONGEST // 2 :]}"
    typer.echo(f"avem: {words}", err=True)
    raise typer.Exit(2) from None


class _Commands(TyperGroup):
    """All commands, and what becomes of what they raise."""

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **extra: Any) -> Any:
        if not args:  # the help
            return super().make_context(info_name, args, *rest, **extra)
        with _in_one_line():
            return super().make_context(info_name, args, *rest, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_line(), plain_warnings():
            return super().invoke(ctx)


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
        Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Hidden Markov and state-space models with subject-specific random effects."""


app.command()(fit)
app.command("fit-ssm")(fit_ssm)
for command in (select, demo, decode, predict, simulate, summary, report):
    app.command()(command)


@app.command()
def study(
    name: Annotated[str, Argument(metavar="NAME", help="Such as gaussian-accuracy.")],
    reps: Annotated[
        int | None,
        Option(min=1, help="Replicates per setting.", show_default="as the study says"),
    ] = None,
    jobs: Annotated[int, Option(min=1, help="Processes at a time.")] = 2,
    out: Annotated[
        Path | None,
        PathOption(help="Folder of the results.", show_default="docs/studies/NAME"),
    ] = None,
    protocol: Annotated[
        str,
        Option(
            help="paper (from the authors' start, by their rule), converged (what a user gets) or "
            "both."
        ),
    ] = "both",
    quick: Annotated[
        bool, Option("--quick", help="A few replicates of a few settings: about a minute.")
    ] = False,
) -> None:
    """Run a simulation study, of the paper or of avem's own, or go on with it."""
    find_studies().run_study(name, reps, jobs, out, protocol, quick)
