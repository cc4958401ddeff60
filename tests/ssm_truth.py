"""Panels drawn from state-space models, and fits whose parameters are the truth."""

import numpy as np
import pandas as pd

from avem.data import Panel, parse_formula
from avem.fits.ssm_fit import SSMFit
from avem.models.ssm import SSMModel
from avem.models.ssm_specification import SSMSpecification
from tests.fit_records import common


def specification(formula="y1 + y2 + y3 ~ 1", n_latent=2, state="~ 0", random=("transition",)):
    effects = ("diagonal",) * 3
    return SSMSpecification(n_latent, parse_formula(formula), parse_formula(state), random, effects)


def truth(model, size=0.15):
    """Parameters in the user's units, states that last and outcomes of different size."""
    q, p = model.n_latent, len(model.outcomes)
    rng = np.random.default_rng(7)
    params = {
        "initial_mean": np.linspace(0.5, -0.5, q),
        "initial_covariance": np.eye(q) + 0.2,
        "transition_mean": np.diag(np.linspace(0.7, 0.4, q)) + 0.1 * np.eye(q, k=1),
        "state_coef": np.full((q, len(model.drive_cols)), 0.8),
        "loading_mean": np.tril(1.0 + 0.4 * rng.standard_normal((p, q))),
        "coef": 3.0 + rng.standard_normal((p, len(model.x_cols))),
        "noise": np.linspace(0.3, 0.8, p),
    }
    kinds = np.array(model.effect_kinds)
    for kind in dict.fromkeys(model.effect_kinds):
        params[f"{kind}_covariance"] = size**2 * np.eye(int((kinds == kind).sum()))
    return params


def draw(model, params, panel, effects, rng, noise_cov=None):
    """(rows, outcomes) drawn at the effects (subjects, d), by the model's definition.

    `noise_cov` (p, p) in the place of the diagonal one of the model.
    """
    q, p = model.n_latent, len(model.outcomes)
    kernel, A = model.shape, model.read(panel, outcomes=False).A
    noise_cov = np.diag(params["noise"]) if noise_cov is None else noise_cov
    Y = np.empty((panel.n_rows, p))
    before = np.zeros(q)
    for row in panel.order:
        g, h = params["transition_mean"].copy(), params["loading_mean"].copy()
        coef = np.zeros((p, len(kernel.w_cols)))
        coef[:, [kernel.w_cols.index(c) for c in model.x_cols]] = params["coef"]
        own = iter(effects[panel.row_subject[row]])
        for matrix, entries in (
            (g, kernel.transition_effects),
            (h, kernel.loading_effects),
            (coef, kernel.coef_effects),
        ):
            for entry in entries:
                matrix[entry] += next(own)
        if panel.row_step[row] == 0:
            now = rng.multivariate_normal(params["initial_mean"], params["initial_covariance"])
        else:
            push = params["state_coef"] @ A[row, list(model.drive_cols)]
            now = g @ before + push + rng.standard_normal(q)
        level = h @ now + coef @ A[row, list(kernel.w_cols)]
        Y[row] = rng.multivariate_normal(level, noise_cov)
        before = now
    return Y


def fit_at(model, params, effects_mean, effects_cov, panel):
    """A fit with these estimates."""
    return SSMFit(model, params, effects_mean, effects_cov, **common(panel))


def true_fit(
    spec=None, n_subjects=4, n_times=12, sequences=1, missing=0.0, seed=0, size=0.15, **drawing
):
    """A fit at the truth, on a panel drawn from it; rows are shuffled, covariates random."""
    spec = specification() if spec is None else spec
    rng = np.random.default_rng(seed)
    n = n_subjects * sequences * n_times
    frame = pd.DataFrame(
        {
            "id": np.repeat([f"s{i}" for i in range(n_subjects)], sequences * n_times),
            "day": np.tile(np.repeat(np.arange(sequences), n_times), n_subjects),
            "t": np.tile(np.arange(n_times), n_subjects * sequences),
            "x": rng.standard_normal(n),
            **{name: np.zeros(n) for name in spec.formula.outcomes},
        }
    )
    frame = frame.sample(frac=1.0, random_state=seed)
    plain = Panel.from_frame(frame, "id", "t", "day")
    model = SSMModel.learn(spec, plain)
    params = truth(model, size)
    sd = np.sqrt([s for k in dict.fromkeys(model.effect_kinds) for s in
                  np.diag(params[f"{k}_covariance"])])  # fmt: skip
    effects = rng.standard_normal((n_subjects, model.n_effects)) * sd.reshape(-1)
    Y = draw(model, params, plain, effects, rng, **drawing)
    Y[rng.random(Y.shape) < missing] = np.nan
    frame[list(model.outcomes)] = Y
    panel = Panel.from_frame(frame, "id", "t", "day")
    model = SSMModel.learn(spec, panel)
    model = model.scaled_to(model.read(panel))
    cov = np.tile(np.diag(0.25 * sd.reshape(-1) ** 2), (n_subjects, 1, 1))
    return fit_at(model, params, effects, cov, panel), frame
