"""The parameters of a model that are estimated, by functions of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from avem.components.free import Free
from avem.components.param_info import Params
from avem.models.base import Model


def find_free(
    model: Model, theta: Params, fixed: Sequence[str], spread: np.ndarray, scale: np.ndarray
) -> Free:
    """What is free: not held by the user, and not on the boundary."""
    return model.find_free(theta, fixed, spread, scale)


def count_free(model: Model, theta: Params, fixed: Sequence[str]) -> int:
    """How many parameters are estimated, those that ended on a boundary included."""
    return model.count_free(fixed)
