"""Options that several commands have."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option


def _named(text: Any) -> Path:
    """A path that was typed; an empty one, as of a variable that is not set, is not the folder."""
    if not str(text).strip():
        raise typer.BadParameter("it is empty; the name of a file or folder is wanted.")
    return Path(text)


PathOption = partial(Option, parser=_named, metavar="PATH")
PathArgument = partial(typer.Argument, parser=_named)

FitFile = Annotated[Path, PathArgument(metavar="FIT", help="A fit saved by avem (.avem).")]
DataFile = Annotated[
    Path,
    PathArgument(
        metavar="FILE",
        help="The data: .csv, .tsv or .parquet, a folder of such files, or a pattern in quotes.",
    ),
]
OutFolder = Annotated[Path, PathOption(help="Folder for the results; made if need be.")]
TableFormat = Annotated[
    str | None,
    Option(
        "--format",
        metavar="csv|parquet",
        help="Of the tables that are written.",
        show_default="parquet if FILE is, else csv",
    ),
]
OutTable = Annotated[Path, PathOption(help="Table to write.")]
Future = Annotated[
    Path | None,
    PathOption(help="Table with the covariates of the steps ahead, if the model has any."),
]
Force = Annotated[bool, Option("--force", help="Overwrite files that are already there.")]
NoCache = Annotated[
    bool,
    Option("--no-cache", envvar="AVEM_NO_CACHE", help="Do not keep compiled code on disk."),
]
NoPlots = Annotated[bool, Option("--no-plots", help="Write no PNG files.")]
TimeColumn = Annotated[str | None, Option(help="Column to sort the rows by.")]
TimeScale = Annotated[
    str, Option(help="discrete (rows are one step apart) or continuous (they come at any times).")
]
TimeUnit = Annotated[
    str | None, Option(help="Of time: days, hours, years, ...", show_default="days, of dates")
]
SequenceColumn = Annotated[
    str | None, Option(help="Column (session, day) that restarts the chain.")
]
WeightColumn = Annotated[
    str | None,
    Option(metavar="COLUMN", help="Column with how much each subject counts, one number for each."),
]
WeightsKind = Annotated[
    str,
    Option(
        metavar="KIND",
        help="What the weights are: survey (ratios count; robust standard errors) or frequency (so "
        "many subjects alike).",
    ),
]
StateNames = Annotated[
    str | None,
    Option(
        metavar="A,B,...",
        help="Names of the states, in their order: that of the first outcome's mean, lowest first.",
    ),
]
SubjectColumn = Annotated[str | None, Option(help="Subject column, if the formula names none.")]
MissingCodes = Annotated[
    list[str] | None,
    Option(
        "--missing-code",
        metavar="VALUE",
        help="A value that means missing, such as -99, in outcomes and covariates. Repeatable.",
    ),
]
Seed = Annotated[int, Option(help="For the starting points.")]


def given_options(**options: Any) -> dict[str, Any]:
    """The options that were given; the others keep the library's own defaults."""
    return {name: value for name, value in options.items() if value is not None}
