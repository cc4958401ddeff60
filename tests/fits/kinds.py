"""A fit of every kind of model, made from known parameters: nothing is iterated."""

from __future__ import annotations

from functools import cache

import jax
import numpy as np
import pandas as pd

import avem
from avem.data import Panel
from avem.fits.hmm_fit import HMMFit
from avem.models.hmm import HMMModel
from tests.fit_records import common
from tests.ssm_truth import fit_at, specification
from tests.ssm_truth import true_fit as true_ssm

N, T = 8, 24
CHAIN = {"initial": [0.4, 0.6], "transition": [[0.8, 0.2], [0.3, 0.7]]}


def rows():
    """Covariates of every row: x is a number, kind a label, trials a count."""
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {
            "who": np.repeat([f"s{i}" for i in range(N)], T),
            "t": np.tile(np.arange(T), N),
            "x": rng.normal(0.5, 1, N * T).round(3),
            "kind": rng.choice(["a", "b"], N * T),
            "trials": rng.integers(3, 9, N * T),
        }
    )


def log_prob(y, x, history, params, effect):
    """A logistic choice with a covariate."""
    eta = params["bias"] + x["x"]
    return y * jax.nn.log_sigmoid(eta) + (1 - y) * jax.nn.log_sigmoid(-eta)


def draw(rng, x, history, params, effect):
    return float(rng.random() < 1 / (1 + np.exp(-params["bias"] - x["x"])))


CUSTOM = avem.Custom(log_prob, {"bias": 0.0}, effects=["bias"], draw=draw)


def _moves():
    coef = np.zeros((2, 2, 2))
    coef[0, 1], coef[1, 0] = [-1.5, 0.5], [-1.0, -0.4]
    return coef


# For each kind: the model and its parameters.
KINDS = {
    "gaussian": (
        avem.MixedHMM("y1 + y2 ~ x + (1 + x | who)", 2, avem.Gaussian("full")),
        CHAIN
        | {
            "coef": [[[0.0, 0.5], [1.0, 0.0]], [[3.0, -0.5], [-1.0, 0.2]]],
            "covariance": [[[1.0, 0.3], [0.3, 0.5]], [[0.8, -0.2], [-0.2, 0.4]]],
            "effect_covariance": 0.2 * np.eye(4) + 0.05,
        },
    ),
    "spread": (  # a Gaussian whose sd has a formula
        avem.MixedHMM(avem.outcome("y ~ 1 + (1 | who)", sd="~ x"), 2),
        CHAIN
        | {
            "coef": [[[0.0]], [[4.0]]],
            "sd_coef": [[[0.0, 0.2]], [[0.3, 0.1]]],
            "effect_covariance": [[0.2]],
        },
    ),
    "choice": (
        avem.MixedHMM("choice ~ x + kind + (1 | who)", 2, avem.Bernoulli(("right", "left"))),
        CHAIN | {"coef": [[[-1.0, 0.5, 0.2]], [[1.5, -0.5, 0.1]]], "effect_covariance": [[0.5]]},
    ),
    "labels": (
        avem.MixedHMM(
            "a + b ~ 1 + (1 | who)",
            2,
            avem.Categorical((1, 2.5, 4)),
            effect_covariance="isotropic",
        ),
        CHAIN
        | {
            "coef": [[[0.5], [-1.0], [0.0], [1.0]], [[-0.5], [1.0], [1.0], [-1.0]]],
            "effect_covariance": 0.3 * np.eye(4),
        },
    ),
    "counts": (
        avem.MixedHMM("n ~ x + (1 | who)", 2, "poisson"),
        CHAIN | {"coef": [[[0.0, 0.3]], [[2.0, 0.1]]], "effect_covariance": [[0.1]]},
    ),
    "trials": (
        avem.MixedHMM("wins ~ 1 + (1 | who)", 2, avem.Binomial("trials")),
        CHAIN | {"coef": [[[-1.0]], [[1.0]]], "effect_covariance": [[0.2]]},
    ),
    "movement": (
        avem.MixedHMM(
            [
                avem.outcome("step ~ 1 + (1 | who)", "gamma", shape="~ x"),
                avem.outcome("angle ~ 1", "von_mises"),
            ],
            2,
        ),
        CHAIN
        | {
            "step.coef": [[[0.0]], [[2.0]]],
            "step.shape_coef": [[[1.0, 0.2]], [[1.5, 0.1]]],
            "angle.coef": [[[3.0]], [[0.0]]],
            "angle.concentration": [[0.8], [4.0]],
            "effect_covariance": [[0.1]],
        },
    ),
    "zeros": (
        avem.MixedHMM("y ~ 1", 2, "zero_augmented_gamma"),
        CHAIN
        | {
            "coef": [[[0.0]], [[2.0]]],
            "shape": [[2.0], [3.0]],
            "zero": [[0.4], [0.1]],
            "effect_covariance": np.zeros((0, 0)),
        },
    ),
    "moving": (
        avem.MixedHMM(
            "y ~ 1 + (1 | who)",
            2,
            transition="~ x + (1 | who)",
            initial="stationary",
            effect_covariance="block",
        ),
        {
            "transition_coef": _moves(),
            "coef": [[[0.0]], [[3.0]]],
            "variance": [[1.0], [0.6]],
            "effect_covariance": [[0.5, 0.0, 0.0], [0.0, 0.3, 0.1], [0.0, 0.1, 0.2]],
        },
    ),
    "by_state": (
        avem.MixedHMM(
            "y ~ scale(x) + (1 | who)", 2, effects_by_state=True, initial="~ kind", transition="~ x"
        ),
        {
            "initial_coef": [[0.0, 0.0], [0.5, -0.5]],
            "transition_coef": _moves(),
            "coef": [[[0.0, 0.5]], [[3.0, -0.5]]],
            "variance": [[1.0], [0.6]],
            "effect_covariance": [[0.5, 0.1], [0.1, 0.3]],
        },
    ),
    "types": (
        avem.MixedHMM("y ~ 1 + (1 | who)", 2, n_clusters=2),
        {
            "clusters": [0.6, 0.4],
            "initial": [[0.4, 0.6], [0.7, 0.3]],
            "transition": [[[0.9, 0.1], [0.2, 0.8]], [[0.4, 0.6], [0.5, 0.5]]],
            "coef": [[[0.0]], [[3.0]]],
            "variance": [[1.0], [0.6]],
            "effect_covariance": [[0.3]],
        },
    ),
    "custom": (
        avem.MixedHMM([avem.outcome("c ~ x", CUSTOM), avem.outcome("y ~ 1")], 2),
        CHAIN
        | {
            "c.bias": [-1.0, 1.0],
            "y.coef": [[[0.0]], [[2.0]]],
            "y.variance": [[1.0], [0.5]],
            "effect_covariance": [[0.3]],
        },
    ),
}


