"""Chances to go from state to state: as a matrix, or as a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.components.clusters import SHARES
from avem.fits.plots.figures import DARK, Size, panels, short_states, state_colors
from avem.fits.predict.at import at_words, average_moves, occupancy
from avem.fits.questions.clock import time_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from avem.fits.hmm_fit import HMMFit

KINDS = ("matrix", "graph")
_FAINT = 0.02
"""Arrows of less than this share of the largest move are left out."""
_FEW, _TOLD = 4, 0.25
"""Of more states than this, moves of less than this share of the largest have no number."""
_LARGEST, _SMALLEST = 0.5, 0.22
"""Radius of a state that all rows are in, or none; the states lie round a circle of radius 1."""
_BEND = 0.22


def transitions_figure(fit: HMMFit, kind: str, ax: Any, figsize: Size | None) -> Figure:
    """At effect 0 and average covariates; a panel for every cluster, where there are several."""
    n, types = fit.model.n_states, fit.model.n_clusters
    size = (2.2 + 0.7 * n, 1.6 + 0.6 * n) if kind == "matrix" else _graph_size(n)
    figure, axes = panels(types, ax, figsize, size, 3)
    if types == 1:
        _draw(axes[0], fit, kind, occupancy(fit), "")
        return figure
    own = fit._memberships(fit._own_data) if fit.panel is not None and kind == "graph" else None
    for c, panel in enumerate(axes):
        one = fit._of_cluster(c)
        share = occupancy(replace(one, panel=None)) if own is None else _share(fit, own[:, c])
        _draw(panel, one, kind, share, f"Cluster {c}: {fit.params[SHARES][c]:.0%} of subjects\n")
    return figure


def _share(fit: HMMFit, weight: np.ndarray) -> np.ndarray:
    """(states,) share of the rows, each counting as its subject does."""
    data = fit._own_data
    of_rows = weight[data.panel.row_subject]
    return of_rows @ fit._state_probabilities(data) / of_rows.sum()


def _draw(panel: Axes, fit: HMMFit, kind: str, share: np.ndarray, words: str) -> None:
    """One chain; `words` are the first of its title."""
    matrix = average_moves(fit)
    labels = short_states(fit, 16)
    where = at_words(fit.model.transition.lines)
    over = f" over 1 {time_words(fit, 1)}" if fit.model.continuous else ""
    words += f"Transition probabilities{over}" + (f"\n{where.strip()}" if where else "")
    if kind == "matrix":
        _draw_matrix(panel, matrix, labels)
    else:
        words += _draw_graph(panel, matrix, labels, share)
    panel.set_title(words, fontsize="medium" if "\n" in words or kind == "graph" else None)


def _draw_matrix(ax: Axes, matrix: np.ndarray, labels: list[str]) -> None:
    n = len(matrix)
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=1.15)
    for k, m in np.ndindex(matrix.shape):
        ink = "white" if matrix[k, m] > 0.6 else DARK
        ax.text(m, k, _probability(float(matrix[k, m])), ha="center", va="center", color=ink)
    numbered = labels == [f"state {k}" for k in range(n)]
    below = [str(k) for k in range(n)] if numbered else labels
    long = max(map(len, below)) > 8
    ax.set_xticks(range(n), below, rotation=45 if long else 0, ha="right" if long else "center")
    ax.set_yticks(range(n), labels)
    ax.set(xlabel="to state" if numbered else "to", ylabel="from")
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        for tick, color in zip(ticks, state_colors(n), strict=True):
            tick.set(color=color, fontweight="bold")


# --- graph ----------------------------------------------------------------------------------------


def _graph_size(n: int) -> Size:
    return (5.2, 3.2) if n <= 2 else (5.2, 4.8) if n <= _FEW else (7.4, 6.8)


def _draw_graph(ax: Axes, matrix: np.ndarray, labels: list[str], share: np.ndarray) -> str:
    """States as discs of the size of their share of rows, moves as arrows; words for the title."""
    from matplotlib.patches import Circle

    n, colors = len(matrix), state_colors(len(matrix))
    turn = np.pi - 2 * np.pi * np.arange(n) / n
    place = np.stack([np.cos(turn), np.sin(turn)], axis=1) if n > 1 else np.zeros((1, 2))
    room = 1.0 if n <= _FEW else 0.85 * _FEW / n
    radius = room * np.clip(_LARGEST * np.sqrt(share), _SMALLEST, None)
    moves = matrix * (1 - np.eye(n))
    largest = float(moves.max(initial=0.0))
    shown = moves > _FAINT * largest
    told = shown if n <= _FEW else moves > _TOLD * largest
    for k, m in np.argwhere(shown):
        size = float(moves[k, m]) / largest
        _draw_move(ax, place[[k, m]], radius[[k, m]], size, colors[k], f"{k} to {m}")
        box: dict[str, Any] = {"fc": "white", "ec": "none", "alpha": 0.85, "pad": 1}
        ink: dict[str, Any] = {"color": DARK, "zorder": 2, "fontsize": "small", "bbox": box}
        if told[k, m]:
            at = _on_arrow(place[[k, m]], radius[[k, m]], 0.36 if n < _FEW else 0.22)
            _write(ax, at, _probability(float(moves[k, m])), **ink)
    for k, color in enumerate(colors):
        ax.add_patch(Circle(tuple(place[k]), radius[k], color=color, gid=f"state {k}", zorder=3))
        stay = _probability(float(matrix[k, k]))
        ink = {"color": "white", "fontweight": "bold", "zorder": 4}
        _write(ax, place[k], stay, fontsize="medium" if n <= _FEW else "small", **ink)
        out = place[k] if n > 1 else np.array([0.0, 1.0])
        across = "center" if abs(out[0]) < 0.3 else "left" if out[0] > 0 else "right"
        up = "center" if abs(out[1]) < 0.3 else "bottom" if out[1] > 0 else "top"
        words, ink = f"{labels[k]}\n{share[k]:.0%} of rows", {"color": color, "fontweight": "bold"}
        _write(ax, place[k] + (radius[k] + 0.07) * out, words, ha=across, va=up, **ink)
    tall = 1.6 if n > 2 else 0.9
    ax.set(xlim=(-2.0, 2.0), ylim=(-tall, tall), aspect="equal")
    ax.set_axis_off()
    words = "\n(in each state: probability to stay"
    left_out = int(((moves > 0) & ~shown).sum())
    if left_out:
        words += f"; {left_out} move{'s'[: left_out != 1]} below {_FAINT * largest:.2g} left out"
    if (shown & ~told).any():
        words += f";\narrows without a number: below {_TOLD * largest:.2g}"
    return words + ")"


def _ends(place: np.ndarray, radius: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where an arrow between two discs begins and ends, and the side that it bends to."""
    way = (place[1] - place[0]) / np.linalg.norm(place[1] - place[0])
    side = np.array([way[1], -way[0]])
    leave, reach = (way + side) / np.sqrt(2), (side - way) / np.sqrt(2)
    return place[0] + 1.05 * radius[0] * leave, place[1] + 1.1 * radius[1] * reach, side


