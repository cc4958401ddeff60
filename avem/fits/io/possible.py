"""Whether the numbers of a file can be those of a fit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from avem.components.param_info import ParamInfo
from avem.errors import FileError
from avem.fits.hmm_fit import HMMFit
from avem.fits.info import FitInfo
from avem.fits.sections import natural_scale
from avem.models.base import Model
from avem.models.hmm import by_spec

_LARGEST = 1e160
"""Data are refused beyond 1e75; their squares, and ratios to covariates, remain below this."""
_ROUNDING = 1e-6
_AT_ONCE = 1 << 18  # entries of matrices, so that copies remain small


def check_params(params: Mapping[str, np.ndarray], model: Model) -> None:
    """Raise where a fit of the model cannot have such parameters."""
    for name, info in model.param_info().items():
        wrong = _wrong(params[name], info)
        if wrong:
            raise FileError(f"its parameter {name!r} cannot be that of a fit: {wrong}.")
    for component in model.components:
        component.check_params(dict(params), "params")


def _wrong(value: np.ndarray, info: ParamInfo) -> str:
    """What is wrong with a parameter, or nothing."""
    if _is_absurd(value):
        return f"it reaches {np.abs(value).max():g}"
    if info.kind == "simplex":
        if (value < 0).any():
            return "it has a probability below 0"
        if np.abs(value.sum(-1) - 1).max(initial=0) > _ROUNDING:
            return "its probabilities do not add up to 1 in each row"
    if info.kind == "positive" and (value <= 0).any():
        return f"it has {value.min():g}, and has to be positive"
    if info.kind == "covariance":
        return _wrong_covariance(value, strict=True)
    if info.link is not None:
        with np.errstate(all="ignore"):
            if np.isnan(info.link.to_eta(value)).any():
                reach = f"{value.min():g} to {value.max():g}"
                return f"{reach} is not in the range of its link, {info.link.name}"
    return ""


def check_averages(fit: HMMFit) -> None:
    """Raise where an average outcome would not be a number, as with a logarithm of 1e75."""
    for pieces in by_spec(fit.model):
        with np.errstate(all="ignore"):
            found = [rows for _, rows, _ in natural_scale(fit, pieces)]
        for name, values in (pair for rows in found for pair in rows.items()):
            if not np.isfinite(values).all():
                raise FileError(
                    f"its coefficients cannot be those of a fit: {name!r} would be "
                    f"{values[~np.isfinite(values)][0]} on average."
                )


def check_effects(mean: np.ndarray, cov: np.ndarray) -> None:
    """Raise where subjects cannot have such effects; an effect may be known exactly."""
    if _is_absurd(mean):
        raise FileError(f"its effects_mean reaches {np.abs(mean).max():g}, which no effect does.")
    wrong = f"it reaches {np.abs(cov).max():g}" if _is_absurd(cov) else ""
    some = max(1, _AT_ONCE // max(1, cov.shape[-1] ** 2))
    for start in range(0, len(cov) if cov.size else 0, some):
        wrong = wrong or _wrong_covariance(cov[start : start + some], strict=False)
    if wrong:
        raise FileError(f"its effects_cov cannot be that of subjects: {wrong}.")


def _is_absurd(values: np.ndarray) -> bool:
    return bool(values.size) and max(values.max(), -values.min()) > _LARGEST


def _wrong_covariance(matrices: np.ndarray, strict: bool) -> str:
    """What keeps (..., d, d) from being covariances, or nothing; `strict`: no variance is 0."""
    variances = np.diagonal(matrices, axis1=-2, axis2=-1)
    if (variances < 0).any() or (strict and (variances == 0).any()):
        return f"it has the variance {variances.min():g}"
    # As correlations, so that effects in different units are judged alike.
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    unit = matrices / scale[..., :, None] / scale[..., None, :]
    if np.abs(unit - np.swapaxes(unit, -1, -2)).max(initial=0) > _ROUNDING:
        return "it is not symmetric"
    unit[..., range(unit.shape[-1]), range(unit.shape[-1])] += _ROUNDING
    try:
        np.linalg.cholesky(unit)
    except np.linalg.LinAlgError:
        return "it is not positive definite"
    return ""


def check_info(info: FitInfo, n_subjects: int) -> None:
    """Raise where the counts of a fit's record cannot be."""
    counts = {
        name: getattr(info, name)
        for name in ("n_rows", "n_sequences", "n_observed", "n_missing", "moved", "held_back")
    }
    negative = [name for name, count in counts.items() if count < 0]
    if negative:
        raise FileError(f"its info has {negative[0]} = {counts[negative[0]]}, a negative number.")
    if not info.n_rows >= info.n_sequences >= n_subjects:
        raise FileError(
            f"its info has {info.n_rows} rows in {info.n_sequences} sequences, but it has "
            f"{n_subjects} subjects."
        )
