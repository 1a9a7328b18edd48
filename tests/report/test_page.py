"""The page as a file: whole, safe, within its size, and made from any run folder."""

import base64
import dataclasses
import gzip
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import commands
import neuralgde as gde
from neuralgde.report import (
    Fans,
    Network,
    Page,
    Result,
    Row,
    Scores,
    Training,
    new_figure,
    page_html,
    report_folder,
    save_figure,
    write_page,
    write_page_data,
    write_result,
)  # fmt: skip
from neuralgde.report._layout import layout
from pages import NODES, experiment_page, full_page

_VOID = {"meta", "link", "input", "img", "br"}


class Checked(HTMLParser):
    """Which tags are open, ids, text, and whatever would need a network."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.outside, self.words = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href") and not value.startswith(("#", "data:")):
                self.outside.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not set(self.open) & {"script", "style"}:
            self.words.append(data)


def drawn(text):
    """What the page's script gets."""
    packed = re.search(r'id="data">([^<]*)<', text).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.fixture(scope="module")
def text():
    return page_html(full_page())


def test_it_is_whole_and_needs_no_network(text):
    found = Checked(text)
    assert found.open == [] and found.outside == [] and len(found.ids) == len(set(found.ids))
    words = " ".join(found.words)
    for part in ("Forecasts", "Map", "Errors", "Calibration", "Training", "Latent flow", "Solver", "Configuration"):
        assert part in words
    assert (
        "Sensor 'X9' has no readings" in words
        and "hidden" in words
        and "train.rate" in words
        and "long_name.0.and_a_part_with_another 1.5, 2" in words
    )
    assert len(text) < 3e6


def test_names_are_text_not_markup(text):
    assert "<2>" not in text and "B &lt;2&gt;" in text and "C &amp; D" in text
    title = "</script><script>alert(1)</script>"
    found = Checked(page_html(Page(title)))
    assert title in " ".join(found.words) and found.open == []


def test_the_same_page_is_the_same_file(tmp_path):
    first, second = (write_page(tmp_path / name / "p.html", full_page()).read_bytes() for name in "ab")
    assert first == second and [p.name for p in (tmp_path / "a").iterdir()] == ["p.html"]


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Page)[4:11]])
def test_every_part_may_be_missing(name):
    text = page_html(dataclasses.replace(full_page(), **{name: None}))
    key = {"scores": "horizons"}.get(name, name)
    assert key not in drawn(text) and Checked(text).open == []


def test_a_page_without_charts_carries_no_plotly():
    text = page_html(dataclasses.replace(experiment_page(), notes=("n",)))
    assert len(text) < 1e5 and "18.76" in text and "the paper&#x27;s" in text and "data:image/png;base64,iVBOR" in text


def test_a_column_that_repeats_another_is_left_out():
    by_node = np.array([[[1.0, 2.0], [1.0, 2.0], [0.5, 1.0]]])
    text = page_html(
        Page(
            "p",
            scores=Scores(("m",), ("rmse_sensor", "rmse", "mae"), by_node.mean(2), nodes=("a", "b"), by_node=by_node),
        )
    )
    heads = re.findall(r"<button type='button'>([^<]*)</button>", text)
    assert heads == ["node", "RMSE", "MAE"] and "RMSE by sensor" in text


def test_what_the_script_draws(text):
    page, data = full_page(), drawn(text)
    np.testing.assert_allclose(data["fans"]["mean"], page.fans.mean.T, atol=1e-3)
    assert data["fans"]["nodes"] == list(NODES) and data["fans"]["dates"]
    assert data["fans"]["times"][0] == page.fans.times[0].astype("datetime64[ms]").astype(int)
    gaps = np.isnan(page.fans.y.T)
    assert gaps.any() and [[v is None for v in row] for row in data["fans"]["y"]] == gaps.tolist()
    np.testing.assert_allclose(data["error"], page.scores.by_node[0, 0], atol=1e-3)
    assert len(data["network"]["senders"]) == 5 and data["network"]["ratio"] == pytest.approx(1.206, abs=0.01)


