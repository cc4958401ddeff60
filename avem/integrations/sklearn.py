"""The models as scikit-learn knows estimators; needs the extra ``avem[sklearn]`` to be used.

``X`` is a table (pandas, polars, pyarrow) with a row per subject and time and all columns that the
model names: outcomes, covariates, subject, time. What comes back is a NumPy array with a row for
each of its rows; ``set_output(transform="pandas")`` works as elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import narwhals as nw
import numpy as np

from avem.components.duration import Duration
from avem.components.duration_families import DurationWord
from avem.components.moves import MovesWord
from avem.components.outcome import Outcome
from avem.components.priors import Prior
from avem.components.transitions import Transitions
from avem.data.grouping import group_of
from avem.errors import AvemError, DataError, ModelError
from avem.fits.hmm_fit import HMMFit
from avem.fits.ssm_fit import SSMFit
from avem.mixed_hmm import MixedHMM
from avem.mixed_ssm import MixedSSM

if TYPE_CHECKING:

    class BaseEstimator:
        """What is used of scikit-learn's, for the type checker."""

        def __sklearn_tags__(self) -> Any: ...

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Likewise."""
            ...

    class TransformerMixin:
        """Likewise."""

else:
    try:
        from sklearn.base import BaseEstimator, TransformerMixin
    except ImportError:

        class TransformerMixin:
            """Stands in where scikit-learn is not installed."""

        class BaseEstimator:
            """Says what to install, as soon as an estimator is made."""

            def __new__(cls, *args: Any, **options: Any) -> Any:
                """Refuse, and say what to install."""
                raise AvemError(f"{cls.__name__} needs scikit-learn: pip install 'avem[sklearn]'.")


_GROUPS = "subject"
"""The column of the subjects where they are given beside the table."""
_OF_FIT = ("subject", "time", "sequence", "fit_options")
"""Parameters of an estimator that the model itself does not have."""


class SequenceEstimator(TransformerMixin, BaseEstimator):
    """What the estimators of all models do alike."""

    _model_type: ClassVar[Any]
    subject: str | None
    time: str | None
    sequence: str | None
    fit_options: Mapping[str, Any] | None
    fit_: Any

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        """Itself, fitted.

        Parameters
        ----------
        X : DataFrame
            A row per subject and time, with the columns that the model names.
        y : None
            Not used.
        groups : array, optional
            (rows,) the subjects, where no column of `X` has them.

        Returns
        -------
        HMMEstimator or SSMEstimator

        Examples
        --------
        >>> from avem.sklearn import HMMEstimator
        >>> options = {"n_starts": 1, "refine": None}
        >>> estimator = HMMEstimator(
        ...     "valence ~ 1 + (1 | person)", time="beep", sequence="day", fit_options=options
        ... )
        >>> estimator.fit(avem.load_affect()).fit_.stop.name
        'CONVERGED'
        """
        own = {n: v for n, v in self.get_params(deep=False).items() if n not in _OF_FIT}
        model = self._model_type(**own)
        self._subject = group_of(model.spec.formulas) or self.subject or _GROUPS
        frame = self._rows(X, groups)
        self.feature_names_in_ = np.array(list(_narwhal(X).columns), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        options = {"progress": False, **(self.fit_options or {})}
        self.fit_ = model.fit(frame, self._subject, self.time, self.sequence, **options)
        return self

    def score(self, X: Any, y: Any = None, groups: Any = None) -> float:
        """The log likelihood per row, every subject taken as new: higher is better.

        Parameters
        ----------
        X : DataFrame
            A row per subject and time, with the columns that the model names.
        y : None
            Not used.
        groups : array, optional
            (rows,) the subjects, where no column of `X` has them.

        Returns
        -------
        float

        Examples
        --------
        >>> bool(np.isclose(estimator.score(diary), estimator.fit_.loglik() / len(diary)))
        True
        """
        fit, frame = self._known(), self._rows(X, groups)
        return float(fit.loglik(frame)) / len(_narwhal(frame))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns that `transform` returns: those of the states, or their numbers.

        Parameters
        ----------
        input_features : None
            Not used.

        Returns
        -------
        numpy.ndarray of str

        Examples
        --------
        >>> list(estimator.get_feature_names_out())
        ['state_0', 'state_1']
        """
        fit = self._known()
        numbered = [f"state_{k}" for k in range(fit.model.size)]
        return np.array(fit.state_names or numbered, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        return tags

    def _known(self) -> Any:
        """The fit, which must be there."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self, "fit_")
        return self.fit_

    def _rows(self, X: Any, groups: Any) -> Any:
        """The table, with a column of the subjects."""
        frame, name = _narwhal(X), self._subject
        if groups is None:
            if name not in frame.columns:
                raise ModelError(
                    f"X has no column {name!r}, which says whose each row is. Name the column with "
                    "subject=, or give groups."
                )
            return X
        given = np.asarray(groups)
        if given.shape != (len(frame),):
            raise DataError(
                f"groups has shape {given.shape}; one subject for each of the {len(frame)} rows of "
                "X is wanted."
            )
        if name in frame.columns:
            if not np.array_equal(frame[name].to_numpy(), given):
                raise DataError(
                    f"groups and the column {name!r} of X differ; the subjects are wanted in one "
                    "of them."
                )
            return X
        values = nw.new_series(name, given, backend=frame.implementation)
        if frame.implementation.is_pandas():
            return X.assign(**{name: given})
        return frame.with_columns(values).to_native()


def _narwhal(X: Any) -> Any:
    try:
        return nw.from_native(X, eager_only=True)
    except TypeError:
        raise DataError(
            f"X is {type(X).__name__}; a table with named columns (pandas, polars or pyarrow) is "
            "wanted. In a pipeline, what comes before keeps the names with "
            "set_output(transform='pandas')."
        ) from None


class HMMEstimator(SequenceEstimator):
    """`MixedHMM` as an estimator: states are predicted, and their probabilities are features.

    Parameters
    ----------
    formula : str, Outcome or list of Outcome
        As for `MixedHMM`, and so are all that follow up to `n_clusters`.
    n_states : int
        Number of states.
    family : str or Family
        Of the outcomes.
    transition : str, list of tuple or Transitions
        Formula of the transitions, or which moves there are.
    initial : str
        Formula of the first state, or ``"stationary"``.
    effect_covariance : {"full", "block", "diagonal", "isotropic"}
        The structure of Sigma.
    effects_by_state : bool
        Give every state its own effects.
    duration : str, Duration, list or dict, optional
        How long stays in a state last, where not as in a Markov chain.
    state_names : list of str, optional
        A name for each state; predictions and features then have these.
    time_scale : {"discrete", "continuous"}, optional
        Whether rows are one step apart, or come at any times.
    known : str, optional
        A column of ``X`` with what is known of each row's state, in predictions, too.
    constraints : str or list of str, optional
        What parameters must be.
    priors : dict or "weak", optional
        Densities of parameters, by name.
    n_clusters : int
        How many types of subjects there are.
    subject, time, sequence : str, optional
        Columns of ``X``, as for `MixedHMM.fit`.
    fit_options : dict, optional
        Further options of `MixedHMM.fit`, such as ``{"n_starts": 2}``.

    Attributes
    ----------
    fit_ : HMMFit
        All that avem knows of the fit.

    Examples
    --------
    >>> from avem.sklearn import HMMEstimator
    >>> HMMEstimator("valence ~ 1 + (1 | person)").set_params(n_states=3).n_states
    3
    """

    _model_type = MixedHMM
    fit_: HMMFit

    def __init__(
        self,
        formula: str | Outcome | Sequence[Outcome],
        n_states: int = 2,
        family: Any = "gaussian",
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
        subject: str | None = None,
        time: str | None = None,
        sequence: str | None = None,
        fit_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.formula = formula
        self.n_states = n_states
        self.family = family
        self.transition = transition
        self.initial = initial
        self.effect_covariance: Any = effect_covariance
        self.effects_by_state = effects_by_state
        self.duration = duration
        self.state_names = state_names
        self.time_scale = time_scale
        self.known = known
        self.constraints = constraints
        self.priors = priors
        self.n_clusters = n_clusters
        self.subject = subject
        self.time = time
        self.sequence = sequence
        self.fit_options = fit_options

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """The most probable path of states.

        Parameters
        ----------
        X : DataFrame
            A row per subject and time, with the columns that the model names.
        groups : array, optional
            (rows,) the subjects, where no column of `X` has them.

        Returns
        -------
        numpy.ndarray
            (rows,) states from 0, or their names where they have some; what the fit knows of its
            subjects is used.

        Examples
        --------
        >>> set(estimator.predict(diary).tolist())
        {0, 1}
        """
        return np.asarray(self._known().decode(self._rows(X, groups)))

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """The probability of each state, given all rows of the sequence.

        Parameters
        ----------
        X : DataFrame
            A row per subject and time, with the columns that the model names.
        groups : array, optional
            (rows,) the subjects, where no column of `X` has them.

        Returns
        -------
        numpy.ndarray
            (rows, states)

        Examples
        --------
        >>> estimator.predict_proba(diary).shape == (len(diary), 2)
        True
        """
        found = self._known().state_probabilities(self._rows(X, groups))
        return nw.from_native(found, eager_only=True, pass_through=False).to_numpy()

    def transform(self, X: Any) -> np.ndarray:
        """The probability of each state: features for what follows in a pipeline.

        Parameters
        ----------
        X : DataFrame
            A row per subject and time, with the columns that the model names.

        Returns
        -------
        numpy.ndarray
            (rows, states)

        Examples
        --------
        >>> estimator.transform(diary).shape == (len(diary), 2)
        True
        """
        return self.predict_proba(X)


class SSMEstimator(SequenceEstimator):
    """`MixedSSM` as an estimator: a few latent processes instead of many outcomes.

    Parameters
    ----------
    outcomes : str or list of str
        As for `MixedSSM`, and so are all that follow up to `unit`.
    n_latent : int
        Number of latent states.
    state : str
        Formula of covariates that move the states.
    random : {"both", "transition", "drift", "loading", "none"} or list of str
        What differs between subjects.
    effect_covariance : {"full", "diagonal"} or dict
        The covariance of the effects of each kind.
    state_names : list of str, optional
        A name for each latent state, which features then have.
    time_scale : {"discrete", "continuous"}
        Whether rows are one step apart, or come at any times.
    unit : str, optional
        Of continuous time.
    subject, time, sequence : str, optional
        Columns of ``X``, as for `MixedSSM.fit`.
    fit_options : dict, optional
        Further options of `MixedSSM.fit`, such as ``{"n_starts": 2}``.

    Attributes
    ----------
    fit_ : SSMFit
        All that avem knows of the fit.

    Examples
    --------
    >>> from avem.sklearn import SSMEstimator
    >>> SSMEstimator(["valence", "arousal"]).set_params(n_latent=2).n_latent
    2
    >>> options = {"n_starts": 1, "refine": None}
    >>> columns = {"subject": "person", "time": "beep", "sequence": "day"}
    >>> estimator = SSMEstimator(
    ...     ["valence", "arousal"], random="transition", **columns, fit_options=options
    ... )
    >>> estimator.fit(avem.load_affect()).fit_.stop.name
    'CONVERGED'
    """

    _model_type = MixedSSM
    fit_: SSMFit

    def __init__(
        self,
        outcomes: str | Sequence[str],
        n_latent: int = 1,
        *,
        state: str = "~ 0",
        random: Literal["both", "transition", "drift", "loading", "none"] | Sequence[str] = "both",
        effect_covariance: Literal["full", "diagonal"] | Mapping[str, str] = "full",
        state_names: Sequence[str] | None = None,
        time_scale: Literal["discrete", "continuous"] = "discrete",
        unit: str | None = None,
        subject: str | None = None,
        time: str | None = None,
        sequence: str | None = None,
        fit_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.outcomes = outcomes
        self.n_latent = n_latent
        self.state = state
        self.random = random
        self.effect_covariance: Any = effect_covariance
        self.state_names = state_names
        self.time_scale = time_scale
        self.unit = unit
        self.subject = subject
        self.time = time
        self.sequence = sequence
        self.fit_options = fit_options

    def transform(self, X: Any, groups: Any = None) -> np.ndarray:
        """The smoothed states.

        Parameters
        ----------
        X : DataFrame
            A row per subject and time, with the columns that the model names.
        groups : array, optional
            (rows,) the subjects, where no column of `X` has them.

        Returns
        -------
        numpy.ndarray
            (rows, latent states)

        Examples
        --------
        >>> ssm_estimator.transform(diary).shape == (len(diary), 1)
        True
        """
        found = self._known().states(self._rows(X, groups))
        names = self.get_feature_names_out().tolist()
        return nw.from_native(found, eager_only=True, pass_through=False).select(names).to_numpy()
