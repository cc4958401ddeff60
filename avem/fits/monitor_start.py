"""A monitor of one subject, before its first row or after those that there are."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from avem.effects.cover import Cover
from avem.errors import DataError, ModelError
from avem.fits.common import panel_for
from avem.fits.filtering import beliefs, checked, cover_for
from avem.fits.monitor import Known, Monitor

if TYPE_CHECKING:
    from avem.fits.states_of_rows import StatesOfRows


def make_monitor(
    fit: StatesOfRows, rows: Any, subject: Any, effects: str, n_nodes: int | None
) -> Monitor:
    """A monitor of one subject, at its rows so far."""
    model = fit.model
    if model.spec.has_history:
        raise ModelError(
            "A monitor does not keep what a Custom emission with update= remembers. fit.filter() "
            "gives filtered probabilities."
        )
    panel = None if rows is None else panel_for(fit, rows)
    if panel is not None:
        if not panel.in_memory:
            raise ModelError("A monitor is of one subject, whose rows are in memory.")
        if panel.n_subjects != 1:
            raise DataError(
                f"The rows are of {panel.n_subjects:,} subjects; a monitor is of one. Make one "
                "for each."
            )
        label = panel.subjects.tolist()[0]
        if subject is not None and subject != label:
            raise DataError(f"The rows are of subject {label!r}, and subject={subject!r}.")
        subject = label
    if not isinstance(subject, Hashable) or (subject is not None and subject != subject):
        raise DataError(f"subject={subject!r}; the label of one subject is wanted.")
    known = fit.subjects.tolist()
    if effects == "integrated" and subject not in known:
        raise DataError(
            f"subject={subject!r} is none of the fit's, so that nothing of its effects is known "
            "beforehand. Leave effects= out."
        )
    if panel is None:
        prior = beliefs(fit, _Labels(np.array([subject], dtype=object)), effects)
        return begun(fit, Cover.make(prior, prior, checked(n_nodes)), subject)
    cover = cover_for(fit, model.encode(panel), False, effects, n_nodes)
    made = begun(fit, cover, subject)
    made.follow(panel)
    return made


def begun(fit: StatesOfRows, cover: Cover, subject: Any) -> Monitor:
    """A monitor at these nodes, before the first row."""
    nodes, log_weight = cover.all_at()
    start = Known(None, log_weight - logsumexp(log_weight))
    of_fit = (fit.model, fit.params, fit.columns)
    return Monitor(*of_fit, subject, nodes, start, cover.least, fit.info.carried)


class _Labels(NamedTuple):
    """Whom a monitor is of, as far as it is one of the fit's subjects."""

    subjects: np.ndarray
    subject: str = "subject"

    @property
    def n_subjects(self) -> int:
        return 1
