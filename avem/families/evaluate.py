"""Log densities as numbers, for predictions and pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from avem.families.base import Etas
from avem.families.univariate import Univariate
from avem.numerics.jit import jit
from avem.numerics.precision import in_float64


@in_float64
def log_densities(family: Univariate, y: tuple[Any, ...], eta: Etas) -> np.ndarray:
    """Elementwise, in one program: else every step of the density would be compiled by itself."""
    return np.asarray(_compiled(family, y, eta))


@jit("family")
def _compiled(family: Univariate, y: tuple[Any, ...], eta: Etas) -> Any:
    return family.log_density(y, eta)
