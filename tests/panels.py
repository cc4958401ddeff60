"""Small panels with everything that can be awkward, and their parameters."""

from __future__ import annotations

import numpy as np
import pandas as pd

import avem
from avem.data import Panel
from avem.execution.dataset import Dataset
from avem.families import Gaussian
from avem.inference.catch_up import seen
from avem.inference.e_steps import state_at
from avem.inference.fit_hmm import make_em
from avem.models.hmm import HMMModel


def awkward_frame(seed=0, n_outcomes=2):
    """Five subjects, 1-3 sequences of length 1-4, a covariate, missing cells and rows."""
    rng = np.random.default_rng(seed)
    lengths = {"a": [4, 1], "b": [3], "c": [1], "d": [2, 2, 1], "e": [4]}
    rows = [
        (name, s, t)
        for name, sequences in lengths.items()
        for s, length in enumerate(sequences)
        for t in range(length)
    ]
    frame = pd.DataFrame(rows, columns=["who", "session", "t"])
    frame["x"] = rng.standard_normal(len(frame))
    for j in range(n_outcomes):
        frame[f"y{j + 1}"] = 2 * rng.standard_normal(len(frame))
    frame.loc[2, [f"y{j + 1}" for j in range(n_outcomes)]] = np.nan
    if n_outcomes > 1:
        frame.loc[[5, 9], "y1"] = np.nan
        frame.loc[12, "y2"] = np.nan
    return frame.sample(frac=1.0, random_state=seed)


def random_params(rng, n_states, p, m, d, covariance="diagonal"):
    """Parameters of a mixed HMM, in the user's form."""
    root = rng.standard_normal((n_states, p, p))
    full = root @ np.swapaxes(root, 1, 2) + 0.5 * np.eye(p)
    noise = {
        "spherical": full[:, 0, 0],
        "diagonal": np.diagonal(full, axis1=1, axis2=2),
        "full": full,
    }[covariance]
    root = rng.standard_normal((d, d))
    return {
        "initial": rng.dirichlet(np.ones(n_states)),
        "transition": rng.dirichlet(np.ones(n_states), size=n_states),
        "coef": rng.standard_normal((n_states, p, m)),
        "covariance" if covariance == "full" else "variance": noise,
        "effect_covariance": root @ root.T + 0.3 * np.eye(d),
    }


def prepare(
    frame, formula, n_states, covariance="diagonal", structure="full", plain=True, **options
):
    """(model, encoded data, EM) in the user's own units."""
    hmm = avem.MixedHMM(formula, n_states, Gaussian(covariance), effect_covariance=structure)
    return prepare_model(hmm, frame, plain, **options)


def prepare_model(hmm, frame, plain=True, **options):
    """The same for any model; `who` is the subject."""
    panel = Panel.from_frame(frame, "who", time="t", sequence="session")
    model = HMMModel.learn(hmm.spec, panel)
    encoded = model.encode(panel)
    return model, encoded, make_em(model, encoded, plain=plain, **options)


def start_state(model, encoded, params, anchors):
    """The iteration's state from the user's parameters and (d, subjects) anchors."""
    return state_at(Dataset.of(encoded), model.params_in(params), anchors)


def passes_at(e, state):
    """The E-step of every shard at a state, looked at from outside."""
    return e.data.map(seen, (state.subjects,), e.setting(state))


def anchors_at(em, state):
    """The anchors of every shard."""
    return em.data.map(_anchor, (state.subjects,))


def _anchor(chunk, subjects):
    return subjects.anchor


def chunk_of(em):
    """The first shard's arrays."""
    return em.data.shards[0].source


__all__ = [
    "anchors_at",
    "avem",
    "awkward_frame",
    "chunk_of",
    "passes_at",
    "prepare",
    "prepare_model",
    "random_params",
    "start_state",
]
