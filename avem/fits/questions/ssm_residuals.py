"""One-step residuals of a fitted state-space model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.param_info import check_seed
from avem.effects.draws import draw_effects
from avem.fits.common import posterior_for
from avem.fits.words import check_word
from avem.inference.after.ssm_states import residuals as one_step_residuals
from avem.models.encoded import Encoded

if TYPE_CHECKING:
    from avem.fits.ssm_fit import SSMFit

EFFECTS = ("fitted", "drawn")
"""A draw from the posterior and the data are together distributed as the true effects and the data
are, so that residuals at drawn effects are independent and standard normal if the model holds."""


def residuals(
    fit: SSMFit, data: Any = None, effects: str = "fitted", joint: bool = False, seed: int = 0
) -> Any:
    """The table of `SSMFit.residuals`."""
    encoded = fit._encode(data)
    values = residual_values(fit, encoded, effects, joint, seed)
    return encoded.panel.frame_like(dict(zip(fit.model.outcomes, values.T, strict=True)))


def residual_values(
    fit: SSMFit, encoded: Encoded, effects: str, joint: bool, seed: int
) -> np.ndarray:
    """(rows, outcomes) the residuals as numbers."""
    check_word("effects", effects, EFFECTS)
    if effects == "fitted":
        f = fit._effects_for(encoded)
    else:
        check_seed(seed)
        f = draw_effects(*posterior_for(fit, encoded), np.random.default_rng(seed))
    return one_step_residuals(fit.model, encoded, fit.theta, f, joint)
