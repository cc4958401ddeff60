"""The fit of a mixed HMM: parameters, effects, states, and what to do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from avem.data import Panel
from avem.errors import DataError, ModelError
from avem.inference.apply import infer_effects, path_entropy, state_probabilities, viterbi
from avem.inference.marginal import Marginal, anchoring, marginal, uncertainty
from avem.inference.methods import MARGINAL
from avem.inference.score import Curvature
from avem.inference.stop import Stop
from avem.models.free import count_free
from avem.models.hmm_model import Encoded, HMMModel
from avem.models.param_info import check_level, check_seed
from avem.models.params import effects_in, effects_out, params_in
from avem.models.simulate import Simulation, simulate
from avem.results import tables
from avem.results.diagnosis import Diagnosis, diagnose
from avem.results.likelihood import LogLik, aic, bic
from avem.results.plots import Plots
from avem.results.tables import Summary
from avem.results.uncertainty import standard_errors


@dataclass(frozen=True)
class FitInfo:
    """How the fit went: for people, not for further computing."""

    method: str
    refined: bool
    """The adaptive tier went on from the method's solution."""
    lost: tuple[float, ...]
    """Share of the information on each effect that is lost by not seeing the states; AVEM only."""
    q_update: str
    anchor: str
    unanchored: tuple[str, ...]
    """The effects that partial anchoring integrated."""
    n_nodes: int | None
    n_draws: int | None
    fresh_draws: bool
    fixed: tuple[str, ...]
    """Parameters that were held."""
    plain: bool
    seed: int
    n_rows: int
    n_sequences: int
    n_observed: int
    """Observed outcome cells."""
    n_missing: int
    start_gaps: tuple[float, ...]
    """How far below the best start's bound each one ended."""
    start_iterations: tuple[int, ...]
    """Iterations that each start took before they were compared."""
    starts_agreeing: int
    """Starts that found the best one's solution."""
    moved: int
    """Times a subject was moved to a better mode of its effect."""
    seconds: float
    notes: tuple[str, ...]
    """What a reader should know, in sentences."""


