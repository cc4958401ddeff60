"""One replicate of a bootstrap: a data set drawn from a fit, and the same model fitted to it."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from avem.data import Panel
from avem.errors import AvemWarning
from avem.fits.fit import Fit
from avem.fits.hmm_fit import HMMFit
from avem.fits.info import method_of, refinement_of
from avem.fits.ssm_fit import SSMFit
from avem.inference.stop import Stop
from avem.mixed import Mixed
from avem.mixed_hmm import MixedHMM
from avem.mixed_ssm import MixedSSM
from avem.workflows.bootstrap_table import FAILED, Replicate

_FRONTS: dict[str, type[Mixed]] = {HMMFit.kind: MixedHMM, SSMFit.kind: MixedSSM}
"""What fits each kind of model."""
_MAX_ITER, _PLAIN_MAX_ITER = 500, 20_000
_PLAIN_TOL = 1e-9
"""The paper's rule ends where steps are small, so a start near the fit would end there at once."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """All that replicates are made from, and no more: other processes get a copy."""

    fit: Fit
    """With its data, and without its subjects' effects: replicates have others."""
    seed: int

    @classmethod
    def of(cls, fit: Fit, panel: Panel, seed: int) -> Recipe:
        """The recipe of a fit and its data."""
        # The copies leave behind what the originals have computed and kept.
        bare = replace(
            fit,
            model=replace(fit.model),
            panel=replace(panel),
            effects_mean=fit.effects_mean[:0],
            effects_cov=fit.effects_cov[:0],
        )
        return cls(bare, int(seed))

    @property
    def panel(self) -> Panel:
        """The data of the fit."""
        return self.fit._panel(None)

    def replicate(self, number: int) -> Replicate:
        """The replicate of this number: the same in any order and in any process."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        origin, panel = self.fit, self.panel
        table = origin._draw(panel, rng).frame
        front = front_of(origin)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AvemWarning)
                fit = front.fit(
                    replace(panel, table=table),
                    init=origin._start_for_replicates(),
                    seed=int(rng.integers(2**32)),
                    progress=False,
                    **refit_options(origin),
                )
        except Exception as error:  # one bad data set is no reason to lose hours of good ones
            return Replicate(number, FAILED, f"{type(error).__name__}: {error}")
        if not all(np.isfinite(value).all() for value in (fit.bound, *fit.params.values())):
            return Replicate(number, FAILED, "The fit ended at parameters that are not finite.")
        reason = "" if fit.stop is Stop.CONVERGED else str(fit.stop)
        return Replicate(number, fit.stop.name, reason, fit.bound, fit.params)

    def identity(self) -> dict[str, Any]:
        """What tells this bootstrap from others, as JSON: some of it for people, and a hash."""
        fit, panel, model = self.fit, self.panel, self.fit.model
        missing = [panel.table[name].isna().to_numpy() for name in model.outcomes]
        size = {model.size_name: model.size}
        contents = {
            "formulas": [formula.text for formula in model.spec.formulas],
            "effect_covariance": model.spec.effect_covariance,
            "params": {name: value.tolist() for name, value in fit.params.items()},
            "fixed": fit.info.fixed,
            "settings": _settings(fit),
            "missing": hashlib.sha256(np.packbits(missing).tobytes()).hexdigest(),
            "shape": [panel.n_subjects, panel.n_lanes, panel.n_rows],
            **size,
            "seed": self.seed,
            **fit._own_identity(),
        }
        text = json.dumps(contents, sort_keys=True, default=str)
        return {
            "model": model.spec.text,
            **size,
            "n_rows": panel.n_rows,
            "seed": self.seed,
            "fit": hashlib.sha256(text.encode()).hexdigest(),
        }


def front_of(fit: Fit) -> Mixed:
    """The model of a fit as users have it, with the levels and columns that were learned."""
    return _FRONTS[fit.kind].from_spec(fit.model.spec, learned=fit.model)


def refit_options(fit: Fit) -> dict[str, Any]:
    """The options with which the same model is fitted to other data in the same way."""
    return {"fixed": {name: fit.params[name] for name in fit.info.fixed}, **_settings(fit)}


def _settings(fit: Fit) -> dict[str, Any]:
    """The options that made the fit, as far as it keeps them, with the choices left to it made."""
    info = fit.info
    return {
        "method": method_of(info),
        "refine": refinement_of(info),
        "plain": info.plain,
        # A fit that took long shall not have replicates that stop early.
        "max_iter": max(_PLAIN_MAX_ITER if info.plain else _MAX_ITER, 2 * fit.n_iter),
        "tol": _PLAIN_TOL if info.plain else info.tol,
        **fit._own_options(),
    }
