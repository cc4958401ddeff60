"""What the user types: `MixedHMM(formula, n_states).fit(data)`.

This module stands above all layers because it is the one that calls them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from avem.data import Design, Panel, parse_formula
from avem.effects.prior import STRUCTURES, project_covariance
from avem.errors import AvemWarning, ModelError
from avem.families import Gaussian
from avem.inference.fit_hmm import Fitted, Guess, fit_hmm, start_gaps, starts_agreeing
from avem.inference.loop import Rules
from avem.inference.watch import Watch
from avem.models.checks import check_data
from avem.models.hmm_model import Encoded, HMMModel
from avem.models.params import check_count, check_params, check_seed
from avem.models.scaling import Scaling
from avem.models.simulate import Simulation, simulate
from avem.results.hmm_fit import FitInfo, HMMFit
from avem.results.notes import alarms, remarks

_FAMILIES = {"gaussian": Gaussian}
_METHODS = ("avem",)
_TOL, _PLAIN_TOL = 1e-6, 1e-4


class MixedHMM:
    """A hidden Markov model in which every subject has its own random effect.

    Parameters
    ----------
    formula
        lme4 style: ``"y1 + y2 ~ x + (1 + x | subject)"``. Fixed coefficients are specific to each
        state; the effects of a subject are shared by the states. Without a ``(... | subject)`` term
        it is an ordinary HMM.
    n_states
        Number of states.
    family
        ``"gaussian"``, or a family object such as ``avem.Gaussian("full")``.
    effect_covariance
        ``"full"``, ``"diagonal"`` or ``"isotropic"``: the structure of Sigma.
    """

    def __init__(
        self,
        formula: str,
        n_states: int,
        family: str | Gaussian = "gaussian",
        *,
        effect_covariance: str = "full",
    ) -> None:
        self.formula = parse_formula(formula)
        if not self.formula.outcomes:
            raise ModelError(f"The formula {formula!r} has no outcome. Write 'y ~ ...'.")
        check_count("n_states", n_states)
        self.n_states = int(n_states)
        self.family = _family(family)
        if effect_covariance not in STRUCTURES:
            raise ModelError(
                f"effect_covariance is {effect_covariance!r}; "
                f"choose one of {', '.join(STRUCTURES)}."
            )
        self.effect_covariance = effect_covariance

    def __repr__(self) -> str:
        return f"MixedHMM({self.formula.text!r}, n_states={self.n_states}, family={self.family!r})"

    def fit(
        self,
        data: Any,
        subject: str | None = None,
        time: str | None = None,
        sequence: str | None = None,
        *,
        method: str = "avem",
        init: Mapping[str, Any] | HMMFit | None = None,
        fixed: Mapping[str, Any] | None = None,
        n_starts: int = 8,
        max_iter: int = 500,
        tol: float | None = None,
        seed: int = 0,
        plain: bool = False,
        progress: bool | None = None,
    ) -> HMMFit:
        """The model fitted to data.

        Parameters
        ----------
        data
            A long table (pandas, polars, pyarrow), one row per subject and time, or a `Panel`.
        subject, time, sequence
            Column names. `subject` is needed only when the formula has no ``(... | subject)`` term;
            rows are sorted by `time` when it is given; `sequence` (session, day) restarts the chain
            while the subject keeps its effect.
        method
            ``"avem"``: anchored variational EM.
        init
            Where to start instead of at values found in the data: a dict with some or all of the
            parameters, or an earlier fit. The order of its states is kept.
        fixed
            Parameters to hold at given values, e.g. ``{"transition": matrix}``.
        n_starts
            How many starting points are tried.
        max_iter, tol
            Limits. `tol` bounds the last change of any parameter, on the scale of standardised
            outcomes (default 1e-6); with `plain`, the relative change of the anchored log
            likelihood (default 1e-4).
        seed
            For the starting points and the search for modes.
        plain
            The paper's iteration to the letter: one start, no recentring, no re-anchoring, no
            acceleration, no final E-step.
        progress
            Show progress; by default in a terminal, after two seconds.
        """
        _check_options(method, n_starts, max_iter, tol, seed)
        panel = self._panel(data, subject, time, sequence)
        model, design_data = self._model(panel, plain)
        encoded = model.encode(panel, design_data)
        held = self._checked({} if fixed is None else fixed, model.design, "fixed")
        if "effect_covariance" in held:
            self._check_structure(held["effect_covariance"], model)
        guess = self._guess(init, model, panel)
        guess.theta.update(model.scaling.params_in(held))
        frozen = frozenset(held)
        if tol is None:
            tol = _PLAIN_TOL if plain else _TOL
        offset = model.scaling.log_jacobian(~np.isnan(encoded.y))
        with Watch(progress, max_iter, offset) as watch:
            fitted = fit_hmm(
                model,
                encoded,
                guess=guess,
                fixed=frozen,
                n_starts=n_starts,
                rules=Rules(max_iter, tol, plain),
                seed=seed,
                keep_order=init is not None or bool(frozen - {"effect_covariance"}),
                watch=watch,
            )
        how = {"method": method, "plain": plain, "seed": int(seed)}
        return self._result(model, encoded, fitted, frozen, how)

    def simulate(
        self,
        params: Mapping[str, Any],
        n_subjects: int | None = None,
        n_times: int | None = None,
        *,
        data: Any = None,
        subject: str | None = None,
        time: str | None = None,
        sequence: str | None = None,
        seed: int | None = None,
    ) -> Simulation:
        """Data drawn from given parameters (all of them, as in `fit.params`).

        Either `n_subjects` and `n_times`, or, when the formula has covariates, `data` with the
        covariates of every row.
        """
        if seed is not None:
            check_seed(seed)
        group = self._group(subject) or "subject"
        if data is None:
            if n_subjects is None or n_times is None:
                raise ModelError("simulate needs n_subjects and n_times, or data.")
            check_count("n_subjects", n_subjects)
            check_count("n_times", n_times)
            data = pd.DataFrame(
                {
                    group: np.repeat(np.arange(n_subjects), n_times),
                    "time": np.tile(np.arange(n_times), n_subjects),
                }
            )
            time = "time"
        panel = self._panel(data, group, time, sequence)
        design = Design.build(self.formula, panel)
        checked = self._checked(params, design, "params")
        needed = {"initial", "transition", "coef", self.family.noise_name}
        if design.effect_terms:
            needed.add("effect_covariance")
        if needed - set(checked):
            raise ModelError(f"params lacks {', '.join(sorted(needed - set(checked)))}.")
        checked.setdefault("effect_covariance", np.zeros((0, 0)))
        return simulate(design, self.family, checked, panel, np.random.default_rng(seed))

    # --- inside ---------------------------------------------------------------------------------

    def _group(self, subject: str | None) -> str | None:
        group = self.formula.groups[0][1] if self.formula.groups else None
        if group is not None and subject not in (None, group):
            raise ModelError(
                f"subject={subject!r}, but the formula groups by {group!r}. Leave subject= out."
            )
        return group or subject

    def _panel(
        self, data: Any, subject: str | None, time: str | None, sequence: str | None
    ) -> Panel:
        group = self._group(subject)
        if isinstance(data, Panel):
            if time is not None or sequence is not None:
                raise ModelError(
                    "A Panel already knows its time and sequence; leave them out here."
                )
            if group is not None and group != data.subject:
                raise ModelError(
                    f"The formula groups by {group!r}, but the panel's subject column is "
                    f"{data.subject!r}."
                )
            return data
        if group is None:
            raise ModelError(
                "Which rows belong together? The formula has no (... | subject) term, so give "
                "fit(data, subject='column')."
            )
        return Panel.from_frame(data, group, time=time, sequence=sequence)

    def _model(self, panel: Panel, plain: bool) -> tuple[HMMModel, Any]:
        design = Design.build(self.formula, panel)
        data = design.apply(panel)
        shape = self.family.noise_shape(1, len(design.outcomes))
        check_data(panel, design, data, self.n_states, n_noise=int(np.prod(shape)))
        if plain:
            scaling = Scaling.none(design, data, self.family)
        else:
            scaling = Scaling.learn(design, data, self.family, self.effect_covariance)
        model = HMMModel(self.n_states, self.family, self.effect_covariance, design, scaling)
        return model, data

    def _checked(self, params: Mapping[str, Any], design: Design, where: str) -> dict[str, Any]:
        return check_params(params, design, self.n_states, self.family, where)

    def _check_structure(self, sigma: np.ndarray, model: HMMModel) -> None:
        allowed = project_covariance(sigma, self.effect_covariance, model.effect_blocks)
        if not np.allclose(sigma, allowed, rtol=1e-8, atol=0):
            raise ModelError(
                f"fixed['effect_covariance'] is not {self.effect_covariance}, as the model says it "
                "is (or ties effects of separate group terms). Change one of them."
            )

    def _guess(self, init: Any, model: HMMModel, panel: Panel) -> Guess:
        if init is None:
            return Guess({})
        if isinstance(init, HMMFit):
            same = (init.model.design.terms, init.model.design.effect_terms)
            if same != (model.design.terms, model.design.effect_terms):
                raise ModelError(
                    f"init is a fit of {init.model.design.formula.text!r}, which has other terms "
                    f"than {self.formula.text!r}. Give a dict of the parameters to take over."
                )
            params = self._checked(init.params, model.design, "init")
            effects = None
            if init.effects_mean.shape[1] == model.n_effects:
                known = pd.Index(init.subjects).get_indexer(pd.Index(panel.subjects))
                effects = np.where(known[:, None] < 0, 0.0, init.effects_mean[known])
                effects = model.scaling.effects_in(effects)
            return Guess(model.scaling.params_in(params), effects)
        return Guess(model.scaling.params_in(self._checked(init, model.design, "init")))

    def _result(
        self,
        model: HMMModel,
        data: Encoded,
        fitted: Fitted,
        fixed: frozenset[str],
        how: dict[str, Any],
    ) -> HMMFit:
        scaling, run, panel = model.scaling, fitted.run, data.panel
        observed = ~np.isnan(data.y)
        effects_mean, effects_cov = scaling.effects_out(fitted.effects_mean, fitted.effects_cov)
        jacobian = scaling.log_jacobian(observed)
        doubts = alarms(model, fitted)
        if doubts:
            warnings.warn(" ".join(doubts), AvemWarning, stacklevel=3)
        return HMMFit(
            model=model,
            params=scaling.params_out(fitted.theta),
            effects_mean=effects_mean,
            effects_cov=effects_cov,
            subjects=panel.subjects,
            bound=float(fitted.subject_bound.sum()) + jacobian,
            bound_history=run.bounds + jacobian,
            loglik_history=run.logliks + jacobian,
            n_iter=len(run.bounds),
            stop=run.stop,
            info=FitInfo(
                **how,
                n_rows=panel.n_rows,
                n_sequences=panel.n_lanes,
                n_observed=int(observed.sum()),
                n_missing=int((~observed).sum()),
                start_gaps=start_gaps(fitted.starts),
                start_iterations=tuple(len(start.bounds) for start in fitted.starts),
                starts_agreeing=starts_agreeing(fitted.starts),
                moved=run.moved,
                seconds=fitted.seconds,
                notes=(*doubts, *remarks(model, data.panel, data.spread, fitted, fixed)),
            ),
            columns={"subject": panel.subject, "time": panel.time, "sequence": panel.sequence},
            panel=panel,
        )


def _family(family: str | Gaussian) -> Gaussian:
    if isinstance(family, Gaussian):
        return family
    if not isinstance(family, str) or family not in _FAMILIES:
        raise ModelError(f"family is {family!r}; available: {', '.join(_FAMILIES)}.")
    return _FAMILIES[family]()


def _check_options(method: str, n_starts: int, max_iter: int, tol: float | None, seed: int) -> None:
    if method not in _METHODS:
        raise ModelError(f"method is {method!r}; available: {', '.join(_METHODS)}.")
    check_count("n_starts", n_starts)
    check_count("max_iter", max_iter)
    is_number = isinstance(tol, int | float | np.number) and not isinstance(tol, bool)
    if tol is not None and not (is_number and tol >= 0):
        raise ModelError(f"tol is {tol!r}; a number that is not negative is wanted.")
    check_seed(seed)