@dataclass(frozen=True, eq=False, repr=False)
class HMMFit:
    """A fitted mixed HMM.

    Attributes
    ----------
    params
        The parameters by name: ``initial`` (K,), ``transition`` (K, K), ``coef`` (K, outcomes,
        terms) on the scale of the link, further parameters of the family (``variance``, ``shape``,
        ...), ``effect_covariance`` (d, d). With covariates or effects on the transitions,
        ``transition_coef`` (K, K, terms). With several formulas, names are prefixed:
        ``step.coef``. `table` has them all, a row each.
    effects_mean, effects_cov
        (n, d) and (n, d, d): mean and covariance of q_i, subjects in the order of `subjects`.
    bound, bound_history, n_iter, stop
        The anchored ELBO, its history, the number of iterations, and how they ended.
    """

    model: HMMModel
    params: dict[str, np.ndarray]
    effects_mean: np.ndarray
    effects_cov: np.ndarray
    subjects: np.ndarray
    bound: float
    bound_history: np.ndarray
    loglik_history: np.ndarray
    """sum_i log p(D_i | anchor) at each iteration."""
    n_iter: int
    stop: Stop
    info: FitInfo
    columns: Mapping[str, str | None]
    """The data's subject, time and sequence columns."""
    panel: Panel | None = field(default=None)
    """The data; None for a fit loaded from a file."""

    @property
    def bound_name(self) -> str:
        """What `bound` is: a variational bound, or the log likelihood by integration."""
        marginal = self.info.refined or self.info.method in MARGINAL
        return "log likelihood" if marginal else "bound"

    # --- words and tables -----------------------------------------------------------------------

    def __repr__(self) -> str:
        model = self.model
        return (
            f"HMMFit({model.spec.text!r}, n_states={model.n_states}, "
            f"{len(self.subjects)} subjects, bound={self.bound:.3f}, {self.stop.name})"
        )

    def summary(self) -> Summary:
        """A table for a person to read."""
        return tables.summary(self)

    def table(self) -> pd.DataFrame:
        """Every parameter as a row: what it is, and the estimate."""
        return tables.parameter_table(self)

    def effects(self, level: float = 0.95, posterior: str = "fit") -> pd.DataFrame:
        """Per subject and effect: mean, sd and interval.

        ``posterior="fit"``: as the fit's own method has them; after plain anchoring the intervals
        are too short where states are hard to tell apart. ``"adaptive"``: from the posterior with
        the states integrated out.
        """
        if posterior not in ("fit", "adaptive"):
            raise ModelError(f"posterior is {posterior!r}; choose 'fit' or 'adaptive'.")
        mean, cov = self.effects_mean, self.effects_cov
        if posterior == "adaptive":
            mean, cov = effects_out(self.model, self._marginal.mean, self._marginal.cov)
        return self._effects_table(self.subjects, mean, cov, level)

    def _effects_table(
        self, subjects: np.ndarray, mean: np.ndarray, cov: np.ndarray, level: float
    ) -> pd.DataFrame:
        check_level(level)
        n, d = mean.shape
        centre = mean.ravel()
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2)).ravel()
        half = ndtri(0.5 + level / 2) * sd
        return pd.DataFrame(
            {
                self.columns["subject"]: np.repeat(subjects, d),
                "effect": np.tile(np.array(self.model.effect_names, dtype=object), n),
                "mean": centre,
                "sd": sd,
                "lower": centre - half,
                "upper": centre + half,
            }
        )

    # --- how likely, how certain ----------------------------------------------------------------

    def loglik(self, data: Any = None) -> LogLik:
        """The marginal log likelihood of the fit, the effects integrated out, with its error.

        With `data`: of other data under the fitted parameters, every subject taken as new.
        """
        if data is None:
            found, encoded = self._marginal, self._own_data
        else:
            encoded = self._encode(data)
            start, _ = infer_effects(self.model, encoded, self.theta)
            found = marginal(self.model, encoded, self.theta, start)
        return LogLik(
            found.loglik + self._jacobian(encoded), found.error, int((found.quality == 0).sum())
        )

    @property
    def n_params(self) -> int:
        """How many parameters were estimated."""
        return count_free(self.model, self.theta, self.info.fixed)

    def aic(self) -> float:
        """Akaike's criterion, from the marginal log likelihood."""
        return aic(self.loglik(), self.n_params)

    def bic(self) -> float:
        """Schwarz's criterion, from the marginal log likelihood; n is the number of subjects."""
        return bic(self.loglik(), self.n_params, len(self.subjects))

    def icl(self) -> float:
        """The integrated completed likelihood: BIC plus twice the entropy of the state paths.

        Lower is better; states that cannot be told apart cost.
        """
        encoded = self._own_data
        entropy = path_entropy(self.model, encoded, self.theta, self._effects_for(encoded))
        return self.bic() + 2.0 * float(entropy.sum())

    def standard_errors(self, kind: str = "observed", level: float = 0.95) -> pd.DataFrame:
        """`table` with standard errors and intervals for every parameter.

        From the curvature of the marginal log likelihood at the estimates: ``"observed"``
        information, or the ``"sandwich"``, which holds when the model is not quite right. Intervals
        of probabilities and variances are made on the scale of log odds and logarithms. Where there
        is no standard error, `note` says why.
        """
        check_level(level)
        return standard_errors(self, self._curvature, kind, level)

    def diagnose(self) -> Diagnosis:
        """Whether one anchor per subject is enough here: gaps, information lost, advice."""
        effects = effects_in(self.model, self.effects_mean)
        found = anchoring(self.model, self._own_data, self.theta, effects)
        return diagnose(self, found)

    # --- states ---------------------------------------------------------------------------------

    def decode(self, data: Any = None) -> Any:
        """Most probable state of each row, from 0, in the data's own row order and index.

        Without `data`, the rows of the fit. With new data (a frame with the same columns, or a
        Panel): subjects of the fit keep their fitted effects, others get theirs from these rows.
        """
        encoded = self._encode(data)
        path = viterbi(self.model, encoded, self.theta, self._effects_for(encoded))
        return encoded.panel.like(path, "state")

    def state_probabilities(self, data: Any = None) -> Any:
        """Rows x states: p(state | all data of the sequence), in the data's own order and index."""
        encoded = self._encode(data)
        values = state_probabilities(self.model, encoded, self.theta, self._effects_for(encoded))
        return encoded.panel.frame_like(
            {f"state_{k}": values[:, k] for k in range(self.model.n_states)}
        )

    def infer_effects(self, data: Any, level: float = 0.95) -> pd.DataFrame:
        """Effects of the subjects of new data, from those rows alone; columns as in `effects`."""
        encoded = self._encode(data)
        mean, cov = effects_out(self.model, *self._infer(encoded))
        return self._effects_table(encoded.panel.subjects, mean, cov, level)

    # --- simulation, pictures, files ------------------------------------------------------------

    def simulate(
        self, data: Any = None, *, effects: str = "new", seed: int | None = None
    ) -> Simulation:
        """A data set drawn from the fit, on the rows (times, covariates) of the fit or of `data`.

        ``effects="new"`` draws new subjects; ``"fitted"`` keeps each subject at its own effect.
        """
        panel = self._panel(data)
        if effects not in ("new", "fitted"):
            raise ModelError(f"effects is {effects!r}; choose 'new' or 'fitted'.")
        fixed = None
        if effects == "fitted":
            known = self._positions(panel)
            if (known < 0).any():
                unknown = panel.subjects[known < 0][:5].tolist()
                raise DataError(f"No fitted effects for subjects {unknown}; use effects='new'.")
            fixed = self.effects_mean[known]
        if seed is not None:
            check_seed(seed)
        rng = np.random.default_rng(seed)
        return simulate(self.model, self.params, panel, rng, fixed)

    @cached_property
    def plot(self) -> Plots:
        """Pictures: `fit.plot.states()`, `effects`, `bound`, `emissions`, `transitions`, `gap`."""
        return Plots(self)

    def report(self, path: str | PathLike[str]) -> None:
        """Write one self-contained HTML page about the fit."""
        from avem.results.report import write_report

        write_report(self, path)

    def with_data(self, data: Any) -> HMMFit:
        """The same fit with its data back, for a fit that was loaded from a file."""
        panel, info = self._panel(data), self.info
        same = (panel.n_rows, panel.n_lanes) == (info.n_rows, info.n_sequences)
        if not same or not np.array_equal(panel.subjects, self.subjects):
            raise DataError(
                f"These are not the data of the fit: {panel.n_rows:,} rows of "
                f"{panel.n_subjects:,} subjects in {panel.n_lanes:,} sequences; the fit had "
                f"{info.n_rows:,}, {len(self.subjects):,} and {info.n_sequences:,}, its first "
                f"subject being {self.subjects.tolist()[0]!r}."
            )
        return replace(self, panel=panel)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fit to one file, without the data; `avem.load` reads it."""
        from avem.results.saving import save

        save(self, path)

    def to_arviz(self) -> Any:
        """The fit as ArviZ reads it; needs the optional extra ``avem[arviz]``."""
        from avem.results.arviz_export import to_arviz

        return to_arviz(self)

    # --- inside ---------------------------------------------------------------------------------

    @cached_property
    def theta(self) -> dict[str, np.ndarray]:
        """Parameters on the scale of the fit."""
        return params_in(self.model, self.params)

    def _panel(self, data: Any) -> Panel:
        if isinstance(data, Panel):
            return data
        if data is not None:
            names = self.columns
            return Panel.from_frame(
                data, str(names["subject"]), time=names["time"], sequence=names["sequence"]
            )
        if self.panel is None:
            raise DataError(
                "This fit was loaded from a file, which holds no data. Pass the data, or put them "
                "back for all that follows: fit = fit.with_data(frame)."
            )
        return self.panel

    @cached_property
    def _own_data(self) -> Encoded:
        return self.model.encode(self._panel(None))

    def _encode(self, data: Any) -> Encoded:
        return self._own_data if data is None else self.model.encode(self._panel(data))

    @cached_property
    def _marginal(self) -> Marginal:
        effects = effects_in(self.model, self.effects_mean)
        return marginal(self.model, self._own_data, self.theta, effects)

    @cached_property
    def _curvature(self) -> Curvature:
        return uncertainty(self.model, self._own_data, self._marginal, self.info.fixed)

    def _jacobian(self, data: Encoded) -> np.ndarray:
        """(subjects,) from log densities on the scale of the fit to those of the user's units."""
        of_row = self.model.scaling.log_jacobian(~np.isnan(data.y))
        return np.bincount(data.panel.row_subject, of_row, minlength=data.panel.n_subjects)

    @property
    def subject_jacobian(self) -> np.ndarray:
        """The same for the data of the fit."""
        return self._jacobian(self._own_data)

    def _positions(self, panel: Panel) -> np.ndarray:
        """(panel subjects,) place of each in `subjects`, or -1."""
        places = pd.Index(self.subjects).get_indexer(pd.Index(panel.subjects))
        if (places < 0).all():
            known = {str(label) for label in self.subjects.tolist()}
            if any(str(label) in known for label in panel.subjects.tolist()):
                raise DataError(
                    f"Subjects such as {panel.subjects.tolist()[0]!r} are in the fit, but as "
                    f"{type(self.subjects.tolist()[0]).__name__}. Convert the column "
                    f"{panel.subject!r}, or choose other labels for new subjects."
                )
        return places

    def _infer(self, data: Encoded) -> tuple[np.ndarray, np.ndarray]:
        """Mean (d, subjects) and covariance of the effects, by the fit's own kind of posterior."""
        anchored = infer_effects(self.model, data, self.theta)
        if self.bound_name == "bound" or not self.model.n_effects:
            return anchored
        found = marginal(self.model, data, self.theta, anchored[0])
        return found.mean, found.cov

    def _effects_for(self, data: Encoded) -> np.ndarray:
        """(d, panel subjects) on the scale of the fit: fitted where known, inferred elsewhere."""
        known = self._positions(data.panel)
        effects = effects_in(self.model, self.effects_mean[known])
        if (known < 0).any() and self.model.n_effects:
            inferred, _ = self._infer(data)
            effects = np.where(known < 0, inferred, effects)
        return effects
