"""What a page's script draws, as JSON: thinned to what a screen can show and a file should weigh."""

import json
from typing import Any

import numpy as np

from ._layout import layout
from ._page_data import Fans, LatentFlow, Network, Page
from ._verdict import metric_name

_MAX_NODES = 400
_MAX_TIMES = 1000
_MAX_NUMBERS = 1_500_000
_MAX_EDGES = 3000
_MAX_FEATURES = 6


def page_json(page: Page) -> tuple[str, tuple[str, ...]]:
    """The JSON, and sentences that say what was left out."""
    left_out: list[str] = []
    content: dict[str, Any] = {"quantity": page.quantity}
    nodes = _chosen_nodes(page, left_out)
    if page.fans is not None:
        content["fans"] = _fans(page.fans, nodes, left_out)
    if page.network is not None:
        content["network"] = _network(page.network, nodes, left_out)
    if page.fans is not None or page.network is not None:
        content["error"] = [one for (one,) in _numbers(node_errors(page)[nodes, None])]
    if (scores := page.scores) is not None and scores.by_horizon is not None:
        content["horizons"] = {
            "models": scores.models, "metric": metric_name(scores.metrics[0], short=True), "names": scores.horizons,
            "values": _numbers(scores.by_horizon[:, 0]),
        }  # fmt: skip
    if (calibration := page.calibration) is not None:
        content["calibration"] = {"levels": calibration.levels, "measured": _numbers(calibration.measured)}
    if (training := page.training) is not None:
        kept = _evenly(len(training.steps), _MAX_TIMES)
        curves = {name: _numbers(curve[kept], 8) for name, curve in training.curves.items()}
        content["training"] = {"steps": _numbers(training.steps[kept], 12), "curves": curves, "chosen": training.chosen}
    if page.latent is not None:
        content["latent"] = _latent(page.latent, left_out)
    if (solver := page.solver) is not None and solver.gaps is not None and solver.steps is not None:
        kept = _evenly(len(solver.gaps), _MAX_TIMES)
        content["solver"] = {
            "gaps": _numbers(solver.gaps[kept]), "steps": _numbers(solver.steps[kept]), "unit": solver.gap_unit,
        }  # fmt: skip
    return json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":")), tuple(left_out)


def node_errors(page: Page) -> np.ndarray:
    """One error a node: its score by the first metric, or else its mean absolute error on the fan chart, or NaN."""
    part = page.fans or page.network
    nodes = () if part is None else part.nodes
    if page.scores is not None and page.scores.by_node is not None and page.scores.nodes == nodes:
        return page.scores.by_node[0, 0]
    if page.fans is None or page.fans.y is None:
        return np.full(len(nodes), np.nan)
    error = abs(page.fans.mean - page.fans.y)
    count = np.isfinite(error).sum(0)
    return np.where(count > 0, np.nansum(error, 0) / np.maximum(count, 1), np.nan)


def _chosen_nodes(page: Page, left_out: list[str]) -> np.ndarray:
    """All nodes, or so many that show the whole range of errors."""
    error = node_errors(page)
    if len(error) <= _MAX_NODES:
        return np.arange(len(error))
    left_out.append(
        f"Charts and map show {_MAX_NODES} of {len(error):,} nodes, from the smallest error to the largest; tables and "
        "verdict count all."
    )
    by_error = np.argsort(np.where(np.isfinite(error), error, -1.0), kind="stable")
    return np.sort(by_error[_evenly(len(error), _MAX_NODES)])


