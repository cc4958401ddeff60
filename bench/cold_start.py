"""What a newcomer waits for: first fits and `avem demo` in fresh processes.

Modules are imported from bytecode, as after the first import ever, and kernels are there, as in a
wheel: each command is run once before it is timed.
"""

from __future__ import annotations

import os
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


def seconds(command: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.perf_counter() - began


def again(command: list[str], env: dict[str, str]) -> float:
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
        print(f"import avem             {again([python, '-c', 'import avem'], env):6.2f} s")
        print(f"avem --help             {again([*avem, '--help'], env):6.2f} s")
        for name, model in (("Gaussian 100 x 80", GAUSSIAN), ("Bernoulli 40 x 200", BERNOULLI)):
            print(f"{name:22s}  {again([python, '-c', FIT.format(**model)], env):6.2f} s")
        print(f"avem demo, no cache     {again(demo, {**env, 'AVEM_NO_CACHE': '1'}):6.2f} s")
        print(f"avem demo, fills cache  {seconds(demo, env):6.2f} s")
        print(f"avem demo, cached       {seconds(demo, env):6.2f} s")
    finally:
        shutil.rmtree(folder)
