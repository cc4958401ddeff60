"""Many effects and several chunks: a pass on two threads at once must come to its end."""

import subprocess
import sys

import pytest

CODE = """
import numpy as np, pandas as pd, avem
rng = np.random.default_rng(0)
n, T, p = 700, 4, 7
frame = pd.DataFrame(rng.standard_normal((n * T, p)), columns=[f"y{j}" for j in range(p)])
frame["id"] = np.repeat(np.arange(n), T)
names = " + ".join(frame.columns[:p])
model = avem.MixedSSM(f"{names} ~ 0 + (1 | id)", 1, random="none")
fit = model.fit(frame, refine=None, max_iter=2, n_starts=1, tol=1.0)
assert len(fit._own_data.chunks) > 1
print(fit.effects_mean.shape)
"""


@pytest.mark.slow
def test_a_fit_in_several_chunks_ends():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "(700, 7)"
