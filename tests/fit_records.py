"""The record of a fit that nothing was iterated for."""

import numpy as np

import avem
from avem.fits.info import FitInfo


def common(panel):
    """What every fit has beside its parameters."""
    info = FitInfo(
        method="avem",
        refined=False,
        lost=(),
        q_update="laplace",
        unanchored=(),
        n_nodes=None,
        n_draws=None,
        fresh_draws=False,
        fixed=(),
        anchor="mean",
        plain=False,
        seed=0,
        n_rows=panel.n_rows,
        n_sequences=panel.n_lanes,
        n_observed=panel.n_rows,
        n_missing=0,
        start_gaps=(0.0,),
        start_iterations=(3,),
        starts_agreeing=1,
        moved=0,
        seconds=0.1,
        notes=(),
    )
    return {
        "subjects": panel.subjects,
        "bound": -100.0,
        "bound_history": np.array([-120.0, -101.0, -100.0]),
        "loglik_history": np.array([-110.0, -95.0, -94.0]),
        "n_iter": 3,
        "stop": avem.Stop.CONVERGED,
        "info": info,
        "columns": {"subject": panel.subject, "time": panel.time, "sequence": panel.sequence},
        "panel": panel,
    }
