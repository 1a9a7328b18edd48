"""A page's data survives the way to disk and back, and parts that do not fit are refused by name."""

import dataclasses
import json

import numpy as np
import pytest

import neuralgde as gde
from neuralgde.report import (
    Calibration,
    Fans,
    LatentFlow,
    Network,
    Page,
    Scores,
    SolverStats,
    Training,
    has_page_data,
    read_page_data,
    write_page_data,
)  # fmt: skip
from pages import NODES, equal, experiment_page, full_page


@pytest.mark.parametrize("make", [full_page, experiment_page, lambda: Page("bare")])
def test_round_trip(make, tmp_path):
    page = make()
    assert not has_page_data(tmp_path / "run")
    assert write_page_data(tmp_path / "run", page) == tmp_path / "run"
    assert has_page_data(tmp_path / "run")
    assert equal(read_page_data(tmp_path / "run"), page)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["page.json", "page.npz"]


def test_every_part_may_be_missing(tmp_path):
    page = full_page()
    for field in dataclasses.fields(Page)[4:11]:
        without = dataclasses.replace(page, **{field.name: None})
        assert equal(read_page_data(write_page_data(tmp_path, without)), without)


def test_settings_that_json_does_not_know(tmp_path):
    page = Page("p", config={"a": np.float32(0.5), "b": float("nan"), "c": (1, 2), "d": tmp_path})
    assert read_page_data(write_page_data(tmp_path, page)).config == {
        "a": 0.5,
        "b": None,
        "c": [1, 2],
        "d": str(tmp_path),
    }


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "page.json: there is no such file"),
        ("{\n1", "page.json:2: not JSON"),
        ('{"format": 99}', "expected format 1, got 99"),
        ('{"format": 1, "page": {}}', "not a page's data"),
        ('{"format": 1, "page": {"title": "x", "colour": 1}}', "not a page's data"),
    ],
)
def test_bad_files_are_named(text, message, tmp_path):
    write_page_data(tmp_path, Page("x"))
    if text is None:
        (tmp_path / "page.json").unlink()
    else:
        (tmp_path / "page.json").write_text(text)
    with pytest.raises(gde.InputError, match=message):
        read_page_data(tmp_path)


def test_a_pickle_is_not_read(tmp_path):
    write_page_data(tmp_path, experiment_page())
    np.savez(tmp_path / "page.npz", a0=np.array([{"x": 1}], dtype=object))
    with pytest.raises(gde.InputError, match="not a page's data"):
        read_page_data(tmp_path)


def test_a_failed_write_leaves_the_old_files(tmp_path):
    write_page_data(tmp_path, full_page())
    with pytest.raises(TypeError):
        write_page_data(tmp_path, Page("x", config={"f": object()}))
    assert equal(read_page_data(tmp_path), full_page())
    assert json.loads((tmp_path / "page.json").read_text())["format"] == 1


Z = np.zeros
BAD = {
    "mean of shape": lambda: Fans(NODES, Z(3), Z((3, 4))),
    "persistence of shape": lambda: Fans(NODES, Z(3), Z((3, 5)), baselines={"persistence": Z((2, 5))}),
    "levels, lower and upper go together": lambda: Fans(NODES, Z(3), Z((3, 5)), (90.0,)),
    "past and past_times go together": lambda: Fans(NODES, Z(3), Z((3, 5)), past=Z((2, 5))),
    "by_node of shape": lambda: Scores(("a",), ("mae",), Z((1, 1)), nodes=NODES, by_node=Z((1, 1, 4))),
    "at least one model": lambda: Scores((), (), Z((0, 0))),
    "edges name nodes 0 to 5": lambda: Network(NODES, np.array([0]), np.array([5])),
    "measured of shape": lambda: Calibration((50.0, 90.0), Z(1)),
    "validation of shape": lambda: Training(Z(3), {"validation": Z(2)}),
    "expected states of shape": lambda: LatentFlow(NODES, Z(3), Z((3, 4, 1)), Z(1)),
    "gaps and steps go together": lambda: SolverStats({}, Z(3)),
    "nodes of the network": lambda: Page(
        "x", fans=Fans(("a",), Z(1), Z((1, 1))), network=Network(("b",), Z(0, int), Z(0, int))
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_parts_that_do_not_fit(message):
    # The tests' own check of shapes comes first where it can tell, and does not name the fix.
    with pytest.raises((gde.InputError, TypeError), match=None if "of shape" in message else message):
        BAD[message]()
