"""Where numbers are computed: on the processor, or on a GPU.

Data decide: what is computed from a chunk is computed where the chunk is. So there is one choice to
make, when a panel is laid out (`device_for`), and code that has to know asks `platform`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

from avem.errors import ModelError

DEVICES = ("cpu", "gpu")
_WORTH_IT = 10_000_000
"""Rows from which on a GPU is faster, compilation counted (`bench/gpu.py`)."""
_ROOM = 0.75
"""Share of a device's memory that may be used."""

_platform: ContextVar[str | None] = ContextVar("platform", default=None)
_device: ContextVar[Any] = ContextVar("device", default=None)
_wanted: ContextVar[str | None] = ContextVar("wanted", default=None)


def platform() -> str:
    """Of the computation at hand: "cpu", "gpu", or another one that JAX knows."""
    return _platform.get() or jax.default_backend()


@contextmanager
def on(device: Any) -> Iterator[None]:
    """Computations inside are on this device."""
    tokens = _platform.set(device.platform), _device.set(device)
    try:
        with jax.default_device(device):
            yield
    finally:
        _platform.reset(tokens[0])
        _device.reset(tokens[1])


def here() -> Any:
    """The device of the computation at hand; None: JAX's own choice."""
    return _device.get()


def of(value: Any) -> Any:
    """The device on which an array is; NumPy's are on the processor."""
    devices = getattr(value, "devices", None)
    return _cpu() if devices is None else next(iter(devices()))


@contextmanager
def wanted(device: str | None) -> Iterator[None]:
    """Panels that are laid out inside go to this device; None: to where they are fitted faster."""
    if device is not None and device not in DEVICES:
        raise ModelError(f"device is {device!r}; available: {', '.join(DEVICES)}.")
    if device == "gpu" and not _gpus():
        raise ModelError(
            "device is 'gpu', and JAX finds none here. Install JAX for your GPU "
            '(pip install "jax[cuda13]"), and look at jax.devices().'
        )
    token = _wanted.set(device)
    try:
        yield
    finally:
        _wanted.reset(token)


def device_for(n_rows: int) -> Any:
    """The first of `devices_for`."""
    return devices_for(n_rows)[0]


def devices_for(n_rows: int) -> tuple[Any, ...]:
    """Where a panel of so many rows is computed.

    The user's choice, by `wanted` or the variable AVEM_DEVICE; else on GPUs, if there are some and
    the panel is large enough to gain from them.
    """
    choice = _wanted.get() or os.environ.get("AVEM_DEVICE") or None
    gpus = [] if choice == "cpu" else _gpus()
    if gpus and (choice == "gpu" or n_rows >= _WORTH_IT):
        return tuple(gpus)
    return (_cpu(),)


def best() -> Any:
    """A GPU of this process, or its processor."""
    choice = os.environ.get("AVEM_DEVICE") or None
    gpus = [] if choice == "cpu" else _gpus()
    return gpus[0] if gpus else _cpu()


def room(device: Any) -> int | None:
    """Bytes of the device's memory that may be used; None: not known, or the computer's own."""
    limit = os.environ.get("AVEM_DEVICE_MEMORY")
    if device.platform == "cpu" and limit is None:
        return None
    stats = device.memory_stats() or {}
    bounds = [int(limit)] if limit else []
    if "bytes_limit" in stats:
        bounds.append(int(_ROOM * (stats["bytes_limit"] - stats.get("bytes_in_use", 0))))
    return min(bounds, default=None)


def most_in_use(platform: str) -> int | None:
    """The most bytes that were in use on a device of this kind so far; None: not known."""
    seen = [one.memory_stats() or {} for one in (_gpus() if platform == "gpu" else [])]
    return max((stats.get("peak_bytes_in_use", 0) for stats in seen), default=0) or None


def _cpu() -> Any:
    return jax.local_devices(backend="cpu")[0]


def _gpus() -> list[Any]:
    return [one for one in jax.local_devices() if one.platform == "gpu"]
