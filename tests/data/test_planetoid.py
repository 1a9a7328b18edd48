"""Cora: its assembly on a small copy of the file format, and the real files where they are to be had."""

import collections
import hashlib
import pickle
import shutil

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from neuralgde import InputError
from neuralgde.data import DataError, _planetoid, cache_dir, fetch, load_cora

# 6 nodes to train, 500 to validate, 4 others, 8 to test; 5 features, 3 classes.
NUM_KNOWN, NUM_NODES = 510, 518
TEST = np.array([514, 510, 517, 511, 515, 513, 512, 516])
RNG = np.random.default_rng(0)
FEATURES = (RNG.random((NUM_NODES, 5)) < 0.4).astype(np.float32)
FEATURES[7] = 0
LABELS = RNG.integers(0, 3, NUM_NODES)
# Both ways, one way, twice, and a self loop; node 9 is isolated.
GRAPH = {0: [1, 517], 1: [0], 2: [3, 3, 2], 517: [0], 8: [510]}
EDGES = {(0, 1), (0, 517), (2, 3), (8, 510)}


def parts() -> dict[str, object]:
    one_hot = np.eye(3, dtype=np.int32)[LABELS]
    return {
        "x": scipy.sparse.csr_matrix(FEATURES[:6]),
        "allx": scipy.sparse.csr_matrix(FEATURES[:NUM_KNOWN]),
        "tx": scipy.sparse.csr_matrix(FEATURES[TEST]),
        "y": one_hot[:6],
        "ally": one_hot[:NUM_KNOWN],
        "ty": one_hot[TEST],
        "graph": collections.defaultdict(list, GRAPH),
    }


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data" / "cora"
    path.mkdir(parents=True)
    for name, value in parts().items():
        (path / f"ind.cora.{name}").write_bytes(pickle.dumps(value, 2))
    (path / "ind.cora.test.index").write_text("\n".join(map(str, TEST)) + "\n")
    return path


def undirected(graph) -> set[tuple[int, int]]:
    pairs = list(zip(graph.senders.tolist(), graph.receivers.tolist(), strict=True))
    assert len(pairs) == len(set(pairs)), "an edge comes twice"
    assert {(j, i) for i, j in pairs} == set(pairs), "an edge goes one way only"
    return {(min(pair), max(pair)) for pair in pairs}


def test_assembly(folder):
    data = load_cora(folder, row_normalise=False)
    # The rows of tx and ty come in the order of the test index and must end where their nodes are.
    np.testing.assert_array_equal(data.features, FEATURES)
    np.testing.assert_array_equal(data.labels, LABELS)
    np.testing.assert_array_equal(data.train, np.arange(6))
    np.testing.assert_array_equal(data.val, np.arange(6, 506))
    np.testing.assert_array_equal(data.test, np.arange(510, 518))
    assert (data.num_classes, data.name, data.graph.num_nodes) == (3, "cora", NUM_NODES)
    assert undirected(data.graph) == EDGES


def test_rows_of_features_sum_to_one(folder):
    data = load_cora(folder)
    total = FEATURES.sum(1)
    np.testing.assert_allclose(data.features.sum(1), total > 0, rtol=1e-6)
    np.testing.assert_allclose(data.features * total[:, None], FEATURES, rtol=1e-6)


def test_float64_under_x64(folder, x64):
    data = load_cora(folder)
    assert data.features.dtype == data.graph.weights.dtype == jnp.float64


def test_data_is_an_argument_of_compiled_functions(folder):
    data = load_cora(folder)

    @eqx.filter_jit
    def count(data):
        return (data.labels[data.train] == 0).sum()

    assert count(data) == (LABELS[:6] == 0).sum()


def test_found_in_the_folder_of_data(folder, monkeypatch):
    monkeypatch.setenv("NEURALGDE_DATA", str(folder.parent))
    assert load_cora(download=False).features.shape == (NUM_NODES, 5)


