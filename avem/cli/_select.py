"""The command `avem select`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

from typer import Argument, Option

from avem.cli._files import check_table, read_for, write_table
from avem.cli._options import (
    DataFile,
    Force,
    MissingCodes,
    NoCache,
    PathOption,
    SequenceColumn,
    SubjectColumn,
    TimeColumn,
)
from avem.cli._outcomes import read_names, read_states
from avem.cli._process import say, set_up_jax
from avem.errors import ModelError


def select(
    file: DataFile,
    formula: Annotated[
        str,
        Argument(metavar="FORMULA", help="As for fit; with --latent as --outcomes of fit-ssm."),
    ],
    out: Annotated[Path, PathOption(help="Table to write: a row per number of states.")],
    states: Annotated[
        str | None,
        Option(metavar="A-B", help="Numbers of states to try.", show_default="1-5"),
    ] = None,
    clusters: Annotated[
        str | None,
        Option(
            metavar="A-B",
            help="Numbers of types of subjects to try, each with the one number of --states.",
        ),
    ] = None,
    latent: Annotated[
        str | None,
        Option(metavar="A-B", help="For a state-space model: numbers of latent states to try."),
    ] = None,
    family: Annotated[str, Option(help="Of the outcomes of an HMM.")] = "gaussian",
    transition: Annotated[str, Option(help="Formula of an HMM's transitions.")] = "~ 1",
    criterion: Annotated[str, Option(help="bic, aic, icl (of an HMM) or held_out.")] = "bic",
    folds: Annotated[int | None, Option(help="Also cross-validate, with so many folds.")] = None,
    by: Annotated[
        str | None,
        Option(help="With --folds: what is held out, subjects or time.", show_default="subjects"),
    ] = None,
    time: TimeColumn = None,
    sequence: SequenceColumn = None,
    subject: SubjectColumn = None,
    seed: Annotated[int, Option(help="For starting points and folds.")] = 0,
    missing_code: MissingCodes = None,
    force: Force = False,
    no_cache: NoCache = False,
) -> None:
    """Fit models with several numbers of states and compare them."""
    check_table(out, force)
    if by is not None and folds is None:
        raise ModelError("--by says what is held out, and goes with --folds: --folds 5.")
    set_up_jax(no_cache)
    import avem

    if latent is None:
        model, numbers = avem.MixedHMM(formula, 2, family, transition=transition), {}
        tried = read_states("1-5" if states is None else states)
        if clusters is None:
            numbers = {"states": tried}
        elif len(tried) > 1:
            raise ModelError("--clusters goes with one number of --states: --states 2.")
        else:
            model = model.with_states(tried[0])
            numbers = {"clusters": read_states(clusters, "--clusters")}
    else:
        if (
            states is not None
            or clusters is not None
            or family != "gaussian"
            or transition != "~ 1"
        ):
            raise ModelError(
                "--latent is for a state-space model; --states, --clusters, --family and "
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
        cv=None if folds is None else {"folds": folds, "by": by or "subjects", "seed": seed},
        subject=subject,
        time=time,
        sequence=sequence,
        seed=seed,
    )
    say(f"{found!r}\n")
    write_table(found.table, out)
