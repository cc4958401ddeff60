"""One replicate of a bootstrap: a data set drawn from a fit, and the same model fitted to it."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from avem.components.param_info import Params
from avem.data import Panel
from avem.errors import AvemWarning
from avem.fits.hmm_fit import HMMFit
from avem.fits.info import method_of, refinement_of
from avem.fits.ssm_fit import SSMFit
from avem.inference.stop import Stop
from avem.mixed_hmm import MixedHMM
from avem.mixed_ssm import MixedSSM
from avem.models.hmm import HMMModel
from avem.models.hmm_params import effects_out, param_info
from avem.models.hmm_simulate import simulate
from avem.models.kinds import kind_of
from avem.models.ssm import SSMModel, SSMSpecification
from avem.models.ssm_simulate import simulate_ssm
from avem.workflows.bootstrap_table import FAILED, Replicate

_LIFT = 0.1
"""Share of even chances mixed into the probabilities that a refit starts from."""
_MORE_VARIANCE = 0.01
"""Added to the variance of each effect there, beside a standardised outcome's 1: from much more,
effects may end in a mode where they explain the states."""
_MAX_ITER, _PLAIN_MAX_ITER = 500, 20_000
_PLAIN_TOL = 1e-9
"""The paper's rule ends where steps are small, so a start near the fit would end there at once."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """All that replicates are made from, and no more: other processes get a copy."""

    model: HMMModel | SSMModel
    params: Params
    panel: Panel
    settings: dict[str, Any]
    """The options of `fit`."""
    fixed: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, fit: HMMFit | SSMFit, panel: Panel, seed: int) -> Recipe:
        """The recipe of a fit and its data."""
        # The copies leave behind what the originals have computed and kept.
        return cls(
            replace(fit.model),
            fit.params,
            replace(panel),
            _settings(fit),
            fit.info.fixed,
            int(seed),
        )

    def replicate(self, number: int) -> Replicate:
        """The replicate of this number: the same in any order and in any process."""
        rng = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))
        table, model = self._draw(rng), self.model
        if isinstance(model, SSMModel):
            front = MixedSSM.from_spec(model.spec, learned=model)
        else:
            front = MixedHMM.from_spec(model.spec, learned=model)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AvemWarning)
                fit = front.fit(
                    replace(self.panel, table=table),
                    init=self._start(),
                    fixed={name: self.params[name] for name in self.fixed},
                    seed=int(rng.integers(2**32)),
                    progress=False,
                    **self.settings,
                )
        except Exception as error:  # one bad data set is no reason to lose hours of good ones
            return Replicate(number, FAILED, f"{type(error).__name__}: {error}")
        reason = "" if fit.stop is Stop.CONVERGED else str(fit.stop)
        return Replicate(number, fit.stop.name, reason, fit.bound, fit.params)

    def _draw(self, rng: np.random.Generator) -> pd.DataFrame:
        """The table of the panel with new outcomes."""
        if isinstance(self.model, SSMModel):
            radius = self.settings["max_radius"]
            return simulate_ssm(self.model, self.params, self.panel, rng, None, radius).frame
        return simulate(self.model, self.params, self.panel, rng).frame

    def _start(self) -> Params:
        """The fit's parameters, off the boundary.

        EM never leaves a probability or a variance of effects of 0, so that replicates which start
        there would all repeat it. The subjects are new ones, so their effects start at 0.
        """
        start, model = dict(self.params), self.model
        if isinstance(model, SSMModel):
            # Without these, the fit starts from variances that the new data point to.
            for name in {f"{kind}_covariance" for kind in model.effect_kinds}:
                del start[name]
            return start
        d = model.n_effects
        _, units = effects_out(model, np.zeros((d, 1)), np.eye(d)[:, :, None])
        start["effect_covariance"] = start["effect_covariance"] + _MORE_VARIANCE * units[0]
        for name, info in param_info(model).items():
            is_chance = info.link is not None and info.link.name == "logit"
            if info.kind == "simplex" or is_chance:
                even = 0.5 if is_chance else 1.0 / info.shape[-1]
                start[name] = (1 - _LIFT) * self.params[name] + _LIFT * even
        return start

    def identity(self) -> dict[str, Any]:
        """What tells this bootstrap from others, as JSON: some of it for people, and a hash."""
        spec, panel, kind = self.model.spec, self.panel, kind_of(self.model)
        missing = [panel.table[name].isna().to_numpy() for name in self.model.outcomes]
        size = {kind.size: getattr(spec, kind.size)}
        contents = {
            "formulas": [formula.text for formula in spec.formulas],
            "effect_covariance": spec.effect_covariance,
            "params": {name: value.tolist() for name, value in self.params.items()},
            "fixed": self.fixed,
            "settings": self.settings,
            "missing": hashlib.sha256(np.packbits(missing).tobytes()).hexdigest(),
            "shape": [panel.n_subjects, panel.n_lanes, panel.n_rows],
            **size,
            "seed": self.seed,
        }
        if isinstance(spec, SSMSpecification):
            contents["random"] = spec.random
        else:
            contents["families"] = [repr(outcome.family) for outcome in spec.outcomes]
            contents["effects_by_state"] = [outcome.effects_by_state for outcome in spec.outcomes]
        text = json.dumps(contents, sort_keys=True, default=str)
        return {
            "model": spec.text,
            **size,
            "n_rows": panel.n_rows,
            "seed": self.seed,
            "fit": hashlib.sha256(text.encode()).hexdigest(),
        }


def _settings(fit: HMMFit | SSMFit) -> dict[str, Any]:
    """The options that made the fit, as far as it keeps them, with the choices left to it made."""
    info = fit.info
    own = {"max_radius": info.max_radius} if isinstance(fit, SSMFit) else {}
    return {
        "method": method_of(info),
        "refine": refinement_of(info),
        "plain": info.plain,
        # A fit that took long shall not have replicates that stop early.
        "max_iter": max(_PLAIN_MAX_ITER if info.plain else _MAX_ITER, 2 * fit.n_iter),
        "tol": _PLAIN_TOL if info.plain else info.tol,
        **own,
    }
