"""The fit of a mixed-effects state-space model: parameters, effects, and what to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from avem.components.param_info import check_level, check_seed
from avem.data import Panel
from avem.errors import ModelError
from avem.fits.common import (
    bound_name,
    check_posterior,
    effects_table,
    effects_to_draw_with,
    inferred_effects,
    jacobian,
    known_or_inferred,
    marginal_of_new,
    own_panel,
    panel_for,
    positions,
)
from avem.fits.info import FitInfo
from avem.fits.likelihood import LogLik, aic, bic
from avem.fits.plots.ssm_plots import SSMPlots
from avem.fits.predict import log_score as _score
from avem.fits.predict import ssm as _ssm_tables
from avem.fits.questions import ssm_residuals as _ssm_residuals
from avem.fits.questions.check import Check, choose_effects, run_check
from avem.fits.questions.contrast import effect_contrast
from avem.fits.questions.diagnosis import HARD_TO_SEE, Diagnosis, diagnose
from avem.fits.ssm_tables import ssm_constants, ssm_rows, ssm_summary
from avem.fits.tables import Summary, tidy
from avem.fits.uncertainty import Estimates, standard_errors
from avem.inference.after.curvature import Curvature
from avem.inference.after.marginal import Marginal, anchoring, marginal, uncertainty
from avem.inference.e_steps import ESteps
from avem.inference.fit_ssm import make_ssm_e_steps, ssm_effect_scale
from avem.inference.stop import Stop
from avem.models.ssm import SSMEncoded, SSMModel
from avem.models.ssm_free import count_ssm_free, find_ssm_free
from avem.models.ssm_params import (
    ssm_effects_in,
    ssm_effects_out,
    ssm_param_info,
    ssm_params_in,
    ssm_params_out,
)
from avem.models.ssm_simulate import SSMSimulation, simulate_ssm
from avem.models.ssm_subjects import Matrices, subject_matrices


@dataclass(frozen=True, eq=False, repr=False)
class SSMFit:
    """A fitted mixed-effects state-space model.

    Attributes
    ----------
    params
        The parameters by name: ``initial_mean`` (q,), ``initial_covariance`` (q, q),
        ``transition_mean`` (q, q), ``state_coef`` (q, terms), ``loading_mean`` (p, q), ``coef``
        (p, terms), ``noise`` (p,) variances, and the covariances of the effects of each kind that
        there is: ``transition_covariance``, ``loading_covariance``, ``coef_covariance``. `table`
        has them all, a row each.
    effects_mean, effects_cov
        (n, d) and (n, d, d): mean and covariance of q_i, subjects in the order of `subjects`. The
        effects are deviations from the population's matrices: entries of the transition matrix
        column by column, then those of the loadings, then the outcomes' coefficients.
    bound, bound_history, n_iter, stop
        The anchored ELBO, its history, the number of iterations, and how they ended.
    """

    model: SSMModel
    params: dict[str, np.ndarray]
    effects_mean: np.ndarray
    effects_cov: np.ndarray
    subjects: np.ndarray
    bound: float
    bound_history: np.ndarray
    loglik_history: np.ndarray
    """sum_i log p(D_i | anchor) at each iteration."""
    n_iter: int
    stop: Stop
    info: FitInfo
    columns: Mapping[str, str | None]
    """The data's subject, time and sequence columns."""
    panel: Panel | None = field(default=None)
    """The data; None for a fit loaded from a file."""

    @property
    def bound_name(self) -> str:
        """What `bound` is: a variational bound, or the log likelihood by integration."""
        return bound_name(self.info)

    # --- words and tables -----------------------------------------------------------------------

    def __repr__(self) -> str:
        model = self.model
        return (
            f"SSMFit({model.spec.text!r}, n_latent={model.n_latent}, "
            f"{len(self.subjects)} subjects, bound={self.bound:.3f}, {self.stop.name})"
        )

    def summary(self) -> Summary:
        """A table for a person to read."""
        return ssm_summary(self)

    def table(self) -> pd.DataFrame:
        """Every parameter as a row: what it is, and the estimate.

        Of a transition, ``state`` is where it comes from and ``to_state`` where it goes.
        """
        return tidy(ssm_rows(self.model, self.params))

    def effects(self, level: float = 0.95, posterior: str = "fit") -> pd.DataFrame:
        """Per subject and effect: mean, sd and interval of its deviation from the population.

        ``posterior="fit"``: as the fit's own method has them; after plain anchoring the intervals
        are too short where the states are seen through much noise. ``"adaptive"``: from the
        posterior with the states integrated out.
        """
        return self._effects_table(self.subjects, *self._posterior(posterior), level)

    def _posterior(self, posterior: str) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, d) and covariances (n, d, d) of the effects."""
        check_posterior(posterior)
        if posterior == "adaptive":
            return ssm_effects_out(self.model, self._marginal.mean, self._marginal.cov)
        return self.effects_mean, self.effects_cov

    @property
    def transitions(self) -> np.ndarray:
        """(n, q, q) every subject's own transition matrix: its mean with the effects added."""
        return self._matrices.transition

    @property
    def loadings(self) -> np.ndarray:
        """(n, p, q) every subject's own loadings."""
        return self._matrices.loading

    # --- how likely, how certain ----------------------------------------------------------------

    def loglik(self, data: Any = None) -> LogLik:
        """The marginal log likelihood of the fit, the effects integrated out, with its error.

        With `data`: of other data under the fitted parameters, every subject taken as new.
        """
        if data is None:
            found, encoded = self._marginal, self._own_data
        else:
            encoded = self._encode(data)
            found = marginal_of_new(self, encoded)
        return LogLik(
            found.loglik + self._jacobian(encoded), found.error, int((found.quality == 0).sum())
        )

    def score(self, data: Any = None) -> float:
        """Mean log predictive density per observed row of `data`: higher is better.

        In the user's units, so that models of the same
        outcomes compare on the same rows. Always at the fitted parameters, effects and states
        integrated out. What is conditioned on:

        - a subject that the fit does not know: nothing else, log p(all its rows);
        - a subject of the fit: all its rows in the fit, log p(its rows in the fit and in `data`)
          - log p(its rows in the fit). So its effect is as the fit's rows tell it, and a sequence
          that goes on in `data` (the same subject and sequence, later times) goes on from the state
          where it was. Rows that the fit has seen are refused.

        Without `data`: of the rows of the fit itself, each subject taken as new, which says nothing
        of rows that the parameters were not fitted to.
        """
        return _score.score(self, data)

    @property
    def n_params(self) -> int:
        """How many parameters were estimated."""
        return count_ssm_free(self.model, self.theta, self.info.fixed)

    def aic(self) -> float:
        """Akaike's criterion, from the marginal log likelihood."""
        return aic(self.loglik(), self.n_params)

    def bic(self) -> float:
        """Schwarz's criterion, from the marginal log likelihood; n is the number of subjects."""
        return bic(self.loglik(), self.n_params, len(self.subjects))

    def standard_errors(
        self, kind: str = "observed", level: float = 0.95, n_draws: int | None = None
    ) -> pd.DataFrame:
        """`table` with standard errors and intervals for every parameter.

        From the curvature of the marginal log likelihood at the estimates: ``"observed"``
        information, or the ``"sandwich"``, which holds when the model is not quite right. Intervals
        of variances are made on the scale of logarithms. Where there is no standard error, `note`
        says why. More than three effects are integrated over draws; with larger ``n_draws`` (a
        power of 2; by default 256 to 4096 for each subject, fewer in larger panels) this takes
        longer and is less noisy.
        """
        check_level(level)
        model, table = self.model, self.table()
        estimates = Estimates(
            table=table,
            rows=lambda theta: self.values_of(ssm_params_out(model, theta)),
            theta=self.theta,
            info=ssm_param_info(model),
            constant=ssm_constants(model, table),
            fixed=self.info.fixed,
            n_units=len(self.subjects) if model.n_effects else None,
        )
        curvature = self._curvature if n_draws is None else self._curvature_from(n_draws)
        return standard_errors(estimates, curvature, kind, level)

    def diagnose(self) -> Diagnosis:
        """Whether one anchor per subject is enough here: gaps, information lost, advice."""
        data, effects = self._own_data, ssm_effects_in(self.model, self.effects_mean)
        found = anchoring(self._e_steps(data), self.theta, effects)
        sigma = self.theta["effect_covariance"]
        sd = np.sqrt(np.diagonal(sigma)) * self.model.effect_units
        return diagnose(self, found, sd, HARD_TO_SEE)

    def infer_effects(self, data: Any, level: float = 0.95) -> pd.DataFrame:
        """Effects of the subjects of new data, from those rows alone; columns as in `effects`."""
        encoded = self._encode(data)
        mean, cov = ssm_effects_out(self.model, *self._infer(encoded))
        return self._effects_table(encoded.panel.subjects, mean, cov, level)

    # --- states and outcomes, now and later -----------------------------------------------------

    def states(
        self,
        data: Any = None,
        kind: str = "smoothed",
        level: float = 0.95,
        effects: str = "fitted",
    ) -> Any:
        """Rows x (mean, sd, lower, upper of each state), in the data's own row order and index.

        ``kind``: ``"smoothed"`` given all outcomes of the sequence, ``"filtered"`` given those up
        to the row, ``"predicted"`` given those before it. Without `data`, the rows of the fit. With
        new data, subjects of the fit keep their fitted effects, others get theirs from these rows.
        ``effects="integrated"`` adds what is not known of the effects.
        """
        return _ssm_tables.states(self, data, kind, level, effects)

    def predictions(self, data: Any = None, level: float = 0.95, effects: str = "fitted") -> Any:
        """Rows x (mean, sd, lower, upper of each outcome), given the rows before it."""
        return _ssm_tables.predictions(self, data, level, effects)

    def predict(
        self,
        data: Any = None,
        *,
        horizon: int = 10,
        future: Any = None,
        of: str = "outcomes",
        level: float = 0.95,
        effects: str = "integrated",
    ) -> Any:
        """Per sequence, step beyond its end and outcome: mean, sd and interval.

        ``future`` has the covariates of the steps ahead, where the model has any: a frame, or a
        dict such as ``{"dose": 0}``. With `data`, what happened so far: subjects of the fit keep
        what is known of their effects, those of others come from these rows.
        ``effects="fitted"`` leaves out that effects are not known exactly; ``of="states"`` gives
        the states themselves.
        """
        return _ssm_tables.predict(self, horizon, data, future, of, level, effects)

    def residuals(
        self, data: Any = None, effects: str = "fitted", joint: bool = False, seed: int = 0
    ) -> Any:
        """Rows x outcomes: one-step residuals over their standard deviations, NaN where missing.

        ``effects="drawn"``: at one draw of every subject's effects, which makes them standard
        normal and independent over time if the model holds. ``joint=True`` makes those of one row
        uncorrelated, too.
        """
        return _ssm_residuals.residuals(self, data, effects, joint, seed)

    def whiteness(
        self, lags: int = 5, data: Any = None, effects: str = "drawn", seed: int = 0
    ) -> pd.DataFrame:
        """Per outcome, tests of the residuals, pooled over sequences.

        ``p_white``: no autocorrelation at lags 1 to `lags` (Ljung-Box); ``p_normal``: no skewness
        or excess kurtosis (Jarque-Bera); ``p_apart``: no correlation with the other outcomes' of
        the same row.
        """
        return _ssm_residuals.whiteness(self, lags, data, effects, seed)

    # --- questions ------------------------------------------------------------------------------

    def contrast(
        self,
        groups: Any = None,
        *,
        subjects: Any = None,
        level: float = 0.95,
        posterior: str = "fit",
    ) -> pd.DataFrame:
        """Differences of effects between groups of subjects, or between subjects.

        Parameters
        ----------
        groups
            A column that is the same in all rows of a subject, or a dict from subjects to groups:
            differences of the groups' mean effects. ``se``, the interval and ``p`` are Welch's, on
            the means of the subjects: about the populations that they are a sample of. ``sd`` is
            what is not known of these very subjects' difference, given the parameters. A group
            of one subject has no spread, hence no test: `note` says so.
            Effects are shrunk towards 0, and so are differences.
        subjects
            Labels, two or more: the effects of each pair, with their posterior; ``probability`` is
            that of the sign they show.
        posterior
            Of the effects, as in `effects`.
        """
        if (groups is None) == (subjects is None):
            raise ModelError("contrast takes one of groups= and subjects=.")
        return effect_contrast(self, groups, subjects, level, posterior)

    def check(
        self,
        statistic: Any = None,
        n: int = 200,
        *,
        effects: str = "new",
        level: float = 0.95,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Check:
        """Posterior predictive check: statistics of the data beside those of simulated data.

        Parameters
        ----------
        statistic
            A function of a frame like yours that gives a number (or a dict of numbers), a dict of
            functions, or some of ``"mean"``, ``"sd"``, ``"between"`` (sd of the subjects' means),
            ``"autocorrelation"`` (lag 1, less the subject's mean), ``"min"``, ``"max"``,
            ``"zeros"``. By default those that apply.
        n
            How many data sets; what is missing in the data is missing in them.
        effects
            ``"new"`` draws other subjects, ``"posterior"`` draws these subjects' effects from what
            is known of them, ``"fitted"`` holds them. Parameters are held at their estimates.
        progress
            Show progress; by default in a terminal, after two seconds. Ctrl-C keeps what was done.
        """
        panel = self._panel(None)

        def draw(rng: np.random.Generator) -> pd.DataFrame:
            fixed = choose_effects(rng, effects, self.effects_mean, self.effects_cov)
            radius = self.info.max_radius
            return simulate_ssm(self.model, self.params, panel, rng, fixed, radius).frame

        return run_check(
            panel,
            dict.fromkeys(self.model.outcomes),
            draw,
            statistic=statistic,
            n=n,
            effects=effects,
            level=level,
            seed=seed,
            progress=progress,
        )

    @cached_property
    def plot(self) -> SSMPlots:
        """Pictures: `fit.plot.states()`, `forecast`, `loadings`, `effects`, `residuals`, ..."""
        return SSMPlots(self)

    # --- simulation, files ----------------------------------------------------------------------

    def simulate(
        self, data: Any = None, *, effects: str = "new", seed: int | None = None
    ) -> SSMSimulation:
        """A data set drawn from the fit, on the rows (times, covariates) of the fit or of `data`.

        ``effects="new"`` draws new subjects; ``"fitted"`` keeps each subject at its own effect. A
        fit with `max_radius` draws no subject beyond it.
        """
        panel = self._panel(data)
        fixed = effects_to_draw_with(self, panel, effects, self.effects_mean)
        if seed is not None:
            check_seed(seed)
        rng = np.random.default_rng(seed)
        drawn = simulate_ssm(self.model, self.params, panel, rng, fixed, self.info.max_radius)
        return drawn._replace(frame=panel.table_like(drawn.frame))

    def report(
        self,
        path: str | PathLike[str],
        *,
        timelines: Any = None,
        thorough: bool | None = None,
        progress: bool | None = None,
    ) -> None:
        """Write one self-contained HTML page about the fit, to read, send and print.

        Parameters
        ----------
        timelines
            Whose rows can be looked at one by one. None: all subjects, or as many as keep the page
            at some megabytes. A number: so many, from the shortest to the longest. A list of
            labels: these.
        thorough
            Whether to compute standard errors and the diagnosis of anchoring, which can take longer
            than all the rest; by default where the panel is small, or they are known already.
        progress
            Say what is going on; by default in a terminal.
        """
        from avem.fits.report import write_report

        write_report(self, path, timelines=timelines, thorough=thorough, progress=progress)

    def with_data(self, data: Any) -> SSMFit:
        """The same fit with its data back, for a fit that was loaded from a file."""
        return replace(self, panel=own_panel(self, data))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fit to one file, without the data; `avem.load` reads it."""
        from avem.fits.io.saving import save

        save(self, path)

    def to_arviz(self) -> Any:
        """The fit as ArviZ reads it; needs the optional extra ``avem[arviz]``."""
        from avem.fits.io.arviz import to_arviz

        return to_arviz(self)

    # --- inside ---------------------------------------------------------------------------------

    @cached_property
    def theta(self) -> dict[str, np.ndarray]:
        """Parameters on the scale of the fit."""
        return ssm_params_in(self.model, self.params)

    @property
    def subject_jacobian(self) -> np.ndarray:
        """(subjects,) from log densities on the scale of the fit to those of the user's units."""
        return self._jacobian(self._own_data)

    def values_of(self, params: dict[str, np.ndarray]) -> np.ndarray:
        """The estimates that `table` would have with other parameters."""
        return np.array([v for *_, v in ssm_rows(self.model, params)])

    @cached_property
    def _matrices(self) -> Matrices:
        model = self.model.in_user_units()
        return subject_matrices(model, ssm_params_in(model, self.params), self.effects_mean)

    def _effects_table(
        self, subjects: np.ndarray, mean: np.ndarray, cov: np.ndarray, level: float
    ) -> pd.DataFrame:
        names = self.model.effect_names
        return effects_table(self.columns["subject"], subjects, names, mean, cov, level)

    def _panel(self, data: Any) -> Panel:
        return panel_for(self, data)

    @cached_property
    def _own_data(self) -> SSMEncoded:
        return self.model.encode(self._panel(None))

    def _encode(self, data: Any) -> SSMEncoded:
        return self._own_data if data is None else self.model.encode(self._panel(data))

    def _e_steps(self, data: SSMEncoded) -> ESteps:
        return make_ssm_e_steps(self.model, data, max_radius=self.info.max_radius)

    @cached_property
    def _marginal(self) -> Marginal:
        data, effects = self._own_data, ssm_effects_in(self.model, self.effects_mean)
        return marginal(self._e_steps(data), self.theta, effects)

    @cached_property
    def _curvature(self) -> Curvature:
        return self._curvature_from(None)

    def _curvature_from(self, n_draws: int | None) -> Curvature:
        model, data = self.model, self._own_data
        scale = ssm_effect_scale(model, data)
        free = find_ssm_free(model, self.theta, self.info.fixed, data.spread, scale)
        return uncertainty(self._marginal, free, n_draws)

    def _jacobian(self, data: SSMEncoded) -> np.ndarray:
        return jacobian(self.model.scaling, data.panel, data.y)

    def _infer(self, data: SSMEncoded) -> tuple[np.ndarray, np.ndarray]:
        """Mean (d, subjects) and covariance of the effects, by the fit's own kind of posterior."""
        return inferred_effects(self, data)

    def _effects_for(self, data: SSMEncoded) -> np.ndarray:
        """(d, panel subjects) on the scale of the fit: fitted where known, inferred elsewhere."""
        known = positions(self, data.panel)
        fitted = ssm_effects_in(self.model, self.effects_mean[known])
        return known_or_inferred(self, data, known, fitted)
