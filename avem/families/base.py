"""What a family is: all that the rest of the package may ask about the outcomes of one emission.

A family is a frozen dataclass, so that jit can key on it and a file can hold its fields. States,
subjects, effects and missing values are other people's business. To add one, write a leaf of
`Univariate` (one outcome, a density in linear predictors) and call `avem.families.register` on it;
the rest of the package then finds it by its word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from scipy.special import expit, logit

from avem.data.formula import Formula

if TYPE_CHECKING:
    from avem.families.univariate import Univariate

Etas = tuple[Any, ...]
"""One array per linear predictor; they broadcast against each other."""
Table = tuple[str, Any, Sequence[str]]
"""Title, numbers (rows, states) and names of the rows."""


class Link(NamedTuple):
    """How a parameter's natural value goes with its linear predictor."""

    name: str
    to_eta: Callable[[Any], Any]
    to_natural: Callable[[Any], Any]


IDENTITY = Link("identity", np.asarray, np.asarray)
LOG = Link("log", np.log, np.exp)
LOGIT = Link("logit", logit, expit)
ANGLE = Link("angle", np.asarray, lambda eta: np.angle(np.exp(1j * np.asarray(eta))))
"""The identity, read modulo a full turn: there is no boundary at the angle pi."""


class Parameter(NamedTuple):
    """One linear predictor of a family: what users call it, and its link."""

    name: str
    link: Link
    collapse: int = 0
    """-1 or 1: the density closes in on a single value as the predictor goes to -inf or inf."""


class Alone(NamedTuple):
    """The distribution of one outcome of an emission, whatever the others are."""

    family: Univariate
    predictors: Callable[[Etas, Any, np.ndarray], Etas]
    """Its linear predictors, from those of the emission, the covariance of its noise in every state
    (None where it has none) and the state of each element, which broadcasts to the predictors."""


