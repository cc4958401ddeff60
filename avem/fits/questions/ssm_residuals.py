"""One-step residuals of a fitted state-space model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.param_info import check_seed
from avem.effects.draws import draw_effects
from avem.fits.common import posterior_for
from avem.fits.words import check_word
from avem.inference.after.ssm_states import residuals as one_step_residuals
from avem.models.ssm import SSMEncoded

if TYPE_CHECKING:
    from avem.fits.ssm_fit import SSMFit

EFFECTS = ("fitted", "drawn")


def residuals(
    fit: SSMFit, data: Any = None, effects: str = "fitted", joint: bool = False, seed: int = 0
) -> Any:
    """Rows x outcomes: one-step residuals over their standard deviations, NaN where missing.

    What is left of each outcome once the rows before it in the sequence have predicted it, in the
    data's own row order and index.

    Parameters
    ----------
    effects
        ``"fitted"``: every subject at the mean of its effects, which were fitted to these very
        rows, so the residuals are a little too small and too well-behaved. ``"drawn"``: at one
        draw from what is known of them. Such residuals are standard normal and independent over
        time if the model holds: a draw from the posterior and the data are together distributed
        as the true effects and the data are.
    joint
        Take out of each outcome what the ones before it in the same row say of it, so that the
        outcomes' residuals are uncorrelated, too.
    """
    encoded = fit._encode(data)
    values = residual_values(fit, encoded, effects, joint, seed)
    return encoded.panel.frame_like(dict(zip(fit.model.outcomes, values.T, strict=True)))


def residual_values(
    fit: SSMFit, encoded: SSMEncoded, effects: str, joint: bool, seed: int
) -> np.ndarray:
    """(rows, outcomes) the residuals as numbers."""
    check_word("effects", effects, EFFECTS)
    if effects == "fitted":
        f = fit._effects_for(encoded)
    else:
        check_seed(seed)
        f = draw_effects(*posterior_for(fit, encoded), np.random.default_rng(seed))
    return one_step_residuals(fit.model, encoded, fit.theta, f, joint)