def model_of(hmm, panel):
    """The model of a fit to the panel."""
    model = HMMModel.learn(hmm.spec, panel)
    return model.scaled_to(model.read(panel))


def seen_rows(fit):
    """The rows of the fit's data with an outcome: those that averages are taken over."""
    return fit.panel.table.dropna(subset=list(fit.model.outcomes), how="all")


@cache
def fit_of(kind):
    """The fit of one kind: the truth as its estimates, the first outcome missing in a few rows."""
    hmm, params = KINDS[kind]
    drawn = hmm.simulate(params, data=rows(), subject="who", time="t", seed=3)
    frame = drawn.frame
    first = hmm.spec.outcomes[0].formula.outcomes[0]
    frame[first] = frame[first].where(frame.index % 50 != 7)
    return fit_from(hmm, params, frame, drawn.effects)


def fit_from(hmm, params, frame, effects, time="t", sequence=None):
    """A fit to the frame, of subjects `who`, with these parameters and effects."""
    return true_fit(hmm, params, Panel.from_frame(frame, "who", time, sequence), effects)


def true_fit(hmm, params, panel, effects):
    """A fit whose estimates are the truth."""
    n, n_effects = effects.shape
    return HMMFit(
        model=model_of(hmm, panel),
        params={name: np.array(value, float) for name, value in params.items()},
        effects_mean=effects,
        effects_cov=np.tile(0.01 * np.eye(n_effects), (n, 1, 1)),
        **common(panel),
    )


@cache
def ssm_fit():
    """The fit of a state-space model, with missing values, at the truth."""
    spec = specification(random=("transition", "loading"))
    found, frame = true_ssm(spec, n_subjects=5, n_times=10, missing=0.2)
    panel = Panel.from_frame(frame, "id", "t")
    return fit_at(found.model, found.params, found.effects_mean, found.effects_cov, panel)
