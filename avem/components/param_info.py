"""What a parameter array is, and whether a user's values can be one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.errors import ModelError, did_you_mean
from avem.families.base import Link

Params = dict[str, np.ndarray]
_MOST_STATES = 1000


@dataclass(frozen=True)
class ParamInfo:
    """What one parameter array is."""

    shape: tuple[int, ...]
    kind: str
    """"simplex", "positive", "rate" (not negative; 0 where there is no move), "covariance",
    "natural" (in the range of its link) or "free"."""
    axes: str
    """The axes in words, with {} for `names`."""
    link: Link | None = None
    names: tuple[str, ...] = ()
    """What stands along the second axis, where components may share the array."""

    @property
    def words(self) -> str:
        """The axes in words."""
        return self.axes.replace("{}", ", ".join(self.names))

    def joined(self, other: ParamInfo) -> ParamInfo:
        """Of one array that two components share: the second one's part follows the first's."""
        first, own, *rest = self.shape
        shape = (first, own + other.shape[1], *rest)
        return replace(self, shape=shape, names=self.names + other.names)


def check_arrays(given: Any, known: Mapping[str, ParamInfo], where: str) -> Params:
    """The given parameters as arrays, or an error that says which is wrong and how."""
    if not isinstance(given, Mapping):
        raise ModelError(
            f"{where} is a {type(given).__name__}; a dict with some of {', '.join(known)} is "
            "wanted."
        )
    unknown = sorted(set(given) - set(known), key=str)
    if unknown:
        raise ModelError(
            f"{where} has {unknown}; this model's parameters are {', '.join(known)}."
            f"{did_you_mean(unknown[0], known)}"
        )
    return {
        name: _checked(value, known[name], f"{where}[{name!r}]") for name, value in given.items()
    }


def _checked(value: Any, info: ParamInfo, name: str) -> np.ndarray:
    try:
        array = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"{name} is not an array of numbers.") from None
    if array.shape != info.shape:
        raise ModelError(f"{name} has shape {array.shape}; {info.shape} is wanted ({info.words}).")
    if not np.isfinite(array).all():
        raise ModelError(f"{name} has values that are missing or infinite.")
    if info.kind == "simplex":
        if (array < 0).any() or np.abs(array.sum(-1) - 1).max() > 1e-6:
            raise ModelError(f"{name} must be probabilities that sum to 1 in each row.")
        return array / array.sum(-1, keepdims=True)
    if info.kind == "positive" and (array <= 0).any():
        raise ModelError(f"{name} must be positive.")
    if info.kind == "covariance":
        _check_covariance(array, name)
    if info.link is not None:
        with np.errstate(all="ignore"):
            inside = np.isfinite(info.link.to_eta(array)).all()
        if not inside:
            wanted = {"log": "positive", "logit": "between 0 and 1"}.get(info.link.name, "finite")
            raise ModelError(f"{name} must be {wanted}.")
    return array


def _check_covariance(matrix: np.ndarray, name: str) -> None:
    if matrix.size == 0:
        return
    symmetric = np.allclose(matrix, np.swapaxes(matrix, -1, -2), rtol=1e-8)
    if not symmetric or np.linalg.eigvalsh(matrix).min() <= 0:
        raise ModelError(f"{name} must be symmetric and positive definite.")


def check_count(name: str, value: Any) -> None:
    """Raise unless the value is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ModelError(f"{name} is {value!r}; a whole number of at least 1 is wanted.")


def check_states(name: str, value: Any) -> None:
    """Raise unless the value can be a number of states; a far larger one is a slip."""
    check_count(name, value)
    if value > _MOST_STATES:
        raise ModelError(f"{name} is {value}; at most {_MOST_STATES:,} are fitted. Begin with 2.")


def check_level(level: Any) -> None:
    """Raise unless the value can be the level of an interval."""
    if not (isinstance(level, int | float) and 0 < level < 1):
        raise ModelError(f"level is {level!r}; a number between 0 and 1 is wanted: 0.95, say.")


def check_seed(seed: Any) -> None:
    """Raise unless the seed is one that NumPy takes."""
    is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not (is_whole and seed >= 0):
        raise ModelError(f"seed is {seed!r}; a whole number that is not negative is wanted.")
