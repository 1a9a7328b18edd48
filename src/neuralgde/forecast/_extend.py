"""Sensors that joined after the fit: what the model has for each sensor is taken over from their neighbours."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._errors import InputError
from ..data import Edges, Readings
from ..nn import LearnedAdjacency
from ._calibration import Calibration
from ._fitted import Fitted
from ._latent import LatentForecast
from ._networks import lines_on_device
from ._predictors import NetworkPredictor, Predictor, RulePredictor, Spread
from ._ridge import Ridge, shares
from ._source import make_graph


def extend(fitted: Fitted, readings: Readings, edges: Edges) -> Fitted:
    """The model for more sensors: `readings` and `edges` are those of all of them, the old ones first.

    What was learned for each sensor, its mean day, its vector, its scale, is for a new one the weighted mean of those
    of the sensors that it is joined to; its mean day is moved to the level of its own readings.
    """
    old, new = len(fitted.readings.ids), len(readings.ids)
    mix = _mix(old, new, edges, readings.ids)

    def more(a: Any, axis: int = 0) -> np.ndarray:
        a = np.moveaxis(np.asarray(a, float), axis, 0)
        added = np.tensordot(mix, a, axes=1)
        return np.moveaxis(np.concatenate([a, added]), 0, axis)

    profile = dataclasses.replace(
        fitted.profile, cycle=more(fitted.profile.cycle, 2), effect=more(fitted.profile.effect, 1)
    )
    expected = profile.at(readings.stamps, readings.clock, readings.known)
    off = readings.values - expected
    count = (~np.isnan(off)).sum(axis=0)
    # Ten readings' worth of trust in the neighbours' level.
    shift = np.where(np.arange(new)[:, None] >= old, np.nansum(off, axis=0) / (count + 10), 0.0)
    profile = dataclasses.replace(profile, cycle=profile.cycle + shift)
    static = more(fitted.static)
    if static.shape[1]:
        mean, std = fitted.static_scale
        own = (readings.static[old:] - mean) / std
        static[old:] = np.where(np.isnan(own), static[old:], own)
    table = fitted.calibration
    variables = fitted.readings.values.shape[2]
    wide = np.eye(new * variables)
    wide[: old * variables, : old * variables] = table.correlation
    calibration = Calibration(table.gaps, table.table, table.coverage, table.points, wide, table.memory)
    predictor = _predictor(fitted, edges, more, new)
    return dataclasses.replace(
        fitted, readings=readings, edges=edges, profile=profile, static=static, calibration=calibration,
        predictor=predictor,
    )  # fmt: skip


def _mix(old: int, new: int, edges: Edges, ids: tuple[str, ...]) -> Float[np.ndarray, "added old"]:
    """How much of each old sensor is in each new one: along edges either way, also over new ones between."""
    a = np.zeros((new, new))
    np.add.at(a, (edges.receivers, edges.senders), edges.weights)
    a = a + a.T
    share = np.zeros((new, old))
    share[:old] = np.eye(old)
    for _ in range(new - old):
        found = a[old:] @ share
        total = found.sum(axis=1, keepdims=True)
        share[old:] = np.where(total > 0, found / np.maximum(total, 1e-12), 0)
    if bad := np.flatnonzero(share[old:].sum(axis=1) == 0)[:1].tolist():
        raise InputError(f"edges: no edge joins the new sensor {ids[old + bad[0]]!r} to one of the model. Add one.")
    return share[old:]


def _predictor(fitted: Fitted, edges: Edges, more: Any, new: int) -> Predictor:
    predictor = fitted.predictor
    old = len(fitted.readings.ids)
    if isinstance(predictor, NetworkPredictor):

        def longer(leaf: Any) -> Any:
            return jnp.asarray(more(leaf), leaf.dtype)

        network = predictor.network
        if isinstance(network, LatentForecast):
            raise InputError("history: 'latent-gsde' knows the sensors it was fitted to alone. Fit it again, with all.")
        if network.jump.embeddings is not None:
            network = eqx.tree_at(lambda n: n.jump.embeddings, network, longer(network.jump.embeddings))
        if isinstance(network.adjacency, LearnedAdjacency):
            pair = (longer(network.adjacency.receivers), longer(network.adjacency.senders))
            network = eqx.tree_at(lambda n: (n.adjacency.receivers, n.adjacency.senders), network, pair)
        view = predictor.view
        for name in ("mean", "std", "off_std"):
            value = getattr(view, name)
            if value.ndim:
                view = eqx.tree_at(lambda v, name=name: getattr(v, name), view, longer(value))
        lines = lines_on_device(tuple(_longer(line, edges, more, old, new) for line in view.lines))
        view = dataclasses.replace(view, lines=lines)
        scale = float(fitted.edges.weights.max(initial=0.0))
        return NetworkPredictor(network, view, make_graph(edges, new, scale))
    assert isinstance(predictor, RulePredictor)  # there are no others
    rules = tuple(_longer(r, edges, more, old, new) if isinstance(r, Ridge) else r for r in predictor.rules)
    return RulePredictor(rules, Spread(predictor.spread.gaps, more(predictor.spread.sizes, 1)))


def _longer(rule: Ridge, edges: Edges, more: Any, old: int, new: int) -> Ridge:
    weights = np.zeros((new, new))
    np.add.at(weights, (edges.receivers, edges.senders), edges.weights)
    # As many nearest ones as there were coefficients for, itself where there are fewer.
    nearest = edges.nearest(new)
    nearest = np.pad(nearest, ((0, 0), (0, max(0, rule.nearest.shape[1] - nearest.shape[1]))), mode="edge")
    return dataclasses.replace(
        rule, neighbours=shares(weights), nearest=nearest[:, : rule.nearest.shape[1]], weights=more(rule.weights)
    )
