"""Watching a fit: a line that shows how it is doing, and Ctrl-C that stops it gently."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from avem.components.param_info import Params
from avem.errors import ModelError

QUIET_SECONDS = 2.0
LOG_SECONDS = 5.0
"""Between lines where there is no terminal to draw on."""


class Iteration(NamedTuple):
    """What a `callback` is told of an iteration.

    Attributes
    ----------
    number : int
        Counted from 1 in each stage.
    stage : str
        The method's name, or ``"refine"``.
    bound : float
        What the method maximises, before the iteration's last step.
    change : float
        How far it is from convergence: what `tol` is compared with.
    params : dict of str to numpy.ndarray
        After it, as `fit.params` has them.

    Examples
    --------
    >>> def enough(iteration: avem.Iteration) -> bool:  # as in model.fit(data, callback=enough)
    ...     return iteration.stage == "refine" and iteration.change < 1e-3
    >>> enough(avem.Iteration(1, "avem", -512.0, 0.1, {}))
    False
    """

    number: int
    stage: str
    bound: float
    change: float
    params: Params


Callback = Callable[[Iteration], Any]
"""Called after every iteration; ends the fit by returning True."""


class Watch:
    """Watches a fit from the outside; call it after each iteration.

    Shows nothing for two seconds, then the iteration, the bound and the rate, on stderr; `show`
    None means only where a person is looking (a terminal or a notebook). The first Ctrl-C lets the
    iteration at hand finish and ends the fit with what it has, so no compiled work is torn apart;
    the second one raises KeyboardInterrupt at once. A `callback` is told of the iterations after
    the starts, with what `params_out` makes of theta.
    """

    def __init__(
        self,
        show: bool | None,
        max_iter: int,
        offset: float = 0.0,
        callback: Callback | None = None,
        params_out: Callable[[Params], Params] = dict,
    ) -> None:
        if callback is not None and not callable(callback):
            raise ModelError(f"callback is {callback!r}; a function of one argument is wanted.")
        self._show = somebody_looks() if show is None else show
        self._max_iter = max_iter
        self._offset = offset  # from the bound of standardised data to that of the user's
        self._began = time.perf_counter()
        self._stage, self._at_start, self._told = "starts", True, 0
        self._callback, self._params_out = callback, params_out
        self._bar: Progress | None = None
        self._logged = -float("inf")
        self._previous: Any = None
        self.interrupted = False

    def __enter__(self) -> Watch:
        in_main_thread = threading.current_thread() is threading.main_thread()
        # Only there may signals be handled; and where Ctrl-C is ignored, it stays so.
        if in_main_thread and callable(signal.getsignal(signal.SIGINT)):
            self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._restore()

    def _restore(self) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
        if self._bar is not None:
            self._bar.stop()

    def stage(self, name: str, at_start: bool = False) -> None:
        """Name what is going on now; `at_start`: on the way to where the fit begins."""
        self._stage, self._at_start, self._told = name, at_start, 0

    def __call__(self, iteration: int, bound: float, change: float, theta: Params) -> bool:
        """One more iteration is done; whether the user has asked to stop."""
        if self._callback is not None and not self._at_start:
            self._told += 1  # a stage may be several runs, each of which counts from 1
            bound_of_user, params = bound + self._offset, self._params_out(theta)
            told = Iteration(self._told, self._stage, bound_of_user, change, params)
            self.interrupted |= bool(self._callback(told))
        if self._show and time.perf_counter() - self._began >= QUIET_SECONDS:
            draw = self._draw if somebody_looks() else self._log
            draw(iteration, bound + self._offset, change)
        return self.interrupted

    def _log(self, iteration: int, bound: float, change: float) -> None:
        if time.perf_counter() - self._logged >= LOG_SECONDS:
            self._logged = time.perf_counter()
            line = f"{self._stage}: iteration {iteration}, bound {bound:.3f}, change {change:.1e}"
            print(line, file=sys.stderr, flush=True)

    def _draw(self, iteration: int, bound: float, change: float) -> None:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.fields[stage]}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("bound {task.fields[bound]:.3f}  change {task.fields[change]:.1e}"),
                TextColumn("{task.fields[rate]:.1f} it/s"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            fields = {"stage": self._stage, "bound": bound, "change": change, "rate": 0.0}
            self._task = self._bar.add_task("fit", total=self._max_iter, **fields)
            self._bar.start()
            self._shown_from = (time.perf_counter(), 0)
        began, count = self._shown_from
        self._shown_from = (began, count + 1)
        rate = count / max(time.perf_counter() - began, 1e-9)
        self._bar.update(
            self._task,
            completed=iteration,
            stage=self._stage,
            bound=bound,
            change=change,
            rate=rate,
        )


def somebody_looks() -> bool:
    """Whether there is a terminal, or a notebook that can draw a line anew."""
    console = Console(stderr=True)
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
