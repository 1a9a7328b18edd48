"""The repressilator experiment on a small scale: every row, figure and table is there and fits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from neuralgde.experiments._repressilator_models import LATENT_GDE, LATENT_GSDE, make_paper_model, paper_stream
from neuralgde.experiments._repressilator_task import intervals, score
from neuralgde.experiments.repressilator import CONFORMAL, MODELS, RepressilatorConfig, run
from neuralgde.forecast import ReactionTraining
from neuralgde.report import read_result
from neuralgde.simulate import repressilator

TINY = RepressilatorConfig(
    train_runs=4, validation_runs=3, calibration_runs=3, figure_runs=2, test_runs=6, until=60, beyond=90, samples=5,
    floor_samples=4, extrapolation_runs=6, extrapolation_samples=5, models=("GRU", "Latent GSDE+"),
    epochs=2, peak_epoch=1, gru_epochs=3, gru_hidden=4, encoder_hidden=4,
    ours=ReactionTraining(warm_steps=5, steps=2, batch_size=4, horizon=3, context=4, samples=2, looks=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repressilator")
    console = Console(width=80, record=True)
    return run(folder, seeds=1, config=TINY, console=console), folder, console.export_text()


def test_rows_figures_and_tables(made):
    result, folder, text = made
    assert read_result(folder).rows == result.rows
    for model in ("training spread", "true network", *TINY.models):
        for setting in ("all", "proteins", "mRNAs", "PX", "Z"):
            for metric in ("crps", "rmse", "coverage_50", "coverage_90", "log_likelihood"):
                assert np.isfinite(result.find(model, setting, metric).mean)
    for model in TINY.models:
        assert result.find(model, "all, 60-90", "crps").mean > 0
    assert 0 <= result.find(CONFORMAL, "proteins", "coverage_90").mean <= 1
    assert "of the best baseline's" in text
    assert max(map(len, text.splitlines())) <= 80
    figures = {path.name for path in folder.glob("*.png")}
    assert {"graph.png", "coverage.png", "forecast-latent-gsde-plus.png", "attention-latent-gsde-plus.png"} <= figures
    guard = result.config["models_trained"]["Latent GSDE+"]["guard"]
    assert guard["diffusion"] > 0


@pytest.mark.parametrize("name", [LATENT_GDE, LATENT_GSDE])
def test_the_papers_models_have_its_sizes(name):
    model = make_paper_model(name, RepressilatorConfig(), 18, 6, key=jax.random.key(0))
    assert [model.drift.first.weight.shape, model.drift.middle.weight.shape] == [(1, 3), (3, 1, 3)]
    assert model.drift.last.weight.shape == (3, 1)
    assert (model.diffusion is None) == (name == LATENT_GDE)
    assert model.config.rtol == 1e-3
    # Windows of the first half on the graph of 18 nodes; shapes alone, because compiling takes long.
    past = jax.ShapeDtypeStruct((2, 51, 6), jnp.float32)
    stream = eqx.filter_eval_shape(paper_stream, past, repressilator().graph(), RepressilatorConfig().back)
    assert stream.values.shape == (2, 51, 18, 1)
    assert eqx.filter_eval_shape(model.posterior, stream).loc.shape == (2, 18, 1)


def test_scores_of_known_samples():
    rng = np.random.default_rng(0)
    samples, truth = rng.normal(size=(50, 200, 20, 2)), rng.normal(size=(200, 20, 2))
    found = score(samples, truth, np.full(2, 0.01))
    # Of a standard normal law: CRPS 1 / sqrt(pi), widths 1.349 and 3.29, log density -(1 + log 2 pi) / 2.
    np.testing.assert_allclose(found["crps"], 0.5642, rtol=0.03)
    np.testing.assert_allclose(found["coverage_90"], 0.9, atol=0.01)
    np.testing.assert_allclose(found["coverage_50"], 0.5, atol=0.02)
    np.testing.assert_allclose(found["width_90"], 3.29, rtol=0.08)
    np.testing.assert_allclose(found["log_likelihood"], -1.419, rtol=0.05)
    low, high = intervals(samples, 50)
    assert (low < high).all()


def test_settings():
    config = RepressilatorConfig()
    assert config.models == MODELS
    assert (len(config.ahead), config.ahead[-1], config.further[0], config.further[-1]) == (50, 150, 153, 300)
    with pytest.raises(ValueError, match="'Latent GSD'"):
        RepressilatorConfig(models=("Latent GSD",))
