"""What the user types: `MixedHMM(formula, n_states).fit(data)`.

This module stands above all layers because it is the one that calls them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Literal, cast

import numpy as np

from avem.components.duration import Duration, families_of
from avem.components.duration_families import DurationWord
from avem.components.logit_transitions import LogitTransitions
from avem.components.moves import MovesWord
from avem.components.outcome import Outcome
from avem.components.param_info import check_states
from avem.components.priors import Prior
from avem.components.transitions import Transitions
from avem.data import Panel
from avem.data.grouping import Missing, group_of, with_carried, with_weights
from avem.data.weights import WeightKind
from avem.effects.prior import project_covariance
from avem.errors import AvemWarning, ModelError, names_checked
from avem.families import Family, FamilyWord
from avem.fits.durations import guess_from, with_max
from avem.fits.hmm_fit import HMMFit
from avem.fits.making import fit_task, start_from
from avem.fits.notes import alarms, remarks
from avem.inference.fit import Fitted
from avem.inference.fit_hmm import HMMTask
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.base import Method
from avem.inference.methods.names import MethodWord
from avem.inference.progress import Callback
from avem.inference.tuning import HMM_TOL
from avem.mixed import Mixed
from avem.models.encoded import PanelData
from avem.models.hmm import HMMModel
from avem.models.hmm_checks import check_data
from avem.models.hmm_restriction import check_batches, split_fixed
from avem.models.hmm_simulate import Simulation, simulate
from avem.models.hmm_specification import Specification, check_clusters, make_specification
from avem.models.scanned import on_cluster
from avem.models.state_names import name_states
from avem.numerics import devices


class MixedHMM(Mixed):
    """A hidden Markov model in which every subject has its own random effect.

    Parameters
    ----------
    formula : str, Outcome or list of Outcome
        lme4 style: ``"y1 + y2 ~ x + (1 + x | subject)"``. Fixed coefficients are specific to each
        state; the effects of a subject are shared by the states. Without a ``(... | subject)`` term
        it is an ordinary HMM. For outcomes of several families, a list of `avem.outcome`.
    n_states : int
        Number of states.
    family : str or Family
        A word (``"gaussian"``, ``"bernoulli"``, ``"gamma"``, ...), or a family object such as
        ``avem.Gaussian("full")``; a class, ``avem.Gaussian``, stands for one with its defaults.
    transition : str or Transitions
        Formula of the log odds of moving, against staying: ``"~ x + (1 | subject)"``. Covariates at
        time t act on the step from t-1 to t. Every pair of states has its own coefficients and
        effects. In continuous time the formula is that of the log rates. Or which moves there are:
        ``"left_to_right"`` (from each state to the next), ``"banded"`` (to neighbours),
        ``"absorbing"`` (the last state is never left), or pairs of states, ``[(0, 1), (1, 2)]``.
        Or an object that is a kind of transitions of its own, such as ``avem.rates(...)``.
    initial : str
        Formula of the log odds of the first state, against state 0: ``"~ x + (1 | subject)"``,
        with effects where subjects have several sequences. Or ``"stationary"``: the distribution
        that the transitions of the first step leave as it is.
    effect_covariance : {"full", "block", "diagonal", "isotropic"}
        The structure of Sigma; ``"block"``: effects of different formulas are independent.
    effects_by_state : bool
        Give every state its own effects (with a list of outcomes: say it in `avem.outcome`).
    duration : str, Duration, list or dict, optional
        How long stays in a state last, where not as in a Markov chain (a semi-Markov model): a
        word such as ``"negative_binomial"``, a `Duration` with a formula and other options, or a
        list or dict with a word for each state. ``transition`` then says where a stay leads to
        when it ends, never to the state itself.
    state_names : list of str, optional
        A name for each state, shown in place of its number. They are given in the order of the
        fitted states: by the mean of the first outcome at average covariates, lowest first; with
        ``init=``, or transitions that order the states, in the order that these have. To look
        first and name later there is `HMMFit.rename_states`.
    time_scale : {"discrete", "continuous"}, optional
        ``"discrete"`` (the default): rows are one step apart. ``"continuous"``: they come at any
        times, which ``fit(time=...)`` names, and states are left at rates. Which moves there are,
        times of death and units: `avem.rates`.
    known : str, optional
        A column with what is known of each row's state: its name or number, several as ``"a|b"`` or
        a list, and missing where nothing is known. Labels are the names of the states; where
        `state_names` are not given, they are in the order of the categories, or sorted.

    constraints : str or list of str, optional
        What parameters must be, by their names in ``fit.params``: ``"coef[0, 'x'] == 0"``,
        ``"coef[0, 'x'] == coef[1, 'x']"``, ``"coef[:, 'x'] equal"`` (over the states),
        ``"variance[0] >= 0.1"``. States by number or name, outcomes, terms and effects by name.
    priors : dict or "weak", optional
        Densities of parameters, by name: ``{"transition": avem.priors.Sticky(10)}``. The fit is
        then at the maximum of likelihood times priors. ``"weak"``: a set that keeps variances from
        0, probabilities from 0 and log odds from infinity, and says little else.
    n_clusters : int
        How many types of subjects there are. Every subject is of one of them, in all of its
        sequences; a type has first states and transitions of its own, while outcomes and the
        distribution of the effects are those of all. `HMMFit.clusters` says who is of which.

    Examples
    --------
    >>> avem.MixedHMM("valence ~ stress + (1 | person)", n_states=2)
    MixedHMM('valence ~ stress + (1 | person)', n_states=2, family=Gaussian(covariance='diagonal'))
    """

    @names_checked
    def __init__(
        self,
        formula: str | Outcome | Sequence[Outcome],
        n_states: int,
        family: FamilyWord | str | Family = "gaussian",
        *,
        transition: MovesWord | str | Sequence[tuple[Any, Any]] | Transitions = "~ 1",
        initial: Literal["stationary"] | str = "~ 1",
        effect_covariance: Literal["full", "block", "diagonal", "isotropic"] = "full",
        effects_by_state: bool = False,
        duration: DurationWord | Duration | Sequence[str] | Mapping[Any, str] | None = None,
        state_names: Sequence[str] | None = None,
        time_scale: Literal["discrete", "continuous"] | None = None,
        known: str | None = None,
        constraints: str | Sequence[str] | None = None,
        priors: Mapping[str, Prior] | Literal["weak"] | None = None,
        n_clusters: int = 1,
    ) -> None:
        self.spec = make_specification(
            formula,
            n_states,
            family,
            transition=transition,
            initial=initial,
            effect_covariance=effect_covariance,
            effects_by_state=effects_by_state,
            duration=duration,
            state_names=state_names,
            time_scale=time_scale,
            known=known,
            constraints=constraints,
            priors=priors,
            n_clusters=n_clusters,
        )
        self._group = group_of(self.spec.formulas)

    @classmethod
    def from_spec(cls, spec: Specification, learned: HMMModel | None = None) -> MixedHMM:
        """The model with this specification, such as that of a fit, ``fit.model.spec``.

        Parameters
        ----------
        spec : Specification
            What the model is made of.
        learned : HMMModel, optional
            Take the levels and columns of this model, whatever levels occur in the data: parameters
            then mean the same as there.

        Returns
        -------
        MixedHMM

        Examples
        --------
        >>> avem.MixedHMM.from_spec(fit.model.spec).spec.n_states
        2
        """
        made = cls(
            spec.outcomes,
            spec.n_states,
            transition=spec.transition,
            initial="stationary" if spec.initial is None else spec.initial.text,
            effect_covariance=cast(Any, spec.effect_covariance),
            duration=spec.duration,
            state_names=spec.state_names or None,
            known=spec.known,
            constraints=spec.constraints,
            n_clusters=spec.n_clusters,
        )
        made.spec = made.spec._replace(priors=spec.priors)
        made._learned = None if learned is None else learned.in_user_units()
        return made

    _model_type = HMMModel
    size_name: ClassVar[str] = HMMModel.size_name
    state_words: ClassVar[str] = HMMModel.state_words
    size_option: ClassVar[str] = "states"
    own_criteria: ClassVar[tuple[str, ...]] = ("icl",)

    def usual_sizes(self) -> range:
        """The numbers of states that `select` tries unless told otherwise.

        Returns
        -------
        range

        Examples
        --------
        >>> list(avem.MixedHMM("y ~ 1", n_states=2).usual_sizes())
        [1, 2, 3, 4, 5]
        """
        return range(1, 6)

    def with_states(self, n_states: int) -> MixedHMM:
        """The same model with another number of states.

        Parameters
        ----------
        n_states : int
            Number of states.

        Returns
        -------
        MixedHMM

        Examples
        --------
        >>> avem.MixedHMM("y ~ 1", n_states=2).with_states(3).spec.n_states
        3
        """
        return self.with_size(n_states)

    def with_clusters(self, n_clusters: int) -> MixedHMM:
        """The same model with another number of types of subjects.

        Parameters
        ----------
        n_clusters : int
            Number of types.

        Returns
        -------
        MixedHMM

        Examples
        --------
        >>> avem.MixedHMM("y ~ 1", n_states=2).with_clusters(3)
        MixedHMM('y ~ 1', n_states=2, family=Gaussian(covariance='diagonal'), n_clusters=3)
        """
        spec = self.spec
        told = (spec.n_states, spec.initial is None, spec.duration is not None)
        return self._with_spec(spec._replace(n_clusters=check_clusters(n_clusters, *told)))

    def fit(
        self,
        data: Any,
        subject: str | None = None,
        time: str | None = None,
        sequence: str | None = None,
        *,
        method: MethodWord | str | Method = "avem",
        refine: Literal["auto", "adaptive", False] | Adaptive | None = "auto",
        init: Mapping[str, Any] | HMMFit | None = None,
        fixed: Mapping[str, Any] | None = None,
        n_starts: int = 8,
        max_iter: int = 500,
        tol: float | None = None,
        seed: int = 0,
        plain: bool = False,
        device: Literal["cpu", "gpu"] | None = None,
        client: Any = None,
        checkpoint: str | PathLike[str] | None = None,
        progress: bool | None = None,
        callback: Callback | None = None,
        weights: str | None = None,
        weights_kind: WeightKind = "survey",
        missing: Missing = "error",
        **of_method: Any,
    ) -> HMMFit:
        """The model fitted to data.

        Parameters
        ----------
        data : DataFrame, Panel or Scan
            A long table (pandas, polars, pyarrow), one row per subject and time, or a `Panel`; for
            tables beyond memory a `Scan`, which `Panel.scan` makes, or a lazy table.
        subject : str, optional
            The column that says whose row it is; needed only when the formula has no
            ``(... | subject)`` term.
        time : str, optional
            The column that rows are sorted by; without it they are taken in the order they come.
        sequence : str, optional
            The column (session, day) that restarts the chain while the subject keeps its effect.
        method : str or Method
            A word, or an object with the method's own options: ``avem.Adaptive(n_nodes=9)``.
            ``"avem"`` (`AVEM`): anchored variational EM. ``"adaptive"`` (`Adaptive`): maximum
            likelihood, the effects integrated over nodes where each subject's posterior is.
            ``"partial"`` (`Partial`): some effects anchored, the others integrated. What the paper
            compares with: ``"quadrature"`` (`Quadrature`) and ``"monte_carlo"`` (`MonteCarlo`),
            maximum likelihood with nodes or draws of the effects' prior, of which long sequences
            need many;
            ``"mean_field"`` (`MeanField`), states and effects independent in the posterior;
            ``"structured"`` (`Structured`), a Gaussian posterior of the effects, exact given it.
        refine : {"auto", "adaptive"}, Adaptive, None or False
            ``"adaptive"``, or an `Adaptive` with options: go on from AVEM's solution to the maximum
            of the marginal likelihood. ``"auto"`` (the default): do so where anchoring does not
            hold (`fit.diagnose()`), and never with `plain`. None or False: never.
        init : dict or HMMFit, optional
            Where to start instead of at values found in the data: a dict with some or all of the
            parameters, or an earlier fit. The order of its states is kept.
        fixed : dict, optional
            Parameters to hold at given values, e.g. ``{"transition": matrix}``. Entries that are
            NaN are free; the others of such an array become constraints of the fitted model.
        n_starts : int
            How many starting points are tried, unless the first four all lead to one solution.
        max_iter : int
            Most iterations of the method.
        tol : float, optional
            Bounds the last change of any parameter, on the scale of standardised outcomes (default
            1e-6, in batches 1e-4); with `plain`, the relative change of the anchored log likelihood
            (default 1e-4).
        seed : int
            For the starting points and the search for modes.
        plain : bool
            Exactly the paper's iteration: one start, no recentring, no re-anchoring, no
            acceleration, no final E-step.
        device : {"cpu", "gpu"}, optional
            Where to compute; by default on a GPU where there is one and the data are large.
        client : dask.distributed.Client, optional
            A Dask cluster that computes, where the data are a scan or a Dask DataFrame: see
            `Panel.scan`.
        checkpoint : str or path, optional
            A file in which the parameters are kept every few iterations. Where it exists, the fit
            goes on from there; when the fit ends, it is removed.
        progress : bool, optional
            Show progress; by default in a terminal, after two seconds.
        callback : callable, optional
            A function that is called after every iteration that follows the starts, with an
            `Iteration` (number, stage, bound, change, params), to log it or to end the fit there by
            returning True.
        weights : str, optional
            A column with how much each subject counts: a positive number, the same in all rows of
            a subject.
        weights_kind : {"survey", "frequency"}
            What they are. ``"survey"``: how many people a subject stands for; only ratios count,
            and standard errors are robust ones (a sandwich). ``"frequency"``: so many subjects are
            alike, and one of them is in the data.
        missing : {"error", "carry"}
            Of covariates that are missing where they are needed. ``"carry"``: they take the last
            value before in their sequence, here and in new data; the notes say in how many rows.
        **of_method
            Options of methods that fit() itself had before: they work, with a warning that says
            what to write instead.

        Returns
        -------
        HMMFit

        Examples
        --------
        >>> model = avem.MixedHMM("valence ~ 1 + (1 | person)", n_states=2)
        >>> diary = avem.load_affect()
        >>> again = model.fit(diary, time="beep", sequence="day", init=fit, refine=None)
        >>> again.stop.name
        'CONVERGED'
        """
        options = self._options(
            method,
            refine,
            of_method,
            n_starts=n_starts,
            max_iter=max_iter,
            tol=tol,
            seed=seed,
            plain=plain,
        )
        panel = self._panel(data, subject, time, sequence)
        panel = with_weights(panel, weights, weights_kind)
        panel = with_carried(panel, missing, self._covariates)
        own, before = self, None
        fixed, sentences = split_fixed(fixed, partial(self._learn, panel))
        if sentences:
            own = self._with_spec(
                self.spec._replace(constraints=(*self.spec.constraints, *sentences))
            )
        check_batches(own.spec, options.method)
        if self.spec.duration is not None and not plain:
            if init is None:
                same = {"seed": seed, "device": device, "progress": progress, "max_iter": max_iter}
                before = self._with_markov_stays(panel, fixed, n_starts=n_starts, **same)
            own = own._with_spec(with_max(own.spec, panel, init, before))
        model, read = own._model(panel, plain, client)
        options.check(model.effect_names)
        with devices.wanted(device):
            encoded = model.encode(panel, read, max_lanes=options.method.lanes_per_chunk)
        encoded = on_cluster(encoded, client)
        start = start_from(HMMFit, model, panel, init, fixed)
        if before is not None:
            start = replace(start, guess=guess_from(before, model, start.held))
        if "effect_covariance" in start.held:
            _check_structure(start.held["effect_covariance"], model)
        keep_order = init is not None or bool(start.fixed - {"effect_covariance"})
        task = HMMTask(model, encoded, keep_order, start.held)

        def tell(fitted: Fitted) -> tuple[list[str], list[str]]:
            return alarms(model, fitted), remarks(model, encoded, fitted, start.fixed)

        return fit_task(HMMFit, task, start, options, HMM_TOL, tell, progress, callback, checkpoint)

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
        """Data drawn from given parameters.

        Parameters
        ----------
        params : dict of str to array
            All parameters, as in `fit.params`.
        n_subjects : int, optional
            How many subjects, unless `data` says so.
        n_times : int, optional
            How many rows each subject has, unless `data` says so.
        data : DataFrame or Panel, optional
            The rows to draw outcomes for, with the covariates of every row; needed when a formula
            has covariates.
        subject : str, optional
            The column of the subjects, when no formula names it; by default ``"subject"``.
        time : str, optional
            The column of `data` that its rows are sorted by.
        sequence : str, optional
            The column of `data` that splits a subject's rows into sequences.
        seed : int, optional
            Of the draws.

        Returns
        -------
        Simulation
            ``frame`` (of the kind of `data`), ``states`` and ``effects`` behind it.

        Examples
        --------
        >>> model = avem.MixedHMM("valence ~ 1 + (1 | person)", n_states=2)
        >>> model.simulate(fit.params, n_subjects=10, n_times=5, seed=1).frame.shape
        (50, 3)
        """
        size, columns = (n_subjects, n_times), (subject, time, sequence)
        drawn = self._simulate(simulate, params, size, data, columns, seed)
        return drawn._replace(states=name_states(drawn.states, self.spec.state_names))

    # --- inside ---------------------------------------------------------------------------------

    def _with_spec(self, spec: Specification) -> MixedHMM:
        other = copy(self)
        other.spec = spec
        return other

    def _with_markov_stays(self, panel: Panel, fixed: Any, **options: Any) -> HMMFit:
        """The fit of the same model with stays of a Markov chain: where this one's begins."""
        spec = self.spec._replace(
            duration=None, transition=LogitTransitions(), constraints=(), priors=()
        )
        # Effects of durations alone may have been the only ones.
        simpler = MixedHMM.from_spec(spec)
        known = set(HMMModel.learn(spec, panel).param_info()) - {"transition", "effect_covariance"}
        held = {name: value for name, value in (fixed or {}).items() if name in known}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AvemWarning)  # of a start
            return simpler.fit(panel, refine=None, fixed=held or None, **options)

    def _check_size(self, size: Any) -> None:
        check_states("n_states", size)
        if hasattr(self, "spec"):
            check_clusters(self.spec.n_clusters, int(size), False, False)
        stays = getattr(self, "spec", None) and self.spec.duration
        if stays:
            families_of(stays, int(size))

    def _check_data(self, model: HMMModel, panel: Panel, data: PanelData) -> None:
        check_data(model, panel, data)

    def _levels(self) -> Iterator[tuple[str, tuple | None]]:
        for spec in self.spec.outcomes:
            levels = spec.family.levels
            for name in spec.formula.outcomes:
                yield name, spec.family.usual_levels if levels == () else levels


def _check_structure(sigma: np.ndarray, model: HMMModel) -> None:
    allowed = project_covariance(sigma, model.effect_covariance, model.effect_blocks)
    if not np.allclose(sigma, allowed, rtol=1e-8, atol=0):
        raise ModelError(
            f"fixed['effect_covariance'] is not {model.effect_covariance}, as the model says it "
            "is (or ties effects of separate group terms). Change one of them."
        )
