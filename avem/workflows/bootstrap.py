"""The parametric bootstrap: how much the estimates vary from one data set of a fit to the next."""

from __future__ import annotations

import warnings
from contextlib import closing, nullcontext
from os import PathLike
from typing import Any

from avem.components.param_info import check_count, check_seed
from avem.data import Panel
from avem.data.scanning.memory import need_rows
from avem.errors import AvemWarning, DataError, ModelError
from avem.fits.fit import Fit
from avem.inference.progress_of_replicates import ReplicateProgress
from avem.inference.stop import Stop
from avem.workflows.bootstrap_table import Bootstrap, Replicate
from avem.workflows.journal import Journal
from avem.workflows.recipe import Recipe
from avem.workflows.same_data import need_fits
from avem.workflows.workers import run


def bootstrap(
    fit: Fit[Any, Any],
    n: int = 200,
    *,
    data: Any = None,
    path: str | PathLike[str] | None = None,
    jobs: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Bootstrap:
    """The fit's parametric bootstrap: standard errors, bias and intervals by simulation.

    Each replicate draws a data set from the fit, on the rows of its data (times, covariates,
    missing cells) with new subjects' effects, and fits the same model to it by the same method,
    starting near the fit, so that states keep their order (and those of a state-space model their
    signs). Ctrl-C ends it with what is done.

    Parameters
    ----------
    fit : HMMFit or SSMFit
        What to bootstrap.
    n : int
        Number of replicates: 200 for standard errors, 1000 for intervals.
    data : DataFrame or Panel, optional
        The data of the fit, when it was loaded from a file: a frame with the same columns, or a
        `Panel`.
    path : str or path, optional
        A file to keep finished replicates in, as JSON lines. A call that was cut short goes on from
        there, and a later one may ask for more replicates. One process uses it at a time.
    jobs : int
        How many processes work side by side; the result is the same with any number of them. Each
        compiles for itself first. On one accelerator, leave it at 1. In a script, jobs > 1 needs
        the call to stand under ``if __name__ == "__main__":``.
    seed : int
        Of the replicates: each has a stream of random numbers of its own.
    progress : bool, optional
        Show progress; by default in a terminal, after two seconds.

    Returns
    -------
    Bootstrap

    Examples
    --------
    >>> avem.bootstrap(selection.fits[1], n=2)
    Bootstrap('valence ~ 1', n_states=1, 2 replicates)
    """
    _check(fit, n, jobs, seed)
    recipe = Recipe.of(fit, _own_panel(fit, data), seed)
    kept = nullcontext() if path is None else Journal(path, recipe.identity(), fit.params)
    with kept as journal:
        found = {} if journal is None else journal.found
        done = {number: found[number] for number in range(n) if number in found}
        ahead = [number for number in range(n) if number not in done]
        finished = _carry_out(recipe, ahead, jobs, journal, done, ReplicateProgress(progress, n))
    result = Bootstrap(fit, n, tuple(done[number] for number in sorted(done)))
    words = [] if finished else [_interrupted(result, path)]
    if result.n_failed:
        words.append(result.left_out())
    if words:
        warnings.warn(" ".join(words), AvemWarning, stacklevel=2)
    return result


def _carry_out(
    recipe: Recipe,
    ahead: list[int],
    jobs: int,
    journal: Journal | None,
    done: dict[int, Replicate],
    progress: ReplicateProgress,
) -> bool:
    """Add the replicates ahead to those done; whether all are, or the user broke it off."""
    failed = sum(not replicate.ok for replicate in done.values())
    try:
        with progress, closing(run(recipe, ahead, jobs)) as running:
            for replicate in running:
                if replicate.stop == Stop.INTERRUPTED.name:  # Ctrl-C came in the midst of a fit
                    return False
                if journal is not None:
                    journal.append(replicate)
                done[replicate.number] = replicate
                failed += not replicate.ok
                progress(len(done), failed)
    except KeyboardInterrupt:
        return False
    return True


def _interrupted(result: Bootstrap, path: str | PathLike[str] | None) -> str:
    advice = "Give path= to be able to go on from such a point."
    if path is not None:
        advice = "The same call goes on from there."
    return f"Interrupted: {len(result.done)} of {result.n} replicates are done. {advice}"


def _check(fit: Any, n: Any, jobs: Any, seed: Any) -> None:
    need_fits([fit], "bootstrap", "; a fit is wanted: MixedHMM(...).fit(data).")
    if fit.info.weights is not None:
        raise ModelError(
            f"The fit has weights, {fit.info.weights!r}: replicates of its subjects would not say "
            "how its estimates vary. Use fit.standard_errors(), which knows them."
        )
    check_count("n", n)
    if n < 2:
        raise ModelError(f"n is {n}; the spread of replicates needs at least 2, better 200.")
    check_count("jobs", jobs)
    check_seed(seed)


def _own_panel(fit: Fit, data: Any) -> Panel:
    """The data of the fit; an error when what is given are others."""
    panel = fit.panel if data is None else fit.with_data(data).panel
    if panel is None:
        raise DataError(
            "This fit was loaded from a file, which holds no data. Pass the data it was fitted to: "
            "bootstrap(fit, data=frame)."
        )
    if not panel.in_memory:
        raise ModelError(
            f"{need_rows()} A bootstrap of some shows how much their estimates vary; for those of "
            "all there is fit.standard_errors()."
        )
    return panel
