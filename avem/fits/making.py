"""From what a user asked for to where a fit starts, and from its outcome to the record of it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from avem.components.param_info import Params
from avem.data import Panel
from avem.errors import AvemWarning, ModelError
from avem.fits.common import effects_to_start_with
from avem.fits.hmm_fit import HMMFit
from avem.fits.info import make_info
from avem.fits.ssm_fit import SSMFit
from avem.inference.fit import Fitted, Task, fit
from avem.inference.options import Options
from avem.inference.progress import Callback, Watch
from avem.inference.stages import Guess
from avem.models.hmm import HMMModel
from avem.models.kinds import kind_of
from avem.models.ssm import SSMModel

Fit = TypeVar("Fit", HMMFit, SSMFit)


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


def start_from(
    kind: type[HMMFit] | type[SSMFit],
    model: HMMModel | SSMModel,
    panel: Panel,
    init: Any,
    fixed: Any,
) -> Start:
    """Where `init` and `fixed` say, both checked; an `init` of this kind is an earlier fit."""
    known = kind_of(model)
    held = known.check_params({} if fixed is None else fixed, model, "fixed")
    params: Params = {}
    effects = None
    if isinstance(init, kind):
        if known.param_info(init.model) != known.param_info(model):
            raise ModelError(
                f"init is a fit of {init.model.spec.text!r}, which has other parameters "
                f"than {model.spec.text!r}. Give a dict of the parameters to take over."
            )
        params = known.check_params(init.params, model, "init")
        own = effects_to_start_with(init, init.effects_mean, panel)
        effects = known.effects_in(model, own)
    elif init is not None:
        params = known.check_params(init, model, "init")
    refined = isinstance(init, kind) and init.info.refined
    guess = Guess({**params, **held}, effects, refined)
    return Start(guess, held, tuple(sorted(params)))


def run_fit(
    task: Task,
    start: Start,
    options: Options,
    tol: float,
    progress: bool | None,
    callback: Callback | None,
) -> Fitted:
    """The task done, watched from the outside; `tol` is what this kind of models has."""
    model, data = task.model, task.data
    offset = float(model.scaling.log_jacobian(~np.isnan(data.y)).sum())
    params_out = partial(kind_of(model).params_out, model)
    with Watch(progress, options.max_iter, offset, callback, params_out) as watch:
        return fit(task, start.guess, options, options.rules(tol), watch)


def make_fit(
    kind: type[Fit],
    task: Task,
    fitted: Fitted,
    start: Start,
    options: Options,
    tol: float,
    doubts: Sequence[str],
    notes: Sequence[str],
    **more: Any,
) -> Fit:
    """The record of a fit, in the user's units; warns of the doubts."""
    model, run, panel, observed = task.model, fitted.run, task.data.panel, ~np.isnan(task.data.y)
    known = kind_of(model)
    effects_mean, effects_cov = known.effects_out(model, fitted.effects_mean, fitted.effects_cov)
    jacobian = float(model.scaling.log_jacobian(observed).sum())
    if doubts:
        warnings.warn(" ".join(doubts), AvemWarning, stacklevel=3)
    info = make_info(
        fitted,
        panel,
        observed[:, model.outcome_columns],
        options,
        (*doubts, *notes),
        tol=float(options.rules(tol).tol),
        fixed=tuple(sorted(start.held)),
        init=start.given,
        **more,
    )
    return kind(
        model=model,
        params=known.params_out(model, fitted.theta),
        effects_mean=effects_mean,
        effects_cov=effects_cov,
        subjects=panel.subjects,
        bound=float(fitted.subject_bound.sum()) + jacobian,
        bound_history=run.bounds + jacobian,
        loglik_history=run.logliks + jacobian,
        n_iter=len(run.bounds),
        stop=run.stop,
        info=info,
        columns={"subject": panel.subject, "time": panel.time, "sequence": panel.sequence},
        panel=panel,
    )
