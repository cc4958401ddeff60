"""The command in processes of its own, and a small fit for it."""

import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

import avem

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments, module="avem", **options):
    """`python -m avem ARGUMENTS`, in a process group of its own."""
    env = {"MPLCONFIGDIR": matplotlib.get_cachedir(), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        env=os.environ | env | {"AVEM_NO_CACHE": "1"} | options.pop("env", {}),
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=sys.platform != "win32",
        **options,
    )


def ended(process, seconds=120):
    """(exit code, stdout, stderr)."""
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def until(condition, process=None, seconds=60):
    """Wait until something holds; a process that ends before is a failure."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.002)


@cache
def frame():
    rng = np.random.default_rng(2)
    state = np.repeat(rng.random(24) < 0.5, 5)
    y = np.repeat(rng.normal(size=6), 20) + 5 * state + rng.normal(size=120)
    who, t = np.repeat(np.arange(6), 20), np.tile(np.arange(20), 6)
    return pd.DataFrame({"who": who, "t": t, "y": y.round(3)})


@cache
def fit():
    return avem.MixedHMM("y ~ 1", 2).fit(frame(), "who", "t", n_starts=1, refine=None)
