"""The authors' own state-space fits, number by number."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from avem.data import Panel, parse_formula
from avem.inference.e_steps import state_at
from avem.inference.fit_ssm import make_ssm_em
from avem.kernels.inverse import inverse_and_logdet
from avem.kernels.posterior import divergence
from avem.models.ssm import SSMModel
from avem.models.ssm_specification import SSMSpecification
from avem.numerics.precision import in_float64
from tests.chosen import chosen
from tests.panels import anchors_at, passes_at

FOLDER = Path(__file__).parents[1] / "reference"
JITTER = 1e-8
"""The script adds this to the diagonals that it inverts, which is felt where Sigma is singular."""
LOWER = [(0, 0), (1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (3, 1)]


def load(name):
    with np.load(FOLDER / f"{name}.npz") as arrays:
        arrays = dict(arrays)
    n, n_times, p = arrays["y"].shape
    frame = pd.DataFrame(arrays["y"].reshape(-1, p), columns=[f"y{j + 1}" for j in range(p)])
    frame["subject"] = np.repeat(np.arange(n), n_times)
    return frame, arrays, json.loads((FOLDER / f"{name}.json").read_text())


def as_params(given):
    loading = np.zeros((4, 2))
    for value, place in zip(given["mu_h"], LOWER, strict=True):
        loading[place] = value
    return {
        "initial_mean": np.array(given["m0"], float),
        "initial_covariance": np.array(given["P0"], float),
        "transition_mean": np.array(given["mu_g"]).reshape(2, 2).T,
        "loading_mean": loading,
        "noise": np.array(given["R_diag"]),
        "transition_covariance": np.array(given["Sigma_g"]),
        "loading_covariance": np.array(given["Sigma_h"]),
    }


@partial(jax.jit, static_argnames="kernel")
def monitored(kernel, theta, f, new, q_mean, q_cov, shifted, chunk):
    """What the authors' script records, of every subject.

    log p(D | anchor) at the parameters before the M-step, and all else after it: not quite a bound.
    """
    local = kernel.local(theta, f, chunk, "")
    posterior = kernel.path_posterior(theta, f, chunk, "")
    gain = kernel.expected_complete(new, q_mean, posterior, chunk)
    gain -= kernel.expected_complete(new, shifted, posterior, chunk)
    gain -= 0.5 * (kernel.quadratic(new, local).curvature * q_cov).sum((0, 1))
    prior, prior_logdet = inverse_and_logdet(new["effect_covariance"][:, :, None])
    logdet = inverse_and_logdet(q_cov + JITTER * jnp.eye(len(q_cov))[:, :, None])[1]
    return local.loglik + gain - divergence(prior, prior_logdet, q_mean, q_cov, -logdet)


@pytest.mark.parametrize(
    ("name", "jitter", "close"),
    chosen(
        [
            ("messm_n25_T25", JITTER, 1e-6),
            ("messm_n25_T25", 0.0, 1e-4),
            ("messm_n50_T100", JITTER, 1e-6),
            ("messm_n50_T100", 0.0, 1e-4),
        ],
        [("messm_n25_T25", JITTER, 1e-6)],
    ),
)
@in_float64
def test_plain_iteration_equals_the_authors(name, jitter, close):
    frame, arrays, reference = load(name)
    panel = Panel.from_frame(frame, "subject")
    spec = SSMSpecification(
        2,
        parse_formula("y1 + y2 + y3 + y4 ~ 0"),
        parse_formula("~ 0"),
        ("transition", "loading"),
        ("full",) * 3,
    )
    model = SSMModel.learn(spec, panel)
    data = model.encode(panel)
    em = make_ssm_em(model, data, plain=True)
    assert len(data.chunks) == 1
    chunk, n = data.chunks[0], panel.n_subjects
    theta = model.params_in(as_params(reference["start"]))
    state = state_at(em.data, theta, np.zeros((11, n)))
    expected, trace = reference["fits"]["avem"], []
    for _ in range(expected["iterations"]):
        sigma = state.theta["effect_covariance"] + jitter * np.eye(11)
        state = replace(state, theta={**state.theta, "effect_covariance": sigma})
        step = em.step(state)
        shift = passes_at(em.e, step.before)[0].mean - anchors_at(em, step.state)[0]
        each = monitored(
            em.kernel,
            state.theta,
            anchors_at(em, state)[0],
            step.state.theta,
            anchors_at(em, step.state)[0],
            passes_at(em.e, step.before)[0].covariance,
            anchors_at(em, state)[0] - shift,
            chunk,
        )
        trace.append(float(np.asarray(each)[:n].sum()))
        state = step.state
    np.testing.assert_allclose(trace, expected["objective_trace"], rtol=1e-7 if jitter else 3e-6)
    found, fitted = model.params_out(state.theta), as_params(expected["fitted"])
    for key, value in fitted.items():
        np.testing.assert_allclose(found[key], value, atol=close, err_msg=key)
    effects = data.layout.join(anchors_at(em, state)).T
    means = [found["transition_mean"].T.ravel(), [found["loading_mean"][e] for e in LOWER]]
    np.testing.assert_allclose(effects + np.concatenate(means), arrays["subject_mean"], atol=1e-3)
