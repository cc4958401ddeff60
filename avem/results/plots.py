"""Pictures of a fit. Each is a matplotlib Figure: a notebook shows it, `.savefig(path)` writes it.

Nothing here touches pyplot, so no window opens and no figure stays in memory.
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from avem.data import Panel
from avem.data.frames import examples, numbers
from avem.errors import DataError, ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.results.hmm_fit import HMMFit

Size = tuple[float, float]

_OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DARK, _GREY = "#222222", "#8a8a8a"
_MAX_OUTCOMES = 4
"""Columns of `states` when no outcome is chosen."""
_LABELLED, _SEPARATE = 60, 2000
"""Up to how many subjects `effects` names each, and draws an interval for each."""


def state_colors(n_states: int) -> list[str]:
    """One colour per state, the same in every picture, told apart by colour-blind readers."""
    if n_states <= len(_OKABE_ITO):
        return list(_OKABE_ITO[:n_states])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(color) for color in colormaps["viridis"](np.linspace(0, 0.85, n_states))]


class Plots:
    """The pictures of one fit: `fit.plot.states()`, `.effects()`, `.bound()`, ..."""

    def __init__(self, fit: HMMFit) -> None:
        self._fit = fit

    def states(
        self,
        subjects: Any = None,
        outcome: str | None = None,
        max_subjects: int = 6,
        *,
        max_rows: int = 300,
        figsize: Size | None = None,
    ) -> Figure:
        """Outcomes over time, coloured by decoded state, with each state's mean for the subject.

        Parameters
        ----------
        subjects
            A label or a list of labels; by default `max_subjects` from the shortest to the longest.
        outcome
            By default all, up to four.
        max_rows
            Only so many rows are drawn of each subject, from its first.
        """
        fit, panel = self._fit, self._fit._panel(None)
        names = fit.model.design.outcomes
        outcomes = self._outcomes(outcome)[:_MAX_OUTCOMES]
        shown = _choose_subjects(panel, subjects, max_subjects)
        tracks, time_label, are_dates = _tracks(fit, panel, shown, max_rows)
        ends = np.concatenate([track.edges for track in tracks])
        # Subjects of different years share no axis: each would be a sliver of it.
        together = np.ptp(ends) <= 2 * max(np.ptp(track.edges) for track in tracks)
        width = 10.0 if len(outcomes) < 3 else 4.0 * len(outcomes)
        figure = _new_figure(figsize or (width, 1.2 + 1.55 * len(shown)))
        grid = figure.subplots(
            len(shown), len(outcomes), squeeze=False, sharey="col", sharex=bool(together)
        )
        colors = state_colors(fit.model.n_states)
        for row, track in zip(grid, tracks, strict=True):
            name = {"rotation": 0, "ha": "right", "va": "center", "fontweight": "bold"}
            row[0].set_ylabel(_plain(track.label), **name)
            for ax, j in zip(row, outcomes, strict=True):
                _draw_track(ax, track, j, colors)
                if are_dates:
                    _write_dates(ax)
        for j, top, bottom in zip(outcomes, grid[0], grid[-1], strict=True):
            top.set_title(_plain(names[j], 60), fontsize="medium")
            bottom.set_xlabel(_plain(time_label, 60))
        title = f"States of {len(tracks):,} of {panel.n_subjects:,} subjects"
        if 1 < len(outcomes) < len(names):
            title += f", first {len(outcomes)} of {len(names)} outcomes"
        if any(track.n_rows > max_rows for track in tracks):
            title += f", first {max_rows:,} rows of each"
        figure.suptitle(title)
        _state_legend(figure, colors)
        return figure

    def effects(
        self, effect: str | None = None, *, ax: Axes | None = None, figsize: Size | None = None
    ) -> Figure:
        """Every subject's effect with its 95% interval, sorted; one panel per effect."""
        names = self._fit.model.effect_names
        if not names:
            raise ModelError("No effects to draw: the formula has no (... | subject) term.")
        chosen = names if effect is None else [_one_of(effect, names, "effect")]
        n = len(self._fit.subjects)
        height = max(2.6, 1.2 + 0.19 * n) if n <= _LABELLED else 5.0
        figure, axes = _panels(len(chosen), ax, figsize, (3.6, height), 4)
        table = self._fit.effects()
        for panel, name in zip(axes, chosen, strict=True):
            _draw_effect(panel, table.loc[table["effect"] == name].sort_values(by="mean"), name)
        if ax is None:
            figure.suptitle(f"Effects of {n:,} subjects, 95% intervals")
        return figure

    def bound(self, *, ax: Axes | None = None, figsize: Size | None = None) -> Figure:
        """The bound at each iteration; beside it, on a log scale, what was still to gain.

        With `ax`, only the first.
        """
        history = np.asarray(self._fit.bound_history, float)
        iteration = np.arange(1, len(history) + 1)
        figure, axes = _panels(1 if ax is not None else 2, ax, figsize, (4.6, 3.4), 2)
        mark = "o-" if len(history) <= 40 else "-"
        axes[0].plot(iteration, history, mark, color=_OKABE_ITO[0], ms=3.5)
        axes[0].set(xlabel="iteration", ylabel="bound", title="Bound")
        axes[0].ticklabel_format(axis="y", useOffset=False)
        if np.ptp(history) < 1:  # less than 1 is next to nothing, and must look so
            axes[0].set_ylim(history.mean() + np.array([-1, 1]))
        for later in axes[1:]:
            distance = max(history.max(), self._fit.bound) - history
            left = distance > 0
            later.plot(iteration[left], distance[left], mark, color=_OKABE_ITO[1], ms=3.5)
            later.set(xlabel="iteration", ylabel="distance", title="Distance to the best bound")
            later.set_yscale("log" if left.any() else "linear")
        for panel in axes:
            panel.set_xlim(0.5, len(history) + 0.5)
            panel.xaxis.get_major_locator().set_params(integer=True)
        return figure

    def emissions(
        self, outcome: str | None = None, *, ax: Axes | None = None, figsize: Size | None = None
    ) -> Figure:
        """What each state emits, over all subjects: densities weighted by the states' occupancy.

        The spread is that of the noise plus that of the effects. The bars are the data. With
        covariates, both are at average covariates: each value less what its own add to the mean.
        """
        outcomes = self._outcomes(outcome)
        width = 6.4 if len(outcomes) == 1 else 4.8
        figure, axes = _panels(len(outcomes), ax, figsize, (width, 3.6), 3)
        view = _emissions(self._fit)
        for panel, j in zip(axes, outcomes, strict=True):
            _draw_emission(panel, view, j, self._fit.model.design.outcomes[j])
        if ax is not None:
            ax.legend(fontsize="small")
        else:
            handles, _ = axes[0].get_legend_handles_labels()
            columns = min(len(handles), 3 * min(len(axes), 2))
            figure.legend(handles=handles, loc="outside lower center", ncols=columns)
        return figure

    def transitions(self, *, ax: Axes | None = None, figsize: Size | None = None) -> Figure:
        """The transition matrix, from row to column."""
        matrix = self._fit.params["transition"]
        n = len(matrix)
        figure, (panel,) = _panels(1, ax, figsize, (2.2 + 0.7 * n, 1.6 + 0.6 * n), 1)
        panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1.15)
        for k, m in np.ndindex(matrix.shape):
            ink = "white" if matrix[k, m] > 0.6 else _DARK
            panel.text(m, k, _probability(float(matrix[k, m])), ha="center", va="center", color=ink)
        panel.set_xticks(range(n), [str(k) for k in range(n)])
        panel.set_yticks(range(n), [f"state {k}" for k in range(n)])
        panel.set(xlabel="to state", ylabel="from", title="Transition probabilities")
        for ticks in (panel.get_xticklabels(), panel.get_yticklabels()):
            for tick, color in zip(ticks, state_colors(n), strict=True):
                tick.set(color=color, fontweight="bold")
        return figure

    def _outcomes(self, outcome: str | None) -> list[int]:
        names = list(self._fit.model.design.outcomes)
        if outcome is None:
            return list(range(len(names)))
        return [names.index(_one_of(outcome, names, "outcome"))]


