"""What a GPU gives: kernels, iterations and whole fits, on it and on the processor.

    python bench/gpu.py                   # everything, every part in a process of its own
    python bench/gpu.py iterations fits   # some parts, here

Parts: kernels, iterations, states, fits, limited, million. A part that fails does not stop the
others. Without a GPU the processor's lines are printed, and sizes are a thousandth. What is limited
is the memory that JAX may take, to 4 GB, where every part has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import avem
from avem.inference.e_steps import state_at
from avem.inference.em import EM
from avem.inference.fit_hmm import make_em
from avem.inference.fit_ssm import make_ssm_em
from avem.kernels import associative, dispatch, gaussian_chain
from avem.kernels import forward_backward as chains
from avem.kernels.forward_backward import Steps
from avem.models.hmm import HMMModel
from avem.numerics import devices
from avem.numerics.precision import in_float64

PARTS = ("kernels", "iterations", "states", "fits", "limited", "million")
LIMIT = 4_000_000_000


def share_of_memory(limit: int) -> dict[str, str]:
    """The environment in which JAX takes so many bytes of a GPU; empty without a GPU."""
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{limit / (int(found[0]) << 20):.6f}"}


if __name__ == "__main__" and len(sys.argv) == 1:  # before JAX takes the GPU's memory here
    for part in PARTS:
        more = share_of_memory(LIMIT) if part == "limited" else {}
        command = [sys.executable, str(Path(__file__)), part]
        subprocess.run(command, check=False, env={**os.environ, **more})
    sys.exit()

N_TIMES = 100
ON_GPU = jax.default_backend() == "gpu"
SCALE = 1 if ON_GPU else 1000
BOTH = ("gpu", "cpu") if ON_GPU else ("cpu",)


def say(*words: Any) -> None:
    """A line, at once."""
    print(*words, flush=True)


# --- panels and models ----------------------------------------------------------------------------


def gaussian(n: int, seed: int = 0) -> pd.DataFrame:
    """Three states, two outcomes with an effect each."""
    rng = np.random.default_rng(seed)
    states = np.empty((n, N_TIMES), int)
    states[:, 0] = rng.integers(0, 3, n)
    for t in range(1, N_TIMES):
        moves = rng.random(n) < 0.1
        states[:, t] = np.where(moves, rng.integers(0, 3, n), states[:, t - 1])
    mean = np.array([[-2.0, -1.0], [0.0, 1.5], [2.0, -1.0]])
    y = mean[states] + rng.normal(0, 0.7, (n, 1, 2)) + rng.standard_normal((n, N_TIMES, 2))
    return _frame(n, {"y1": y[..., 0], "y2": y[..., 1]})


def bernoulli(n: int, seed: int = 0) -> pd.DataFrame:
    """Two states, one effect."""
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random((n, N_TIMES)) < 0.1, axis=1) % 2
    chance = 1 / (1 + np.exp(-(3.0 * states - 1.5 + rng.normal(0, 0.8, (n, 1)))))
    return _frame(n, {"y": (rng.random((n, N_TIMES)) < chance).astype(int)})


def state_space(n: int, seed: int = 0) -> pd.DataFrame:
    """Two latent states, four outcomes, 11 effects: every subject has matrices of its own."""
    rng = np.random.default_rng(seed)
    move = np.array([[0.7, -0.1], [0.1, 0.6]]) + 0.1 * rng.standard_normal((n, 2, 2))
    load = np.array([[1.0, 0.0], [0.2, 0.9], [0.3, 0.4], [0.4, 0.2]])
    load = load + 0.2 * rng.standard_normal((n, 4, 2)) * (load != 0.0)
    x, y = rng.standard_normal((n, 2)), np.empty((n, N_TIMES, 4))
    for t in range(N_TIMES):
        y[:, t] = np.einsum("njk,nk->nj", load, x) + 0.5 * rng.standard_normal((n, 4))
        x = np.einsum("nab,nb->na", move, x) + rng.standard_normal((n, 2))
    return _frame(n, {f"y{j + 1}": y[..., j] for j in range(4)})


def _frame(n: int, outcomes: dict[str, np.ndarray]) -> pd.DataFrame:
    subject, t = np.repeat(np.arange(n), N_TIMES), np.tile(np.arange(N_TIMES), n)
    return pd.DataFrame({"subject": subject, "t": t, **{k: v.ravel() for k, v in outcomes.items()}})


GAUSSIAN = avem.MixedHMM("y1 + y2 ~ 1 + (1 | subject)", n_states=3)
BERNOULLI = avem.MixedHMM("y ~ 1 + (1 | subject)", n_states=2, family="bernoulli")
STATES = avem.MixedSSM("y1 + y2 + y3 + y4 ~ 0", 2, subject="subject")


# --- what is measured -----------------------------------------------------------------------------


class Compiled:
    """How many programs were compiled, and how long that took, tracing counted."""

    programs, seconds = 0, 0.0

    @classmethod
    def listen(cls) -> None:
        """From now on."""

        def heard(event: str, duration_secs: float, **_: Any) -> None:
            if event.startswith("/jax/core/compile/"):
                cls.seconds += duration_secs
                cls.programs += event.endswith("backend_compile_duration")

        jax.monitoring.register_event_duration_secs_listener(heard)


@contextmanager
def timed(what: str) -> Iterator[None]:
    """A line with the seconds that something takes, and those of them that went into compiling."""
    began, programs, seconds = time.perf_counter(), Compiled.programs, Compiled.seconds
    yield
    took = time.perf_counter() - began
    programs, seconds = Compiled.programs - programs, Compiled.seconds - seconds
    compiling = f"{seconds:.2f} s for compiling {programs} programs"
    say(f"{what}: {took:.2f} s, of which {compiling}, {peak()}")


def peak() -> str:
    """The most memory that was used on the device so far."""
    stats = jax.devices()[0].memory_stats() or {}
    return f"peak {stats.get('peak_bytes_in_use', 0) / 1e9:.2f} GB"


def best(function: Callable[[], Any], repeats: int = 9) -> float:
    """Median seconds of a call, after two that compile."""
    times = []
    for number in range(repeats + 2):
        began = time.perf_counter()
        jax.block_until_ready(function())
        if number > 1:
            times.append(time.perf_counter() - began)
    return median(times)


def iteration(
    what: str, model: Any, frame: pd.DataFrame, device: Any, start: Any, make: Any
) -> None:
    """One anchored iteration, all of it counted."""
    began = time.perf_counter()
    with devices.wanted(device):
        panel = model._panel(frame, None, "t", None)
        data = in_float64(start.model.encode)(panel)
    say(f"  laid out in {time.perf_counter() - began:.1f} s")
    iterated(what, make(start.model, data), start.theta, device)


def iterated(what: str, em: EM, theta: Any, device: str) -> None:
    """The same on data that are laid out."""
    n = em.data.n_subjects
    state = state_at(em.data, theta, np.zeros((len(theta["effect_covariance"]), n)))
    with timed(f"  the first iteration of {what} on {device}"):
        state = in_float64(em.step)(state).state

    def step() -> None:
        nonlocal state
        state = in_float64(em.step)(state).state

    each = best(step)
    size = f"{n:>9,d} x {N_TIMES} {device}"
    say(
        f"iteration {what:9s} {size}: {each / (n * N_TIMES) * 1e9:8.4f} ns per cell",
        f"({each * 1e3:.2f} ms, {len(em.data.shards)} shards)",
    )


@contextmanager
def remembered() -> Iterator[list[Any]]:
    """Models and data as fits lay them out inside: for a million subjects, once is long enough."""
    found: list[Any] = []
    plain = HMMModel.encode

    def encode(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append((self, plain(self, *args, **kwargs)))
        return found[-1][1]

    HMMModel.encode = encode
    try:
        yield found
    finally:
        HMMModel.encode = plain


def whole_fit(n: int, device: Any, turn: str, frame: pd.DataFrame | None = None) -> Any:
    """A default fit of so many subjects, the first ones of a panel if there is one."""
    frame = gaussian(n) if frame is None else frame.iloc[: n * N_TIMES]
    with timed(f"default fit {n:>9,d} x {N_TIMES} {device}, {turn}"):
        fit = GAUSSIAN.fit(frame, time="t", device=device)
    say(f"  bound {fit.bound:.6f}, {fit.n_iter} iterations, {fit.info.seconds:.2f} s of fitting")
    return fit


def agreement(found: Any, wanted: Any) -> None:
    """How far two fits are apart, the second as it is or as it was kept."""
    wanted = wanted if isinstance(wanted, dict) else numbers(wanted)
    found = numbers(found)
    away = max(float(np.abs(found[k] - wanted[k]).max()) for k in found if k != "bound")
    bounds = abs(found["bound"] / wanted["bound"] - 1)
    say(f"  bounds differ by {bounds:.1e} of their size, parameters by {away:.1e}")


def numbers(fit: Any) -> dict[str, Any]:
    """The bound and the parameters."""
    return {"bound": fit.bound, **fit.params}


# --- the parts ------------------------------------------------------------------------------------


def chain_problem(n: int, dtype: str) -> tuple[Any, ...]:
    """The kernel's arguments: three states, two outcomes, one design column."""
    key = jax.random.key(0)
    lists = gaussian_chain.Lists(
        (0,),
        (0,),
        ((0, 0, 0), (0, 1, 1)),
        ((0, 0, 0), (0, 1, 1), (0, 1, 2), (0, 1, 3), (0, 2, 2), (0, 3, 3)),
        constant=0,
    )
    mean = jnp.asarray([[-2.0, -1.0], [0.0, 1.5], [2.0, -1.0]], dtype)
    coef = mean[:, :, None, None] + 0.7 * jax.random.normal(key, (2, 1, n), "float64")
    coef = coef.astype(dtype)
    squares = gaussian_chain.Squares(
        lists, coef, jnp.full((3, 1), -1.84, dtype), jnp.full((3, 2), 0.5, dtype)
    )
    y = (2.0 * jax.random.normal(key, (N_TIMES, 2, n), "float64")).astype(dtype)
    seen = jnp.ones((N_TIMES, 1, n), bool)
    rows = gaussian_chain.Records(jnp.ones((N_TIMES, 1, n), dtype), y, seen, seen[:, 0])
    moves = jnp.asarray([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]], dtype)
    return jnp.full(3, 1 / 3, dtype), moves, squares, rows, Steps()


