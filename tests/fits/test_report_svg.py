"""Pictures of a page are its own: text, no ids of others, and colours that follow the paper."""

import re
from xml.etree import ElementTree

import pytest

from avem.fits.plots.figures import new_figure
from avem.fits.report.frame import _color_css
from avem.fits.report.svg import figure_html, svg, used_colors


@pytest.fixture(scope="module")
def drawn():
    figure = new_figure((4, 3))
    ax = figure.subplots()
    ax.plot([0, 1, 2], [0, 1, 4], "o", color="#0072B2", mec="none")
    ax.plot([0, 1, 2], [0, 1, 4], "s", color="#D55E00")
    ax.fill_between([0, 1], [0, 1], color="#8a8a8a", alpha=0.3)
    ax.set(title="</svg><script>alert(1)</script> \x0b日本 &", xlabel=r"\$a\$", xlim=(0, 1.5))
    ax.set_ylabel("bold", fontweight="bold")
    return svg(figure, 'What "it" <shows>')


def test_only_what_is_known_is_kept(drawn):
    tags = set(re.findall(r"<(\w+)", drawn))
    assert tags <= {"svg", "g", "path", "text", "tspan", "clipPath", "rect"}
    attributes = set(re.findall(r' ([\w-]+)="', drawn))
    assert attributes <= {
        *("viewBox", "style", "role", "aria-label", "d", "x", "y", "width", "height"),
        *("transform", "clip-path", "id"),
    }
    assert "&lt;/svg&gt;&lt;script&gt;alert(1)&lt;/script&gt; 日本 &amp;" in drawn
    assert 'aria-label="What &quot;it&quot; &lt;shows&gt;"' in drawn
    assert ">$a$</text>" in drawn
    assert re.search(r"font-weight:[67]00", drawn)
    ElementTree.fromstring(drawn)  # well formed


def test_dots_are_short_strokes_and_other_marks_are_themselves(drawn):
    (dots,) = re.findall(r'stroke:var\(--c0072b2\)[^"]*" d="([^"]*)"', drawn)
    assert dots.count("h0") == 3
    assert drawn.count("fill:var(--cd55e00)") == 3
    assert "opacity:0;" not in drawn


def test_colours_are_the_pages(drawn):
    assert not re.search(r"[: ]#[0-9a-f]{6}", drawn)
    used = used_colors(drawn)
    assert {"#0072b2", "#d55e00", "#8a8a8a", "#ffffff"} <= set(used)
    light, dark = _color_css(["#000000"], used).split("@media")
    assert "--s0:#000000;" in light
    assert "--cffffff:#ffffff;" in light
    assert "--cffffff:#181b1f;" in dark
    assert "--s0:#e8eaed;" in dark


def test_ids_are_the_figures_own(drawn):
    other = new_figure((4, 3))
    other.subplots().plot([0, 1], [1, 0])
    own = set(re.findall(r'id="([^"]*)"', drawn))
    assert own
    assert not own & set(re.findall(r'id="([^"]*)"', figure_html(other, "Another.")))
    assert set(re.findall(r"url\(#([^)]*)\)", drawn)) <= own
