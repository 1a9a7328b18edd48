"""The stochastic block model has the statistics asked for, and its graph tells more than its features."""

import numpy as np
import pytest

from neuralgde import InputError
from neuralgde.data import stochastic_block_model

SMALL = dict(num_nodes=300, num_classes=3, num_features=60, words=6.0, num_val=50, num_test=100)


@pytest.fixture(scope="module")
def data():
    return stochastic_block_model(row_normalise=False)


def same_class(data) -> np.ndarray:
    labels = np.asarray(data.labels)
    return labels[data.graph.senders] == labels[data.graph.receivers]


def test_it_has_the_sizes_of_cora(data):
    assert data.features.shape == (2708, 1433) and data.num_classes == 7
    assert (len(data.train), len(data.val), len(data.test)) == (140, 500, 1000)
    assert data.graph.num_nodes == 2708
    assert data.name == "stochastic block model"


def test_split(data):
    assert np.bincount(data.labels[data.train]).tolist() == [20] * 7
    chosen = np.concatenate([data.train, data.val, data.test])
    assert len(np.unique(chosen)) == 1640
    counts = np.bincount(data.labels)
    assert counts.max() - counts.min() <= 1
    # Test nodes come from all over, not from one class.
    assert np.bincount(data.labels[data.test]).min() > 100


def test_edges(data):
    pairs = np.stack([data.graph.senders, data.graph.receivers], axis=1)
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    np.testing.assert_array_equal(np.unique(pairs, axis=0), np.unique(pairs[:, ::-1], axis=0))
    # Within four standard errors: a binomial number of edges, each inside a class with the probability asked for.
    edges = len(pairs) / 2
    assert edges == pytest.approx(2708 * 3.9 / 2, abs=4 * np.sqrt(2708 * 3.9 / 2))
    assert same_class(data).mean() == pytest.approx(0.81, abs=4 * np.sqrt(0.81 * 0.19 / edges))


def test_every_pair_of_classes_is_joined_alike(data):
    labels = np.asarray(data.labels)
    counts = np.zeros((7, 7))
    np.add.at(counts, (labels[data.graph.senders], labels[data.graph.receivers]), 1)
    between = counts[~np.eye(7, dtype=bool)]
    assert abs(between - between.mean()).max() < 4.5 * np.sqrt(between.mean())
    inside = np.diag(counts) / 2
    assert abs(inside - inside.mean()).max() < 4 * np.sqrt(inside.mean())


def test_features(data):
    features = np.asarray(data.features, float)
    assert set(np.unique(features)) == {0, 1}
    assert features.sum(1).mean() == pytest.approx(18, abs=4 * np.sqrt(18 / 2708))
    own = np.asarray(data.labels)[:, None] == np.arange(1433) % 7
    share = features[own].sum() / features.sum()
    expected = 0.22 + 0.78 / 7
    assert share == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / features.sum()))


def test_rows_of_features_sum_to_one():
    features = np.asarray(stochastic_block_model(**SMALL).features)
    np.testing.assert_allclose(features.sum(1)[features.any(1)], 1, rtol=1e-6)


def test_the_seed_decides():
    a, b, other = (stochastic_block_model(**SMALL, seed=seed) for seed in (3, 3, 4))
    for name in ("features", "labels", "train", "val", "test"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    np.testing.assert_array_equal(a.graph.senders, b.graph.senders)
    assert not np.array_equal(a.labels, other.labels)
    assert not np.array_equal(a.features, other.features)


def test_neighbours_tell_more_than_features(data):
    # Least squares with a ridge on the labels: of the features, and of the features smoothed twice over the graph.
    gcn = data.graph.operator("gcn")
    targets = np.eye(7)[np.asarray(data.labels)]
    accuracy = {}
    for name, x in [("features", data.features), ("smoothed", gcn @ (gcn @ data.features))]:
        x = np.asarray(x, float)
        train = x[np.asarray(data.train)]
        dual = np.linalg.solve(train @ train.T + np.eye(140), targets[np.asarray(data.train)])
        guess = (x @ (train.T @ dual)).argmax(1)
        accuracy[name] = (guess == np.asarray(data.labels))[np.asarray(data.test)].mean()
    assert 0.2 < accuracy["features"] < 0.5
    assert accuracy["smoothed"] > accuracy["features"] + 0.3


@pytest.mark.parametrize(
    "homophily, expected", [(0.0, lambda share: share == 0), (1.0, lambda share: share == 1)], ids=["none", "all"]
)
def test_extreme_homophily(homophily, expected):
    data = stochastic_block_model(**SMALL, homophily=homophily)
    assert data.graph.num_edges > 0 and expected(same_class(data).mean())


def test_no_edges():
    assert stochastic_block_model(**SMALL, degree=0.0).graph.num_edges == 0


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(num_nodes=200), "num_nodes: expected at least 210, got 200"),
        (dict(num_classes=0), "num_classes: expected at least 1, got 0"),
        (dict(num_features=2), "num_features: expected at least 3, got 2"),
        (dict(num_val=-1), "num_val: expected at least 0, got -1"),
        (dict(homophily=81.0), "homophily: expected a share from 0 to 1, got 81"),
        (dict(topic=-0.1), "topic: expected a share from 0 to 1, got -0.1"),
        (dict(degree=250.0), "degree, homophily: they ask for 30375 edges among 14850 pairs"),
        (dict(degree=-1.0), "degree, homophily: they ask for"),
        (dict(num_classes=1, homophily=0.5), "degree, homophily: they ask for 292.5 edges among 0 pairs"),
        (dict(words=100.0), "words: expected so few"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(InputError, match=message):
        stochastic_block_model(**{**SMALL, **change})
