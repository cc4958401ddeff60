"""How a fit went, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from avem.data import Panel
from avem.inference.fit import Fitted
from avem.inference.methods.adaptive.method import Adaptive
from avem.inference.methods.base import Method
from avem.inference.methods.names import as_method
from avem.inference.options import Options
from avem.inference.starts import start_gaps, starts_agreeing


@dataclass(frozen=True)
class FitInfo:
    """How the fit went: for people, not for further computing.

    None, in what has it as a default, means: not known, of a fit that an earlier avem has saved.

    Attributes
    ----------
    method : str
        The word of the method.
    refined : bool
        The adaptive tier went on from the method's solution.
    lost : tuple of float
        Share of the information on each effect that is lost by not seeing the states; AVEM only.
    q_update, anchor : str
        How each subject's q was found and where its anchor was; see `AVEM`.
    unanchored : tuple of str
        The effects that partial anchoring integrated.
    n_nodes, n_draws : int or None
        Nodes per effect, or draws; None where the method has none or chose them itself.
    fresh_draws : bool
        Every iteration drew anew; see `MonteCarlo`.
    fixed : tuple of str
        Parameters that were held.
    plain : bool
        The paper's iteration to the letter.
    seed : int
        Of the starting points and the search for modes.
    n_rows, n_sequences : int
        Of the data.
    n_observed, n_missing : int
        Observed and missing outcome cells.
    start_gaps : tuple of float
        How far below the best start's bound each one ended.
    start_iterations : tuple of int
        Iterations that each start took before they were compared.
    starts_agreeing : int
        Starts that found the best one's solution.
    moved : int
        Times a subject was moved to a better mode of its effect.
    seconds : float
        How long the fit took.
    notes : tuple of str
        What a reader should know, in sentences.
    max_radius : float or None
        Largest spectral radius that a subject's dynamics may have; state-space models only.
    held_back : int
        Subjects whose dynamics were kept within it.
    refine : str or None
        As it was asked for; `refined` says what was done.
    tol : float or None
        The tolerance.
    max_iter, n_starts, batch_size : int or None
        As they were asked for.
    init : tuple of str
        Parameters that were given values to start from.
    likelihood : bool or None
        The method maximises the marginal likelihood, not a bound.
    options : dict or None
        The method's own options.
    refine_options : dict or None
        Those of the adaptive tier, where it may go on from the method's solution.
    bias : float or None
        How far one anchor per subject would move any combination of the parameters, in standard
        errors; AVEM only. `bias_at` says of which parameters.
    bias_at : {"end", "on the way"} or None
        Where `bias` and `lost` were found: at the parameters of this fit, or where it was decided
        whether to refine, some iterations before them. `fit.diagnose` asks at those of the fit.
    device : str or None
        Where it was computed: "cpu" or "gpu".
    compile_seconds : float or None
        How much of `seconds` went into compiling. The next fit of this shape needs none.
    device_memory : int or None
        The most bytes of the GPU's memory that were in use so far in this process.
    weights, weights_kind : str or None
        The column of the subjects' weights, and what they are: "survey" or "frequency".
    total_weight : float
        Their sum, survey weights with a mean of 1.
    carried : tuple of str
        The covariates whose gaps are filled by carrying values forward.

    Examples
    --------
    >>> fit.info.method, fit.info.refined, fit.info.at_maximum_likelihood
    ('avem', False, False)
    """

    method: str
    refined: bool
    lost: tuple[float, ...]
    q_update: str
    anchor: str
    unanchored: tuple[str, ...]
    n_nodes: int | None
    n_draws: int | None
    fresh_draws: bool
    fixed: tuple[str, ...]
    plain: bool
    seed: int
    n_rows: int
    n_sequences: int
    n_observed: int
    n_missing: int
    start_gaps: tuple[float, ...]
    start_iterations: tuple[int, ...]
    starts_agreeing: int
    moved: int
    seconds: float
    notes: tuple[str, ...]
    max_radius: float | None = None
    held_back: int = 0
    refine: str | None = None
    tol: float | None = None
    max_iter: int | None = None
    n_starts: int | None = None
    batch_size: int | None = None
    init: tuple[str, ...] = ()
    likelihood: bool | None = None
    options: dict | None = None
    refine_options: dict | None = None
    bias: float | None = None
    bias_at: str | None = None
    device: str | None = None
    compile_seconds: float | None = None
    device_memory: int | None = None
    weights: str | None = None
    weights_kind: str | None = None
    carried: tuple[str, ...] = ()
    total_weight: float = 0.0

    @property
    def at_maximum_likelihood(self) -> bool:
        """`bound` is the log likelihood by integration, not a variational bound."""
        if self.likelihood is not None:
            return self.refined or self.likelihood
        return self.refined or self.method in ("quadrature", "monte_carlo", "adaptive")


def method_of(info: FitInfo) -> Method:
    """The method of a fit, with its options; ModelError where its class is not known here."""
    kind = type(as_method(info.method))
    return kind(**_options_of(info, kind, info.options))


def refinement_of(info: FitInfo) -> Adaptive | None:
    """The tier that went on from the method's solution, if one did."""
    if not info.refined:
        return None
    return Adaptive(**_options_of(info, Adaptive, info.refine_options))


def _options_of(info: FitInfo, kind: type[Method], known: dict | None) -> dict[str, Any]:
    if known is not None:
        return known
    # A fit that an earlier avem has saved: all its methods' options are attributes.
    found = {field.name: getattr(info, field.name) for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    return {name: value for name, value in found.items() if value is not None}


def make_info(
    fitted: Fitted,
    panel: Panel,
    n_seen: np.ndarray,
    options: Options,
    notes: Sequence[str],
    **more: Any,
) -> FitInfo:
    """The record of a fit; ``n_seen`` (subjects, outcomes) values of each were observed."""
    weights = panel.subject_weights
    return FitInfo(
        **options.record(fitted.method),
        **more,
        refined=fitted.refined,
        lost=() if fitted.gate is None else fitted.gate.lost,
        bias=None if fitted.gate is None else fitted.gate.bias,
        bias_at=None if fitted.gate is None else "end" if fitted.gate_at_end else "on the way",
        n_rows=panel.n_rows,
        n_sequences=panel.n_lanes,
        n_observed=int(n_seen.sum()),
        n_missing=panel.n_rows * n_seen.shape[1] - int(n_seen.sum()),
        start_gaps=start_gaps(fitted.starts),
        start_iterations=tuple(len(start.run.bounds) for start in fitted.starts),
        starts_agreeing=starts_agreeing(fitted.starts),
        moved=fitted.run.moved,
        held_back=fitted.held_back,
        weights=None if panel.weights is None else panel.weights.column,
        weights_kind=None if panel.weights is None else panel.weights.kind,
        carried=() if panel.carried is None else panel.carried.columns,
        total_weight=float(np.sum(np.ones(panel.n_subjects) if weights is None else weights)),
        seconds=fitted.seconds,
        notes=tuple(notes),
    )
