"""Watching a fit: a line that shows how it is doing, and Ctrl-C that stops it gently."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from avem.components.param_info import Params
from avem.errors import ModelError
from avem.inference.display import Interruptible


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


class Watch(Interruptible):
    """Watches a fit from the outside; call it after each iteration.

    Shows nothing for two seconds, then the iteration, the bound and the rate, on stderr. The first
    Ctrl-C lets the iteration at hand finish and ends the fit with what it has, so no compiled work
    is torn apart. A `callback` is told of the iterations after the starts, with what `params_out`
    makes of theta; `about` says where the shards are, if that is worth a word.
    """

    def __init__(
        self,
        show: bool | None,
        max_iter: int,
        offset: float = 0.0,
        callback: Callback | None = None,
        params_out: Callable[[Params], Params] = dict,
        about: Callable[[], str] = str,
    ) -> None:
        if callback is not None and not callable(callback):
            raise ModelError(f"callback is {callback!r}; a function of one argument is wanted.")
        super().__init__(
            show,
            max_iter,
            TextColumn("{task.fields[stage]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("bound {task.fields[bound]:.3f}  change {task.fields[change]:.1e}"),
            TextColumn("{task.fields[rate]:.1f} it/s"),
            TimeElapsedColumn(),
        )
        self._offset = offset  # from the bound of standardised data to that of the user's
        self._stage, self._at_start, self._told = "starts", True, 0
        self._callback, self._params_out, self._about = callback, params_out, about
        self._first_drawn, self._n_drawn = 0.0, 0

    def stage(self, name: str, at_start: bool = False) -> None:
        """Name what is going on now; `at_start`: on the way to where the fit begins."""
        self._stage, self._at_start, self._told = name, at_start, 0

    def __call__(self, iteration: int, bound: float, change: float, theta: Params) -> bool:
        """One more iteration is done; whether the user has asked to stop."""
        self.to_keep = True
        bound = bound + self._offset
        if self._callback is not None and not self._at_start:
            self._told += 1  # a stage may be several runs, each of which counts from 1
            params = self._params_out(theta)
            told = Iteration(self._told, self._stage, bound, change, params)
            self.interrupted |= bool(self._callback(told))
        if self.is_due():
            about = self._about()
            stage = f"{self._stage} ({about})" if about else self._stage
            line = f"{stage}: iteration {iteration}, bound {bound:.3f}, change {change:.1e}"
            numbers = {"bound": bound, "change": change, "rate": self._rate()}
            self.update(iteration, line, stage=stage, **numbers)
        return self.interrupted

    def _rate(self) -> float:
        """Iterations per second since the first that was shown."""
        now, n = time.perf_counter(), self._n_drawn
        self._first_drawn, self._n_drawn = self._first_drawn or now, n + 1
        return n / max(now - self._first_drawn, 1e-9)
