"""The way that a fit takes on a GPU, on a processor: to test it, and to see what it compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import jax

from avem.execution import threads
from avem.execution.threads import Threads
from avem.models.encoded import Placement
from avem.numerics import devices


@contextmanager
def pretended_gpu(n_lanes: int, speed: float) -> Iterator[None]:
    """The processor is taken for a GPU, on which chunks have `n_lanes`.

    Subjects' values are JAX's, small work on them is compiled, sums are added up where they are,
    and code has its price beside work that is done at that `speed`. Definitions of kernels run.
    """
    cpu = devices._cpu()

    @contextmanager
    def on(device: Any) -> Iterator[None]:
        tokens = devices._platform.set("gpu"), devices._device.set(device)
        try:
            with jax.default_device(device):
                yield
        finally:
            devices._platform.reset(tokens[0])
            devices._device.reset(tokens[1])

    def of(cls: type[Placement], *sizes: Any, **more: Any) -> Placement:
        return cls(cpu, n_lanes, True, (cpu,))

    def put(self: Placement, made: Any) -> tuple[Any, ...]:
        return tuple(map(jax.device_put, made))

    instead: list[tuple[Any, str, Any]] = [
        (devices, "on", on),
        (threads, "_is_far", lambda device: True),
        (Placement, "of", classmethod(of)),
        (Placement, "chunks", put),
        (Placement, "executor", property(lambda self: Threads(None, speed))),
    ]
    with ExitStack() as stack:
        for owner, name, value in instead:
            stack.enter_context(patch.object(owner, name, value))
        stack.callback(devices._platform.reset, devices._platform.set("gpu"))
        yield
