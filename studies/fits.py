"""Fits as the studies need them: timed, by the authors' rules, and to the exact maximum."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import avem


class Timed(NamedTuple):
    """A fit, how many iterations led to it, and the CPU time."""

    fit: avem.HMMFit
    iterations: int
    seconds: float


def timed(model: avem.MixedHMM, panel: avem.Panel, **options: Any) -> Timed:
    """A fit and the CPU time it took."""
    began = time.process_time()
    fit = model.fit(panel, **options)
    return Timed(fit, fit.n_iter, time.process_time() - began)


def until_still(
    model: avem.MixedHMM,
    panel: avem.Panel,
    start: Mapping[str, Any],
    tol: float,
    max_iter: int,
    seed: int,
    **options: Any,
) -> Timed:
    """Plain iterations until no parameter changes by `tol`: the authors' rule for all but AVEM."""
    last = dict(start)

    def still(now: avem.Iteration) -> bool:
        change = max(np.abs(now.params[name] - np.asarray(last[name])).max() for name in last)
        last.update(now.params)
        return now.number > 1 and change < tol

    options = {"plain": True, "tol": 0.0, "max_iter": max_iter, "init": start, **options}
    return timed(model, panel, callback=still, seed=seed % 2**31, **options)


def converged(
    model: avem.MixedHMM, panel: avem.Panel, truth: Mapping[str, Any]
) -> dict[str, Timed]:
    """What a user gets, AVEM alone, and the maximum of the marginal likelihood.

    The maximum is the best of what adaptive quadrature finds from the default fit and from the
    truth, which a user does not have.
    """
    default = timed(model, panel)
    found = {"default": default, "AVEM alone": default}
    if default.fit.info.refined:
        found["AVEM alone"] = timed(model, panel, refine=None)
    best = timed(model, panel, method="adaptive", init=truth)
    # A refined default is such a fit already.
    near = default
    if not default.fit.info.refined:
        near = timed(model, panel, method="adaptive", init=default.fit)
    found["exact"] = max(best, near, key=lambda each: each.fit.bound)
    return found
