"""Would the exact answer differ? What anchoring would change, in standard errors.

At the same parameters, an anchored E-step and one that integrates the effects give two M-steps. The
difference of the parameters times the difference of the slopes, d'Hd, is the squared distance
between them in the metric of the complete information; what is not seen of the variances between
subjects makes it larger: a variance whose posteriors keep shares rho_i of it is known with
mean (1 - rho_i)^2 of the information that there would be.

So anchoring is left alone only where no combination of the parameters would move by a tenth of its
standard error. It grows with the root of the number of subjects: a bias does not average out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from avem.data.layout import Chunk
from avem.errors import AvemError
from avem.inference.after.curvature import total_slope
from avem.inference.catch_up import seen
from avem.inference.e_steps import ESteps, Expectation, State
from avem.inference.em import EM
from avem.inference.methods.adaptive.begin import nearly_singular, rise_of_larger_variances
from avem.inference.methods.adaptive.centres import find_centres
from avem.inference.methods.base import EStep
from avem.inference.on_shard import Setting, Subjects
from avem.inference.tuning import BIAS, START_CELLS

_STILL = 1e-4
_LEAST_KNOWN = 0.01


class Gate(NamedTuple):
    """What one anchor per subject would change."""

    bias: float
    """Largest move of any combination of the parameters, in standard errors; infinite where the
    effects could not be integrated."""
    lost: tuple[float, ...]
    """Share of the information on each effect that is lost by not seeing the states; none then."""
    begun: State | None = None
    """Where the exact tier may begin: with nodes for everyone, where everyone was looked at."""

    @property
    def fails(self) -> bool:
        """Anchoring changes more than may be neglected."""
        return not self.bias < BIAS

    @property
    def sure(self) -> bool:
        """It changes so little that there is no need to ask again at the end."""
        return self.bias < 0.3 * BIAS


def gate(em: EM, exact: EStep, state: State, rng: np.random.Generator) -> Gate:
    """Compare both E-steps on some of the subjects; `em` is the anchored iteration."""
    chosen = some_shards(em, rng)
    part = em.on(chosen)
    here = replace(state, subjects=state.subjects.on(chosen))
    scale = em.data.weight / part.data.weight
    anchored = part.e.e_step(here, _STILL)
    few = part.by(exact)
    centres = find_centres(few.e, part.e.without_nodes(anchored.state), rng)
    try:
        integrated = few.e.e_step(centres)
    except AvemError:  # somebody's integral is not finite
        return Gate(np.inf, ())
    moved = _distance(part, anchored, few, integrated)
    q, posterior = (_precisions(e, found) for e, found in ((part.e, anchored), (few.e, integrated)))
    sigma = np.diagonal(state.theta["effect_covariance"])
    known = np.mean((1.0 - np.minimum(posterior.variance / sigma[:, None], 1.0)) ** 2, axis=1)
    bias = np.sqrt(scale * moved / max(known.min(initial=1.0), _LEAST_KNOWN))
    # At a variance of 0 both agree, but it need not be the maximum.
    rise = rise_of_larger_variances(few, anchored.state, rng)
    bias = max(bias, np.sqrt(2.0 * scale * rise))
    with np.errstate(over="ignore"):  # without any information nothing is lost
        share = posterior.information.sum(1) / np.maximum(q.information.sum(1), 1e-300)
    everyone = len(chosen) == len(em.data.shards)
    easy = everyone and rise == 0 and not nearly_singular(few, state)
    begun = integrated.state if easy else None
    return Gate(float(bias), tuple(np.clip(1.0 - share, 0.0, 1.0).tolist()), begun)


def some_shards(em: EM, rng: np.random.Generator) -> list[int]:
    """Shards at random, of about as many cells as it takes to compare."""
    cells = np.array([shard.n_cells for shard in em.data.shards])
    order = rng.permutation(len(cells))
    enough = np.searchsorted(np.cumsum(cells[order]), START_CELLS) + 1
    return np.sort(order[:enough]).tolist()


def _distance(a: EM, found_a: Expectation, b: EM, found_b: Expectation) -> float:
    """Between the M-steps after two E-steps at the same parameters: d'Hd."""
    theta = found_a.state.theta
    new_a, new_b = a.maximised(found_a)[0], b.maximised(found_b)[0]
    slope_a = total_slope(a.e, theta, found_a)
    slope_b = total_slope(b.e, theta, found_b)
    parts = ((new_b[key] - new_a[key]) * (slope_b[key] - slope_a[key]) for key in slope_a)
    return float(sum(abs(np.sum(part)) for part in parts))


class _Known(NamedTuple):
    """Of some subjects' effects, (d, subjects)."""

    variance: np.ndarray
    information: np.ndarray
    """In the data, not in the prior."""


def _precisions(e: ESteps, found: Expectation) -> _Known:
    parts = e.data.map(_known, (found.state.subjects,), e.setting(found.state))
    return _Known(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def _known(chunk: Chunk, subjects: Subjects | None, setting: Setting) -> _Known:
    """On a shard."""
    cov = np.moveaxis(np.asarray(seen(chunk, subjects, setting).covariance), -1, 0)
    sigma = setting.theta["effect_covariance"]
    cov = cov[np.asarray(chunk.real)] + 1e-12 * sigma
    info = np.linalg.inv(cov) - np.linalg.inv(sigma)
    return _Known(np.diagonal(cov, axis1=1, axis2=2).T, np.diagonal(info, axis1=1, axis2=2).T)
