"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

FitFile = Annotated[Path, typer.Argument(metavar="FIT", help="A fit saved by avem (.avem).")]
DataFile = Annotated[Path, typer.Argument(metavar="FILE", help="The data: .csv, .tsv or .parquet.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are already there.")]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", envvar="AVEM_NO_CACHE", help="Do not keep compiled code on disk."),
]
TimeColumn = Annotated[str | None, typer.Option(help="Column to sort the rows by.")]
SequenceColumn = Annotated[
    str | None, typer.Option(help="Column (session, day) that restarts the chain.")
]
SubjectColumn = Annotated[
    str | None, typer.Option(help="Subject column, if the formula names none.")
]
MissingCodes = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-code",
        metavar="VALUE",
        help="A value that means missing, such as -99, in outcomes and covariates. Repeatable.",
    ),
]
NoPlots = Annotated[bool, typer.Option("--no-plots", help="Write no PNG files.")]
