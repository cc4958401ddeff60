"""Can these data carry this state-space model? Asked before anything is computed."""

from __future__ import annotations

import numpy as np

from avem.data import Panel
from avem.errors import ModelError
from avem.models.encoded import PanelData
from avem.models.hmm_checks import (
    check_effects,
    check_outcome,
    check_subjects,
    check_terms,
    check_times,
)
from avem.models.ssm import SSMModel
from avem.numerics.rows import selection, take_columns

_CONSTANT = "a constant"


def check_ssm_data(model: SSMModel, panel: Panel, data: PanelData) -> None:
    """Raise an error that says what is wrong and what to try, or return nothing."""
    check_times(panel)
    if model.n_effects:
        check_subjects(panel, "Use random='none' and no (... | subject) term.")
    x_cols, z_cols = list(model.x_cols), list(model.designs.z_cols(0))
    for name, y in zip(model.outcomes, data.Y.T, strict=True):
        rows = ~np.isnan(y)
        some = selection(rows)
        check_outcome(name, y[some], data.n_without_past)
        place = f"where the outcome {name!r} is observed ({rows.sum()} row(s))"
        check_terms(take_columns(data.A, x_cols)[some], model.terms, place)
        if z_cols:
            terms = [model.designs.names[c] for c in z_cols]
            check_effects(panel, take_columns(data.A, z_cols), rows, terms, f"on {name!r}")
    _check_state_terms(model, panel, data)
    _check_size(model, panel, data)


def _check_state_terms(model: SSMModel, panel: Panel, data: PanelData) -> None:
    if not model.drive_cols:
        return
    later = panel.row_step > 0
    x = take_columns(data.A, model.drive_cols)
    if model.scaling.constant not in model.x_cols:
        check_terms(x, model.state_terms, "where the states move", later)
        return
    # A constant push moves the outcomes' means, which their intercepts do already.
    x = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    check_terms(x, (_CONSTANT, *model.state_terms), "where the states move", later)


def _check_size(model: SSMModel, panel: Panel, data: PanelData) -> None:
    q, p = model.n_latent, len(model.outcomes)
    n_loadings = p * q - q * (q - 1) // 2
    n_wanted = q * (q + len(model.drive_cols)) + n_loadings + p * (1 + len(model.x_cols))
    n_cells = int((~np.isnan(data.Y)).sum())
    if n_cells <= n_wanted:
        raise ModelError(
            f"{q} latent state(s) and {p} outcome(s) have {n_wanted} parameters, and the data have "
            f"{n_cells} observed values. Use fewer latent states or a simpler formula."
        )
    if not model.spec.random:
        return
    steps = np.bincount(panel.row_subject, panel.row_step > 0, panel.n_subjects)
    if (steps > q).sum() < 2:
        raise ModelError(
            f"Subjects' own {' and '.join(model.spec.random)} matrices are not identified: they "
            f"need subjects with more than {q} step(s) in time, and {int((steps > q).sum())} of "
            f"{panel.n_subjects} have that many. Use fewer latent states, or random='none'."
        )
