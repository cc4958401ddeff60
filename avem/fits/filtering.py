"""Filtered state probabilities: what is known at each row from it and the rows before it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.param_info import check_count
from avem.effects.cover import Beliefs, Cover
from avem.errors import AvemWarning, ModelError
from avem.fits.common import marginal_of_new, positions
from avem.fits.words import check_word
from avem.inference.after.filtering import filter_rows, population, updated
from avem.models.encoded import Encoded

if TYPE_CHECKING:
    from avem.fits.states_of_rows import StatesOfRows

STARTS = ("new", "integrated")
_MOST_NODES = 100_000


def filtered_states(
    fit: StatesOfRows, encoded: Encoded, own: bool, effects: str, n_nodes: int | None
) -> np.ndarray:
    """(rows, states); `own`: of the data of the fit."""
    cover = cover_for(fit, encoded, own, effects, n_nodes)
    found = filter_rows(encoded, fit.theta, cover)
    if not found.enough.all():
        warnings.warn(
            f"{few_nodes(cover.n_nodes)} at {encoded.panel.source.name_rows(~found.enough)}: state "
            "probabilities there are not exact.",
            AvemWarning,
            stacklevel=4,
        )
    return found.states


def cover_for(
    fit: StatesOfRows, encoded: Encoded, own: bool, effects: str, n_nodes: int | None
) -> Cover:
    """Nodes for the effects of a panel's subjects, from before its rows to after them."""
    prior = beliefs(fit, encoded.panel, effects, own)
    posterior = prior
    if fit.model.n_effects:
        at = fit._marginal if own else marginal_of_new(fit, encoded)
        found = Beliefs(at.mean, at.cov)
        posterior = updated(prior, found, fit.theta["effect_covariance"])
    return Cover.make(prior, posterior, checked(n_nodes))


def few_nodes(n_nodes: int) -> str:
    """That nodes are too few, and what to do."""
    return (
        f"The {n_nodes} nodes of the effects are too few for what is known of them (more: "
        f"n_nodes={4 * n_nodes})"
    )


def checked(n_nodes: int | None) -> int | None:
    """The number, if it can be one."""
    if n_nodes is not None:
        check_count("n_nodes", n_nodes)
        if n_nodes > _MOST_NODES:
            raise ModelError(
                f"n_nodes is {n_nodes:,}; at most {_MOST_NODES:,} are gone through, one by one. "
                "Use fewer."
            )
    return n_nodes


def beliefs(fit: StatesOfRows, panel: Any, effects: str, own: bool = False) -> Beliefs:
    """What is known of the effects of a panel's subjects before its rows."""
    check_word("effects", effects, STARTS)
    prior = population(fit.theta["effect_covariance"], panel.n_subjects)
    if effects == "new" or not fit.model.n_effects:
        return prior
    if own:
        raise ModelError(
            "effects='integrated' begins with what the rows of the fit say of its subjects: it is "
            "for rows that came later. Pass these, or leave effects= out."
        )
    known = positions(fit, panel)
    mean = fit.model.effects_in(fit.effects_mean[known])
    cov = fit.model.effects_cov_in(fit.effects_cov[known])
    return Beliefs(np.where(known < 0, prior.mean, mean), np.where(known < 0, prior.cov, cov))