def _on_arrow(place: np.ndarray, radius: np.ndarray, t: float) -> np.ndarray:
    """A point of the parabola that the arrow is, a share t of the way from its start."""
    start, end, side = _ends(place, radius)
    control = (start + end) / 2 + _BEND * float(np.linalg.norm(end - start)) * side
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * end


def _draw_move(
    ax: Axes, place: np.ndarray, radius: np.ndarray, size: float, color: str, name: str
) -> None:
    from matplotlib.patches import FancyArrowPatch

    start, end, _ = _ends(place, radius)
    lw = 0.8 + 4.5 * size
    head = f"-|>,head_length={4 + 0.9 * lw},head_width={2 + 0.6 * lw}"
    bent: dict[str, Any] = {"connectionstyle": f"arc3,rad={_BEND}", "arrowstyle": head}
    ends: dict[str, Any] = {"shrinkA": 0, "shrinkB": 0, "color": color, "alpha": 0.75}
    ax.add_patch(FancyArrowPatch(tuple(start), tuple(end), lw=lw, gid=name, **bent, **ends))


def _write(ax: Axes, at: np.ndarray, words: str, **style: Any) -> None:
    middle: dict[str, Any] = {"ha": "center", "va": "center"}
    ax.text(float(at[0]), float(at[1]), words, **(middle | style))


def _probability(p: float) -> str:
    if 0 < p < 0.0005:
        return "<0.001"
    return ">0.999" if 0.9995 <= p < 1 else f"{p:.3f}"
