"""Re-anchoring against the paper's iteration: K=3, d=2, n=100, T=80, tau2=1, 20 panels.

The mean anchor settles in whichever mode of a subject's effect it reaches first. Both fits are run
to convergence; the paper's iteration starts where the authors' scripts start it.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment

import avem

K, N, T, D, TAU2 = 3, 100, 80, 2, 1.0
FIRST_SEED = 200
MU = np.repeat(np.linspace(1.5, -1.5, K)[:, None], D, axis=1)
STICKY = np.full((K, K), 0.04) + 0.88 * np.eye(K)
TRUTH = {
    "initial": np.full(K, 1 / K),
    "transition": STICKY,
    "coef": MU[:, :, None],
    "variance": np.ones(K),
    "effect_covariance": TAU2 * np.eye(D),
}
START = {
    "initial": np.full(K, 1 / K),
    "transition": np.full((K, K), 0.075) + 0.775 * np.eye(K),
    "coef": np.repeat(np.linspace(0.8, -0.8, K)[:, None], D, axis=1)[:, :, None],
    "variance": np.full(K, 1.2),
    "effect_covariance": 0.7 * TAU2 * np.eye(D),
}


def score(fit: avem.HMMFit, truth: avem.Simulation) -> tuple[float, float]:
    """Mean squared error of the effects, and share of rows in the right (most probable) state."""
    distance = ((fit.params["coef"][:, None, :, 0] - MU[None]) ** 2).sum(-1)
    ours, theirs = linear_sum_assignment(distance)
    label = np.empty(K, int)
    label[ours] = theirs
    state = label[fit.state_probabilities().to_numpy().argmax(1)]
    return float(((fit.effects_mean - truth.effects) ** 2).mean()), float(
        (state == truth.states).mean()
    )


def run(n_panels: int = 20) -> np.ndarray:
    """(panel, method, measure)."""
    model = avem.MixedHMM(
        "y1 + y2 ~ 1 + (1 | subject)", K, avem.Gaussian("spherical"), effect_covariance="isotropic"
    )
    out = []
    for number in range(n_panels):
        truth = model.simulate(TRUTH, N, T, seed=FIRST_SEED + number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", avem.AvemWarning)
            paper = model.fit(truth.frame, time="time", plain=True, init=START, tol=1e-10)
            ours = model.fit(truth.frame, time="time", refine=None)
        out.append([score(paper, truth), score(ours, truth)])
    return np.array(out)


if __name__ == "__main__":
    panels = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    result = run(panels)
    mean, error = result.mean(0), result.std(0, ddof=1) / np.sqrt(panels)
    print(f"K={K}, d={D}, n={N}, T={T}, tau2={TAU2:g}; {panels} panels; mean (standard error)")
    print(f"{'':34}{'MSE of f':>18}{'state accuracy':>20}")
    for i, name in enumerate(("the paper's iteration, converged", "default fit")):
        cells = [f"{mean[i, j]:.4f} ({error[i, j]:.4f})" for j in range(2)]
        print(f"{name:34}{cells[0]:>18}{cells[1]:>20}")
