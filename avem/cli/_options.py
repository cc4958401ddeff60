"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

FitFile = Annotated[Path, Argument(metavar="FIT", help="A fit saved by avem (.avem).")]
DataFile = Annotated[Path, Argument(metavar="FILE", help="The data: .csv, .tsv or .parquet.")]
OutFolder = Annotated[Path, Option(help="Folder for the results; made if need be.")]
OutTable = Annotated[Path, Option(help="Table to write.")]
Future = Annotated[
    Path | None,
    Option(help="Table with the covariates of the steps ahead, if the model has any."),
]
Force = Annotated[bool, Option("--force", help="Overwrite files that are already there.")]
NoCache = Annotated[
    bool,
    Option("--no-cache", envvar="AVEM_NO_CACHE", help="Do not keep compiled code on disk."),
]
NoPlots = Annotated[bool, Option("--no-plots", help="Write no PNG files.")]
TimeColumn = Annotated[str | None, Option(help="Column to sort the rows by.")]
SequenceColumn = Annotated[
    str | None, Option(help="Column (session, day) that restarts the chain.")
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
