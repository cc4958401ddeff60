"""The fit of a mixed HMM: what only discrete states have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from avem.data import Panel
from avem.errors import ModelError
from avem.fits import tables
from avem.fits.elsewhere import HMM_FIT
from avem.fits.lazy import by_parts
from avem.fits.plots.hmm_plots import Plots
from avem.fits.predict import hmm as prediction
from avem.fits.predict.at import places
from avem.fits.questions.clock import probabilities_table, rates_table, survival_table
from avem.fits.questions.clusters import cluster_chances, cluster_table
from avem.fits.questions.contrast import state_contrast
from avem.fits.questions.covariate import covariate_table
from avem.fits.questions.degenerate import degenerate_states
from avem.fits.questions.diagnosis import why_lost
from avem.fits.questions.dwell import dwell_table, stationary_table
from avem.fits.questions.moves import transitions_table
from avem.fits.questions.occupancy import occupancy_table
from avem.fits.questions.residuals import hmm_residuals
from avem.fits.questions.response import Response, hmm_response
from avem.fits.sections import Section, frames, ratios_by_parameter
from avem.fits.states_of_rows import StatesOfRows
from avem.fits.words import (
    Errors,
    Parameters,
    Posterior,
    errors_word,
)
from avem.inference.after.hmm_states import (
    path_entropy,
)
from avem.inference.e_steps import ESteps
from avem.inference.fit_hmm import make_e_steps
from avem.models.encoded import Encoded
from avem.models.given_priors import code_of
from avem.models.hmm_simulate import Simulation, simulate
from avem.models.state_names import find_state

if TYPE_CHECKING:
    from avem.fits.report.hmm import HMMParts

_LIFT = 0.1
"""Share of even chances mixed into the probabilities that a replicate starts from."""
_MORE_VARIANCE = 0.01
"""Added to the variance of each effect there, beside a standardised outcome's 1: from much more,
effects may end in a mode where they explain the states."""


@dataclass(frozen=True, eq=False, repr=False)
class HMMFit(StatesOfRows):
    """A fitted mixed HMM; `Fit` lists its attributes.

    ``params`` has ``initial`` (K,), ``transition`` (K, K), ``coef`` (K, outcomes, terms) on the
    scale of the link, further parameters of the family (``variance``, ``shape``, ...),
    ``effect_covariance`` (d, d). With covariates or effects on the transitions,
    ``transition_coef`` (K, K, terms); in continuous time ``rate`` (K, K) or ``rate_coef``
    (K, K, terms) in their place; with durations, ``duration_coef`` (K, terms) and, where the
    family has one, ``duration_shape`` (K,). With several formulas, names are prefixed:
    ``step.coef``.

    Examples
    --------
    >>> fit.params["transition"].shape
    (2, 2)
    """

    kind: ClassVar[str] = "hmm"
    _elsewhere: ClassVar[Mapping[str, str]] = HMM_FIT

    @property
    def plot(self) -> Plots:
        """Pictures of the fit, such as `fit.plot.states()`.

        Others: `map`, `effects`, `emissions`, `transitions`, `occupancy`, `stationary`, `dwell`,
        `covariate`, `contrast`, `forecast`, `residuals`, `check`, `bound`, `gap`.
        """
        return Plots(self)

    # --- states ----------------------------------------------------------------------------------

    @by_parts
    def clusters(self, data: Any = None) -> Any:
        """Which type each subject is of: the probability of every cluster, given all its rows.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the data of the fit. Of new data, what is known of the effects of the fit's
            subjects comes from the rows of the fit.

        Returns
        -------
        DataFrame
            Of the data's own kind: the subject, ``cluster`` (the most probable one), and
            ``cluster_0``, ``cluster_1``, ...: probabilities, averaged over the posterior of the
            subject's effects.

        Examples
        --------
        >>> list(typed.clusters().columns)
        ['person', 'cluster', 'cluster_0', 'cluster_1']
        """
        return cluster_table(self, self._encode(data))

    @cached_property
    def degenerate(self) -> tuple[str, ...]:
        """What makes its likelihood worth little; see `Fit.degenerate`."""
        return () if self.panel is None else degenerate_states(self)

    def icl(self) -> float:
        """The integrated completed likelihood: BIC plus twice the entropy of the state paths.

        Lower is better; states that cannot be told apart cost.

        Returns
        -------
        float

        Examples
        --------
        >>> fit.icl() > fit.bic()
        True
        """
        encoded = self._own_data
        entropy = path_entropy(encoded, self.theta, self._effects_for(encoded))
        return self.bic() + 2.0 * float(entropy.sum())

    # --- later, and one step ahead ---------------------------------------------------------------

    @by_parts
    def predict(
        self,
        data: Any = None,
        *,
        horizon: int = 10,
        future: Any = None,
        of: Literal["outcomes", "states"] = "outcomes",
        level: float = 0.95,
        effects: Literal["integrated", "fitted"] = "integrated",
        n_draws: int = 1000,
        seed: int = 0,
    ) -> Any:
        """What follows each sequence, a mixture over the states and over the subject's effects.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            What happened so far; by default the data of the fit. Subjects of the fit keep what is
            known of their effects, those of others come from these rows.
        horizon : int
            Steps beyond the last row of every sequence.
        future : DataFrame or dict, optional
            The covariates of the steps ahead, where the model has any. A frame: subject, sequence,
            time if there is one, and at least `horizon` rows per sequence. Or, the same ahead of
            all sequences, a dict: ``{"stress": 0}``, or ``{"stress": [0, 1, 2]}`` step by step;
            what never changes within a subject, such as its group, need not be in it.
        of : {"outcomes", "states"}
            What to predict.
        level : float
            Probability of the intervals, which lie between the mixture's own quantiles.
        effects : {"integrated", "fitted"}
            Averaged over the posterior of each subject's effects, or at their means.
        n_draws, seed : int
            Of simulated paths for each sequence, where coming values depend on values still to
            come: beyond the first step with `lag` of an outcome, and of `Custom` outcomes (which
            need their `draw`).

        Returns
        -------
        DataFrame
            Of the data's own kind: per sequence, step and outcome ``mean``, ``sd``, ``lower`` and
            ``upper``; labels have a row for each ``level``, whose probability is the ``mean``; of
            states, their ``probability``. NaN, with a warning, where a ``lag()`` looks back to a
            missing value.

        Examples
        --------
        >>> fit.predict(horizon=2)["step"].max()
        np.int64(2)
        """
        chosen = (horizon, data, future, of, level, effects, n_draws, seed)
        return prediction.predict(self, *chosen)

    @by_parts
    def residuals(
        self,
        data: Any = None,
        kind: Literal["forecast", "ordinary"] = "forecast",
        *,
        discrete: Literal["randomised", "mid"] = "randomised",
        effects: Literal["fitted", "drawn"] = "fitted",
        seed: int = 0,
    ) -> Any:
        """Normal pseudo-residuals: standard normal if the model holds.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the rows of the fit.
        kind : {"forecast", "ordinary"}
            Of each value given the rows before it in its sequence, or given all others.
        discrete : {"randomised", "mid"}
            Counts, choices and labels get a random point of the stretch that their value is, by
            `seed`, or its middle.
        effects : {"fitted", "drawn"}
            At the mean of every subject's effects, or at one draw of them, which makes up for these
            having been fitted to the same rows.
        seed : int
            Of all that is random.

        Returns
        -------
        DataFrame
            Rows x outcomes, in the data's own row order and index; NaN where missing.

        Examples
        --------
        >>> bool(abs(fit.residuals()["valence"].mean()) < 0.1)
        True
        """
        encoded = self._encode(data)
        found = hmm_residuals(self, encoded, kind, discrete, effects, seed)
        return encoded.panel.frame_like(dict(zip(self.model.outcomes, found.T, strict=True)))

    # --- questions -------------------------------------------------------------------------------

    def occupancy(
        self, by: Any = None, level: float = 0.95, parameters: Parameters = "fixed"
    ) -> Any:
        """The share of time in each state: of all rows, of each subject, or of each group of rows.

        Parameters
        ----------
        by : str, list of str or array, optional
            A column of the data, several of them, or one value per row: a time, a condition.
            ``"subject"`` (or the name of that column) gives every subject its own, and
            ``["subject", "session"]`` each of its sessions.
        level : float
            Probability of the intervals.
        parameters : {"fixed", "estimated"}
            Of subjects, whether intervals take the parameters as known, or count their uncertainty:
            share and interval are then over 300 draws of parameters and effects together, as in
            `state_probabilities`.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``share`` from the probabilities of the states, ``se``,
            ``lower`` and ``upper``. Of groups and of all rows they are those of a sample of
            subjects, the parameters taken as known; of a subject, or of a part of its rows, what
            is not known of its own states and effects. A single subject is no sample: ``note`` says
            so.

        Examples
        --------
        >>> float(fit.occupancy()["share"].sum().round(6))
        1.0
        """
        return self._own_kind(occupancy_table(self, by, level, parameters))

    def transitions(
        self,
        by: str | None = None,
        level: float | None = 0.95,
        errors: Errors = "observed",
        *,
        at: Mapping[str, Any] | None = None,
    ) -> Any:
        """The probability of each move between states, of the group or of every subject.

        Over one step; in continuous time over one unit of time (`transition_probabilities` has
        others, `rates` what they come from).

        Parameters
        ----------
        by : {"subject"}, optional
            At every subject's own effects and average covariates; by default at effect 0 and the
            average covariates of all. Intervals of subjects count what is not known of their
            effects and of the parameters. Where the transitions have no effects, ``note`` says so.
        level : float, optional
            Probability of the intervals; None gives probabilities alone, at once.
        errors : {"observed", "sandwich"}
            As in `standard_errors`.
        at : dict, optional
            Values of covariates, for all; others are averaged.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``state``, ``to_state``, ``probability``, ``se``, ``lower``,
            ``upper``, ``note``.

        Examples
        --------
        >>> list(fit.transitions(level=None).columns)
        ['state', 'to_state', 'probability']
        """
        return self._own_kind(transitions_table(self, by, at, level, errors))

    def rates(
        self,
        by: str | None = None,
        level: float | None = 0.95,
        errors: Errors = "observed",
        *,
        at: Mapping[str, Any] | None = None,
    ) -> Any:
        """The rate of each move between states, of a model in continuous time.

        Parameters
        ----------
        by : {"subject"}, optional
            As in `transitions`.
        level : float, optional
            Probability of the intervals; None gives rates alone, at once.
        errors : {"observed", "sandwich"}
            As in `standard_errors`.
        at : dict, optional
            As in `transitions`.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``state``, ``to_state``, ``rate`` per unit of time, ``se``,
            ``lower``, ``upper``, ``note``.

        Examples
        --------
        >>> list(visits.rates(level=None).columns)
        ['state', 'to_state', 'rate']
        """
        return self._own_kind(rates_table(self, by, at, level, errors))

    def transition_probabilities(
        self,
        horizon: Any = 1,
        by: str | None = None,
        level: float | None = 0.95,
        errors: Errors = "observed",
        *,
        at: Mapping[str, Any] | None = None,
    ) -> Any:
        """The probability of being in each state some time after being in another.

        Not of models with durations, where it depends on how long a stay has lasted already.

        Parameters
        ----------
        horizon : float or list of float
            After which time, or times: in continuous time in its unit, otherwise whole numbers of
            steps.
        by : {"subject"}, optional
            As in `transitions`.
        level : float, optional
            Probability of the intervals; None gives probabilities alone, at once.
        errors : {"observed", "sandwich"}
            As in `standard_errors`.
        at : dict, optional
            As in `transitions`; covariates stay as they are all the time.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``horizon``, ``state``, ``to_state``, ``probability``, ``se``,
            ``lower``, ``upper``, ``note``.

        Examples
        --------
        >>> ahead = fit.transition_probabilities([1, 10], level=None)
        >>> ahead.groupby(["horizon", "state"])["probability"].sum().round(6).unique().tolist()
        [1.0]
        """
        return self._own_kind(probabilities_table(self, horizon, by, at, level, errors))

    def survival(
        self,
        times: Any,
        by: str | None = None,
        level: float | None = 0.95,
        errors: Errors = "observed",
        *,
        at: Mapping[str, Any] | None = None,
    ) -> Any:
        """The probability of not yet being in a state that is never left.

        Parameters
        ----------
        times : float or list of float
            How long after being in ``state``; as in `transition_probabilities`.
        by : {"subject"}, optional
            As in `transitions`.
        level : float, optional
            Probability of the intervals; None gives probabilities alone, at once.
        errors : {"observed", "sandwich"}
            As in `standard_errors`.
        at : dict, optional
            As in `transition_probabilities`.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``time``, ``state`` in which it began, ``survival``, ``se``,
            ``lower``, ``upper``, ``note``.

        Examples
        --------
        >>> list(visits.survival([1, 5], level=None).columns)
        ['time', 'state', 'survival']
        """
        return self._own_kind(survival_table(self, times, by, at, level, errors))

    def stationary(
        self,
        by: Literal["subject"] | str | None = None,
        level: float | None = 0.95,
        errors: Errors = "observed",
        *,
        at: Mapping[str, Any] | None = None,
        kind: str | None = None,
    ) -> Any:
        """The share of time in each state that the transitions lead to in the long run.

        Parameters
        ----------
        by : {"subject"}, optional
            As in `transitions`.
        level : float, optional
            Probability of the intervals; None gives shares alone, at once.
        errors : {"observed", "sandwich"}
            As in `standard_errors`.
        at : dict, optional
            As in `transitions`.
        kind : str, optional
            The former name of `errors`.

        Returns
        -------
        DataFrame
            Of the data's own kind: ``state``, ``share``, ``se``, ``lower``, ``upper``, ``note``.

        Examples
        --------
        >>> list(fit.stationary(level=None).columns)
        ['state', 'share']
        """
        return self._own_kind(stationary_table(self, by, level, errors_word(errors, kind), at))

    def dwell(
        self,
        by: Literal["subject", "length"] | str | None = None,
        level: float | None = 0.95,
        errors: Errors = "observed",
        *,
        at: Mapping[str, Any] | None = None,
        kind: str | None = None,
    ) -> Any:
        """How many rows a stay in each state lasts: expected, and on the decoded path.

        In continuous time, how long it lasts, in the unit of time, expected alone.

        Parameters
        ----------
        by : {"subject", "length"}, optional
            None: at effect 0 and average covariates, with the mean of decoded stays (those that
            the end of a sequence cuts are allowed for) and their number. ``"subject"``: expected
            of every subject, as in `transitions`. ``"length"``: the distribution, the
            decoded one (by Kaplan and Meier) beside the one that the model implies: geometric,
            unless it has durations of its own.
        level : float or None
            As in `stationary`.
        errors : {"observed", "sandwich"}
            As in `stationary`.
        at : dict, optional
            As in `transitions`; what was decoded does not depend on it.
        kind : str, optional
            The former name of `errors`.

        Returns
        -------
        DataFrame
            Of the data's own kind.

        Examples
        --------
        >>> list(fit.dwell(level=None).columns)
        ['state', 'expected', 'decoded', 'visits']
        """
        return self._own_kind(dwell_table(self, by, level, errors_word(errors, kind), at))

    def covariate(
        self,
        name: str,
        on: Literal["transitions", "stationary", "dwell", "outcomes"] | str | None = None,
        *,
        grid: Sequence[Any] | None = None,
        at: Mapping[str, Any] | None = None,
        points: int = 25,
        level: float | None = 0.95,
        errors: Errors = "observed",
        kind: str | None = None,
    ) -> Any:
        """What a covariate does, over its range or levels, at effect 0.

        Parameters
        ----------
        name : str
            A column that the formulas read.
        on : str, optional
            ``"transitions"``, ``"stationary"`` (long-run shares of the states), ``"dwell"`` (how
            many rows a stay lasts), ``"outcomes"`` (their means, or probabilities of levels) or the
            name of an outcome. By default the transitions or durations if they depend on it,
            otherwise the outcomes.
        grid : sequence, optional
            Values of the covariate; by default its levels, or `points` steps over its range.
        at : dict, optional
            Values of other covariates. The rest is averaged over the rows of the data.
        points : int
            Steps over the range of a number.
        level : float, optional
            Of the intervals, by the delta method; None leaves them out, and is quick.
        errors : {"observed", "sandwich"}
            As in `standard_errors`.
        kind : str, optional
            The former name of `errors`.

        Returns
        -------
        DataFrame
            Of the data's own kind: the covariate, the state, and the estimate with its interval.

        Examples
        --------
        >>> table = stressed.covariate("stress", grid=[-1, 0, 1], level=None)
        >>> table["stress"].unique().tolist()
        [-1, 0, 1]
        """
        chosen = (name, on, grid, at, points, level, errors_word(errors, kind))
        return self._own_kind(covariate_table(self, *chosen))

    def contrast(
        self,
        groups: Any = None,
        *,
        subjects: Any = None,
        states: Any = None,
        level: float = 0.95,
        posterior: Posterior = "fit",
        errors: Errors = "observed",
        kind: str | None = None,
    ) -> Any:
        """Differences between groups of subjects, between subjects, or between states.

        Parameters
        ----------
        groups : str or dict, optional
            A column that is the same in all rows of a subject, or a dict from subjects to groups:
            differences of the groups' mean effects. ``se``, the interval and ``p`` are Welch's, on
            the means of the subjects: about the populations that they are a sample of. ``sd`` is
            what is not known of these very subjects' difference, given the parameters. A group
            of one subject has no spread, hence no test: `note` says so.
            Effects are shrunk towards 0, and so are differences: to estimate one, put the group
            into the formula.
        subjects : list, optional
            Labels, two or more: the effects of each pair, with their posterior; ``probability`` is
            that of the sign they show.
        states : tuple of int or str, or True, optional
            ``(1, 0)``: parameters of state 1 less those of state 0, with standard errors and
            ``p``; states that have names can be given by them. True for all pairs. Directions
            of angles differ by the nearer way round, between -pi and pi; an interval lies around
            the difference, and may reach further.
        level : float
            Probability of the intervals.
        posterior : {"fit", "adaptive"}
            Of the effects, as in `effects`.
        errors : {"observed", "sandwich"}
            Of the parameters, as in `standard_errors`.
        kind : str, optional
            The former name of `errors`.

        Returns
        -------
        DataFrame
            Of the data's own kind: a row per pair and effect, or per pair and parameter.

        Examples
        --------
        >>> fit.contrast(subjects=["p01", "p02"])["other"].tolist()
        ['p02']
        """
        if sum(given is not None for given in (groups, subjects, states)) != 1:
            raise ModelError("contrast takes one of groups=, subjects= and states=.")
        if states is None:
            return super().contrast(groups, subjects=subjects, level=level, posterior=posterior)
        errors_of = errors_word(errors, kind)
        return self._own_kind(state_contrast(self, self._numbers_of(states), level, errors_of))

    # --- inside ----------------------------------------------------------------------------------

    def _numbers_of(self, states: Any) -> Any:
        """States given by name as numbers; what is no sequence stays what it is."""
        if not isinstance(states, tuple | list) or not any(isinstance(k, str) for k in states):
            return states
        names, n = self.state_names, self.model.n_states
        return tuple(find_state(k, names, n, "states") for k in states)

    def _memberships(self, encoded: Encoded) -> np.ndarray:
        """(subjects, clusters) probabilities."""
        return cluster_chances(self, encoded)

    def _of_cluster(self, c: int) -> HMMFit:
        """Its estimates as those of a model of one type of subjects: for tables of them."""
        own = self.model.params_of(self.params, c)
        return replace(self, model=self.model.of_one_cluster(), params=own)

    def _response(self, rows: pd.DataFrame) -> Response:
        return hmm_response(self, rows)

    def _predictions(self, data: Encoded, level: float, effects: str) -> dict[str, np.ndarray]:
        return prediction.predictions(self, data, level, effects)

    def _head(self) -> list[str]:
        return tables.head(self)

    def _starts(self) -> str:
        gaps = self.info.start_gaps
        return (
            f"{self.info.starts_agreeing} of {len(gaps)} starts found the same solution; "
            f"their bounds spread over {max(gaps):.3g}."
        )

    def _sections(self) -> Iterable[Section]:
        return frames(self)

    def _ratios(self) -> dict[str, str]:
        return ratios_by_parameter(self.model)

    def _levels(self) -> dict[str, Sequence[Any] | None]:
        return {place.name: place.piece.family.levels for place in places(self.model)}

    def _e_steps(self, data: Encoded) -> ESteps:
        return make_e_steps(self.model, data)

    def _draw(
        self, panel: Panel, rng: np.random.Generator, effects: np.ndarray | None = None
    ) -> Simulation:
        return simulate(self.model, self.params, panel, rng, effects)

    def _residual_values(self, data: Encoded, effects: str, seed: int) -> list[np.ndarray]:
        return [hmm_residuals(self, data, "forecast", "randomised", effects, seed)]

    def _states_by_row(self, data: Any) -> list[Any]:
        return [self.decode(data), self.state_probabilities(data)]

    def _parts(self) -> HMMParts:
        from avem.fits.report.hmm import HMMParts

        return HMMParts(self)

    def _why_lost(self) -> str:
        return why_lost(self._occupation.unsure)

    def _own_options(self) -> dict[str, Any]:
        return {}

    def _own_identity(self) -> dict[str, Any]:
        spec = self.model.spec
        told: dict[str, Any] = {"known": spec.known} if spec.known is not None else {}
        if self.model.continuous:
            told["rates"] = spec.transition.code()
        if spec.n_clusters > 1:
            told["n_clusters"] = spec.n_clusters
        if spec.constraints or spec.priors:
            told |= {"constraints": list(spec.constraints), "priors": code_of(spec.priors)}
        return {
            "families": [repr(outcome.family) for outcome in spec.outcomes],
            "effects_by_state": [outcome.effects_by_state for outcome in spec.outcomes],
            **told,
        }

    def _start_for_replicates(self) -> dict[str, np.ndarray]:
        # EM never leaves a probability or a variance of effects of 0.
        start, model = dict(self.params), self.model
        d = model.n_effects
        _, units = model.effects_out(np.zeros((d, 1)), np.eye(d)[:, :, None])
        start["effect_covariance"] = start["effect_covariance"] + _MORE_VARIANCE * units[0]
        even = model.params_out(model.middle())
        for name, info in model.param_info().items():
            is_chance = info.link is not None and info.link.name == "logit"
            if info.kind == "simplex" or is_chance:
                start[name] = (1 - _LIFT) * self.params[name] + _LIFT * even[name]
        return start
