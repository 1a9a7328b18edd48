"""The demonstration, with a model that needs no training."""

import io

import numpy as np
from rich.console import Console

from neuralgde.experiments.demo import run
from neuralgde.report import read_page_data


def test_the_main_job(tmp_path):
    text = io.StringIO()
    test = run(tmp_path / "demo", console=Console(file=text, width=100), model="ridge")
    scores = test.scores()
    assert scores[0, 1] < 0.9 * scores[1:, 1].min() and 85 < scores[0, 4] < 95
    lines = (tmp_path / "demo" / "forecast.csv").read_text().splitlines()
    assert lines[0] == "unique_id,ds,mean,lo-50,hi-50,lo-90,hi-90"
    # The times are those of the snapshots that were kept: irregular, all on the last day.
    stamps = np.unique(np.array([line.split(",")[1] for line in lines[1:]], "datetime64[s]"))
    assert len(np.unique(np.diff(stamps))) > 3 and set(stamps.astype("datetime64[D]").astype(str)) == {"2024-01-19"}
    assert len(lines) == 1 + len(stamps) * len(test.fitted.readings.ids)
    page = read_page_data(tmp_path / "demo")
    assert page.scores.models[0] == "ridge" and page.fans.mean.shape == (len(stamps), 40)
    assert (tmp_path / "demo" / "report.html").stat().st_size > 10_000
    said = text.getvalue()
    assert "gde fit" in said and "less than persistence" in said
