"""Shards on several devices give what one gives. The processor is shown to JAX as two of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import jax, numpy as np
import avem
from avem.models import encoded
from avem.numerics import arrays, devices

here = jax.local_devices(backend="cpu")
assert len(here) == 2
encoded._LANES = (16, 16)
model = avem.MixedHMM("y ~ 1 + (1 | subject)", 2)
truth = {
    "initial": [0.5, 0.5], "transition": [[0.9, 0.1], [0.2, 0.8]], "coef": [[[-1.5]], [[1.5]]],
    "variance": [[1.0], [1.0]], "effect_covariance": [[0.3]],
}
frame = model.simulate(truth, n_subjects=70, n_times=6, seed=1).frame
options = {"time": "time", "n_starts": 2, "max_iter": int(sys.argv[1])}
options["refine"] = None if sys.argv[2] == "anchored" else "adaptive"
wanted = model.fit(frame, **options)
devices.devices_for = lambda n_rows: tuple(here)
arrays.in_numpy = lambda: False  # subjects' values stay where their chunk is
found = model.fit(frame, **options)
placed = {next(iter(chunk.valid.devices())) for chunk in found._own_data.chunks}
assert placed == set(here), placed
np.testing.assert_allclose(found.bound, wanted.bound, rtol=1e-9)
for name, value in wanted.params.items():
    np.testing.assert_allclose(found.params[name], value, rtol=1e-5, atol=1e-7)
np.testing.assert_allclose(found.effects_mean, wanted.effects_mean, rtol=1e-5, atol=1e-6)
"""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("n_iterations", "how"),
    [("5", "anchored"), pytest.param("50", "exact", marks=pytest.mark.slow)],
)
def test_shards_over_devices(n_iterations, how):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, n_iterations, how]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr[-3000:]
