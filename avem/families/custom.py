"""A user's own emission: a plain JAX function of one step, with a history if it needs one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from avem.data.formula import Formula
from avem.errors import ModelError
from avem.families.base import Family, Table
from avem.numerics.precision import in_float64


class _AnyCovariate(dict):
    """Has every covariate: a family does not know which the formula names."""

    def __missing__(self, name: str) -> float:
        return 0.5


def _place(function: Any) -> str:
    """Where a function is defined, as people write it: module:name."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '')}:{name}"


class Custom(Family):
    """An emission written by the user, for one step of one sequence in one state.

    Parameters
    ----------
    log_prob : callable
        ``log_prob(y, x, history, params, effect)``: log probability (or density) of the outcome
        ``y`` at this step, in JAX: a number, or a vector where the formula names several outcomes,
        in its order. ``x`` is a dict of the covariates named in the formula,
        ``params`` a dict of the state's parameters, ``effect`` a dict of the subject's effects.
        An effect with the name of a parameter has already been added to it.
    params : dict of str to float
        Names and starting values of the parameters; each state has its own. They are free real
        numbers: bring them into range inside `log_prob`, as in ``jax.nn.sigmoid(params["rate"])``.
    effects : sequence of str
        Names of the subject's effects.
    history : array, dict or tuple of array
        What is known before the first step of a sequence.
    update : callable, optional
        ``update(history, y, x, params, effect)``: the history after the step. A step with a
        missing outcome leaves it as it was.
    draw : callable, optional
        ``draw(rng, x, history, params, effect)``: an outcome (or a vector of them), with a NumPy
        generator; needed only to simulate and to predict.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> def laplace(y, x, history, params, effect):
    ...     return -jnp.abs(y - params["middle"]) - jnp.log(2.0)
    >>> avem.Custom(laplace, params={"middle": 0.0}, effects=["middle"])
    Custom(laplace: middle)
    """

    name = "custom"
    emission = "custom"

    def __init__(
        self,
        log_prob: Callable[..., Any],
        params: Mapping[str, float],
        effects: Sequence[str] = (),
        history: Any = 0.0,
        update: Callable[..., Any] | None = None,
        draw: Callable[..., Any] | None = None,
    ) -> None:
        if not callable(log_prob):
            raise ModelError(
                "Custom needs log_prob, a function of (y, x, history, params, effect)."
            )
        if not isinstance(params, Mapping) or not params:
            raise ModelError("Custom needs params: a dict from names to starting values.")
        for name, value in params.items():
            if not isinstance(name, str) or not isinstance(value, int | float):
                raise ModelError(
                    f"Custom params has {name!r}: {value!r}; a name and a number are wanted."
                )
        if isinstance(effects, str) or len(set(effects)) < len(effects):
            raise ModelError("Custom effects is a list of different names.")
        self.log_prob, self.update, self.draw = log_prob, update, draw
        self.params = tuple((name, float(value)) for name, value in params.items())
        self.effects = tuple(effects)
        self.history = history

    def __repr__(self) -> str:
        names = ", ".join(name for name, _ in self.params)
        return f"Custom({getattr(self.log_prob, '__name__', 'log_prob')}: {names})"

    @classmethod
    def from_word(cls) -> Custom:
        raise ModelError(
            "Custom needs log_prob, a function of (y, x, history, params, effect), and params: "
            "avem.Custom(log_prob, params={'middle': 0.0})."
        )

    @property
    def own_params(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.params)

    def within(self, other: Family, numbers: tuple[int, int] = (1, 1)) -> bool:
        # What other functions can be, only their author knows.
        return self == other or (
            isinstance(other, Custom)
            and (self.log_prob, self.update) == (other.log_prob, other.update)
            and set(self.own_params) == set(other.own_params)
        )

    @property
    def has_history(self) -> bool:
        return self.update is not None

    @property
    def cannot_save(self) -> str:
        return f"{self!r} is made of Python functions, which a file of avem does not hold."

    def evidence(self, n_outcomes: int) -> dict[str, Any]:
        """Names of functions, parameters and effects, and what the functions give at two steps."""
        functions = (self.log_prob, self.update, self.draw)
        return {
            "functions": tuple(_place(function) for function in functions if function is not None),
            "params": self.own_params,
            "effects": self.effects,
            "values": tuple(f"{value:.12g}" for value in self._try_two_steps(n_outcomes)),
        }

    def differs(self, kept: Mapping[str, Any], n_outcomes: int) -> str:
        """What tells it from the family of which a file has kept the evidence.

        Parameters
        ----------
        kept : dict
            What `evidence` gave.
        n_outcomes : int
            How many outcomes its formula names.

        Returns
        -------
        str
            In words; empty if nothing does.

        Examples
        --------
        >>> one = avem.Custom(lambda y, *rest: -y, params={"a": 0.0})
        >>> other = avem.Custom(lambda y, *rest: -2 * y, params={"a": 0.0})
        >>> one.differs(one.evidence(1), 1)
        ''
        >>> other.differs(one.evidence(1), 1)
        'other log probabilities: -2 where the fit has -1'
        """
        own = self.evidence(n_outcomes)
        for name in ("params", "effects"):
            here, there = own[name], tuple(kept[name])
            if here != there:
                words = (", ".join(names) or "none" for names in (here, there))
                return f"the {name} {' where the fit has '.join(words)}"
        for one, other in zip(own["values"], kept["values"], strict=False):
            if not np.isclose(float(one), float(other), rtol=1e-6, atol=1e-9, equal_nan=True):
                return f"other log probabilities: {one} where the fit has {other}"
        return ""

    @in_float64
    def _try_two_steps(self, n_outcomes: int) -> list[float]:
        """Log probabilities of outcomes 0 and 1, one after the other; none if they are no steps."""
        params = {name: value + 0.25 for name, value in self.params}
        effect, x = dict.fromkeys(self.effects, 0.125), _AnyCovariate()
        history, found = jax.tree.map(jnp.asarray, self.history), []
        try:
            for number in (0.0, 1.0):
                y = jnp.full((n_outcomes,) if n_outcomes > 1 else (), number)
                found.append(float(self.log_prob(y, x, history, params, effect)))
                if self.update is not None:
                    history = self.update(history, y, x, params, effect)
        except Exception:  # whatever the user's code raises at values that it was not written for
            return []
        return found

    def given(
        self, formula: Formula, parameters: Collection[str], effects_by_state: bool
    ) -> Family:
        if formula.groups or parameters or effects_by_state:
            raise ModelError(
                "A custom family takes outcomes and covariates: 'y ~ x1 + x2'. Its effects are "
                "named in Custom(effects=...), its parameters in Custom(params=...)."
            )
        if formula.offset:
            raise ModelError(
                f"offset() in {formula.text!r}: a custom family has no linear predictor that it "
                "could be added to. Name the column as a covariate, and add it in log_prob."
            )
        return self

    def alone(self, number: int) -> None:
        """Not known: there is a log probability, but no distribution function."""

    @property
    def sentence(self) -> str:
        return "of a custom density"

    def tables(self, params: Mapping[str, np.ndarray], outcomes: Sequence[str]) -> Iterator[Table]:
        yield "parameters", np.array(list(params.values())), list(params)

    def code(self) -> str:
        """It needs the user's own function, `log_prob`."""
        return f"avem.Custom(log_prob, params={dict(self.params)!r}, effects={self.effects!r})"

    def start_history(self) -> Any:
        """The history before the first step.

        Returns
        -------
        array, dict or tuple of array

        Examples
        --------
        >>> avem.Custom(lambda *step: 0.0, params={"a": 0.0}, history=1.5).start_history()
        1.5
        """
        return self.history

    @in_float64
    def check(self, terms: tuple[str, ...], n_outcomes: int = 1) -> None:
        """Try the functions on one step, and say in words what is wrong with them.

        Parameters
        ----------
        terms : tuple of str
            The covariates that the formula names.
        n_outcomes : int
            How many outcomes it names; with several, ``y`` is a vector.

        Examples
        --------
        >>> avem.Custom(lambda y, x, *rest: y * x["dose"], params={"a": 0.0}).check(("dose",))
        """
        number = jax.ShapeDtypeStruct((), float)
        y = number if n_outcomes == 1 else jax.ShapeDtypeStruct((n_outcomes,), float)
        x = dict.fromkeys(terms, number)
        params = {name: number for name, _ in self.params}
        effect = dict.fromkeys(self.effects, number)
        start = jax.tree.map(np.shape, self.history)
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), float), self.history
        )
        given = (
            f"y has shape {y.shape}; x has {', '.join(terms) or 'nothing'}; "
            f"params has {', '.join(params)}; effect has {', '.join(effect) or 'nothing'}"
        )
        try:
            found = jax.eval_shape(self.log_prob, y, x, shapes, params, effect)
        except Exception as error:  # whatever the user's code raises
            raise ModelError(
                f"log_prob of the custom family failed on one step: {error!r}. It is called with "
                f"(y, x, history, params, effect); {given}."
            ) from error
        if getattr(found, "shape", None) != ():
            raise ModelError(
                f"log_prob of the custom family gives {found}; one number for one step is wanted."
            )
        if self.update is None:
            return
        try:
            after = jax.eval_shape(self.update, shapes, y, x, params, effect)
        except Exception as error:
            raise ModelError(
                f"update of the custom family failed on one step: {error!r}. It is called with "
                f"(history, y, x, params, effect); {given}."
            ) from error
        if jax.tree.map(np.shape, after) != start:
            raise ModelError(
                f"update of the custom family gives {after}; a history like the first one, "
                f"{self.history!r}, is wanted."
            )
