"""What the fits of all models do alike with subjects, effects and data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.components.param_info import Params, check_level
from avem.data import Panel
from avem.data.frames import column
from avem.data.scanning.scan import Scan
from avem.errors import DataError
from avem.fits.uncertainty import normal_interval
from avem.fits.words import check_word
from avem.inference.after.marginal import Marginal, marginal
from avem.inference.after.new_subjects import infer_effects

if TYPE_CHECKING:
    from avem.fits.computed import Computed


def effects_table(
    fit: Computed, subjects: np.ndarray, mean: np.ndarray, cov: np.ndarray, level: float
) -> pd.DataFrame:
    """A row per subject and effect, from means (n, d) and covariances (n, d, d)."""
    check_level(level)
    n, d = mean.shape
    sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    return pd.DataFrame(
        {
            fit.columns["subject"]: np.repeat(subjects, d),
            "effect": np.tile(np.array(fit.model.effect_names, dtype=object), n),
            **normal_interval(mean.ravel(), sd.ravel(), level),
        }
    )


def panel_for(fit: Computed, data: Any) -> Any:
    """The panel of a user's data, by the columns of the fit; without data, that of the fit."""
    if isinstance(data, Panel | Scan):
        return _carried(fit, data)
    if isinstance(data, int | np.integer):
        raise DataError(
            f"The data are the number {data}; a frame or a Panel is wanted. Steps ahead go by "
            f"name: predict(horizon={data})."
        )
    if data is not None:
        names = fit.columns
        panel = Panel.from_frame(
            data, str(names["subject"]), time=names["time"], sequence=names["sequence"]
        )
        return _carried(fit, panel)
    if fit.panel is None:
        raise DataError(
            "This fit was loaded from a file, which holds no data. Pass the data, or put them "
            "back for all that follows: fit = fit.with_data(frame)."
        )
    return fit.panel


def _carried(fit: Computed, panel: Any) -> Any:
    """The panel with gaps of covariates filled as in the data of the fit."""
    columns = fit.info.carried
    if not columns or panel.carried is not None:
        return panel
    return panel.carry_forward([name for name in columns if name in panel.table.columns])


def own_panel(fit: Computed, data: Any) -> Panel:
    """The panel of data that must be those of the fit."""
    panel, info = panel_for(fit, data), fit.info
    if info.weights is not None and panel.weights is None:
        panel = panel.weighted(info.weights, info.weights_kind)
    same = (panel.n_rows, panel.n_lanes) == (info.n_rows, info.n_sequences)
    if not same or not np.array_equal(panel.subjects, fit.subjects):
        raise DataError(
            f"These are not the data of the fit: {panel.n_rows:,} rows of "
            f"{panel.n_subjects:,} subjects in {panel.n_lanes:,} sequences; the fit had "
            f"{info.n_rows:,}, {len(fit.subjects):,} and {info.n_sequences:,}, its first "
            f"subject being {fit.subjects.tolist()[0]!r}."
        )
    outcomes = {name: column(panel.table, name, "an outcome") for name in fit.model.outcomes}
    empty = [name for name, values in outcomes.items() if values.isna().all()]
    if empty:
        raise DataError(
            f"These are not the data of the fit: {empty[0]!r} has no value here, and had some."
        )
    return panel


def positions(fit: Computed, panel: Panel) -> np.ndarray:
    """(panel subjects,) place of each in the fit's `subjects`, or -1."""
    places = pd.Index(fit.subjects).get_indexer(pd.Index(panel.subjects))
    if (places < 0).all():
        known = {str(label) for label in fit.subjects.tolist()}
        if any(str(label) in known for label in panel.subjects.tolist()):
            raise DataError(
                f"Subjects such as {panel.subjects.tolist()[0]!r} are in the fit, but as "
                f"{type(fit.subjects.tolist()[0]).__name__}. Convert the column "
                f"{panel.subject!r}, or choose other labels for new subjects."
            )
    return places


def effects_to_start_with(fit: Computed, panel: Panel) -> np.ndarray:
    """(panel subjects, d) the effects of the fit's subjects, 0 for those it does not know."""
    places = pd.Index(fit.subjects).get_indexer(pd.Index(panel.subjects))
    return np.where(places[:, None] < 0, 0.0, fit.effects_mean[places])


def effects_to_draw_with(fit: Computed, panel: Panel, effects: str) -> np.ndarray | None:
    """The fitted effects of a panel's subjects, or None where new ones are to be drawn."""
    check_word("effects", effects, ("new", "fitted"))
    if effects == "new":
        return None
    known = positions(fit, panel)
    if (known < 0).any():
        unknown = panel.subjects[known < 0][:5].tolist()
        raise DataError(f"No fitted effects for subjects {unknown}; use effects='new'.")
    return fit.effects_mean[known]


def marginal_of_new(fit: Computed, data: Any) -> Marginal:
    """The likelihood of encoded data with the effects integrated, every subject taken as new."""
    e = fit._e_steps(data)
    start, _ = infer_effects(e, fit.theta)
    return marginal(e, fit.theta, start)


def inferred_effects(fit: Computed, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d, subjects) and covariance of the effects, by the fit's own kind of posterior."""
    if fit.bound_name == "bound" or not fit.model.n_effects:
        return infer_effects(fit._e_steps(data), fit.theta)
    found = marginal_of_new(fit, data)
    return found.mean, found.cov


def posterior_for(fit: Computed, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d, subjects) and covariance of the effects: fitted where known, else inferred."""
    known = positions(fit, data.panel)
    mean = fit.model.effects_in(fit.effects_mean[known])
    cov = fit.model.effects_cov_in(fit.effects_cov[known])
    if (known < 0).any() and fit.model.n_effects:
        new_mean, new_cov = inferred_effects(fit, data)
        mean, cov = np.where(known < 0, new_mean, mean), np.where(known < 0, new_cov, cov)
    return mean, cov


def effect_sd(model: Any, theta: Params) -> np.ndarray:
    """(d,) standard deviation of each effect between subjects, in the user's units."""
    none = np.zeros((model.n_effects, 1))
    _, cov = model.effects_out(none, theta["effect_covariance"][:, :, None])
    return np.sqrt(np.diagonal(cov[0]))