@in_float64
def kernels() -> None:
    """The forward-backward kernels alone."""
    n, sums = 1_000_000 // SCALE, {}
    for dtype in ("float64", "float32"):
        initial, moves, squares, rows, steps = chain_problem(n, dtype)
        engine = dispatch.engine(
            "gaussian_chain", "float64", states=3, outcomes=2, features=6, cells=1
        )
        run = engine if ON_GPU and engine else gaussian_chain.definition

        def once(*arrays: Any, squares: Any = squares, run: Any = run, steps: Any = steps) -> Any:
            coef, initial, moves, rows = arrays
            found = run(initial, moves, squares._replace(coef=coef), rows, steps)
            return [part.astype("float64").sum(-1) for part in found]

        compiled = jax.jit(once)
        arrays = (squares.coef, initial, moves, rows)
        each = best(partial(compiled, *arrays))
        sums[dtype] = jax.device_get(compiled(*arrays))
        cell = each / (n * N_TIMES) * 1e9
        say(f"kernel gaussian {dtype} {n:,d} x {N_TIMES}: {cell:.4f} ns per cell")

    def estimates(found: Any) -> np.ndarray:
        _, first, pair, total = found
        parts = [
            first / first.sum(),
            pair[0] / pair[0].sum(-1, keepdims=True),
            total / total[:, :1],
        ]
        return np.concatenate([np.ravel(part) for part in parts])

    away = np.abs(estimates(sums["float32"]) - estimates(sums["float64"])).max()
    bound = abs(sums["float32"][0] / sums["float64"][0] - 1)
    say(f"  float32 with float64 sums: estimates differ by {away:.1e}, the bound by {bound:.1e}")
    few_and_long(20, 20_000 // min(SCALE, 10))


def few_and_long(n: int, times: int) -> None:
    """Two passes, or all steps at once."""
    table = jax.random.normal(jax.random.key(1), (times, 3, n), "float64")
    moves, initial = 0.05 + 0.85 * jnp.eye(3), jnp.full(3, 1 / 3)
    valid = jnp.ones((times, n), bool)
    two = chains.definition
    if ON_GPU:
        from avem.kernels.pallas.calls import _forward_backward as two
    for name, run in {"two passes": two, "all steps at once": associative.run}.items():
        compiled = jax.jit(lambda table, run=run: run(initial, moves, table, valid, Steps())[0])
        with timed(f"  compiling {name}"):
            jax.block_until_ready(compiled(table))
        say(f"kernel {n} x {times:,d}, {name}: {best(partial(compiled, table)) * 1e3:.2f} ms")


def small(model: Any, frame: pd.DataFrame, **options: Any) -> Any:
    """Parameters to iterate from."""
    return model.fit(frame, time="t", device="cpu", **options)


def iterations() -> None:
    """Of hidden Markov models."""
    start = small(BERNOULLI, bernoulli(200), refine=None)
    for device in BOTH:
        n = (524_288 if device == "gpu" else 100_000) // SCALE
        iteration("bernoulli", BERNOULLI, bernoulli(n), device, start, make_em)
    start = small(GAUSSIAN, gaussian(200), refine=None)
    for device in BOTH:
        iteration("gaussian", GAUSSIAN, gaussian(100_000 // SCALE), device, start, make_em)


def states() -> None:
    """Of a state-space model."""
    start = small(STATES, state_space(100), plain=True, max_iter=3)
    frame = state_space(100_000 // SCALE)
    for device in BOTH:
        iteration("states", STATES, frame, device, start, make_ssm_em)


def fits() -> None:
    """Default fits, and what a fit of another size compiles."""
    for n in (10_000 // SCALE, 100_000 // SCALE):
        found = {}
        for device in BOTH:
            for turn in ("first", "again") if device == "gpu" else ("first",):
                found[device] = whole_fit(n, device, turn)
        if len(found) == 2:
            agreement(found["gpu"], found["cpu"])
        if n == 10_000:
            whole_fit(n - 40, "gpu", "another size", gaussian(n))
    KEPT.parent.mkdir(exist_ok=True)
    np.savez(KEPT, **numbers(found[BOTH[0]]))


KEPT = Path(__file__).parent / "output" / "gpu_fit.npz"
"""The last of these fits."""


def limited() -> None:
    """The last of these fits once more, in as much memory as JAX has been given."""
    stats = jax.devices()[0].memory_stats() or {}
    say(f"  JAX may take {stats.get('bytes_limit', 0) / 1e9:.2f} GB of the device's memory")
    found = whole_fit(100_000 // SCALE, BOTH[0], "limited")
    if KEPT.exists():
        agreement(found, dict(np.load(KEPT)))


def million() -> None:
    """Default fits of a million subjects, and an iteration."""
    frame = gaussian(1_000_000 // SCALE)
    with remembered() as found:
        fit = whole_fit(len(frame) // N_TIMES, BOTH[0], "first", frame)
    model, data = found.pop()
    iterated("gaussian", make_em(model, data), fit.theta, BOTH[0])
    del model, data
    whole_fit(len(frame) // N_TIMES, BOTH[0], "again", frame)


def main(wanted: list[str]) -> None:
    """The parts that were asked for."""
    warnings.simplefilter("ignore")
    Compiled.listen()
    for name in wanted:
        say(f"--- {name}: {jax.devices()[0]}, {os.cpu_count()} cores, JAX {jax.__version__}")
        began = time.perf_counter()
        try:
            globals()[name]()
        except Exception:
            say(traceback.format_exc())
        say(f"    {name} took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
