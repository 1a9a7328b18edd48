"""England's movements: days in their order, graphs as published."""

import json

import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.data import DataError, _england, fetch, load_england

EDGES = {"1": ([[0, 1], [2, 2]], [5.0, 7.0]), "0": ([[1, 0], [0, 0], [2, 1]], [10.0, 20.0, 30.0])}


def content(**changes):
    index = {day: pairs for day, (pairs, _) in EDGES.items()}
    weight = {day: weights for day, (_, weights) in EDGES.items()}
    return {"y": [[1, 2, 3], [4, 5, 6]], "edge_mapping": {"edge_index": index, "edge_weight": weight}, **changes}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "england_covid.json"
    path.write_text(json.dumps(content()))
    return path


def test_a_graph_for_each_day_in_order(file):
    data = load_england(file)
    assert data.cases.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert data.stream.changing and data.stream.times.tolist() == [0, 1]
    for day in (0, 1):
        expected = np.zeros((3, 3))
        for (i, j), weight in zip(*EDGES[str(day)], strict=True):
            expected[i, j] = weight
        np.testing.assert_array_equal(data.movements[day], expected)
        np.testing.assert_array_equal(data.stream.graph_at(day).to_dense(), expected)
    assert str(data.dates[1] - data.dates[0]) == "1 days"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"y": [[1, 2, 3]] * 3}, "KeyError: '2'"),
        ({"y": [1, 2]}, "a row a day"),
        ({"y": [[1, 2], [3, 4]]}, r"day 0: .* regions 0\.\.1"),
        ({"edge_mapping": {}}, "edge_index"),
    ],
)
def test_files_that_do_not_fit(file, change, message):
    file.write_text(json.dumps(content(**change)))
    with pytest.raises(InputError, match=message):
        load_england(file)


def test_weights_for_each_edge(file):
    broken = content()
    broken["edge_mapping"]["edge_weight"]["1"] = [1.0]
    file.write_text(json.dumps(broken))
    with pytest.raises(InputError, match="day 1: .* 2 edges and 1 weights"):
        load_england(file)


def test_no_json(file):
    file.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        load_england(file)
    with pytest.raises(InputError, match="there is no file"):
        load_england(file.with_name("nothing.json"))


def test_download_into_the_cache(file, monkeypatch):
    with pytest.raises(DataError, match="download=True"):
        load_england(download=False)
    monkeypatch.setattr(_england, "_URL", file.as_uri())
    with pytest.raises(DataError, match="not the file that was published"):
        load_england()


@pytest.mark.data
def test_england(data_dir):
    path = data_dir / "england_covid" / "england_covid.json"
    assert fetch(path.resolve().as_uri(), "a", sha256=_england._SHA256).is_file()
    data = load_england(path)
    assert data.cases.shape == (61, 129) and data.cases.max() == 182 and data.cases.sum(1)[0] == 299
    edges = (data.movements > 0).sum((1, 2))
    assert (edges.min(), edges.max()) == (836, 2158) and edges[0] == 2158
    assert np.asarray(data.stream.graphs.edge_mask).sum(1).tolist() == edges.tolist()
    # Fewer people move far on Saturdays and Sundays: the dates are right.
    weekend = (data.dates.astype(int) + 3) % 7 >= 5
    assert edges[weekend].mean() < 0.85 * edges[~weekend].mean()
    assert data.dates[-1] == np.datetime64("2020-05-12")
