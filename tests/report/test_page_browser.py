"""The page in a headless Chromium: no errors, no network, and every control does what it says."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from chromium import Chromium, find_chromium
from neuralgde.report import Page, write_page
from pages import NODES, experiment_page, full_page

pytestmark = pytest.mark.browser
WIDTHS = (1280, 390)
TAB, ENTER, RIGHT, DOWN = ("Tab", 9), ("Enter", 13), ("ArrowRight", 39), ("ArrowDown", 40)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    command = find_chromium()
    if command is None:
        pytest.skip("there is no Chromium: install it, or name it in CHROMIUM")
    found = Chromium(command, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("page") / "report.html", full_page())


@pytest.fixture(params=WIDTHS)
def opened(browser, path, request):
    browser.open(path, request.param)
    return browser


def fan(browser):
    """The forecast that is drawn."""
    return browser.js("document.getElementById('fan').data.find((t) => t.name === 'forecast').y")


def colours(browser):
    return browser.js("document.getElementById('map').data[2].marker.color")


def choose(browser, name, value):
    browser.js(
        f"(() => {{ const s = document.getElementById('{name}'); s.value = {json.dumps(value)};"
        "s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def test_no_errors_no_network_nothing_wider_than_the_screen(opened, request):
    width = request.node.callspec.params["opened"]
    assert opened.errors == [] and opened.js("document.body.dataset.ready") == "yes"
    assert [url[:5] for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert opened.js("document.documentElement.scrollWidth") <= width
    drawn = opened.js(
        "[...document.querySelectorAll('.chart')].map((c) => [c.id, c.querySelectorAll('.main-svg').length])"
    )
    assert len(drawn) == 7 and all(count for _, count in drawn)
    wide = opened.js(
        "[...document.querySelectorAll('.main-svg')].every((s) => s.getBoundingClientRect().width <= innerWidth)"
    )
    assert wide
    assert opened.js("Math.min(...[...document.querySelectorAll('dd')].map((d) => d.clientWidth || 999))") > 100
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        opened.screenshot(Path(folder) / f"report-{width}.png")


def test_the_chooser_changes_the_chart(opened):
    first = fan(opened)
    choose(opened, "node", "4")
    assert fan(opened) != first
    assert opened.js("document.getElementById('fan-name').textContent") == NODES[4]
    opened.click("#previous")
    assert opened.js("document.getElementById('fan-name').textContent") == NODES[3]
    opened.click("#next")
    opened.click("#next")
    assert opened.js("document.getElementById('fan-name').textContent") == NODES[0] and fan(opened) == first
    choose(opened, "order", "error")
    assert opened.js("document.getElementById('fan-name').textContent") == NODES[4]
    assert opened.errors == []


def test_the_slider_moves_the_map_in_time(opened):
    first, text = colours(opened), opened.js("document.getElementById('time-text').textContent")
    opened.js("document.getElementById('time').focus()")
    for _ in range(3):
        opened.press(*RIGHT)
    assert opened.js("document.getElementById('time').value") == "3"
    assert colours(opened) != first and opened.js("document.getElementById('time-text').textContent") > text
    choose(opened, "colour", "whole")
    whole = colours(opened)
    assert len(whole) == 5 and whole[0] < whole[4] and opened.js("document.getElementById('time').disabled")
    choose(opened, "colour", "mean")
    assert colours(opened) != whole and not opened.js("document.getElementById('time').disabled")
    assert opened.errors == []


def test_play_and_pause(browser, path):
    browser.open(path, 1280)
    browser.click("#play")
    assert browser.js("document.getElementById('play').textContent") == "Pause"
    browser.wait("Number(document.getElementById('time').value) >= 2")
    browser.click("#play")
    assert browser.js("document.getElementById('play').textContent") == "Play"


def test_a_click_on_the_map_chooses_the_node(browser, path):
    browser.open(path, 1280)
    choose(browser, "colour", "whole")
    browser.js("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    x, y = browser.js(
        "(() => { const nodes = document.querySelectorAll('#map .scatterlayer .trace')[1];"
        "const p = nodes.querySelectorAll('path.point')[2];"
        "const r = p.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    browser.click_at(x, y)
    browser.wait(f"document.getElementById('fan-name').textContent === {json.dumps(NODES[2])}", 5)


def test_the_keyboard_reaches_every_control(browser, path):
    browser.open(path, 1280)
    reached = []
    for _ in range(60):
        browser.press(*TAB)
        reached.append(browser.js("document.activeElement.id || document.activeElement.tagName"))
    for control in ("node", "order", "previous", "next", "colour", "time", "play", "latent-node", "SUMMARY"):
        assert control in reached, reached
    browser.js("document.getElementById('next').focus()")
    browser.press(*ENTER)
    assert browser.js("document.getElementById('fan-name').textContent") == NODES[1]
    unnamed = browser.js(
        "[...document.querySelectorAll('select, input')].filter((e) => !e.labels.length).map((e) => e.id)"
    )
    assert unnamed == []


def test_tables_sort(browser, path):
    browser.open(path, 1280)
    column = "[...document.querySelectorAll('#errors table')].at(-1)"
    values = f"[...{column}.tBodies[0].rows].map((r) => Number(r.cells[1].dataset.value))"
    before = browser.js(values)
    assert before == sorted(before, reverse=True)
    browser.js(f"{column}.tHead.rows[0].cells[1].firstChild.click()")
    assert browser.js(values) == sorted(before)
    assert browser.js(f"{column}.tHead.rows[0].cells[1].getAttribute('aria-sort')") == "ascending"


def test_the_latent_flow_breaks_at_jumps(browser, path):
    browser.open(path, 1280)
    first = browser.js("document.getElementById('latent-chart').data[0].y")
    assert first.count(None) == 3
    choose(browser, "latent-node", "1")
    assert browser.js("document.getElementById('latent-chart').data[0].y") != first
    assert browser.errors == []


def test_pages_without_parts(browser, tmp_path):
    page = full_page()
    without_y = dataclasses.replace(page.fans, y=None, seen=None)
    without_place = dataclasses.replace(page.network, coordinates=None, geographic=False)
    pages = [
        Page("bare"),
        experiment_page(),
        Page("fans", fans=without_y),
        Page("graph", network=without_place),
        Page("both", fans=without_y, network=without_place),
        dataclasses.replace(page, fans=None, scores=None),
    ]
    for i, example in enumerate(pages):
        browser.open(write_page(tmp_path / f"{i}.html", example), 390)
        ready, errors = browser.js("document.body.dataset.ready"), list(browser.errors)
        # The figure of the example is no real picture, and the browser may say so.
        assert (ready, errors) == ("yes", []), example.title