# --- figures --------------------------------------------------------------------------------------


def _new_figure(size: Size) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    # Without this, notebooks show a Figure only once somebody has imported pyplot.
    setattr(figure, "_repr_png_", partial(png, figure))  # noqa: B010
    return figure


def png(figure: Figure, dpi: float = 100) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def _panels(
    n: int, ax: Axes | None, figsize: Size | None, each: Size, columns: int
) -> tuple[Any, list[Any]]:
    """A figure of n panels, `each` of that size in inches; or the caller's own axes."""
    if ax is not None:
        if n != 1:
            raise ModelError(f"There are {n} panels to draw and one ax; name one of them.")
        return ax.figure, [ax]
    columns = min(n, columns)
    rows = -(-n // columns)
    figure = _new_figure(figsize or (each[0] * columns, each[1] * rows))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[n:]:
        unused.remove()
    return figure, list(axes[:n])


def _plain(label: object, longest: int = 24) -> str:
    """A user's label as text: not as mathematics between dollars, and not too long."""
    text = str(label)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")


def _one_of(name: str, names: list[str], what: str) -> str:
    if name not in names:
        raise ModelError(f"There is no {what} {name!r}; choose one of {', '.join(names)}.")
    return name


def _probability(p: float) -> str:
    if 0 < p < 0.0005:
        return "<0.001"
    return ">0.999" if 0.9995 <= p < 1 else f"{p:.3f}"


def _state_legend(figure: Figure, colors: list[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=color, marker="o", ls="", label=f"state {k}")
        for k, color in enumerate(colors)
    ]
    handles.append(Line2D([], [], color=_DARK, lw=1.4, label="state's mean for the subject"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 7))


def _write_dates(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


# --- states over time -----------------------------------------------------------------------------


class _Track(NamedTuple):
    """One subject's rows in order, ready to draw."""

    label: object
    x: np.ndarray
    edges: np.ndarray
    """(rows, 2) where the colour of each row starts and ends."""
    y: np.ndarray
    mean: np.ndarray
    """(rows, outcomes) the decoded state's mean for the subject, NaN where y is."""
    state: np.ndarray
    starts: np.ndarray
    """(rows,) whether a sequence starts here."""
    n_rows: int
    """Rows of the subject, drawn or not."""


def _choose_subjects(panel: Panel, wanted: Any, max_subjects: int) -> np.ndarray:
    """Places in `panel.subjects` of the subjects to draw."""
    if wanted is None:
        by_length = np.argsort(np.bincount(panel.row_subject), kind="stable")
        n = max(1, min(max_subjects, panel.n_subjects))
        return np.sort(by_length[np.linspace(0, panel.n_subjects - 1, n).round().astype(int)])
    is_list = isinstance(wanted, list | tuple | set | np.ndarray | pd.Index | pd.Series)
    labels = list(wanted) if is_list else [wanted]
    places = pd.Index(panel.subjects).get_indexer(pd.Index(labels))
    unknown = [label for label, place in zip(labels, places, strict=True) if place < 0]
    if unknown or not labels:
        known = examples(panel.subjects.tolist())
        what = f"There is no subject {examples(unknown)}" if labels else "subjects is empty"
        raise DataError(f"{what}. The subjects are {known}.")
    return places


def _tracks(
    fit: HMMFit, panel: Panel, shown: np.ndarray, max_rows: int
) -> tuple[list[_Track], str, bool]:
    """The subjects to draw, what their x is, and whether it is dates."""
    data = fit.model.design.apply(panel)
    state = np.asarray(fit.decode())
    mean = np.where(np.isnan(data.Y), np.nan, _means(fit, data.A, state, panel.row_subject))
    time, are_dates = _times(panel)
    orders = [_in_order(panel, np.flatnonzero(panel.row_subject == i), time) for i in shown]
    if time is not None and not all(_reads_as_time(time[o], panel.row_lane[o]) for o in orders):
        time = None
    tracks = []
    for i, order in zip(shown, orders, strict=True):
        rows = order[: max(1, max_rows)]
        x = np.arange(len(rows), dtype=float) if time is None else time[rows]
        starts = np.diff(panel.row_lane[rows], prepend=-1) != 0
        drawn = (data.Y[rows], mean[rows], state[rows])
        tracks.append(_Track(panel.subjects[i], x, _edges(x, starts), *drawn, starts, len(order)))
    if time is not None:
        return tracks, str(panel.time), are_dates
    return tracks, "row" if panel.sequence is None else "row, sequences side by side", False


def _means(fit: HMMFit, a: np.ndarray, state: np.ndarray, subject: np.ndarray) -> np.ndarray:
    """(rows, outcomes) B_k x + F_i z for design columns `a` (rows, columns)."""
    x, z = (a[:, list(columns)] for columns in (fit.model.design.x_cols, fit.model.design.z_cols))
    fixed = np.einsum("rjm,rm->rj", fit.params["coef"][state], x)
    own = fit.effects_mean[subject].reshape(*fixed.shape, z.shape[1])
    return fixed + np.einsum("rje,re->rj", own, z)


def _times(panel: Panel) -> tuple[np.ndarray | None, bool]:
    """(rows,) the time column as numbers, if it can be, and whether they are dates."""
    if panel.time is None:
        return None, False
    column = pd.Series(panel.table[panel.time])
    values = numbers(column)
    if values is not None:
        return values, False
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_localize(None)
    if pd.api.types.infer_dtype(column) not in ("datetime", "datetime64", "date"):
        return None, False
    from matplotlib.dates import date2num

    return np.asarray(date2num(pd.to_datetime(column).to_numpy("datetime64[ns]")), float), True


def _in_order(panel: Panel, rows: np.ndarray, time: np.ndarray | None) -> np.ndarray:
    """A subject's rows, sequence after sequence, sequences by their first time."""
    lane, step = panel.row_lane[rows], panel.row_step[rows]
    if time is None:
        return rows[np.lexsort((step, lane))]
    first = pd.Series(time[rows]).groupby(lane).transform("min").to_numpy()
    return rows[np.lexsort((step, lane, first))]


def _reads_as_time(x: np.ndarray, lane: np.ndarray) -> bool:
    """Whether sequences follow each other in time, without pauses that dwarf them."""
    step = np.diff(x)
    pauses = step[np.diff(lane) != 0].sum()
    return bool((step > 0).all() and 2 * pauses <= np.ptp(x))


def _edges(x: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(rows, 2) each row's stretch: half way to its neighbours, but not far into a pause."""
    step = np.diff(x)
    inside = step[~starts[1:]]
    usual = float(np.median(inside)) if len(inside) else 1.0
    half = np.minimum(step / 2, np.where(starts[1:], usual / 2, usual))
    end = [usual / 2]
    return np.stack([x - np.concatenate([end, half]), x + np.concatenate([half, end])], axis=1)


def _draw_track(ax: Axes, track: _Track, j: int, colors: list[str]) -> None:
    x, y, mean, starts, edges = track.x, track.y[:, j], track.mean[:, j], track.starts, track.edges
    # Lines break between sequences, and where a pause leaves rows apart.
    apart = starts[1:] | (edges[1:, 0] - edges[:-1, 1] > 1e-9 * np.ptp(edges))
    breaks = np.flatnonzero(apart) + 1
    line = (np.insert(x, breaks, np.nan), np.insert(y, breaks, np.nan))
    ax.plot(*line, color=_GREY, lw=0.6, zorder=2, gid="data")
    apart = np.append(apart, True)
    steps = np.stack([mean, mean, np.where(apart, np.nan, mean)], axis=1)
    ax.plot(edges[:, [0, 1, 1]].ravel(), steps.ravel(), color=_DARK, lw=1.2, zorder=3, gid="mean")
    size = float(np.clip(60 / np.sqrt(len(x)), 1.5, 4))
    background: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "alpha": 0.2, "lw": 0}
    for k, color in enumerate(colors):
        here = track.state == k
        bars = np.stack([edges[here, 0], edges[here, 1] - edges[here, 0]], axis=1)
        ax.broken_barh(bars.tolist(), (0, 1), color=color, zorder=0, **background)
        ax.plot(x[here], y[here], "o", ms=size, color=color, mec="none", zorder=4, gid=f"state {k}")
    for b in np.flatnonzero(starts)[1:]:
        ax.axvline((edges[b - 1, 1] + edges[b, 0]) / 2, color=_DARK, lw=0.8, ls=(0, (4, 3)))
    ax.margins(x=0.01)


# --- effects and emissions ------------------------------------------------------------------------


def _draw_effect(ax: Axes, table: pd.DataFrame, name: str) -> None:
    """A caterpillar: rows of `table` are subjects in order of their mean."""
    n = len(table)
    place = np.arange(n)
    mean, lower, upper = (table[column].to_numpy() for column in ("mean", "lower", "upper"))
    color = _OKABE_ITO[0]
    ax.axvline(0, color=_GREY, lw=0.8, zorder=0)
    if n > _SEPARATE:
        ax.fill_betweenx(place, lower, upper, color=color, alpha=0.3, lw=0)
        ax.plot(mean, place, color=_DARK, lw=1.2)
    else:
        room = 280 / n  # points for each subject
        ax.hlines(place, lower, upper, color=color, lw=np.clip(room / 2, 0.3, 1.4), alpha=0.7)
        ax.plot(mean, place, "o", color=_DARK, mec="none", ms=np.clip(room, 0.9, 4))
    if n <= _LABELLED:
        ax.set_yticks(place, [_plain(label) for label in table.iloc[:, 0]], fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} subjects, sorted")
    ax.set_ylim(-0.7, n - 0.3)
    ax.set_title(_plain(name, 40), fontsize="medium")


class _Emissions(NamedTuple):
    """The states' densities at average covariates, and the data brought there."""

    y: np.ndarray | None
    """(rows, outcomes); None for a fit without its data."""
    weight: np.ndarray
    """(states,) occupancy."""
    mean: np.ndarray
    sd: np.ndarray
    """(states, outcomes) of noise and effects together."""
    where: str


def occupancy(fit: HMMFit) -> np.ndarray:
    """(states,) share of the rows in each state; without data, that of the chain in the end."""
    states = range(fit.model.n_states)
    if fit.panel is not None:
        table = fit.state_probabilities()
        return np.array([np.asarray(table[f"state_{k}"]).mean() for k in states])
    # Staying put every second step changes no long-run share, but ends any cycling.
    lazy = (fit.params["transition"] + np.eye(len(states))) / 2
    share = fit.params["initial"] @ np.linalg.matrix_power(lazy, 1 << 20)
    return share / share.sum()


def _emissions(fit: HMMFit) -> _Emissions:
    design, params, family = fit.model.design, fit.params, fit.model.family
    is_constant = np.array([name == "Intercept" for name in design.columns], bool)
    y, at, where = None, is_constant.astype(float), " at covariates 0"
    if fit.panel is not None:
        data = design.apply(fit.panel)
        at, where = data.A[~np.isnan(data.Y).all(1)].mean(0), " at average covariates"
        state = np.asarray(fit.decode())
        y = data.Y - _means(fit, data.A - at, state, fit.panel.row_subject)
    x, z, p = at[list(design.x_cols)], at[list(design.z_cols)], len(design.outcomes)
    block = params["effect_covariance"].reshape(p, len(z), p, len(z))
    between = np.einsum("a,jajb,b->j", z, block, z)
    noise = family.noise_from_params(params[family.noise_name], p)
    sd = np.sqrt(np.diagonal(noise, axis1=1, axis2=2) + between)
    where = "" if is_constant.all() else where
    return _Emissions(y, occupancy(fit), params["coef"] @ x, sd, where)


def _draw_emission(ax: Axes, view: _Emissions, j: int, name: str) -> None:
    mean, sd = view.mean[:, j], view.sd[:, j]
    low, high = (mean - 4 * sd).min(), (mean + 4 * sd).max()
    label = _plain(name, 40) + view.where
    if view.y is not None:
        y = view.y[~np.isnan(view.y[:, j]), j]
        # A single wild value must not squeeze everything else into one bar.
        low, high = np.quantile(y, [0.001, 0.999])
        low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
        beyond = int(((y < low) | (y > high)).sum())
        label += f" ({beyond:,} of {len(y):,} lie beyond)" if beyond else ""
        bins = int(np.clip(2 * len(y) ** (1 / 3), 10, 80))
        share = np.full(len(y), bins / (high - low) / len(y))
        ax.hist(y, bins, range=(low, high), weights=share, color="#d0d0d0", label="data")
    grid = np.linspace(low, high, 600)
    density = view.weight[:, None] * norm.pdf(grid, mean[:, None], sd[:, None])
    for k, color in enumerate(state_colors(len(mean))):
        ax.plot(grid, density[k], color=color, lw=2, label=f"state {k} ({view.weight[k]:.0%})")
    ax.plot(grid, density.sum(0), color=_DARK, lw=1, ls="--", label="all states")
    ax.set(xlabel=label, ylabel="density", xlim=(low, high), ylim=(0, None))
