"""Run every Python block of the README, or of the pages that are named, in order, as one script.

    python examples/readme_code.py [PAGE.md ...]

The blocks of `docs/` are run by `make docs`, too, which also shows what they give. Some blocks of
the README fit the animal tracks of `movement.py`; they find them as `tracks`, and three channels of
measurements as `frame`. What the blocks write goes to a temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from movement import make_tracks

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from cells import code  # noqa: E402

import avem  # noqa: E402


def make_channels() -> pd.DataFrame:
    """Two latent processes, seen through three channels."""
    truth = {
        "transition_mean": [[0.8, 0.0], [0.1, 0.7]],
        "loading_mean": [[1.0, 0.0], [0.5, 1.0], [-0.5, 0.8]],
        "noise": [0.5, 0.5, 0.5],
        "coef": [[3.0], [70.0], [4.0]],
        "initial_mean": [0.0, 0.0],
        "initial_covariance": np.eye(2),
        "transition_covariance": 0.01 * np.eye(4),
        "loading_covariance": 0.05 * np.eye(5),
    }
    model = avem.MixedSSM(["eda", "heart_rate", "pupil"], n_latent=2, subject="person")
    frame = model.simulate(truth, n_subjects=20, n_times=50, seed=1).frame
    return frame.rename(columns={"time": "second"})


def run(path: Path) -> None:
    """Run the blocks of one page; an error says at which line of the page it happened."""
    names = {"tracks": make_tracks().frame, "frame": make_channels()}
    for cell in code(path.read_text(encoding="utf-8")):
        print(f"--- {path.name}, line {cell.line}", flush=True)
        exec(compile("\n" * (cell.line - 1) + cell.text, str(path), "exec"), names)


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT / "README.md"]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for page in pages:
            run(page)
