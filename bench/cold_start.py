"""What a newcomer waits for: first fits and `avem demo` in fresh processes.

Modules are imported from bytecode, as after the first import ever, and kernels are there, as in a
wheel: each command is run once before it is timed.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

FIT = """
import avem, numpy as np
model = avem.MixedHMM({formula!r}, {n_states}, {family!r})
frame = model.simulate({truth}, {n}, {n_times}, seed=0).frame
model.fit(frame, time="time")
"""
STATE_SPACE = """
import avem, numpy as np
model = avem.MixedSSM("y1 + y2 + y3 + y4 ~ 0", 2, subject="subject")
truth = {"initial_mean": [0.0, 0.0], "initial_covariance": np.eye(2),
    "transition_mean": [[0.7, -0.1], [0.1, 0.6]], "transition_covariance": 0.05 * np.eye(4),
    "loading_mean": [[1.0, 0.0], [0.2, 0.9], [0.3, 0.4], [0.4, 0.2]],
    "loading_covariance": 0.05 * np.eye(7), "noise": np.full(4, 0.25)}
frame = model.simulate(truth, 50, 100, max_radius=0.98, seed=1).frame
model.fit(frame, time="time")
"""
"""The paper's Scenario III."""
GAUSSIAN = {
    "formula": "y1 + y2 ~ 1 + (1 | subject)",
    "n_states": 3,
    "family": "gaussian",
    "n": 100,
    "n_times": 80,
    "truth": """{"initial": np.full(3, 1 / 3),
        "transition": np.full((3, 3), 0.04) + 0.88 * np.eye(3),
        "coef": np.repeat(np.array([1.5, 0.0, -1.5])[:, None, None], 2, axis=1),
        "variance": np.ones((3, 2)), "effect_covariance": np.eye(2)}""",
}
BERNOULLI = {
    "formula": "y ~ 1 + (1 | subject)",
    "n_states": 2,
    "family": "bernoulli",
    "n": 40,
    "n_times": 200,
    "truth": """{"initial": [0.5, 0.5], "transition": [[0.92, 0.08], [0.08, 0.92]],
        "coef": [[[-1.5]], [[1.5]]], "effect_covariance": [[1.0]]}""",
}


def seconds(command: list[str], env: dict[str, str]) -> str:
    """Of a process: on the wall, and of processors, which is less changed by other work."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"{wall:6.2f} s, {cpu:5.2f} s of processors"


def again(command: list[str], env: dict[str, str]) -> str:
    """Of the second of two processes."""
    seconds(command, env)
    return seconds(command, env)


if __name__ == "__main__":
    folder = tempfile.mkdtemp()
    try:
        known = {key: value for key, value in os.environ.items() if key[:4] not in ("JAX_", "XLA_")}
        known.pop("PYTHONDONTWRITEBYTECODE", None)
        env = {
            **known,
            "XDG_CACHE_HOME": os.path.join(folder, "cache"),
            "PYTHONPYCACHEPREFIX": os.path.join(folder, "bytecode"),
        }
        python, avem = sys.executable, [sys.executable, "-m", "avem"]
        demo = [*avem, "demo", "--out", os.path.join(folder, "out")]
        print(f"import avem             {again([python, '-c', 'import avem'], env)}")
        print(f"avem --help             {again([*avem, '--help'], env)}")
        for name, code in (
            ("Gaussian 100 x 80", FIT.format(**GAUSSIAN)),
            ("Bernoulli 40 x 200", FIT.format(**BERNOULLI)),
            ("state-space 50 x 100", STATE_SPACE),
        ):
            print(f"{name:22s}  {again([python, '-c', code], env)}")
        print(f"avem demo, no cache     {again(demo, {**env, 'AVEM_NO_CACHE': '1'})}")
        print(f"avem demo, fills cache  {seconds(demo, env)}")
        print(f"avem demo, cached       {seconds(demo, env)}")
    finally:
        shutil.rmtree(folder)
