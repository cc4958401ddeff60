"""From what a user asked for to where a fit starts, and from its outcome to the record of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from avem.components.param_info import Params
from avem.data import Panel
from avem.errors import AvemWarning, ModelError
from avem.fits.checkpoint import Checkpoint
from avem.fits.common import effects_to_start_with
from avem.fits.fit import Fit
from avem.fits.info import make_info
from avem.fits.notes import ending
from avem.inference.fit import Fitted, Task, fit
from avem.inference.options import Options
from avem.inference.progress import Callback, Watch
from avem.inference.stages import Guess
from avem.inference.stop import Stop
from avem.numerics import devices
from avem.numerics.compiling import compile_seconds

AFit = TypeVar("AFit", bound=Fit)


@dataclass(frozen=True, eq=False)
class Start:
    """Where a fit begins."""

    guess: Guess
    held: Params
    """The parameters that stay where they are."""
    given: tuple[str, ...]
    """The parameters that `init` has."""

    @property
    def fixed(self) -> frozenset[str]:
        """Names of the parameters that are held."""
        return frozenset(self.held)


def start_from(kind: type[Fit], model: Any, panel: Panel, init: Any, fixed: Any) -> Start:
    """Where `init` and `fixed` say, both checked; an `init` of this kind is an earlier fit."""
    held = model.check_params({} if fixed is None else fixed, "fixed")
    params: Params = {}
    effects, refined = None, False
    if isinstance(init, kind):
        if init.model.param_info() != model.param_info():
            raise ModelError(
                f"init is a fit of {init.model.spec.text!r}, which has other parameters "
                f"than {model.spec.text!r}. Give a dict of the parameters to take over."
            )
        params = model.check_params(init.params, "init")
        effects = model.effects_in(effects_to_start_with(init, panel))
        refined = init.info.refined
    elif init is not None:
        params = model.check_params(init, "init")
    guess = Guess({**params, **held}, effects, refined)
    return Start(guess, held, tuple(sorted(params)))


def _of_panel(panel: Any) -> list[str]:
    """What was done to the data, in sentences."""
    made = (panel.weights, panel.carried)
    return [part.words for part in made if part is not None and part.words]


def fit_task(
    kind: type[AFit],
    task: Task,
    start: Start,
    options: Options,
    tol: float,
    tell: Callable[[Fitted], tuple[list[str], list[str]]],
    progress: bool | None,
    callback: Callback | None,
    checkpoint: str | PathLike[str] | None = None,
    **more: Any,
) -> AFit:
    """The fit, in the user's units: what `MixedHMM.fit` and `MixedSSM.fit` do alike.

    `tol` is the usual one of this kind of models; `tell` has what makes the outcome doubtful, which
    goes into a warning with how it ended, and what else a reader should know; `more` goes into the
    fit's info.
    """
    model, panel, n_seen = task.model, task.data.panel, task.data.n_seen
    rules, guess = options.rules(tol), start.guess
    kept = None
    if checkpoint is not None:
        kept = Checkpoint(checkpoint, model, panel, options)
        guess, callback = kept.resumed(model, guess), kept.watching(callback)
    counting = np.ones(panel.n_subjects) if panel.weights is None else panel.subject_weights
    jacobian = float((task.data.log_jacobian(model) * counting).sum())
    about = getattr(task.data.executor, "about", str)
    compiled = compile_seconds()
    with Watch(progress, options.max_iter, jacobian, callback, model.params_out, about) as watch:
        fitted = fit(task, guess, options, rules, watch)
    if kept is not None and fitted.run.stop is not Stop.INTERRUPTED:
        kept.done()
    (doubts, notes), run = tell(fitted), fitted.run
    doubts = [*ending(run.stop, len(run.bounds), options.max_iter), *doubts]
    effects_mean, effects_cov = model.effects_out(fitted.effects_mean, fitted.effects_cov)
    if doubts:
        warnings.warn(model.in_words(" ".join(doubts)), AvemWarning, stacklevel=3)
    info = make_info(
        fitted,
        panel,
        n_seen[:, model.outcome_columns],
        options,
        (*doubts, *notes, *_of_panel(panel)),
        tol=float(rules.tol),
        fixed=tuple(sorted(start.held)),
        init=start.given,
        device=task.data.platform,
        compile_seconds=compile_seconds() - compiled,
        device_memory=devices.most_in_use(task.data.platform),
        **more,
    )
    made = kind(
        model=model,
        params=model.params_out(fitted.theta),
        effects_mean=effects_mean,
        effects_cov=effects_cov,
        subjects=panel.subjects,
        bound=float((fitted.subject_bound * counting).sum()) + jacobian,
        bound_history=run.bounds + jacobian,
        loglik_history=run.logliks + jacobian,
        n_iter=len(run.bounds),
        stop=run.stop,
        info=info,
        columns={"subject": panel.subject, "time": panel.time, "sequence": panel.sequence},
        panel=panel,
    )
    if not panel.in_memory:  # to lay it out again would take as long as many iterations
        vars(made)["_own_data"] = task.data
    return made
