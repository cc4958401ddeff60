"""Figures as SVG that is part of the page: text stays text, colours follow the page's.

What matplotlib writes is read and written anew: only known elements and attributes are kept, ids
are the figure's own, dots are short strokes, and every colour is a variable of the page, so that
dark paper can have its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from io import BytesIO
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple
from warnings import catch_warnings, filterwarnings
from xml.etree import ElementTree
from zlib import crc32

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "{http" + "://www.w3.org/2000/svg}"
_LINK = "{http" + "://www.w3.org/1999/xlink}href"
_DROPPED = {"font-family", "font-stretch", "font-variant"}
"""Of a style: the page has its own."""
_KEPT = {"x", "y", "width", "height", "d", "transform"}
_NO_TEXT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What may not be in XML, and could be in a label."""
_PER_INCH = 72
_NUMBER = re.compile(r"-?\d+\.\d+")
_COLOR = re.compile(r"#([0-9a-fA-F]{6})\b")
_FONT = re.compile(r"font:\s*([^;]*?)([\d.]+)px[^;]*")


class PathShape(NamedTuple):
    """A marker: its outline, and the diameter if it is a disc."""

    outline: str
    diameter: float
    style: str


def figure_html(figure: Figure, alt: str, caption: str = "") -> str:
    """A picture that is part of the page; `alt` tells it to those who do not see it."""
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{svg(figure, alt)}{words}</figure>"


def pictures(figures: Iterable[str], caption: str = "") -> str:
    """Several pictures beside each other where there is room, over one caption."""
    words = f'<p class="caption">{escape(caption)}</p>' if caption else ""
    return f'<div class="pictures">{"".join(figures)}</div>{words}'


def svg(figure: Figure, alt: str) -> str:
    """The figure as an element of the page."""
    drawn = _drawn(figure)
    root = ElementTree.fromstring(_NO_TEXT.sub("", drawn))
    view = root.get("viewBox", "0 0 1 1")
    width = float(view.split()[2])
    # Ids are the figure's own, whatever else is on the page.
    writer = _Writer(root, f"f{crc32((drawn + alt).encode()):x}")
    inside = "".join(writer.write(child) for child in root)
    return (
        f'<svg viewBox="{escape(view)}" style="width:{width * 96 / _PER_INCH:.0f}px" role="img" '
        f'aria-label="{escape(alt)}">{inside}</svg>'
    )


def _drawn(figure: Figure) -> str:
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "avem"}), catch_warnings():
        # A user's label may have letters that matplotlib's font lacks; the page's has them.
        filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        figure.savefig(buffer, format="svg", dpi=_PER_INCH, metadata={"Date": None})
    return buffer.getvalue().decode()


