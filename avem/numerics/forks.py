"""A forked process cannot compute: the threads that XLA works with are not copied.

It would wait for them for ever. So it is told at once; what needs no compiled code works there, and
so does everything in a process that was forked before anything was computed.
"""

from __future__ import annotations

import os
import sys

from avem.errors import AvemError

_computed = False
_cut_off = False


def refuse_forked() -> None:
    """Raise before compiled work in a process that was forked from one that had done some."""
    global _computed
    if _cut_off:
        raise AvemError(
            f"Process {os.getpid()} was forked from one in which avem or JAX had computed, and has "
            "none of the threads that compiled code needs: it would hang. Start processes anew, by "
            'multiprocessing.get_context("spawn"), ProcessPoolExecutor(mp_context=...) or joblib; '
            "or fork before the first fit."
        )
    _computed = True


def _forked() -> None:
    global _cut_off
    _cut_off = _computed or _jax_has_begun()


def _jax_has_begun() -> bool:
    # Asked in another way, JAX would wait for a lock that nobody here lets go.
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
