"""Cora, the citation graph, in the files and the split of Planetoid (Yang, Cohen and Salakhutdinov 2016)."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from .._errors import InputError
from ._download import DataError, Progress, fetch, find
from ._inert_pickle import load_pickle
from ._node_classification import NodeClassification, assemble

_URL = "https://raw.githubusercontent.com/kimiyoung/planetoid/af6abf468a772cc055bec88c52e4d6f51b7c37e3/data/"
_SHA256 = {
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
}
_NUM_VAL = 500


def load_cora(
    path: str | Path | None = None,
    download: bool = True,
    *,
    row_normalise: bool = True,
    progress: Progress | None = None,
) -> NodeClassification:
    """Cora: 2708 papers with 1433 words each there or not, 5278 citations, 7 subjects; 140 / 500 / 1000 nodes a split.

    `path` is the folder of the 8 files `ind.cora.*`. Without it they are looked for in `$NEURALGDE_DATA/cora` and in
    the cache; those that are in neither are downloaded from their publisher and checked, or are a `DataError` with
    `download=False`. `row_normalise` divides each node's features by their sum, as is usual for graph convolutions.
    """
    content = {name.removeprefix("ind.cora."): _file(name, path, download, progress).read_bytes() for name in _SHA256}
    test = _test_index(content.pop("test.index"))
    parts = {name: load_pickle(data, f"ind.cora.{name}") for name, data in content.items()}
    return _assemble(parts, test, row_normalise)


def _file(name: str, path: str | Path | None, download: bool, progress: Progress | None) -> Path:
    if path is not None:
        if not (Path(path) / name).is_file():
            raise InputError(f"path: expected a folder with the 8 files ind.cora.*, but {str(path)!r} has no {name}.")
        return Path(path) / name
    if found := find(f"cora/{name}"):
        return found
    if not download:
        raise DataError(
            f"there is no cora/{name} in the folder NEURALGDE_DATA or the cache. Allow download=True, give `path`, or "
            "use stochastic_block_model() in its place."
        )
    return fetch(_URL + name, f"cora/{name}", sha256=_SHA256[name], progress=progress)


def _test_index(content: bytes) -> np.ndarray:
    try:
        return np.array(content.split(), dtype=np.int64)
    except ValueError as error:
        raise InputError(f"ind.cora.test.index: expected one node index a line, got {error}.") from error


def _assemble(parts: dict[str, Any], test: np.ndarray, row_normalise: bool) -> NodeClassification:
    for name, value in parts.items():
        kind = dict if name == "graph" else np.ndarray if name.endswith("y") else scipy.sparse.csr_array
        if not isinstance(value, kind) or getattr(value, "ndim", 2) != 2:
            raise InputError(f"ind.cora.{name}: expected a {kind.__name__} with a row a node, got {value!r:.60}.")
    (num_known, num_classes), num_features = parts["ally"].shape, parts["allx"].shape[1]
    num_train, num_nodes = len(parts["y"]), num_known + len(test)
    for kind, columns in [("x", num_features), ("y", num_classes)]:
        for name, rows in [(kind, num_train), (f"all{kind}", num_known), (f"t{kind}", len(test))]:
            if parts[name].shape != (rows, columns):
                raise InputError(f"ind.cora.{name}: expected shape {(rows, columns)}, got {parts[name].shape}.")
    if not np.array_equal(np.sort(test), np.arange(num_known, num_nodes)):
        raise InputError(f"ind.cora.test.index: expected each of {num_known}..{num_nodes - 1} once.")

    # The rows of tx and ty are in the order of the test index, not of the nodes.
    order = np.concatenate([np.arange(num_known), num_known + np.argsort(test)])
    features = np.concatenate([parts["allx"].toarray(), parts["tx"].toarray()])[order]
    one_hot = np.concatenate([parts["ally"], parts["ty"]])[order]
    splits = np.arange(num_train), np.arange(num_train, num_train + _NUM_VAL), test
    edges = _edges(parts["graph"], num_nodes)
    return assemble(features, one_hot.argmax(1), edges, splits, num_classes, "cora", row_normalise)


def _edges(neighbours: dict[Any, Any], num_nodes: int) -> np.ndarray:
    """The pairs i < j that cite each other either way, each once: the file has some twice, and some self loops."""
    try:
        pairs = np.array([(i, j) for i, others in neighbours.items() for j in others], dtype=np.int64).reshape(-1, 2)
    except (TypeError, ValueError) as error:
        raise InputError(f"ind.cora.graph: expected a list of neighbours for each node, got {error}.") from error
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < num_nodes:
        raise InputError(f"ind.cora.graph: expected nodes 0..{num_nodes - 1}, got {pairs.min()}..{pairs.max()}.")
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[pairs[:, 0] != pairs[:, 1]]
