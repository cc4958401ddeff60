"""Parameters as the user gives them: names, shapes, values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from avem.data import Design
from avem.errors import ModelError
from avem.families.gaussian import Gaussian

Params = dict[str, np.ndarray]


def param_shapes(design: Design, n_states: int, family: Gaussian) -> dict[str, tuple[int, ...]]:
    """Name and shape of every parameter of a mixed HMM."""
    p, d = len(design.outcomes), len(design.outcomes) * len(design.effect_terms)
    return {
        "initial": (n_states,),
        "transition": (n_states, n_states),
        "coef": (n_states, p, len(design.terms)),
        family.noise_name: family.noise_shape(n_states, p),
        "effect_covariance": (d, d),
    }


def check_params(
    given: Mapping[str, Any], design: Design, n_states: int, family: Gaussian, where: str
) -> Params:
    """The given parameters as arrays, or an error that says which is wrong and how."""
    shapes = param_shapes(design, n_states, family)
    if not isinstance(given, Mapping):
        raise ModelError(
            f"{where} is a {type(given).__name__}; a dict with some of {', '.join(shapes)} is "
            "wanted."
        )
    unknown = sorted(set(given) - set(shapes), key=str)
    if unknown:
        raise ModelError(f"{where} has {unknown}; this model's parameters are {', '.join(shapes)}.")
    out: Params = {}
    for name, value in given.items():
        try:
            array = np.array(value, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(f"{where}[{name!r}] is not an array of numbers.") from None
        if array.shape != shapes[name]:
            raise ModelError(
                f"{where}[{name!r}] has shape {array.shape}; {shapes[name]} is wanted"
                f" ({_axes(name, design)})."
            )
        if not np.isfinite(array).all():
            raise ModelError(f"{where}[{name!r}] has values that are missing or infinite.")
        out[name] = array
    for name in {"initial", "transition"} & set(out):
        if (out[name] < 0).any() or np.abs(out[name].sum(-1) - 1).max() > 1e-6:
            raise ModelError(f"{where}[{name!r}] must be probabilities that sum to 1 in each row.")
        out[name] = out[name] / out[name].sum(-1, keepdims=True)
    if "variance" in out and (out["variance"] <= 0).any():
        raise ModelError(f"{where}['variance'] must be positive.")
    for name in {"covariance", "effect_covariance"} & set(out):
        _check_covariance(out[name], f"{where}[{name!r}]")
    return out


def _check_covariance(matrix: np.ndarray, name: str) -> None:
    if matrix.size == 0:
        return
    symmetric = np.allclose(matrix, np.swapaxes(matrix, -1, -2), rtol=1e-8)
    if not symmetric or np.linalg.eigvalsh(matrix).min() <= 0:
        raise ModelError(f"{name} must be symmetric and positive definite.")


def _axes(name: str, design: Design) -> str:
    outcomes, terms = ", ".join(design.outcomes), ", ".join(design.terms)
    return {
        "coef": f"states x outcomes ({outcomes}) x terms ({terms})",
        "effect_covariance": "outcomes x effect terms, both ways",
        "initial": "states",
        "transition": "from state x to state",
        "variance": "states, or states x outcomes",
        "covariance": "states x outcomes x outcomes",
    }[name]


def check_count(name: str, value: Any) -> None:
    """Raise unless the value is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ModelError(f"{name} is {value!r}; a whole number of at least 1 is wanted.")


def check_seed(seed: Any) -> None:
    """Raise unless the seed is one that NumPy takes."""
    is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not (is_whole and seed >= 0):
        raise ModelError(f"seed is {seed!r}; a whole number that is not negative is wanted.")
