"""The report in a browser: it draws, zooms, reads off the right numbers, and prints."""

import dataclasses

import numpy as np
import pytest

import avem
from avem.data import Panel
from avem.fits.report import write_report
from tests.browser import Browser, find_browser
from tests.fits.kinds import CHAIN, fit_of, ssm_fit, true_fit

NASTY = [
    "</script><script>alert(1)</script>",
    'O\'Brien "quoted" & co <b>',
    "日本語 ünïcode ✓",
    "a very long label " * 12,
    "<img src=x onerror=alert(2)>",
    "${title} {{x}} %s",
    "s6",
    "s7",
]


@pytest.fixture(scope="module")
def browser():
    if find_browser() is None:
        pytest.skip("there is no Chromium or Chrome here; CONTRIBUTING.md says how to get it")
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def movement(folder):
    """Two families, angles among them; each subject has two sequences, and a gap in time."""
    fit = fit_of("movement")
    table = fit.panel.table.assign(half=np.where(fit.panel.table["t"] < 12, "early", "late"))
    table["t"] += 6 * (table["t"] > 16)
    fit = dataclasses.replace(fit, panel=Panel.from_frame(table, "who", "t", "half"))
    return fit, write_report(fit, folder / "movement.html", thorough=False)


@pytest.fixture(scope="module")
def labels(folder):
    fit = fit_of("labels")
    names = dict(zip(fit.subjects, NASTY, strict=True))
    table = fit.panel.table.assign(who=fit.panel.table["who"].map(names))
    panel = Panel.from_frame(table, "who", "t")
    fit = dataclasses.replace(fit, panel=panel, subjects=panel.subjects)
    return fit, write_report(fit, folder / "labels.html", thorough=False)


@pytest.fixture(scope="module")
def ssm(folder):
    fit = ssm_fit()
    return fit, write_report(fit, folder / "ssm.html", thorough=False)


@pytest.fixture
def opened(browser, movement):
    browser.look()
    browser.open(movement[1])
    return browser


def drawing(browser):
    return browser.run("document.querySelector('#timeline canvas[role]').toDataURL()")


def say(browser, part="#timeline"):
    browser.settle()
    return browser.run(f"document.querySelector('{part} .readout').textContent")


def click(browser, name):
    browser.run(f"document.querySelector('button[aria-label=\"{name}\"]').click()")
    browser.settle()


def place_of(browser, row):
    """Where a row of the picked subject is in the window."""
    browser.run("document.querySelector('#timeline .chart').scrollIntoView({block: 'center'})")
    browser.settle()
    return browser.run(
        "(() => { const box = timeline.chart.canvas.getBoundingClientRect();"
        "const { left, width } = timeline.layout, [low, high] = timeline.view;"
        f"const x = left + (timeline.track.x[{row}] - low) / (high - low) * width;"
        "return [box.left + x, box.top + 60]; })()"
    )


@pytest.mark.parametrize(
    "kind", ["movement", pytest.param("labels", marks=pytest.mark.slow), "ssm"]
)
def test_pages_load_without_complaint(browser, request, kind):
    fit, path = request.getfixturevalue(kind)
    browser.look()
    browser.open(path)
    assert browser.complaints() == []
    assert browser.requests() == [path.resolve().as_uri()]
    assert not [e for e in browser.events if e["method"] == "Page.javascriptDialogOpening"]
    shown = browser.run("[...timeline.select.options].map((option) => option.text)")
    assert shown == [" ".join(str(label).split()) for label in fit.subjects]
    assert browser.run("PAGE.subjects") == [str(label) for label in fit.subjects]
    click(browser, "Next subject")
    assert str(fit.subjects[1]) in say(browser)
    assert browser.complaints() == []


