"""One AVEM iteration against one EM iteration of hmmlearn and of dynamax, in the same run.

The peers fit an HMM without effects; AVEM fits one with a two-dimensional effect per subject. All
see the same data, and all times are wall times of one warm iteration (E- and M-step), the best of
several. Then: how the cost of an AVEM iteration grows in subjects, times, states and effects.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd

import avem
from avem.inference.e_steps import state_at
from avem.inference.fit_hmm import make_em
from avem.inference.methods.anchored import anchored_pass
from avem.numerics.precision import in_float64


def panel(n: int, n_times: int, n_states: int, d: int, seed: int = 0) -> pd.DataFrame:
    """The paper's Scenario I."""
    sticky = np.full((n_states, n_states), 0.08 / max(n_states - 1, 1))
    np.fill_diagonal(sticky, 0.92 if n_states > 1 else 1.0)
    params = {
        "initial": np.full(n_states, 1 / n_states),
        "transition": sticky,
        "coef": np.repeat(np.linspace(1.5, -1.5, n_states)[:, None, None], d, axis=1),
        "variance": np.ones((n_states, d)),
        "effect_covariance": np.eye(d),
    }
    model = avem.MixedHMM(formula(d), n_states)
    return model.simulate(params, n, n_times, seed=seed).frame


def formula(d: int) -> str:
    """d outcomes, each with its own random intercept."""
    return " + ".join(f"y{j + 1}" for j in range(d)) + " ~ 1 + (1 | subject)"


def best_of(work, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


@in_float64
def time_avem(frame: pd.DataFrame, n_states: int, d: int, repeats: int = 5) -> tuple[float, float]:
    """Seconds of one iteration, and of the first one, which compiles."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        fit = avem.MixedHMM(formula(d), n_states).fit(frame, time="time", plain=True, max_iter=1)
    em = make_em(fit.model, fit._own_data)
    state = state_at(em.data, fit.theta, fit.effects_mean.T)
    em.step(state)
    warm = best_of(lambda: em.step(state), repeats)
    anchored_pass.clear_cache()  # pyright: ignore[reportAttributeAccessIssue]
    began = time.perf_counter()
    em.step(state)
    return warm, time.perf_counter() - began - warm


def time_hmmlearn(y: np.ndarray, n_states: int) -> float:
    from hmmlearn.hmm import GaussianHMM

    n, n_times, p = y.shape
    rows, lengths = y.reshape(-1, p), [n_times] * n

    def fit(n_iter: int) -> float:
        model = GaussianHMM(
            n_states, "diag", implementation="scaling", n_iter=n_iter, tol=-np.inf, random_state=0
        )
        began = time.perf_counter()
        model.fit(rows, lengths)
        return time.perf_counter() - began

    return min((fit(3) - fit(1)) / 2 for _ in range(2))  # without its k-means start


def time_dynamax(y: np.ndarray, n_states: int) -> tuple[float, float]:
    import jax
    from dynamax.hidden_markov_model import DiagonalGaussianHMM

    hmm = DiagonalGaussianHMM(n_states, y.shape[2])
    params, props = hmm.initialize(jax.random.PRNGKey(0), method="prior")
    m_state = hmm.initialize_m_step_state(params, props)
    data = jax.numpy.asarray(y)

    @jax.jit
    def step(params, m_state, data):
        stats, logliks = jax.vmap(lambda one: hmm.e_step(params, one))(data)
        params, m_state = hmm.m_step(params, props, stats, m_state)
        return params, m_state, jax.numpy.sum(logliks)

    def run() -> None:
        jax.block_until_ready(step(params, m_state, data))

    began = time.perf_counter()
    run()
    first = time.perf_counter() - began
    warm = best_of(run)
    return warm, first - warm


def compare(n: int = 10_000, n_times: int = 100, n_states: int = 3, d: int = 2) -> None:
    frame = panel(n, n_times, n_states, d)
    y = frame[[f"y{j + 1}" for j in range(d)]].to_numpy().reshape(n, n_times, d)
    ours, compile_ours = time_avem(frame, n_states, d)
    dynamax, compile_dynamax = time_dynamax(y, n_states)
    hmmlearn = time_hmmlearn(y, n_states)
    cells = n * n_times
    print(f"One EM iteration, n={n:,}, T={n_times}, K={n_states}, d={d}")
    print(f"{'':34}{'seconds':>9}{'ns/cell':>9}{'ratio':>8}{'compile s':>11}")
    rows = [
        ("avem, float64, with effects", ours, compile_ours),
        ("dynamax, float32, no effects", dynamax, compile_dynamax),
        ("hmmlearn, float64, no effects", hmmlearn, None),
    ]
    for name, seconds, compiling in rows:
        tail = "" if compiling is None else f"{compiling:11.2f}"
        print(f"{name:34}{seconds:9.3f}{seconds / cells * 1e9:9.1f}{seconds / ours:8.1f}{tail}")


def growth() -> None:
    base = {"n": 2_000, "n_times": 100, "n_states": 3, "d": 2}
    print("\nNanoseconds per subject-time cell of one AVEM iteration, one thing varied at a time")
    print(f"(from n={base['n']:,}, T={base['n_times']}, K={base['n_states']}, d={base['d']})")
    grid = {
        "n": (40, 200, 2_000, 10_000),
        "n_times": (20, 100, 500),
        "n_states": (2, 3, 5, 7),
        "d": (1, 2, 3, 5),
    }
    for name, values in grid.items():
        parts = []
        for value in values:
            size = {**base, name: value}
            seconds, _ = time_avem(panel(**size), size["n_states"], size["d"], repeats=3)
            parts.append(f"{value:,}: {seconds / (size['n'] * size['n_times']) * 1e9:.0f}")
        print(f"  {name:9} " + "   ".join(parts))


if __name__ == "__main__":
    compare()
    growth()
