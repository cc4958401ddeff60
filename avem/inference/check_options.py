"""The options of a fit, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from avem.components.param_info import check_count, check_seed
from avem.errors import ModelError
from avem.inference.em import ANCHORS, Q_UPDATES
from avem.inference.methods.names import METHODS

TOL, PLAIN_TOL = 1e-6, 1e-4
"""Defaults: of the last change of any parameter, and of the paper's relative change."""


def check_options(
    *,
    method: str,
    refine: str | None,
    anchor: str,
    n_starts: int,
    max_iter: int,
    tol: float | None,
    seed: int,
    q_update: str = "laplace",
) -> None:
    """Raise unless each option is one that there is."""
    if method not in METHODS:
        raise ModelError(f"method is {method!r}; available: {', '.join(METHODS)}.")
    if refine not in (None, "auto", "adaptive"):
        raise ModelError(f"refine is {refine!r}; available: 'adaptive', 'auto', None.")
    if refine == "adaptive" and method not in ("avem", "partial", "mean_field", "structured"):
        raise ModelError(f"refine goes with method='avem'; {method!r} maximises it already.")
    if q_update not in Q_UPDATES:
        raise ModelError(f"q_update is {q_update!r}; available: {', '.join(Q_UPDATES)}.")
    if anchor not in ANCHORS:
        raise ModelError(f"anchor is {anchor!r}; available: {', '.join(ANCHORS)}.")
    check_count("n_starts", n_starts)
    check_count("max_iter", max_iter)
    is_number = isinstance(tol, int | float | np.number) and not isinstance(tol, bool)
    if tol is not None and not (is_number and tol >= 0):
        raise ModelError(f"tol is {tol!r}; a number that is not negative is wanted.")
    check_seed(seed)


def check_nodes(
    method: str, refine: str | None, n_nodes: Any, n_draws: Any, fresh_draws: bool
) -> None:
    """Raise unless the numbers belong to the method."""
    adaptive = method == "adaptive" or refine is not None
    for name, value, methods in (
        ("n_nodes", n_nodes, ("quadrature", "partial", "structured", "adaptive")),
        ("n_draws", n_draws, ("monte_carlo", "adaptive")),
    ):
        if value is not None:
            check_count(name, value)
            if method not in methods and not adaptive:
                raise ModelError(
                    f"{name} is for the methods {', '.join(methods)}, and method is {method!r}."
                )
    if fresh_draws and method != "monte_carlo":
        raise ModelError(f"fresh_draws is for method='monte_carlo', and method is {method!r}.")


def effect_numbers(
    effect_names: Sequence[str], unanchored: str | Sequence[str], method: str
) -> tuple[int, ...] | None:
    """The places of the effects with these names; None for "auto"."""
    if isinstance(unanchored, str) and unanchored == "auto":
        return None
    if method != "partial":
        raise ModelError(f"unanchored is for method='partial', and method is {method!r}.")
    names = [unanchored] if isinstance(unanchored, str) else list(unanchored)
    unknown = [name for name in names if name not in effect_names]
    if unknown:
        raise ModelError(
            f"unanchored has {unknown}; the effects are {', '.join(effect_names) or 'none'}."
        )
    return tuple(sorted({list(effect_names).index(name) for name in names}))
