"""One subject as its rows come: states, effects and the next row, at one cost for every row."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from avem.components.param_info import Params, check_level
from avem.data import Panel
from avem.errors import AvemWarning, DataError, ModelError
from avem.fits.filtering import few_nodes
from avem.fits.monitor_rows import Numbers, Row, RowReader
from avem.fits.predict.ahead import check_ahead
from avem.fits.predict.hmm import known_places, outcome_table
from avem.fits.predict.mixture import mixtures, need_distributions
from avem.fits.words import check_word
from avem.inference.after.filtering import next_row
from avem.models.hmm import HMMModel

if TYPE_CHECKING:
    from avem.families import Custom

_LEAST = -1e300
"""The log weight of a node that is impossible."""


class Known(NamedTuple):
    """All that is kept of the rows so far."""

    now: np.ndarray | None
    """(..., states, nodes) chances after the last row at each node; None: there is no row yet."""
    log_weight: np.ndarray
    """(nodes,) of the effects."""
    tail: tuple[Row, ...] = ()
    """The last rows, as far as the next one looks back to them."""
    sequence: Any = None
    time: Any = None
    n_rows: int = 0
    loglik: float = 0.0
    """log p(rows so far), in the user's units."""


class Monitor:
    """What is known of one subject, from rows that come one after the other.

    `HMMFit.monitor` makes it. The subject's effects are kept as a fixed set of values with
    weights, and the states at each of them: an update costs the same after ten rows and after ten
    thousand, and gives what filtering all rows at once would (`HMMFit.filter`). It holds no rows
    but those that a ``lag()`` looks back to, and can be pickled or saved.

    Attributes
    ----------
    model : HMMModel
        As in the fit.
    params : dict of str to numpy.ndarray
        Those of the fit.
    columns : dict
        The fit's subject, time and sequence columns.
    subject : object
        Its label.
    nodes : numpy.ndarray
        (d, nodes) the values of its effects that are kept, on the scale of the fit.
    known : Known
        What is known after its rows.
    enough : float
        The least of `n_effective` that an update is silent about.
    carried : tuple of str
        The covariates whose gaps are filled by carrying values forward.

    Examples
    --------
    >>> diary = avem.load_affect()
    >>> monitor = fit.monitor(diary[diary["person"] == "p01"].head(10))
    >>> monitor.n_rows
    10
    >>> new = monitor.update(diary.iloc[10])
    >>> round(sum(new.states.values()), 6)
    1.0
    """

    def __init__(
        self,
        model: HMMModel,
        params: Params,
        columns: Mapping[str, str | None],
        subject: Any,
        nodes: np.ndarray,
        known: Known,
        enough: float,
        carried: tuple[str, ...] = (),
    ) -> None:
        self.model, self.params, self.columns = model, params, dict(columns)
        self.subject = subject
        self.nodes, self.known, self.enough, self.carried = nodes, known, enough, carried

    # --- what is known ---------------------------------------------------------------------------

    def update(self, row: Any, future: Mapping[str, Any] | None = None) -> Update:
        """What is known after one more row.

        Parameters
        ----------
        row : dict, Series or DataFrame
            The row: outcomes (None or NaN where missing) and covariates by name; another value of
            the sequence column begins a new sequence, which keeps the effects.
        future : dict, optional
            Covariates of the row after it, for the forecast, where the model has any.

        Returns
        -------
        Update
            ``states``, ``effects``, ``forecast``, ``loglik``.

        Examples
        --------
        >>> diary = avem.load_affect()
        >>> monitor = fit.monitor(subject="p01")
        >>> monitor.update(diary.iloc[0]).forecast["outcome"].tolist()
        ['valence']
        """
        given, known = self._reader.row(row), self.known
        label = given.get(self._reader.subject, self.subject)
        if self.subject is not None and label != self.subject:
            raise DataError(
                f"The row is of subject {label!r}, and this is the monitor of {self.subject!r}. "
                "Every subject needs its own."
            )
        first = self._begins(known, given)
        tail = () if first else known.tail
        given = self._reader.filled(tail, given)
        found = self._reader.read(tail, given, self._label, known.n_rows)
        new = self._followed(known, found, first)
        self.known = self._moved(new, tail, given)
        self.subject = label
        if self.n_effective < self.enough:
            warnings.warn(
                f"{few_nodes(self.nodes.shape[1])}, after {self.n_rows:,} rows of "
                f"{self.subject!r}. Begin a new monitor with all rows: fit.monitor(rows).",
                AvemWarning,
                stacklevel=2,
            )
            self.enough = 0.0  # once
        return Update(self, self.known, new.loglik - known.loglik, future)

    def follow(self, panel: Panel) -> None:
        """Go through all rows of a panel of its subject, which are read at once.

        Parameters
        ----------
        panel : Panel
            The rows.

        Examples
        --------
        >>> monitor = fit.monitor(subject="p01")
        >>> diary = avem.load_affect()
        >>> own = avem.Panel.from_frame(diary[diary["person"] == "p01"], "person", "beep", "day")
        >>> monitor.follow(own)
        >>> monitor.n_rows == own.n_rows
        True
        """
        if self.carried and panel.carried is None:
            panel = panel.carry_forward(self.carried)
        data, order = self.model.read(panel), panel.order
        for row in order:
            possible = None if data.possible is None else data.possible[row]
            found = Numbers(data.Y[[row]], data.A[[row]], possible)
            self.known = self._followed(self.known, found, panel.row_step[row] == 0)
        last = order[panel.row_lane[order] == panel.row_lane[order[-1]]]
        for row in last[-(self._reader.n_back + 1) :]:
            given = {str(name): panel.table[name].iloc[row] for name in panel.table}
            self.known = self._moved(self.known, self.known.tail, self._reader.row(given))

    @property
    def states(self) -> dict[str, float]:
        """The probability of each state at the last row, given it and all before.

        Examples
        --------
        >>> diary = avem.load_affect()
        >>> list(fit.monitor(diary[diary["person"] == "p01"]).states)
        ['state_0', 'state_1']
        """
        return self._states(self.known)

    @property
    def effects(self) -> pd.DataFrame:
        """The subject's effects: ``effect``, ``mean`` and ``sd``, given all rows so far.

        Examples
        --------
        >>> list(fit.monitor(subject="p01").effects.columns)
        ['effect', 'mean', 'sd']
        """
        return self._effects(self.known)

    @property
    def n_rows(self) -> int:
        """How many rows there were.

        Examples
        --------
        >>> fit.monitor(subject="p01").n_rows
        0
        """
        return self.known.n_rows

    @property
    def loglik(self) -> float:
        """The log likelihood of all rows so far, the effects integrated out.

        Examples
        --------
        >>> fit.monitor(subject="p01").loglik
        0.0
        """
        return self.known.loglik

    @property
    def n_effective(self) -> float:
        """How many of the kept values of the effects count: 1 over the sum of squared weights.

        Examples
        --------
        >>> fit.monitor(subject="p01").n_effective > 20
        True
        """
        return float(1.0 / (np.exp(self.known.log_weight) ** 2).sum())

    def forecast(
        self,
        future: Mapping[str, Any] | None = None,
        *,
        of: Literal["outcomes", "states"] = "outcomes",
        level: float = 0.95,
    ) -> pd.DataFrame:
        """The next row, a mixture over states and effects, given all rows so far.

        Parameters
        ----------
        future : dict, optional
            Its covariates, where the model has any; its time, in continuous time.
        of : {"outcomes", "states"}
            What to predict.
        level : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            As `HMMFit.predict` gives it: NaN where a ``lag()`` looks back to a missing value, or
            to none.

        Examples
        --------
        >>> diary = avem.load_affect()
        >>> monitor = stressed.monitor(diary[diary["person"] == "p01"])
        >>> monitor.forecast({"stress": 0.5}, of="states").columns.tolist()
        ['state', 'probability']
        """
        return self._forecast(self.known, future, of, level)

    # --- files -----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it into one file, with the parameters of the model; `Monitor.load` reads it.

        Parameters
        ----------
        path : str or path
            The file.

        Examples
        --------
        >>> fit.monitor(subject="p01").save(folder / "p01.monitor")
        """
        from avem.fits.io.monitor_file import save_monitor

        save_monitor(self, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], custom: Custom | Mapping[str, Custom] | None = None
    ) -> Monitor:
        """The monitor that `save` wrote.

        Parameters
        ----------
        path : str or path
            The file; it may come from a stranger: nothing in it is run.
        custom : Custom or dict of str to Custom, optional
            As in `avem.load`.

        Returns
        -------
        Monitor

        Examples
        --------
        >>> fit.monitor(subject="p01").save(folder / "p01.monitor")
        >>> avem.Monitor.load(folder / "p01.monitor").subject
        'p01'
        """
        from avem.fits.io.monitor_file import load_monitor

        return load_monitor(path, custom)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("model", "params", "columns", "subject", "nodes", "known", "enough", "carried")
        return {name: vars(self)[name] for name in kept}

    def __repr__(self) -> str:
        who = "a new subject" if self.subject is None else repr(self.subject)
        if self.known.now is None:
            return f"Monitor({who}: no rows yet)"
        states = ", ".join(f"{name} {chance:.2f}" for name, chance in self.states.items())
        return f"Monitor({who}: {self.n_rows:,} rows, now {states})"

    # --- inside ----------------------------------------------------------------------------------

    @cached_property
    def _reader(self) -> RowReader:
        return RowReader(self.model, self.columns, self.carried)

    @cached_property
    def _theta(self) -> Params:
        return self.model.params_in(self.params)

    @cached_property
    def _own_effects(self) -> np.ndarray:
        """(nodes, d) in the user's units."""
        d, n = self.nodes.shape
        return self.model.effects_out(self.nodes, np.zeros((d, d, n)))[0]

    @cached_property
    def _kernels(self) -> dict[bytes, tuple[Any, np.ndarray]]:
        """By which outcomes are missing, what reads a row."""
        return {}

    @property
    def _label(self) -> Any:
        return "the subject" if self.subject is None else self.subject

    def _begins(self, known: Known, row: Row) -> bool:
        """Whether a row is the first of its sequence; its time must go on otherwise."""
        name = self._reader.sequence
        if known.now is None or (name is not None and row[name] != known.sequence):
            return True
        name = self._reader.time
        if name is not None and name in row and not _is_later(row[name], known.time):
            raise DataError(
                f"The row's {name!r} is {row[name]!r}, and the last one's was {known.time!r}. Rows "
                "come in the order of time; another sequence needs its own label"
                + (" (the fit has no sequence=)." if self._reader.sequence is None else ".")
            )
        return False

    def _ahead(
        self, known: Known, found: Numbers, first: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chances before a row is seen, its log densities, and the row on the scale of the fit."""
        y, a = self.model.scaling.data_in(found.Y, found.A)
        missing = np.isnan(y).tobytes()
        if missing not in self._kernels:
            self._kernels[missing] = self.model.one_row(y, a)
        kernel, seen = self._kernels[missing]
        now = None if first else known.now
        row = (np.nan_to_num(y[0]), a[0], seen[0])
        ahead, table = next_row(kernel, self._theta, self.nodes, *row, now)
        if first and known.now is not None and self.model.n_clusters > 1:  # who it is goes on
            starts = ahead / np.maximum(ahead.sum(1, keepdims=True), 1e-300)
            ahead = starts * known.now.sum(1, keepdims=True)
        return ahead, table, y

    def _followed(self, known: Known, found: Numbers, first: bool) -> Known:
        """What is known once a row is seen."""
        ahead, table, y = self._ahead(known, found, first)
        if found.possible is not None:
            table = np.where(found.possible[:, None], table, -np.inf)
        with np.errstate(divide="ignore"):
            joint = np.log(ahead) + table
        total, share = _normalised(joint, tuple(range(joint.ndim - 1)))
        possible = np.isfinite(total)
        evidence, weight = _normalised(known.log_weight + np.where(possible, total, _LEAST), (0,))
        if evidence < 0.5 * _LEAST:
            raise DataError(
                f"Row {known.n_rows} of {self._label!r} is impossible after those before it: no "
                "state of the model leads to what it says."
            )
        now = np.where(possible, np.exp(share), ahead)
        more = float(evidence + self.model.log_jacobian(y)[0])
        weight = np.maximum(weight, _LEAST)
        new = known._replace(now=now, log_weight=weight, n_rows=known.n_rows + 1)
        return new._replace(loglik=known.loglik + more)

    def _moved(self, known: Known, before: tuple[Row, ...], row: Row) -> Known:
        """With the last row as the next one needs it."""
        read = self._reader
        sequence = None if read.sequence is None else row[read.sequence]
        time = None if read.time is None else row.get(read.time, known.time)
        return known._replace(tail=read.tail(before, row), sequence=sequence, time=time)

    def _shares(self, known: Known) -> np.ndarray:
        """(states, nodes) probabilities after the last row."""
        if known.now is None:
            raise DataError(f"{self!r} has no row yet, so nothing is known of states.")
        return _by_state(known.now) * np.exp(known.log_weight)

    def _states(self, known: Known) -> dict[str, float]:
        return dict(zip(self._names, self._shares(known).sum(1).tolist(), strict=True))

    @property
    def _names(self) -> list[str]:
        return list(self.model.state_names) or [f"state_{k}" for k in range(self.model.n_states)]

    def _effects(self, known: Known) -> pd.DataFrame:
        share, at = np.exp(known.log_weight), self._own_effects
        mean = share @ at
        sd = np.sqrt(share @ (at - mean) ** 2)
        return pd.DataFrame({"effect": self.model.effect_labels, "mean": mean, "sd": sd})

    def _forecast(self, known: Known, future: Any, of: str, level: float) -> pd.DataFrame:
        check_word("of", of, ("outcomes", "states"))
        check_level(level)
        model, row = self.model, self._reader.coming(future, known.sequence)
        now_read = [part for part in model.parts_ahead if part.reads_now(set(model.outcomes))]
        if now_read:
            raise ModelError(
                f"{now_read[0].formula.text!r} reads an outcome of its own row, which is not known "
                "ahead."
            )
        first = self._begins(known, row)
        tail = () if first else known.tail
        panel = self._reader.panel(tail, row, self._label, known.n_rows)
        check_ahead(model, panel, np.array([panel.n_rows - 1]))
        found = self._reader.read(tail, row, self._label, known.n_rows)
        ahead, _, _ = self._ahead(known, found, first)
        weight = (_by_state(ahead) * np.exp(known.log_weight)).T[None]
        if of == "states":
            return pd.DataFrame({"state": self._names, "probability": weight[0].sum(0)})
        need_distributions(model, "Forecasts of a monitor")
        theta = model.in_user_units().params_in(self.params)
        told = known_places(model, panel, found.Y, np.array([panel.n_rows - 1]))
        of_rows = (found.A, found.Y, self._own_effects[None], weight)
        each = (
            (some, place, mixture, told[number])
            for some, number, place, mixture in mixtures(model, theta, np.zeros(1, int), *of_rows)
        )
        return outcome_table(model, each, pd.DataFrame(index=[0]), level)


def _is_later(time: Any, before: Any) -> bool:
    try:
        return bool(time > before)
    except TypeError:  # numbers and dates
        return False


def _normalised(logs: np.ndarray, axis: tuple[int, ...]) -> tuple[Any, np.ndarray]:
    """Logs of sums over axes, and the logs less these, however far from 0 both are."""
    top = logs.max(axis, keepdims=True)
    own = logs - np.where(np.isfinite(top), top, 0.0)
    left = np.asarray(logsumexp(own, axis=axis, keepdims=True))
    return (top + left).squeeze(axis), own - np.where(np.isfinite(left), left, 0.0)


def _by_state(chances: np.ndarray) -> np.ndarray:
    """(states, nodes), what else of the past counts summed over."""
    return chances.sum(tuple(range(chances.ndim - 2)))


class Update:
    """What is known of a subject after a row; `Monitor.update` gives it.

    Attributes
    ----------
    monitor : Monitor
        Whose it is.
    known : Known
        What was known after the row.
    loglik : float
        The log density of the row, given those before.
    future : dict or None
        What `update` was given of the next row.

    Examples
    --------
    >>> new = fit.monitor(subject="p01").update(avem.load_affect().iloc[0])
    >>> list(new.states)
    ['state_0', 'state_1']
    """

    def __init__(self, monitor: Monitor, known: Known, loglik: float, future: Any) -> None:
        self.monitor, self.known, self.future = monitor, known, future
        self.loglik = loglik

    @property
    def states(self) -> dict[str, float]:
        """As `Monitor.states`.

        Examples
        --------
        >>> new = fit.monitor(subject="p01").update(avem.load_affect().iloc[0])
        >>> round(sum(new.states.values()), 6)
        1.0
        """
        return self.monitor._states(self.known)

    @property
    def effects(self) -> pd.DataFrame:
        """As `Monitor.effects`.

        Examples
        --------
        >>> new = fit.monitor(subject="p01").update(avem.load_affect().iloc[0])
        >>> list(new.effects.columns)
        ['effect', 'mean', 'sd']
        """
        return self.monitor._effects(self.known)

    @property
    def forecast(self) -> pd.DataFrame:
        """As `Monitor.forecast`, with the covariates that `update` was given as ``future``.

        Examples
        --------
        >>> row, later = avem.load_affect().iloc[0], {"stress": 0.5}
        >>> stressed.monitor(subject="p01").update(row, future=later).forecast.columns[:2].tolist()
        ['outcome', 'mean']
        """
        return self.monitor._forecast(self.known, self.future, "outcomes", 0.95)

    def __repr__(self) -> str:
        states = ", ".join(f"{name} {chance:.2f}" for name, chance in self.states.items())
        return f"Update({states})"
