"""A fit for ArviZ and xarray. Needs the extra ``avem[arviz]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.clusters import SHARES
from avem.components.emission import Emission
from avem.components.param_info import check_count
from avem.effects.draws import roots
from avem.errors import AvemError
from avem.fits.sections import emission_names
from avem.models.hmm import HMMModel, by_spec
from avem.models.ssm import SSMModel, effects_of

if TYPE_CHECKING:
    from avem.fits.fit import Fit

_NOTE = (
    "Effects are draws from the Gaussian q_i of each subject at the fitted parameters, which are "
    "point estimates: their own uncertainty is not in these draws."
)


def to_arviz(fit: Fit, n_draws: int = 500, seed: int = 0) -> Any:
    """The fit as ArviZ's InferenceData (a DataTree from ArviZ 1.0 on).

    Groups: ``posterior`` holds draws of the subjects' effects, the only thing that has a posterior
    here; the fitted parameters are in ``constant_data``; the outcomes, where the fit still has its
    data, are in ``observed_data``, rows in the order of the data. Levels are numbered 0, 1, ...;
    the attribute ``levels`` names them.
    """
    check_count("n_draws", n_draws)
    try:
        import arviz
    except ImportError:
        raise AvemError("to_arviz needs ArviZ: pip install 'avem[arviz]'.") from None
    groups: dict[str, dict[str, np.ndarray]] = {"constant_data": dict(fit.params)}
    if fit.model.n_effects:
        draws = _draw_effects(fit, n_draws, np.random.default_rng(seed))
        groups["posterior"] = {"effects": draws[None]}
    axes = _axes(fit)
    if fit.panel is not None:
        observed = fit.model.read(fit.panel).Y[:, fit.model.outcome_columns]
        groups["observed_data"] = {"outcomes": observed}
        axes["outcomes"] = {"row": np.arange(fit.panel.n_rows), "outcome": list(fit.model.outcomes)}
    options: dict[str, Any] = {
        "coords": {dim: labels for own in axes.values() for dim, labels in own.items()},
        "dims": {name: list(own) for name, own in axes.items()},
    }
    if int(arviz.__version__.partition(".")[0]) >= 1:
        made = arviz.from_dict(groups, **options)
    else:
        made = arviz.from_dict(**groups, **options)
    for name in groups:
        made[name].attrs.update(inference_library="avem", note=_NOTE)
    if fit.panel is not None and (levels := _levels(fit)):
        made["observed_data"].attrs["levels"] = levels
    return made


def _draw_effects(fit: Fit, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, subjects, d)."""
    noise = rng.standard_normal((n_draws, *fit.effects_mean.shape))
    root = roots(np.moveaxis(fit.effects_cov, 0, -1))
    return fit.effects_mean + np.einsum("ijn,snj->sni", root, noise)


def _levels(fit: Fit) -> str:
    """ "choice: left, right" for each outcome that has levels."""
    found = []
    for name, levels in fit._levels().items():
        found += [f"{name}: {', '.join(map(str, levels))}"] if levels is not None else []
    return "; ".join(found)


def _axes(fit: Fit) -> dict[str, dict[str, Any]]:
    """Names and labels of the axes of every variable; those that several share have one name."""
    own = _AXES[fit.kind](fit.model)
    found = {name: axes for name, axes in own.items() if name in fit.params}
    return found | {"effects": {"subject": fit.subjects, "effect": fit.model.effect_labels}}


def _ssm_axes(model: SSMModel) -> dict[str, dict[str, Any]]:
    states = {"state": _states(model)}
    outcomes = {"outcome": list(model.outcomes)}
    found: dict[str, dict[str, Any]] = {
        "initial_mean": states,
        "initial_covariance": states | {"other_state": states["state"]},
        f"{model.spec.kinds[0]}_mean": {"to_state": states["state"]} | states,
        "state_coef": states | {"state_term": list(model.state_terms)},
        "loading_mean": outcomes | states,
        "coef": outcomes | {"term": list(model.terms)},
        "noise": outcomes,
    }
    for kind in model.spec.kinds:
        names = [model.effect_labels[e] for e in effects_of(model, kind)]
        axes = {f"{kind}_effect": names, f"other_{kind}_effect": names}
        found[f"{kind}_covariance"] = axes
    return found


def _states(model: HMMModel | SSMModel) -> Any:
    """The states along an axis: their names, or their numbers."""
    return list(model.state_names) or np.arange(model.size)


def _hmm_axes(model: HMMModel) -> dict[str, dict[str, Any]]:
    """Axes of one formula among several are prefixed like its parameters: ``step.term``."""
    states, effects = _states(model), model.effect_labels
    found: dict[str, dict[str, Any]] = {
        "effect_covariance": {"effect": effects, "other_effect": effects},
        "initial": {"state": states},
        "transition": {"state": states, "to_state": states},
        "rate": {"state": states, "to_state": states},
    }
    if model.duration is not None:
        lengths = list(range(1, model.duration.longest + 1))
        found["duration"] = {"state": states, "length": lengths}
        terms = [term for line in model.duration.lines[:1] for term in line.terms]
        found["duration_coef"] = {"state": states, "duration_term": terms}
        found["duration_shape"] = {"state": states}
    if first := model.initial.lines:
        found["initial_coef"] = {"state": states, "initial_term": list(first[0].terms)}
    info = model.param_info()
    for name in info.keys() & {"transition_coef", "rate_coef"}:
        terms = list(model.transition.lines[0].terms)
        found[name] = {"state": states, "to_state": states, "transition_term": terms}
    if model.n_clusters > 1:
        types = {"cluster": list(range(model.n_clusters))}
        found = {name: types | axes for name, axes in found.items() if name in info}
        found["effect_covariance"] = {
            k: v for k, v in found["effect_covariance"].items() if k != "cluster"
        }
        found[SHARES] = types
    for pieces in by_spec(model):
        for name in emission_names(pieces):
            full = pieces[0].prefix + name
            found[full] = {"state": states} | _emission_axes(pieces, name, len(info[full].shape))
    return found


def _emission_axes(pieces: list[Emission], name: str, ndim: int) -> dict[str, Any]:
    """The axes after the states of a parameter of the outcomes of one formula."""
    prefix, outcomes = pieces[0].prefix, [name for piece in pieces for name in piece.outcomes]
    if ndim == 1:
        return {}
    if name == "covariance":
        return {f"{prefix}outcome": outcomes, f"{prefix}other_outcome": outcomes}
    if ndim == 2:
        return {f"{prefix}outcome": outcomes}
    parameter = "" if name == "coef" else name.removesuffix("_coef")
    lines = [line for piece in pieces for line in piece.lines if line.parameter == parameter]
    terms = {f"{prefix}{parameter}_term" if parameter else f"{prefix}term": list(lines[0].terms)}
    labels = [line.label for line in lines]
    # A categorical outcome has a row for every level but the first.
    rows = "outcome" if labels == outcomes else "level"
    return {f"{prefix}{rows}": labels} | terms


_AXES = {"hmm": _hmm_axes, "ssm": _ssm_axes}
"""By the kind of fit."""