class _Writer:
    """Writes the elements of one figure."""

    def __init__(self, root: ElementTree.Element, name: str) -> None:
        self.name = name
        self.shapes = {
            node.get("id"): _shape(node)
            for defs in root.iter(f"{_SVG}defs")
            for node in defs.iter(f"{_SVG}path")
            if node.get("id")
        }
        clips = (node.get("id") for node in root.iter(f"{_SVG}clipPath"))
        self.clips = {f"url(#{clip})": f"{name}-{i}" for i, clip in enumerate(clips)}

    def write(self, node: ElementTree.Element) -> str:
        tag = node.tag.removeprefix(_SVG)
        if tag == "g":
            inside = "".join(self._children(node))
            kept = self._attributes(node)
            return f"<g{kept}>{inside}</g>" if kept and inside else inside
        if tag in ("path", "rect"):
            hidden = "fill: none" in node.get("style", "") and "stroke" not in node.get("style", "")
            return "" if hidden else f"<{tag}{self._attributes(node)}/>"
        if tag in ("text", "tspan"):
            inside = escape(node.text or "") + "".join(
                self.write(child) + escape(child.tail or "") for child in node
            )
            return f"<{tag}{self._attributes(node)}>{inside.strip()}</{tag}>"
        if tag == "defs":
            return "".join(self.write(child) for child in node if child.tag == f"{_SVG}clipPath")
        if tag == "clipPath":
            own = self.clips[f"url(#{node.get('id')})"]
            return f'<clipPath id="{own}">' + "".join(map(self.write, node)) + "</clipPath>"
        return ""

    def _children(self, node: ElementTree.Element) -> Iterator[str]:
        for is_use, group in groupby(node, lambda child: child.tag == f"{_SVG}use"):
            nodes = list(group)
            yield from self._marks(nodes) if is_use else map(self.write, nodes)

    def _marks(self, uses: Iterable[ElementTree.Element]) -> Iterator[str]:
        """Markers: of one shape and style, a single path."""

        def kind(use: ElementTree.Element) -> tuple[str, str]:
            return use.get(_LINK, "#")[1:], use.get("style", "")

        for (key, style), group in groupby(uses, kind):
            shape = self.shapes.get(key)
            if shape is None:
                continue
            at = [(float(use.get("x", 0)), float(use.get("y", 0))) for use in group]
            if shape.diameter:
                own = _declared(f"{shape.style};{style}")
                ink = {
                    "fill": "none",
                    "stroke": own.get("fill", "var(--ink)"),
                    "stroke-linecap": "round",
                    "stroke-width": f"{shape.diameter:g}",
                    "opacity": own.get("opacity", own.get("fill-opacity", "1")),
                }
                d = "".join(f"M{_short(x)} {_short(y)}h0" for x, y in at)
                yield f'<path style="{_written(ink)}" d="{d}"/>'
                continue
            for x, y in at:
                move = f"translate({_short(x)} {_short(y)})"
                own = _styled(f"{shape.style};{style}")
                yield f'<path transform="{move}" style="{own}" d="{shape.outline}"/>'

    def _attributes(self, node: ElementTree.Element) -> str:
        out = ""
        for name, value in node.attrib.items():
            if name == "style":
                out += f' style="{_styled(value)}"'
            elif name == "clip-path" and value in self.clips:
                out += f' clip-path="url(#{self.clips[value]})"'
            elif name in _KEPT and not value.startswith("rotate(-0 "):
                out += f' {name}="{escape(_rounded(value))}"'
        return out


def _shape(node: ElementTree.Element) -> PathShape:
    d = _rounded(node.get("d", ""))
    round_ = re.match(r"M 0 ([\d.]+) *C", d)
    return PathShape(d, 2 * float(round_[1]) if round_ else 0.0, node.get("style", ""))


def _rounded(text: str) -> str:
    """Numbers to a tenth of a point, without what separates nothing."""
    short = _NUMBER.sub(lambda found: _short(float(found[0])), text)
    return re.sub(r"\s+", " ", short).replace(" z", "z").strip()


def _short(value: float) -> str:
    return f"{round(value, 1) + 0.0:g}" if abs(value) < 1e4 else f"{value:.0f}"


def _styled(style: str) -> str:
    """The style with the page's colours and font."""
    return _written(_declared(_FONT.sub(lambda f: f"font-size: {f[2]}px{_weight(f[1])}", style)))


def _declared(style: str) -> dict[str, str]:
    """The parts of a style; what is said twice holds as said last."""
    pairs = (part.partition(":") for part in style.split(";") if ":" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _written(style: dict[str, str]) -> str:
    kept = (f"{name}:{value}" for name, value in style.items() if name not in _DROPPED)
    return escape(_COLOR.sub(lambda c: f"var(--c{c[1].lower()})", ";".join(kept)))


def _weight(words: str) -> str:
    return "; font-weight: 600" if re.search(r"\b(bold|[6-9]00)\b", words) else ""


# --- colours --------------------------------------------------------------------------------------


def used_colors(html: str) -> list[str]:
    """The colours of all figures of a page."""
    return sorted({f"#{found}" for found in re.findall(r"var\(--c([0-9a-f]{6})\)", html)})
