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
    """Plain iterations until no parameter changes by `tol`: the authors' rule for all but AVEM.

    The library's plain iteration stops on the log likelihood, so it is called for one iteration at
    a time, with new draws in each where it draws. The time is that of an iteration among others in
    one call, times their number.
    """
    options = {"plain": True, "tol": 0.0, **options}
    fit, params = None, dict(start)
    number = 0
    for number in range(1, max_iter + 1):
        init = params if fit is None else fit
        fit = model.fit(panel, init=init, max_iter=1, seed=seed % 2**31 + number, **options)
        change = max(np.abs(fit.params[name] - np.asarray(params[name])).max() for name in params)
        params = fit.params
        if number == 1:  # the formulas need not be read again
            model = avem.MixedHMM.from_spec(model.spec, fit.model)
        if number > 1 and change < tol:
            break
    assert fit is not None
    few, more = (_seconds(model, panel, start, n, options) for n in (1, 6))
    return Timed(fit, number, few + (number - 1) * max(more - few, 0.0) / 5)


def _seconds(model, panel, start, max_iter: int, options: Mapping[str, Any]) -> float:
    return timed(model, panel, init=start, max_iter=max_iter, **options).seconds


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
