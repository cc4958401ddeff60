"""Fits on a cluster: real schedulers and workers on this machine, some of which are killed."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import avem
from avem.execution import cluster_worker as workers
from tests.execution.clusters import ROOT, cluster
from tests.scans import MODEL, TRUTH, assert_equal_fit, assert_same_fit, uneven, write_files

pytest.importorskip("duckdb")
pytest.importorskip("distributed")

START = {**TRUTH, "coef": [[[-1.0]], [[1.0]]], "effect_covariance": [[0.5]]}
TIGHT = {"init": START, "refine": None, "tol": 1e-9}
BERNOULLI = avem.MixedHMM("right ~ 1 + (1 | subject)", 2, "bernoulli")
MOVES = avem.MixedHMM("y ~ 1 + (1 | subject)", 2, transition="~ x + (1 | subject)")
SSM = avem.MixedSSM(["y", "x"], 1, subject="subject", random="transition")


@pytest.fixture(scope="module")
def frame():
    return uneven()


@pytest.fixture(scope="module")
def scan(frame, tmp_path_factory):
    files = write_files(frame, tmp_path_factory.mktemp("cluster") / "data")
    return avem.Panel.scan(files, "subject", time="time")


@pytest.fixture(autouse=True)
def several_chunks(monkeypatch):
    monkeypatch.setattr("avem.models.encoded._LANES", (16, 16))


def test_a_cluster_fits_what_memory_fits(scan, frame):
    """A scheduler and a worker in this process; those below are processes of their own."""
    from distributed import Client

    near = {"init": TRUTH, "refine": None, "tol": 1e-5}
    wanted = MODEL.fit(frame, time="time", **near)
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as client:
        found = MODEL.fit(scan, client=client, **near)
        assert_same_fit(found, wanted)
    # What is asked of the fit when the cluster is gone is computed here.
    assert float(found.loglik()) == pytest.approx(float(wanted.loglik()), rel=1e-9)
    with pytest.raises(avem.ModelError, match="client is closed"):
        MODEL.fit(scan, client=client, **near)


@pytest.mark.slow
def test_a_worker_that_has_lost_its_subjects_finds_them_again(scan, frame):
    from distributed import Client

    wanted = MODEL.fit(frame, time="time", **TIGHT)
    with Client(
        processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as client:
        told = []

        def lose(iteration):
            told.append(iteration.number)
            if iteration.number in (3, 4):
                for fit in workers._fits.values():
                    fit.held.clear()

        again = MODEL.fit(scan, client=client, callback=lose, **TIGHT)
        assert len(told) > 4
        for name, value in wanted.params.items():
            np.testing.assert_allclose(again.params[name], value, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_two_workers_fit_what_memory_fits(scan, frame, tmp_path):
    wanted = MODEL.fit(frame, time="time", **TIGHT)
    with cluster(tmp_path, 2) as (client, processes):
        found = MODEL.fit(scan, client=client, **TIGHT)
        assert len(found._own_data.chunks) > 2
        assert_same_fit(found, wanted)

        def kill(iteration):
            if iteration.number == 3:
                processes.workers[0].kill()

        # Its subjects are found again by the other.
        again = MODEL.fit(scan, client=client, callback=kill, **TIGHT)
        assert processes.workers[0].wait(timeout=30) == -signal.SIGKILL
        for name, value in wanted.params.items():
            np.testing.assert_allclose(again.params[name], value, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_short_sequences_that_converge_slowly_are_no_exception(frame, tmp_path):
    """Whatever is rounded otherwise grows over many iterations: nothing is."""
    short = frame[frame["time"] < 2 + frame["subject"].str[1:].astype(int) % 3]
    scan = avem.Panel.scan(write_files(short, tmp_path / "data"), "subject", time="time")
    options = {"n_starts": 2}
    wanted = MOVES.fit(short, time="time", **options)
    assert wanted.n_iter > 50
    assert_equal_fit(MOVES.fit(scan, **options), wanted)
    with cluster(tmp_path, 2) as (client, _):
        assert_equal_fit(MOVES.fit(scan, client=client, **options), wanted)


@cache
def in_memory(model):
    """What memory fits, and its standard errors."""
    fit = model.fit(uneven(), subject="subject", time="time", n_starts=2)
    return fit, errors_of(fit)


def errors_of(fit):
    return fit.standard_errors()["se"].to_numpy(float)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize(
    "model", [MODEL, BERNOULLI, MOVES, SSM], ids=["gaussian", "bernoulli", "moves", "ssm"]
)
def test_the_number_of_workers_does_not_matter(scan, tmp_path, n_workers, model):
    wanted, errors = in_memory(model)
    with cluster(tmp_path, n_workers) as (client, _):
        found = model.fit(scan, client=client, n_starts=2)
        assert_equal_fit(found, wanted)
        np.testing.assert_allclose(errors_of(found), errors, atol=1e-9)


@pytest.mark.slow
def test_a_worker_killed_at_any_moment_costs_time_alone(scan, frame, tmp_path):
    wanted = MODEL.fit(frame, time="time", **TIGHT)
    n_iter = wanted.n_iter
    with cluster(tmp_path, 2) as (client, processes):
        MODEL.fit(scan, client=client, **TIGHT)  # compiled
        for moment in range(10):
            at = 1 + moment * (n_iter - 1) // 10

            def kill(iteration, at=at, moment=moment):
                if iteration.number == at:
                    # In the middle of the next iteration.
                    wait = 0.002 * moment
                    threading.Timer(wait, processes.workers[-1].kill).start()

            found = MODEL.fit(scan, client=client, callback=kill, **TIGHT)
            assert processes.workers[-1].wait(timeout=30) == -signal.SIGKILL
            for name, value in wanted.params.items():
                np.testing.assert_allclose(found.params[name], value, atol=1e-6, err_msg=name)
            processes.add_worker()
            client.wait_for_workers(2, timeout=90)


def test_clients_that_are_none_are_refused(scan, frame):
    with pytest.raises(avem.ModelError, match=r"a dask\.distributed\.Client is wanted"):
        MODEL.fit(scan, client="tcp://127.0.0.1:1", **TIGHT)
    lost = dataclasses.replace(scan, folder=scan.folder / "lost")
    with pytest.raises(avem.FileError, match=r"rows\.parquet' is gone. Scan again"):
        MODEL.fit(lost, client=SimpleNamespace(submit=1, scheduler_info=1), **TIGHT)
    with pytest.raises(avem.ModelError, match="scan them first"):
        MODEL.fit(frame, time="time", client=object(), **TIGHT)


# --- the driver ---------------------------------------------------------------------------------


def test_a_checkpoint_goes_on_where_it_was(frame, tmp_path):
    path = tmp_path / "run.ckpt"
    wanted = MODEL.fit(frame, time="time", refine=None, tol=1e-9, n_starts=2)
    begun = []

    def stop(iteration):
        begun.append(iteration.number)
        return len(begun) == 7

    with pytest.warns(avem.AvemWarning, match="Stopped by the user"):
        MODEL.fit(
            frame,
            time="time",
            refine=None,
            tol=1e-9,
            n_starts=2,
            checkpoint=path,
            callback=stop,
        )
    assert path.exists()
    found = MODEL.fit(frame, time="time", refine=None, tol=1e-9, n_starts=2, checkpoint=path)
    for name, value in wanted.params.items():
        np.testing.assert_allclose(found.params[name], value, atol=1e-6, err_msg=name)
    assert found.info.start_gaps == ()  # no start was tried again
    assert not path.exists()


def test_a_checkpoint_of_something_else_is_refused(frame, tmp_path):
    path = tmp_path / "run.ckpt"

    def stop(iteration):
        return path.exists()

    with pytest.warns(avem.AvemWarning, match="Stopped by the user"):
        MODEL.fit(frame, time="time", checkpoint=path, callback=stop, **TIGHT)
    with pytest.raises(avem.FileError, match="of another model"):
        MODEL.fit(frame[:-20], time="time", checkpoint=path, **TIGHT)
    corrected = frame.assign(y=frame["y"].mask(frame.index == 3, 0.0))
    with pytest.raises(avem.FileError, match="other data"):
        MODEL.fit(corrected, time="time", checkpoint=path, **TIGHT)
    whole = path.read_bytes()
    for damaged in (b"no", b"", whole[: len(whole) // 2], whole[:-5]):
        path.write_bytes(damaged)
        with pytest.raises(avem.FileError, match=r"cannot be used.*Remove it to begin anew"):
            MODEL.fit(frame, time="time", checkpoint=path, **TIGHT)


DRIVER = """
import sys, json, time, avem
from tests.scans import MODEL
from tests.execution.test_cluster import TIGHT
scan = avem.Panel.scan(sys.argv[1], "subject", time="time", cache=sys.argv[2])
def slow(iteration):
    print("iteration", flush=True)
    time.sleep(0.05)
fit = MODEL.fit(scan, checkpoint=sys.argv[3], callback=slow, **TIGHT)
print(json.dumps({k: v.tolist() for k, v in fit.params.items()}), flush=True)
"""


@pytest.mark.slow
def test_a_killed_driver_goes_on(frame, tmp_path):
    import json

    files = write_files(frame, tmp_path / "data")
    wanted = MODEL.fit(frame, time="time", **TIGHT)
    for moment in range(5):
        path = tmp_path / f"run-{moment}.ckpt"
        command = [sys.executable, "-c", DRIVER, str(files), str(tmp_path / "cache"), str(path)]
        settings = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **settings) as one:
            assert one.stdout is not None
            for _ in range(2 + 3 * moment):
                assert one.stdout.readline().startswith("iteration")
            time.sleep(0.01 * moment)
            one.kill()
        again = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **settings)
        found = json.loads(again.stdout.splitlines()[-1])
        for name, value in wanted.params.items():
            np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)
        assert not path.exists()