def test_a_large_page_is_thinned_and_says_so():
    nodes, times = 600, 1200
    random = np.random.default_rng(0)
    mean = random.standard_normal((times, nodes))
    names = tuple(f"n{i}" for i in range(nodes))
    ends = random.integers(0, nodes, (2, 20_000))
    page = Page(
        "large",
        fans=Fans(names, np.arange(times), mean, (90.0,), mean[None] - 1, mean[None] + 1, mean + np.arange(nodes)),
        network=Network(names, *ends, weights=random.uniform(size=20_000)),
        training=Training(np.arange(10_000), {"loss": random.uniform(size=10_000)}),
    )
    text = page_html(page)
    data = drawn(text)
    assert "400 of 600 nodes" in text and "3,000 of" in text and "Charts show 750 of 1,200 times" in text
    assert len(data["fans"]["nodes"]) == 400 and {"n0", "n599"} <= set(data["fans"]["nodes"])
    assert len(data["network"]["senders"]) == 3000 and len(data["training"]["steps"]) == 1000
    assert len(text) < 12e6


def test_small_numbers_keep_their_digits_beside_large_ones():
    mean = np.array([[1.23456e7, 0.0123456], [2e7, 0.02]])
    page = Page(
        "two sizes", fans=Fans(("flow", "share"), np.arange(2.0), mean, (90.0,), mean[None], mean[None], 2 * mean)
    )
    data = drawn(page_html(page))
    assert data["fans"]["mean"] == [[12346000, 20000000], [0.012346, 0.02]]
    assert data["fans"]["upper"] == [data["fans"]["mean"]] and data["error"] == [16173000, 0.016173]


def test_times_may_be_numbers_and_metrics_missing():
    page = Page(
        "numbers",
        fans=Fans(("a", "b"), np.array([0.0, 0.25, 7.5]), np.zeros((3, 2))),
        scores=Scores(("m",), ("mae",), np.array([[np.nan]])),
    )
    text = page_html(page)
    assert drawn(text)["fans"]["times"] == [0.0, 0.25, 7.5] and not drawn(text)["fans"]["dates"]
    assert drawn(text)["error"] == [None, None] and "Nothing to judge" in text


@pytest.mark.parametrize("nodes", [0, 1, 2, 30, 700])
def test_layout(nodes):
    ring = np.arange(nodes)
    found = layout(nodes, ring, np.roll(ring, 1))
    assert found.shape == (nodes, 2) and np.isfinite(found).all()
    assert nodes == 0 or (found.min() >= 0 and found.max() <= 1)
    if nodes == 30:
        far = np.sqrt(((found[:, None] - found[None]) ** 2).sum(-1))
        np.fill_diagonal(far, np.inf)
        assert far.min() > 0.01
        # Neighbours on the ring are nearer than two nodes usually are.
        assert np.median(far[ring, np.roll(ring, 1)]) < 0.5 * np.median(far[np.isfinite(far)])


# Run folders


def test_a_folder_of_forecasts(tmp_path):
    write_page_data(tmp_path, full_page())
    path = report_folder(tmp_path)
    assert path == tmp_path / "report.html" and path.read_text(encoding="utf-8") == page_html(full_page())


def test_a_folder_of_an_experiment(tmp_path):
    rows = (Row("gcde", "5 steps", "mape", 18.2, 0.1, 18.76), Row("static", "5 steps", "mape", float("nan"), 0.0))
    write_result(tmp_path, Result("multi-agent", {"widths": [4, 8]}, 2, rows, 600.0))
    save_figure(new_figure()[0], tmp_path / "error_growth.png")
    text = report_folder(tmp_path, tmp_path / "page.html").read_text(encoding="utf-8")
    for words in (
        "Experiment: multi-agent",
        "2 models, 2 seeds, 10 minutes",
        "18.76",
        "failed",
        "error growth",
        "4, 8",
    ):
        assert words in text


def test_the_command(tmp_path):
    write_page_data(tmp_path / "run", full_page())
    good = commands.elsewhere("report", tmp_path / "run", first=commands.TELL_OF_JAX)
    assert good.status == 0 and "report.html: 2." in good.out, good.err
    assert good.out.split()[-1] == "False"
    for folder, message in [("none", "there is none of that name"), (".", "neither page.json nor result.json")]:
        bad = commands.here("report", tmp_path / folder)
        assert bad.status == 2 and message in bad.err
    (tmp_path / "file").touch()
    bad = commands.here("report", tmp_path / "run", "-o", tmp_path / "file" / "x.html")
    assert bad.status == 2 and "cannot be written" in bad.err


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(gde.InputError, match="none of that name"):
        report_folder(tmp_path / "nowhere")