def test_everything_to_press_has_a_name(opened):
    nameless = (
        "[...document.querySelectorAll('input, select, button, canvas[tabindex]')].filter((e) => "
        "!(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    assert opened.run(nameless) == 0
    levels = opened.run("[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1
    assert max(np.diff(levels)) <= 1
    for landmark in ("header", "nav", "main", "footer"):
        assert opened.run(f"document.querySelectorAll('body > {landmark}').length") == 1


def test_another_subject_is_another_drawing(opened):
    first = drawing(opened)
    opened.run("timeline.select.value = '3'; timeline.select.dispatchEvent(new Event('change'))")
    assert "who s3, 24 rows" in say(opened)
    assert drawing(opened) != first
    for _ in range(5):
        click(opened, "Next subject")
    assert opened.run("timeline.place") == 0  # around the end
    assert drawing(opened) == first
    opened.run("timeline.search.value = 'S6'; timeline.search.dispatchEvent(new Event('input'))")
    assert opened.run("timeline.place") == 6
    assert opened.run("timeline.select.options.length") == 1
    opened.run("timeline.search.value = 'zz'; timeline.search.dispatchEvent(new Event('input'))")
    assert "No who has" in say(opened)
    click(opened, "Next subject")
    assert opened.run("[timeline.place, timeline.select.options.length]") == [7, 8]


def test_zooming_and_moving(opened):
    def view():
        opened.settle()
        return np.array(opened.run("timeline.view"))

    whole, first = view(), drawing(opened)
    click(opened, "Zoom in")
    assert np.diff(view()) == pytest.approx(np.diff(whole) / 2)
    assert drawing(opened) != first
    before = view()
    click(opened, "Later")
    assert view()[0] - before[0] == pytest.approx(np.diff(before)[0] / 4)
    click(opened, "Show all rows")
    assert view() == pytest.approx(whole)
    assert drawing(opened) == first

    x, y = place_of(opened, 8)
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)  # the page's own, till it is asked for
    assert view() == pytest.approx(whole)
    x, y = place_of(opened, 8)
    opened.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100, modifiers=2)
    zoomed = view()
    assert np.diff(zoomed) < 0.9 * np.diff(whole)
    at = opened.run("timeline.track.x[8]")
    shares = [(at - low) / (high - low) for low, high in (whole, zoomed)]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)  # what is under the pointer stays there

    opened.mouse("mousePressed", x, y, button="left", clickCount=1)
    opened.mouse("mouseMoved", x - 60, y, button="left", buttons=1)
    opened.mouse("mouseReleased", x - 60, y, button="left", clickCount=1)
    assert view()[0] > zoomed[0]
    assert np.diff(view()) == pytest.approx(np.diff(zoomed))

    opened.run("timeline.chart.canvas.focus()")
    opened.press("0")
    assert view() == pytest.approx(whole)
    opened.press("+")
    assert np.diff(view()) == pytest.approx(np.diff(whole) / 2)
    before = view()
    opened.press("ArrowRight", modifiers=8)
    assert view()[0] > before[0]
    opened.press("PageDown")
    assert opened.run("timeline.place") == 1


def said_chance(p):
    return "< 0.001" if p < 0.0005 else "> 0.999" if p > 0.9995 else f"{p:.3f}"


@pytest.mark.parametrize("row", [0, 7, 13, 23])
def test_hovering_reads_off_the_row(opened, movement, row):
    fit, _ = movement
    subject = 2
    opened.run(f"timeline.pick({subject})")
    opened.mouse("mouseMoved", *place_of(opened, row))
    text = say(opened)
    own = np.flatnonzero(fit.panel.table["who"] == f"s{subject}")[row]
    line = fit.panel.table.iloc[own]
    assert text.startswith(f"half {line['half']}, t {line['t']}: ")
    assert f"decoded state {fit.decode()[own]}" in text
    chances = fit.state_probabilities().iloc[own]
    for k in range(2):
        found = text.split(f"p(state {k}) ")[1].split(";")[0].rstrip(".")
        around = chances[f"state_{k}"] + np.array([-1, 0, 1]) / 65534  # as exact as it is stored
        assert found in [said_chance(p) for p in around]
    step = "missing" if np.isnan(line["step"]) else f"{line['step']:.4g}"
    assert f"step {step}" in text
    assert not opened.run("timeline.tip.hidden")
    assert opened.run("timeline.tip.textContent").startswith(f"half {line['half']}, t {line['t']}")


def test_arrow_keys_read_row_by_row(opened):
    opened.run("timeline.chart.canvas.focus()")
    opened.press("ArrowRight")
    assert say(opened).startswith("half early, t 0: ")
    opened.press("ArrowRight")
    assert say(opened).startswith("half early, t 1: ")
    opened.press("End")
    assert say(opened).startswith("half late, t 29: ")
    opened.press("Escape")
    assert opened.run("timeline.tip.hidden")


def test_states_of_a_state_space_model(browser, ssm):
    fit, path = ssm
    browser.look()
    browser.open(path)
    browser.mouse("mouseMoved", *place_of(browser, 4))
    text = say(browser).replace("\u2212", "-")
    rows = np.flatnonzero(fit.panel.table["id"] == fit.subjects[0])
    row = rows[np.argsort(fit.panel.row_step[rows])][4]
    states = fit.states().iloc[row]
    found = text.split("state 0 ")[1].split(";")[0].split(" ± ")
    assert float(found[0]) == pytest.approx(states["state_0"], abs=2e-3)
    assert float(found[1].rstrip(".")) == pytest.approx(1.96 * states["state_0_sd"], abs=2e-3)
    assert "expected" in text


def test_effects_are_sorted_filtered_and_lead_to_subjects(opened, movement):
    fit, _ = movement
    table = fit.effects().sort_values("mean")
    cells = (
        "[...document.querySelectorAll('#effects tbody tr')].map((r) => r.children[0].innerText)"
    )
    assert opened.run(cells) == table["who"].tolist()
    opened.run("effects.heads.get('mean').querySelector('button').click()")
    assert opened.run(cells) == table["who"].tolist()[::-1]
    assert opened.run("effects.heads.get('mean').getAttribute('aria-sort')") == "descending"
    first = opened.run("document.querySelector('#effects tbody td').textContent")
    assert float(first.replace("\u2212", "-")) == pytest.approx(table["mean"].max(), rel=1e-3)
    opened.run("effects.filter.value = 's5'; effects.filter.dispatchEvent(new Event('input'))")
    assert opened.run(cells) == ["s5"]
    opened.run("document.querySelector('#effects tbody button').click()")
    opened.settle()
    assert opened.run("timeline.labels[timeline.place]") == "s5"
    opened.run("effects.chart.canvas.focus()")
    opened.press("ArrowRight")
    assert say(opened, "#effects").startswith("who s5: ")


