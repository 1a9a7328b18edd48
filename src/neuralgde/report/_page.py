"""One HTML page that needs nothing besides itself: no network, no other file."""

import base64
import gzip
import importlib.util
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from .._errors import InputError
from .._files import replace_file
from ._page_data import Page
from ._page_json import node_errors, page_json
from ._page_tables import facts, horizon_table, node_table, result_tables, score_table
from ._verdict import judge, metric_name

_MARKS = {"yes": "✔", "care": "▲", "no": "✖", "unknown": "?"}
_MAX_TABLE_NODES = 2000


def write_page(path: str | Path, page: Page) -> Path:
    """Write a page as one self-contained HTML file; the folder is made if it is missing."""
    text = page_html(page)
    return replace_file(Path(path), lambda file: file.write(text.encode()))


def page_html(page: Page) -> str:
    """The page as text."""
    data, left_out = page_json(page)
    parts = [part for part in _parts(page, left_out) if part[2]]
    links = "".join(f"<li><a href='#{name}'>{escape(title)}</a></li>" for name, title, _ in parts if title)
    return Template(_asset("page.html")).substitute(
        title=escape(page.title),
        style=_asset("page.css"),
        summary="".join(f"<p>{escape(sentence)}</p>" for sentence in page.summary),
        links=f"<ul>{links}</ul>",
        parts="\n".join(_section(*part) for part in parts),
        footer=_footer(page),
        data=_packed(data.encode()),
        plotly=_plotly() if any("class='chart" in content for _, _, content in parts) else "",
        script=_asset("page.js"),
    )


