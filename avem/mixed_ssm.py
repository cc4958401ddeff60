"""What the user types: `MixedSSM(outcomes, n_latent).fit(data)`.

Like `mixed_hmm`, this module stands above all layers because it is the one that calls them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from avem.data import Panel
from avem.data.grouping import Missing, group_of, subject_column, with_carried, with_weights
from avem.data.weights import WeightKind
from avem.errors import ModelError, names_checked
from avem.fits.making import fit_task, start_from
from avem.fits.notes import ssm_alarms, ssm_remarks
from avem.fits.ssm_fit import SSMFit
from avem.inference.fit import Fitted
from avem.inference.fit_ssm import SSMTask
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.base import Method
from avem.inference.methods.names import MethodWord
from avem.inference.progress import Callback
from avem.inference.tuning import SSM_TOL
from avem.mixed import Mixed
from avem.models.encoded import PanelData
from avem.models.scanned import on_cluster
from avem.models.ssm import SSMModel
from avem.models.ssm_checks import check_ssm_data
from avem.models.ssm_simulate import SSMSimulation, simulate_ssm
from avem.models.ssm_specification import SSMSpecification, check_latent, make_ssm_specification
from avem.numerics import devices


class MixedSSM(Mixed):
    """A linear-Gaussian state-space model in which every subject has its own matrices.

    The states follow x_t = G_i x_{t-1} + N(0, I), the outcomes y_t = H_i x_t + a + N(0, R), R
    diagonal. Subjects' matrices G_i and H_i are drawn around the population's. The noise of the
    states is I and the loadings are lower triangular, so that the states have a scale and an order.
    In continuous time dx = A_i x dt + dW: rows may come at any times, and the drift A_i is what
    subjects have of their own in the place of G_i.

    Parameters
    ----------
    outcomes : str or list of str
        Names of columns, or a formula: ``"y1 + y2 ~ 1 + x + (1 | subject)"``. A list of names means
        ``~ 1``, an intercept for every outcome; ``~ 0`` leaves it out. Terms in ``(... | subject)``
        are coefficients of the subject's own.
    n_latent : int
        Number of latent states, q; at most as many as outcomes.
    subject : str, optional
        The grouping column, where no formula names it; it can be given to `fit` instead.
    state : str
        Formula of covariates that move the states, without an intercept: ``"~ 0 + dose"``.
        Covariates at time t act on the step from t-1 to t.
    random : {"both", "transition", "loading", "none"} or list of str
        What differs between subjects; a list has some of ``"transition"`` and ``"loading"``. In
        continuous time ``"drift"`` is the word for the first.
    effect_covariance : {"full", "diagonal"} or dict
        The covariance of the effects of each kind; or a dict, such as
        ``{"transition": "full", "loading": "diagonal"}``. Effects of different kinds (transition,
        loading, coef) are independent.
    state_names : list of str, optional
        A name for each latent state, shown in place of its number, in the order of the states: the
        first outcome loads on the first state alone, the second one on the first two, and so on.
    time_scale : {"discrete", "continuous"}
        Whether rows are one step apart, or come at the times of the column ``time=``.
    unit : str, optional
        Of continuous time. Of dates one of seconds, minutes, hours, days, weeks and years; days by
        default. Of numbers, what 1 is called in tables.

    Examples
    --------
    >>> avem.MixedSSM(["valence", "arousal"], n_latent=1, subject="person")
    MixedSSM('valence + arousal ~ 1', n_latent=1)
    """

    @names_checked
    def __init__(
        self,
        outcomes: str | Sequence[str],
        n_latent: int,
        *,
        subject: str | None = None,
        state: str = "~ 0",
        random: Literal["both", "transition", "drift", "loading", "none"] | Sequence[str] = "both",
        effect_covariance: Literal["full", "diagonal"] | Mapping[str, str] = "full",
        state_names: Sequence[str] | None = None,
        time_scale: Literal["discrete", "continuous"] = "discrete",
        unit: str | None = None,
    ) -> None:
        self.spec = make_ssm_specification(
            outcomes,
            n_latent,
            state=state,
            random=random,
            effect_covariance=effect_covariance,
            state_names=state_names,
            time_scale=time_scale,
            unit=unit,
        )
        if subject is not None and not isinstance(subject, str):
            raise ModelError(f"subject is {subject!r}; the name of a column is wanted.")
        self._group = subject_column(group_of(self.spec.formulas), subject)

    @classmethod
    def from_spec(cls, spec: SSMSpecification, learned: SSMModel | None = None) -> MixedSSM:
        """The model with this specification, such as that of a fit, ``fit.model.spec``.

        Parameters
        ----------
        spec : SSMSpecification
            What the model is made of.
        learned : SSMModel, optional
            Take the levels and columns of this model, whatever levels occur in the data.

        Returns
        -------
        MixedSSM

        Examples
        --------
        >>> avem.MixedSSM.from_spec(ssm_fit.model.spec).spec.n_latent
        1
        """
        made = cls(
            spec.formula.text,
            spec.n_latent,
            state=spec.state.text,
            random=spec.random,
            effect_covariance=dict(zip(spec.kinds, spec.effect_covariance, strict=True)),
            state_names=spec.state_names or None,
            time_scale="discrete" if spec.clock is None else "continuous",
            unit=None if spec.clock is None else spec.clock.unit,
        )
        made._learned = None if learned is None else learned.in_user_units()
        return made

    _model_type = SSMModel
    size_name: ClassVar[str] = SSMModel.size_name
    state_words: ClassVar[str] = SSMModel.state_words
    size_option: ClassVar[str] = "latent"
    own_criteria: ClassVar[tuple[str, ...]] = ()

    def usual_sizes(self) -> range:
        """The numbers of latent states that `select` tries unless told otherwise.

        Returns
        -------
        range

        Examples
        --------
        >>> list(avem.MixedSSM(["valence", "arousal"], n_latent=1).usual_sizes())
        [1, 2]
        """
        return range(1, min(3, len(self.spec.formula.outcomes)) + 1)

    def has_effects(self) -> bool:
        """Whether subjects differ.

        Returns
        -------
        bool

        Examples
        --------
        >>> avem.MixedSSM(["valence", "arousal"], n_latent=1, random="none").has_effects()
        False
        """
        return bool(self.spec.random) or super().has_effects()

    def with_latent(self, n_latent: int) -> MixedSSM:
        """The same model with another number of latent states.

        Parameters
        ----------
        n_latent : int
            Number of latent states.

        Returns
        -------
        MixedSSM

        Examples
        --------
        >>> avem.MixedSSM(["valence", "arousal"], n_latent=1).with_latent(2).spec.n_latent
        2
        """
        return self.with_size(n_latent)

    def fit(
        self,
        data: Any,
        subject: str | None = None,
        time: str | None = None,
        sequence: str | None = None,
        *,
        method: MethodWord | str | Method = "avem",
        refine: Literal["auto", "adaptive", False] | Adaptive | None = "auto",
        init: Mapping[str, Any] | SSMFit | None = None,
        fixed: Mapping[str, Any] | None = None,
        n_starts: int = 4,
        max_iter: int = 500,
        tol: float | None = None,
        seed: int = 0,
        max_radius: float | None = None,
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
    ) -> SSMFit:
        """The model fitted to data.

        Parameters
        ----------
        data : DataFrame, Panel or Scan
            A long table (pandas, polars, pyarrow), one row per subject and time, or a `Panel`; for
            tables beyond memory a `Scan`, which `Panel.scan` makes, or a lazy table.
        subject : str, optional
            The column that says whose row it is, unless the model knows it.
        time : str, optional
            The column that rows are sorted by; without it they are taken in the order they come.
            Needed in continuous time: numbers or dates.
        sequence : str, optional
            The column (session, day) that starts the states anew while the subject keeps its
            matrices.
        method : str or Method
            A word, or an object with the method's own options: ``avem.Adaptive(n_draws=1024)``.
            ``"avem"`` (`AVEM`): anchored variational EM. ``"adaptive"`` (`Adaptive`): maximum
            likelihood, the effects integrated over nodes or draws where each subject's posterior
            is. ``"partial"`` (`Partial`): some effects anchored, the others integrated.
            ``"mean_field"``, ``"structured"``, ``"monte_carlo"`` and, with few effects,
            ``"quadrature"``: as for `MixedHMM`.
        refine : {"auto", "adaptive"}, Adaptive, None or False
            ``"adaptive"``, or an `Adaptive` with options: go on from AVEM's solution to the maximum
            of the marginal likelihood. ``"auto"`` (the default): do so where anchoring does not
            hold (`fit.diagnose()`), and never with `plain`. None or False: never.
        init : dict or SSMFit, optional
            Where to start instead of at values found in the data: a dict with some or all of the
            parameters, or an earlier fit. The signs of its states are kept.
        fixed : dict, optional
            Parameters to hold at given values, e.g. ``{"transition_mean": matrix}``
            (``"drift_mean"`` in continuous time).
        n_starts : int
            How many starting points are tried, on the model whose subjects are alike.
        max_iter : int
            Most iterations of the method.
        tol : float, optional
            Bounds the last change of any parameter, on the scale of standardised outcomes (default
            1e-5); with `plain`, the relative change of the anchored log likelihood (default 1e-4).
        seed : int
            For the starting points and the search for modes.
        max_radius : float, optional
            Keep every subject's transition matrix at a spectral radius of at most this: 0.98, say.
            In continuous time, that of its transitions over one unit of time.
        plain : bool
            Exactly the paper's iteration: no rescaling of outcomes, no recentring, no
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
        SSMFit

        Examples
        --------
        >>> model = avem.MixedSSM(["valence", "arousal"], 1, subject="person", random="transition")
        >>> diary = avem.load_affect()
        >>> again = model.fit(diary, time="beep", sequence="day", init=ssm_fit, refine=None)
        >>> again.stop is avem.Stop.CONVERGED
        True
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
        self._check_radius(max_radius)
        radius = None if max_radius is None else float(max_radius)
        panel = self._panel(data, subject, time, sequence)
        panel = with_weights(panel, weights, weights_kind)
        panel = with_carried(panel, missing, self._covariates)
        model, read = self._model(panel, plain, client)
        options.check(model.effect_names)
        _check_blocked(model, options.method)
        if options.method.lanes_per_chunk:
            raise ModelError("batch_size is for hidden Markov models.")
        with devices.wanted(device):
            encoded = model.encode(panel, read)
        encoded = on_cluster(encoded, client)
        start = start_from(SSMFit, model, panel, init, fixed)
        _check_held(model, start.held)
        task = SSMTask(model, encoded, bool(start.guess.params), start.fixed, radius)

        def tell(fitted: Fitted) -> tuple[list[str], list[str]]:
            notes = ssm_remarks(model, encoded, fitted, start.fixed, radius)
            return ssm_alarms(model, fitted), notes

        return fit_task(
            SSMFit,
            task,
            start,
            options,
            SSM_TOL,
            tell,
            progress,
            callback,
            checkpoint,
            max_radius=radius,
        )

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
        max_radius: float | None = None,
        seed: int | None = None,
    ) -> SSMSimulation:
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
            The column of the subjects, unless the model knows it; by default ``"subject"``.
        time : str, optional
            The column of `data` that its rows are sorted by.
        sequence : str, optional
            The column of `data` that splits a subject's rows into sequences.
        max_radius : float, optional
            Subjects whose transition matrix has a larger spectral radius get it scaled back to
            this.
        seed : int, optional
            Of the draws.

        Returns
        -------
        SSMSimulation
            ``frame`` (of the kind of `data`), ``states`` and ``effects`` behind it.

        Examples
        --------
        >>> model = avem.MixedSSM(["valence", "arousal"], 1, subject="person", random="transition")
        >>> model.simulate(ssm_fit.params, n_subjects=10, n_times=5, seed=1).states.shape
        (50, 1)
        """
        self._check_radius(max_radius)
        draw = partial(simulate_ssm, max_radius=max_radius)
        size, columns = (n_subjects, n_times), (subject, time, sequence)
        return self._simulate(draw, params, size, data, columns, seed)

    # --- inside ---------------------------------------------------------------------------------

    def _check_radius(self, max_radius: Any) -> None:
        if max_radius is None:
            return
        is_number = isinstance(max_radius, int | float | np.number)
        if not is_number or isinstance(max_radius, bool) or not 0 < max_radius < np.inf:
            raise ModelError(
                f"max_radius is {max_radius!r}; a positive number is wanted: 0.98, say."
            )
        word = self.spec.kinds[0]
        if "transition" not in self.spec.random:
            raise ModelError(
                f"max_radius is for models whose {word}s differ between subjects: "
                f"random='both' or {word!r}."
            )

    def _check_size(self, size: Any) -> None:
        check_latent(size, len(self.spec.formula.outcomes))

    def _check_data(self, model: SSMModel, panel: Panel, data: PanelData) -> None:
        check_ssm_data(model, panel, data)

    def _levels(self) -> Iterator[tuple[str, None]]:
        for name in self.spec.formula.outcomes:
            yield name, None


def _check_blocked(model: SSMModel, method: Method) -> None:
    if model.continuous and method.expects_densities and model.shape.random_transition:
        raise ModelError(
            f"method={method.word!r} takes expectations of a row's density over effects, and in "
            "continuous time effects on the drift act between rows. Use 'avem', 'adaptive' or "
            "'structured', or random='loading'."
        )


def _check_held(model: SSMModel, held: Mapping[str, Any]) -> None:
    kinds = [f"{kind}_covariance" for kind in dict.fromkeys(model.effect_kinds)]
    free = [name for name in kinds if name not in held]
    if free and len(free) < len(kinds):
        raise ModelError(
            f"fixed holds some covariances of effects, but not {', '.join(free)}. Hold all of "
            f"{', '.join(kinds)}, or none."
        )
