"""What the state of a network does between readings and at them, to look at on a page."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import Readings, Windows
from ..graph import Graph
from ..integrate import HybridSolution
from ..model import HybridGDE
from ._fitted import Fitted
from ._predictors import NetworkPredictor
from ._view import View

_MOST_NODES = 12
_BETWEEN = 8


@dataclasses.dataclass(frozen=True)
class Flow:
    """States h of some sensors at stamps, each stamp of a reading twice: before the jump, and after it."""

    sensors: tuple[str, ...]
    stamps: Float[np.ndarray, " times"]
    states: Float[np.ndarray, "times sensors hidden"]
    observed: Float[np.ndarray, " jumps"]


def latent_flow(fitted: Fitted, readings: Readings) -> Flow | None:
    """The states of some sensors along the last window of readings; None where a model has no such state."""
    predictor = fitted.predictor
    if not isinstance(predictor, NetworkPredictor) or not isinstance(predictor.network, HybridGDE):
        return None
    source = fitted.source(readings.seen())
    ids, last = source.readings.ids, len(source.readings.stamps) - 1
    if last < 1:
        return None
    windows = source.windows(np.array([last]), source.readings.stamps[None, [last]] + source.readings.clock.step)
    had = np.asarray(windows.mask[0]).any(axis=(1, 2))
    t = np.asarray(windows.times[0], float)
    # The last interval is as long as the one before, though nothing ends it.
    ends = np.append(t[1:], 2 * t[-1] - t[-2])
    shares = np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1)
    between = t[:, None] + (ends - t)[:, None] * shares
    asked = between.reshape(1, -1).astype(windows.times.dtype)
    sol = _solve(predictor.network, predictor.view, predictor.graph, jax.tree.map(jnp.asarray, windows), asked)

    sensors = np.unique(np.linspace(0, len(ids) - 1, min(_MOST_NODES, len(ids))).round().astype(int))
    hidden: int = predictor.network.jump.layout.hidden  # pyright: ignore[reportFunctionMemberAccess]
    before, after, inside = (np.asarray(a[0], float)[:, sensors, :hidden] for a in (sol.before, sol.after, sol.states))
    inside = inside.reshape(len(t), _BETWEEN, *inside.shape[1:])
    states = np.concatenate([before[:, None], after[:, None], inside], axis=1)
    times = np.concatenate([t[:, None], t[:, None], between], axis=1)
    # Steps before the first reading only pad the window.
    states, times = states[had].reshape(-1, *states.shape[2:]), times[had].reshape(-1)

    def stamps(steps: np.ndarray) -> np.ndarray:
        return source.readings.stamps[last] + (steps - t[-1]) * source.readings.clock.step

    return Flow(tuple(ids[i] for i in sensors), stamps(times), states, stamps(t[had]))


@eqx.filter_jit
def _solve(network: HybridGDE, view: View, graph: Graph, windows: Windows, times: Any) -> HybridSolution:
    shown, inputs = view.show(windows)
    return network.solve(shown.stream(graph, inputs), times)
