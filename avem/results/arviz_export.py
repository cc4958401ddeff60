"""A fit for ArviZ and xarray. Needs the extra ``avem[arviz]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.errors import AvemError, ModelError

if TYPE_CHECKING:
    from avem.results.hmm_fit import HMMFit

_DIMS = {
    "initial": ["state"],
    "transition": ["state", "to_state"],
    "coef": ["state", "outcome", "term"],
    "effect_covariance": ["effect", "other_effect"],
    "effects": ["subject", "effect"],
    "outcomes": ["row", "outcome"],
}
_NOTE = (
    "Effects are draws from the Gaussian q_i of each subject at the fitted parameters, which are "
    "point estimates: their own uncertainty is not in these draws."
)


def to_arviz(fit: HMMFit, n_draws: int = 500, seed: int = 0) -> Any:
    """The fit as ArviZ's InferenceData (a DataTree from ArviZ 1.0 on).

    Groups: ``posterior`` holds draws of the subjects' effects, the only thing that has a posterior
    here; the fitted parameters are in ``constant_data``; the outcomes, where the fit still has its
    data, are in ``observed_data``, rows in the order of the data.
    """
    if isinstance(n_draws, bool) or not isinstance(n_draws, int | np.integer) or n_draws < 1:
        raise ModelError(f"n_draws is {n_draws!r}; a whole number of at least 1 is wanted.")
    try:
        import arviz
    except ImportError:
        raise AvemError("to_arviz needs ArviZ: pip install 'avem[arviz]'.") from None
    groups: dict[str, dict[str, np.ndarray]] = {"constant_data": dict(fit.params)}
    if fit.model.n_effects:
        draws = _draw_effects(fit, n_draws, np.random.default_rng(seed))
        groups["posterior"] = {"effects": draws[None]}
    if fit.panel is not None:
        groups["observed_data"] = {"outcomes": fit.model.design.apply(fit.panel).Y}
    options: dict[str, Any] = {"coords": _coords(fit), "dims": _dims(fit)}
    if int(arviz.__version__.partition(".")[0]) >= 1:
        made = arviz.from_dict(groups, **options)
    else:
        made = arviz.from_dict(**groups, **options)
    for name in groups:
        made[name].attrs.update(inference_library="avem", note=_NOTE)
    return made


def _draw_effects(fit: HMMFit, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, subjects, d)."""
    values, vectors = np.linalg.eigh(fit.effects_cov)  # works for a singular covariance too
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    noise = rng.standard_normal((n_draws, *fit.effects_mean.shape))
    return fit.effects_mean + np.einsum("nij,snj->sni", root, noise)


def _dims(fit: HMMFit) -> dict[str, list[str]]:
    noise = fit.model.family.noise_name
    axes = ["state", "outcome", "other_outcome"]
    return _DIMS | {noise: axes[: fit.params[noise].ndim]}


def _coords(fit: HMMFit) -> dict[str, Any]:
    model, design = fit.model, fit.model.design
    states = np.arange(model.n_states)
    coords: dict[str, Any] = {
        "subject": fit.subjects,
        "effect": model.effect_names,
        "other_effect": model.effect_names,
        "state": states,
        "to_state": states,
        "outcome": list(design.outcomes),
        "other_outcome": list(design.outcomes),
        "term": list(design.terms),
    }
    if fit.panel is not None:
        coords["row"] = np.arange(fit.panel.n_rows)
    return coords