def _parts(page: Page, left_out: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Name, title and content of each part, in the order of the page; content is empty where there is nothing."""
    return [
        ("verdict", "", _verdict(page)),
        ("notes", "", _notes((*page.notes, *left_out))),
        ("forecast", "Forecasts", _fans(page)),
        ("graph", "Map" if page.network is not None and page.network.geographic else "Graph", _graph(page)),
        ("errors", "Errors", _errors(page)),
        ("calibration", "Calibration", _calibration(page)),
        ("results", "Results", result_tables(page.rows)),
        ("figures", "Figures", _figures(page)),
        ("training", "Training", _training(page)),
        ("latent", "Latent flow", _latent(page)),
        ("solver", "Solver", _solver(page)),
        ("configuration", "Configuration", _configuration(page)),
    ]


def _section(name: str, title: str, content: str) -> str:
    if not title:
        return content
    return f"<section id='{name}' aria-labelledby='{name}-title'><h2 id='{name}-title'>{title}</h2>{content}</section>"


def _verdict(page: Page) -> str:
    verdict = judge(page)
    if verdict is None:
        return ""
    # A number and its percent sign stay on one line.
    reasons = "".join(f"<li>{escape(reason).replace(' %', '&nbsp;%')}</li>" for reason in verdict.reasons)
    return (
        f"<div class='verdict {verdict.grade}' id='verdict'><h2><span class='mark' aria-hidden='true'>"
        f"{_MARKS[verdict.grade]}</span>{escape(verdict.headline)}</h2><ul>{reasons}</ul></div>"
    )


def _notes(notes: tuple[str, ...]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<div class='notes' id='notes'><h3>To know about the data and this page</h3><ul>{items}</ul></div>"


def _fans(page: Page) -> str:
    if page.fans is None:
        return ""
    return (
        "<p class='hint'>The line is the forecast, the bands are its intervals, the dots are what was read. A click in "
        "the legend switches a line on or off<span class='mouse'>; drag to zoom, double-click to go back</span>.</p>"
        "<div class='controls'>"
        "<label class='wide'>Node <select id='node'></select></label>"
        "<label>Order <select id='order'><option value='table'>as in the table</option>"
        "<option value='error'>largest error first</option></select></label>"
        "<button type='button' id='previous'>Previous</button><button type='button' id='next'>Next</button></div>"
        "<h3 id='fan-name' aria-live='polite'></h3>" + _chart("fan", "", "Forecast and readings")
    )


def _graph(page: Page) -> str:
    if page.network is None:
        return ""
    chart = _chart("map", "map", "The graph")
    if page.fans is None and not np.isfinite(node_errors(page)).any():
        return chart
    options, slider = "<option value='whole'>error, all times</option>", ""
    if page.fans is not None:
        known = page.fans.y is not None
        if known:
            options += "<option value='error' selected>error at the time</option><option value='y'>reading</option>"
        options += f"<option value='mean'{'' if known else ' selected'}>forecast</option>"
        slider = (
            "<div class='wide'><label for='time'>Time</label> <output id='time-text' for='time'></output>"
            "<input type='range' id='time' min='0' max='0' value='0' step='1'></div>"
            "<button type='button' id='play'>Play</button>"
        )
    hint = "Darker is worse. White nodes have no reading at that time." if page.fans is not None else "Darker is worse."
    if page.fans is not None:
        hint += " A click on a node shows its forecast above."
    return (
        f"<p class='hint'>{hint}</p><div class='controls'>"
        f"<label>Colour <select id='colour'>{options}</select></label>{slider}</div>" + chart
    )


def _errors(page: Page) -> str:
    scores = page.scores
    if scores is None:
        return ""
    points = "" if scores.points is None else f" on {scores.points:,} readings"
    content = f"<p class='hint'>Measured{points}. The first model is the one of this page.</p>" + score_table(scores)
    if scores.by_horizon is not None:
        title = metric_name(scores.metrics[0])
        content += f"<h3>How far ahead: {escape(title)}</h3>" + horizon_table(scores)
        content += _chart("horizons", "small", f"{title} by how far ahead")
    if scores.by_node is not None:
        content += "<h3>Node by node</h3>" + node_table(scores, _MAX_TABLE_NODES)
        if len(scores.nodes) > _MAX_TABLE_NODES:
            content += f"<p class='hint'>The {_MAX_TABLE_NODES:,} worst of {len(scores.nodes):,} nodes.</p>"
    return content


def _calibration(page: Page) -> str:
    if page.calibration is None:
        return ""
    found = page.calibration
    rows = []
    for i, (level, measured) in enumerate(zip(found.levels, found.measured, strict=True)):
        width = "" if found.width is None else f", mean width {found.width[i]:.3g}"
        rows.append((f"{level:g} %", f"held {measured:.1f} %{width}"))
    return (
        "<p class='hint'>How often the intervals held the reading, against how often they were said to. Below the "
        "dashed line they are too narrow, above it too wide.</p><div class='pair'><div>"
        + _chart("calibration-chart", "square", "Coverage of the intervals")
        + f"</div><div>{facts(rows)}</div></div>"
    )


def _training(page: Page) -> str:
    if page.training is None:
        return ""
    words = []
    if page.training.chosen is not None:
        words.append(f"The parameters of step {page.training.chosen:,} were kept (dotted line).")
    if page.training.seconds is not None:
        words.append(f"Training took {page.training.seconds:,.0f} s.")
    hint = f"<p class='hint'>{' '.join(words)}</p>" if words else ""
    return hint + _chart("training-chart", "small", "Training curves")


def _latent(page: Page) -> str:
    if page.latent is None:
        return ""
    return (
        "<p class='hint'>The state z(t) of a node: it flows by the differential equation, and jumps where something "
        "was observed (grey lines).</p><div class='controls'>"
        "<label class='wide'>Node <select id='latent-node'></select></label></div>"
        + _chart("latent-chart", "", "Latent state over time")
    )


def _solver(page: Page) -> str:
    if page.solver is None:
        return ""
    table = facts(page.solver.facts.items())
    if page.solver.gaps is None:
        return table
    return (
        f"<div class='pair'><div>{table}</div><div>"
        + _chart("solver-chart", "small", "Solver steps by time between observations")
        + "</div></div>"
    )


def _configuration(page: Page) -> str:
    content = ""
    if page.config:
        content += f"<details open><summary>Settings</summary>{facts(page.config.items())}</details>"
    if page.versions:
        content += f"<details><summary>Versions</summary>{facts(page.versions.items())}</details>"
    return content


def _figures(page: Page) -> str:
    return "".join(
        f"<figure><img alt='{escape(caption)}' src='data:image/png;base64,{base64.b64encode(png).decode()}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, png in page.figures.items()
    )


def _chart(name: str, kind: str, label: str) -> str:
    return f"<div class='chart {kind}' id='{name}' role='img' aria-label='{escape(label)}'></div>"


def _footer(page: Page) -> str:
    version = page.versions.get("neuralgde")
    return f"Written by neuralgde{'' if version is None else ' ' + escape(version)}. This page needs no network."


def _packed(content: bytes) -> str:
    # No time stamp in it, so that the same page is the same file.
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


@cache
def _plotly() -> str:
    """Plotly's JavaScript, a third of its size; it is read as a file, since importing plotly would take a while."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            return _packed(path.read_bytes())
    raise InputError("plotly is not installed, and its charts are part of the page. Install it: pip install plotly")


def _asset(name: str) -> str:
    return resources.files("neuralgde.report").joinpath("assets", name).read_text(encoding="utf-8")
