"""The fit of a mixed HMM: parameters, effects, states, and what to do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any, overload

import numpy as np
import pandas as pd

from avem.components.param_info import check_level, check_seed
from avem.data import Panel
from avem.errors import ModelError
from avem.fits import tables
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
from avem.fits.plots.hmm_plots import Plots
from avem.fits.predict import hmm as _hmm_predict
from avem.fits.predict import log_score as _score
from avem.fits.predict.at import levels_of, places
from avem.fits.questions import (
    dwell as stays,
)
from avem.fits.questions import (
    hmm_residuals as _hmm_residuals,
)
from avem.fits.questions import (
    occupancy as shares,
)
from avem.fits.questions.check import Check, choose_effects, run_check
from avem.fits.questions.contrast import effect_contrast, state_contrast
from avem.fits.questions.covariate import covariate_table
from avem.fits.questions.diagnosis import HARD_TO_TELL, Diagnosis, diagnose
from avem.fits.tables import Summary
from avem.fits.uncertainty import Estimates, standard_errors
from avem.inference.after.curvature import Curvature
from avem.inference.after.hmm_states import path_entropy, state_probabilities, viterbi
from avem.inference.after.marginal import (
    Marginal,
    PosteriorNodes,
    anchoring,
    marginal,
    posterior_nodes,
    uncertainty,
)
from avem.inference.e_steps import ESteps
from avem.inference.fit_hmm import effect_scale, make_e_steps
from avem.inference.stop import Stop
from avem.models.hmm import Encoded, HMMModel
from avem.models.hmm_free import count_free, find_free
from avem.models.hmm_params import effects_in, effects_out, param_info, params_in, params_out
from avem.models.hmm_simulate import Simulation, simulate


@dataclass(frozen=True, eq=False, repr=False)
class HMMFit:
    """A fitted mixed HMM.

    Attributes
    ----------
    params
        The parameters by name: ``initial`` (K,), ``transition`` (K, K), ``coef`` (K, outcomes,
        terms) on the scale of the link, further parameters of the family (``variance``, ``shape``,
        ...), ``effect_covariance`` (d, d). With covariates or effects on the transitions,
        ``transition_coef`` (K, K, terms). With several formulas, names are prefixed:
        ``step.coef``. `table` has them all, a row each.
    effects_mean, effects_cov
        (n, d) and (n, d, d): mean and covariance of q_i, subjects in the order of `subjects`.
    bound, bound_history, n_iter, stop
        The anchored ELBO, its history, the number of iterations, and how they ended.
    """

    model: HMMModel
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
            f"HMMFit({model.spec.text!r}, n_states={model.n_states}, "
            f"{len(self.subjects)} subjects, bound={self.bound:.3f}, {self.stop.name})"
        )

    def summary(self) -> Summary:
        """A table for a person to read."""
        return tables.summary(self)

    def table(self) -> pd.DataFrame:
        """Every parameter as a row: what it is, and the estimate."""
        return tables.parameter_table(self)

    def effects(self, level: float = 0.95, posterior: str = "fit") -> pd.DataFrame:
        """Per subject and effect: mean, sd and interval.

        ``posterior="fit"``: as the fit's own method has them; after plain anchoring the intervals
        are too short where states are hard to tell apart. ``"adaptive"``: from the posterior with
        the states integrated out.
        """
        return self._effects_table(self.subjects, *self._posterior(posterior), level)

    def _posterior(self, posterior: str) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, d) and covariances (n, d, d) of the effects."""
        check_posterior(posterior)
        if posterior == "adaptive":
            return effects_out(self.model, self._marginal.mean, self._marginal.cov)
        return self.effects_mean, self.effects_cov

    def _effects_table(
        self, subjects: np.ndarray, mean: np.ndarray, cov: np.ndarray, level: float
    ) -> pd.DataFrame:
        names = self.model.effect_names
        return effects_table(self.columns["subject"], subjects, names, mean, cov, level)

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

        In the user's units (log probability for counts and labels), so that models of the same
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
        return count_free(self.model, self.theta, self.info.fixed)

    def aic(self) -> float:
        """Akaike's criterion, from the marginal log likelihood."""
        return aic(self.loglik(), self.n_params)

    def bic(self) -> float:
        """Schwarz's criterion, from the marginal log likelihood; n is the number of subjects."""
        return bic(self.loglik(), self.n_params, len(self.subjects))

    def icl(self) -> float:
        """The integrated completed likelihood: BIC plus twice the entropy of the state paths.

        Lower is better; states that cannot be told apart cost.
        """
        encoded = self._own_data
        entropy = path_entropy(self.model, encoded, self.theta, self._effects_for(encoded))
        return self.bic() + 2.0 * float(entropy.sum())

    def standard_errors(
        self, kind: str = "observed", level: float = 0.95, n_draws: int | None = None
    ) -> pd.DataFrame:
        """`table` with standard errors and intervals for every parameter.

        From the curvature of the marginal log likelihood at the estimates: ``"observed"``
        information, or the ``"sandwich"``, which holds when the model is not quite right. Intervals
        of probabilities and variances are made on the scale of log odds and logarithms. Where there
        is no standard error, `note` says why. More than three effects are integrated over draws;
        with larger ``n_draws`` (a power of 2; by default 256 to 4096 for each subject, fewer in
        larger panels) this takes longer and is less noisy.
        """
        check_level(level)
        model, table = self.model, self.table()
        estimates = Estimates(
            table=table,
            rows=lambda theta: self.values_of(params_out(model, theta)),
            theta=self.theta,
            info=param_info(model),
            constant=tables.constant_rows(self, table),
            fixed=self.info.fixed,
            n_units=len(self.subjects) if model.n_effects else None,
        )
        curvature = self._curvature if n_draws is None else self._curvature_from(n_draws)
        return standard_errors(estimates, curvature, kind, level)

    def diagnose(self) -> Diagnosis:
        """Whether one anchor per subject is enough here: gaps, information lost, advice."""
        effects, data = effects_in(self.model, self.effects_mean), self._own_data
        found = anchoring(self._e_steps(data), self.theta, effects)
        sd = np.sqrt(np.diagonal(self.params["effect_covariance"]))
        return diagnose(self, found, sd, HARD_TO_TELL)

    # --- states ---------------------------------------------------------------------------------

    @overload
    def decode(self, data: pd.DataFrame) -> pd.Series: ...

    @overload
    def decode(self, data: Any = None) -> Any: ...

    def decode(self, data: Any = None) -> Any:
        """Most probable state of each row, from 0, in the data's own row order and index.

        Without `data`, the rows of the fit. With new data (a frame with the same columns, or a
        Panel): subjects of the fit keep their fitted effects, others get theirs from these rows.
        """
        encoded = self._encode(data)
        path = viterbi(self.model, encoded, self.theta, self._effects_for(encoded))
        return encoded.panel.like(path, "state")

    @overload
    def state_probabilities(self, data: pd.DataFrame) -> pd.DataFrame: ...

    @overload
    def state_probabilities(self, data: Any = None) -> Any: ...

    def state_probabilities(self, data: Any = None) -> Any:
        """Rows x states: p(state | all data of the sequence), in the data's own order and index."""
        encoded = self._encode(data)
        values = state_probabilities(self.model, encoded, self.theta, self._effects_for(encoded))
        return encoded.panel.frame_like(
            {f"state_{k}": values[:, k] for k in range(self.model.n_states)}
        )

    def infer_effects(self, data: Any, level: float = 0.95) -> pd.DataFrame:
        """Effects of the subjects of new data, from those rows alone; columns as in `effects`."""
        encoded = self._encode(data)
        mean, cov = effects_out(self.model, *self._infer(encoded))
        return self._effects_table(encoded.panel.subjects, mean, cov, level)

    # --- later, and one step ahead ----------------------------------------------------------------

    def predict(
        self,
        data: Any = None,
        *,
        horizon: int = 10,
        future: Any = None,
        of: str = "outcomes",
        level: float = 0.95,
        effects: str = "integrated",
        n_draws: int = 1000,
        seed: int = 0,
    ) -> Any:
        """Per sequence, step beyond its end and outcome: mean, sd and interval.

        Of the mixture over states and effects, by its own quantiles; of labels, a row for each
        `level` with its probability as `mean`. ``future`` has the covariates of the steps ahead,
        where the model has any: a frame, or a dict such as ``{"stress": 0}``. With `data`, what
        happened so far: subjects of the fit keep what is known of their effects, those of others
        come from these rows. ``effects="fitted"`` leaves out that effects are not known exactly;
        ``of="states"`` gives the probabilities of the states. Beyond the first step with `lag` of
        an outcome, and for `Custom` outcomes (which need their `draw`), ``n_draws`` paths are
        simulated for each sequence, by `seed`.
        """
        chosen = (horizon, data, future, of, level, effects, n_draws, seed)
        return _hmm_predict.predict(self, *chosen)

    def predictions(self, data: Any = None, level: float = 0.95, effects: str = "fitted") -> Any:
        """Rows x (mean, sd, lower, upper of each outcome), given the rows before it.

        Of labels, the probability of each level.
        """
        return _hmm_predict.predictions(self, data, level, effects)

    # --- does the model hold? --------------------------------------------------------------------

    def residuals(
        self,
        data: Any = None,
        kind: str = "forecast",
        *,
        discrete: str = "randomised",
        effects: str = "fitted",
        seed: int = 0,
    ) -> Any:
        """Rows x outcomes: normal pseudo-residuals, NaN where missing.

        Standard normal if the model holds. ``kind="forecast"``: of each value given the rows before
        it in its sequence; ``"ordinary"``: given all others. Counts, choices and labels get a
        random point of the stretch that their value is, by `seed` (``discrete="mid"``: its middle).
        ``effects="drawn"``: at one draw of every subject's effects instead of their means, which
        makes up for these having been fitted to the same rows.
        """
        return _hmm_residuals.residuals(self, data, kind, discrete, effects, seed)

    def whiteness(
        self, lags: int = 5, data: Any = None, effects: str = "drawn", seed: int = 0
    ) -> pd.DataFrame:
        """Per outcome, tests of the forecast residuals, pooled over sequences.

        ``p_white``: no autocorrelation at lags 1 to `lags` (Ljung-Box); ``p_normal``: no skewness
        or excess kurtosis (Jarque-Bera).
        """
        return _hmm_residuals.whiteness(self, lags, data, effects, seed)

    # --- questions ------------------------------------------------------------------------------

    def occupancy(self, by: Any = None, level: float = 0.95) -> pd.DataFrame:
        """The share of time in each state: of all rows, of each subject, or of each group of rows.

        Parameters
        ----------
        by
            A column of the data, or one value per row: a time, a condition. ``"subject"`` (or the
            name of that column) gives every subject its own.

        Returns
        -------
        DataFrame
            ``share`` from the probabilities of the states, ``se``, ``lower`` and ``upper``. Of
            groups and of all rows they are those of a sample of subjects; of a subject, what is
            not known of its own states and effects. Parameters are taken as known in both. A
            single subject is no sample: ``note`` says so.
        """
        return shares.occupancy_table(self, by, level)

    def stationary(
        self, by: str | None = None, level: float | None = 0.95, kind: str = "observed"
    ) -> pd.DataFrame:
        """The share of time in each state that the transitions lead to in the long run.

        At effect 0 and average covariates; with ``by="subject"``, at every subject's own. `kind`
        is that of `standard_errors`; ``level=None`` gives shares alone, at once. Intervals of
        subjects add what is not known of the parameters and of the effects as if independent,
        which errs on the wide side.
        """
        return stays.stationary(self, by, level, kind)

    def dwell(
        self, by: str | None = None, level: float | None = 0.95, kind: str = "observed"
    ) -> pd.DataFrame:
        """How many rows a stay in each state lasts: expected, and on the decoded path.

        Parameters
        ----------
        by
            None: at effect 0 and average covariates, with the mean of decoded stays (those that
            the end of a sequence cuts are allowed for) and their number. ``"subject"``: expected
            at every subject's average covariates and effect. ``"length"``: the distribution, the
            decoded one (by Kaplan and Meier) beside the geometric one that the model implies.
        level, kind
            As in `stationary`.
        """
        return stays.dwell(self, by, level, kind)

    def covariate(
        self,
        name: str,
        on: str | None = None,
        *,
        grid: Sequence[Any] | None = None,
        at: Mapping[str, Any] | None = None,
        points: int = 25,
        level: float | None = 0.95,
        kind: str = "observed",
    ) -> pd.DataFrame:
        """What a covariate does, over its range or levels, at effect 0.

        Parameters
        ----------
        name
            A column that the formulas read.
        on
            ``"transitions"``, ``"stationary"`` (long-run shares of the states), ``"outcomes"``
            (their means, or probabilities of levels) or the name of an outcome. By default the
            transitions if they depend on it, otherwise the outcomes.
        grid
            Values of the covariate; by default its levels, or `points` steps over its range.
        at
            Values of other covariates. The rest is averaged over the rows of the data.
        level, kind
            Intervals by the delta method from `standard_errors` of that kind; ``level=None``
            leaves them out, and is quick.
        """
        return covariate_table(self, name, on, grid, at, points, level, kind)

    def contrast(
        self,
        groups: Any = None,
        *,
        subjects: Any = None,
        states: Any = None,
        level: float = 0.95,
        posterior: str = "fit",
        kind: str = "observed",
    ) -> pd.DataFrame:
        """Differences between groups of subjects, between subjects, or between states.

        Parameters
        ----------
        groups
            A column that is the same in all rows of a subject, or a dict from subjects to groups:
            differences of the groups' mean effects. ``se``, the interval and ``p`` are Welch's, on
            the means of the subjects: about the populations that they are a sample of. ``sd`` is
            what is not known of these very subjects' difference, given the parameters. A group
            of one subject has no spread, hence no test: `note` says so.
            Effects are shrunk towards 0, and so are differences: to estimate one, put the group
            into the formula.
        subjects
            Labels, two or more: the effects of each pair, with their posterior; ``probability`` is
            that of the sign they show.
        states
            ``(1, 0)``: parameters of state 1 less those of state 0, with standard errors of that
            `kind`; True for all pairs.
        posterior
            Of the effects, as in `effects`.
        """
        if sum(given is not None for given in (groups, subjects, states)) != 1:
            raise ModelError("contrast takes one of groups=, subjects= and states=.")
        if states is not None:
            return state_contrast(self, states, level, kind)
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
            ``"zeros"``, ``"same"``, ``"share"`` (of levels). By default those that apply.
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
            return simulate(self.model, self.params, panel, rng, fixed).frame

        levels = {place.name: levels_of(place.piece) for place in places(self.model)}
        return run_check(
            panel,
            levels,
            draw,
            statistic=statistic,
            n=n,
            effects=effects,
            level=level,
            seed=seed,
            progress=progress,
        )

    # --- simulation, pictures, files ------------------------------------------------------------

    def simulate(
        self, data: Any = None, *, effects: str = "new", seed: int | None = None
    ) -> Simulation:
        """A data set drawn from the fit, on the rows (times, covariates) of the fit or of `data`.

        ``effects="new"`` draws new subjects; ``"fitted"`` keeps each subject at its own effect.
        """
        panel = self._panel(data)
        fixed = effects_to_draw_with(self, panel, effects, self.effects_mean)
        if seed is not None:
            check_seed(seed)
        rng = np.random.default_rng(seed)
        drawn = simulate(self.model, self.params, panel, rng, fixed)
        return drawn._replace(frame=panel.table_like(drawn.frame))

    @cached_property
    def plot(self) -> Plots:
        """Pictures: `fit.plot.states()`, `effects`, `emissions`, `transitions`, `occupancy`,
        `stationary`, `dwell`, `covariate`, `contrast`, `forecast`, `residuals`, `check`, `bound`,
        `gap`.
        """
        return Plots(self)

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

    def with_data(self, data: Any) -> HMMFit:
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
        return params_in(self.model, self.params)

    def values_of(self, params: dict[str, np.ndarray]) -> np.ndarray:
        """The estimates that `table` would have with other parameters."""
        return np.array([v for *_, v in tables.parameter_rows(self.model, params)])

    def _panel(self, data: Any) -> Panel:
        return panel_for(self, data)

    @cached_property
    def _own_data(self) -> Encoded:
        return self.model.encode(self._panel(None))

    def _encode(self, data: Any) -> Encoded:
        return self._own_data if data is None else self.model.encode(self._panel(data))

    def _e_steps(self, data: Encoded) -> ESteps:
        return make_e_steps(self.model, data)

    @cached_property
    def _marginal(self) -> Marginal:
        effects, data = effects_in(self.model, self.effects_mean), self._own_data
        return marginal(self._e_steps(data), self.theta, effects)

    @cached_property
    def _nodes(self) -> PosteriorNodes:
        """Of the posterior of its own subjects' effects."""
        return posterior_nodes(self._marginal)

    @cached_property
    def _curvature(self) -> Curvature:
        return self._curvature_from(None)

    def _curvature_from(self, n_draws: int | None) -> Curvature:
        model, data = self.model, self._own_data
        scale = effect_scale(model, data)
        free = find_free(model, self.theta, self.info.fixed, data.spread, scale)
        return uncertainty(self._marginal, free, n_draws)

    def _jacobian(self, data: Encoded) -> np.ndarray:
        """(subjects,) from log densities on the scale of the fit to those of the user's units."""
        return jacobian(self.model.scaling, data.panel, data.y)

    @property
    def subject_jacobian(self) -> np.ndarray:
        """The same for the data of the fit."""
        return self._jacobian(self._own_data)

    def _infer(self, data: Encoded) -> tuple[np.ndarray, np.ndarray]:
        """Mean (d, subjects) and covariance of the effects, by the fit's own kind of posterior."""
        return inferred_effects(self, data)

    def _effects_for(self, data: Encoded) -> np.ndarray:
        """(d, panel subjects) on the scale of the fit: fitted where known, inferred elsewhere."""
        known = positions(self, data.panel)
        fitted = effects_in(self.model, self.effects_mean[known])
        return known_or_inferred(self, data, known, fitted)
