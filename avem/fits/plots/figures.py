"""What all pictures share: colours, figures, labels."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from functools import partial
from io import BytesIO
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.errors import ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Size = tuple[float, float]

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DARK, GREY = "#222222", "#8a8a8a"
_LETTER, _HANDLE = 0.085, 0.65
"""Inches that a letter takes, and an entry of a legend beside its letters."""
LABELLED = 60
"""Up to how many subjects, or pairs of them, are named."""


def state_colors(n_states: int) -> list[str]:
    """One colour per state, the same in every picture, told apart by colour-blind readers."""
    if n_states <= len(OKABE_ITO):
        return list(OKABE_ITO[:n_states])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(color) for color in colormaps["viridis"](np.linspace(0, 0.85, n_states))]


def new_figure(size: Size) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    # Without this, notebooks show a Figure only once somebody has imported pyplot.
    setattr(figure, "_repr_png_", partial(png, figure))  # noqa: B010
    return figure


def png(figure: Figure, dpi: float = 100) -> bytes:
    """The figure as the bytes of a PNG file."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        # A user's label may have letters that the font lacks: they are drawn as boxes.
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def panels(
    n: int,
    ax: Any,
    figsize: Size | None,
    each: Size,
    columns: int,
    polar: Collection[int] = (),
) -> tuple[Any, list[Any]]:
    """A figure of n panels, `each` of that size in inches; or the caller's own axes or figure.

    Those in `polar` are circles, unless the caller's axes are not.
    """
    given = _given(ax, n)
    if given is not None:
        return given[0].figure, given
    columns = min(n, columns)
    rows = -(-n // columns)
    figure = ax if ax is not None else new_figure(figsize or (each[0] * columns, each[1] * rows))
    shapes = ["polar" if i in polar else None for i in range(n)]
    made = [figure.add_subplot(rows, columns, i + 1, projection=s) for i, s in enumerate(shapes)]
    return figure, made


def grid(rows: int, columns: int, ax: Any, size: Size, **shared: Any) -> tuple[Any, np.ndarray]:
    """A figure of (rows, columns) panels; or the caller's own axes, row by row, or figure."""
    given = _given(ax, rows * columns)
    if given is not None:
        every = np.empty(len(given), object)
        every[:] = given
        return given[0].figure, every.reshape(rows, columns)
    figure = new_figure(size) if ax is None else ax
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def whole(ax: Any) -> bool:
    """Whether a figure is the picture's alone: its own, or one that the caller gave to fill."""
    return ax is None or hasattr(ax, "subplots")


def _given(ax: Any, n: int) -> list[Any] | None:
    """The caller's own axes, if they are axes."""
    if whole(ax):
        return None
    several = isinstance(ax, Iterable)
    given = list(np.ravel(np.asarray(ax, object))) if several else [ax]
    wrong = [one for one in given if not hasattr(one, "get_xaxis_transform")]
    if wrong:
        raise ModelError(
            f"ax is {_kind(wrong[0])}; axes of matplotlib are wanted, a list of them, or a figure."
        )
    if len(given) != n:
        many = f"{len(given)} axes" if several else "one ax; name one of them"
        raise ModelError(f"There are {n} panels to draw and {many}, or give a figure as ax.")
    return given


def _kind(thing: object) -> str:
    return f"a {type(thing).__name__}"


def plain(label: object, longest: int = 24) -> str:
    """A user's label as text: not as mathematics between dollars, and not too long."""
    text = str(label)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")


def short_states(fit: Any, longest: int = 24) -> list[str]:
    """What the states are called, in short, and no two alike.

    Names are cut at their ends, or else in the middle, or else begin with their numbers.
    """
    labels = [str(label) for label in fit.state_labels]
    short = [plain(label, longest) for label in labels]
    if len(set(short)) == len(short):
        return short
    head, tail = longest // 2, longest - longest // 2 - 1
    cut = [s if len(s) <= longest else f"{s[:head]}…{s[-tail:]}" for s in labels]
    alike = len(set(cut)) < len(cut)
    return [plain(f"{k}: {s}" if alike else s, longest) for k, s in enumerate(cut)]


def one_of(name: str, names: list[str], what: str) -> str:
    if name not in names:
        raise ModelError(f"There is no {what} {name!r}; choose one of {', '.join(names)}.")
    return name


def line(label: str, color: str, lw: float | None = 1.8, **style: Any) -> Any:
    """A handle of a legend: a line; of a width of None, as matplotlib has it."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, label=label, linewidth=lw, **style)


def dot(label: str, color: str = DARK, marker: str = "o", size: float | None = 5) -> Any:
    """A handle of a legend: a dot."""
    return line(label, color, None, marker=marker, linestyle="", markersize=size)


def state_dots(fit: Any, marker: str = "o") -> list[Any]:
    """Handles of a legend: the states."""
    labels = short_states(fit)
    pairs = zip(labels, state_colors(len(labels)), strict=True)
    return [dot(label, color, marker, size=None) for label, color in pairs]


def title(figure: Any, ax: Any, words: str, **options: Any) -> None:
    """Above all panels of a figure that is the picture's alone."""
    if whole(ax):
        figure.suptitle(words, **options)


def legend(figure: Any, ax: Any, handles: list[Any], most: int, **options: Any) -> None:
    """Beneath all panels, at most so many beside each other, and no more than there is room for.

    In the last of the caller's axes, where there are any.
    """
    if whole(ax):
        longest = max(len(str(handle.get_label())) for handle in handles)
        room = int(_width(figure) / (_HANDLE + longest * _LETTER))
        columns = max(1, min(len(handles), most, room))
        columns = -(-len(handles) // -(-len(handles) // columns))  # rows of one length
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, **options)
    else:
        last = list(np.ravel(np.asarray(ax, object)))[-1]
        last.legend(handles=handles, **({"fontsize": "small"} | options))


def _width(figure: Any) -> float:
    """Of a figure, or a part of one, in inches."""
    return float(figure.bbox.width / figure.dpi)


def wrapped(figure: Any, words: str) -> str:
    """Sentences in lines that a figure has room for."""
    return plain("\n".join(wrap(words, int(_width(figure) / _LETTER))), longest=1000)


def name_ticks(ax: Axes, names: list[str]) -> None:
    """Names at 0, 1, ... of the x axis, turned where they would run into each other."""
    room = ax.get_position().width * _width(ax.figure) / max(len(names), 1)
    turned = len(names) > 8 or max(map(len, names), default=0) * _LETTER > room
    side = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if turned else {}
    ax.set_xticks(range(len(names)), names, **side)


def name_places(ax: Axes, place: np.ndarray, names: Iterable[str], many: str) -> None:
    """Names at the places (n,) of the y axis; of more than `LABELLED`, how many they are."""
    n = len(place)
    if n <= LABELLED:
        ax.set_yticks(place, list(names), fontsize="small")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{n:,} {many}, sorted")
    ax.set_ylim(-0.7, n - 0.3)


def whole_ticks(ax: Axes) -> None:
    """Only whole numbers at the x axis."""
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)


def write_dates(ax: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def angle_ticks(axis: Any, low: float, high: float | None = None) -> None:
    """Quarters of a turn on an axis of angles, by default of a full turn from `low` on."""
    names = {-4: "-2π", -2: "-π", -1: "-π/2", 0: "0", 1: "π/2", 2: "π", 3: "3π/2", 4: "2π"}
    first, last = (2 * end / np.pi for end in (low, low + 2 * np.pi if high is None else high))
    shown = [quarter for quarter in names if first - 0.01 <= quarter <= last + 0.01]
    axis.set_ticks([quarter * np.pi / 2 for quarter in shown], [names[q] for q in shown])


def first_outcomes(shown: int, there_are: int) -> str:
    """For a title, where only the first outcomes are drawn; nothing for one that was chosen."""
    return f", first {shown} of {there_are} outcomes" if 1 < shown < there_are else ""
