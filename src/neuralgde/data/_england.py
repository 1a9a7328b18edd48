"""England in spring 2020: daily movements between regions, and daily cases of COVID-19 (Panagopoulos et al. 2021)."""

import json
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ..graph import Graph, GraphStream
from ._download import DataError, Progress, fetch, find

_URL = (
    "https://raw.githubusercontent.com/benedekrozemberczki/pytorch_geometric_temporal/"
    "97a3678567651ff183d11ad48699fbc4f3cfde81/dataset/england_covid.json"
)
_NAME = "england_covid/england_covid.json"
_SHA256 = "497056cc4585b58951fd5cd17554fe0c535f68ea0c907a5b5727ae30e3913450"
# A Friday: the days with few movements are then the weekends, Easter and the bank holiday of 8 May.
_FIRST_DATE = "2020-03-13"


class EnglandMobility(eqx.Module):
    """Cases and movements, day by day.

    - `stream`: times in days from 0, the cases of each region as values, and a graph of its own for each day, whose
      weights are the numbers of people who moved from sender to receiver, or stayed where they are the same.
    - `movements` (days, regions, regions): the same weights, from row to column, 0 where there is no edge.
    - `dates` (days,): as datetime64.
    """

    stream: GraphStream
    movements: Float[np.ndarray, "days regions regions"]
    dates: np.ndarray

    @property
    def cases(self) -> Float[np.ndarray, "days regions"]:
        """New cases of each region."""
        return np.asarray(self.stream.values[..., 0])


def load_england(
    path: str | Path | None = None, download: bool = True, *, progress: Progress | None = None
) -> EnglandMobility:
    """Movements and cases in 129 regions of England on 61 days from 2020-03-13: a graph that changes every day.

    `path` is the file `england_covid.json`. Without it the file is looked for in `$NEURALGDE_DATA/england_covid` and in
    the cache; if it is in neither it is downloaded from its publisher and checked, or is a `DataError` with
    `download=False`.
    """
    file = _file(path, download, progress)
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{file}: expected a JSON file, got one that cannot be read: {error}. Get it again."
        ) from error
    cases, edges = _parts(content, str(file))
    days, regions = cases.shape
    graphs, movements = [], np.zeros((days, regions, regions))
    for day, (pairs, weights) in enumerate(edges):
        graphs.append(Graph.from_edges(pairs[:, 0], pairs[:, 1], weights, regions))
        movements[day, pairs[:, 0], pairs[:, 1]] = weights
    stream = GraphStream(np.arange(days, dtype=float), cases[..., None], graphs)
    return EnglandMobility(stream, movements, np.datetime64(_FIRST_DATE) + np.arange(days))


def _file(path: str | Path | None, download: bool, progress: Progress | None) -> Path:
    if path is not None:
        if not Path(path).is_file():
            raise InputError(f"path: expected the file england_covid.json, but there is no file {str(path)!r}.")
        return Path(path)
    if found := find(_NAME):
        return found
    if not download:
        raise DataError(
            f"there is no {_NAME} in the folder NEURALGDE_DATA or the cache. Allow download=True, or give `path`."
        )
    return fetch(_URL, _NAME, sha256=_SHA256, progress=progress)


def _parts(content: Any, name: str) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Cases (days, regions), and of each day the pairs of regions and their weights. Days are not in order there."""
    try:
        cases = np.array(content["y"], float)
        mapping = content["edge_mapping"]
        edges = [
            (np.array(mapping["edge_index"][day], int).reshape(-1, 2), np.array(mapping["edge_weight"][day], float))
            for day in map(str, range(len(cases)))
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{name}: expected y, edge_mapping.edge_index and edge_mapping.edge_weight with days '0', '1', …, got "
            f"{type(error).__name__}: {error}."
        ) from error
    if cases.ndim != 2:
        raise InputError(f"{name}: expected y with a row a day and a column a region, got shape {cases.shape}.")
    for day, (pairs, weights) in enumerate(edges):
        if len(pairs) != len(weights) or (pairs.size and not 0 <= pairs.min() <= pairs.max() < cases.shape[1]):
            raise InputError(
                f"{name}: day {day}: expected a weight for each edge and regions 0..{cases.shape[1] - 1}, got "
                f"{len(pairs)} edges and {len(weights)} weights."
            )
    return cases, edges
