"""`model.gde`: a fitted model as one file of arrays and JSON, which nothing can be executed from."""

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..data import Clock, Columns, Edges, Readings
from ..train import Checkpoint, save_checkpoint
from ._calibration import Calibration
from ._config import NETWORKS, ForecastConfig
from ._fitted import Fitted
from ._model_file import FORECASTER, read_model
from ._networks import lines_on_device, make_network
from ._predictors import NetworkPredictor, Predictor, RulePredictor, Spread
from ._profile import Profile
from ._ridge import Ridge, last_value
from ._source import Shape, make_graph
from ._view import View


def save_fitted(path: str | Path, fitted: Fitted) -> None:
    """Write a model, whole or not at all. Of the readings it keeps the last ones alone."""
    tail, edges, calibration = fitted.tail, fitted.edges, fitted.calibration
    arrays: dict[str, Any] = {
        "stamps": tail.stamps, "values": tail.values, "known": tail.known, "raw_static": tail.static,
        "static": fitted.static, "static_scale": fitted.static_scale,
        "senders": edges.senders, "receivers": edges.receivers, "weights": edges.weights,
        "start": edges.start, "end": edges.end, "coordinates": edges.coordinates,
        "cycle": fitted.profile.cycle, "effect": fitted.profile.effect,
        "known_mean": fitted.profile.known_mean, "known_std": fitted.profile.known_std,
        "gaps": calibration.gaps, "table": calibration.table, "correlation": calibration.correlation,
        **{f"training {name}": curve for name, curve in fitted.training.items()},
    }  # fmt: skip
    trees: dict[str, Any] = {"arrays": {k: np.asarray(v) for k, v in arrays.items() if v is not None}}
    meta: dict[str, Any] = {
        "kind": FORECASTER,
        "config": fitted.config.to_dict(),
        "ids": list(tail.ids),
        "columns": dataclasses.asdict(tail.columns),
        "clock": dataclasses.asdict(tail.clock),
        "shape": dataclasses.asdict(fitted.shape),
        "geographic": edges.geographic,
        "coverage": {str(k): v for k, v in calibration.coverage.items()},
        "points": calibration.points,
        "memory": calibration.memory,
        "splits": list(fitted.splits),
        "seconds": fitted.seconds,
        "notes": list(fitted.notes),
    }
    predictor = fitted.predictor
    if isinstance(predictor, NetworkPredictor):
        view = predictor.view
        trees |= {"network": predictor.network, "view": {n: getattr(view, n) for n in ("mean", "std", "off_std")}}
        rules: tuple[Any, ...] = view.lines
    else:
        assert isinstance(predictor, RulePredictor)  # there are no others
        trees["spread"] = {"gaps": predictor.spread.gaps, "sizes": predictor.spread.sizes}
        rules = predictor.rules
    trees["rules"] = {
        f"{name} {v}": np.asarray(getattr(rule, name))
        for v, rule in enumerate(rules) if isinstance(rule, Ridge) for name in ("neighbours", "nearest", "weights")
    }  # fmt: skip
    meta["rules"] = [[rule.kind, rule.penalty] if isinstance(rule, Ridge) else None for rule in rules]
    save_checkpoint(path, trees, meta, keep_previous=False)


def load_fitted(path: str | Path) -> Fitted:
    """Read a model that `save_fitted` wrote."""
    found = read_model(path, FORECASTER)
    meta = found.meta
    arrays = found.group("arrays")
    config = ForecastConfig.from_dict(meta["config"])
    named: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in meta["columns"].items()}
    columns = Columns(**named)
    readings = Readings(
        tuple(meta["ids"]), columns, Clock(**meta["clock"]), arrays["stamps"], arrays["values"], arrays["known"],
        arrays["raw_static"],
    )  # fmt: skip
    edges = Edges(
        arrays["senders"], arrays["receivers"], arrays["weights"], arrays.get("start"), arrays.get("end"),
        arrays.get("coordinates"), meta["geographic"],
    )  # fmt: skip
    profile = Profile(arrays["cycle"], arrays["effect"], arrays["known_mean"], arrays["known_std"])
    shape = Shape(**meta["shape"])
    calibration = Calibration(
        arrays["gaps"], arrays["table"], {int(k): v for k, v in meta["coverage"].items()}, meta["points"],
        arrays["correlation"], meta["memory"],
    )  # fmt: skip
    training = {k.removeprefix("training "): v for k, v in arrays.items() if k.startswith("training ")}
    predictor = _predictor(found, config, readings, edges, shape, arrays["static"].shape[1])
    return Fitted(
        config, readings, edges, profile, shape, arrays["static"], arrays["static_scale"], predictor, calibration,
        (meta["splits"][0], meta["splits"][1]), training, meta["seconds"], tuple(meta["notes"]),
    )  # fmt: skip


def _predictor(
    found: Checkpoint, config: ForecastConfig, readings: Readings, edges: Edges, shape: Shape, static: int
) -> Predictor:
    sensors, variables = readings.values.shape[1:]
    rules = _rules(found)
    if config.model in NETWORKS:
        options = dict(
            sensors=sensors, variables=variables, inputs=variables + readings.known.shape[-1] + static,
            edges=len(edges.senders) > 0, period=readings.clock.period,
        )  # fmt: skip
        # Only the structure is wanted: the numbers come from the file.
        like = eqx.filter_eval_shape(lambda: make_network(config, shape, key=jax.random.key(0), **options))
        network = found.restore("network", jax.tree.map(_blank, like))
        scales = found.group("view")
        mean, std, off_std = (jnp.asarray(scales[name]) for name in ("mean", "std", "off_std"))
        view = View(mean, std, off_std, lines_on_device(rules))
        return NetworkPredictor(network, view, make_graph(edges, sensors))
    spread = found.group("spread")
    return RulePredictor(rules, Spread(spread["gaps"], spread["sizes"]))


def _rules(found: Checkpoint) -> tuple[Any, ...]:
    arrays = found.group("rules")
    rules: list[Any] = []
    for v, rule in enumerate(found.meta["rules"]):
        if rule is None:
            rules.append(last_value)
            continue
        near, nearest, weights = (arrays[f"{name} {v}"] for name in ("neighbours", "nearest", "weights"))
        rules.append(Ridge(near, nearest, weights, rule[0], rule[1]))
    return tuple(rules)


def _blank(leaf: Any) -> Any:
    return jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