def _fans(fans: Fans, nodes: np.ndarray, left_out: list[str]) -> dict[str, Any]:
    series = 3 + 2 * len(fans.levels) + len(fans.baselines)
    most = int(np.clip(_MAX_NUMBERS // (series * max(len(nodes), 1)), 100, _MAX_TIMES))
    kept = _evenly(len(fans.times), most)
    if len(kept) < len(fans.times):
        left_out.append(f"Charts show {len(kept):,} of {len(fans.times):,} times; tables and verdict count all.")

    def by_node(values: np.ndarray | None) -> Any:
        return None if values is None else _numbers(values[..., kept, :][..., nodes].swapaxes(-1, -2))

    content = {
        "nodes": [fans.nodes[i] for i in nodes],
        "dates": fans.times.dtype.kind == "M",
        "times": _times(fans.times[kept]),
        "mean": by_node(fans.mean),
        "levels": fans.levels,
        "lower": by_node(fans.lower),
        "upper": by_node(fans.upper),
        "y": by_node(fans.y),
        "seen": None if fans.seen is None else fans.seen[kept][:, nodes].T.astype(int).tolist(),
        "origins": None if fans.origins is None else _times(fans.origins[kept]),
        "baselines": {name: by_node(values) for name, values in fans.baselines.items()},
    }
    if fans.past is not None and fans.past_times is not None:
        # The last ones: those before are far from the forecast.
        start = max(0, len(fans.past_times) - most)
        content["past_times"] = _times(fans.past_times[start:])
        content["past"] = _numbers(fans.past[start:][:, nodes].T)
    return content


def _network(network: Network, nodes: np.ndarray, left_out: list[str]) -> dict[str, Any]:
    place = np.full(len(network.nodes), -1)
    place[nodes] = np.arange(len(nodes))
    senders, receivers = place[network.senders], place[network.receivers]
    drawn = np.flatnonzero((senders >= 0) & (receivers >= 0) & (senders != receivers))
    # Both directions of an edge are one line.
    pairs = np.sort(np.stack([senders[drawn], receivers[drawn]], 1), axis=1)
    drawn = drawn[np.unique(pairs, axis=0, return_index=True)[1]] if len(drawn) else drawn
    if len(drawn) > _MAX_EDGES:
        left_out.append(f"The map shows {_MAX_EDGES:,} of {len(drawn):,} edges" + (
            ", those with the largest weights." if network.weights is not None else ", evenly chosen."))  # fmt: skip
        if network.weights is None:
            drawn = drawn[_evenly(len(drawn), _MAX_EDGES)]
        else:
            drawn = drawn[np.argsort(-network.weights[drawn], kind="stable")[:_MAX_EDGES]]
    place = network.coordinates
    coordinates = layout(len(nodes), senders[drawn], receivers[drawn]) if place is None else place[nodes]
    ratio = 1.0
    if network.geographic and len(coordinates):
        # A degree of longitude is shorter away from the equator.
        ratio = 1 / max(np.cos(np.deg2rad(np.nanmean(coordinates[:, 1]))), 0.05)
    return {
        "nodes": [network.nodes[i] for i in nodes],
        "x": _numbers(coordinates[:, 0], 9),
        "y": _numbers(coordinates[:, 1], 9),
        "senders": senders[drawn].tolist(),
        "receivers": receivers[drawn].tolist(),
        "geographic": network.geographic,
        "placed": network.coordinates is not None,
        "ratio": ratio,
    }


def _latent(latent: LatentFlow, left_out: list[str]) -> dict[str, Any]:
    features = latent.states.shape[2]
    most_moving = np.sort(np.argsort(-np.nanstd(latent.states, axis=(0, 1)), kind="stable")[:_MAX_FEATURES])
    if features > _MAX_FEATURES:
        left_out.append(f"The latent flow shows the {_MAX_FEATURES} of {features} features that move most.")
    return {
        "nodes": latent.nodes,
        "dates": latent.times.dtype.kind == "M",
        "times": _times(latent.times),
        "states": _numbers(latent.states[:, :, most_moving].transpose(1, 2, 0)),
        "features": most_moving.tolist(),
        "observed": _times(latent.observed),
    }


def _evenly(count: int, most: int) -> np.ndarray:
    """Indices of at most so many, first and last among them."""
    return np.arange(count) if count <= most else np.unique(np.linspace(0, count - 1, most).round().astype(int))


def _times(times: np.ndarray) -> list:
    if times.dtype.kind == "M":
        return times.astype("datetime64[ms]").astype(np.int64).tolist()
    return _numbers(times, 12)


def _numbers(values: np.ndarray, digits: int = 5) -> list:
    """Lists of numbers, each list with so many digits as its largest needs; null where there is none."""
    values = np.asarray(values, float)
    if values.ndim > 1:
        # A list for each node: what is small beside another node's keeps its digits.
        return [_numbers(part, digits) for part in values]
    finite = np.isfinite(values)
    largest = np.max(abs(values), where=finite, initial=0.0)
    places = digits - 1 - int(np.floor(np.log10(largest))) if largest > 0 else 0
    out = np.round(values, places).astype(object)
    out[~finite] = None
    return out.tolist()
