"""What a bootstrap found: the replicates, and standard errors and intervals from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from avem.components.param_info import Params, check_level
from avem.errors import ModelError
from avem.fits.fit import Fit
from avem.fits.uncertainty import PINNED
from avem.inference.stop import Stop

FAILED = "FAILED"
"""The stop of a replicate whose fit raised an error, beside the names of `Stop`."""


@dataclass(frozen=True, eq=False)
class Replicate:
    """The refit to one simulated data set.

    Attributes
    ----------
    number : int
        From 0; it determines the data set.
    stop : str
        The name of a `Stop`, or ``"FAILED"``.
    reason : str
        Why it is left out of the summaries; empty where it is not.
    bound : float
        Of the refit.
    params : dict of str to numpy.ndarray or None
        As in `fit.params`; None where the fit failed.

    Examples
    --------
    >>> boot.done[0].number, boot.done[0].ok
    (0, True)
    """

    number: int
    stop: str
    reason: str = ""
    bound: float = np.nan
    params: Params | None = None

    @property
    def ok(self) -> bool:
        """It counts in the summaries."""
        return self.stop == Stop.CONVERGED.name


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap:
    """A parametric bootstrap of a fit; `avem.bootstrap` makes it.

    Attributes
    ----------
    fit : HMMFit or SSMFit
        The fit that was bootstrapped.
    n : int
        How many replicates were asked for; an interrupted bootstrap has fewer.
    done : tuple of Replicate
        The replicates, by number; `replicates` has them as a table.

    Examples
    --------
    >>> boot.n, boot.n_ok, boot.n_failed
    (2, 2, 0)
    >>> boot.replicates["replicate"].tolist()
    [0, 1]
    """

    fit: Fit[Any, Any]
    n: int
    done: tuple[Replicate, ...]

    @property
    def n_ok(self) -> int:
        """How many replicates converged; the summaries are made of these."""
        return sum(replicate.ok for replicate in self.done)

    @property
    def n_failed(self) -> int:
        """How many replicates failed or did not converge."""
        return len(self.done) - self.n_ok

    def table(self, level: float = 0.95) -> Any:
        """`fit.table()` with the replicates' spread: se, bias, and the percentile interval.

        A hundred replicates are enough for ``se`` and ``bias``, intervals want a thousand.

        Parameters
        ----------
        level : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            Of the data's own kind: the columns of `fit.table()`, with ``se`` (the replicates'
            standard deviation), ``bias`` (their mean less the estimate), ``lower``, ``upper`` and
            ``note``. Parameters that were held have none of these numbers, and ``note`` says so.

        Examples
        --------
        >>> list(boot.table().columns[-5:])
        ['se', 'bias', 'lower', 'upper', 'note']
        """
        check_level(level)
        if self.n_ok < 2:
            raise ModelError(
                f"A standard error needs 2 replicates that converged; here are {self.n_ok}. "
                + self.left_out()
            )
        table = self.fit._table()
        values = np.array(
            [
                self.fit.values_of(replicate.params)
                for replicate in self.done
                if replicate.ok and replicate.params is not None
            ]
        )
        tail = (1 - level) / 2
        lower, upper = np.quantile(values, [tail, 1 - tail], axis=0)
        spread = {
            "se": values.std(axis=0, ddof=1),
            "bias": values.mean(axis=0) - table["estimate"].to_numpy(float),
            "lower": lower,
            "upper": upper,
        }
        held = table["parameter"].isin(self.fit.info.fixed).to_numpy()
        pinned = self.fit.model.pinned_rows(self.fit.info.fixed, self.fit.theta) & ~held
        none = held | pinned
        known = {name: np.where(none, np.nan, column) for name, column in spread.items()}
        note = np.where(held, "held", np.where(pinned, PINNED, "")).astype(object)
        found = table.assign(**known, note=note)
        return self.fit._own_kind(found)

    @cached_property
    def replicates(self) -> pd.DataFrame:
        """A row per replicate: number, stop, reason, bound, and every parameter's every entry."""
        rows = []
        for replicate in self.done:
            row: dict[str, Any] = {
                "replicate": replicate.number,
                "stop": replicate.stop,
                "reason": replicate.reason,
                "bound": replicate.bound,
            }
            for name, value in self.fit.params.items():
                found = np.full(value.shape, np.nan)
                if replicate.params is not None:
                    found = replicate.params[name]
                for place in np.ndindex(value.shape):
                    row[f"{name}[{','.join(map(str, place))}]"] = found[place]
            rows.append(row)
        return pd.DataFrame(rows)

    def left_out(self) -> str:
        """In a sentence, how many replicates are left out of the summaries and why; or nothing.

        Returns
        -------
        str

        Examples
        --------
        >>> boot.left_out()
        ''
        """
        if not self.n_failed:
            return ""
        reasons = Counter(replicate.reason for replicate in self.done if not replicate.ok)
        listed = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3))
        more = f"; and {len(reasons) - 3} further reasons" if len(reasons) > 3 else ""
        return (
            f"{self.n_failed} of {len(self.done)} replicates are left out of the summaries: "
            f"{listed}{more}"
        )

    def __repr__(self) -> str:
        model, done = self.fit.model, len(self.done)
        words = f"{done} of {self.n} replicates" if done < self.n else f"{done} replicates"
        if self.n_failed:
            words += f", {self.n_failed} left out"
        return f"Bootstrap({model.spec.text!r}, {model.size_name}={model.size}, {words})"
