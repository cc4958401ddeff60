"""Which type every subject is of, in a model of several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from avem.errors import ModelError
from avem.fits.predict.posterior import averaged, nodes_for
from avem.fits.questions.keys import check_keys
from avem.inference.after.hmm_states import memberships
from avem.models.encoded import Encoded

if TYPE_CHECKING:
    from avem.fits.hmm_fit import HMMFit

_NOTHING = 1e-4
"""Share of a node, for everyone, that is not worth a pass."""


def cluster_table(fit: HMMFit, encoded: Encoded) -> Any:
    """The table of `fit.clusters`."""
    n, panel = fit.model.n_clusters, encoded.panel
    if n == 1:
        raise ModelError(
            "The model has one type of subjects. MixedHMM(..., n_clusters=2) has two, and "
            "avem.select(..., clusters=range(1, 4)) compares numbers of them."
        )
    names = [f"cluster_{c}" for c in range(n)]
    check_keys([panel.subject], ("cluster", *names))
    chance = cluster_chances(fit, encoded)
    columns = dict(zip(names, chance.T, strict=True))
    found = {panel.subject: panel.subjects, "cluster": chance.argmax(1), **columns}
    return panel.source.table(pd.DataFrame(found))


def cluster_chances(fit: HMMFit, encoded: Encoded) -> np.ndarray:
    """(subjects, clusters) averaged over the posterior of the effects."""
    nodes = nodes_for(fit, encoded, "integrated")
    total = np.zeros((fit.model.n_clusters, encoded.panel.n_subjects))
    for at, weight in averaged(nodes, _NOTHING):
        total += weight * memberships(encoded, fit.theta, at)
    return total.T
