"""The fit of a mixed-effects state-space model: what only continuous states have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from avem.data import Panel
from avem.errors import ModelError
from avem.fits.elsewhere import SSM_FIT
from avem.fits.fit import Fit
from avem.fits.lazy import by_parts
from avem.fits.plots.ssm_plots import SSMPlots
from avem.fits.predict import ssm as prediction
from avem.fits.questions.diagnosis import HARD_TO_SEE
from avem.fits.questions.residuals import ssm_residuals
from avem.fits.sections import Section
from avem.fits.ssm_tables import ssm_head, ssm_sections
from avem.inference.e_steps import ESteps
from avem.inference.fit_ssm import make_ssm_e_steps
from avem.models.encoded import Encoded
from avem.models.ssm import SSMModel
from avem.models.ssm_simulate import SSMSimulation, simulate_ssm
from avem.models.ssm_subjects import Matrices, subject_matrices, transitions

if TYPE_CHECKING:
    from avem.fits.report.ssm import SSMParts


@dataclass(frozen=True, eq=False, repr=False)
class SSMFit(Fit[SSMModel, SSMSimulation]):
    """A fitted mixed-effects state-space model; `Fit` lists its attributes.

    ``params`` has ``initial_mean`` (q,), ``initial_covariance`` (q, q), ``transition_mean`` (q, q)
    (in continuous time ``drift_mean``, and ``drift_covariance`` for ``transition_covariance``),
    ``state_coef`` (q, terms), ``loading_mean`` (p, q), ``coef`` (p, terms), ``noise`` (p,)
    variances, and the covariances of the effects of each kind that there is:
    ``transition_covariance``, ``loading_covariance``, ``coef_covariance``. The effects are
    deviations from the population's matrices: entries of the transition matrix column by column,
    then those of the loadings, then the outcomes' coefficients.

    Examples
    --------
    >>> ssm_fit.params["loading_mean"].shape
    (2, 1)
    """

    kind: ClassVar[str] = "ssm"
    _elsewhere: ClassVar[Mapping[str, str]] = SSM_FIT

    @property
    def plot(self) -> SSMPlots:
        """Pictures of the fit, such as `fit.plot.states()`.

        Others: `forecast`, `loadings`, `effects`, `residuals`, `contrast`, `check`, `bound`, `gap`.
        """
        return SSMPlots(self)

    # --- states and outcomes, now and later ------------------------------------------------------

    @property
    def transitions(self) -> np.ndarray:
        """(n, q, q) every subject's own transition matrix: its mean with the effects added.

        In continuous time, over one unit of time: exp(A_i).
        """
        return transitions(self.model, self._matrices.dynamics)

    @property
    def drifts(self) -> np.ndarray:
        """(n, q, q) every subject's own drift, of a model in continuous time."""
        if not self.model.continuous:
            raise ModelError(
                "drifts are of models in continuous time, MixedSSM(..., time_scale='continuous'); "
                "in this one rows are one step apart: fit.transitions."
            )
        return self._matrices.dynamics

    @property
    def loadings(self) -> np.ndarray:
        """(n, p, q) every subject's own loadings."""
        return self._matrices.loading

    @by_parts
    def states(
        self,
        data: Any = None,
        kind: Literal["smoothed", "filtered", "predicted"] = "smoothed",
        level: float = 0.95,
        effects: Literal["fitted", "integrated"] = "fitted",
    ) -> Any:
        """The latent states at each row.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the rows of the fit. Of new data, subjects of the fit keep their fitted
            effects, others get theirs from these rows.
        kind : {"smoothed", "filtered", "predicted"}
            Given all outcomes of the sequence; given those up to the row, as one knows the states
            at that time; or given those before it.
        level : float
            Probability of the intervals.
        effects : {"fitted", "integrated"}
            At the mean of every subject's effects, or with what is not known of them, as the fit's
            method has it.

        Returns
        -------
        DataFrame
            Mean, sd, lower and upper of each state, in the data's own row order and index.

        Examples
        --------
        >>> list(ssm_fit.states().columns)
        ['state_0', 'state_0_sd', 'state_0_lower', 'state_0_upper']
        """
        return prediction.states(self, data, kind, level, effects)

    @by_parts
    def predict(
        self,
        data: Any = None,
        *,
        horizon: int = 10,
        future: Any = None,
        of: Literal["outcomes", "states"] = "outcomes",
        level: float = 0.95,
        effects: Literal["integrated", "fitted"] = "integrated",
    ) -> Any:
        """What follows each sequence.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            What happened so far; by default the data of the fit. Subjects of the fit keep what is
            known of their effects, those of others come from these rows.
        horizon : int
            Steps beyond the last row of every sequence.
        future : DataFrame or dict, optional
            The covariates of the steps ahead, where the model has any. A frame: subject, sequence,
            time if there is one, and at least `horizon` rows per sequence. Or, the same ahead of
            all sequences, a dict: ``{"dose": 0}``, or ``{"dose": [0, 1, 2]}`` step by step; what
            never changes within a subject need not be in it.
        of : {"outcomes", "states"}
            New measurements, or the states themselves.
        level : float
            Probability of the intervals.
        effects : {"integrated", "fitted"}
            Averaged over what is not known of them, as the fit's method has it; or every subject at
            the mean of its effects.

        Returns
        -------
        DataFrame
            Of the data's own kind: per sequence, step and outcome ``mean``, ``sd``, and the
            quantiles ``lower`` and ``upper``. Where it is just possible that a subject's states
            grow without bound, mean and sd are those of that, and the quantiles are not.

        Examples
        --------
        >>> ssm_fit.predict(horizon=2)["step"].max()
        np.int64(2)
        """
        return prediction.predict(self, horizon, data, future, of, level, effects)

    @by_parts
    def residuals(
        self,
        data: Any = None,
        effects: Literal["fitted", "drawn"] = "fitted",
        joint: bool = False,
        seed: int = 0,
    ) -> Any:
        """One-step residuals over their standard deviations: standard normal if the model holds.

        Parameters
        ----------
        data : DataFrame or Panel, optional
            By default the rows of the fit.
        effects : {"fitted", "drawn"}
            At the mean of every subject's effects, or at one draw of them, which makes the
            residuals standard normal and independent over time if the model holds.
        joint : bool
            Make those of one row uncorrelated, too: take out of each outcome what the ones before
            it in the same row say of it.
        seed : int
            Of the draws.

        Returns
        -------
        DataFrame
            Rows x outcomes, in the data's own row order and index; NaN where missing.

        Examples
        --------
        >>> list(ssm_fit.residuals().columns)
        ['valence', 'arousal']
        """
        encoded = self._encode(data)
        found = ssm_residuals(self, encoded, effects, joint, seed)
        return encoded.panel.frame_like(dict(zip(self.model.outcomes, found.T, strict=True)))

    # --- inside ----------------------------------------------------------------------------------

    @cached_property
    def _matrices(self) -> Matrices:
        model = self.model.in_user_units()
        return subject_matrices(model, model.params_in(self.params), self.effects_mean)

    def _predictions(self, data: Encoded, level: float, effects: str) -> dict[str, np.ndarray]:
        return prediction.predictions(self, data, level, effects)

    def _head(self) -> list[str]:
        return ssm_head(self.model)

    def _starts(self) -> str:
        gaps = self.info.start_gaps
        return (
            f"Begun at the best of {len(gaps)} short runs with subjects alike; the others ended "
            f"up to {max(gaps):.3g} below it."
        )

    def _sections(self) -> Iterable[Section]:
        return ssm_sections(self)

    def _levels(self) -> dict[str, Sequence[Any] | None]:
        return dict.fromkeys(self.model.outcomes)

    def _e_steps(self, data: Encoded) -> ESteps:
        return make_ssm_e_steps(self.model, data, max_radius=self.info.max_radius)

    def _draw(
        self, panel: Panel, rng: np.random.Generator, effects: np.ndarray | None = None
    ) -> SSMSimulation:
        return simulate_ssm(self.model, self.params, panel, rng, effects, self.info.max_radius)

    def _residual_values(self, data: Encoded, effects: str, seed: int) -> list[np.ndarray]:
        return [ssm_residuals(self, data, effects, joint, seed) for joint in (False, True)]

    def _states_by_row(self, data: Any) -> list[Any]:
        return [self.states(data)]

    def _parts(self) -> SSMParts:
        from avem.fits.report.ssm import SSMParts

        return SSMParts(self)

    def _why_lost(self) -> str:
        return HARD_TO_SEE

    def _own_options(self) -> dict[str, Any]:
        return {"max_radius": self.info.max_radius}

    def _own_identity(self) -> dict[str, Any]:
        return {"random": self.model.spec.random}

    def _start_for_replicates(self) -> dict[str, np.ndarray]:
        # Without these, a fit starts from variances that the new data point to.
        left_out = {f"{kind}_covariance" for kind in self.model.effect_kinds}
        return {name: value for name, value in self.params.items() if name not in left_out}