def test_narrow_and_dark_windows(browser, labels):
    for look in ({"width": 360, "height": 740, "phone": True}, {"dark": True}):
        browser.look(**look)
        browser.open(labels[1])
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints() == []
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(24, 27, 31)"
    browser.look()


def test_tables_keep_their_first_column_in_sight(browser, ssm):
    browser.look(width=360, height=740, phone=True)
    browser.open(ssm[1])
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    wide = "[...document.querySelectorAll('main .box')].find((b) => b.scrollWidth > b.clientWidth)"
    browser.run(f"window.wide = {wide}; wide.scrollLeft = 60")
    browser.settle()
    edges = "[wide, wide.querySelector('tbody th')].map((e) => e.getBoundingClientRect().left)"
    box, first = browser.run(edges)
    assert first == pytest.approx(box, abs=1.5)
    assert browser.run("wide.classList.contains('moved')")
    hint = "wide.nextElementSibling"
    assert "sideways" in browser.run(f"{hint}.textContent")
    assert not browser.run(f"{hint}.hidden")
    assert browser.run("getComputedStyle(wide.querySelector('tbody th')).backgroundColor") == (
        "rgb(255, 255, 255)"  # nothing shines through
    )
    browser.look(width=1280)
    browser.settle()
    assert browser.run(f"{hint}.hidden")  # here all of it is seen


def test_cards_and_pictures_on_a_phone_and_in_the_dark(browser, movement):
    browser.look(width=360, height=740, phone=True)
    browser.open(movement[1])
    inside = (
        "[...document.querySelectorAll('.card, main svg')].filter((e) => e.clientWidth || "
        "e.getBoundingClientRect().width).every((e) => "
        "e.getBoundingClientRect().right <= innerWidth + 1)"
    )
    assert browser.run(inside)
    assert browser.run("document.querySelectorAll('.card').length") == 2
    letters = (
        "Math.min(...[...document.querySelectorAll('#emissions svg text')].map((t) => "
        "t.getBoundingClientRect().height))"
    )
    assert browser.run(letters) > 9  # large enough to read
    browser.look(dark=True)
    browser.settle()
    fills = "[...document.querySelectorAll('main svg text')].map((t) => getComputedStyle(t).fill)"
    for color in set(browser.run(fills)):
        rgb = [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
        assert min(rgb) > 120, color
    paper = "getComputedStyle(document.querySelector('#emissions svg path')).fill"
    assert browser.run(paper) == "rgb(24, 27, 31)"
    browser.look()


def test_without_scripts_pictures_stay(browser, movement):
    browser.look()
    browser.open(movement[1], script=False)
    shown = "(selector) => getComputedStyle(document.querySelector(selector)).display !== 'none'"
    assert browser.run(f"({shown})('#timelines .still')")
    assert not browser.run(f"({shown})('#timeline')")
    browser.open(movement[1])
    assert not browser.run(f"({shown})('#timelines .still')")
    assert browser.run(f"({shown})('#timeline')")
    browser.look(media="print")
    assert browser.run(f"({shown})('#timelines .still')")
    assert not browser.run(f"({shown})('#timeline')")
    browser.look()


def test_printing(browser, movement):
    browser.look()
    browser.open(movement[1])
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") <= 15
    assert len(printed) > 50_000  # with its pictures


@pytest.mark.slow
def test_two_thousand_subjects(browser, folder):
    hmm = avem.MixedHMM("y ~ 1 + (1 | who)", 2)
    params = CHAIN | {
        "coef": [[[0.0]], [[3.0]]],
        "variance": [[1.0], [0.5]],
        "effect_covariance": [[0.3]],
    }
    drawn = hmm.simulate(params, n_subjects=2000, n_times=100, seed=1)
    panel = Panel.from_frame(drawn.frame, "who", "time")
    path = write_report(true_fit(hmm, params, panel, drawn.effects), folder / "many.html")
    assert path.stat().st_size < 8e6
    browser.look()
    assert browser.open(path) < 15  # about one second on a machine that is not busy
    assert browser.complaints() == []
    assert browser.run("timeline.labels.length") == 2000
    assert browser.run("document.querySelectorAll('#effects tbody tr').length") == 20
    first = drawing(browser)
    began = browser.run("performance.now()")
    browser.run("timeline.search.value = '1987'; timeline.find(); timeline.chart.now()")
    assert browser.run("performance.now()") - began < 2000
    assert browser.run("timeline.labels[timeline.place]") == "1987"
    assert drawing(browser) != first
