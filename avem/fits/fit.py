"""What a fit can do whatever the states of its model are."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import pandas as pd

from avem.components.param_info import check_count, check_level, check_seed
from avem.data import Panel
from avem.data.frames import Source
from avem.data.scanning.memory import need_rows
from avem.errors import ModelError
from avem.fits.common import (
    effect_sd,
    effects_table,
    effects_to_draw_with,
    inferred_effects,
    marginal_of_new,
    own_panel,
)
from avem.fits.computed import COMPUTED, Computed
from avem.fits.info import FitInfo
from avem.fits.lazy import LazyTable, by_parts, on_subjects, subjects_table
from avem.fits.likelihood import LogLik, aic, bic
from avem.fits.naming import named_states
from avem.fits.plots.fit_plots import FitPlots
from avem.fits.predict.log_score import score
from avem.fits.questions.check import Check, run_check
from avem.fits.questions.coefficients import coefficients_table, uncertain_effects
from avem.fits.questions.contrast import effect_contrast
from avem.fits.questions.diagnosis import Diagnosis, diagnose
from avem.fits.questions.whiteness import whiteness
from avem.fits.tables import tidy
from avem.fits.uncertainty import standard_errors
from avem.fits.words import (
    PARAMETERS,
    POSTERIORS,
    Errors,
    Parameters,
    Posterior,
    Scale,
    check_word,
    errors_word,
)
from avem.inference.after.marginal import anchoring
from avem.inference.stop import Stop
from avem.models.state_names import renamed

if TYPE_CHECKING:
    from avem.fits.questions.response import Response
    from avem.fits.report.parts import Parts
    from avem.fits.sections import Section

Model = TypeVar("Model", bound=Any)
Drawn = TypeVar("Drawn", bound=Any)


@dataclass(frozen=True, eq=False, repr=False)
class Fit(Computed, Generic[Model, Drawn]):
    """A fitted model; `HMMFit` and `SSMFit` add what only their states have.

    Attributes
    ----------
    model : HMMModel or SSMModel
        The model as the engine sees it.
    params : dict of str to numpy.ndarray
        The estimates by name; `table` has them all, a row each.
    effects_mean, effects_cov : numpy.ndarray
        (n, d) and (n, d, d): mean and covariance of q_i, subjects in the order of `subjects`.
    subjects : numpy.ndarray
        (n,) labels, in order of first appearance in the data.
    bound : float
        What was maximised; `bound_name` says what it is. With priors, it was maximised together
        with `log_prior`, which is not part of it.
    bound_history : numpy.ndarray
        What was maximised at each iteration, the log prior included.
    n_iter : int
        The number of iterations.
    stop : Stop
        How they ended.
    loglik_history : numpy.ndarray
        sum_i log p(D_i | anchor) at each iteration.
    info : FitInfo
        How the fit went.
    columns : dict
        The data's subject, time and sequence columns.
    panel : Panel or None
        The data; None for a fit loaded from a file.
    """

    model: Model
    params: dict[str, np.ndarray]
    effects_mean: np.ndarray
    effects_cov: np.ndarray
    subjects: np.ndarray
    bound: float
    bound_history: np.ndarray
    loglik_history: np.ndarray
    n_iter: int
    stop: Stop
    info: FitInfo
    columns: Mapping[str, str | None]
    panel: Panel | None = field(default=None)

    kind: ClassVar[str]
    """The word for this kind of fit in files."""

    # --- what each kind of fit says of itself ----------------------------------------------------

    @property
    @abstractmethod
    def plot(self) -> FitPlots:
        """Pictures of the fit."""

    @abstractmethod
    def _sections(self) -> Iterable[Section]:
        """The estimates as titled tables."""

    @abstractmethod
    def _levels(self) -> dict[str, Sequence[Any] | None]:
        """The levels of each outcome; None where its values are numbers."""

    @abstractmethod
    def _draw(
        self, panel: Panel, rng: np.random.Generator, effects: np.ndarray | None = None
    ) -> Drawn:
        """A data set on the rows of a panel, at given effects or at new ones."""

    @abstractmethod
    def _residual_values(self, data: Any, effects: str, seed: int) -> list[np.ndarray]:
        """(rows, outcomes) one-step residuals; if there are such, those freed of each other."""

    @abstractmethod
    def _predictions(self, data: Any, level: float, effects: str) -> dict[str, np.ndarray]:
        """By column of `predictions`, (rows,) of encoded data."""

    @abstractmethod
    def _states_by_row(self, data: Any) -> list[Any]:
        """What is known of the state of every row, as tables."""

    @abstractmethod
    def _parts(self) -> Parts:
        """What the report says of this kind of model alone."""

    @abstractmethod
    def _why_lost(self) -> str:
        """Why information on effects may be lost, in words; empty where nothing can be said."""

    @abstractmethod
    def _own_options(self) -> dict[str, Any]:
        """The options of `fit` that models of other kinds do not have."""

    @abstractmethod
    def _own_identity(self) -> dict[str, Any]:
        """What tells its model from others of the same formulas and size, as JSON."""

    @abstractmethod
    def _start_for_replicates(self) -> dict[str, np.ndarray]:
        """Parameters near the fit, off the boundary, to start a fit to similar data from."""

    # --- states and effects ----------------------------------------------------------------------

    def rename_states(self, names: Mapping[Any, str] | Sequence[str] | None) -> Self:
        """The same fit with names for its states, used wherever it speaks of them.

        Tables then have names where they had numbers, and options that take a state take its name.
        Nothing is computed again. Parameters (`params`) keep their order.

        Parameters
        ----------
        names : dict, list or None
            ``{0: "low", 1: "high"}``, or a name for every state in order. States that have names
            can be given by these. Those left out of a dict keep theirs, or are called
            ``"state 1"``. None takes the names away.

        Returns
        -------
        HMMFit or SSMFit

        Examples
        --------
        >>> mood = fit.rename_states({0: "low", 1: "high"})
        >>> mood.state_names
        ('low', 'high')
        >>> mood.table()["state"].unique().tolist()
        ['low', 'high', None]
        """
        spec = self.model.spec
        spec = spec.renamed(renamed(names, self.state_names, self.model.size))
        new = replace(self, model=replace(self.model, spec=spec))
        vars(new).update({name: vars(self)[name] for name in COMPUTED if name in vars(self)})
        return new

    def _table(self) -> pd.DataFrame:
        return tidy(self.model.parameter_rows(self.params))

    def effects(
        self,
        level: float = 0.95,
        posterior: Posterior = "fit",
        parameters: Parameters = "fixed",
    ) -> Any:
        """Per subject and effect: mean, sd and interval of its deviation from the population.

        Parameters
        ----------
        level : float
            Probability of the intervals.
        posterior : {"fit", "adaptive"}
            ``"fit"``: as the fit's own method has it; after plain anchoring the intervals are too
            short where states are hard to tell apart. ``"adaptive"``: with the states integrated
            out.
        parameters : {"fixed", "estimated"}
            ``"fixed"``: as if the parameters were known. ``"estimated"``: sd and interval count
            their uncertainty, which takes standard errors once, and the adaptive posterior.

        Returns
        -------
        DataFrame
            Of the data's own kind: the subject, ``effect``, ``mean``, ``sd``, ``lower``, ``upper``.

        Examples
        --------
        >>> list(fit.effects().columns)
        ['person', 'effect', 'mean', 'sd', 'lower', 'upper']
        """
        check_word("parameters", parameters, PARAMETERS)
        if self.panel is not None and not self.panel.in_memory:
            return self._lazy_effects(level, posterior, parameters)
        if parameters == "fixed":
            return self._own_kind(self._effects(level, posterior))
        return self._own_kind(uncertain_effects(self, level))

    def _lazy_effects(self, level: float, posterior: str, parameters: str) -> LazyTable:
        check_level(level)
        check_word("posterior", posterior, POSTERIORS)

        def some(which: slice) -> pd.DataFrame:
            if parameters == "estimated":
                d = self.model.n_effects
                whole = uncertain_effects(self, level)
                return named_states(self, whole.iloc[which.start * d : which.stop * d])
            mean, cov = (part[which] for part in self._posterior(posterior))
            table = effects_table(self, self.subjects[which], mean, cov, level)
            return named_states(self, table)

        return subjects_table(self, "effects", some)

    def _effects(self, level: float = 0.95, posterior: str = "fit") -> pd.DataFrame:
        return effects_table(self, self.subjects, *self._posterior(posterior), level)

    def coefficients(
        self,
        level: float = 0.95,
        parameters: Parameters = "estimated",
        scale: Scale = "link",
    ) -> Any:
        """Every subject's own coefficients: those of the population plus its deviation.

        Parameters
        ----------
        level : float
            Probability of the intervals.
        parameters : {"estimated", "fixed"}
            Whether standard errors and intervals count that the parameters are estimated, which
            takes standard errors once, or take them as known.
        scale : {"link", "response"}
            ``"link"``: as in the formula. ``"response"``: intercepts go through the inverse link,
            to a mean, a shape or a probability (that of a level of the outcome, or of a move). It
            is the subject's where covariates are 0 and factors at their reference, as ``note`` says
            if there are any. Slopes have no value on that scale, unless the link is the identity.

        Returns
        -------
        DataFrame
            Of the data's own kind: the subject, where the coefficient belongs, ``estimate``,
            ``se``, ``lower``, ``upper``, and ``note`` where there is something to say.

        Examples
        --------
        >>> fit.coefficients(parameters="fixed").columns[-5:].tolist()
        ['estimate', 'se', 'lower', 'upper', 'note']
        """
        return self._own_kind(coefficients_table(self, level, parameters, scale))

    def _response(self, rows: pd.DataFrame) -> Response | None:
        """What rows of `table` are on the scale of the response; None: the same."""
        return None

    def _posterior(self, posterior: str) -> tuple[np.ndarray, np.ndarray]:
        """Means (n, d) and covariances (n, d, d) of the effects."""
        check_word("posterior", posterior, POSTERIORS)
        if posterior == "adaptive":
            return self.model.effects_out(self._marginal.mean, self._marginal.cov)
        return self.effects_mean, self.effects_cov

    @cached_property
    def degenerate(self) -> tuple[str, ...]:
        """What makes its likelihood worth little: a variance at its floor, empty or equal states.

        Examples
        --------
        >>> fit.degenerate
        ()
        """
        return ()

    def sample(self, n_subjects: int = 1000) -> Self:
        """The same fit on some of its subjects: of a scan, for all that needs rows in memory.

        Parameters and what is known of the subjects stay as they are.

        Parameters
        ----------
        n_subjects : int
            How many at most, evenly drawn from all.

        Returns
        -------
        HMMFit or SSMFit

        Examples
        --------
        >>> fit.sample(10).panel.n_subjects
        10
        """
        check_count("n_subjects", n_subjects)
        panel: Any = self._panel(None)
        places = np.linspace(0, panel.n_subjects - 1, min(n_subjects, panel.n_subjects))
        chosen = np.unique(places.round().astype(int))
        if panel.in_memory:
            rows = np.flatnonzero(np.isin(panel.row_subject, chosen))
            return on_subjects(self, chosen, panel.part(panel.table, rows))
        own = panel.panel_of(chosen)
        # Rows in pandas say where in the source they are; other frames have no labels.
        plain = panel.source.backend is Source().backend
        return on_subjects(self, chosen, own if plain else replace(own, source=panel.source))

    # --- how likely, how certain -----------------------------------------------------------------

    def loglik(self, data: Any = None) -> LogLik:
        """The marginal log likelihood, the effects integrated out, with its error.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            Other data, of which every subject is taken as new; by default the data of the fit,
            each subject with its weight, if there are any.

        Returns
        -------
        LogLik
            A number, with ``error`` and ``by_subject``.

        Examples
        --------
        >>> fit.loglik().error < 0.1
        True
        """
        if data is None:
            found, encoded = self._marginal, self._own_data
        else:
            encoded = self._encode(data)
            found = marginal_of_new(self, encoded)
        weights = encoded.panel.subject_weights if data is None else None
        counting = 1.0 if weights is None else weights
        return LogLik(
            (found.loglik + self._jacobian(encoded)) * counting,
            found.error * counting,
            int((found.quality == 0).sum()),
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

        Parameters
        ----------
        data : DataFrame or Panel, optional
            Without it, the rows of the fit itself, each subject taken as new, which says nothing of
            rows that the parameters were not fitted to.

        Returns
        -------
        float

        Examples
        --------
        >>> n_seen = fit.info.n_observed
        >>> bool(np.isclose(fit.score(), fit.loglik() / n_seen))
        True
        """
        return score(self, data)

    @property
    def log_prior(self) -> float:
        """The logarithm of the priors at the estimates, up to a constant; 0 without priors.

        Examples
        --------
        >>> fit.log_prior
        0.0
        """
        return self.model.log_prior(self.theta)

    @property
    def n_params(self) -> int:
        """How many parameters were estimated."""
        return self.model.count_free(self.info.fixed)

    def aic(self) -> float:
        """Akaike's criterion, from the marginal log likelihood: lower is better.

        Returns
        -------
        float

        Examples
        --------
        >>> bool(np.isclose(fit.aic(), 2 * fit.n_params - 2 * fit.loglik()))
        True
        """
        return aic(self.loglik(), self.n_params)

    def bic(self) -> float:
        """Schwarz's criterion, from the marginal log likelihood; n is the number of subjects.

        Returns
        -------
        float

        Examples
        --------
        >>> fit.bic() > fit.aic()
        True
        """
        return bic(self.loglik(), self.n_params, self._n_units)

    @property
    def _n_units(self) -> float:
        """How many independent subjects there are: with frequency weights, their sum."""
        info = self.info
        return info.total_weight if info.weights_kind == "frequency" else len(self.subjects)

    def standard_errors(
        self,
        errors: Errors = "observed",
        level: float = 0.95,
        n_draws: int | None = None,
        *,
        kind: str | None = None,
    ) -> Any:
        """`table` with standard errors and intervals for every parameter.

        From the curvature of the marginal log likelihood at the estimates. Intervals of
        probabilities and variances are made on the scale of log odds and logarithms.

        Parameters
        ----------
        errors : {"observed", "sandwich"}
            From the observed information, or from the sandwich, which holds when the model is not
            quite right.
        level : float
            Of the intervals.
        n_draws : int, optional
            Of models with more than three effects: integrate them over so many draws (a power of
            2); more take longer and are less noisy. By default, more than six effects are
            integrated over 256 to 4096 draws for each subject, fewer in larger panels, and others
            over the nodes, or draws, that each subject needs.
        kind : str, optional
            The former name of `errors`.

        Returns
        -------
        DataFrame
            Of the data's own kind: as `table`, with ``se``, ``lower``, ``upper``, and ``note``
            where there is no standard error.

        Examples
        --------
        >>> list(fit.standard_errors().columns[-4:])
        ['se', 'lower', 'upper', 'note']
        """
        return self._own_kind(self._standard_errors(errors_word(errors, kind), level, n_draws))

    def _standard_errors(
        self, errors: str = "observed", level: float = 0.95, n_draws: int | None = None
    ) -> pd.DataFrame:
        check_level(level)
        curvature = self._curvature if n_draws is None else self._curvature_from(n_draws)
        return standard_errors(self, curvature, errors, level)

    def diagnose(self) -> Diagnosis:
        """Whether one anchor per subject is enough here.

        Returns
        -------
        Diagnosis
            Gaps between bound and likelihood, information lost on each effect, and advice.

        Examples
        --------
        >>> fit.diagnose().effects["effect"].tolist()
        ['valence: Intercept']
        """
        found = anchoring(self._e_steps(self._own_data), self.theta, self._effects_in())
        return diagnose(self, found, effect_sd(self.model, self.theta), self._why_lost())

    def infer_effects(self, data: Any, level: float = 0.95) -> Any:
        """Effects of the subjects of new data, from those rows alone.

        Parameters
        ----------
        data : DataFrame or Panel
        level : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            Of the kind of `data`, with the columns of `effects`.

        Examples
        --------
        >>> new = avem.load_affect().query("person == 'p60'").assign(person="new")
        >>> fit.infer_effects(new)["person"].tolist()
        ['new']
        """
        encoded = self._encode(data)
        mean, cov = self.model.effects_out(*inferred_effects(self, encoded))
        table = effects_table(self, encoded.panel.subjects, mean, cov, level)
        return encoded.panel.source.table(named_states(self, table))

    @by_parts
    def predictions(
        self,
        data: Any = None,
        level: float = 0.95,
        effects: Literal["fitted", "integrated"] = "fitted",
    ) -> Any:
        """Each outcome of each row, given the rows before it in its sequence.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the rows of the fit.
        level : float
            Probability of the intervals, which are those of a new measurement.
        effects : {"fitted", "integrated"}
            As in `predict`.

        Returns
        -------
        DataFrame
            In the data's own row order and index: mean, sd, lower and upper of each outcome; of
            labels, the probability of each level. NaN where a covariate is missing.

        Examples
        --------
        >>> list(fit.predictions().columns)
        ['valence', 'valence_sd', 'valence_lower', 'valence_upper']
        """
        check_level(level)
        encoded = self._encode(data)
        return encoded.panel.frame_like(self._predictions(encoded, level, effects))

    def contrast(
        self,
        groups: Any = None,
        *,
        subjects: Any = None,
        level: float = 0.95,
        posterior: Posterior = "fit",
    ) -> Any:
        """Differences of effects between groups of subjects, or between subjects.

        Parameters
        ----------
        groups : str or dict, optional
            A column that is the same in all rows of a subject, or a dict from subjects to groups:
            differences of the groups' mean effects. ``se``, the interval and ``p`` are Welch's, on
            the means of the subjects: about the populations that they are a sample of. ``sd`` is
            what is not known of these very subjects' difference, given the parameters. A group
            of one subject has no spread, hence no test: `note` says so.
            Effects are shrunk towards 0, and so are differences.
        subjects : list, optional
            Labels, two or more: the effects of each pair, with their posterior; ``probability`` is
            that of the sign they show.
        level : float
            Probability of the intervals.
        posterior : {"fit", "adaptive"}
            Of the effects, as in `effects`.

        Returns
        -------
        DataFrame
            Of the data's own kind: a row per pair and effect.

        Examples
        --------
        >>> ssm_fit.contrast(subjects=["p01", "p02"])["other"].unique().tolist()
        ['p02']
        """
        if (groups is None) == (subjects is None):
            raise ModelError("contrast takes one of groups= and subjects=.")
        return self._own_kind(effect_contrast(self, groups, subjects, level, posterior))

    # --- does the model hold? --------------------------------------------------------------------

    def whiteness(
        self,
        lags: int = 5,
        data: Any = None,
        effects: Literal["drawn", "fitted"] = "drawn",
        seed: int = 0,
        *,
        by: Literal["outcome", "lag"] = "outcome",
    ) -> Any:
        """Per outcome, tests of the one-step residuals, pooled over sequences.

        If the model holds, residuals at drawn effects are independent standard normal numbers. The
        parameters were fitted to the same data, so p-values are a little large. In a large panel
        the smallest misfit is significant: look at the size of the autocorrelations.

        Parameters
        ----------
        lags : int
            Up to which lag autocorrelations are tested.
        data : DataFrame or Panel, optional
            By default the rows of the fit.
        effects : {"drawn", "fitted"}
            At one draw of each subject's effects, or at their means: residuals at effects that were
            fitted to the same rows are a little too small, and correlated where many subjects have
            few rows each.
        seed : int
            Of the draws.
        by : {"outcome", "lag"}
            A row for each outcome, with all tests, or for each outcome and lag, to plot or to
            filter.

        Returns
        -------
        DataFrame
            Of the data's own kind. ``p_white``: no autocorrelation at lags 1 to `lags`
            (Ljung-Box); ``p_normal``: no skewness or excess kurtosis (Jarque-Bera); ``p_apart``, of
            a state-space model: no correlation with the other outcomes' residuals of the same row;
            ``mean`` and ``sd``, which should be 0 and 1. By lag: the ``autocorrelation`` of ``n``
            pairs with its ``se`` if there is none, ``p`` of that lag alone, and ``p_white`` of all
            lags up to it.

        Examples
        --------
        >>> fit.whiteness(lags=2, effects="fitted")["outcome"].tolist()
        ['valence']
        """
        encoded = self._encode(data)
        return encoded.panel.source.table(whiteness(self, encoded, lags, effects, seed, by))

    def check(
        self,
        statistic: Any = None,
        n: int = 200,
        *,
        effects: Literal["new", "drawn", "fitted"] = "new",
        level: float = 0.95,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Check:
        """Posterior predictive check: statistics of the data beside those of simulated data.

        Parameters
        ----------
        statistic : callable, dict, str or list of str, optional
            A function of a frame like yours that gives a number (or a dict of numbers), a dict of
            functions, or some of ``"mean"``, ``"sd"``, ``"between"`` (sd of the subjects' means),
            ``"autocorrelation"`` (lag 1, less the subject's mean), ``"min"``, ``"max"``,
            ``"zeros"``, ``"same"``, ``"share"`` (of levels). By default those that apply.
        n : int
            How many data sets; what is missing in the data is missing in them.
        effects : {"new", "drawn", "fitted"}
            ``"new"`` draws other subjects, ``"drawn"`` draws these subjects' effects from what is
            known of them, ``"fitted"`` holds them. Parameters are held at their estimates.
        level : float
            Of the interval of the simulated values.
        seed : int
            Of the simulations.
        progress : bool, optional
            Show progress; by default in a terminal, after two seconds. Ctrl-C keeps what was done.

        Returns
        -------
        Check

        Examples
        --------
        >>> fit.check("mean", n=20).table["statistic"].tolist()
        ['mean']
        """
        return run_check(self, statistic, n, effects, level, seed, progress)

    # --- simulation, pictures, files -------------------------------------------------------------

    def simulate(
        self,
        data: Any = None,
        *,
        effects: Literal["new", "fitted"] = "new",
        seed: int | None = None,
    ) -> Drawn:
        """A data set drawn from the fit. A fit with `max_radius` draws no subject beyond it.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            The rows (times, covariates) to draw outcomes for; by default those of the fit.
        effects : {"new", "fitted"}
            Draw new subjects, or keep each at its own effects.
        seed : int, optional

        Returns
        -------
        Simulation or SSMSimulation
            ``frame`` (of the data's own kind), ``states`` and ``effects`` behind it.

        Examples
        --------
        >>> fit.simulate(seed=1).frame.shape == avem.load_affect().shape
        True
        """
        panel = self._panel(data)
        if not panel.in_memory:
            raise need_rows()
        fixed = effects_to_draw_with(self, panel, effects)
        if seed is not None:
            check_seed(seed)
        drawn = self._draw(panel, np.random.default_rng(seed), fixed)
        states = self._named_states(drawn.states)
        return drawn._replace(frame=panel.table_like(drawn.frame), states=states)

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        timelines: Any = None,
        thorough: bool | None = None,
        progress: bool | None = None,
    ) -> None:
        """Write one self-contained HTML page about the fit, to read, send and print.

        Parameters
        ----------
        path : str or path
            The file to write.
        title : str, optional
            What the page is called; by default, what kind of model it is about.
        timelines : int or list, optional
            Whose rows can be looked at one by one. None: all subjects, or as many as keep the page
            at some megabytes. A number: so many, from the shortest to the longest. A list of
            labels: these.
        thorough : bool, optional
            Whether to compute standard errors and the diagnosis of anchoring, which can take longer
            than all the rest; by default where the panel is small, or they are known already.
        progress : bool, optional
            Say what is going on; by default in a terminal.

        Examples
        --------
        >>> fit.report(folder / "mood.html", title="Mood", timelines=3, thorough=False)
        """
        from avem.fits.report import write_report

        chosen: Any = {"title": title, "timelines": timelines, "thorough": thorough}
        write_report(self, path, progress=progress, **chosen)

    def with_data(self, data: Any) -> Self:
        """The same fit with its data back, for a fit that was loaded from a file.

        Parameters
        ----------
        data : DataFrame or Panel
            The data of the fit.

        Returns
        -------
        HMMFit or SSMFit

        Examples
        --------
        >>> fit.save(folder / "mood.avem")
        >>> avem.load(folder / "mood.avem").with_data(avem.load_affect()).panel.n_subjects
        60
        """
        return replace(self, panel=own_panel(self, data))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fit to one file, without the data; `avem.load` reads it.

        Parameters
        ----------
        path : str or path
            By convention ``something.avem``; an existing file is replaced.

        Examples
        --------
        >>> fit.save(folder / "mood.avem")
        >>> avem.load(folder / "mood.avem").bound == fit.bound
        True
        """
        from avem.fits.io.saving import save

        save(self, path)

    def to_arviz(self) -> Any:
        """The fit as ArviZ reads it; needs the optional extra ``avem[arviz]``.

        Returns
        -------
        arviz.InferenceData

        Examples
        --------
        >>> "posterior" in fit.to_arviz()
        True
        """
        from avem.fits.io.arviz import to_arviz

        return to_arviz(self)

    # --- inside ----------------------------------------------------------------------------------

    def values_of(self, params: dict[str, np.ndarray]) -> np.ndarray:
        """(rows,) the estimates that `table` would have with other parameters.

        Parameters
        ----------
        params : dict of str to numpy.ndarray

        Returns
        -------
        numpy.ndarray

        Examples
        --------
        >>> bool((fit.values_of(fit.params) == fit.table()["estimate"]).all())
        True
        """
        return np.array([row.estimate for _, row in self.model.parameter_rows(params)])

    def _own_kind(self, table: pd.DataFrame) -> Any:
        """A table as the kind of frame that the fit's data came in, its states named."""
        table = named_states(self, table)
        return table if self.panel is None else self.panel.source.table(table)

    def _state_columns(self) -> list[str]:
        """What columns of the states are called: their names, or "state_0"."""
        return list(self.state_names) or [f"state_{k}" for k in range(self.model.size)]

    def _named_states(self, states: np.ndarray) -> np.ndarray:
        """States of rows as the user knows them."""
        return states
