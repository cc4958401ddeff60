"""What all pictures share: colours, figures, labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from avem.errors import ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Size = tuple[float, float]

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DARK, GREY = "#222222", "#8a8a8a"
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
    n: int, ax: Axes | None, figsize: Size | None, each: Size, columns: int
) -> tuple[Any, list[Any]]:
    """A figure of n panels, `each` of that size in inches; or the caller's own axes."""
    if ax is not None:
        if n != 1:
            raise ModelError(f"There are {n} panels to draw and one ax; name one of them.")
        return ax.figure, [ax]
    columns = min(n, columns)
    rows = -(-n // columns)
    figure = new_figure(figsize or (each[0] * columns, each[1] * rows))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[n:]:
        unused.remove()
    return figure, list(axes[:n])


def plain(label: object, longest: int = 24) -> str:
    """A user's label as text: not as mathematics between dollars, and not too long."""
    text = str(label)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text.replace("$", r"\$")


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


def state_dots(colors: list[str]) -> list[Any]:
    """Handles of a legend: the states."""
    return [dot(f"state {k}", color, size=None) for k, color in enumerate(colors)]


def legend(figure: Figure, handles: list[Any], most: int, **options: Any) -> None:
    """Beneath all panels, at most so many beside each other."""
    columns = min(len(handles), most)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **options)


def state_legend(figure: Figure, colors: list[str], with_mean: bool = False) -> None:
    """The states, and the line of their means."""
    mean = [line("state's mean for the subject", DARK, lw=1.4)] if with_mean else []
    legend(figure, [*state_dots(colors), *mean], 7)


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


def first_outcomes(shown: int, there_are: int) -> str:
    """For a title, where only the first outcomes are drawn; nothing for one that was chosen."""
    return f", first {shown} of {there_are} outcomes" if 1 < shown < there_are else ""