def test_download_into_the_cache(folder, monkeypatch):
    # The publisher's address, with a folder in the publisher's place.
    monkeypatch.setattr(_planetoid, "_URL", folder.as_uri() + "/")
    with pytest.raises(DataError, match="not the file that was published"):
        load_cora()
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in _planetoid._SHA256}
    monkeypatch.setattr(_planetoid, "_SHA256", sums)
    assert load_cora().features.shape == (NUM_NODES, 5)
    shutil.rmtree(folder)
    assert load_cora(download=False).features.shape == (NUM_NODES, 5)
    assert len(list((cache_dir() / "cora").iterdir())) == 8


def test_nothing_to_be_had():
    with pytest.raises(DataError, match="download=True.*stochastic_block_model"):
        load_cora(download=False)


def test_a_file_is_missing(folder):
    (folder / "ind.cora.ty").unlink()
    with pytest.raises(InputError, match=r"path: .* has no ind\.cora\.ty"):
        load_cora(folder)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("graph", np.eye(3), "graph: expected a dict"),
        ("graph", {0: [NUM_NODES]}, f"graph: expected nodes 0..{NUM_NODES - 1}, got 0..{NUM_NODES}"),
        ("graph", {0: [-1]}, "graph: expected nodes 0.."),
        ("graph", {0: 1}, "graph: expected a list of neighbours"),
        ("graph", {0: ["one"]}, "graph: expected a list of neighbours"),
        ("allx", np.eye(3), "allx: expected a csr_array"),
        ("ally", np.ones(5), "ally: expected a ndarray with a row a node"),
        ("ty", np.ones((7, 3)), r"ty: expected shape \(8, 3\), got \(7, 3\)"),
        ("tx", scipy.sparse.csr_matrix(np.eye(8, 4)), r"tx: expected shape \(8, 5\), got \(8, 4\)"),
        ("x", scipy.sparse.csr_matrix(np.eye(5)), r"x: expected shape \(6, 5\), got \(5, 5\)"),
    ],
)
def test_files_that_do_not_fit(folder, name, value, message):
    (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(value, 2))
    with pytest.raises(InputError, match=rf"^ind\.cora\.{message}"):
        load_cora(folder)


@pytest.mark.parametrize(
    "text, message",
    [("1\n2\nthree", "one node index a line"), ("\n".join(["510"] * 8), "expected each of 510..517 once")],
)
def test_test_index_that_does_not_fit(folder, text, message):
    (folder / "ind.cora.test.index").write_text(text)
    with pytest.raises(InputError, match=rf"^ind\.cora\.test\.index: .*{message}"):
        load_cora(folder)


@pytest.mark.data
def test_cora(data_dir):
    data = load_cora(data_dir / "cora", row_normalise=False)
    assert data.features.shape == (2708, 1433) and data.num_classes == 7
    assert (len(data.train), len(data.val), len(data.test)) == (140, 500, 1000)
    assert len(undirected(data.graph)) == 5278 and data.graph.num_edges == 2 * 5278
    assert not bool(data.graph.is_self_loop.any())
    # Words and papers of each subject, as published; 20 papers of each to train.
    assert set(np.unique(data.features)) == {0, 1} and int(data.features.sum()) == 49_216
    assert np.bincount(data.labels).tolist() == [351, 217, 418, 818, 426, 298, 180]
    assert np.bincount(data.labels[data.train]).tolist() == [20] * 7
    assert len(np.unique(np.concatenate([data.train, data.val, data.test]))) == 1640
    # Joined papers mostly share their subject; rows in the wrong order would lose that for the test nodes.
    same = np.asarray(data.labels)[data.graph.senders] == np.asarray(data.labels)[data.graph.receivers]
    of_test = np.asarray(data.graph.receivers) >= 1708
    assert same.mean() == pytest.approx(0.81, abs=0.005)
    assert same[of_test].mean() > 0.78


@pytest.mark.data
def test_checksums_are_those_of_the_files(data_dir):
    for name, sha256 in _planetoid._SHA256.items():
        assert fetch((data_dir / "cora" / name).resolve().as_uri(), name, sha256=sha256).is_file()