class Family(ABC):
    """The interface of every family: plain facts, words, and what an outcome is on its own.

    Examples
    --------
    >>> isinstance(avem.Poisson(), avem.families.Family)
    True
    """

    # --- facts --------------------------------------------------------------------------------

    name: ClassVar[str]
    """The word users type."""
    other_names: ClassVar[tuple[str, ...]] = ()
    """What other software calls it."""
    wanted: ClassVar[str] = "numbers"
    """What values it takes, for error messages: "counts (0, 1, 2, ...)"."""
    emission: ClassVar[Literal["linear", "joint", "gaussian", "custom"]] = "linear"
    """The formulas that fit it: linear predictors, of one outcome or of all of a formula together,
    closed forms, or a function of one step."""
    linear_gaussian: ClassVar[bool] = False
    """Effects add to the outcome and the noise is Gaussian: what follows has a closed form."""
    discrete: ClassVar[bool] = False
    """The outcome takes separate values, so that `log_density` is a log probability."""
    zeros_apart: ClassVar[bool] = False
    """Exact zeros have a probability beside the density of all other values."""
    angular: ClassVar[bool] = False
    """The outcome is an angle in radians: its mean is a direction."""
    location_scale: ClassVar[bool] = False
    """The first two parameters are a location (identity) and a scale (log), in its unit."""
    concave: ClassVar[bool] = False
    """The log density is concave in its predictors, jointly."""
    ordered: ClassVar[bool] = False
    """The levels have an order that matters."""
    by_level: ClassVar[bool] = False
    """The outcome's own formula describes each level after the first, not one number."""
    usual_levels: ClassVar[tuple[Any, ...]] = ()
    """Levels to assume where neither the user nor data say which there are."""
    most_levels: ClassVar[float] = np.inf
    """Of an outcome."""
    levels: Any = None
    """A tuple of the labels that outcomes are, coded 0, 1, ...; (): not known; None: numbers."""

    @property
    def extras(self) -> tuple[str, ...]:
        """Further columns of the data that the density needs."""
        return ()

    infinite_extras: ClassVar[bool] = False
    """They may be infinite."""

    @property
    def extras_ahead(self) -> tuple[str, ...]:
        """Those of them without which nothing can be said of coming rows."""
        return self.extras

    @property
    def n_beside(self) -> int:
        """How many columns the density reads beside the outcome; see `columns`."""
        return len(self.extras)

    @property
    def beside_in_unit(self) -> bool:
        """These are in the outcome's unit."""
        return False

    @property
    def measure(self) -> str:
        """What the likelihood of a value is: fits are compared where it is the same."""
        if self.discrete:
            return "probability"
        return "density with a probability of 0" if self.zeros_apart else "density"

    @property
    def has_history(self) -> bool:
        """The density of an outcome depends on earlier outcomes."""
        return False

    @property
    def cannot_save(self) -> str:
        """Why a file cannot hold it; empty where it can."""
        return ""

    def evidence(self, n_outcomes: int) -> dict[str, Any]:
        """What a file keeps of a family that it cannot hold, for `avem.load` to know it again.

        Parameters
        ----------
        n_outcomes : int
            How many outcomes its formula names.

        Returns
        -------
        dict of str to object
            Text, or tuples of text. Empty: a fit with it is not saved.

        Examples
        --------
        >>> avem.Poisson().evidence(1)
        {}
        """
        return {}

    @property
    def labels(self) -> tuple[Any, ...] | None:
        """The levels, unless they are the numbers 0 and 1."""
        return None if self.levels is None or set(self.levels) <= {0, 1} else self.levels

    @property
    def takes_levels(self) -> bool:
        """Outcomes are labels."""
        return self.levels is not None

    # --- parameters ---------------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """One for each linear predictor of an outcome, location first, if these are all it has."""
        return ()

    @property
    def n_location(self) -> int:
        """How many of `parameters`, from the first, the outcome's own formula describes."""
        return 1

    @property
    def location(self) -> str:
        """What the outcome's own formula describes; empty where it only names covariates."""
        return ""

    @property
    def coef_scale(self) -> str:
        """The scale of its coefficients, such as "log scale"; empty: that of the outcome."""
        return ""

    @property
    def with_formula(self) -> tuple[str, ...]:
        """The parameters that may have a formula of their own."""
        return ()

    @property
    def own_params(self) -> tuple[str, ...]:
        """Parameters of a state, in `fit.params`, that are not those of a linear predictor."""
        return ()

    # --- what a user gives it -----------------------------------------------------------------

    @classmethod
    def from_word(cls) -> Self:
        """The family that its word alone stands for, or an error that says what is lacking.

        Returns
        -------
        Family

        Examples
        --------
        >>> avem.Poisson.from_word()
        Poisson()
        """
        return cls()

    def given(
        self, formula: Formula, parameters: Collection[str], effects_by_state: bool
    ) -> Family:
        """The family to use for these outcomes, where some parameters have formulas of their own.

        Raises ModelError where it cannot have what is asked.

        Parameters
        ----------
        formula : Formula
            That of the outcomes.
        parameters : collection of str
            The parameters that have a formula of their own.
        effects_by_state : bool
            Whether every state has its own effects.

        Returns
        -------
        Family

        Examples
        --------
        >>> formula = avem.outcome("y ~ 1").formula
        >>> avem.Gaussian().given(formula, ["sd"], effects_by_state=False)
        UnivariateGaussian()
        """
        return self

    def learn(self, outcome: str, levels: Sequence[Any]) -> Family:
        """The family with the levels that occur in the data.

        Parameters
        ----------
        outcome : str
            Its name, for messages.
        levels : sequence
            The different values that occur, in order.

        Returns
        -------
        Family

        Examples
        --------
        >>> avem.Bernoulli().learn("smoked", ["no", "yes"]).levels
        ('no', 'yes')
        """
        return self

    def valid(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """Which observed values the density can take.

        Parameters
        ----------
        y : tuple of numpy.ndarray
            (rows,) the outcome and the further columns that the family reads (`extras`).

        Returns
        -------
        numpy.ndarray of bool
            (rows,)

        Examples
        --------
        >>> avem.Poisson().valid((np.array([0.0, 1.5, -1.0]),))
        array([ True, False, False])
        """
        return np.ones(np.shape(y[0]), bool)

    def columns(self, y: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """What the density reads, from the outcome and the columns of the data beside it.

        Parameters
        ----------
        y : tuple of numpy.ndarray
            (rows,) the outcome, NaN where missing, and the further columns (`extras`).

        Returns
        -------
        tuple of numpy.ndarray
            (rows,) the outcome, and `n_beside` further columns.

        Examples
        --------
        >>> avem.Poisson().columns((np.array([1.0, 4.0]),))
        (array([1., 4.]),)
        """
        return y

    def has_density(self, y: tuple[np.ndarray, ...]) -> np.ndarray:
        """Which values have a density, in the unit of the outcome; others have a probability.

        Parameters
        ----------
        y : tuple of numpy.ndarray
            (rows,) as `columns` gives them.

        Returns
        -------
        numpy.ndarray of bool
            (rows,)

        Examples
        --------
        >>> avem.ZeroAugmentedGamma().has_density((np.array([0.0, 4.0]),))
        array([False,  True])
        """
        if self.discrete:
            return np.zeros(np.shape(y[0]), bool)
        return np.asarray(y[0]) != 0 if self.zeros_apart else np.ones(np.shape(y[0]), bool)

    def ends(
        self, low: np.ndarray, high: np.ndarray, extras: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Between which probabilities a value lies, given `below` and `cdf` there.

        Parameters
        ----------
        low, high : numpy.ndarray
            (rows,) what `below` and `cdf` are.
        extras : tuple of numpy.ndarray
            (rows,) what `columns` gives beside the outcome.

        Returns
        -------
        tuple of numpy.ndarray

        Examples
        --------
        >>> avem.Poisson().ends(0.2, 0.3, ())
        (0.2, 0.3)
        """
        return low, high

    @abstractmethod
    def alone(self, number: int) -> Alone | None:
        """The distribution of one outcome of an emission.

        Parameters
        ----------
        number : int
            Which outcome, from 0.

        Returns
        -------
        Alone or None
            None if only its log density is known.

        Examples
        --------
        >>> avem.Gaussian("full").alone(0).family
        UnivariateGaussian()
        """

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        """Whether it is a special case of another family, inside the range of its parameters.

        Parameters
        ----------
        other : Family
            Of the same outcomes.
        numbers : tuple of int
            How many outcomes this family describes together, and how many the other one.

        Returns
        -------
        bool
            False where nobody knows.

        Examples
        --------
        >>> avem.Gaussian("diagonal").within(avem.Gaussian("full"), (2, 2))
        True
        """
        return self == other and numbers[0] == numbers[1]

    # --- words --------------------------------------------------------------------------------

    def describe(self) -> str:
        """It in words, for tables.

        Returns
        -------
        str

        Examples
        --------
        >>> avem.NegativeBinomial().describe()
        'negative binomial'
        """
        return self.name.replace("_", " ")

    @property
    def sentence(self) -> str:
        """What its outcomes are, given the state: "y is ..."."""
        return self.describe()

    @property
    def noise_words(self) -> str:
        """What a state has for the noise of all outcomes together."""
        return ""

    def tables(self, params: Mapping[str, np.ndarray], outcomes: Sequence[str]) -> Iterator[Table]:
        """The values of `own_params` as people read them.

        Parameters
        ----------
        params : dict of str to numpy.ndarray
            As in `fit.params`.
        outcomes : sequence of str
            Their names.

        Returns
        -------
        iterator of (str, numpy.ndarray, sequence of str)
            Title, numbers (rows, states) and names of the rows.

        Examples
        --------
        >>> [title for title, *_ in avem.Gaussian().tables({"variance": np.ones((2, 1))}, ["y"])]
        ['noise (standard deviation)']
        """
        return iter(())

    def code(self) -> str:
        """Python that makes it.

        Returns
        -------
        str

        Examples
        --------
        >>> avem.Binomial(trials=10).code()
        'avem.Binomial(trials=10)'
        """
        given = [f"{name}={plain(value)!r}" for name, value in self._fields() if value != ()]
        module = "avem." if type(self).__module__.partition(".")[0] == "avem" else ""
        return f"{module}{type(self).__name__}({', '.join(given)})"

    @property
    def code_formulas(self) -> dict[str, str]:
        """Formulas of parameters that turn what `code` makes into this family."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Its word and its fields: plain values, or tuples of them.

        Returns
        -------
        dict of str to object

        Examples
        --------
        >>> avem.Gaussian("full").to_json()
        {'name': 'gaussian', 'covariance': 'full'}
        """
        return {"name": self.name} | {name: plain(value) for name, value in self._fields()}

    def _fields(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A field without NumPy's own kinds of numbers, which print themselves as ``np.int64(1)``."""
    if isinstance(value, tuple):
        return tuple(plain(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value
