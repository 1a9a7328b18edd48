"""Explanations: what a forecast would be, were the readings of one sensor others, or an edge not there."""

import dataclasses

import equinox as eqx
import numpy as np

from .._errors import InputError, unknown_name
from ..data import Edges, Readings
from ._fitted import Fitted
from ._networks import lines_on_device
from ._predict import Forecasts, forecast
from ._predictors import NetworkPredictor, Predictor, RulePredictor
from ._ridge import Ridge
from ._source import make_graph

_PART = 0.1


def effects(fitted: Fitted, readings: Readings, sensor: str, stamp: float) -> dict[str, np.ndarray]:
    """How much the readings of each sensor, all of its window one standard deviation higher, move a forecast.

    Each is found by a forecast of its own, so it is the same for networks and for regressions.
    """
    ids = readings.ids
    node = index_of(sensor, ids)
    source = fitted.source(readings.seen())
    end = int(np.searchsorted(source.readings.stamps, stamp, side="left")) - 1
    if end < 0:
        raise InputError("time: expected one after the first reading that is known. Give earlier readings as history=.")
    size = np.nanstd(readings.values, axis=0)
    size = np.where(np.nan_to_num(size) > 0, size, 1.0)
    count = len(ids) + 1
    windows = source.windows(np.full(count, end), np.full((count, 1), stamp))
    moved = np.zeros((count, 1, *size.shape))
    # A small part of it, so that it is a slope; the first window is the one as it was.
    moved[1 + np.arange(len(ids)), 0, np.arange(len(ids))] = _PART * size
    values = np.where(windows.mask, windows.values + moved.astype(windows.values.dtype), 0)
    mean, _ = fitted.predictor(eqx.tree_at(lambda w: w.values, windows, values))
    found = (mean[1:, 0, node] - mean[0, 0, node]) / _PART
    total = np.abs(found).sum(axis=1)
    order = np.argsort(-total, kind="stable")
    joined = set(fitted.edges.senders[fitted.edges.receivers == node].tolist())
    kind = ["itself" if k == node else "yes" if k in joined else "no" for k in order.tolist()]
    columns = {
        "source": np.array(ids, dtype=object)[order],
        "edge": np.array(kind, dtype=object),
    }
    for v, name in enumerate(readings.variables):
        columns["effect" if found.shape[1] == 1 else f"effect on {name}"] = found[order, v]
    return columns


def changed(
    fitted: Fitted,
    readings: Readings,
    stamps: np.ndarray,
    *,
    cut: list[tuple[str, str]],
    silence: list[str],
) -> Forecasts:
    """Forecasts with some edges cut, in the direction given, and some sensors silenced."""
    ids = readings.ids
    for sensor in silence:
        index_of(sensor, ids)
    silent = np.isin(np.array(ids), silence)
    model = fitted
    if cut:
        keep = np.ones(len(fitted.edges.senders), bool)
        for source, target in cut:
            pair = (fitted.edges.senders == index_of(source, ids)) & (fitted.edges.receivers == index_of(target, ids))
            if not pair.any():
                raise InputError(f"cut: there is no edge from {source!r} to {target!r} in the model's graph.")
            keep &= ~pair
        model = with_edges(fitted, keep)
    return forecast(model, readings, stamps, silent=silent)


def with_edges(fitted: Fitted, keep: np.ndarray) -> Fitted:
    """The same model on some of its edges."""
    edges = fitted.edges
    some = Edges(
        edges.senders[keep], edges.receivers[keep], edges.weights[keep],
        None if edges.start is None else edges.start[keep], None if edges.end is None else edges.end[keep],
        edges.coordinates, edges.geographic,
    )  # fmt: skip
    return dataclasses.replace(fitted, edges=some, predictor=on_edges(fitted.predictor, some, edges))


def on_edges(predictor: Predictor, edges: Edges, before: Edges) -> Predictor:
    """The same predictor on other edges: of the neighbours that a sensor hears, some may be gone."""
    if isinstance(predictor, RulePredictor):
        rules = tuple(_heard(rule, edges) if isinstance(rule, Ridge) else rule for rule in predictor.rules)
        return dataclasses.replace(predictor, rules=rules)
    assert isinstance(predictor, NetworkPredictor)  # there are no others
    view = dataclasses.replace(
        predictor.view, lines=lines_on_device(tuple(_heard(r, edges) for r in predictor.view.lines))
    )
    # Weights as before: the graph's are shares of the largest one.
    graph = make_graph(edges, predictor.graph.num_nodes, float(before.weights.max(initial=0.0)))
    return dataclasses.replace(predictor, view=view, graph=graph)


def _heard(rule: Ridge, edges: Edges) -> Ridge:
    """A regression whose neighbours are those of other edges; where one is gone, the sensor hears nothing instead."""
    sensors = len(rule.neighbours)
    there = np.zeros((sensors, sensors), bool)
    there[edges.receivers, edges.senders] = True
    np.fill_diagonal(there, True)
    nearest = np.asarray(rule.nearest)
    own = np.arange(sensors)[:, None]
    kept = np.take_along_axis(there, nearest, axis=1)
    return dataclasses.replace(
        rule, neighbours=np.where(there, np.asarray(rule.neighbours, float), 0), nearest=np.where(kept, nearest, own),
        weights=np.asarray(rule.weights, float),
    )  # fmt: skip


def index_of(sensor: str, ids: tuple[str, ...]) -> int:
    """The number of a sensor."""
    if str(sensor) not in ids:
        raise InputError(unknown_name("sensor", sensor, ids[:50]))
    return ids.index(str(sensor))
