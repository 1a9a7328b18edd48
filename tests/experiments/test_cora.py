"""The Cora experiment: its models against formulas, its seeds, and a run end to end on what stands in for Cora."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import neuralgde as gde
from layers import call
from neuralgde.data import DataError, load_cora, stochastic_block_model
from neuralgde.experiments import cora
from neuralgde.experiments._cora_models import DEEP, MODELS, make_classifier
from neuralgde.experiments._cora_papers import make_papers, with_spectrum, without_edges
from neuralgde.experiments._cora_training import dirichlet_energy, train_model
from neuralgde.experiments.cora import CoraConfig, Pace
from neuralgde.report import Result, Row, read_result

TINY = CoraConfig(spans=(1.0,), hidden=4, paces=(Pace(1.0, 1e-2, 4),), look_every=2, seeds_at_once=1)
KEY = jax.random.key(3)


def small_graph(seed=0):
    return stochastic_block_model(60, 3, 15, words=4.0, train_per_class=4, num_val=20, num_test=20, seed=seed)


@pytest.fixture
def papers():
    return with_spectrum(make_papers(small_graph()))


def classifier(name, papers, span=2.0):
    sizes = papers.num_words, papers.num_classes
    return eqx.filter_jit(lambda key: make_classifier(name, span, TINY, *sizes, key=key))(KEY)


@eqx.filter_jit
def stirred(model):
    """The model with random numbers added to what is zero at the start."""
    leaves, treedef = jax.tree.flatten(model)
    keys = jax.random.split(jax.random.key(9), len(leaves))
    changed = [
        x + 0.3 * jax.random.normal(k, x.shape) if eqx.is_inexact_array(x) else x
        for x, k in zip(leaves, keys, strict=True)
    ]
    return treedef.unflatten(changed)


def test_words_of_a_paper_weigh_the_same_in_all(papers):
    data = small_graph()
    bag = np.asarray(papers.words.to_dense()).T[:60, 60:]
    np.testing.assert_array_equal(bag > 0, np.asarray(data.features) > 0)
    total = bag.sum(1)[bag.any(1)]
    np.testing.assert_allclose(total, np.asarray(data.features > 0).sum(1).mean(), rtol=1e-5)
    assert papers.num_words == 15


def test_encoder_is_a_graph_convolution(papers):
    model = stirred(classifier("GCN", papers))
    bag = papers.words.to_dense().T[:60, 60:]
    whole = papers.graph.operator("gcn").to_dense()
    expected = jax.nn.relu(whole @ bag @ model.encoder.weight + model.encoder.bias)
    np.testing.assert_allclose(call(model.encoder, papers), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(call(model, papers), model.readout(expected, papers.graph), rtol=1e-5, atol=1e-5)


def test_the_mlp_sees_no_neighbour(papers):
    model, alone = stirred(classifier("MLP", papers)), without_edges(papers)
    bag = papers.words.to_dense().T[:60, 60:]
    z = jax.nn.relu(bag @ model.encoder.weight + model.encoder.bias)
    np.testing.assert_allclose(call(model, alone), z @ model.readout.weight + model.readout.bias, rtol=1e-5, atol=1e-5)


def test_plain_layers(papers):
    body, z = stirred(classifier("plain GCN", papers)).body, jax.random.normal(KEY, (60, 4))
    layers = [jax.tree.map(lambda x, k=k: x[k], body.layers) for k in range(8)]
    expected = [z]
    for layer in layers:
        expected.append(jax.nn.relu(layer(expected[-1], papers.graph)))
    np.testing.assert_allclose(call(body.path, z, papers), jnp.stack(expected), rtol=1e-4, atol=1e-5)


def test_residual_layers(papers):
    body, z = stirred(classifier("residual GCN", papers, 1.0)).body, jax.random.normal(KEY, (60, 4))
    states = [z]
    for k in range(4):
        states.append(states[-1] + body.field.at(float(k))(0.0, states[-1], papers.graph))
    np.testing.assert_allclose(call(body.path, z, papers), jnp.stack(states), rtol=1e-4, atol=1e-5)


def test_diffusion_is_the_closed_form(papers):
    body, z = stirred(classifier("CGNN", papers)).body, jax.random.normal(KEY, (60, 4))
    expected = body.field.closed_form(body.field.start(z), 2.0, papers.graph)[:, :4]
    np.testing.assert_allclose(call(body, z, papers), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DEEP)
def test_a_body_ends_where_its_path_does(name, papers):
    body, z = stirred(classifier(name, papers, 1.0)).body, jax.random.normal(KEY, (60, 4))
    path = call(body.path, z, papers)
    np.testing.assert_allclose(path[0], z, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(path[-1], call(body, z, papers), rtol=1e-4, atol=1e-5)
    assert not np.allclose(path[-1], z, atol=1e-2)


@pytest.mark.parametrize("name", ["residual GCN", "GCDE", "GADE"])
def test_fields_start_at_rest_and_learn(name, papers):
    body, z = classifier(name, papers, 1.0).body, jax.random.normal(KEY, (60, 4))
    np.testing.assert_array_equal(call(body, z, papers), z)
    grads = eqx.filter_jit(eqx.filter_grad(lambda b: jnp.sum(b(z, papers) ** 2)))(body)
    assert max(np.abs(g).max() for g in jax.tree.leaves(grads)) > 1e-3


def test_dropout_is_on_with_a_key_only(papers):
    model = stirred(classifier("GCDE", papers, 1.0))
    keys = jax.random.split(KEY)
    assert not np.allclose(call(model, papers, keys[0]), call(model, papers, keys[1]))
    np.testing.assert_allclose(call(model, papers), model(papers), rtol=1e-5, atol=1e-5)


def test_dirichlet_energy(papers):
    graph, z = papers.graph, jax.random.normal(KEY, (60, 2))
    apart = np.asarray(z)[np.asarray(graph.senders)] - np.asarray(z)[np.asarray(graph.receivers)]
    # Every citation is an edge each way.
    np.testing.assert_allclose(dirichlet_energy(z, graph), (apart**2).sum() / 2 / (z**2).sum(), rtol=1e-4)
    assert abs(float(dirichlet_energy(jnp.ones((60, 2)), graph))) < 1e-5
    assert float(dirichlet_energy(0 * z, graph)) == 0


def test_seeds_do_not_depend_on_how_many_are_trained_at_once(papers):
    one = train_model("GCN", 0.0, TINY, papers, 2)
    both = train_model("GCN", 0.0, dataclasses.replace(TINY, seeds_at_once=2), papers, 2)
    assert one.curve.shape == (2, 2) and one.accuracy.shape == (2,)
    np.testing.assert_allclose(one.accuracy, both.accuracy, atol=1e-6)
    np.testing.assert_allclose(one.energy, both.energy, rtol=1e-4)
    assert one.energy[0, 0] != one.energy[0, 1]


def test_without_data_a_block_model_stands_in_and_says_so(tmp_path, monkeypatch):
    def no_network():
        raise DataError("there is no network")

    monkeypatch.setattr(cora, "load_cora", no_network)
    monkeypatch.setattr(cora, "stochastic_block_model", small_graph)
    config = dataclasses.replace(TINY, models=("GCN", "plain GCN", "GCDE", "CGNN"))
    with (tmp_path / "out.txt").open("w") as file:
        result = cora.run(tmp_path / "run", seeds=2, console=Console(file=file, width=80), config=config)
    text = (tmp_path / "out.txt").read_text()
    assert "there is no network" in text and "stands in" in text
    assert "s left" in text and "against" in text
    assert max(map(len, text.splitlines())) <= 80
    again = read_result(tmp_path / "run")
    assert again.rows == result.rows and again.config["data"] == "stochastic block model"
    assert [(row.model, row.setting) for row in again.rows] == [
        ("GCN", "2 layers"), ("plain GCN", "S=1"), ("GCDE", "S=1"), ("CGNN", "S=1"),
    ]  # fmt: skip
    assert all(0 <= row.mean <= 1 for row in again.rows)
    assert {p.name for p in (tmp_path / "run").glob("*.png")} == {
        "gcde_accuracy.png", "accuracy.png", "dirichlet_energy.png",
    }  # fmt: skip
    assert len(list((tmp_path / "run" / "logs").glob("GCDE*.jsonl"))) == 2


def test_differences_are_told_in_points():
    means = {("GCN", "2 layers"): 0.8, ("GCDE", "S=1"): 0.79, ("GCDE", "S=10"): 0.785, ("plain GCN", "S=10"): 0.3}
    rows = tuple(Row(model, setting, "accuracy", mean, 0.0) for (model, setting), mean in means.items())
    lines = cora.compare(Result("cora", {"spans": (1.0, 10.0)}, 1, rows, 0.0))
    assert [line.split(": ")[1] for line in lines] == ["-1.0 points", "-0.5 points", "-50.0 points"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": ("GCD",)}, "GCDE"),
        ({"regularisation": {}, "models": ("GCN",)}, "none for \\['GCN'\\]"),
        ({"spans": (1.5,)}, "multiples of the step 1"),
        ({"spans": (0.0,)}, "spans"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(gde.InputError, match=message):
        CoraConfig(**change)


def test_every_model_is_in_the_full_run():
    assert {name for name, _ in CoraConfig().tasks} == set(MODELS)
    assert {span for name, span in CoraConfig().tasks if name == "GCDE"} == {1.0, 5.0, 10.0}


@pytest.mark.data
@pytest.mark.parametrize("name", ["GCN", "GCDE"])
def test_cora_is_learnt(name, data_dir):
    papers = make_papers(load_cora(data_dir / "cora"))
    config = CoraConfig(paces=(Pace(10.0, 1e-2, 40),))
    outcome = train_model(name, 1.0, config, papers, 2)
    assert outcome.validation.min() > 0.72
