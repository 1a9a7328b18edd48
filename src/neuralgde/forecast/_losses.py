"""What networks are trained and chosen by on windows, and their forecasts of many windows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import Windows
from ..graph import Graph
from ..model import Gaussian
from ._fresh import FreshWindows
from ._view import View, mean_of

# Windows a forecast takes at once; the last ones are padded, so that there is one program.
FORECAST_BATCH = 128


class GapWeights(eqx.Module):
    """How much times asked for count, by how far ahead they are: far ones, whose errors are larger, are not to rule.

    `sizes` are those of the usual errors so far ahead as `gaps`, straight between.
    """

    gaps: Float[Array, " groups"]
    sizes: Float[Array, " groups"]

    def __call__(self, windows: Windows) -> Float[Array, "windows queries 1 1"]:
        """The weight of each time asked for."""
        gap = jnp.asarray(windows.query_times) - windows.times[:, -1:]
        size = jnp.interp(gap, self.gaps, self.sizes)
        return ((jnp.mean(self.sizes) / size) ** 2)[..., None, None]


class WindowLoss(eqx.Module):
    """The mean squared error, in the units of the network. A batch is windows, or the rows that fresh ones end at.

    Of normal distributions it is minus the log density, each point weighted by its variance (Seitzer et al. 2022): so
    the mean is trained as by the squared error, and the places that are hard to forecast do not lose their weight.
    """

    graph: Graph
    view: View
    fresh: FreshWindows | None
    weights: GapWeights | None = None

    def __call__(self, model: Any, batch: Any, key: PRNGKeyArray) -> Float[Array, ""]:
        windows = batch if self.fresh is None else self.fresh(batch, key)
        shown, inputs = self.view.show(windows)
        out = model(shown.stream(self.graph, inputs), shown.query_times)
        if isinstance(out, Gaussian):
            points = jax.lax.stop_gradient(out.scale**2) * out.loss(jnp.asarray(shown.targets))
        else:
            points = (out - shown.targets) ** 2
        if self.weights is not None:
            points = points * self.weights(shown)
        count = jnp.maximum(jnp.sum(shown.target_mask), 1).astype(points.dtype)
        return jnp.sum(jnp.where(shown.target_mask, points, 0)) / count


class SensorError(eqx.Module):
    """`rmse_sensor` of forecasts, in the units of the data, on all windows: what networks are chosen by.

    With `sensors` (nodes, features) those of other units or sizes can be made alike, and with `weights` times asked for
    that are near and far.
    """

    graph: Graph
    view: View
    sensors: Float[Array, "nodes features"] | None = None
    weights: GapWeights | None = None

    def __call__(self, model: Any, windows: Windows, key: PRNGKeyArray) -> Float[Array, ""]:
        del key
        predicted = mean_of(forecast_windows(model, self.view, self.graph, windows))
        squares = jnp.where(windows.target_mask, (predicted - windows.targets) ** 2, 0)
        if self.weights is not None:
            squares = squares * self.weights(windows)
        count = jnp.maximum(jnp.sum(windows.target_mask, axis=(0, 1)), 1).astype(squares.dtype)
        error = jnp.sqrt(jnp.sum(squares, axis=(0, 1)) / count)
        return jnp.mean(error if self.sensors is None else error * self.sensors)


def forecast_windows(model: Callable, view: View, graph: Graph, windows: Windows) -> Any:
    """Forecasts of all windows in the units of the data, some at a time: all at once would need much memory."""

    def some(part: Windows) -> Any:
        shown, inputs = view.show(part)
        return view.read(model(shown.stream(graph, inputs), shown.query_times), part)

    size = min(FORECAST_BATCH, len(windows))
    parts = -(-len(windows) // size)
    rows = jnp.minimum(jnp.arange(parts * size), len(windows) - 1).reshape(parts, size)
    out = jax.lax.map(lambda chosen: some(windows[chosen]), rows)
    return jax.tree.map(lambda a: a.reshape(parts * size, *a.shape[2:])[: len(windows)], out)
